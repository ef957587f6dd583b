"""A stranger's recordings: each defect is reported with its file, lines can be kept, and runs resume."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from melforge.common.errors import InputError
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus import dataset, from_recordings, report
from melforge.common.training.corpus.alignment import PhoneTimes
from melforge.common.training.corpus.dataset import CorpusAudio, load_labels
from melforge.common.training.corpus.defects import KINDS
from melforge.common.training.corpus.from_recordings import prepare_recordings
from melforge.common.training.corpus.report import by_outcome, read_report, summary

RATE, HOP = 22_050, 256
TEXT = "This is the sentence number {}."
SCORE = -15.0
DRAW = report.draw


def voice(seconds: float = 2.0, rate: int = RATE, pitch: float = 120.0, seed: int = 99) -> np.ndarray:
    """Syllables of a buzz over a little noise, with silence before and behind: float32 [T]."""
    time = np.arange(int(seconds * rate)) / rate
    buzz = sum(np.sin(2 * np.pi * pitch * k * time + seed) / k for k in range(1, 12))
    syllables = np.maximum(0.05, np.sin(2 * np.pi * 3 * time)) * 0.1 * buzz
    edge = np.zeros(rate // 2)
    noise = np.random.default_rng(seed).standard_normal(len(time) + 2 * len(edge))
    return (np.concatenate([edge, syllables, edge]) + 1e-4 * noise).astype(np.float32)


class EvenAligner:
    """In pocketsphinx's place: phones last equally long. A test sets `worst` and `refused`."""

    worst: float | None = None  # of the second half second
    refused = False
    aligned = 0

    def phone_times(self, audio, rate, words):
        type(self).aligned += 1
        if self.refused:
            raise InputError("no alignment")
        count = sum(map(len, words))
        edges = np.linspace(0.1, len(audio) / rate - 0.1, count + 1)
        times = np.array(list(itertools.pairwise(edges)))
        scores = np.full(count, SCORE)
        if self.worst is not None:
            scores[(times[:, 0] > 0.5) & (times[:, 0] < 1.5)] = self.worst
        return PhoneTimes(times, scores)


@pytest.fixture
def aligner(monkeypatch) -> type[EvenAligner]:
    kind = type("Aligner", (EvenAligner,), {})
    monkeypatch.setattr(from_recordings, "Aligner", kind)
    set_pitch(monkeypatch, 120.0)
    monkeypatch.setattr(report, "draw", lambda content: None)  # half a second each time
    monkeypatch.setenv("MELFORGE_EARS", "none")  # these sounds have no words
    return kind


def set_pitch(monkeypatch, pitch: float) -> None:
    monkeypatch.setattr(
        from_recordings, "pitch_per_symbol", lambda audio, durations: np.full(len(durations), pitch)
    )


@pytest.fixture
def folder(tmp_path) -> Path:
    """Six good lines in LJSpeech's form."""
    (tmp_path / "in" / "wavs").mkdir(parents=True)
    for number in range(6):
        add(tmp_path / "in", f"good{number}", voice(seed=number))
    return tmp_path / "in"


def add(folder: Path, name: str, audio: np.ndarray, rate: int = RATE, text: str | None = None, suffix="wav"):
    soundfile.write(folder / "wavs" / f"{name}.{suffix}", audio, rate)
    with (folder / "metadata.csv").open("a", encoding="utf-8") as file:
        file.write(f"{name}|{TEXT.format(name) if text is None else text}\n")


def reported(out: Path, name: str) -> dict[str, tuple[str, bool]]:
    """kind -> sentence and whether the line is left out."""
    found = [one for one in read_report(out)["defects"] if one["name"] == name]
    assert all(one["kind"] in KINDS for one in found)
    return {one["kind"]: (one["sentence"], one["left_out"]) for one in found}


def test_british_speakers_get_british_labels(folder, aligner, tmp_path):
    prepare_recordings(folder, tmp_path / "out")
    prepare_recordings(folder, tmp_path / "out", frontend="english-gb")
    labels, symbols = load_labels(tmp_path / "out"), get_frontend("english-gb").symbols
    assert labels.frontend == "english-gb" and load_labels(tmp_path / "out").ids[0].max() < len(symbols)
    said = " ".join(symbols[i].lstrip("@") for i in labels.ids[0])
    assert "N AH1 M B AH0 " in said and "ER0" not in said  # "number"


def test_good_recordings_become_a_corpus_of_the_known_form(folder, aligner, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "draw", DRAW)
    out = tmp_path / "out"
    add(folder, "stereo", np.stack([voice(seed=7, rate=48_000)] * 2, 1), 48_000, suffix="flac")
    add(folder, "packed", voice(seed=8, rate=44_100), 44_100, suffix="ogg")
    add(folder, "more", voice(seed=9, rate=44_100), 44_100, suffix="mp3")
    made = prepare_recordings(folder, out)
    labels = load_labels(out)
    assert sorted(labels.names) == sorted([*(f"good{n}" for n in range(6)), "packed", "more", "stereo"])
    assert labels.speakers == [] and made["used"] == made["lines"] == 9 and not made["defects"]
    sound = CorpusAudio(out, labels, HOP)
    audio, offsets = sound.read_all(), sound.offsets
    for name, text, begin, end in zip(labels.names, labels.texts, offsets, offsets[1:], strict=False):
        assert text == TEXT.format(name)
        speech = audio[begin:end].astype(np.float32) / 32768
        assert soundfile.info(out / "wavs" / f"{name}.wav").samplerate == RATE
        assert 2.0 <= len(speech) / RATE < 2.3  # half a second of silence at each side is mostly gone
        loud = np.abs(speech).reshape(-1, HOP).mean(1) > 0.02
        assert 10 * np.log10(np.mean(speech.reshape(-1, HOP)[loud] ** 2)) == pytest.approx(-22, abs=2)
    lines = (out / "metadata.csv").read_text().splitlines()
    assert [line.split("|")[0] for line in lines] == labels.names
    assert read_report(out) == made
    assert {"report.md", "report.json", "report.png"} <= {path.name for path in out.iterdir()}
    assert not list(out.rglob("*.tmp*"))


NOISE = np.random.default_rng(3).standard_normal(RATE * 3).astype(np.float32)


def test_all_defects_of_a_line_that_is_left_out_stand_together():
    defects = [{"name": name, "left_out": gone} for name, gone in (("a", True), ("b", False), ("a", False))]
    assert [[one["name"] for one in some] for _, some in by_outcome(defects)] == [["a", "a"], ["b"]]


DEFECTS = {  # name: the recording, its rate, its text or None, kind, part of the sentence, left out
    "slow-rate": (voice(rate=8_000), 8_000, None, "rate", "8000 Hz: nothing is heard above 4 kHz", True),
    "low-rate": (voice(rate=16_000), 16_000, None, "rate", "16000 Hz", False),
    "clipped": (np.clip(voice() * 20, -1, 1), RATE, None, "clipping", "cut off at the level 1.00", True),
    "soft-clipped": (np.clip(voice(), -0.08, 0.08), RATE, None, "clipping", "off at the level 0.08", None),
    "silent": (np.zeros(RATE, np.float32), RATE, None, "silence", "nothing is said", True),
    "empty": (np.zeros(0, np.float32), RATE, None, "silence", "nothing is said", True),
    "short": (voice(0.15), RATE, "Yes.", "length", "s of speech are too short", True),
    "long": (voice(22), RATE, TEXT * 20, "length", "longer than 20 s: cut it at a pause", True),
    "longish": (voice(11), RATE, TEXT * 9, "length", "does not train on more than 832: cut it", False),
    "offset": (voice() + 0.05, RATE, None, "offset", "direct current of +0.050, which is taken out", False),
    "noisy": (voice() + 0.005 * NOISE, RATE, None, "noise", "dB above the noise", False),
    "drowned": (voice() + 0.1 * NOISE, RATE, None, "noise", "dB above the noise", True),
    "soft": (voice() * 0.03, RATE, None, "level", "which raises its noise", False),
    "hurried": (voice(), RATE, TEXT * 6, "pace", "phones a second, where the speaker's others have", True),
    "drawn": (voice(5), RATE, "Hello, hello.", "pace", "is its text whole, and of nothing else?", True),
    "not-finite": (np.full(RATE, np.nan, np.float32), RATE, None, "file", "its samples are not", True),
    "untold": (voice(), RATE, "", "file", "its text is empty: write it to metadata.csv", True),
    "wordless": (voice(), RATE, "...", "file", "nothing to speak", True),
    "unknown": (voice(), RATE, "Zyxquorb is number one here.", "words", "Zyxquorb {Z ", False),
    "foreign": (voice(), RATE, "This is a 猫 of number one.", "characters", "not spoken: 猫", False),
    "again": (voice(seed=0), RATE, TEXT.format("good0"), "duplicate", "the same recording as", True),
    "same-text": (voice(seed=77), RATE, TEXT.format("GOOD0"), "duplicate", "the same text as", False),
    "other-text": (voice(seed=0), RATE, "This is another one.", "duplicate", "which has another text", True),
    "book": (np.zeros(601 * 8000, np.float32), 8000, None, "file", "longer than 600 seconds: cut it", True),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_is_reported_with_its_file_and_can_be_kept(folder, aligner, tmp_path, name):
    audio, rate, text, kind, part, left_out = DEFECTS[name]
    if name == "not-finite":
        soundfile.write(folder / "wavs" / f"{name}.wav", audio, rate, subtype="FLOAT")
        with (folder / "metadata.csv").open("a") as file:
            file.write(f"{name}|One.\n")
    else:
        add(folder, name, audio, rate, text)
    out = tmp_path / "out"
    prepare_recordings(folder, out)
    sentence, is_left_out = reported(out, name)[kind]
    assert part in sentence
    if left_out is not None:
        assert is_left_out == left_out
    assert (name in load_labels(out).names) == (not is_left_out)
    assert f"wavs/{name}.wav`: {sentence}" in (out / "report.md").read_text(encoding="utf-8")
    if not is_left_out:
        return
    prepare_recordings(folder, out, keep=[kind if KINDS[kind][1] else name])
    assert (name in load_labels(out).names) == KINDS[kind][1]


def test_quiet_lines_are_reported_in_one_sentence(folder, aligner, tmp_path):
    for number in range(4):
        sound = 0.1 * voice(seed=20 + number) + 4e-4 * NOISE[: 3 * RATE]
        add(folder, f"quiet{number}", sound.astype(np.float32))
    defects = prepare_recordings(folder, tmp_path / "out")["defects"]
    (told,) = (one for one in defects if one["kind"] in ("noise", "level"))
    assert told["source"] == "4 lines" and not told["left_out"]
    assert "19 dB quieter than the speaker's others" in told["sentence"]
    assert told["sentence"].endswith("wavs/quiet0.wav, wavs/quiet1.wav, wavs/quiet2.wav and 1 more")
    assert len(load_labels(tmp_path / "out").names) == 10


def test_files_that_cannot_be_read_and_what_is_missing(folder, aligner, tmp_path):
    out = tmp_path / "out"
    (folder / "wavs" / "broken.wav").write_bytes(b"RIFF and nothing more")
    soundfile.write(folder / "wavs" / "textless.wav", voice(), RATE)
    with (folder / "metadata.csv").open("a") as file:
        file.write("broken|One.\nsoundless|Two.\n")
    assert [prepare_recordings(folder, out)["new"] for _ in range(2)] == [9, 0]
    assert "it cannot be read as sound" in reported(out, "broken")["file"][0]
    assert reported(out, "soundless")["file"] == ("its sound file is missing", True)
    sentence = "its text is missing: write it to metadata.csv, or to textless.txt beside it"
    assert reported(out, "textless")["file"] == (sentence, True)
    assert len(load_labels(out).names) == 6
    soundfile.write(folder / "wavs" / "broken.wav", voice(seed=9), RATE)  # what failed is tried again
    again = prepare_recordings(folder, out)
    assert (again["used"], again["new"]) == (7, 1)


def test_a_text_that_does_not_fit_is_reported_by_its_alignment(folder, aligner, tmp_path):
    out = tmp_path / "out"
    prepare_recordings(folder, out)
    aligner.worst = -60.0
    add(folder, "odd", voice(seed=20))
    prepare_recordings(folder, out)
    sentence, left_out = reported(out, "odd")["text"]
    assert sentence.startswith("its text hardly fits at 0.") and not left_out
    aligner.worst = -90.0
    add(folder, "wrong", voice(seed=21))
    prepare_recordings(folder, out)
    assert reported(out, "wrong")["text"][1] and "wrong" not in load_labels(out).names
    prepare_recordings(folder, out, keep=["wrong"])
    assert "wrong" in load_labels(out).names
    aligner.refused = True
    add(folder, "refused", voice(seed=22))
    prepare_recordings(folder, out, keep=["refused"])
    assert reported(out, "refused")["alignment"] == ("is its text another? no alignment", True)
    assert "refused" not in load_labels(out).names


def test_speech_behind_the_last_word_is_speech_without_words(folder, aligner, tmp_path, monkeypatch):
    whole = aligner.phone_times

    def stops(self, audio, rate, words):
        found = whole(self, audio, rate, words)
        return PhoneTimes(found.times * 0.4, found.scores)

    prepare_recordings(folder, tmp_path / "out")
    monkeypatch.setattr(aligner, "phone_times", stops)
    add(folder, "more", voice(seed=20))
    prepare_recordings(folder, tmp_path / "out")
    sentence, left_out = reported(tmp_path / "out", "more")["text"]
    assert sentence.endswith("s of speech have no words in its text") and left_out


def test_a_line_of_another_voice_is_reported(folder, aligner, tmp_path, monkeypatch):
    prepare_recordings(folder, tmp_path / "out")
    set_pitch(monkeypatch, 240.0)
    add(folder, "other", voice(pitch=240))
    prepare_recordings(folder, tmp_path / "out")
    sentence, left_out = reported(tmp_path / "out", "other")["pitch"]
    assert sentence == "240 Hz, where the speaker's others have 120: is it another speaker?" and not left_out


def test_a_second_run_works_on_what_is_new_or_changed_only(folder, aligner, tmp_path):
    out = tmp_path / "out"
    assert prepare_recordings(folder, out)["new"] == 6
    before = {path: path.stat().st_mtime_ns for path in (out / "wavs").iterdir()}
    assert prepare_recordings(folder, out)["new"] == 0 and aligner.aligned == 6
    assert {path: path.stat().st_mtime_ns for path in (out / "wavs").iterdir()} == before
    (out / "lines" / "good1.json").write_text("{")  # as if it was damaged
    (out / "wavs" / "good2.wav").unlink()
    table = folder / "metadata.csv"
    table.write_text(table.read_text().replace("number good3", "of good3"))
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    (folder / "wavs" / "good5.wav").unlink()
    assert prepare_recordings(folder, out)["new"] == 3
    labels = load_labels(out)
    assert "This is the sentence of good3." in labels.texts and len(labels.names) == 5
    assert not (out / "wavs" / "good5.wav").exists() and not (out / "lines" / "good5.json").exists()


def test_steady_noise_is_taken_out_and_said_unless_it_is_to_stay(folder, aligner, tmp_path):
    out = tmp_path / "out"
    for number in range(4):
        add(folder, f"noisy{number}", voice(seed=number + 10) + 0.002 * NOISE)

    def wavs() -> dict[str, bytes]:
        return {path.stem: path.read_bytes() for path in (out / "wavs").iterdir()}

    kept = prepare_recordings(folder, out, denoise=False)
    raw = wavs()
    assert kept["denoised"] is None and "noise" not in summary(kept)
    made = prepare_recordings(folder, out)
    assert made["new"] == 10 and made["denoised"]["lines"] == 4
    assert made["denoised"]["before"] == pytest.approx(-54, abs=1) and made["denoised"]["after"] < -70
    assert "steady noise of 4 was lowered from -54 to" in summary(made)
    assert summary(made) in (out / "report.md").read_text()
    changed = {name for name, content in wavs().items() if content != raw[name]}
    assert changed == {f"noisy{number}" for number in range(4)}


def test_a_run_that_was_interrupted_leaves_finished_lines_and_no_labels(
    folder, aligner, tmp_path, monkeypatch
):
    out, whole = tmp_path / "out", aligner.phone_times

    def stopped(self, *args):
        if aligner.aligned == 3:
            raise KeyboardInterrupt
        return whole(self, *args)

    monkeypatch.setattr(aligner, "phone_times", stopped)
    with pytest.raises(KeyboardInterrupt):
        prepare_recordings(folder, out)
    assert len(list((out / "lines").iterdir())) == 3 and not (out / "labels.npz").exists()
    monkeypatch.setattr(aligner, "phone_times", whole)
    assert prepare_recordings(folder, out)["new"] == 3 and aligner.aligned == 6


def test_speakers_by_folder_are_numbered_in_the_labels(aligner, tmp_path):
    for speaker in ("zoe", "ann"):
        (tmp_path / "in" / speaker / "wavs").mkdir(parents=True)
        for number in range(2):
            add(tmp_path / "in" / speaker, f"{number}", voice(seed=number + 5 * (speaker == "zoe")))
    made = prepare_recordings(tmp_path / "in", tmp_path / "out")
    labels = load_labels(tmp_path / "out")
    assert labels.speakers == [one["speaker"] for one in made["speakers"]] == ["ann", "zoe"]
    who = [labels.speakers[number] for number in labels.speaker]
    assert all(name.startswith(speaker) for name, speaker in zip(labels.names, who, strict=True))
    assert made["speakers"][0]["minutes"] == pytest.approx(2 * 2 / 60, abs=0.02)


def hear_as(monkeypatch, rates: dict[str, float], usual: float) -> list[str]:
    """An ear of these word error rates by line, of others `usual`; the lines that it has heard."""
    heard = []

    def hear(out, lines):
        for line in lines:
            if line.sound and line.heard is None:
                heard.append(line.name)
                line.heard = {"ear": "any", "text": "some words", "wer": rates.get(line.name, usual)}
                from_recordings.save_line(out, line)

    monkeypatch.setattr(from_recordings, "listener", lambda name: hear)
    return heard


def test_an_ear_hears_every_line_once_and_an_aligner_must_agree(folder, aligner, tmp_path, monkeypatch):
    heard = hear_as(monkeypatch, {"good1": 0.5, "good2": 0.9, "odd": 0.9}, 0.0)
    out = tmp_path / "out"
    for _ in range(2):
        prepare_recordings(folder, out)
    assert len(heard) == 6
    assert reported(out, "good1")["heard"] == ('50 % of its words are heard as others: "some words"', False)
    assert not reported(out, "good2")["heard"][1] and "good2" in load_labels(out).names
    aligner.worst = -60.0
    add(folder, "odd", voice(seed=20))
    prepare_recordings(folder, out)
    assert reported(out, "odd")["heard"][1] and "odd" not in load_labels(out).names


def test_a_speaker_whom_the_ear_hears_badly_is_compared_with_himself(folder, aligner, tmp_path, monkeypatch):
    hear_as(monkeypatch, {"good1": 0.7, "good2": 1.0}, 0.5)
    prepare_recordings(folder, tmp_path / "out")
    assert "heard" not in reported(tmp_path / "out", "good1")
    what, left_out = reported(tmp_path / "out", "good2")["heard"]
    assert what.startswith("100 % of its words are heard as others (the speaker's median is 50 %)")
    assert not left_out
    for number in range(2, 6):
        (folder / "wavs" / f"good{number}.wav").unlink()
    hear_as(monkeypatch, {}, 1.0)
    prepare_recordings(folder, tmp_path / "few")
    assert not reported(tmp_path / "few", "good1")["heard"][1]  # of few lines none is left out


def test_where_a_corpus_may_not_be_written_and_what_kinds_to_keep_are_unknown(folder, aligner, tmp_path):
    with pytest.raises(InputError, match="did you mean 'clipping'"):
        prepare_recordings(folder, tmp_path / "out", keep=["cliping"])
    with pytest.raises(InputError, match="unknown kind of defect to keep, or line, 'silence'"):
        prepare_recordings(folder, tmp_path / "out", keep=["silence"])
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=r"lies in .*, which is read: give a folder beside it"):
        prepare_recordings(folder, folder / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "labels.npz").touch()
    with pytest.raises(InputError, match="holds a corpus that was made otherwise: give a new folder"):
        prepare_recordings(folder, tmp_path / "other")


def test_no_usable_line_is_an_error_with_a_report(tmp_path, aligner):
    (tmp_path / "in" / "wavs").mkdir(parents=True)
    add(tmp_path / "in", "a", np.zeros(RATE, np.float32))
    with pytest.raises(InputError, match=r"no line of .* is usable \(wavs/a\.wav: nothing is.*report\.md"):
        prepare_recordings(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out" / "report.md").exists() and not (tmp_path / "out" / "labels.npz").exists()


def test_a_bar_in_a_text_is_no_column_of_the_corpus(aligner, tmp_path):
    (tmp_path / "in").mkdir()
    soundfile.write(tmp_path / "in" / "a.wav", voice(), RATE)
    (tmp_path / "in" / "a.txt").write_text("This is | the first\nsentence of all.\n")
    prepare_recordings(tmp_path / "in", tmp_path / "out")
    text = "This is   the first sentence of all."
    assert (tmp_path / "out" / "metadata.csv").read_text() == f"a|{text}|{text}\n"


@pytest.mark.align
@pytest.mark.slow
def test_a_right_text_is_found_with_any_noise():
    """Most of these were lost to pocketsphinx's best path through its lattice."""
    from melforge.common.runner import TextToSpeech
    from melforge.common.text.frontends import get_frontend
    from melforge.common.training.corpus.alignment import Aligner, line_symbols, words_of

    texts = (
        "I want forgiveness of man; I want those doors (of the prison) opened.",
        "A very large percentage of newspaper publishers, Chambers of Commerce,",
    )
    tts, frontend, aligner = TextToSpeech.load(threads=1), get_frontend("english"), Aligner()
    for text in texts:
        audio = tts.speak(text).samples
        words = words_of(line_symbols(frontend(text).utterances)[0])
        for seed in range(4):
            noise = 10 ** (-72 / 20) * np.random.default_rng(seed).standard_normal(len(audio))
            found = aligner._phone_times((audio + noise).astype(np.float32), RATE, words)
            assert found.scores.mean() > -30


@pytest.mark.align
@pytest.mark.slow
def test_the_command_with_pocketsphinx_in_two_processes(tmp_path, melforge, monkeypatch):
    """Real recordings of the shipped voice: one has another's text, and one says more than its text."""
    from melforge.common.runner import TextToSpeech

    texts = (
        "The weather was fine all day long.\nShe sells old books in a small shop.\n"
        "We drove to the coast before sunrise.\nNobody knew the answer to that question.\n"
        "Please leave your shoes at the door.\nThe train will arrive at seven."
    ).splitlines()
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "wavs").mkdir(parents=True)
    spoken = [audio.samples for audio in TextToSpeech.load(threads=1).speak_many(texts)]
    for number, (text, samples) in enumerate(zip(texts, spoken, strict=True)):
        add(folder, str(number), samples, text=text)
    add(folder, "swapped", spoken[0] * 0.9, text=texts[3])
    add(folder, "longer", np.concatenate([spoken[1], spoken[4]]), text=texts[1])
    status, printed, errors = melforge("voice", "prepare", folder, "-o", out, "--workers", 2, "--ear", "none")
    assert status == 0, errors
    labels = load_labels(out)
    assert sorted(labels.names) == ["0", "1", "2", "3", "4", "5"]
    assert {"alignment", "text"} & set(reported(out, "swapped")) and "text" in reported(out, "longer")
    assert "left out:\n" in printed and "6 of 8 lines are used" in printed
    for durations, pitch in zip(labels.durations, labels.pitch, strict=True):
        assert durations.sum() * HOP / RATE > 1.0
        assert 120 < np.median(pitch[pitch > 0]) < 300
    record = json.loads((out / "lines" / "0.json").read_text())
    assert record["fit"]["score"] > -30
    why = f"{int(labels.seconds)} s of speech: training needs 60 s at least"
    for text in (printed, (out / "report.md").read_text()):
        assert why in text and "voice train" not in text
    assert melforge("voice", "train", out, "-o", tmp_path / "run")[2].startswith(f"error: {out} has {why}")
    status, _, errors = melforge("voice", "clone", folder, "ann", "--work", tmp_path / "work")
    assert status == 2 and "s of speech: training needs 60 s at least" in errors
    assert not (tmp_path / "work").exists()
    monkeypatch.setattr(dataset, "LEAST_SECONDS", labels.seconds)
    _, printed, _ = melforge("voice", "prepare", folder, "-o", out, "--ear", "none")
    assert f"melforge voice train {out} -o RUN" in printed and "training needs" not in printed
