"""What all vocoders share: whole mels or chunks with the same samples, and the network's hum taken out.

A model's own vocoder says what its receptive field is, and what the network takes beside the mel.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from melforge.common.arrays import (
    Array,
    ReadEach,
    concatenate,
    pad_rows,
    read_later,
    to_device,
    with_rest,
    within_reach,
)
from melforge.common.audio.denoiser import BIAS_FRAMES, OVERLAP, fewest_samples
from melforge.common.config.deployment import Bucket
from melforge.common.engines import Run
from melforge.common.errors import InputError
from melforge.common.noise import keys_of
from melforge.common.speech import Controls, controls_of_each
from melforge.common.synthesis.chunks import Chunks, ChunkSizes, Excerpts, Window, even_share
from melforge.common.synthesis.driver import Driver, WarmUp, bucket_for
from melforge.common.synthesis.hum import Hum
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource

if TYPE_CHECKING:
    from melforge.common.synthesis.one_graph import WholeMelGraph

# Chunks in one launch: the longest has at most so many times the frames of the shortest, which is padded.
ALIKE = 2


class VocoderConfig(Protocol):
    """Sizes that all vocoders have."""

    @property
    def hop_length(self) -> int: ...
    @property
    def n_mel_channels(self) -> int: ...


Config = TypeVar("Config", bound=VocoderConfig)


class Vocoder(Driver[Config]):
    """Mel to audio, on whatever engines it is given: a stage "generator" and a stage "denoiser".

    Engines of fixed lengths pad what they are given. The stages "masked_generator" and "masked_denoiser"
    stand in the others' place then: they take where the audio ends, and mask the padding behind it.
    `context` is the receptive field: the frames on each side that a frame's audio depends on. A voice says in
    its `denoising_strength` how much of the generator's hum is taken out (default 0).
    An "inner_generator", which stands in the generator's place on a CPU, is told for which frames to compute
    its last layers: a chunk's own and `edge` of those on each side.
    """

    one_graph: WholeMelGraph | None = None  # all stages of whole mels, where engines are captured
    # Frames of a whole mel at a time on engines that prefer pieces; None: all.
    piece: int | None = None
    # Frames that a mel may have which a stream alone on a GPU has made whole: its first chunk would take as
    # long, in more launches.
    at_once = 0

    def __init__(self, source: ModelSource, engines: StageEngines, context: int, edge: int = 0):
        super().__init__(source, engines)
        names = ("masked_generator", "inner_generator", "generator")
        self.generator = engines[next(name for name in names if name in engines)]
        self.edge = edge
        self.hop = self.config.hop_length
        self.context = context
        self.longest_mel = self.generator.stage.dynamic_dims["mel"].max
        if self.longest_chunk < OVERLAP:  # the first window of the hum is measured in one chunk
            raise InputError(
                f"{source.model}: buckets of up to {self.longest_mel} frames are too short, since the audio "
                f"of one depends on {context + OVERLAP} on each side: at least one bucket must have "
                f"{OVERLAP + 2 * (context + OVERLAP)} frames"
            )
        self.denoising_strength = source.settings.denoising_strength
        self.hum = Hum(engines, self.hop, self._silence)

    @property
    def batch_safe(self) -> bool:
        return "masked_generator" in self.engines

    @property
    def prefers_batches(self) -> bool:
        return self.batch_safe and self.generator.prefers_batches

    def batch_key(self, controls: Controls) -> Hashable:
        return self._strength(controls) > 0  # whether the stage "denoiser" runs

    def excerpts(self, mel: Array, controls: Controls) -> Excerpts:
        """What the generator takes beside a mel [1, n_mels, T_mel] of any length."""
        return lambda first, last: {}

    def beside(self, mel: Array, lengths: Array, controls: Sequence[Controls]) -> dict[str, Array]:
        """The same for a padded batch [B, n_mels, T_mel] that fits the stage; `lengths` are [B]."""
        return {}

    def beside_rows(self, frames: int, controls: Sequence[Controls]) -> dict[str, Array]:
        """What the graph of whole mels takes beside a padded batch and its rows."""
        return {}

    def capture_whole(self, make: Callable[[], Run]) -> None:
        """Has whole mels run as one graph of what `make` gives, where engines are captured."""
        if self.engines.on_kernels and self.engines.captures:
            graphs = importlib.import_module("melforge.common.synthesis.one_graph")
            self.one_graph = graphs.WholeMelGraph(self.generator, make)

    def _silence(self) -> np.ndarray:
        """What the generator makes of a silent mel's first frames, float32 (S,); no others change these."""
        silent = np.zeros((1, self.config.n_mel_channels, BIAS_FRAMES), np.float32)
        return next(self._chunks(silent, ChunkSizes(OVERLAP, OVERLAP), Controls(sigma=0.0), 0.0))

    def vocode(
        self, mel: Array, lengths: np.ndarray, controls: Controls | Sequence[Controls] | None = None
    ) -> list[np.ndarray]:
        """mel [B, n_mels, T_mel] -> audio float32 [lengths[b] * hop] for each item.

        `controls` are one for all items, or one for each.
        Items run alone at their own length: near its end a padded item would depend on the padding, where the
        network pads with zeros in every layer. Where padding is masked and a batch takes less time, they run
        together.
        """
        return self.vocode_each([mel[b, :, :length] for b, length in enumerate(lengths.tolist())], controls)

    def vocode_each(
        self, mels: Sequence[Array], controls: Controls | Sequence[Controls] | None = None
    ) -> list[np.ndarray]:
        """The same for mels [n_mels, T_mel] of any number and lengths."""
        return self.vocode_later(mels, controls)()

    def vocode_later(
        self, mels: Sequence[Array], controls: Controls | Sequence[Controls] | None = None
    ) -> ReadEach:
        """The same, by what gives the audio when it is called; until then a GPU is at work on batches."""
        each = controls_of_each(controls, len(mels))
        together = self.prefers_batches
        shortest = -(-fewest_samples(self.hop) // self.hop)  # for the denoiser
        fitting = [
            i for i, mel in enumerate(mels) if together and shortest <= mel.shape[1] <= self.longest_mel
        ]
        batches: list[tuple[Sequence[int], ReadEach]] = []
        for key in dict.fromkeys(self.batch_key(each[i]) for i in fitting):
            alike = {i: mels[i].shape[1] for i in fitting if self.batch_key(each[i]) == key}
            for batch in self._batches(alike):
                read = self._vocode_batch([mels[i] for i in batch], [each[i] for i in batch])
                batches.append((batch, read))
        audio = {
            i: concatenate(list(self.vocode_chunks(mels[i][None], self._whole, each[i])))
            for i in sorted({*range(len(mels))} - {*fitting})
        }

        def read_each() -> list[np.ndarray]:
            for batch, read in batches:
                audio.update(zip(batch, read(), strict=True))
            return [audio[i] for i in range(len(mels))]

        return read_each

    def _batches(self, frames: Mapping[int, int]) -> Iterator[list[int]]:
        """Mels of similar lengths, by their numbers, in batches that a launch takes."""
        batch: list[int] = []
        for i in sorted(frames, key=lambda i: -frames[i]):
            if batch and len(batch) >= self._largest_batch(frames[batch[0]]):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _vocode_batch(self, mels: Sequence[Array], controls: Sequence[Controls]) -> ReadEach:
        """In one launch of each stage; the first is the longest. The controls have one `batch_key`."""
        device, frames = self.generator.device, mels[0].shape[1]
        if self.one_graph:
            frames = self.one_graph.padded(frames)
        sizes = np.array([mel.shape[1] for mel in mels])
        rows = np.array([sizes, keys_of([one.seed for one in controls])])
        # What stands behind a mel in memory may stay there: a graph masks it.
        whole = with_rest(mels[0], frames) if self.one_graph and len(mels) == 1 else None
        if whole is None:
            whole = pad_rows([to_device(mel, device) for mel in mels], len(mels), frames)
        else:
            whole = whole[None]
        audio = self.audio_of(whole, rows, controls)
        strengths = [self._strength(one) for one in controls]
        if any(strengths):
            audio = self.hum.removed(audio, strengths, to_device(rows[0], device))
        read = read_later(audio)
        if self.one_graph:
            self.one_graph.in_use()
        ends = (sizes * self.hop).tolist()
        return lambda: [samples[:end] for samples, end in zip(read(), ends, strict=True)]

    def audio_of(self, mel: Array, rows: np.ndarray, controls: Sequence[Controls]) -> Array:
        """Of a padded batch [B, n_mels, T_mel] that fits the stage -> [B, S].

        `rows` int64 [2, B] are the items' lengths, and the keys of their noise.
        """
        if self.one_graph:
            given = {"mel": mel, "rows": within_reach(rows, self.generator.device)}
            given |= self.beside_rows(mel.shape[2], controls)
            if made := self.one_graph.audio(given):
                return made["audio"]
        lengths = to_device(rows[0], self.generator.device)
        others = self.beside(mel, lengths, controls)
        return self.generator(mel=mel, lengths=lengths, **others)["audio"]

    def takes(self, batch: int, bucket: Bucket | None) -> bool:
        return self.prefers_batches and batch <= self._largest_batch(
            bucket.mel if bucket else self.longest_mel
        )

    def warm_ups(self, bucket: Bucket | None, batch: int) -> Iterator[WarmUp]:
        if self.one_graph and bucket:
            silent = np.zeros((self.config.n_mel_channels, bucket.mel), np.float32)
            what = f"{self.source.model}, captured"
            yield WarmUp(what, f"mel {bucket.mel}", lambda: self.vocode_each([silent] * batch))

    def _largest_batch(self, frames: int) -> int:
        """That one launch takes, of items of so many frames."""
        return min(self.generator.stage.batch.max, self.engines.batch_frames // max(frames, 1))

    @property
    def _whole(self) -> ChunkSizes:
        """Of a mel whose audio is asked for in one piece."""
        piece = self.piece if self.generator.prefers_pieces else None
        size = min(piece or self.longest_chunk, self.longest_chunk)
        return ChunkSizes(size, size, even=piece is not None)

    @property
    def longest_chunk(self) -> int:
        """Frames that fit the stage together with their context."""
        return self.longest_mel - 2 * (self.context + OVERLAP)

    def vocode_chunks(
        self, mel: Array, sizes: ChunkSizes, controls: Controls | None = None, at_once: bool = False
    ) -> Chunks:
        """mel [1, n_mels, T_mel] -> audio in chunks that join to the whole mel's audio.

        A chunk is computed with the frames around it that it depends on; the mel's true ends stay ends.
        With `at_once` all of them may be computed for the first one.
        """
        controls = controls or Controls()
        frames = mel.shape[2]
        has_spectrum = frames * self.hop >= fewest_samples(self.hop)
        strength = self._strength(controls) if has_spectrum else 0.0
        fits = has_spectrum and self.prefers_batches and frames <= min(self.at_once, self.longest_mel)
        return self._chunks(mel, sizes, controls, strength, at_once and fits)

    def make_ahead(self, several: Sequence[Chunks]) -> None:
        """Computes the next chunk of each of several mels, in batches where these take less time.

        Each mel's next chunk is what it would have been alone. Nothing is done for one that would be alone in
        its batch, nor for any where the generator gains nothing by batches.
        """
        if self.prefers_batches:
            waiting = [(chunks, chunks.window) for chunks in several if chunks.window and chunks.needs_run]
            for batch in self._chunk_batches(waiting):
                if len(batch) > 1:
                    self._run_chunks(batch)

    def _run_next(self, chunks: Chunks) -> None:
        """The next chunk of one mel, or all of them where that takes no longer."""
        if chunks.whole and chunks.window and not chunks.window.start:
            read = self.vocode_later([chunks.mel[0]], [chunks.whole])
            chunks.put(_parts(lambda: read()[0], self.hop), all_ahead=True)
        elif chunks.window:
            self._run_chunks([(chunks, chunks.window)])

    def _chunk_batches(
        self, waiting: Sequence[tuple[Chunks, Window]]
    ) -> Iterator[list[tuple[Chunks, Window]]]:
        """Chunks of alike lengths that one launch takes, all or none of them denoised.

        The shortest come first: a listener's first chunk does not wait for the long ones of others.
        """
        for denoised in (False, True):
            batch: list[tuple[Chunks, Window]] = []
            alike = [entry for entry in waiting if (entry[0].strength > 0) == denoised]
            for entry in sorted(alike, key=lambda entry: entry[1].frames):
                frames, rows = entry[1].frames, self.padded_batch(len(batch) + 1)
                if batch and (rows > self._largest_batch(frames) or frames > ALIKE * batch[0][1].frames):
                    yield batch
                    batch = []
                batch.append(entry)
            if batch:
                yield batch

    def _run_chunks(self, batch: Sequence[tuple[Chunks, Window]]) -> None:
        """The next chunk of each in one launch of each stage; the host reads all of them at once."""
        rows, hop = self.padded_batch(len(batch)) if len(batch) > 1 else 1, self.hop
        windows = [window for _, window in batch]
        strengths = [chunks.strength for chunks, _ in batch]
        mels = [chunks.mel[0, :, window.before : window.after] for chunks, window in batch]
        excerpts = [chunks.excerpts(window.before, window.after) for chunks, window in batch]
        longest = max(window.frames for window in windows)
        given = {"mel": pad_rows(mels, rows, longest)}
        for name, first in excerpts[0].items():
            steps = first.shape[-1] // windows[0].frames * longest
            given[name] = pad_rows([excerpt[name][0] for excerpt in excerpts], rows, steps)
        if self.batch_safe:
            given["lengths"] = self._lengths([window.frames for window in windows], rows)
        begins = [window.before for window in windows]
        if self.generator.stage.name == "inner_generator":
            (window,) = windows  # such are not made in batches
            begins = [max(window.before, window.first - self.edge)]
            end = min(window.after, window.last + self.edge)
            given["inner"] = np.arange(begins[0], end) - window.before
        audio = self.generator(**given)["audio"]
        if any(strengths):
            parts = [
                audio[row, (window.first - begins[row]) * hop : (window.last - begins[row]) * hop]
                for row, window in enumerate(windows)
            ]
            frames, begins = [window.last - window.first for window in windows], [w.first for w in windows]
            audio = pad_rows(parts, rows, max(frames) * hop)
            audio = self.hum.removed(audio, strengths, self._lengths(frames, rows))
        read = functools.cache(read_later(audio[: len(batch)]))
        for row, (chunks, window) in enumerate(batch):
            part = slice((window.start - begins[row]) * hop, (window.end - begins[row]) * hop)
            chunks.put(lambda _, row=row, part=part: read()[row, part])

    def _lengths(self, frames: Sequence[int], rows: int) -> Array:
        """Those of a batch's items, and of further rows that are as long as the longest, int64 [rows]."""
        spare = [max(frames)] * (rows - len(frames))
        return to_device(np.array([*frames, *spare]), self.generator.device)

    def _strength(self, controls: Controls) -> float:
        strength = controls.denoising_strength
        return self.denoising_strength if strength is None else strength

    def _chunks(
        self, mel: Array, sizes: ChunkSizes, controls: Controls, strength: float, at_once: bool = False
    ) -> Chunks:
        mel = to_device(mel, self.generator.device)
        frames = mel.shape[2]
        window_of = functools.partial(self._window, frames, sizes.even, OVERLAP if strength else 0)
        excerpts = functools.partial(self.excerpts, mel, controls)
        whole = controls if at_once else None
        return Chunks(mel, excerpts, strength, sizes, window_of, self._run_next, whole)

    def _window(self, frames: int, even: bool, margin: int, start: int, size: int) -> Window:
        """Of a chunk of about `size` frames. A denoised sample depends on every window that holds it,
        `margin` on each side.
        """
        size, left = min(size, self.longest_chunk), frames - start
        end = start + (even_share(left, size, self.longest_chunk) if even else min(size, left))
        end = min(end + self._free_frames(start, end, frames, margin), frames)
        first, last = max(0, start - margin), min(frames, end + margin)
        return Window(start, end, first, last, *self._reach(start, end, frames, margin))

    def longest_window(self, chunk: int) -> int:
        """Frames that the generator takes at most for a chunk of so many, padded lengths not counted."""
        return min(chunk + 2 * (self.context + OVERLAP), self.longest_mel)

    def _reach(self, start: int, end: int, frames: int, margin: int) -> tuple[int, int]:
        """Where the frames begin and end that these depend on."""
        return max(0, start - margin - self.context), min(frames, end + margin + self.context)

    def _free_frames(self, start: int, end: int, frames: int, margin: int) -> int:
        """How many frames more a chunk may have in the same bucket, where they cost nothing."""
        if not self.generator.buckets:
            return 0
        left, right = self._reach(start, end, frames, margin)
        return bucket_for(self.generator, mel=right - left).mel - (right - left)


def _parts(read: Callable[[], np.ndarray], hop: int) -> Callable[[Window], np.ndarray]:
    """Of audio [S], the samples of a window; they are read once, into memory of their own."""

    @functools.cache
    def audio() -> np.ndarray:
        return read().copy()

    return lambda window: audio()[window.start * hop : window.end * hop]
