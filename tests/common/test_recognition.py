"""Transcripts: labels to words with times, long and silent recordings, error rates, ears and the command."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from melforge.common.audio.sound_files import resample
from melforge.common.recognition.loading import load_recogniser
from melforge.common.recognition.long_recordings import (
    QUIET,
    Piece,
    cut,
    is_silent,
    pieces_of,
    transcribe,
    transcript_of,
)
from melforge.common.recognition.recogniser import Heard
from melforge.common.recognition.transcript import (
    collapse,
    error_rate,
    greedy_text,
    normalised_words,
    reference_words,
    word_errors,
    words_of,
)
from melforge.common.weights.ears import list_ears, load_ear
from tests.tables import read_tables

GOLDEN = Path(__file__).parents[1] / "golden" / "jasper"
LABELS = " abcdefghijklmnopqrstuvwxyz'"
BLANK = len(LABELS)


def heard(text: str) -> Heard:
    """One output a character of the text, "-" for the blank."""
    labels = np.array([BLANK if c == "-" else LABELS.index(c) for c in text])
    return Heard(
        np.zeros((len(labels), BLANK + 1), np.float32), labels, np.full(len(labels), -0.5, np.float32)
    )


@pytest.mark.parametrize(
    ("outputs", "text"),
    [("", ""), ("----", ""), ("aa--a", "aa"), ("-hhe-ll-ll-o-", "hello"), ("  a  b", " a b"), ("-a-", "a")],
)
def test_repeats_are_one_character_unless_a_blank_lies_between(outputs, text):
    assert greedy_text(heard(outputs).labels, LABELS) == text


def test_collapse_gives_the_places_where_characters_begin():
    assert collapse(heard("-aab-b").labels, BLANK).tolist() == [1, 3, 5]


def test_words_have_times_and_scores():
    words = words_of(heard("--hhi--  -yyou-"), LABELS, 0.02, 10.0)
    assert [(word.word, round(word.start, 2), round(word.end, 2)) for word in words] == [
        ("hi", 10.04, 10.10),
        ("you", 10.20, 10.28),
    ]
    assert all(word.score == pytest.approx(np.exp(-0.5)) for word in words)
    assert words_of(heard("- -  -"), LABELS, 0.02) == []
    assert words_of(heard("----"), LABELS, 0.02) == words_of(heard(""), LABELS, 0.02) == []
    uneven = heard("ab")
    uneven.scores[:] = np.log([0.9, 0.4])
    assert words_of(uneven, LABELS, 0.02)[0].score == pytest.approx(0.6)  # their geometric mean


def test_references_are_written_as_a_recogniser_writes():
    text = "Well-known; it’s\tDr. O'Neil, 5 o'clock!"
    assert normalised_words(text, LABELS) == ["well", "known", "it's", "dr", "o'neil", "o'clock"]
    assert reference_words(text, LABELS) == ["well", "known", "it's", "doctor", "o'neil", "five", "o'clock"]


@pytest.mark.parametrize(
    ("reference", "other", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a c", 1),
        ("a c", "a b c", 1),
        ("a b", "b a", 2),
        ("", "x", 1),
        ("x", "", 1),
    ],
)
def test_word_errors(reference, other, errors):
    assert word_errors(reference.split(), other.split()) == errors


def test_the_rate_counts_words_of_all_references():
    assert error_rate([(["a", "b", "c"], ["a"]), (["d"], ["d"])]) == 0.5 and error_rate([]) == 0.0
    assert error_rate([([], [])]) == 0.0 and error_rate([([], ["a", "b"])]) == 1.0  # words of no text


def test_long_recordings_are_cut_where_they_are_quiet():
    rate, rng = 1000, np.random.default_rng(0)
    audio = rng.standard_normal(50 * rate).astype(np.float32)
    for second in (17.0, 34.5):
        audio[int(second * rate) : int((second + QUIET) * rate)] *= 0.01
    pieces = list(cut([audio], rate, 20 * rate))
    assert np.array_equal(np.concatenate(pieces), audio) and len(pieces) == 3
    places = np.cumsum([len(piece) for piece in pieces[:2]]) / rate
    assert places.tolist() == pytest.approx([17.0 + QUIET / 2, 34.5 + QUIET / 2], abs=0.01)
    for size in (700, 33 * rate):  # it makes no difference how the recording comes
        blocks = np.split(audio, range(size, len(audio), size))
        assert [len(piece) for piece in cut(blocks, rate, 20 * rate)] == [len(piece) for piece in pieces]
    assert [len(piece) for piece in cut([audio[:100]], rate, 20 * rate)] == [100]


def test_silence_is_not_heard():
    assert is_silent(np.zeros(16000, np.float32), 16000) and is_silent(np.ones(100, np.float32), 16000)
    assert not is_silent(np.full(16000, 0.01, np.float32), 16000)


# An ear


@pytest.fixture
def run(small_ear, melforge, monkeypatch):
    """Runs a command in this process with the small ear alone."""
    monkeypatch.setenv("MELFORGE_EARS", str(small_ear.parent))
    return melforge


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(40000) * 0.1).astype(np.float32)


def test_an_ear_is_found_by_name_and_folder(small_ear, monkeypatch):
    monkeypatch.setenv("MELFORGE_EARS", str(small_ear.parent))
    assert list_ears() == ["small"]
    for name in (None, "small", small_ear, small_ear / "ear.yaml"):
        found = load_ear(name)
        assert (found.name, found.licence, found.only.words) == ("small", "test", ("--ear", "small"))
    assert found.only.mel.sampling_rate == 16000 and set(found.only.graphs) == {
        *("masked_features", "masked_encoder", "decoder")
    }
    size = (small_ear / "jasper" / "weights.safetensors").stat().st_size
    assert size < 1.3 * 2 * sum(value.size for value in found.only.state.values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smal", "unknown ear 'smal': did you mean 'small'"),
        ("a/b", "ear folder a/b not found"),
        ("EMPTY", "is not an ear: it has no ear.yaml"),
        (__file__, "is a file: give the folder of an ear, with its ear.yaml, or its name"),
    ],
)
def test_what_is_no_ear_is_refused(small_ear, monkeypatch, tmp_path, name, message):
    monkeypatch.setenv("MELFORGE_EARS", str(small_ear.parent))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_ear(tmp_path if name == "EMPTY" else name)


def test_mistakes_in_an_ears_file_are_named(small_ear, tmp_path):
    text = (small_ear / "ear.yaml").read_text()
    for old, new, message in (
        ("model: jasper", "model: hifigan", r"ear\.yaml, line \d+: unknown recogniser 'hifigan'"),
        ("licence: test", "licnce: test", r"ear\.yaml, line \d+: unknown key 'licnce'"),
        ("hop_length: 160", "hop_length: none", "hop_length must be a whole number"),
    ):
        assert old in text
        (tmp_path / "ear.yaml").write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=message):
            load_ear(tmp_path)


def test_without_an_ear_the_way_out_is_named(run, monkeypatch, tmp_path, noise):
    monkeypatch.setenv("MELFORGE_EARS", str(tmp_path / "none"))
    soundfile.write(tmp_path / "it.wav", noise, 16000)
    status, out, errors = run("transcribe", tmp_path / "it.wav")
    assert (status, out) == (2, "") and errors.count("\n") == 1
    assert "there is no ear in" in errors and "--ear FOLDER" in errors and "--checkpoint FILE" in errors


def times(transcripts) -> list:
    """Texts and times; scores differ by rounding."""
    return [[(word.word, word.start, word.end) for word in made.words] for made in transcripts]


def test_transcripts_do_not_depend_on_batches_or_company(small_ear, noise):
    recogniser = load_recogniser(small_ear, device="cpu")
    heard = *(noise[:n] for n in (40000, 17000, 8001, 500)), np.zeros(9000, np.float32)
    recordings = [(samples, 16000) for samples in heard]
    together = transcribe(recogniser, recordings)
    assert times(together) == times(transcribe(recogniser, recordings, batch=2))
    assert times(together) == times([transcribe(recogniser, [one])[0] for one in recordings])
    short = transcribe(recogniser, [(noise[:1700], 16000)])  # fewer outputs than the stages' fewest
    assert short[0].seconds == 1700 / 16000
    assert all(made.text for made in together[:3]) and not any(made.words for made in together[3:])
    assert [made.seconds for made in together] == [len(samples) / 16000 for samples in heard]


def test_long_recordings_are_heard_in_pieces(small_ear, noise):
    recogniser = load_recogniser(small_ear, device="cpu")
    long = np.concatenate([noise] * 20 + [np.zeros(16000 * 30, np.float32)])  # 50 s and silence
    pieces = pieces_of(0, long, recogniser)
    assert all(piece.end - piece.start <= 20 * 16000 for piece in pieces) and 3 <= len(pieces) <= 5
    (made,) = transcribe(recogniser, [(long, 16000)])
    assert made.words[-1].end <= made.seconds == 80 and made.words[0].start < 1
    assert all(one.end <= other.start + 0.02 for one, other in zip(made.words, made.words[1:], strict=False))
    (word,) = transcript_of(recogniser, [(Piece(0, 16000, 16800), heard("hi-you"))], 2.0).words
    assert word.end == 1.05  # with its piece, whatever its outputs' seconds


def test_words_are_as_much_earlier_as_outputs_come_late(small_ear, tmp_path):
    delayed = Path(shutil.copytree(small_ear, tmp_path / "delayed"))
    text = (delayed / "ear.yaml").read_text()
    (delayed / "ear.yaml").write_text(text.replace("graphs:", "extra: {delay: 0.1}\ngraphs:"))
    piece = Piece(0, 16000, 32000), heard("--hi--you--")
    told = [
        [(word.start, word.end) for word in transcript_of(recogniser, [piece], 2.0).words]
        for recogniser in (load_recogniser(ear, device="cpu") for ear in (small_ear, delayed))
    ]
    assert np.allclose(np.array(told[0]) - told[1], 0.1, atol=0.06)  # none begins before its piece
    assert told[1][0][0] >= 1


def test_the_command_writes_text_times_and_rates(run, noise, tmp_path):
    folder = tmp_path / "sounds"
    (folder / "deeper").mkdir(parents=True)
    soundfile.write(folder / "a.flac", resample(noise, 16000, 22050), 22050)
    stereo = np.stack([resample(noise, 16000, 44100)] * 2, axis=1)
    soundfile.write(folder / "deeper" / "b.wav", stereo, 44100)
    soundfile.write(folder / "silent.wav", np.zeros(16000), 16000)
    (folder / "a.txt").write_text("Something else.")
    status, out, errors = run("transcribe", folder, "--timestamps")
    assert status == 0, errors
    assert "silent.wav: (nothing heard)" in out and "word error rate 100.0 % of 2 words" in out
    assert "from s" in out and "score" in out
    status, out, _ = run("transcribe", folder, "--json")
    found = json.loads(out)
    assert [Path(one["file"]).name for one in found["recordings"]] == ["a.flac", "b.wav", "silent.wav"]
    first = found["recordings"][0]
    assert first["seconds"] == 2.5 and first["words"][0]["start"] < first["words"][0]["end"] <= 2.52
    assert first["reference"] == "something else" and first["wer"] >= 1 and found["wer"] >= 1
    assert found["recordings"][2]["words"] == [] and "wer" not in found["recordings"][1]


def test_settings_of_the_recogniser_are_options(run, noise, tmp_path):
    published = GOLDEN / "checkpoint.pt"
    for words, place in ((("--ear", "small"), "ear.yaml"), (("--checkpoint", published), "checkpoint.pt")):
        status, out, errors = run("transcribe", *words, "--set", "dither=0", "--print-hparams")
        assert status == 0, errors
        (line,) = (line for line in out.splitlines() if line.strip().startswith("dither"))
        assert line.strip().startswith("dither: 0.0  # --set dither=0") and place in line


@pytest.fixture
def hear_all(run, tmp_path):
    """What the recordings of a manifest's lines are heard as."""

    def hear(content: str | list) -> dict:
        lines = content if isinstance(content, str) else "\n".join(map(json.dumps, content))
        (tmp_path / "m.json").write_text(lines)
        status, out, errors = run("transcribe", "--manifest", tmp_path / "m.json", "--json")
        assert status == 0, errors
        return json.loads(out)

    return hear


def test_manifests_give_files_and_references(run, noise, tmp_path, hear_all):
    soundfile.write(tmp_path / "it.wav", noise, 16000)
    _, out, _ = run("transcribe", tmp_path / "it.wav", "--json")
    text = json.loads(out)["recordings"][0]["text"]
    entry = {"audio_filepath": "it.wav", "duration": 2.5, "text": f"{text} more"}
    (tmp_path / "sub").mkdir()
    (tmp_path / "wavs").mkdir()
    shutil.copy(tmp_path / "it.wav", tmp_path / "wavs" / "one.wav")  # as LJSpeech has it
    windows = json.dumps({**entry, "audio_filepath": "sub\\..\\it.wav"})
    table = f"audio_filepath,text,duration\nit.wav,{text} more,2.5\n"
    for content in (
        *(f"{json.dumps(entry)}\n\n", json.dumps([entry, entry]), f"\ufeff{json.dumps(entry)}"),
        *(windows, table, f"it.wav|{text} more", f"it.wav {text} more", f"one|raw|{text} more"),
    ):
        found = hear_all(content)
        assert found["wer"] == pytest.approx(1 / (len(text.split()) + 1), abs=1e-4)
        assert json.loads(run("transcribe", tmp_path / "m.json", "--json")[1]) == found


def test_jaspers_manifests_give_the_copy_at_its_own_speed(noise, tmp_path, hear_all):
    (tmp_path / "wavs").mkdir()
    soundfile.write(tmp_path / "wavs" / "it.wav", noise, 16000)
    files = [
        {"fname": "wavs/it-sp0.9.wav", "speed": 0.9},
        {"fname": "wavs/it.wav", "speed": 1, "channels": 1},
    ]
    entry = {"transcript": "some words", "files": files, "original_duration": 2.5}
    found = hear_all([entry, {"transcript": "some words", "files": [{"fname": "wavs/it.wav"}]}])["recordings"]
    assert [one["file"] for one in found] == [str(tmp_path / "wavs" / "it.wav")] * 2
    assert [one["reference"] for one in found] == ["some words"] * 2


def test_offset_and_duration_are_a_piece_of_a_file(run, noise, tmp_path, hear_all):
    soundfile.write(tmp_path / "long.wav", np.concatenate([noise * 0, noise, noise * 0]), 16000)
    soundfile.write(tmp_path / "it.wav", noise, 16000)
    seconds = len(noise) / 16000
    long = {"audio_filepath": "long.wav", "offset": seconds, "duration": seconds, "text": "some words"}
    whole = {"audio_filepath": "it.wav", "duration": seconds + 1, "offset": None}
    rest = {"audio_filepath": "long.wav", "offset": 2 * seconds, "duration": 0}
    piece, alone, silence = hear_all([long, whole, rest])["recordings"]
    assert (piece["text"], piece["words"]) == (alone["text"], alone["words"]) and alone["text"]
    assert (piece["offset"], piece["seconds"], piece["reference"]) == (seconds, seconds, "some words")
    assert "offset" not in alone and silence["text"] == ""
    _, out, _ = run("transcribe", "--manifest", tmp_path / "m.json")
    assert f"long.wav from {seconds:g} s: " in out and "it.wav: " in out


def test_an_expected_text_is_compared_word_by_word(run, noise, tmp_path):
    soundfile.write(tmp_path / "it.wav", noise, 16000)
    _, out, _ = run("transcribe", tmp_path / "it.wav", "--json")
    text = json.loads(out)["recordings"][0]["text"]
    status, out, errors = run("transcribe", tmp_path / "it.wav", "--expect", text)
    assert status == 0 and not errors and "words are there, each once" in out
    status, out, _ = run("transcribe", tmp_path / "it.wav", "--expect", f"Missing word {text}", "--json")
    found = json.loads(out)
    assert status == 1 and not found["as_expected"]
    assert [one["word"] for one in found["left_out"]] == ["missing", "word"]
    assert [one["word"] for one in found["words"]] == text.split()
    status, out, _ = run("transcribe", tmp_path / "it.wav", "--expect", f"{text} unsaid")
    assert status == 1 and "left out: unsaid" in out
    soundfile.write(tmp_path / "silent.wav", np.zeros(16000), 16000)
    status, out, _ = run("transcribe", tmp_path / "silent.wav", "--expect", "It is.")
    assert status == 1 and "left out: it is" in out


@pytest.mark.parametrize(("words", "message"), read_tables(Path(__file__).parent / "cases.txt")["transcribe"])
def test_bad_input_is_a_sentence(run, noise, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    soundfile.write(tmp_path / "it.wav", noise, 16000)
    (tmp_path / "text.wav").write_text("no sound")
    (tmp_path / "nothing.json").write_text("\n")
    (tmp_path / "entry.json").write_text('{"text": "a"}')
    (tmp_path / "latin.json").write_bytes('\n{"text": "é"}'.encode("latin-1"))
    good = {"files": [{"fname": "it.wav", "speed": 1}]}
    (tmp_path / "copies.json").write_text(json.dumps([good, {"files": [{"fname": "it.wav", "speed": 0.9}]}]))
    pieces = ("behind", 9, 1), ("negative", -1, 1), ("huge", 10**400, 1), ("no-number", 0, float("nan"))
    for name, offset, duration in pieces:
        entry = {"audio_filepath": "it.wav", "offset": offset, "duration": duration}
        (tmp_path / f"{name}.json").write_text(json.dumps(entry))
    soundfile.write(tmp_path / "said.wav", noise, 16000)
    (tmp_path / "said.txt").write_bytes("é".encode("latin-1"))
    (tmp_path / "empty").mkdir()
    soundfile.write(tmp_path / "nan.wav", noise * np.nan, 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "slow.wav", noise, 1)
    status, out, errors = run("transcribe", *words.split())
    assert (status, out) == (2, "") and message in errors and errors.startswith("error: ")


def test_files_that_cannot_be_read_are_named_and_the_rest_is_heard(run, noise, tmp_path):
    folder = tmp_path / "sounds"
    (folder / "folder.wav").mkdir(parents=True)
    for name in ("a", "d"):
        soundfile.write(folder / f"{name}.wav", noise, 16000)
    _, text, _ = run("transcribe", folder / "a.wav")
    (folder / "b.wav").write_text("no sound")
    (folder / "c.wav").symlink_to("nothing.wav")
    status, out, errors = run("transcribe", folder)
    assert status == 2 and out == "".join(f"{folder / name}.wav: {text}" for name in ("a", "d"))
    bad, gone = errors.splitlines()
    assert bad.startswith(f"error: {folder / 'b.wav'}: it cannot be read as sound")
    assert gone == f"error: sound file {folder / 'c.wav'} not found"
    status, out, errors = run("transcribe", folder, "--json")
    assert status == 2 and len(errors.splitlines()) == 2
    assert [Path(one["file"]).stem for one in json.loads(out)["recordings"]] == ["a", "d"]
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_text(text)
    status, out, errors = run("check-corpus", folder)
    assert status == 2 and len(errors.splitlines()) == 2 and "0 of 1 recording differ" in out


def test_ears_are_listed_exported_and_damage_is_named(run, small_ear, tmp_path):
    status, out, _ = run("list", "--json")
    found = json.loads(out)
    assert found["ears"] == [{"name": "small", "description": "", "model": "jasper"}]
    assert found["models"]["jasper"] == "recogniser"
    assert {one["part"] for one in found["built"] if one["owner"] == "small"} == {
        *("masked_features", "masked_encoder", "decoder")
    }
    copy = Path(shutil.copytree(small_ear, tmp_path / "copy"))
    (copy / "jasper" / "masked_encoder.onnx").write_bytes(b"none")
    soundfile.write(tmp_path / "it.wav", np.ones(16000) * 0.1, 16000)
    status, _, errors = run("transcribe", tmp_path / "it.wav", "--ear", copy)
    assert status == 2 and "does not load" in errors


def test_an_ear_is_made_of_a_recogniser_only(run, tmp_path):
    published = GOLDEN.parent / "hifigan" / "checkpoint.pt"
    status, _, errors = run("ear", tmp_path / "it", "--checkpoint", published)
    assert status == 2 and "is a hifigan (vocoder): an ear is a recogniser's" in errors
    status, _, errors = run("ear", tmp_path / "it", "--checkpoint", GOLDEN / "checkpoint.pt", "--delay", "2")
    assert status == 2 and "delay must be from 0 to 1 seconds, not 2" in errors
    assert not (tmp_path / "it").exists()


def test_a_recogniser_is_measured(run):
    words = ("--ear", "small", "--seconds", "0.5,1", "--batches", "1,2", "--runs", "3", "--threads", "1")
    status, out, errors = run("benchmark-recogniser", *words, "--json")
    assert status == 0, errors
    rows = json.loads(out)["rows"]
    assert [(row["seconds"], row["batch"]) for row in rows] == [(0.5, 1), (0.5, 2), (1, 1), (1, 2)]
    assert set(rows[0]["stages"]) == {"jasper.masked_features", "jasper.masked_encoder", "jasper.decoder"}
    assert rows[3]["times_real_time"] == pytest.approx(2 / rows[3]["latency"]["p50"])
    status, out, _ = run("benchmark-recogniser", *words)
    assert status == 0 and "x real time" in out and "## jasper" in out
    for more, message in (
        (("--backend", "tpu"), "unknown backend 'tpu'"),
        (("--precision", "int8"), "--precision int8: use fp32 or fp16"),
        (("--seconds", "-1"), "--seconds takes positive numbers with commas, not '-1'"),
        (("--batches", "1.5"), "--batches takes whole positive numbers with commas, not '1.5'"),
        (("--precision", "fp16"), "nothing to measure: fp16 is for trt"),
    ):
        status, out, errors = run("benchmark-recogniser", *words, *more)
        assert (status, out) == (2, "") and message in errors


def test_a_corpus_is_compared_with_its_texts(run, noise, tmp_path):
    (tmp_path / "wavs").mkdir()
    for name, audio in (("right", noise), ("wrong", noise), ("silent", np.zeros(16000, np.float32))):
        soundfile.write(tmp_path / "wavs" / f"{name}.wav", audio, 16000)
    _, out, _ = run("transcribe", tmp_path / "wavs" / "right.wav", "--json")
    text = json.loads(out)["recordings"][0]["text"]
    lines = [f"right|raw|{text.upper()}", f"wrong|raw|unsaid {text}", "", "silent|raw|Never said."]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    status, out, errors = run("check-corpus", tmp_path, "--ear", "small")
    assert status == 1, errors
    assert "2 of 3 recordings differ from their texts" in out and "right.wav" not in out
    assert "wrong.wav" in out and "left out: unsaid (" in out and "left out: never (0.00 s), said" in out
    status, out, _ = run("check-corpus", tmp_path, "--json")
    found = json.loads(out)
    assert [Path(one["file"]).stem for one in found] == ["silent", "wrong", "right"]
    assert found[2]["wer"] == 0 and found[0]["heard"] == "" and found[0]["text"] == "never said"
    (tmp_path / "metadata.csv").write_text(lines[0])
    assert run("check-corpus", tmp_path)[0] == 0
    for content, message in (
        ("right", "line 1: write name|text"),
        ("none|a", "none: its sound file is missing"),
    ):
        (tmp_path / "metadata.csv").write_text(content)
        status, out, errors = run("check-corpus", tmp_path)
        assert (status, out) == (2, "") and message in errors
    (tmp_path / "metadata.csv").unlink()
    assert "has no texts" in run("check-corpus", tmp_path)[2]
    (tmp_path / "wavs" / "right.txt").write_text(text)
    assert run("check-corpus", tmp_path)[0] == 0
    assert "not found" in run("check-corpus", tmp_path / "none")[2]
    status, _, errors = run("check-corpus", tmp_path / "wavs" / "right.wav")
    assert status == 2 and "right.wav is a file: give the corpus's folder, with metadata.csv" in errors
    assert "must be a share from 0 to 1" in run("check-corpus", tmp_path, "--limit", "30")[2]
    for content, message in ((b"\n", "metadata.csv is empty"), (b"it|\xe9\n", "line 1 is not UTF-8")):
        (tmp_path / "metadata.csv").write_bytes(content)
        status, _, errors = run("check-corpus", tmp_path)
        assert status == 2 and message in errors
