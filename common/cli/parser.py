"""A command's options: each is also a key of hyper-parameter files (`--hparam`) and of `--set`.

Default < file < `--set` < the option itself. A command that runs models takes their own files too, which say
`model:`; common/cli/model_settings.py holds what these say of the models.
"""

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from melforge.common.cli import model_settings
from melforge.common.cli.model_settings import DEFAULT, Layer, ModelSettings, field_names
from melforge.common.cli.option import TYPES, Option
from melforge.common.cli.words import Entries, read_words
from melforge.common.config.aliases import own_name, same_setting
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import MODEL, line, read_file, read_override, require_model
from melforge.common.config.typed import build, require_known
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError, unknown
from melforge.common.registry import KIND_WORDS, MODELS, get_model

USER_ERROR = 2
MISSING = "missing"
NONE = Entry(None, DEFAULT)


class Group:
    """Options under a heading of --help."""

    def __init__(self, options: dict[str, Option], title: str = ""):
        self.options, self.title = options, title  # by their keys

    def add_argument(self, *names: str, **how: Any) -> None:
        """An option or positional argument, in argparse's words."""
        option = Option(names, self.title, how)
        self.options[option.key] = option

    def add_argument_group(self, title: str) -> Group:
        return Group(self.options, title)


class Parser(Group):
    """The options of a command, with `--hparam`, `--set`, `--print-hparams` and `--debug`.

    What it parses has further attributes: `places` (the entries that gave options their values),
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
        prog: str | None = None,
        **how: Any,
    ):
        super().__init__({})
        self.prog = prog or Path(sys.argv[0]).name
        self.how = {"prog": self.prog, **how}  # argparse's words
        self.exclusive: list[tuple[tuple[str, ...], bool]] = []  # keys, and whether one is required
        self.classes, self.model, self.kinds = classes, model, tuple(kinds)
        self._default_files, self._files_of = [hparam] if hparam else [], files_of or model
        self._choose = choose
        settings = self.add_argument_group("settings")
        what = "YAML with values of these options, or of a model or recipe (see docs/hparams.md"
        what += f"; default: {hparam})" if hparam else ")"
        files = {"action": "append", "type": TYPES["PATH"], "metavar": "FILE"}
        settings.add_argument("--hparam", **files, help=f"{what}; may be repeated, the last one wins")
        what = "the value of one option, or of a key of these files; may be repeated"
        settings.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=what)
        what = "print every value and where it comes from, as YAML, and exit"
        settings.add_argument("--print-hparams", action="store_true", help=what)
        what = "show a fault's traceback (also: $MELFORGE_DEBUG)"
        settings.add_argument("--debug", action="store_true", help=what)

    def exclude(self, *keys: str, required: bool = False) -> None:
        """Of these options one at most may be given; with `required` one must be."""
        self.exclusive.append((keys, required))

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")

    def parse_args(self, args: Sequence[str] | None = None) -> argparse.Namespace:
        """The options with their values. Whatever is wrong is an InputError."""
        args = sys.argv[1:] if args is None else args
        if {"-h", "--help"} & set(args):
            print(self.to_argparse().format_help(), end="")
            sys.exit(0)
        flags, keys = read_words(args, self.options.values(), self._hints)
        files = flags["hparam"].value if "hparam" in flags else self._default_files
        layers = [self._read_file(path) for path in files]
        layers += self._read_sets(flags["set"].value if "set" in flags else [])
        layers += [self._layer(key, entry) for key, entry in keys.items()]
        options = self._resolve_options(layers, flags)
        selected = self._select(layers, options)
        values = argparse.Namespace(**{key: entry.value for key, entry in options.items()})
        values.selected = selected
        values.places = {key: e for key, e in options.items() if e.place not in (DEFAULT, MISSING)}
        entries = {key: entry for layer in layers for key, entry in layer.entries.items()}
        values.built = tuple(build(cls, entries, (files or [self.prog])[-1]) for cls in self.classes)
        models = self._resolve_models([*layers, Layer("", None, flags, explicit=True)], options, values)
        values.deployments = {model: settings.deployment for model, settings in models.items()}
        values.overrides = {model: settings.overrides for model, settings in models.items()}
        if values.print_hparams:
            sys.stdout.write(self._describe(values, options, entries, models))
            sys.exit(0)
        needed = [(key,) for key, option in self.options.items() if option.required]
        for keys in [*needed, *(keys for keys, required in self.exclusive if required)]:
            if all(getattr(values, key) in (None, []) for key in keys):
                self.error(f"{' or '.join(self.options[key].flag for key in keys)} is missing")
        return values

    def to_argparse(self) -> argparse.ArgumentParser:
        """The same options for argparse, which writes the help."""
        form = argparse.RawDescriptionHelpFormatter if "epilog" in self.how else argparse.HelpFormatter
        parser = argparse.ArgumentParser(**{"formatter_class": form, **self.how})
        groups: dict[Any, Any] = {"": parser}
        exclusive = {key: one for one in self.exclusive for key in one[0]}
        for key, option in self.options.items():
            if option.title not in groups:
                groups[option.title] = parser.add_argument_group(option.title)
            group = groups[option.title]
            if one := exclusive.get(key):
                if one not in groups:
                    groups[one] = group.add_mutually_exclusive_group(required=one[1])
                group = groups[one]
            group.add_argument(*option.names, **option.how)
        return parser

    # Files and --set

    def _hints(self) -> dict[str, Any]:
        """The type hints of a model's or recipe's keys, which may stand on the command line too."""
        hints = {name: hint for cls in self.classes for name, hint in typing.get_type_hints(cls).items()}
        for model in MODELS.values():
            if model.kind in self.kinds:
                hints |= model_settings.hints_of(model.name)
        return hints | (typing.get_type_hints(Deployment) if self.kinds else {})

    def _read_file(self, path: Path) -> Layer:
        entries = read_file(path, self._files_of)
        stated = entries.pop(MODEL, None)
        if self.model:
            require_model(path, stated, self.model)
        if self.model or stated is None:
            return self._known(Layer(str(path), None, entries, explicit=False))
        if stated.value not in MODELS:
            raise InputError(f"{stated.place}: {unknown('model', stated.value, MODELS)}")
        kind = get_model(stated.value).kind
        if kind not in self.kinds:
            what = KIND_WORDS[kind] if self.kinds else "model"
            whose = f"{path} is a file of {stated.value} ({stated.place})"
            raise InputError(f"{whose}, but {self.prog} runs no {what}")
        return Layer(str(path), stated.value, entries, explicit=False)

    def _read_sets(self, texts: Iterable[str]) -> list[Layer]:
        """The values of --set, those for one model behind those for all."""
        written: dict[str, str] = {}
        layers = []
        for text in texts:
            name = text.partition("=")[0].strip()
            if (first := written.setdefault(own_name(name), name)) != name:
                raise same_setting(f"{first} and {name}")
            layers.append(self._layer(*read_override(text)))
        return layers

    def _layer(self, key: str, entry: Entry) -> Layer:
        """A value that stands on the command line, for one model as `--set fastpitch.key` or for all."""
        word, dot, rest = key.partition(".")
        if not dot or not self.kinds:
            return self._known(Layer(entry.place, None, {key: entry}, explicit=True))
        if word not in MODELS:
            raise InputError(f"{entry.place}: {unknown('model', word, MODELS)}")
        return Layer(entry.place, word, {rest: entry}, explicit=True)

    def _known(self, layer: Layer) -> Layer:
        """The layer; an InputError where no option or class has one of its keys (a model may, of `kinds`)."""
        if not self.kinds:
            require_known(layer.entries, {*self.options, *field_names(self.classes)})
        return layer

    def _resolve_options(self, layers: list[Layer], flags: Entries) -> dict[str, Entry]:
        """Each option's value and place."""
        options = self.options
        levels = [{key: Entry(o.default, MISSING if o.required else DEFAULT) for key, o in options.items()}]
        for layer in layers:
            # What a model or a recipe has too, such as a batch size, is theirs in their files.
            theirs = model_settings.keys_of(layer.model) if layer.model else field_names(self.classes)
            given = {key: entry for key, entry in layer.entries.items() if key in options.keys() - theirs}
            levels.append({key: Entry(options[key].value(e), e.place) for key, e in given.items()})
        levels.append(flags)
        for keys, _ in self.exclusive:
            _keep_one(keys, levels)
        return {key: entry for level in levels for key, entry in level.items()}

    def _select(self, layers: list[Layer], options: dict[str, Entry]) -> list[str]:
        """Chooses the models whose files are given, unless others were asked for; their names."""
        files = [(layer, layer.model) for layer in layers if layer.model and not layer.explicit]
        for layer, model in files:
            kind = get_model(model).kind
            if kind not in options:
                continue
            asked = options[kind]
            if asked.value is None:
                options[kind] = Entry(model, layer.where)
            elif not {model, "all"} & set(asked.value.split(",")):
                both = f"{layer.where} is a file of {model}, but {asked.place} says {asked.value}"
                raise InputError(f"{both}: leave one of them out")
        return list(dict.fromkeys(model for _, model in files))

    # The models

    def _resolve_models(
        self, layers: list[Layer], options: dict[str, Entry], values: argparse.Namespace
    ) -> dict[str, ModelSettings]:
        """What is said of each model that runs; which ones do is asked only where something is said."""
        said = any(layer.model or layer.entries.keys() - self.options for layer in layers)
        if not self.kinds or not (said or values.print_hparams or options.get("precision", NONE).value):
            return {}
        chosen = self._choose(values) if self._choose else model_settings.usual_choice(values, self.kinds)
        models = model_settings.resolve(layers, list(dict.fromkeys(chosen)), self.options)
        if "backend" in options and models:
            options["backend"] = model_settings.choose_backend(models, options["backend"])
            values.backend = options["backend"].value
        return models

    def _describe(
        self, values: argparse.Namespace, options: Entries, entries: Entries, models: dict[str, ModelSettings]
    ) -> str:
        """All values with their places, as YAML."""
        found = {model: model_settings.find_source(values, model) for model in models}
        lines = [line(MODEL, self.model, self.prog)] if self.model else []
        for key, entry in options.items():
            chosen = [model for model in models if get_model(model).kind == key]
            if entry.value is None and chosen:
                entry = Entry(",".join(chosen), found[chosen[0]][1])
            lines.append(line(key, entry.value, entry.place))
        built = {f.name: getattr(one, f.name) for one in values.built for f in fields(one)}
        lines += [line(key, value, entries.get(key, NONE).place) for key, value in built.items()]
        from melforge.common.synthesis.loading import override

        for model, settings in models.items():
            override(found[model][0], settings.overrides)  # what would be refused does not hold
            lines.append(f"{model}:\n")
            lines += [f"  {text}" for text in model_settings.describe(model, settings, *found[model])]
        return "".join(lines)


def _keep_one(keys: Sequence[str], levels: list[dict[str, Entry]]) -> None:
    """Of options that exclude each other, one given later takes the place of those given before."""
    for number, level in enumerate(levels[1:], start=1):
        here = [key for key in keys if key in level]
        if len(here) > 1:
            places = " and ".join(level[key].place for key in here)
            quote = "; quote a text of several words" if "TEXT" in places else ""
            named = places if level is levels[-1] else f"{places}: {' and '.join(here)}"
            raise InputError(f"{named} exclude each other{quote}")
        for earlier in levels[1:number] if here else ():
            for key in keys:
                earlier.pop(key, None)
