"""Kokoro reads a corpus: `python -m recipes.kokoro.corpus lines.npz --model M --voices V -o FOLDER`.

Two corpora, each as `melforge.common.training.corpus.dataset` has them: FOLDER/acoustic with symbols,
durations and pitch, by speaker, and FOLDER/vocoder with more voices, which has sound alone. Both have
sources.npz too: phase, pitch and weight of every frame, for `recipes.kokoro.vocoder`.

The network runs in this process; what it said is trimmed, aligned and written by others meanwhile.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.corpus")

import argparse
import multiprocessing
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from melforge.common.cli.parser import Parser
from melforge.common.cli.training import DEVICE
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.alignment import LEAD, TAIL, Aligner, speech_bounds
from melforge.common.training.corpus.dataset import HOP, RATE, Labels, save_labels, write_metadata
from melforge.common.training.loop import pick_device
from recipes.kokoro import network, voicing
from recipes.kokoro.resampling import resample
from recipes.kokoro.teacher import BOTH_ACCENTS, KokoroTeacher, Line, Spoken, load_teacher
from recipes.kokoro.texts import ACOUSTIC, VOCODER

LEVEL = 10 ** (-23.8 / 20)  # of a voice's speech, as the first teacher's corpus has it
FULL, LOUDEST = 32767, 0.99
MEASURED = 32  # lines that say how loud a voice is
RATE_STEP = 50  # Hz: rates of what is played faster are rounded to these, so that the ratio is short


@dataclass(frozen=True, eq=False)
class Job:
    """A line as it was spoken, for a worker."""

    name: str
    purpose: str
    ids: np.ndarray
    audio: np.ndarray  # int16 [S] at RATE
    pitch: np.ndarray  # float32 [T] of Kokoro's values
    higher: float
    gain: float


@dataclass(frozen=True, eq=False)
class Labelled:
    durations: np.ndarray
    pitch: np.ndarray  # of symbols
    phase: np.ndarray  # of frames, as the next two
    contour: np.ndarray
    weight: np.ndarray


_worker: dict = {}


def start_worker(folder: Path, symbols: Sequence[str]) -> None:
    _worker.update(folder=folder, symbols=symbols, aligner=None)


def label(job: Job) -> Labelled | str:
    """Writes a line's sound; what is known of it, or why it cannot be used."""
    import soundfile

    try:
        audio = job.audio.astype(np.float32) / FULL
        begin, end = speech_bounds(audio, RATE)
        first = max(0, int((begin - LEAD) * RATE))
        audio = np.clip(audio[first : int((end + TAIL) * RATE)] * job.gain, -LOUDEST, LOUDEST)
        frames = len(audio) // HOP
        phase, contour, voiced = voicing.frame_source(job.pitch, first, frames, RATE, HOP, job.higher)
        sure = (voicing.periodicity(audio, contour, RATE, HOP) > voicing.PERIODIC) & voiced
        heard = sure & (voicing.power(audio, frames, HOP) > voicing.FAINT)
        durations, pitch = np.array([frames]), np.zeros(1, np.float32)
        if job.purpose == ACOUSTIC:
            symbols = [_worker["symbols"][i] for i in job.ids]
            _worker["aligner"] = _worker["aligner"] or Aligner()
            durations = _worker["aligner"].durations(audio, RATE, HOP, symbols)
            pitch = voicing.pitch_per_symbol(contour, heard, durations)
        path = _worker["folder"] / job.purpose / "wavs" / f"{job.name}.wav"
        soundfile.write(path, audio, RATE, subtype="PCM_16")
        weight = voiced * (voicing.UNSURE + heard)
        return Labelled(durations, pitch, phase.astype(np.float16), contour, weight.astype(np.float16))
    except (ValueError, RuntimeError, OSError) as error:
        return str(error)


def gains(teacher: KokoroTeacher, lines: list[Line]) -> dict[str, float]:
    """How much louder each voice is made, by its first lines."""
    first: dict[str, list[Line]] = {}
    for line in lines:
        if len(first.setdefault(line.speaker, [])) < MEASURED:
            first[line.speaker].append(line)
    chosen = [line for few in first.values() for line in few]
    power: dict[str, list[float]] = {}
    for spoken in teacher.speak(chosen):
        for row, number in enumerate(spoken.lines):
            audio = spoken.audio[row, : spoken.samples[row]]
            hops = audio[: len(audio) // 240 * 240].unflatten(0, (-1, 240)).square().mean(1)
            loud = hops[hops > hops.max() * 1e-4]  # within 40 dB of the loudest
            power.setdefault(chosen[number].speaker, []).append(loud.mean().item())
    return {speaker: LEVEL / float(np.mean(values)) ** 0.5 for speaker, values in power.items()}


def read_lines(path: Path, only: str | None = None, limit: int | None = None) -> dict[str, np.ndarray | list]:
    """What recipes.kokoro.texts wrote, for one purpose or for both, the first so many."""
    with np.load(path) as data:
        kept = dict(data)
    for name, lengths in (("ids", "lengths"), ("phonemes", "phoneme_lengths")):
        kept[name] = np.split(kept[name].astype(np.int64), kept.pop(lengths).cumsum()[:-1])
    chosen = np.flatnonzero(kept["purposes"] == only) if only else np.arange(len(kept["names"]))
    return {name: [values[i] for i in chosen[:limit]] for name, values in kept.items()}


def main() -> None:
    parser = Parser(prog="python -m recipes.kokoro.corpus", description=__doc__)
    option = parser.add_argument
    option("lines", type=Path, help="what recipes.kokoro.texts wrote")
    option("--model", type=Path, required=True, help="kokoro-v1.0.int8.onnx")
    option("--voices", type=Path, required=True, help="folder of the voices' .bin files")
    option("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    option("--only", choices=(ACOUSTIC, VOCODER), help="lines for the one corpus")
    option("--limit", type=int, help="the first N lines only")
    option("--device", **DEVICE)
    option("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    make(args)


def make(args: argparse.Namespace) -> None:
    kept = read_lines(args.lines, args.only, args.limit)
    rising = [(int(first), int(last)) if first >= 0 else None for first, last in kept["rising"]]
    lines = [Line(kept["phonemes"][i], str(kept["speakers"][i]), rising[i]) for i in range(len(rising))]
    purposes = [args.only] if args.only else [ACOUSTIC, VOCODER]
    for purpose in purposes:
        (args.output / purpose / "wavs").mkdir(parents=True, exist_ok=True)
    torch.manual_seed(zlib.crc32(args.lines.name.encode()))
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    # American symbols have the same numbers.
    how = args.output, get_frontend(BOTH_ACCENTS).symbols
    pool = ProcessPoolExecutor(args.workers, context, start_worker, how)
    teacher = load_teacher(args.model, args.voices, pick_device(args.device))
    louder = gains(teacher, lines)
    print(
        f"{time.monotonic() - began:.1f} s until the network is ready and the voices are measured", flush=True
    )
    futures: dict[int, Future] = {}
    began, seconds = time.monotonic(), 0.0
    for spoken in teacher.speak(lines):
        seconds += float(spoken.samples.sum()) / network.RATE
        for number, job in jobs(spoken, kept, louder):
            futures[number] = pool.submit(label, job)
    took = time.monotonic() - began
    print(
        f"{seconds / 3600:.2f} h of speech in {took:.1f} s: {seconds / took:.0f} times real time", flush=True
    )
    results = {number: future.result() for number, future in sorted(futures.items())}
    pool.shutdown()
    print(f"{time.monotonic() - began:.1f} s until all of it was labelled", flush=True)
    for purpose in purposes:
        write(args.output / purpose, purpose, kept, results)


def jobs(spoken: Spoken, kept: dict, louder: dict[str, float]) -> Iterator[tuple[int, Job]]:
    """The number and a worker's job of each line of a batch, resampled."""
    played: dict[float, np.ndarray] = {}
    pitch, samples = spoken.prosody.pitch.cpu().numpy(), spoken.samples.tolist()
    for row, number in enumerate(spoken.lines):
        rate = round(network.RATE * float(kept["higher"][number]) / RATE_STEP) * RATE_STEP
        if rate not in played:
            made = resample(spoken.audio, rate, RATE).clamp(-1, 1)
            played[rate] = (made * FULL).round().short().cpu().numpy()
        length = samples[row] * RATE // rate
        job = Job(
            name=str(kept["names"][number]),
            purpose=str(kept["purposes"][number]),
            ids=kept["ids"][number],
            audio=played[rate][row, :length].copy(),
            pitch=pitch[row, : samples[row] // network.HALF].copy(),
            higher=rate / network.RATE,
            gain=louder[str(kept["speakers"][number])],
        )
        yield number, job


def write(folder: Path, purpose: str, kept: dict, results: dict[int, Labelled | str]) -> None:
    """labels.npz, metadata.csv, sources.npz, and failed.txt with what cannot be used and why."""
    mine = [number for number in results if kept["purposes"][number] == purpose]
    labelled = {n: result for n in mine if isinstance(result := results[n], Labelled)}
    used = list(labelled)
    failed = [f"{kept['names'][n]}|{kept['texts'][n]}|{results[n]}\n" for n in mine if n not in labelled]
    (folder / "failed.txt").write_text("".join(failed), encoding="utf-8")
    if not used:
        return
    speakers = sorted({str(kept["speakers"][number]) for number in used})
    labels = Labels(
        names=[str(kept["names"][n]) for n in used],
        texts=[str(kept["texts"][n]) for n in used],
        ids=[kept["ids"][n] if purpose == ACOUSTIC else np.zeros(1, np.int64) for n in used],
        durations=[one.durations for one in labelled.values()],
        pitch=[one.pitch for one in labelled.values()],
        speakers=speakers,
        speaker=np.array([speakers.index(str(kept["speakers"][n])) for n in used]),
        frontend=BOTH_ACCENTS,
    )
    save_labels(folder, labels)
    write_metadata(folder, labels)
    np.savez(
        folder / "sources.npz",
        phase=np.concatenate([one.phase for one in labelled.values()]),
        contour=np.concatenate([one.contour for one in labelled.values()]),
        weight=np.concatenate([one.weight for one in labelled.values()]),
    )
    hours = labels.frames.sum() * HOP / RATE / 3600
    print(f"{folder}: {len(used)} of {len(mine)} lines, {hours:.2f} h, {len(speakers)} speakers", flush=True)
