"""A shard: consecutive texts of a table, spoken into a folder that appears when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from common.audio.sound_files import FORMATS, encode_audio
from common.bulk.texts import LONGEST_CELL, Text, require_parquet
from common.errors import InputError
from common.runner import AnalysedText, TextToSpeech
from common.speech import Audio, Controls

PARQUET = "parquet"
OUTPUTS = (*FORMATS, PARQUET)
AUDIO_IN_PARQUET = "flac"
GPU_BATCH = 32  # texts at a time on CUDA kernels
# Of a shard and of the whole run. Ids and reasons come from users' tables, and csv quotes what it must.
SPOKEN, NOT_SPOKEN = "manifest.csv", "not-spoken.csv"
SPOKEN_COLUMNS, NOT_SPOKEN_COLUMNS = ("id", "file", "seconds", "warnings"), ("id", "reason")


@dataclass(frozen=True)
class Speech:
    """How a run speaks: all that its samples depend on. `models` is what `TextToSpeech.load` takes."""

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
    texts: tuple[Text, ...]

    @property
    def name(self) -> str:
        return f"{self.number:06d}"


@dataclass(frozen=True)
class ShardReport:
    """What a finished shard has."""

    number: int
    spoken: int  # texts
    not_spoken: int
    seconds: float  # of audio


def cut_shards(texts: Iterable[Text], size: int) -> Iterator[Shard]:
    """The same shards of the same table, whoever asks."""
    rest, number = iter(texts), 0
    while some := tuple(islice(rest, size)):
        yield Shard(number, some)
        number += 1


def seed_of(seed: int, name: str) -> int:
    """A text's own seed, of the run's and its id: neither its shard nor its batch changes it."""
    import hashlib  # a phrase needs none, and loading OpenSSL takes milliseconds

    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]) >> 1


class Speaker:
    """The models in one process, and the folder of the run."""

    def __init__(self, speech: Speech, folder: Path):
        self.speech, self.folder = speech, folder
        self.tts = TextToSpeech.load(**speech.models)
        self.tts.require_controls(speech.controls)
        self.batch_size = self._choose_batch_size()
        for _ in self.tts.warm_up(self.batch_size) if speech.warm_up else ():
            pass

    def _choose_batch_size(self) -> int:
        """On a CPU with ONNX Runtime 1 unless another is asked for: batches gain little there, and the last
        bits of a text's samples would depend on what else is in its shard.
        """
        tts, asked = self.tts, self.speech.batch_size or self.tts.batch_size
        if asked is None and tts.acoustic.engines.can_be_shared and tts.vocoder.engines.can_be_shared:
            return 1
        if asked is None and tts.vocoder.prefers_batches:
            return min(GPU_BATCH, tts.acoustic.largest_batch)
        return tts.choose_batch_size(asked)

    def speak(self, shard: Shard) -> ShardReport:
        """Speaks a shard; its folder appears under its name at the end, or not at all."""
        target = self.folder / shard.name
        temporary = self.folder / f".{shard.name}.{os.urandom(4).hex()}.tmp"
        temporary.mkdir()
        try:
            report = _Writing(self, shard, temporary).run()
            try:
                temporary.rename(target)
            except OSError:
                if not target.is_dir():  # else a worker that was taken for lost has finished it
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return report

    def analyse(self, text: Text) -> tuple[AnalysedText, str]:
        """A text's utterances, and what of it cannot be spoken. An InputError where nothing can be."""
        analysed = self.tts.analyse(text.text)
        left_out = [f"{u.symbol!r} at position {u.position} cannot be spoken" for u in analysed.unspoken]
        if self.speech.strict and left_out:
            raise InputError("; ".join(left_out))
        return analysed, "; ".join(left_out)

    def speak_each(
        self, texts: Sequence[tuple[Text, AnalysedText]]
    ) -> Iterator[tuple[int, Audio | ValueError]]:
        """Each text's audio, or why there is none. What fails in a batch is spoken alone."""
        controls = [
            replace(self.speech.controls, seed=seed_of(self.speech.controls.seed, text.id))
            for text, _ in texts
        ]
        missing = dict.fromkeys(range(len(texts)))
        how = {"batch_size": self.batch_size, "retries": self.speech.retries}
        try:
            for number, audio in self.tts.speak_each([text for _, text in texts], controls, **how):
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


class _Writing:
    """One shard on its way into a folder."""

    def __init__(self, speaker: Speaker, shard: Shard, folder: Path):
        self.speaker, self.shard, self.folder = speaker, shard, folder
        self.output = speaker.speech.output
        self.rows: dict[str, tuple[str, float, str]] = {}  # by id: the file, its seconds, warnings
        self.reasons: dict[str, str] = {}
        self.sounds: dict[str, tuple[bytes, int]] = {}  # for parquet: the bytes and their sampling rate

    def run(self) -> ShardReport:
        warnings: dict[str, str] = {}
        speakable: list[tuple[Text, AnalysedText]] = []
        for text in self.shard.texts:
            try:
                analysed, warnings[text.id] = self.speaker.analyse(text)
            except InputError as error:
                self.reasons[text.id] = str(error)
            else:
                speakable.append((text, analysed))
        # By length in the whole shard: the runner puts neighbours into one batch.
        speakable.sort(key=lambda entry: sum(len(one.ids) for one in entry[1].utterances))
        for number, audio in self.speaker.speak_each(speakable):
            name = speakable[number][0].id
            if isinstance(audio, Audio):
                self._write(name, audio, warnings[name])
            else:
                self.reasons[name] = str(audio)
        if self.output == PARQUET:
            self._write_parquet()
        order = [text.id for text in self.shard.texts]
        write_rows(
            self.folder / SPOKEN, SPOKEN_COLUMNS, ((i, *self.rows[i]) for i in order if i in self.rows)
        )
        failed = ((i, self.reasons[i]) for i in order if i in self.reasons)
        write_rows(self.folder / NOT_SPOKEN, NOT_SPOKEN_COLUMNS, failed)
        seconds = sum(row[1] for row in self.rows.values())
        return ShardReport(self.shard.number, len(self.rows), len(self.reasons), seconds)

    def _write(self, name: str, audio: Audio, warnings: str) -> None:
        format = AUDIO_IN_PARQUET if self.output == PARQUET else self.output
        data = encode_audio(audio.samples, audio.sampling_rate, format)
        file = f"{name}.{format}"
        if self.output == PARQUET:
            self.sounds[name] = data, audio.sampling_rate
            place = f"{self.shard.name}/audio.parquet"
        else:
            (self.folder / file).write_bytes(data)
            place = f"{self.shard.name}/{file}"
        notes = [warnings, *audio.notes, *map(str, audio.problems)]
        self.rows[name] = place, round(audio.seconds, 6), "; ".join(filter(None, notes))

    def _write_parquet(self) -> None:
        """Sound as a struct of `bytes` and `path`, which readers of data sets know."""
        parquet, pyarrow = require_parquet()
        done = [text for text in self.shard.texts if text.id in self.rows]
        sounds = [
            {"bytes": self.sounds[text.id][0], "path": f"{text.id}.{AUDIO_IN_PARQUET}"} for text in done
        ]
        columns = {
            "id": pyarrow.array([text.id for text in done], pyarrow.string()),
            "text": pyarrow.array([text.text for text in done], pyarrow.string()),
            "audio": pyarrow.array(
                sounds, pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
            ),
            "sampling_rate": pyarrow.array([self.sounds[text.id][1] for text in done], pyarrow.int32()),
            "seconds": pyarrow.array([self.rows[text.id][1] for text in done], pyarrow.float64()),
        }
        # Sound is compressed already; its pages need no dictionary.
        parquet.write_table(
            pyarrow.table(columns), self.folder / "audio.parquet", compression="NONE", use_dictionary=False
        )


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


def read_rows(path: Path) -> Iterator[list[str]]:
    """The rows without the heading; none where there is no file."""
    import csv

    csv.field_size_limit(LONGEST_CELL)
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            next(rows)
            yield from rows
