"""A command's settings: every option is also a key of hyper-parameter files (`--hparam`) and of `--set`.

Default < file < `--set` < the option itself. A command that runs models takes their files too, which say
`model:`. Of these the engines' keys count (`Deployment`), while a network's own sizes belong to its weights:
what a file says of them gives way, and only an explicit `--set` changes them.
"""

from __future__ import annotations

import argparse
import json
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from common.deployment import Deployment
from common.hparams import (
    MODEL,
    Entry,
    build,
    located,
    read_file,
    read_override,
    require_known,
    require_model,
    typed,
    typed_entry,
)
from common.registry import MODELS, get_model, unknown

USER_ERROR = 2
DEFAULT, MISSING = "default", "missing"
NO_KEYS = ("help", "hparam", "set", "print_hparams")
KIND_WORDS = {"acoustic": "acoustic model", "vocoder": "vocoder"}


@dataclass
class _Given:
    """The entries of files and `--set` that are for one model, or where they name none for any that runs."""

    where: str
    model: str | None
    entries: dict[str, Entry]
    explicit: bool  # by --set


@dataclass
class _ModelSettings:
    """What was said of one model that runs; of each, later ones have won."""

    files: dict[str, Entry] = field(default_factory=dict)
    explicit: dict[str, Entry] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, Entry]:
        return self.files | self.explicit


class Parser(argparse.ArgumentParser):
    """An argument parser with `--hparam`, `--set` and `--print-hparams`.

    What it parses has further attributes: `places` (the entries that files or `--set` gave for options),
    `built` (an instance of each of `classes`, dataclasses whose fields are keys too), and for a command that
    runs models (`kinds`: "acoustic", "vocoder" or both) `deployments` and `overrides`, as `TextToSpeech.load`
    takes them. `model` is the one whose files a recipe takes, `hparam` the file that it reads unless one is
    given; `choose` gives the names of the models that run, for commands with a way of their own to say so.
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
        self._default_file = hparam
        self._choose = choose or self._choose_sources
        self._needed: list[Any] = []  # required options, and groups of which one is
        group = self.add_argument_group("settings")
        group.add_argument(
            "--hparam",
            action="append",
            type=Path,
            metavar="FILE",
            help="YAML with values of these options"
            + (f" and of the recipe (default: {hparam})" if hparam else "")
            + (", or of a model: see hparams/" if self.kinds else "")
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
        """The options with their values. Whatever is wrong in a file or in `--set` is a ValueError."""
        flags, files, sets, only_print = self._parse_flags(args)
        given = [self._read_file(path) for path in files]
        given += [self._read_set(text) for text in sets]
        options, selected = self._settle_options(given, flags)
        values = argparse.Namespace(**{name: entry.value for name, entry in options.items()})
        values.places = {
            name: entry
            for name, entry in options.items()
            if entry.place not in (DEFAULT, MISSING, name_of(self._actions_by_key()[name]))
        }
        values.hparam, values.set = files, sets
        values.selected = list(dict.fromkeys(selected))
        values.built, values.deployments, values.overrides = (), {}, {}
        entries = {
            key: entry for one in given if one.model == self.model for key, entry in one.entries.items()
        }
        own = {name: entry for name, entry in entries.items() if name in field_names(self.classes)}
        if self.classes:
            where = files[0] if files else self.prog
            values.built = tuple(build(cls, own, where) for cls in self.classes)
        models = {}
        keys = self._actions_by_key().keys()
        if self.kinds and (only_print or any(one.model or one.entries.keys() - keys for one in given)):
            models = self._settle_models(values, options, given)
        if only_print:
            sys.stdout.write(self._describe(values, options, own, models))
            self.exit(0)
        for one in self._needed:
            actions = getattr(one, "_group_actions", [one])
            if all(getattr(values, action.dest) in (None, []) for action in actions):
                self.error(f"{' or '.join(map(name_of, actions))} is missing")
        return values

    # What is given

    def _actions_by_key(self) -> dict[str, argparse.Action]:
        return {action.dest: action for action in self._actions if action.dest not in NO_KEYS}

    def _parse_flags(
        self, args: Sequence[str] | None
    ) -> tuple[dict[str, Entry], list[Path], list[str], bool]:
        """The options that stand on the command line, and what the three of this class say."""
        actions = self._actions_by_key()
        self._needed = [one for one in (*self._actions, *self._mutually_exclusive_groups) if one.required]
        for one in self._needed:
            one.required = False  # a file may give it
        parsed = vars(super().parse_args(args, argparse.Namespace(**dict.fromkeys(actions))))
        flags = {
            name: Entry(parsed[name], name_of(action))
            for name, action in actions.items()
            if parsed[name] is not None
            # A positional argument that may be left out is set to its default.
            and (action.option_strings or parsed[name] not in ([], action.default))
        }
        files = parsed["hparam"] or ([self._default_file] if self._default_file else [])
        return flags, files, parsed["set"], parsed["print_hparams"]

    def _read_file(self, path: Path) -> _Given:
        entries = read_file(path)
        stated = entries.pop(MODEL, None)
        if self.model:
            require_model(path, stated, self.model)
        if self.model or stated is None:
            return _Given(str(path), self.model, entries, explicit=False)
        if stated.value not in MODELS:
            raise ValueError(f"{stated.place}: {unknown('model', stated.value, MODELS)}")
        kind = get_model(stated.value).kind
        if kind not in self.kinds:
            raise ValueError(
                f"{path} is a file of {stated.value} ({stated.place}), but {self.prog} runs no "
                f"{KIND_WORDS[kind] if self.kinds else 'model'}"
            )
        return _Given(str(path), stated.value, entries, explicit=False)

    def _read_set(self, text: str) -> _Given:
        key, entry = read_override(text)
        word, dot, rest = key.partition(".")
        if dot and self.kinds:
            if word not in MODELS:
                raise ValueError(f"{entry.place}: {unknown('model', word, MODELS)}")
            return _Given(entry.place, word, {rest: entry}, explicit=True)
        return _Given(entry.place, self.model, {key: entry}, explicit=True)

    # The options

    def _settle_options(
        self, given: Sequence[_Given], flags: Mapping[str, Entry]
    ) -> tuple[dict[str, Entry], list[str]]:
        """Each option's value and place, and the models that files name."""
        actions = self._actions_by_key()
        layers: list[dict[str, Entry]] = [
            {
                name: Entry(self._default(action), MISSING if action in self._needed else DEFAULT)
                for name, action in actions.items()
            }
        ]
        selected = []
        for one in given:
            known = self._keys_of(one.model)
            mine = {}
            for key, entry in one.entries.items():
                if key in actions and (key not in known or one.model is None):
                    mine[key] = Entry(option_value(actions[key], entry), entry.place)
            layers.append(mine)
            if one.model and not self.model and not one.explicit:
                selected.append(one.model)
        layers.append(dict(flags))
        for group in self._mutually_exclusive_groups:
            self._keep_one([action.dest for action in group._group_actions], layers)
        options = {name: entry for layer in layers for name, entry in layer.items()}
        for one in given:
            if one.model in selected and not one.explicit:
                self._select(one, options)
        if not self.kinds:
            for one in given:
                require_known(one.entries, {*actions, *field_names(self.classes)})
        return options, selected

    def _default(self, action: argparse.Action) -> Any:
        default = action.default
        if isinstance(default, str) and action.type:
            return action.type(default)
        return list(default) if isinstance(default, list) else default

    @staticmethod
    def _keep_one(names: Sequence[str], layers: list[dict[str, Entry]]) -> None:
        """Of options that exclude each other, one given later takes the place of those given before."""
        for number, layer in enumerate(layers[1:], start=1):
            here = [name for name in names if name in layer]
            if len(here) > 1:
                places = " and ".join(layer[name].place for name in here)
                raise ValueError(f"{places}: {' and '.join(here)} exclude each other")
            for earlier in layers[1:number] if here else ():
                for name in names:
                    earlier.pop(name, None)

    @staticmethod
    def _select(one: _Given, options: dict[str, Entry]) -> None:
        """Chooses the model whose file was given, unless another one was asked for."""
        kind = get_model(one.model).kind
        if kind not in options:
            return
        asked = options[kind]
        if asked.value is None:
            options[kind] = Entry(one.model, f"the model of {one.where}")
        elif not {one.model, "all"} & set(asked.value.split(",")):
            raise ValueError(
                f"{one.where} is a file of {one.model}, but {asked.place} says {asked.value}: "
                "leave one of them out"
            )

    # The models

    def _keys_of(self, model: str | None) -> set[str]:
        """The keys that a model's own file may have, beside the command's options."""
        if self.model or not self.kinds:
            return field_names(self.classes)
        return field_names(model_classes(model)) if model else set()

    def _choose_sources(self, args: argparse.Namespace) -> list[str]:
        """The names of the models that the usual options choose."""
        wanted = {kind: getattr(args, kind, None) for kind in KIND_WORDS}
        if all(wanted[kind] for kind in self.kinds):
            return [get_model(wanted[kind], kind).name for kind in self.kinds]
        from common.runner import choose_sources

        sources = choose_sources(wanted, args.voice, args.checkpoint)
        return [sources[kind].model for kind in self.kinds]

    def _settle_models(
        self,
        args: argparse.Namespace,
        options: dict[str, Entry],
        given: Sequence[_Given],
    ) -> dict[str, _ModelSettings]:
        """Checks what is said of models; sets `deployments`, `overrides` and, for engines, the backend."""
        actions = self._actions_by_key()
        chosen = list(dict.fromkeys(self._choose(args)))
        models = {model: _ModelSettings() for model in chosen}
        for one in given:
            if one.model and one.model not in models:
                raise ValueError(
                    f"{one.where}: {one.model} is none of the models here ({', '.join(chosen) or 'none'})"
                )
            takers = [one.model] if one.model else chosen
            keys = {model: self._keys_of(model) for model in takers}
            known = set().union(*keys.values())
            # A model's file may state options of the command as well.
            require_known(one.entries, known | (set() if one.model and one.explicit else set(actions)))
            for key, entry in one.entries.items():
                if key in actions and one.model is None and key != "batch_size":
                    continue
                for model in takers:
                    if key in keys[model]:
                        settings = models[model]
                        (settings.explicit if one.explicit else settings.files)[key] = entry
        batch_size = options.get("batch_size")
        if batch_size and batch_size.place == name_of(actions["batch_size"]):
            for settings in models.values():
                settings.explicit["batch_size"] = batch_size
        for model, settings in models.items():
            self._settle_model(args, model, settings)
        if "backend" in options:
            self._settle_backend(args, options, models)
        return models

    @staticmethod
    def _settle_model(args: argparse.Namespace, model: str, settings: _ModelSettings) -> None:
        own = model_classes(model)[1:]
        for cls in own:
            build(cls, {k: e for k, e in settings.files.items() if k in field_names([cls])}, model)
        hints = {name: hint for cls in own for name, hint in typing.get_type_hints(cls).items()}
        changes = {
            name: typed_entry(name, entry, hints[name])
            for name, entry in settings.explicit.items()
            if name in hints
        }
        if changes:
            args.overrides[model] = changes
        # A key that a network has too, such as mask_padding, is the network's.
        engines = field_names([Deployment]) - hints.keys()
        ours = {name: entry for name, entry in settings.all.items() if name in engines}
        if ours:
            args.deployments[model] = build(Deployment, ours, model)

    def _settle_backend(
        self, args: argparse.Namespace, options: dict[str, Entry], models: Mapping[str, _ModelSettings]
    ) -> None:
        """`use_trt` means the backend trt unless one is given; `use_fp16` is for engines of that one."""
        from common.engines import BACKENDS
        from common.runner import parse_backends

        places = {model: settings.all for model, settings in models.items()}
        on_trt = [model for model in models if getattr(args.deployments.get(model), "use_trt", False)]
        if on_trt and options["backend"].place == DEFAULT:
            place = places[on_trt[0]]["use_trt"].place
            if "trt" not in BACKENDS:
                raise ValueError(
                    f"{place}: use_trt asks for the backend trt, which is not available; "
                    f"give --backend {' or '.join(reversed(BACKENDS))}"
                )
            words = {m: "trt" if m in on_trt else options["backend"].value or "onnx" for m in models}
            same = len(set(words.values())) == 1
            args.backend = "trt" if same else ",".join(f"{m}={word}" for m, word in words.items())
            options["backend"] = Entry(args.backend, place)
        backends = parse_backends(args.backend or "onnx", {model: model for model in models})
        for model, backend in backends.items():
            if getattr(args.deployments.get(model), "use_fp16", False) and backend != "trt":
                raise ValueError(
                    f"{places[model]['use_fp16'].place}: use_fp16 is for the backend trt, but {model} runs "
                    f"on {backend}: add --set use_fp16=false"
                )

    # What --print-hparams shows

    def _describe(
        self,
        args: argparse.Namespace,
        options: Mapping[str, Entry],
        own: Mapping[str, Entry],
        models: Mapping[str, _ModelSettings],
    ) -> str:
        found = {model: find_source(args, model) for model in models}
        lines = [line(MODEL, self.model, self.prog)] if self.model else []
        for name, entry in options.items():
            chosen = [model for model in models if get_model(model).kind == name]
            if entry.value is None and chosen:
                entry = Entry(",".join(chosen), found[chosen[0]][1])
            lines.append(line(name, entry.value, entry.place))
        values = {f.name: getattr(one, f.name) for one in args.built for f in fields(one)}
        lines += [
            line(name, value, own[name].place if name in own else DEFAULT) for name, value in values.items()
        ]
        for model, settings in models.items():
            described = self._describe_model(args, model, settings, *found[model])
            lines += [f"{model}:\n", *("  " + text for text in described)]
        return "".join(lines)

    @staticmethod
    def _describe_model(
        args: argparse.Namespace, model: str, settings: _ModelSettings, source: Any, place: str
    ) -> Iterator[str]:
        kept = {f.name: getattr(one, f.name) for one in (source.config, source.mel) for f in fields(one)}
        deployment = args.deployments.get(model, Deployment())
        for f in fields(Deployment):
            if f.name not in kept:
                entry = settings.all.get(f.name)
                yield line(f.name, getattr(deployment, f.name), entry.place if entry else DEFAULT)
        hints = {n: h for cls in model_classes(model) for n, h in typing.get_type_hints(cls).items()}
        for name, value in kept.items():
            where, entry = place, settings.files.get(name)
            if name in settings.explicit:
                where = f"{settings.explicit[name].place} ({place} says {shown(value)})"
                value = args.overrides[model][name]
            elif entry and typed_entry(name, entry, hints[name]) != value:
                where += f" ({entry.place}, says {shown(entry.value)})"
            yield line(name, value, where)


def model_classes(model: str) -> list[type]:
    """The dataclasses whose fields are keys of a model that is run."""
    from common.audio import MelContract

    return [Deployment, get_model(model).config_class, MelContract]


def field_names(classes: Iterable[type]) -> set[str]:
    return {f.name for cls in classes for f in fields(cls)}


def find_source(args: argparse.Namespace, model: str) -> tuple[Any, str]:
    """The model's weights as they are, and the file that states their sizes."""
    from common.published import parse_checkpoint, read_checkpoint
    from common.voices import VOICE_FILE, load_voice

    for word, path in map(parse_checkpoint, args.checkpoint or ()):
        source = read_checkpoint(path, word)
        if source.model == model:
            return source, str(path)
    voice = load_voice(getattr(args, "voice", None))
    path = voice.folder / VOICE_FILE
    here = path.is_absolute() and path.is_relative_to(Path.cwd())
    return voice.source(model), str(path.relative_to(Path.cwd()) if here else path)


def option_value(action: argparse.Action, entry: Entry) -> Any:
    """What an option would have made of an entry on the command line."""
    if entry.value in (None, "None") and action.default is None:
        return None
    if action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction):
        items = entry.value if isinstance(entry.value, list) else [entry.value]
        text = None if isinstance(entry.value, list) else entry.text
        return [_single_value(action, Entry(item, entry.place, text)) for item in items]
    return _single_value(action, entry)


def _single_value(action: argparse.Action, entry: Entry) -> Any:
    kind = bool if action.nargs == 0 else action.type or str
    value, text = entry.value, entry.text
    if kind is not bool and type(value) in (int, float):
        text = text or str(value)  # `--seed 3` and `--denoising-strength 0.1` are texts as well
    try:
        plain = kind in (bool, int, float, str, Path)
        value = typed(value, kind, text) if plain else kind(text or typed(value, str))
    except TypeError as error:
        raise ValueError(f"{entry.place}: {action.dest} must be {error}") from None
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{entry.place}: {action.dest} {error}") from None
    except ValueError:
        raise ValueError(f"{entry.place}: {action.dest} cannot be {value!r}") from None
    if action.choices is not None and value not in action.choices:
        raise ValueError(f"{entry.place}: {unknown(action.dest, value, map(str, action.choices))}")
    return value


def name_of(action: argparse.Action) -> str:
    """An option as it is written on the command line."""
    return action.option_strings[-1] if action.option_strings else action.metavar or action.dest


def with_places(error: ValueError, args: argparse.Namespace) -> ValueError:
    """An error about options, with the places of those that were not given as such."""
    return located(error, args.places)


def line(key: str, value: Any, place: str) -> str:
    return f"{key}: {shown(value)}  # {place}\n"


def shown(value: Any) -> str:
    """A value as YAML in one line."""
    value = plain(value)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"))
    text = text.removesuffix("...\n").strip()
    return json.dumps(value) if "\n" in text else text


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
