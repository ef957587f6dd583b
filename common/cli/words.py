"""The words of a command line: options, positional arguments, and keys of models that stand as options.

Options may be written as NVIDIA's programs spell them: `_` for `-`, and by their own names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from melforge.common.cli.option import Option
from melforge.common.config.aliases import SWITCHES, own_entry, own_name, same_setting
from melforge.common.config.hparams import read_value
from melforge.common.config.typed import likely_name
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError

TRUTHS = ("true", "false")
Entries = dict[str, Entry]


def read_words(
    args: Sequence[str], options: Collection[Option], hints: Callable[[], Mapping[str, Any]]
) -> tuple[Entries, Entries]:
    """The values of options, and the entries of other keys, each by its key.

    `hints` gives the type hints of these keys, which may stand as `--KEY VALUE`, `--KEY=VALUE`, or as `--KEY`
    alone for what is true or false. An InputError for what is neither.
    """
    known = {word: option for option in options for word in option.words}
    values: Entries = {}
    entries: Entries = {}
    written: dict[str, str] = {}  # key -> how it was written first
    loose: list[str] = []
    left = list(args)
    while left:
        word = left.pop(0)
        if word == "--":
            loose += left
            break
        if not is_option(word):
            loose.append(word)
            continue
        flag, text = _split(word, known)
        name = flag.lstrip("-").replace("-", "_")
        if found := _find(flag, known):
            option, key = known[found], known[found].key
            value = _take(option, option.words[found], flag, text, left)
            if option.added:
                value = [*(values[key].value if key in values else []), value]
            values[key] = Entry(value, flag)
        else:
            key, option = own_name(name), None
            ours = [one.key for one in options] if name in SWITCHES else []
            if not flag.startswith("--") or (key not in ours and key not in hints()):
                loose_ones = [option.flag for option in options if option.positional]
                raise InputError(_unknown(flag, [*(f"--{key}" for key in hints()), *known], loose_ones))
            hint = bool if name in SWITCHES else hints()[key]
            entries[key] = own_entry(name, _key_entry(flag, hint, text, left))
        name = name if key == own_name(name) else key  # not a beginning of it
        if (first := written.setdefault(key, name)) != name and not (option and option.added):
            raise same_setting(f"--{first} and --{name}")
    _place(loose, [option for option in options if option.positional], values)
    return values, entries


def is_option(word: str) -> bool:
    """Not so are a lone dash, numbers below 0, and texts: what has a space before any `=`."""
    if not word.startswith("-") or word == "-" or " " in word.partition("=")[0]:
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _split(word: str, known: Mapping[str, Option]) -> tuple[str, str | None]:
    """The option and its value: of `--output=x`, and of `-ox`."""
    if not word.startswith("--") and word[:2] in known and word[2:]:
        return word[:2], word[2:].removeprefix("=")
    flag, equals, text = word.partition("=")
    return flag, text if equals else None


def _find(flag: str, known: Mapping[str, Option]) -> str | None:
    """The known word that is meant: this one, one that begins so, or our name for one of NVIDIA's."""
    dashed = flag.replace("_", "-")
    if flag in known or dashed in known:
        return flag if flag in known else dashed
    if not flag.startswith("--"):
        return None
    begun = [word for word in known if word.startswith(dashed)]
    if len({known[word].key for word in begun}) > 1:
        raise InputError(f"{flag} may be {' or '.join(begun)}: write more of it")
    name = flag[2:].replace("-", "_")
    own = f"--{own_name(name).replace('_', '-')}"
    return begun[0] if begun else own if own in known and name not in SWITCHES else None


def _take(option: Option, meaning: bool, flag: str, text: str | None, left: list[str]) -> Any:
    """An option's value; takes its words from what is left of the command line."""
    if option.switch:
        if text is not None and text.lower() not in TRUTHS:
            raise InputError(f"{flag} takes no value, or true or false, not {text!r}")
        return meaning == (text is None or text.lower() == "true")
    if option.many:
        texts = [text] if text is not None else []
        while left and not is_option(left[0]):
            texts.append(left.pop(0))
        if texts or option.nargs == "*":
            return [option.value_of(one, flag) for one in texts]
    elif text is not None or (left and not is_option(left[0])):
        return option.value_of(left.pop(0) if text is None else text, flag)
    elif option.nargs == "?":
        return option.how["const"]
    raise InputError(f"{flag} needs a value")


def _key_entry(flag: str, hint: Any, text: str | None, left: list[str]) -> Entry:
    """The entry of a key that stands as an option."""
    if text is not None:
        return read_value(text, f"{flag}={text}")
    has = bool(left) and not left[0].startswith("--")
    if hint is bool and not (has and left[0].lower() in TRUTHS):
        return read_value("true", flag)
    if not has:
        raise InputError(f"{flag} needs a value")
    text = left.pop(0)
    return read_value(text, flag if text == "true" else f"{flag}={text}")


def _unknown(flag: str, known: Iterable[str], positional: Sequence[str]) -> str:
    names = {word.lstrip("-").replace("-", "_"): word for word in known}
    near = likely_name(flag.lstrip("-").replace("-", "_"), names)
    way_out = f"; did you mean {names[near]}?" if near else ""
    if positional and not near:
        way_out = f"; without an option it takes {' '.join(positional)}"
    return f"unknown option {flag}{way_out}" + ("" if near else "; --help lists all")


def _place(words: list[str], options: Sequence[Option], values: Entries) -> None:
    """The positional arguments, in their order."""
    for option in options:
        mine, words = (words, []) if option.many else (words[:1], words[1:])
        if mine:
            found = [option.value_of(word, option.flag) for word in mine]
            values[option.key] = Entry(found if option.many else found[0], option.flag)
        if words and option.flag == "TEXT":
            raise InputError(f'unexpected {words[0]!r}: quote the text, "{" ".join([*mine, *words])}"')
    if words:
        raise InputError(f"unexpected {words[0]!r}: the command takes no such argument")
