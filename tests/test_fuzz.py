"""Sound files, checkpoints and lists of recordings that nobody would make: an InputError at most, and little
memory. $MELFORGE_FUZZ_THINGS says how many of each, $MELFORGE_FUZZ_SEED draws others.
"""

import copy
import io
import json
import os
import random
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from melforge.common.audio.sound_files import decode_audio
from melforge.common.bulk.texts import Table
from melforge.common.cli.phrases import read_phrases
from melforge.common.errors import InputError
from melforge.common.recognition.recordings import read_manifest
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.corpus.takes import find_takes
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice

THINGS = int(os.environ.get("MELFORGE_FUZZ_THINGS", "150"))
SEED = os.environ.get("MELFORGE_FUZZ_SEED", "0")
MOST_GROWTH = 200e6  # bytes
GOLDEN = Path(__file__).parent / "golden"
HAZEL = Path(__file__).parents[1] / "voices" / "hazel"
FILES = {  # of published models
    **{model: "checkpoint.pt" for model in ("fastpitch", "hifigan", "jasper", "waveglow")},
    **{"tacotron2": "checkpoint_ddp.pt", "fastspeech": "checkpoint_320000.pt"},
}
FORMATS = {
    **{"WAV": ("PCM_16", "PCM_24", "PCM_U8", "FLOAT", "DOUBLE", "ULAW", "IMA_ADPCM"), "FLAC": ("PCM_16",)},
    **{"OGG": ("VORBIS", "OPUS"), "MP3": ("MPEG_LAYER_III",), "AIFF": ("PCM_16",), "W64": ("FLOAT",)},
}
ODD = (
    *(None, True, -1, 0, 1, 2, 80, 1e308, float("nan"), 2**70),
    *("", "x", "\0", [], [[3]], [1, 2], {}, {"a": 1}),
)
NAMES = 'a b.wav wavs/a ../c /x/a.wav C:\\a é " "a" 0 1.5 text file speaker audio_filepath { ['
CELLS = (*NAMES.split(), *("a" * 300, "\0", "", " ", "Hello there.", "It is, and was; so.", "( a", "\u2028"))


def mutated(draw: random.Random, data: bytes) -> bytes:
    """A few bytes changed, a part left out or said twice, or nothing."""
    found = bytearray(data)
    for _ in range(draw.choice((0, 1, 3, 30))):
        if found:
            found[draw.randrange(min(len(found), draw.choice((64, len(found)))))] = draw.randrange(256)
    start, end = sorted(draw.randrange(len(found) + 1) for _ in range(2))
    return bytes(draw.choice((found, found, found[:start] + found[end:], found[:end] + found[start:])))


def sounds(draw: random.Random, folder: Path) -> Callable[[], object]:
    """Reads a sound file."""
    format = draw.choice(sorted(FORMATS))
    samples = np.random.default_rng(draw.randrange(2**32)).standard_normal(
        (draw.randrange(3000), draw.randrange(1, 4))
    )
    file = io.BytesIO()
    with suppress(soundfile.LibsndfileError):  # not every coding takes every number of channels
        soundfile.write(
            file,
            samples * 0.1,
            draw.choice((8000, 16000, 48000)),
            draw.choice(FORMATS[format]),
            format=format,
        )
    content = mutated(draw, file.getvalue())
    (path := folder / "a.wav").write_bytes(content)
    return lambda: decode_audio(draw.choice((path, io.BytesIO(content))), 600.0, draw.choice((0.0, 0.01)))


ODD_TENSORS: tuple[Callable[[torch.Tensor], object], ...] = (
    *(lambda value: value[:1], torch.Tensor.half, torch.Tensor.double, torch.Tensor.char),
    *(lambda value: value.to(torch.complex64), torch.Tensor.to_sparse, lambda value: value.to("meta")),
    *(lambda value: torch.zeros(()).expand(10**6, 10**6), lambda value: value * float("nan")),
    *(lambda value: value.unsqueeze(-1), torch.Tensor.flatten, lambda value: torch.zeros(0)),
    *(lambda value: value * 0 + 3e38, lambda value: 3, lambda value: None, lambda value: "x"),
)


def checkpoints(draw: random.Random, folder: Path, contents: dict[str, dict]) -> Callable[[], object]:
    """Reads a file of a published model."""
    whole = contents[draw.choice(sorted(FILES))]
    content = copy.copy(whole)
    keys = [key for key, value in content.items() if isinstance(value, dict)]
    for _ in range(draw.randrange(4)):
        key = draw.choice(keys)
        part = content[key] = dict(content[key])
        name = draw.choice(sorted(map(str, part)) or ["x"])
        value = whole[key].get(name)  # as it was, though this one may be drawn again
        part[draw.choice((name, name, f"module.{name}", "x"))] = (
            draw.choice(ODD_TENSORS)(value)
            if isinstance(value, torch.Tensor) and value.dim()
            else draw.choice(ODD)
        )
        if draw.random() < 0.1:
            content[key] = draw.choice(ODD)
            keys.remove(key)
        if not keys:
            break
    path = folder / draw.choice(("a.pt", "a.pt", "a.safetensors"))
    torch.save(content, path, _use_new_zipfile_serialization=draw.random() < 0.8)
    if draw.random() < 0.3:
        path.write_bytes(mutated(draw, path.read_bytes()))
    if draw.random() < 0.3:
        (folder / "config.json").write_text(mutated(draw, b'{"upsample_rates": [8, 8]}').decode("latin-1"))
    return lambda: read_checkpoint(path)


def lists(draw: random.Random, folder: Path) -> Callable[[], object]:
    """Reads a folder of recordings, a manifest, or a table of texts."""
    for name in ("wavs/a.wav", "wavs/b.wav", "c.flac"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    if draw.random() < 0.3:
        names = ("audio_filepath", "text", "offset", "duration", "speaker", "files", "x")
        rows = [
            {draw.choice(names): draw.choice((*ODD, *CELLS)) for _ in range(3)}
            for _ in range(draw.randrange(4))
        ]
        text = draw.choice(
            (json.dumps(rows), "\n".join(map(json.dumps, rows)), json.dumps(rows[0] if rows else {}))
        )
    else:
        mark = draw.choice("|\t,; ")
        rows = ([draw.choice(CELLS) for _ in range(draw.randrange(1, 5))] for _ in range(draw.randrange(6)))
        text = draw.choice(("\n", "\r\n", "\r")).join(map(mark.join, rows))
    content = mutated(draw, text.encode()) if draw.random() < 0.3 else text.encode()
    names = ("metadata.csv", "list.txt", "a.txt", "wavs/a.lab", "a.trans.txt", "m.json", "a.tsv", "a.jsonl")
    path = folder / draw.choice(names)
    path.write_bytes(content)
    ways = (None, "column", "folder", "none")
    return draw.choice(
        (
            *(lambda: find_takes(folder, draw.choice(ways)), lambda: read_manifest(path)),
            *(lambda: Table(path).scan(), lambda: read_phrases(str(path))),
        )
    )


def voices(draw: random.Random, folder: Path) -> Callable[[], object]:
    """Reads a voice of which a file is changed, and builds what loading it builds."""
    shutil.copytree(HAZEL, folder, dirs_exist_ok=True, copy_function=os.link)
    path = draw.choice([folder / "voice.yaml", *folder.rglob("hifigan/*")])
    content = path.read_bytes()
    path.unlink()
    if path.suffix == ".yaml" and draw.random() < 0.7:
        whole = yaml.safe_load(content)
        part, key = whole, draw.choice(list(whole))
        while isinstance(part[key], dict) and part[key] and draw.random() < 0.9:
            part, key = part[key], draw.choice(list(part[key]))
        part[draw.choice((key, key, "x"))] = draw.choice(ODD)
        path.write_text(yaml.safe_dump(whole))
    else:
        path.write_bytes(mutated(draw, content))

    def read() -> None:
        voice = load_voice(folder)
        voice.source("fastpitch").build_frontend()
        make_driver(voice.source("hifigan"), "onnx", "cpu", 1)

    return read


def peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.timeout(THINGS + 300)
@pytest.mark.skipif(sys.platform != "linux", reason="Linux, where memory is counted in kilobytes")
@pytest.mark.parametrize("make", [sounds, checkpoints, lists, voices])
def test_whatever_is_read_is_no_fault(make, tmp_path):
    more = []
    if make is checkpoints:
        more = [{name: torch.load(GOLDEN / name / file, weights_only=True) for name, file in FILES.items()}]
    before = peak()
    for number in range(THINGS):
        draw = random.Random(f"{SEED} {number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = make(draw, folder, *more)
            try:
                read()
            except (InputError, OSError) as error:
                assert str(error), number
            except Exception as error:
                raise AssertionError(f"{make.__name__} {SEED} {number}: {error!r}") from error
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        before = peak() if number == 20 else before
    print(f"{THINGS} {make.__name__}, {peak() / 1e6:.0f} MB")
    assert peak() < before + MOST_GROWTH
