"""A command's settings: every option is also a key of hyper-parameter files (`--hparam`) and of `--set`.

Default < file < `--set` < the option itself. A command that runs models takes their own files too, which say
`model:`; what these say of the models is the matter of model_settings.py.
"""

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from common.cli.model_settings import (
    DEFAULT,
    PRECISION,
    Given,
    ModelSettings,
    as_half,
    choose_backend,
    describe,
    field_names,
    find_source,
    keys_of,
    settle,
    with_precision,
)
from common.config.hparams import MODEL, line, read_file, read_override, require_model
from common.config.typed import build, located, require_known, typed
from common.config.yaml_file import Entry
from common.errors import InputError, unknown
from common.registry import MODELS, get_model

USER_ERROR = 2
MISSING = "missing"
NO_KEYS = ("help", "hparam", "set", "print_hparams")
KINDS = {"acoustic": "acoustic model", "vocoder": "vocoder"}


class Parser(argparse.ArgumentParser):
    """An argument parser with `--hparam`, `--set` and `--print-hparams`.

    What it parses has further attributes: `places` (the entries that files or `--set` gave for options),
    `built` (an instance of each of `classes`, dataclasses whose fields are keys too), and for a command that
    runs models (`kinds`: "acoustic", "vocoder" or both) `selected`, the models that files name, and
    `deployments` and `overrides`, as `TextToSpeech.load` takes them. `model` is the one whose files a recipe
    takes, `hparam` the file that it reads unless one is given; `choose` gives the names of the models that
    run, for commands with a way of their own to say so.
    """

    def __init__(
        self,
        *args: Any,
        classes: Sequence[type] = (),
        model: str | None = None,
        hparam: Path | None = None,
        kinds: Sequence[str] = (),
        choose: Callable[[argparse.Namespace], Iterable[str]] | None = None,
        **options: Any,
    ):
        super().__init__(*args, **options)
        self.classes, self.model, self.kinds = classes, model, tuple(kinds)
        self._default_files = [hparam] if hparam else []
        self._choose = choose or self._usual_choice
        self._needed: list[Any] = []  # required options, and groups of which one is
        group = self.add_argument_group("settings")
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
            "--print-hparams",
            action="store_true",
            help="print every value and where it comes from, as YAML, and stop",
        )

    def error(self, message: str) -> typing.NoReturn:
        self.exit(USER_ERROR, f"error: {message} (see {self.prog} --help)\n")

    def format_help(self) -> str:
        for one in self._needed:
            one.required = True
        return super().format_help()

    def parse_args(self, args=None, namespace=None) -> argparse.Namespace:
        """The options with their values. Whatever is wrong in a file or in `--set` is an InputError."""
        flags, own = self._parse_flags(args)
        given = [self._read_file(path) for path in own.hparam or self._default_files]
        given += [self._read_set(text) for text in own.set]
        if self.kinds and PRECISION in self._options:
            given = with_precision(given, flags)
        if not self.kinds:
            for one in given:
                require_known(one.entries, {*self._options, *field_names(self.classes)})
        options = self._settle_options(given, flags)
        values = argparse.Namespace(**{name: entry.value for name, entry in options.items()})
        values.selected = self._select(given, options, values)
        values.places = {
            name: entry
            for name, entry in options.items()
            if entry.place not in (DEFAULT, MISSING, name_of(self._options[name]))
        }
        entries = {name: entry for one in given for name, entry in one.entries.items()}
        where = (own.hparam or self._default_files or [self.prog])[-1]
        values.built = tuple(build(cls, entries, where) for cls in self.classes)
        models: dict[str, ModelSettings] = {}
        if own.print_hparams or any(one.model or one.entries.keys() - self._options for one in given):
            models = self._settle_models(given, options, values, flags)
        values.deployments = {model: settings.deployment for model, settings in models.items()}
        values.overrides = {model: settings.overrides for model, settings in models.items()}
        if own.print_hparams:
            sys.stdout.write(self._describe(values, options, entries, models))
            self.exit(0)
        for one in self._needed:
            actions = getattr(one, "_group_actions", [one])
            if all(getattr(values, action.dest) in (None, []) for action in actions):
                self.error(f"{' or '.join(map(name_of, actions))} is missing")
        return values

    @property
    def _options(self) -> dict[str, argparse.Action]:
        """The options that are keys."""
        return {action.dest: action for action in self._actions if action.dest not in NO_KEYS}

    # What is given

    def _parse_flags(self, args: Sequence[str] | None) -> tuple[dict[str, Entry], argparse.Namespace]:
        """The options that stand on the command line, and all that argparse makes of it."""
        self._needed = [one for one in (*self._actions, *self._mutually_exclusive_groups) if one.required]
        for one in self._needed:
            one.required = False  # a file may give it
        # What is there before argparse begins keeps its value unless an option changes it.
        parsed = super().parse_args(args, argparse.Namespace(**dict.fromkeys(self._options)))
        flags = {}
        for name, action in self._options.items():
            value = getattr(parsed, name)
            left_out = not action.option_strings and value in ([], action.default)
            if value is not None and not left_out:
                flags[name] = Entry(value, name_of(action))
        return flags, parsed

    def _read_file(self, path: Path) -> Given:
        entries = read_file(path)
        stated = entries.pop(MODEL, None)
        if self.model:
            require_model(path, stated, self.model)
        if self.model or stated is None:
            return Given(str(path), None, entries, explicit=False)
        if stated.value not in MODELS:
            raise InputError(f"{stated.place}: {unknown('model', stated.value, MODELS)}")
        kind = get_model(stated.value).kind
        if kind not in self.kinds:
            what = KINDS[kind] if self.kinds else "model"
            raise InputError(
                f"{path} is a file of {stated.value} ({stated.place}), but {self.prog} runs no {what}"
            )
        return as_half(Given(str(path), stated.value, entries, explicit=False))

    def _read_set(self, text: str) -> Given:
        key, entry = read_override(text)
        word, dot, rest = key.partition(".")
        if not dot or not self.kinds:
            return Given(entry.place, None, {key: entry}, explicit=True)
        if word not in MODELS:
            raise InputError(f"{entry.place}: {unknown('model', word, MODELS)}")
        return as_half(Given(entry.place, word, {rest: entry}, explicit=True))

    # The options

    def _settle_options(self, given: Sequence[Given], flags: Mapping[str, Entry]) -> dict[str, Entry]:
        """Each option's value and place."""
        layers = [
            {
                name: Entry(_default(action), MISSING if action in self._needed else DEFAULT)
                for name, action in self._options.items()
            }
        ]
        for one in given:
            # What a model or a recipe has too, such as a batch size, is theirs in their files.
            theirs = keys_of(one.model) if one.model else field_names(self.classes)
            layers.append(
                {
                    key: Entry(option_value(self._options[key], entry), entry.place)
                    for key, entry in one.entries.items()
                    if key in self._options and key not in theirs
                }
            )
        layers.append(dict(flags))
        for group in self._mutually_exclusive_groups:
            _keep_one([action.dest for action in group._group_actions], layers)
        return {name: entry for layer in layers for name, entry in layer.items()}

    def _select(
        self, given: Sequence[Given], options: dict[str, Entry], values: argparse.Namespace
    ) -> list[str]:
        """Chooses the models whose files are given, unless others were asked for; their names."""
        files = [one for one in given if one.model and not one.explicit]
        for one in files:
            kind = get_model(one.model).kind
            if kind not in options:
                continue
            asked = options[kind]
            if asked.value is None:
                options[kind] = Entry(one.model, one.where)
                setattr(values, kind, one.model)
            elif not {one.model, "all"} & set(asked.value.split(",")):
                raise InputError(
                    f"{one.where} is a file of {one.model}, but {asked.place} says {asked.value}: "
                    "leave one of them out"
                )
        return list(dict.fromkeys(one.model for one in files))

    # The models

    def _usual_choice(self, args: argparse.Namespace) -> list[str]:
        """The names of the models that the usual options choose."""
        wanted = {kind: getattr(args, kind, None) for kind in KINDS}
        if all(wanted[kind] for kind in self.kinds):
            return [get_model(wanted[kind], kind).name for kind in self.kinds]
        from common.synthesis.loading import choose_sources

        sources = choose_sources(wanted, args.voice, args.checkpoint)
        return [sources[kind].model for kind in self.kinds]

    def _settle_models(
        self,
        given: Sequence[Given],
        options: dict[str, Entry],
        values: argparse.Namespace,
        flags: Mapping[str, Entry],
    ) -> dict[str, ModelSettings]:
        if not self.kinds:
            return {}
        if "batch_size" in flags:
            entries = {"batch_size": flags["batch_size"]}
            given = [*given, Given("--batch-size", None, entries, explicit=True)]
        models = settle(given, list(dict.fromkeys(self._choose(values))), self._options)
        if "backend" in options and models:
            options["backend"] = choose_backend(models, options["backend"], options.get(PRECISION))
            values.backend = options["backend"].value
        return models

    def _describe(
        self,
        values: argparse.Namespace,
        options: Mapping[str, Entry],
        entries: Mapping[str, Entry],
        models: Mapping[str, ModelSettings],
    ) -> str:
        """All values with their places, as YAML."""
        found = {model: find_source(values, model) for model in models}
        lines = [line(MODEL, self.model, self.prog)] if self.model else []
        for name, entry in options.items():
            chosen = [model for model in models if get_model(model).kind == name]
            if entry.value is None and chosen:
                entry = Entry(",".join(chosen), found[chosen[0]][1])
            lines.append(line(name, entry.value, entry.place))
        fixed = {f.name: getattr(one, f.name) for one in values.built for f in fields(one)}
        for name, value in fixed.items():
            lines.append(line(name, value, entries[name].place if name in entries else DEFAULT))
        for model, settings in models.items():
            lines.append(f"{model}:\n")
            lines += [f"  {text}" for text in describe(model, settings, *found[model])]
        return "".join(lines)


def _default(action: argparse.Action) -> Any:
    default = action.default
    if isinstance(default, str) and action.type:
        return action.type(default)
    return list(default) if isinstance(default, list) else default


def _keep_one(names: Sequence[str], layers: list[dict[str, Entry]]) -> None:
    """Of options that exclude each other, one given later takes the place of those given before."""
    for number, layer in enumerate(layers[1:], start=1):
        here = [name for name in names if name in layer]
        if len(here) > 1:
            places = " and ".join(layer[name].place for name in here)
            raise InputError(f"{places}: {' and '.join(here)} exclude each other")
        for earlier in layers[1:number] if here else ():
            for name in names:
                earlier.pop(name, None)


def option_value(action: argparse.Action, entry: Entry) -> Any:
    """What an option would have made of an entry on the command line."""
    if entry.value in (None, "None") and action.default is None:
        return None
    if action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction):
        if isinstance(entry.value, list):
            return [_single_value(action, Entry(item, entry.place)) for item in entry.value]
        return [_single_value(action, entry)]
    return _single_value(action, entry)


def _single_value(action: argparse.Action, entry: Entry) -> Any:
    kind = bool if action.nargs == 0 else action.type or str
    value, text = entry.value, entry.text
    if kind is not bool and type(value) in (int, float):
        text = text or str(value)  # `voice: 3` is text, and so is `denoising_strength: 0.1` for make_voice.py
    try:
        plain = kind in (bool, int, float, str, Path)
        value = typed(value, kind, text) if plain else kind(text or typed(value, str))
    except TypeError as error:
        raise InputError(f"{entry.place}: {action.dest} must be {error}") from None
    except argparse.ArgumentTypeError as error:
        raise InputError(f"{entry.place}: {action.dest} {error}") from None
    except ValueError:
        raise InputError(f"{entry.place}: {action.dest} cannot be {value!r}") from None
    if action.choices is not None and value not in action.choices:
        raise InputError(f"{entry.place}: {unknown(action.dest, value, map(str, action.choices))}")
    return value


def name_of(action: argparse.Action) -> str:
    """An option as it is written on the command line."""
    return action.option_strings[-1] if action.option_strings else action.metavar or action.dest


def with_places(error: ValueError, args: argparse.Namespace) -> InputError:
    """An error about options, with the places of those that were not given as such."""
    return located(error, args.places)
