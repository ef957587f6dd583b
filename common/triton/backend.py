"""The classes that Triton's Python backend calls: each model.py names one of them.

Only the backend's processes have the module `triton_python_backend_utils`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.arrays import Array, concatenate, is_numpy, pad_rows, to_numpy
from melforge.common.errors import InputError
from melforge.common.serve.pairs import FIRST_WORDS
from melforge.common.speech import Controls, MelTooLong
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.vocoder import Vocoder
from melforge.common.synthesis.warm_up import warm_up_model
from melforge.common.text import Analysis, unspoken_rows
from melforge.common.triton import speaking, tensors
from melforge.common.triton.choice import Choice, pick_instance_device, warms_up
from melforge.common.triton.under_way import UnderWay

NO_UTTERANCE = -1  # pads the lengths of an item's utterances
ALL = -1  # the silence that an utterance ends with
LONGEST_PAUSE = 3600.0  # seconds
EXAMPLE_FRAMES = 64


class Busy(Exception):
    """There are too many texts at a time."""


class ClientLeft(Exception):
    """The client has gone: nothing is made for it."""


class Model(ABC):
    """One instance of a model, alone in its process and called from one thread."""

    def initialize(self, args: dict[str, str]) -> None:
        self.triton = importlib.import_module("triton_python_backend_utils")
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.parameters = parameters
        folder = Path(args["model_repository"]) / args["model_version"]
        self.instance = (args["model_instance_kind"], args["model_instance_device_id"])
        self.max_batch_size = config["max_batch_size"]
        self.choose(parameters, folder)
        self.load()
        release_freed_memory()

    def choose(self, parameters: Mapping[str, str], folder: Path) -> None:
        """Reads from a config's parameters, and the folder of the version, which models run.

        Sources from checkpoints have no weights yet: `load` reads those that this model runs.
        """
        self.choice = Choice.read(parameters, folder)
        self.sources = self.choice.sources()

    @abstractmethod
    def load(self) -> None:
        """Loads what this model runs; an exception ends the server with its message."""

    def device(self, *kinds: str) -> str:
        """The device on which this instance runs the acoustic model, the vocoder, or both."""
        backends = self.choice.backends(self.sources)
        return pick_instance_device([backends[kind] for kind in kinds], *self.instance)

    def warms_up(self, *kinds: str) -> bool:
        """Whether models of these kinds run every length and batch before this instance is ready."""
        backends = self.choice.backends(self.sources)
        return warms_up(self.choice.warm_up, [backends[kind] for kind in kinds], self.device(*kinds))

    def controls(self, request: Any) -> Controls:
        parameters = json.loads(request.parameters() or "{}")
        return speaking.controls_of(parameters, *self.sources.values())

    def load_driver(self, kind: str) -> AcousticModel | Vocoder:
        """The acoustic model or the vocoder; with a warm-up it has run every length and batch."""
        driver = self.choice.driver(kind, self.sources, self.device(kind))
        assert isinstance(driver, AcousticModel | Vocoder)
        if self.warms_up(kind):
            _, most = self.choice.limits(self.sources)
            for _ in warm_up_model(driver, sorted({driver.padded_batch(n) for n in range(2, most + 1)})):
                pass
        return driver

    def texts(self, request: Any) -> list[str]:
        """The texts of a request, in order."""
        given = self.read(request, tensors.TEXT.name).reshape(-1)
        try:
            return [text.decode() for text in given]
        except UnicodeDecodeError as error:
            raise InputError(f"the text is not UTF-8 ({error.reason} at byte {error.start})") from None

    def read(self, request: Any, name: str, without: Any = None) -> Array:
        """An input: numpy's, or torch's where it is on a GPU; `without` where an optional one is missing."""
        tensor = self.triton.get_input_tensor_by_name(request, name)
        if tensor is None:
            return without
        if tensor.is_cpu():
            return tensor.as_numpy()
        return importlib.import_module("torch").from_dlpack(tensor.to_dlpack())

    def output(self, name: str, array: Array) -> Any:
        if is_numpy(array):
            return self.triton.Tensor(name, array)
        return self.triton.Tensor.from_dlpack(name, array.contiguous())  # stays on its GPU

    def error(self, error: Exception) -> Any:
        """INVALID_ARGUMENT if the request is at fault, UNAVAILABLE if we are busy, else an internal error."""
        if isinstance(error, InputError | MelTooLong):
            return self.triton.TritonError(str(error), self.triton.TritonError.INVALID_ARG)
        if isinstance(error, ClientLeft):
            return self.triton.TritonError("the client has gone", self.triton.TritonError.CANCELLED)
        if isinstance(error, Busy):
            return self.triton.TritonError(str(error), self.triton.TritonError.UNAVAILABLE)
        text = f"this is a fault of Melforge ({type(error).__name__}: {error}); please report it"
        self.triton.Logger.log_error(text)
        return self.triton.TritonError(text)


class BatchModel(Model):
    """A model whose dynamic batcher hands it several requests at a time, each of one or more items."""

    ensemble: str  # whose step it is
    first = last = False  # of its steps
    under_way: UnderWay | None = None

    @abstractmethod
    def example(self) -> Any:
        """An item that it runs on once before Triton says that it is ready."""

    def initialize(self, args: dict[str, str]) -> None:
        super().initialize(args)
        for made in self.make([self.example()]):
            if isinstance(made, Exception):
                raise made
        if most := self.parameters.get(tensors.QUEUE_SIZE):
            self.under_way = UnderWay(self.ensemble, int(most))

    @abstractmethod
    def items(self, request: Any) -> list[Any]: ...

    @abstractmethod
    def make(self, items: Sequence[Any]) -> list[Any]:
        """The result of each item, or its exception."""

    @abstractmethod
    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        """The outputs of a request, from the results of its items."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        if self.under_way is None:
            return self.answers(requests)
        if self.first:
            answers = self.answers(requests)
            self.under_way.enter(sum(not one.has_error() for one in answers))
            return answers
        with self.under_way.at_work():
            answers = self.answers(requests)
        self.under_way.leave(sum(self.last or one.has_error() for one in answers))
        return answers

    def answers(self, requests: Sequence[Any]) -> list[Any]:
        given: list[list[Any] | Exception] = []
        for request in requests:
            if request.is_cancelled():
                given.append(ClientLeft())
                continue
            try:
                given.append(self.items(request))
            except Exception as error:
                given.append(error)
        made = iter(self.make([item for items in given if isinstance(items, list) for item in items]))
        return [self.response(items, made) for items in given]

    def response(self, given: list[Any] | Exception, made: Iterator[Any]) -> Any:
        """The response to a request with these items; their results are next in `made`."""
        answers = [given] if isinstance(given, Exception) else [next(made) for _ in given]
        for one in answers:
            if isinstance(one, Exception):
                return self.triton.InferenceResponse([], self.error(one))
        outputs = [self.output(name, array) for name, array in self.answer(answers).items()]
        return self.triton.InferenceResponse(outputs)


class TextToSymbols(BatchModel):
    """Text to symbols, on a CPU."""

    ensemble, first = tensors.WHOLE, True

    def load(self) -> None:
        self.source = self.sources["acoustic"]
        self.frontend = self.source.build_frontend()
        self.longest, _ = self.choice.limits(self.sources)

    def example(self) -> tuple[str, Controls]:
        return FIRST_WORDS, Controls()

    def items(self, request: Any) -> list[Any]:
        controls = self.controls(request)  # refuses wrong ones before anything is spoken
        return [(text, controls) for text in self.texts(request)]

    def make(self, items: Sequence[Any]) -> list[Any]:
        def run(rows: Sequence[int]) -> list[Any]:
            return [
                speaking.analyse(self.frontend, self.source, *items[row], longest=self.longest)
                for row in rows
            ]

        return speaking.run_each(run, range(len(items)))

    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        texts = [analysis.utterances for analysis, _ in made]
        gaps = [behind for _, behind in made]
        return {
            tensors.SYMBOLS.name: padded([concatenate([one.ids for one in text]) for text in texts]),
            tensors.LENGTHS.name: padded_lengths([[len(one.ids) for one in text] for text in texts]),
            tensors.PAUSES.name: padded([np.array([one.seconds for one in behind]) for behind in gaps]),
            tensors.KEPT.name: padded_lengths(
                [[ALL if one.kept is None else one.kept for one in behind] for behind in gaps]
            ),
            tensors.UNSPOKEN.name: np.array([[in_json(analysis)] for analysis, _ in made], object),
        }


class SymbolsToMel(BatchModel):
    """Symbols to mel."""

    ensemble = tensors.WHOLE

    def load(self) -> None:
        driver = self.load_driver("acoustic")
        assert isinstance(driver, AcousticModel)
        self.acoustic = driver
        self.frontend = driver.source.build_frontend()
        self.symbols = self.frontend.symbols
        self.batch_size = self.choice.deployment(driver.source.model).batch_size

    def example(self) -> speaking.Symbols:
        ids = [one.ids for one in self.frontend(FIRST_WORDS).utterances]
        return speaking.Symbols(ids, Controls(), [None] * len(ids))

    def items(self, request: Any) -> list[Any]:
        controls = self.controls(request)
        ids, lengths = (self.read(request, t.name) for t in (tensors.SYMBOLS, tensors.LENGTHS))
        kept = self.read(request, tensors.KEPT.name, np.full(lengths.shape, ALL))
        items = []
        for row, counts, frames in zip(ids, lengths, kept, strict=True):
            utterances = parts(row, used(counts), least=1)
            given = frames[: len(utterances)].tolist()
            if len(given) < len(utterances) or min(given) < ALL:
                raise InputError(f"kept {given} of {len(utterances)} utterances: frames of each, or {ALL}")
            items.append(speaking.Symbols(utterances, controls, [None if n == ALL else n for n in given]))
        return items

    def make(self, items: Sequence[Any]) -> list[Any]:
        return speaking.speak(self.acoustic, self.symbols, items, self.batch_size)

    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        mels = padded([concatenate(list(mels), axis=1) for mels in made])
        lengths = padded_lengths([[mel.shape[1] for mel in mels] for mels in made])
        return {tensors.MEL.name: mels, tensors.MEL_LENGTHS.name: lengths}


class MelToAudio(BatchModel):
    """Mel to audio."""

    ensemble, last = tensors.WHOLE, True

    def load(self) -> None:
        driver = self.load_driver("vocoder")
        assert isinstance(driver, Vocoder)
        self.vocoder = driver

    def example(self) -> speaking.Mels:
        mel = np.zeros((self.vocoder.source.mel.n_mel_channels, EXAMPLE_FRAMES), np.float32)
        return speaking.Mels([mel], [0.0], Controls())

    def items(self, request: Any) -> list[Any]:
        controls = self.controls(request)
        names = (tensors.MEL.name, tensors.MEL_LENGTHS.name, tensors.PAUSES.name)
        items = []
        for mel, lengths, pauses in zip(*(self.read(request, name) for name in names), strict=True):
            mels = parts(mel, used(lengths), least=0)
            seconds = to_numpy(pauses)[: len(mels)].tolist()
            if len(seconds) < len(mels) or not all(0 <= pause <= LONGEST_PAUSE for pause in seconds):
                raise InputError(f"pauses {seconds} of {len(mels)} utterances: one each, in seconds")
            items.append(speaking.Mels(mels, seconds, controls))
        return items

    def make(self, items: Sequence[Any]) -> list[Any]:
        return speaking.vocode(self.vocoder, self.vocoder.source.mel.sampling_rate, items)

    def answer(self, made: Sequence[Any]) -> dict[str, Array]:
        lengths = np.array([[len(audio)] for audio in made])
        return {tensors.AUDIO.name: padded(made), tensors.AUDIO_LENGTH.name: lengths}


def release_freed_memory() -> None:
    """Returns freed memory to the system: glibc keeps what reading a checkpoint took."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def in_json(analysis: Analysis) -> bytes:
    """What could not be spoken of a text, as JSON."""
    return json.dumps(unspoken_rows(analysis.unspoken)).encode()


def used(lengths: Array) -> np.ndarray:
    """The lengths without the padding after an item's last utterance: int64 [U]."""
    lengths = to_numpy(lengths)
    return lengths[: int(np.flatnonzero(lengths != NO_UTTERANCE).max(initial=-1)) + 1]


def parts(row: Array, lengths: np.ndarray, least: int) -> list[Array]:
    """The utterances [..., lengths[u]] of an item [..., T], each of `least` steps or more.

    An InputError if the item has no such utterances.
    """
    if not len(lengths):
        raise InputError("an item without utterances: there are no lengths")
    ends = np.cumsum(lengths)
    if lengths.min() < least or lengths.max() > row.shape[-1] or ends[-1] > row.shape[-1]:
        raise InputError(f"lengths {lengths.tolist()} of a tensor of {row.shape[-1]}")
    return [row[..., end - length : end] for end, length in zip(ends, lengths, strict=True)]


def padded(rows: Sequence[Array]) -> Array:
    """Arrays [..., T] as one [B, ..., T], padded with zeros."""
    return pad_rows(rows, len(rows), max(row.shape[-1] for row in rows))


def padded_lengths(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """The lengths of each item's utterances as int64 [B, U]."""
    lengths = np.full((len(rows), max(map(len, rows))), NO_UTTERANCE, np.int64)
    for target, row in zip(lengths, rows, strict=True):
        target[: len(row)] = row
    return lengths
