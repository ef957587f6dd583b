"""A shard: consecutive texts of a table, spoken into a folder that appears when it is whole."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.audio.sound_files import FORMATS, write_sound
from melforge.common.bulk.folder import RunFolder
from melforge.common.bulk.texts import TableText, require_parquet
from melforge.common.errors import InputError
from melforge.common.runner import AnalysedText, TextToSpeech
from melforge.common.speech import Audio, Controls
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.stream import Stream
from melforge.common.text import list_unspoken

PARQUET = "parquet"
OUTPUTS = (*FORMATS, PARQUET)
PARQUET_FILE, AUDIO_IN_PARQUET = "audio.parquet", "flac"
LONG_TEXT = 64  # utterances: longer texts are spoken in pieces, which need little memory
WHOLE_UTTERANCES = ChunkSizes(1 << 30)  # chunks within one would change last bits
# Of a shard and of the whole run. Ids and reasons come from users' tables, and csv quotes what it must.
SPOKEN, NOT_SPOKEN = "manifest.csv", "not-spoken.csv"
SPOKEN_COLUMNS, NOT_SPOKEN_COLUMNS = ("id", "file", "seconds", "warnings"), ("id", "reason")


@dataclass(frozen=True)
class BulkSettings:
    """How a run speaks: all that its samples depend on. `models` are arguments of `TextToSpeech.load`."""

    models: Mapping[str, Any]
    controls: Controls = field(default_factory=Controls)
    output: str = "wav"  # of OUTPUTS
    batch_size: int | None = None
    retries: int = 0
    strict: bool = False  # a text with a symbol that can't be spoken is not spoken
    warm_up: bool = False


@dataclass(frozen=True)
class Shard:
    """Texts number `number` * N to (`number` + 1) * N - 1 of a table, where a shard has N."""

    number: int
    texts: tuple[TableText, ...]

    @property
    def name(self) -> str:
        return shard_name(self.number)


@dataclass(frozen=True)
class ShardReport:
    """What a finished shard holds."""

    number: int
    spoken: int  # texts
    not_spoken: int
    seconds: float  # of audio


def shard_name(number: int) -> str:
    return f"{number:06d}"


def cut_shards(texts: Iterable[TableText], size: int) -> Iterator[Shard]:
    """Cuts a table into shards, always the same way."""
    rest, number = iter(texts), 0
    while some := tuple(islice(rest, size)):
        yield Shard(number, some)
        number += 1


def seed_of(seed: int, name: str) -> int:
    """A text's own seed, from the run's seed and its id: independent of shards and batches."""
    import hashlib  # a phrase needs none, and loading OpenSSL takes milliseconds

    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]) >> 1


class ShardSpeaker:
    """The models in one process, and the folder of the run."""

    def __init__(self, speech: BulkSettings, folder: RunFolder):
        self.speech, self.folder = speech, folder
        self.tts = TextToSpeech.load(**speech.models)
        self.tts.require_controls(speech.controls)
        self.batch_size = self._choose_batch_size()
        for _ in self.tts.warm_up(self.batch_size) if speech.warm_up else ():
            pass

    def _choose_batch_size(self) -> int:
        """1 on a CPU with ONNX Runtime, unless another is asked for: batches gain little there, and the last
        bits of a text's samples would depend on the rest of its shard.
        """
        tts, asked = self.tts, self.speech.batch_size or self.tts.batch_size
        if asked is None and tts.acoustic.engines.can_be_shared and tts.vocoder.engines.can_be_shared:
            return 1
        return tts.choose_batch_size(asked)

    def speak(self, shard: Shard) -> ShardReport:
        """Speaks a shard; its folder appears under its name at the end, or not at all."""
        with self.folder.shard(shard.name) as temporary:
            return self._write_shard(shard, temporary)

    def analyse(self, text: TableText) -> tuple[AnalysedText, str]:
        """A text's utterances, and what of it cannot be done. An InputError where nothing is spoken."""
        analysed = self.tts.analyse(text.text, speaker=self.speech.controls.speaker)
        left_out = list_unspoken(analysed.unspoken)
        if self.speech.strict and left_out:
            raise InputError("; ".join(left_out))
        return analysed, "; ".join([*left_out, *analysed.warnings])

    def controls_of(self, text: TableText) -> Controls:
        return replace(self.speech.controls, seed=seed_of(self.speech.controls.seed, text.id))

    def speak_each(
        self, texts: Sequence[tuple[TableText, AnalysedText]]
    ) -> Iterator[tuple[int, Audio | ValueError]]:
        """Each text's audio, or why there is none. After a failed batch each text is spoken alone."""
        controls = [self.controls_of(text) for text, _ in texts]
        missing = dict.fromkeys(range(len(texts)))
        analysed = [text for _, text in texts]
        try:
            for number, audio in self.tts.speak_each(
                analysed, controls, batch_size=self.batch_size, retries=self.speech.retries
            ):
                del missing[number]
                yield number, audio
        except ValueError:
            for number in missing:
                try:
                    audio = self.tts.speak(texts[number][1], controls[number], self.speech.retries)
                except ValueError as error:
                    yield number, error
                else:
                    yield number, audio

    def _speak_long(self, one: _Outcome, analysed: AnalysedText, folder: Path) -> None:
        """The same samples as of `speak_each`, through a file."""
        controls = self.controls_of(one.text)
        with tempfile.TemporaryFile(dir=folder) as file:
            stream = self.tts.stream(analysed, controls, self.speech.retries, WHOLE_UTTERANCES)
            for chunk in stream:
                file.write(chunk.tobytes())
            file.flush()
            one.take(stream, np.memmap(file, np.float32, "r"), self.speech.output, folder)

    def _write_shard(self, shard: Shard, folder: Path) -> ShardReport:
        outcomes = [_Outcome(text, reason=text.bad) for text in shard.texts]
        speakable: list[tuple[_Outcome, AnalysedText]] = []
        for one in (one for one in outcomes if not one.reason):
            try:
                analysed, one.warnings = self.analyse(one.text)
            except InputError as error:
                one.reason = str(error)
                continue
            if len(analysed.utterances) <= LONG_TEXT:
                speakable.append((one, analysed))
                continue
            try:
                self._speak_long(one, analysed, folder)
            except ValueError as error:
                one.reason = str(error)
        # By length in the whole shard: the runner puts neighbours into one batch.
        speakable.sort(key=lambda entry: sum(len(one.ids) for one in entry[1].utterances))
        for number, audio in self.speak_each([(one.text, analysed) for one, analysed in speakable]):
            if isinstance(audio, Audio):
                speakable[number][0].take(audio, audio.samples, self.speech.output, folder)
            else:
                speakable[number][0].reason = str(audio)
        done = [one for one in outcomes if one.spoken]
        if self.speech.output == PARQUET:
            _write_parquet(folder / PARQUET_FILE, done)
        placed = ((one.text.id, f"{shard.name}/{one.file}", one.seconds, one.warnings) for one in done)
        write_rows(folder / SPOKEN, SPOKEN_COLUMNS, placed)
        failed = ((one.text.id, one.reason) for one in outcomes if not one.spoken)
        missing = write_rows(folder / NOT_SPOKEN, NOT_SPOKEN_COLUMNS, failed)
        return ShardReport(shard.number, len(done), missing, sum(one.seconds for one in done))


@dataclass
class _Outcome:
    """A text of a shard, and what became of it."""

    text: TableText
    file: str = ""  # in the shard's folder; "" where it is not spoken
    seconds: float = 0.0  # of its audio
    sound: bytes = b""  # for parquet, with its sampling rate
    rate: int = 0
    warnings: str = ""
    reason: str = ""  # why it is not spoken

    @property
    def spoken(self) -> bool:
        return bool(self.file)

    def take(self, spoken: Audio | Stream, samples: np.ndarray, output: str, folder: Path) -> None:
        """What it became, float32 [T_audio], which is written unless it is for parquet."""
        self.rate = spoken.sampling_rate
        if output == PARQUET:
            file = io.BytesIO()
            write_sound(file, samples, self.rate, AUDIO_IN_PARQUET)
            self.file, self.sound = PARQUET_FILE, file.getvalue()
        else:
            name = f"{self.text.id}.{output}"
            with (folder / name).open("w+b") as file:
                write_sound(file, samples, self.rate, output)
            self.file = name
        self.seconds = round(len(samples) / self.rate, 6)
        self.warnings = "; ".join(filter(None, (self.warnings, *spoken.notes, *map(str, spoken.problems))))


def _write_parquet(path: Path, done: Sequence[_Outcome]) -> None:
    """Sound as a struct of `bytes` and `path`, which readers of data sets know."""
    parquet, pyarrow = require_parquet()
    sounds = [{"bytes": one.sound, "path": f"{one.text.id}.{AUDIO_IN_PARQUET}"} for one in done]
    sound = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {
        "id": pyarrow.array([one.text.id for one in done], pyarrow.string()),
        "text": pyarrow.array([one.text.text for one in done], pyarrow.string()),
        "audio": pyarrow.array(sounds, sound),
        "sampling_rate": pyarrow.array([one.rate for one in done], pyarrow.int32()),
        "seconds": pyarrow.array([one.seconds for one in done], pyarrow.float64()),
    }
    # Sound is compressed already; its pages need no dictionary.
    parquet.write_table(pyarrow.table(columns), path, compression="NONE", use_dictionary=False)


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """A csv file with a heading; the number of its rows. Without any there is no file."""
    import csv

    total = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for total, row in enumerate(rows, start=1):  # noqa: B007
            writer.writerow(row)
    if not total:
        path.unlink()
    return total
