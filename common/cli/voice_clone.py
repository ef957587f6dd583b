"""Makes a voice of a folder of recordings: prepares them, trains, makes the voice and checks it.

A command that was interrupted goes on when it is given again; what is finished is not done anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.cli import options, voice_check, voice_make
from melforge.common.errors import InputError, require_package
from melforge.common.text import ACCENTS
from melforge.common.training.corpus.takes import require_takes
from melforge.common.weights.ears import find_ear
from melforge.common.weights.voices import VOICE_FILE, place_of

MINUTES, STEPS = 10.0, 3000  # of the training: whichever ends first
WORKERS = os.cpu_count() or 1  # processes that prepare
# Seconds that the other steps take on a quiet machine: to prepare a second of speech, in all processes and to
# hear it again in one; to begin and end a training; to make the voice and check it; for each of its speakers.
PREPARING, HEARING, AROUND_TRAINING, MAKING, SPEAKER = 1 / 18, 1 / 80, 8.0, 5.0, 2.5
ROUNDS = 230  # of the work that measures a machine, in `MEASURED` seconds of the quiet one
MEASURED = 0.5
SPARE = 1.2  # the load of a machine changes
EPILOG = """Everything but the voice is kept in --work: the corpus and its report (corpus/), the run of the
training, and three sentences to hear of each speaker (sentences/).

examples:
  melforge voice clone recordings ann --licence CC-BY-4.0
  melforge voice clone recordings ./ann --minutes 20"""

OPTIONS = f"""
  folder DIR           recordings and texts, as melforge voice prepare reads them
  name NAME            name of the voice; a path makes its folder there instead of in the folder of voices
  --work DIR           folder for the corpus and the run (default: clones/NAME)
  --minutes X={MINUTES:g}   minutes of training at most; {STEPS} steps end it too
  accent
  --keep KIND...       use lines in spite of this kind of defect, or the line of this name
  --ear NAME           ear that hears recordings and voice; none for none (default: the shipped one)
  --no-denoising       keep the steady noise of recordings
  --description TEXT=  one sentence about the voice
  --licence TEXT=      licence of the voice
  --device NAME=auto   cpu, cuda or cuda:all (auto: a GPU if there is one)
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG)
    parser.add_argument("--from", dest="start", metavar="VOICE", help="voice that the training begins with")
    args = parser.parse_args(argv)
    if not 0 < args.minutes < float("inf"):
        raise InputError(f"--minutes must be a number above 0, not {args.minutes:g}")
    require_takes(args.folder)
    for package in ("torch", "pocketsphinx", "pyworld", "soxr"):
        require_package(package, "cloning a voice", "train")
    voice = place_of("voices", args.name).absolute()  # so that it is no name, as "./ann" would become
    work = args.work or Path("clones") / voice.name
    made = work / "voice.txt"
    if (voice / VOICE_FILE).exists() and not (made.is_file() and made.read_text("utf-8") == str(voice)):
        raise InputError(f"{voice} is another voice already: give another name")
    from melforge.common.training.corpus.cutting import seconds_of
    from melforge.common.training.corpus.dataset import too_short
    from melforge.common.training.corpus.takes import find_takes
    from melforge.common.training.fine_tune import find_starts, require_fitting, widest_voice

    for source in find_starts(args.start or widest_voice(), (), args.device):  # before the long part
        require_fitting(source, args.folder, ACCENTS[args.accent])
    find_ear(args.ear)
    takes = [take for take in find_takes(args.folder) if take.text]
    speech = sum(map(seconds_of, takes))
    if why := too_short(speech):
        raise InputError(f"{args.folder} has {why}")
    seconds = planned(speech, len({take.speaker for take in takes}), args.minutes * 60)
    with _one_bar(speech, seconds) as (prepare, train, finish):
        corpus, run = _trained(args, work, prepare, train)
        made.write_text(str(voice), encoding="utf-8")
        about = ["--description", args.description, "--licence", args.licence]
        ear = ["--ear", args.ear] if args.ear else []
        voice_make.main([str(voice), "--run", str(run), *about, *ear])
        finish(0.5)
        status = voice_check.main([str(voice), "--corpus", str(corpus), *ear])
        spoken = _speak(voice, work / "sentences")
        finish(1.0)
    print("\nhear them:", *(f"  {path}" for path in spoken), sep="\n")
    print(f"the voice's card: {voice / 'README.md'}\nthe recordings' report: {corpus / 'report.md'}")
    print(f'next: melforge speak --voice {shlex.quote(args.name)} --text "Hello." -o hello.wav')
    return status


def _trained(args, work: Path, prepare: Callable, train: Callable) -> tuple[Path, Path]:
    """The folders of the corpus and of the run, which is of this corpus and of these settings."""
    from melforge.common.training.corpus.dataset import LABELS
    from melforge.common.training.corpus.from_recordings import prepare_recordings
    from melforge.common.training.corpus.report import summary
    from melforge.common.training.fine_tune import fine_tune
    from melforge.common.training.run_folder import LAST
    from melforge.common.training.tuning import TuningSettings

    corpus = work / "corpus"
    how = {"progress": prepare, "frontend": ACCENTS[args.accent], "denoise": not args.no_denoising}
    report = prepare_recordings(args.folder, corpus, None, args.keep, args.ear, WORKERS, **how)
    prepare(1.0)
    print(f"{summary(report)} ({corpus / 'report.md'})")
    settings = repr((args.minutes, args.start)).encode()
    run = work / f"run-{hashlib.sha256((corpus / LABELS).read_bytes() + settings).hexdigest()[:8]}"
    finished = run / "finished"
    if not finished.exists():
        goes_on = any(run.glob(f"*/{LAST}"))
        if not goes_on and run.exists():
            shutil.rmtree(run)  # interrupted before anything of it was saved
        tuning = TuningSettings(run, steps=STEPS, minutes=args.minutes, device=args.device)
        fine_tune(corpus, tuning, args.start, resume=goes_on, progress=train)
        finished.touch()
    train(1.0)
    return corpus, run


def _speak(voice: Path, folder: Path) -> list[Path]:
    """Three sentences of each speaker as wav files."""
    from melforge.common.audio.sound_files import write_audio
    from melforge.common.runner import TextToSpeech
    from melforge.common.speech import Controls

    folder.mkdir(parents=True, exist_ok=True)
    tts, paths = TextToSpeech.load(voice=voice, device="cpu"), []
    for number, name in enumerate(tts.acoustic.source.speakers or ("",)):
        audios = tts.speak_many(voice_check.SENTENCES[:3], Controls(speaker=number) if name else None)
        for count, audio in enumerate(audios, start=1):
            paths.append(folder / f"{name and name + '-'}{count}.wav")
            write_audio(paths[-1], audio.samples, audio.sampling_rate)
    return paths


def planned(speech: float, speakers: int, training: float) -> dict[str, float]:
    """Seconds of each step for so many of speech and of training, at the speed that this machine has now."""
    slow = slowness()
    return {
        "preparing": slow * (5 + speech * (PREPARING / WORKERS + HEARING)),
        "training": training + slow * AROUND_TRAINING,
        "making": slow * (MAKING + speakers * SPEAKER),
    }


def slowness() -> float:
    """How many times as long work takes here and now, other programs beside it, as on the quiet machine."""
    noise = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    begun, rounds = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < MEASURED:
        np.fft.rfft(noise)
        rounds += 1
    return ROUNDS / MEASURED * passed / max(1, rounds)


@contextlib.contextmanager
def _one_bar(speech: float, seconds: Mapping[str, float]):
    """One bar for all steps, and what they print above it; yields what tells the share done of each step.

    Bars of their own that the steps have are not shown.
    """
    from tqdm import tqdm
    from tqdm.contrib import DummyTqdmFile

    class AboveBar(DummyTqdmFile):
        def isatty(self) -> bool:
            return False

    minutes = math.ceil(SPARE * sum(seconds.values()) / 60)
    print(f"{speech / 60:.1f} minutes of recordings: at most about {minutes} minutes of work", flush=True)
    shape = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"
    bar = tqdm(total=sum(seconds.values()), bar_format=shape, disable=None, file=sys.stderr)

    def teller(name: str, before: float) -> Callable[[float], None]:
        def tell(share: float) -> None:
            done = max(bar.n, before + min(1.0, share) * seconds[name])
            bar.set_description_str(name, refresh=False)
            bar.set_postfix_str(f"{bar.format_interval(bar.total - done)} left", refresh=False)
            bar.update(done - bar.n)

        return tell

    above: Any = AboveBar(sys.stdout)
    starts = [0.0, seconds["preparing"], seconds["preparing"] + seconds["training"]]
    with bar, contextlib.redirect_stdout(above), contextlib.redirect_stderr(above):
        yield [teller(name, before) for name, before in zip(seconds, starts, strict=True)]
