"""A command's options: each is also a key of hyper-parameter files (`--hparam`) and of `--set`.

Default < file < `--set` < the option itself. A command that runs models takes their own files too, which say
`model:`; common/cli/model_settings.py holds what these say of the models.
"""

from __future__ import annotations

import argparse
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from melforge.common.cli import model_settings
from melforge.common.cli.flags import read_flags
from melforge.common.cli.model_settings import (
    DEFAULT,
    PRECISION,
    ModelSettings,
    Overlay,
    field_names,
    with_half,
)
from melforge.common.config.aliases import require_one_name
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import MODEL, line, read_file, read_override, require_model
from melforge.common.config.typed import build, require_known, typed
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError, unknown
from melforge.common.registry import KIND_WORDS, MODELS, get_model
from melforge.common.stages.choose import KINDS as SPEAKING

USER_ERROR = 2
MISSING = "missing"
PLAIN = (bool, int, float, str, Path)
Entries = Mapping[str, Entry]


@dataclass(frozen=True, eq=False)
class Option:
    """An option or positional argument as argparse made it, and what a file may give in its place."""

    action: argparse.Action
    required: bool  # by the command line or a file
    repeated: bool  # a list

    @property
    def name(self) -> str:
        return self.action.dest

    @property
    def flag(self) -> str:
        """As it is written on a command line."""
        action = self.action
        return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)

    @property
    def default(self) -> Any:
        default, kind = self.action.default, self.action.type
        if isinstance(default, str) and callable(kind):
            return kind(default)
        return list(default) if isinstance(default, list) else default

    def value(self, entry: Entry) -> Any:
        """What the option would have made of an entry on the command line."""
        if entry.value in (None, "None") and self.action.default is None:
            return None
        if not self.repeated:
            return self._single(entry)
        items = [Entry(i, entry.place) for i in entry.value] if isinstance(entry.value, list) else [entry]
        return [self._single(item) for item in items]

    def _single(self, entry: Entry) -> Any:
        kind: Any = bool if self.action.nargs == 0 else self.action.type or str
        value, text = entry.value, entry.text
        if kind is not bool and type(value) in (int, float):
            text = text or str(value)  # `voice: 3` is text, and so is a new voice's `denoising_strength: 0.1`
        try:
            value = typed(value, kind, text) if kind in PLAIN else kind(text or typed(value, str))
        except TypeError as error:
            raise InputError(f"{entry.place}: {self.name} must be {error}") from None
        except argparse.ArgumentTypeError as error:
            raise InputError(f"{entry.place}: {self.name} {error}") from None
        except ValueError:
            raise InputError(f"{entry.place}: {self.name} cannot be {value!r}") from None
        choices = self.action.choices
        if choices is not None and value not in choices:
            raise InputError(f"{entry.place}: {unknown(self.name, value, map(str, choices))}")
        return value


class Group:
    """Options under a heading, or of which one excludes the others; each is recorded as an `Option`."""

    def __init__(self, parser: Parser, container: Any, exclusive: bool = False, required: bool = False):
        self.parser, self.container = parser, container  # argparse's
        self.exclusive, self.required = exclusive, required
        self.names: list[str] = []  # of its own options

    def add_argument(self, *names: str, required: bool = False, **how: Any) -> None:
        action = self.container.add_argument(*names, **how)
        repeated = how.get("action") == "append" or how.get("nargs") in ("*", "+")
        self.parser.options[action.dest] = Option(action, required or action.required, repeated)
        self.names.append(action.dest)
        action.required = False  # a file may give it

    def add_argument_group(self, title: str) -> Group:
        return Group(self.parser, self.container.add_argument_group(title))

    def add_mutually_exclusive_group(self, required: bool = False) -> Group:
        group = Group(self.parser, self.container.add_mutually_exclusive_group(), True, required)
        self.parser.exclusive_groups.append(group)
        return group


class _Argparse(argparse.ArgumentParser):
    """Errors in one line; what files may give is required in the help only."""

    mark_required: Callable[[], None]
    written: Mapping[str, str] = {}  # our option -> as it stands on the command line, where that differs

    def error(self, message: str) -> NoReturn:
        for option, flag in self.written.items():
            message = re.sub(rf"(?<=argument )(\S*/)?{option}(/\S*)?:", f"{flag}:", message)
        self.exit(USER_ERROR, f"error: {message} (see {self.prog} --help)\n")

    def format_help(self) -> str:
        self.mark_required()
        return super().format_help()


class Parser(Group):
    """The options of a command, with `--hparam`, `--set`, `--print-hparams` and `--debug`.

    What it parses has further attributes: `places` (the entries that files or `--set` gave for options),
    `built` (an instance of each of `classes`, dataclasses whose fields are keys too), and for a command that
    runs models (`kinds`: of the registry's) `selected`, the models that files name, and
    `deployments` and `overrides`, as `TextToSpeech.load` takes them. `model` is the one whose files a recipe
    takes, `hparam` the file that it reads unless one is given; `choose` gives the names of the models that
    run, for commands with a way of their own to say so. Shipped files of the model `files_of` (default:
    `model`) are found by their names alone.
    """

    def __init__(
        self,
        *,
        classes: Sequence[type] = (),
        model: str | None = None,
        hparam: Path | None = None,
        kinds: Sequence[str] = (),
        choose: Callable[[argparse.Namespace], Iterable[str]] | None = None,
        files_of: str | None = None,
        **how: Any,
    ):
        form = argparse.RawDescriptionHelpFormatter if "epilog" in how else argparse.HelpFormatter
        parser = _Argparse(**{"formatter_class": form, **how})
        super().__init__(self, parser)
        parser.mark_required = self._mark_required
        self.prog, self.error, self.exit = parser.prog, parser.error, parser.exit
        self.options: dict[str, Option] = {}
        self.exclusive_groups: list[Group] = []
        self.classes, self.model, self.kinds = classes, model, tuple(kinds)
        self._default_files, self._files_of = [hparam] if hparam else [], files_of or model
        self._choose = choose or self._usual_choice
        group = parser.add_argument_group("settings")
        group.add_argument(
            "--hparam",
            action="append",
            type=Path,
            metavar="FILE",
            help="YAML with values of these options, or of a model or recipe (see docs/hparams.md"
            + (f"; default: {hparam})" if hparam else ")")
            + "; may be repeated, the last one wins",
        )
        group.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="one such value; may be repeated"
        )
        group.add_argument(
            "--print-hparams", action="store_true", help="print every value and its place, as YAML, and stop"
        )
        group.add_argument(
            "--debug", action="store_true", help="show a fault's traceback (also: $MELFORGE_DEBUG)"
        )

    def _mark_required(self) -> None:
        for option in self.options.values():
            option.action.required = option.required
        for group in self.exclusive_groups:
            group.container.required = group.required

    def parse_args(self, args: Sequence[str] | None = None) -> argparse.Namespace:
        """The options with their values. Whatever is wrong in a file or in `--set` is an InputError."""
        flags, keys, own = self._parse_flags(args)
        overlays = [self._read_file(path) for path in own.hparam or self._default_files]
        require_one_name(text.partition("=")[0].strip() for text in own.set)
        overlays += [self._overlay(*read_override(text)) for text in own.set]
        overlays += [self._overlay(key, entry) for key, entry in keys.items()]
        if self.kinds and PRECISION in self.options:
            if PRECISION in flags:
                overlays.append(Overlay("--precision", None, {PRECISION: flags[PRECISION]}, explicit=True))
            overlays = [with_half(overlay) for overlay in overlays]
            model_settings.require_one_precision(overlays)
        if not self.kinds:
            for overlay in overlays:
                require_known(overlay.entries, {*self.options, *field_names(self.classes)})
        options = self._resolve_options(overlays, flags)
        selected = self._select(overlays, options)
        values = argparse.Namespace(**{name: entry.value for name, entry in options.items()})
        values.selected = selected
        ours = {name: (DEFAULT, MISSING, option.flag) for name, option in self.options.items()}
        values.places = {name: entry for name, entry in options.items() if entry.place not in ours[name]}
        entries = {name: entry for overlay in overlays for name, entry in overlay.entries.items()}
        where = (own.hparam or self._default_files or [self.prog])[-1]
        values.built = tuple(build(cls, entries, where) for cls in self.classes)
        models: dict[str, ModelSettings] = {}
        if own.print_hparams or any(o.model or o.entries.keys() - self.options for o in overlays):
            models = self._resolve_models(overlays, options, values, flags)
        values.deployments = {model: settings.deployment for model, settings in models.items()}
        values.overrides = {model: settings.overrides for model, settings in models.items()}
        if own.print_hparams:
            sys.stdout.write(self._describe(values, options, entries, models))
            self.exit(0)
        needed = [[name] for name, option in self.options.items() if option.required]
        needed += [group.names for group in self.exclusive_groups if group.required]
        for names in needed:
            if all(getattr(values, name) in (None, []) for name in names):
                self.error(f"{' or '.join(self.options[name].flag for name in names)} is missing")
        return values

    # Flags, files and --set

    def _parse_flags(
        self, args: Sequence[str] | None
    ) -> tuple[dict[str, Entry], dict[str, Entry], argparse.Namespace]:
        """The options that stand on the command line, the keys that do, and all that argparse makes of it."""
        words = [(word, one.repeated) for one in self.options.values() for word in one.action.option_strings]
        known = {"--help": False, **dict(words)}
        args, keys, written = read_flags(sys.argv[1:] if args is None else args, known, self._hints)
        self.container.written = written
        # What is there before argparse begins keeps its value unless an option changes it.
        parsed = self.container.parse_args(args, argparse.Namespace(**dict.fromkeys(self.options)))
        flags = {}
        for name, option in self.options.items():
            value = getattr(parsed, name)
            left_out = not option.action.option_strings and value in ([], option.action.default)
            if value is not None and not left_out:
                flags[name] = Entry(value, written.get(option.flag, option.flag))
        return flags, keys, parsed

    def _hints(self) -> dict[str, Any]:
        """The type hints of a model's or recipe's keys, which may stand on the command line too."""
        hints = {name: hint for cls in self.classes for name, hint in typing.get_type_hints(cls).items()}
        for model in MODELS.values():
            if model.kind in self.kinds:
                hints |= model_settings.hints_of(model.name)
        return hints | (typing.get_type_hints(Deployment) if self.kinds else {})

    def _read_file(self, path: Path) -> Overlay:
        entries = read_file(path, self._files_of)
        stated = entries.pop(MODEL, None)
        if self.model:
            require_model(path, stated, self.model)
        if self.model or stated is None:
            return Overlay(str(path), None, entries, explicit=False)
        if stated.value not in MODELS:
            raise InputError(f"{stated.place}: {unknown('model', stated.value, MODELS)}")
        kind = get_model(stated.value).kind
        if kind not in self.kinds:
            what = KIND_WORDS[kind] if self.kinds else "model"
            whose = f"{path} is a file of {stated.value} ({stated.place})"
            raise InputError(f"{whose}, but {self.prog} runs no {what}")
        return with_half(Overlay(str(path), stated.value, entries, explicit=False))

    def _overlay(self, key: str, entry: Entry) -> Overlay:
        """A value that stands on the command line, for one model as `--set fastpitch.key` or for all."""
        word, dot, rest = key.partition(".")
        if not dot or not self.kinds:
            return Overlay(entry.place, None, {key: entry}, explicit=True)
        if word not in MODELS:
            raise InputError(f"{entry.place}: {unknown('model', word, MODELS)}")
        return with_half(Overlay(entry.place, word, {rest: entry}, explicit=True))

    # The options

    def _resolve_options(self, overlays: list[Overlay], flags: Entries) -> dict[str, Entry]:
        """Each option's value and place."""
        options = self.options
        levels = [{name: Entry(o.default, MISSING if o.required else DEFAULT) for name, o in options.items()}]
        for overlay in overlays:
            # What a model or a recipe has too, such as a batch size, is theirs in their files.
            theirs = model_settings.keys_of(overlay.model) if overlay.model else field_names(self.classes)
            ours = options.keys() - theirs
            given = {key: entry for key, entry in overlay.entries.items() if key in ours}
            levels.append({key: Entry(options[key].value(e), e.place) for key, e in given.items()})
        levels.append(dict(flags))
        for group in self.exclusive_groups:
            _keep_one(group.names, levels)
        return {name: entry for level in levels for name, entry in level.items()}

    def _select(self, overlays: list[Overlay], options: dict[str, Entry]) -> list[str]:
        """Chooses the models whose files are given, unless others were asked for; their names."""
        files = [(overlay, overlay.model) for overlay in overlays if overlay.model and not overlay.explicit]
        for overlay, model in files:
            kind = get_model(model).kind
            if kind not in options:
                continue
            asked = options[kind]
            if asked.value is None:
                options[kind] = Entry(model, overlay.where)
            elif not {model, "all"} & set(asked.value.split(",")):
                both = f"{overlay.where} is a file of {model}, but {asked.place} says {asked.value}"
                raise InputError(f"{both}: leave one of them out")
        return list(dict.fromkeys(model for _, model in files))

    # The models

    def _usual_choice(self, args: argparse.Namespace) -> list[str]:
        """The names of the models that the usual options choose."""
        wanted = {kind: getattr(args, kind, None) for kind in SPEAKING}
        if all(wanted[kind] for kind in self.kinds):
            return [get_model(str(wanted[kind]), kind).name for kind in self.kinds]
        from melforge.common.synthesis.loading import choose_sources

        sources = choose_sources(wanted, args.voice, args.checkpoint)
        return [sources[kind].model for kind in self.kinds]

    def _resolve_models(
        self, overlays: list[Overlay], options: dict[str, Entry], values: argparse.Namespace, flags: Entries
    ) -> dict[str, ModelSettings]:
        if not self.kinds:
            return {}
        if "batch_size" in flags:
            entries = {"batch_size": flags["batch_size"]}
            overlays = [*overlays, Overlay("--batch-size", None, entries, explicit=True)]
        models = model_settings.resolve(overlays, list(dict.fromkeys(self._choose(values))), self.options)
        if "backend" in options and models:
            backend = model_settings.choose_backend(models, options["backend"], options.get(PRECISION))
            options["backend"], values.backend = backend, backend.value
        return models

    def _describe(
        self, values: argparse.Namespace, options: Entries, entries: Entries, models: dict[str, ModelSettings]
    ) -> str:
        """All values with their places, as YAML."""
        found = {model: model_settings.find_source(values, model) for model in models}
        lines = [line(MODEL, self.model, self.prog)] if self.model else []
        for name, entry in options.items():
            chosen = [model for model in models if get_model(model).kind == name]
            if entry.value is None and chosen:
                entry = Entry(",".join(chosen), found[chosen[0]][1])
            lines.append(line(name, entry.value, entry.place))
        built = {f.name: getattr(one, f.name) for one in values.built for f in fields(one)}
        unstated = Entry(None, DEFAULT)
        lines += [line(name, value, entries.get(name, unstated).place) for name, value in built.items()]
        from melforge.common.synthesis.loading import override

        for model, settings in models.items():
            override(found[model][0], settings.overrides)  # what would be refused does not hold
            lines.append(f"{model}:\n")
            lines += [f"  {text}" for text in model_settings.describe(model, settings, *found[model])]
        return "".join(lines)


def _keep_one(names: Sequence[str], levels: list[dict[str, Entry]]) -> None:
    """Of options that exclude each other, one given later takes the place of those given before."""
    for number, level in enumerate(levels[1:], start=1):
        here = [name for name in names if name in level]
        if len(here) > 1:
            places = " and ".join(level[name].place for name in here)
            raise InputError(f"{places}: {' and '.join(here)} exclude each other")
        for earlier in levels[1:number] if here else ():
            for name in names:
                earlier.pop(name, None)
