"""What the tests of recipes/kokoro share: sizes of a small network, and corpora of tones."""

from pathlib import Path

import numpy as np

from melforge.common.training.corpus.dataset import RATE
from recipes.kokoro import corpus
from recipes.kokoro.network import KokoroConfig

SMALL = KokoroConfig(
    symbols=20,
    style=6,
    channels=8,
    albert_embedding=4,
    albert_channels=12,
    albert_hidden=16,
    albert_heads=3,
    albert_repeats=2,
    durations=6,
    decoder_channels=10,
    decoder_residual=4,
    generator_channels=(6, 4),
)


def write_corpus(folder: Path, purpose: str, speakers: str, lines: int, higher: float = 1.0) -> None:
    """Tones of each speaker's own pitch, labelled as corpus.py does without an aligner."""
    for name in (purpose, "vocoder"):
        (folder / name / "wavs").mkdir(parents=True, exist_ok=True)
    corpus.start_worker(folder, ["_", " "])
    kept: dict = {name: [] for name in ("names", "texts", "speakers", "purposes", "ids")}
    results = {}
    for number in range(lines):
        speaker = speakers[number % len(speakers)]
        hertz = 110.0 * (1 + speakers.index(speaker))
        pitch = np.full(160, hertz / higher, np.float32)
        time = np.arange(2 * RATE) / RATE
        tone = 0.3 * sum(np.sin(2 * np.pi * k * hertz * time) / k for k in range(1, 9))
        audio = np.concatenate([np.zeros(2000), tone[: RATE + 300 * number], np.zeros(2000)])
        job = corpus.Job(
            f"{speaker}-{number}",
            "vocoder",
            np.ones(3, int),
            (audio * 32767).astype(np.int16),
            pitch,
            higher,
            1.0,
        )
        results[number] = corpus.label(job)
        assert isinstance(results[number], corpus.Labelled), results[number]
        (folder / "vocoder" / "wavs" / f"{job.name}.wav").rename(
            folder / purpose / "wavs" / f"{job.name}.wav"
        )
        for name, value in (
            ("names", job.name),
            ("texts", "a"),
            ("speakers", speaker),
            ("purposes", purpose),
        ):
            kept[name].append(value)
        kept["ids"].append(np.ones(1, int))
    corpus.write(folder / purpose, purpose, kept, results)
