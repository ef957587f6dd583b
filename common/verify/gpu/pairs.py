"""The shipped voice's pairs on TensorRT, and on a mix of backends, against PyTorch on the same GPU."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

from melforge.common.arrays import to_numpy
from melforge.common.bench.models import build_engines
from melforge.common.bench.table import Column, Row, columns_of
from melforge.common.bench.timer import timed
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.warm_up import TEXT as SENTENCE
from melforge.common.weights.voices import load_voice

# The sentences that are scored: of LJSpeech's transcripts (public domain), held out from training.
SENTENCES = Path(__file__).with_name("sentences.txt")
RUNS = 20
PYTORCH = "pytorch"  # instead of an engine's precision
MIX = "acoustic=trt,vocoder=onnx"
BUCKETS = Deployment(
    trt_multi_engine=True,
    trt_max_input_seq_len_list=(64, 128, 256),
    trt_max_output_seq_len_list=(384, 768, 1024),
)


def pair_jobs(precisions: Sequence[str], **more: str) -> list[Row]:
    """A job for each of the shipped voice's pairs in each precision, with further arguments of its check."""
    voice = load_voice()
    return [
        {"acoustic": acoustic, "vocoder": vocoder, "precision": precision} | more
        for acoustic in voice.models_of("acoustic")
        for vocoder in voice.models_of("vocoder")
        for precision in precisions
    ]


def load_pair(
    acoustic: str, vocoder: str, backend: str, precision: str = "fp32", how: Deployment | None = None
) -> TextToSpeech:
    """A pair on this GPU; missing engines are built."""
    how = replace(how or Deployment(), batch_size=1, precision=precision)
    deployments = {acoustic: how, vocoder: how} if "trt" in backend else {}
    for model in deployments:
        build_engines(load_voice().source(model), how, None)
    return TextToSpeech.load(acoustic, vocoder, backend=backend, device="cuda", deployments=deployments)


def check_pair(acoustic: str, vocoder: str, backend: str, precision: str) -> Row:
    """One sentence with a pair: the times from text to samples, and the difference from PyTorch's samples."""
    reference = load_pair(acoustic, vocoder, "torch")
    wanted = reference.speak(SENTENCE).samples
    row: Row = {"torch": times_of(lambda: reference.speak(SENTENCE))}
    with torch.cuda.stream(torch.cuda.Stream()):
        tts = load_pair(acoustic, vocoder, backend, precision)
        start = time.perf_counter()
        samples = tts.speak(SENTENCE).samples
        row["first"] = time.perf_counter() - start
        row["ms"] = times_of(lambda: tts.speak(SENTENCE))
        row["copies"] = copies_between(tts)
    return row | {"audio": len(samples) / tts.sampling_rate} | difference(samples, wanted)


def times_of(speak: Callable[[], Any]) -> list[float]:
    """Milliseconds of each of RUNS calls, after three to warm up."""
    return [seconds * 1000 for seconds in timed(speak, RUNS, "cuda", warm_up=3)]


def difference(got: np.ndarray, wanted: np.ndarray) -> Row:
    """The numbers of samples, and the largest difference where these are equal."""
    largest = float(np.abs(got - wanted).max()) if len(got) == len(wanted) else None
    return {"samples": [len(got), len(wanted)], "difference": largest}


def copies_between(tts: TextToSpeech) -> Row:
    """The copies between host and GPU during vocoding; one of `mel_bytes` would be the mel itself."""
    made = tts.acoustic.synthesise([tts.analyse(SENTENCE).utterances[0].ids])
    lengths = np.asarray(to_numpy(made.mel_lengths))
    found = copies_of(lambda: tts.vocoder.vocode(made.mel, lengths))
    mel_copied = made.mel.nbytes in (*found["DtoH"], *found["HtoD"])
    row = {"mel_on": str(made.mel.device), "mel_bytes": made.mel.nbytes, "mel_copied": mel_copied}
    return row | {"to_host": found["DtoH"], "to_gpu": found["HtoD"]}


def copies_of(run: Callable[[], Any]) -> dict[str, list[int]]:
    """The bytes of every copy between host and GPU in a call, by direction: "DtoH" and "HtoD"."""
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        found.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    copies = [event for event in events if event.get("cat") == "gpu_memcpy"]
    return {
        way: sorted((int(c["args"].get("bytes", 0)) for c in copies if way in c["name"]), reverse=True)
        for way in ("DtoH", "HtoD")
    }


def check_sentences(acoustic: str, vocoder: str, precision: str, folder: str) -> Row:
    """Writes the sentences as FLAC files to be scored, by engines for buckets, after a warm-up."""
    row: Row = {}
    if precision == PYTORCH:
        tts = load_pair(acoustic, vocoder, "torch")
    else:
        tts = load_pair(acoustic, vocoder, "trt", precision, BUCKETS)
        start = time.perf_counter()
        row["warmed"] = len(list(tts.warm_up(1)))
        row["warm_up"] = time.perf_counter() - start
    to = Path(folder) / f"{acoustic}-{vocoder}-{precision}"
    to.mkdir(parents=True, exist_ok=True)
    slowest, seconds = 0.0, 0.0
    for line in SENTENCES.read_text().splitlines():
        name, _, text = line.partition("|")
        start = time.perf_counter()
        audio = tts.speak(text)
        slowest = max(slowest, time.perf_counter() - start)
        seconds += len(audio.samples) / audio.sampling_rate
        soundfile.write(to / f"{name}.flac", audio.samples, audio.sampling_rate)
    return row | {"audio": seconds, "slowest_ms": slowest * 1000}


def check_example(folder: str, precision: str) -> Row:
    """examples/speak_tensorrt.py, without PyTorch, against the runner with the same engines."""
    example = [sys.executable, "examples/speak_tensorrt.py"]
    out = Path(folder) / precision
    out.mkdir(parents=True, exist_ok=True)
    models = ("fastpitch", "hifigan")
    paths = [f"{model}.trt_file_path={out}/{model}.trt" for model in models]
    sets = [word for value in (*paths, f"precision={precision}", "backend=trt") for word in ("--set", value)]
    pair = ["--acoustic", "fastpitch", "--vocoder", "hifigan"]
    run = lambda *command: subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: E731
    try:
        run(sys.executable, "scripts/build.py", *pair, *sets)
        run(*example, "--write-ids", f"{out}/ids.npy", "--text", SENTENCE)
        start = time.perf_counter()
        run(*example, "--ids", f"{out}/ids.npy", "--engines", str(out), "-o", f"{out}/speech.wav")
        seconds = time.perf_counter() - start
    except subprocess.CalledProcessError as error:
        raise InputError(f"{error.cmd[1]}: {error.stderr[-300:]}") from None
    got, _ = soundfile.read(out / "speech.wav", dtype="float32")
    how = {model: Deployment(trt_file_path=f"{out}/{model}.trt", precision=precision) for model in models}
    tts = TextToSpeech.load(*models, backend="trt", device="cuda", deployments=how)
    made = tts.acoustic.synthesise([np.load(out / "ids.npy")])
    lengths = np.asarray(to_numpy(made.mel_lengths))
    (wanted,) = tts.vocoder.vocode(made.mel, lengths, Controls(denoising_strength=0.0))
    return {"example": "speak_tensorrt", "seconds": seconds, **difference(got, wanted.clip(-1, 1))}


def difference_of(row: Row) -> str:
    return "other length" if row["difference"] is None else f"{row['difference']:.1e}"


def copies_text(copies: Row) -> str:
    return (
        f"{len(copies['to_host'])} to host ({sum(copies['to_host'])} B), "
        f"{len(copies['to_gpu'])} to GPU ({sum(copies['to_gpu'])} B); the mel ({copies['mel_bytes']} B, "
        f"{copies['mel_on']}) {'is copied' if copies['mel_copied'] else 'is not copied'}"
    )


PAIR = ("acoustic: acoustic", "vocoder: vocoder")
DIFFERENCE: Column = ("largest difference", difference_of)
COLUMNS: tuple[Column, ...] = (
    *columns_of(*PAIR, "backends: backend", "precision: precision"),
    *columns_of("audio s: audio .2f", "first call s: first .2f"),
    ("median ms", lambda row: f"{np.median(row['ms']):.2f}"),
    ("p95 ms", lambda row: f"{np.percentile(row['ms'], 95):.2f}"),
    ("x real time", lambda row: f"{row['audio'] / np.median(row['ms']) * 1000:.0f}"),
    ("PyTorch ms", lambda row: f"{np.median(row['torch']):.2f}"),
    DIFFERENCE,
    ("copies", lambda row: copies_text(row["copies"]) if row.get("copies") else ""),
)
SENTENCE_COLUMNS = columns_of(
    *PAIR,
    "precision: precision",
    "warm-up s: warm_up .1f",
    "engines: warmed",
    "audio s: audio .1f",
    "slowest ms: slowest_ms .1f",
)
EXAMPLE_COLUMNS: tuple[Column, ...] = (
    ("program", lambda row: "examples/speak_tensorrt.py"),
    *columns_of("precision: precision", "seconds: seconds .1f", "samples: samples counts"),
    DIFFERENCE,
)
