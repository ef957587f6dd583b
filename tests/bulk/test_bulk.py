"""Tables of texts in shards: spoken as `speak` speaks them, and the same however often a run is killed."""

import csv
import importlib
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import wave
from pathlib import Path

import pytest

from melforge.common.audio.sound_files import encode_audio
from melforge.common.bulk.feed import MOST_FAILURES, WorkerLost, feed
from melforge.common.bulk.folder import RunFolder
from melforge.common.bulk.local import _work as work
from melforge.common.bulk.run import RunProgress, duration
from melforge.common.bulk.shards import (
    LONG_TEXT,
    PARQUET_FILE,
    BulkSettings,
    Shard,
    ShardReport,
    cut_shards,
    seed_of,
)
from melforge.common.bulk.texts import Table, TableText
from melforge.common.cli.speak import main
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.places import WorkerPlace
from melforge.common.weights.voices import load_voice, rewrite_weights
from tests.tables import read_tables

ROOT = Path(__file__).parents[2]
TEXTS = [f"Sentence number {number}{' and so on' * (number % 4)}." for number in range(14)]


def write_table(path: Path, texts=TEXTS) -> Path:
    if path.suffix == ".txt":
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    elif path.suffix == ".jsonl":
        rows = [json.dumps({"id": f"s{i}", "text": text}) for i, text in enumerate(texts)]
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    else:
        rows = [("n", "id", "text"), *((i, f"s{i}", text) for i, text in enumerate(texts))]
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    return path


def words_of(tiny_voice, table: Path, folder: Path, *more: object) -> list[str]:
    words = ("-i", table, "-o", folder, "--voice", tiny_voice, "--device", "cpu", "--shard-size", 4, *more)
    return [str(word) for word in words]


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sounds_of(folder: Path) -> dict[str, bytes]:
    """By id: which shard a sound is in is left out."""
    return {path.stem: path.read_bytes() for path in folder.glob("*/*.wav")}


# Reading


@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl"])
def test_every_table_gives_its_texts(suffix, tmp_path):
    table = Table(write_table(tmp_path / f"in.{suffix}", ["One.", 'A "quoted", one.', "日本"]))
    ids = ["1", "2", "3"] if suffix == "txt" else ["s0", "s1", "s2"]
    assert list(table) == [
        TableText(*row) for row in zip(ids, ["One.", 'A "quoted", one.', "日本"], strict=True)
    ]
    assert table.scan() == 3


def test_comments_of_a_text_file_are_no_texts(tmp_path):
    (tmp_path / "in.txt").write_text("# A phrase a line\n\nOne.\n#\n#5 is alive.\n")
    assert list(Table(tmp_path / "in.txt")) == [TableText("3", "One."), TableText("5", "#5 is alive.")]


def test_columns_may_have_any_name_and_cells_several_lines(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(b'\xef\xbb\xbfkey,sentence\r\na.wav,"One\r\nline."\r\n\r\nb,\r\n')
    assert list(Table(path, "sentence", "key")) == [TableText("a", "One\nline."), TableText("b", "")]
    (tmp_path / "in.tsv").write_text('sentence\tn\n"Quoted" here.\t1\n')
    assert list(Table(tmp_path / "in.tsv", "sentence")) == [TableText("1", '"Quoted" here.')]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", "id,words\n1,Hello\n", "has no column 'text' (it has: id, words): give --text-column"),
        ("in.csv", "id,text\n1\n", "line 2 has 1 columns, and the first line 2"),
        (
            "in.csv",
            "id,text\na,Hello there, my friend.\n",
            "has 3 columns, and the first line 2: a text with commas",
        ),
        ("in.tsv", "text\nOne\tTwo\n", "line 2 has 2 columns, and the first line 1: a text has no tabs"),
        ("in.csv", 'text\n"open\n', "line 2: unexpected end of data"),
        ("in.csv", "id,text\n\u00e9,One\nE\u0301,Two\n", "the id 'E\u0301' stands there twice"),
        ("in.csv", "id,text\n../a,One\n", "line 2: '../a' cannot be the name of a file"),
        ("in.csv", "id,text\n", "holds no text to speak"),
        ("in.csv", "", "has no column 'text' (it has: none)"),
        ("in.jsonl", '{"text": "One"}\nTwo\n', "line 2 is no JSON"),
        ("in.jsonl", "[" * 100_000, "line 1 is no JSON"),
        ("in.jsonl", '["One"]\n', 'line 1 is no JSON object, as {"text": ...} is'),
        ("in.jsonl", '{"text": 5}\n', "line 1: text must be text, not 5"),
        ("in.jsonl", '{"text": "One", "id": 1.5}\n', "id must be text or a whole number, not 1.5"),
        ("in.jsonl", '{"words": "One"}\n', "line 1 has no column 'text' (it has: words)"),
        ("in.txt", b"One\n\xff\n", "line 2 is not UTF-8 (byte 0xff)"),
        ("in.jsonl", '{"id": "a", "text": "Half \\ud800."}\n', "line 1: U+D800 is half of a character"),
        ("in.jsonl", '{"id": "\\udc00", "text": "Half."}\n', "line 1: U+DC00 is half of a character"),
        ("in.csv", f"id,text\n{'x' * 260},One\n", "cannot be the name of a file: it has 260 bytes, and 240"),
        ("in.txt", "a" * 1_000_001, "the text '1' has 1,000,001 characters, and 1,000,000 is the most"),
        (
            "in.csv",
            "id,text\na,\nc/d,One\na,Two\n../e,Three\nf,Good\n",
            "'c/d' cannot be the name of a file; ",
        ),
        (
            "in.csv",
            "id,text\nc/d,One\na,Two\na,Three\n",
            "twice (2 rows of 3 are bad: mend them, or give --skip",
        ),
        ("in.csv", "id,text\n" + ",x\n" * 25, "; and 5 more (25 rows of 25 are bad"),
        ("in.xlsx", "One\n", "does not name a table of texts; use one of .txt, .csv"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        Table(path).scan()
    assert message in str(error.value)


def test_without_pyarrow_a_sentence_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"parquet needs pyarrow: pip install -e '.\[parquet\]'"):
        Table(tmp_path / "in.parquet").scan()


# Speaking


def test_a_table_is_spoken_as_speak_speaks_it(tiny_voice, tmp_path, capsys):
    tts = TextToSpeech.load(voice=tiny_voice, device="cpu", threads=1)
    folder = tmp_path / "out"
    table = write_table(tmp_path / "in.csv", [*TEXTS, "", "..."])
    more = ("--workers", 1, "--price", 2, "--progress", tmp_path / "progress.json")
    assert main(words_of(tiny_voice, table, folder, *more)) == 2
    said = capsys.readouterr()
    assert f"{folder}: 14 of 16 texts" in said.out
    rate, price = re.search(r"([\d.]+) x real time, ([\d.e-]+) an hour of speech\)", said.out).groups()
    assert float(price) == pytest.approx(2 / float(rate), rel=0.05)
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["texts"], progress["texts_done"], progress["texts_not_spoken"]) == (16, 16, 2)
    assert f"2 of 16 texts were not spoken: {folder}/not-spoken.csv" in said.err
    assert "16 of 16 texts, " in said.err and " for all of it\n" in said.err
    assert sounds_of(folder) == {
        f"s{i}": encode_audio(tts.speak(text).samples, tts.sampling_rate) for i, text in enumerate(TEXTS)
    }
    rows = list(csv.DictReader((folder / "manifest.csv").open()))
    assert [row["id"] for row in rows] == [f"s{i}" for i in range(len(TEXTS))]
    for row in rows:
        with wave.open(str(folder / row["file"])) as sound:
            assert float(row["seconds"]) == pytest.approx(sound.getnframes() / 22050, abs=1e-6)
    failed = list(csv.reader((folder / "not-spoken.csv").open()))
    assert failed[1] == ["s14", "no audio made: the text is empty"]
    assert failed[2][0] == "s15" and "can be spoken" in failed[2][1]


def test_bad_rows_are_listed_where_they_are_to_be_skipped(tiny_voice, tmp_path):
    path, folder = tmp_path / "in.csv", tmp_path / "out"
    path.write_text("id,text\na,One.\nc/d,Two.\na,Three.\ne,Four.\n")
    assert main(words_of(tiny_voice, path, folder, "--workers", 1, "--skip-bad")) == 2
    assert set(sounds_of(folder)) == {"a", "e"}
    rows = list(csv.reader((folder / "not-spoken.csv").open()))
    assert [row[0] for row in rows] == ["id", "row 2", "row 3"]
    assert "cannot be the name of a file" in rows[1][1] and "stands there twice" in rows[2][1]


@pytest.mark.parametrize("format", ["flac", "parquet"])
def test_a_long_text_is_spoken_in_pieces_to_the_same_samples(format, tiny_voice, tmp_path):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    text = " ".join(f"Sentence number {number}." for number in range(LONG_TEXT + 1))
    table, folder = write_table(tmp_path / "in.txt", [text]), tmp_path / "out"
    assert main(words_of(tiny_voice, table, folder, "--format", format, "--workers", 1)) == 0
    if format == "parquet":
        (row,) = (
            importlib.import_module("pyarrow.parquet")
            .read_table(folder / "000000" / PARQUET_FILE)
            .to_pylist()
        )
        found = row["audio"]["bytes"]
    else:
        found = (folder / "000000" / "1.flac").read_bytes()
    tts = TextToSpeech.load(voice=tiny_voice, device="cpu", threads=1)
    whole = tts.speak(text, Controls(seed=seed_of(0, "1")))
    assert found == encode_audio(whole.samples, whole.sampling_rate, "flac")
    assert len(list((folder / "000000").iterdir())) == 2, "nothing is left beside the sound and its list"


def test_parts_of_a_table_make_the_whole(tiny_voice, tmp_path, capsys):
    table, whole, parts = write_table(tmp_path / "in.csv"), tmp_path / "whole", tmp_path / "parts"
    progress = tmp_path / "progress.prom"
    assert main(words_of(tiny_voice, table, whole, "--workers", 1)) == 0
    for part in ("2/3", "1/3"):
        more = ("--workers", 1, "--shards", part, "--progress", progress)
        assert main(words_of(tiny_voice, table, parts, *more)) == 0
        assert not (parts / "manifest.csv").exists()
    assert "part 1/3 is there, " in capsys.readouterr().out
    assert "melforge_run_texts_done 6\n" in progress.read_text()
    half = parts / ".000002.00ff.tmp"  # another part's, which is at work
    half.mkdir()
    assert main(words_of(tiny_voice, table, parts, "--workers", 1, "--shards", "1/3")) == 0
    assert half.is_dir()
    assert main(words_of(tiny_voice, table, parts, "--workers", 1, "--shards", "3/3")) == 0
    assert content_of(parts) == content_of(whole)


def test_a_run_knows_its_weights_lexicons_and_version(tiny_voice, tmp_path):
    voice = tmp_path / "voice"
    shutil.copytree(tiny_voice, voice)
    (voice / "lexicon.yaml").write_text("SQL: sequel")
    table, folder = write_table(tmp_path / "in.csv"), tmp_path / "out"
    assert main(words_of(voice, table, folder, "--workers", 1)) == 0
    shutil.rmtree(folder / "000001")
    (voice / "lexicon.yaml").write_text("SQL: squeal")
    with pytest.raises(InputError, match=r"another run \(models.acoustic.lexicon 1: "):
        main(words_of(voice, table, folder, "--workers", 1))
    (voice / "lexicon.yaml").write_text("SQL: sequel")
    before = (folder / "run.json").read_text()
    (folder / "run.json").write_text(re.sub('"melforge": "[^"]+"', '"melforge": "0.1"', before))
    with pytest.raises(InputError, match=r"another run \(models.melforge: "):
        main(words_of(voice, table, folder, "--workers", 1))
    (folder / "run.json").write_text(before)
    weights = load_voice(voice).source("hifigan").weights
    rewrite_weights(weights, weights, lambda state: {name: value * 0.5 for name, value in state.items()})
    with pytest.raises(InputError, match=r"another run \(models.vocoder.weights: "):
        main(words_of(voice, table, folder, "--workers", 1))


@pytest.mark.parametrize("format", ["wav", "flac"])
def test_where_there_is_no_room_the_run_says_where_and_how_it_goes_on(format, tiny_voice, tmp_path):
    table = write_table(tmp_path / "in.csv")
    words = words_of(tiny_voice, table, tmp_path / "out", "--workers", 1, "--format", format)
    command = shlex.join([sys.executable, "-m", "melforge", "speak", *words])
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    limited = ["bash", "-c", f"ulimit -f 4; exec {command}"]  # KiB of a file
    ended = subprocess.run(limited, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert (
        f"cannot write {tmp_path}/out/000000: " in ended.stderr and "the same command goes on" in ended.stderr
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


def test_shards_and_workers_that_are_killed_change_no_sample(tiny_voice, tmp_path, monkeypatch, capfd):
    table = write_table(tmp_path / "in.jsonl")
    assert main(words_of(tiny_voice, table, tmp_path / "one", "--workers", 1)) == 0
    killed = []

    def feed_and_kill(*given):
        reports = feed(*given)
        yield next(reports)
        killed.extend(multiprocessing.active_children())  # one of them at least is at a shard
        for process in killed:
            process.kill()
        yield from reports

    monkeypatch.setattr("melforge.common.bulk.local.feed", feed_and_kill)
    more = ("--shard-size", 2, "--device", "cpu,cpu")
    assert main(words_of(tiny_voice, table, tmp_path / "other", *more)) == 0
    assert "2 workers on cpu\n" in capfd.readouterr().err and len(killed) == 2
    assert sounds_of(tmp_path / "one") == sounds_of(tmp_path / "other")
    assert len(sounds_of(tmp_path / "one")) == len(TEXTS)


@pytest.mark.slow
def test_what_a_failing_worker_had_another_speaks(tiny_voice, tmp_path):
    words = words_of(tiny_voice, write_table(tmp_path / "in.jsonl"), tmp_path / "out", "--device", "cpu,cpu")
    command = [sys.executable, "-m", "tests.bulk.failing", "speak", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FAILS": str(tmp_path / "failed")}
    ended = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 0 and len(sounds_of(tmp_path / "out")) == len(TEXTS)
    assert "a worker on cpu failed: an illegal memory access was encountered" in ended.stderr


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tiny_voice, tmp_path):
    table = write_table(tmp_path / "in.txt", TEXTS * 4)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main(words_of(tiny_voice, table, whole, "--format", "flac", "--workers", 1)) == 0
    words = words_of(tiny_voice, table, killed, "--format", "flac", "--workers", 2)
    command = [sys.executable, "-m", "melforge", "speak", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for shards in (2, 5):
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        while len(list(killed.glob("0*"))) < shards:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    (killed / ".000013.00ff.tmp").mkdir(exist_ok=True)  # as a worker leaves that is killed
    first = (killed / "000000" / "1.flac").stat().st_mtime_ns
    assert main(words) == 0
    assert content_of(killed) == content_of(whole)
    assert (killed / "000000" / "1.flac").stat().st_mtime_ns == first, "what was finished is not made again"


def test_ctrl_c_says_what_is_there(tiny_voice, tmp_path, monkeypatch, capfd):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("melforge.common.bulk.run.RunProgress.add", stopped)
    words = words_of(tiny_voice, write_table(tmp_path / "in.jsonl"), tmp_path / "out", "--workers", 1)
    with pytest.raises(KeyboardInterrupt):
        main(words)
    assert re.search(r"\n1 of \d+ shards in .*out: the same command goes on\n", f"\n{capfd.readouterr().err}")


@pytest.mark.slow
def test_a_worker_whose_run_has_gone_ends_without_a_word(tiny_voice, tmp_path, capfd):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    ours.close()
    speech = BulkSettings({"voice": tiny_voice, "threads": 1})
    given = (speech, RunFolder(tmp_path), WorkerPlace("cpu"), theirs)
    worker = context.Process(target=work, args=given)
    worker.start()
    worker.join()
    assert worker.exitcode == 0 and not capfd.readouterr().err


def test_a_text_has_a_seed_of_its_own():
    seeds = {seed_of(seed, name) for seed in (0, 1) for name in ("1", "2", "s1")}
    assert len(seeds) == 6 and all(0 <= seed < 1 << 63 for seed in seeds)
    assert seed_of(0, "1") == 3342184578159923290


def test_what_fails_while_it_is_spoken_is_listed(tiny_voice, tmp_path, monkeypatch):
    speak_each = TextToSpeech.speak_each

    def failing(self, texts, *how, **more):
        if any("number 5" in text.text for text in texts):
            raise ValueError("such is life")
        return speak_each(self, texts, *how, **more)

    monkeypatch.setattr(TextToSpeech, "speak_each", failing)
    table = write_table(tmp_path / "in.txt")
    assert main(words_of(tiny_voice, table, tmp_path / "out", "--format", "wav", "--workers", 1)) == 2
    assert len(sounds_of(tmp_path / "out")) == len(TEXTS) - 1
    assert (tmp_path / "out" / "not-spoken.csv").read_text() == "id,reason\n6,such is life\n"


def test_a_strict_run_lists_symbols_that_cannot_be_spoken(tiny_voice, tmp_path):
    table = write_table(tmp_path / "in.txt", ["One \ue000 two.", "Two."])
    for name, more, status in (("warned", (), 0), ("strict", ("--strict",), 2)):
        words = words_of(tiny_voice, table, tmp_path / name, "--format", "wav", "--workers", 1, *more)
        assert main(words) == status
    rows = list(csv.DictReader((tmp_path / "warned" / "manifest.csv").open()))
    assert "cannot be spoken" in rows[0]["warnings"] and not rows[1]["warnings"]
    assert "cannot be spoken" in (tmp_path / "strict" / "not-spoken.csv").read_text()


# What users get wrong


@pytest.mark.parametrize(("words", "message"), read_tables(Path(__file__).parent / "cases.txt")["mistakes"])
def test_mistakes_are_sentences(words, message, tiny_voice, tmp_path):
    table = write_table(tmp_path / "in.csv")
    with pytest.raises(InputError) as error:
        main([*words_of(tiny_voice, table, tmp_path / "out", "--workers", 1), *words.split()])
    assert message in str(error.value)


@pytest.mark.parametrize(
    "words", [("--text", "Hi.", "-o", "s3://b/a.wav"), ("-i", "s3://b/in.txt", "-o", "a")]
)
def test_phrases_and_their_sounds_are_files_here(words):
    with pytest.raises(InputError, match=r"-[io] s3:.*: only tables are read and written there"):
        main(words)


def test_a_folder_of_another_run_is_refused(tiny_voice, tmp_path):
    table, folder = write_table(tmp_path / "in.csv", TEXTS[:2]), tmp_path / "out"
    words = words_of(tiny_voice, table, folder, "--workers", 1)
    with pytest.raises(InputError, match="'sigma' would change nothing"):
        main([*words, "--sigma", "0.5"])
    with pytest.raises(InputError, match=r"another run \(controls.sigma: 0.5, not null\)"):
        main([*words, "--shards", "1/2"])  # the other part may be speaking its first shard
    assert main(words) == 0, "where nothing was spoken there is no run"
    with pytest.raises(InputError, match=r"holds another run \(controls.seed: 0, not 3\): give another"):
        main([*words, "--seed", "3"])
    with pytest.raises(InputError, match=r"another run \(shard_size: 4, not 5\)"):
        main([*words, "--shard-size", "5"])
    write_table(table, TEXTS[:3])
    with pytest.raises(InputError, match=r"another run \(table.sha256: "):
        main(words)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("Dear")
    with pytest.raises(InputError, match="is not empty, and holds no run that could go on"):
        main(words_of(tiny_voice, table, tmp_path / "full"))


# Workers and progress


def shards():
    return cut_shards([TableText(str(i), "Text.") for i in range(8)], 1)


class Fakes:
    """Workers that answer at once, or are lost at these shards."""

    def __init__(self, losing=(), room=100):
        self.losing, self.room, self.begun, self.ended = list(losing), room, 0, False
        self.answers: list = []

    def begin(self):
        self.begun += 1
        if self.begun <= self.room:
            self.answers.append((self.begun, None))
        return self.begun

    def give(self, worker, shard):
        if shard.number in self.losing:
            self.losing.remove(shard.number)
            self.answers.append((worker, WorkerLost("it was killed")))
        else:
            self.answers.append((worker, ShardReport(shard.number, 1, 0, 1.0)))

    def wait(self):
        return self.answers.pop(0)

    def end(self):
        self.ended = True


def test_a_lost_worker_is_replaced_and_its_shard_spoken():
    crew = Fakes(losing=[2, 2, 5])
    assert sorted(report.number for report in feed(crew, 3, shards())) == list(range(8))
    assert crew.ended and crew.begun == 6
    # The last shard's worker is lost while others have nothing to do: one of them takes it.
    crew = Fakes(losing=[7])
    crew.answers.append((0, WorkerLost("an idle one")))
    assert sorted(report.number for report in feed(crew, 3, shards())) == list(range(8))
    assert list(feed(Fakes(), 3, [])) == []
    assert list(feed(few := Fakes(), 3, [Shard(0, ())])) and few.begun == 1


def test_workers_for_which_there_is_no_room_are_not_waited_for():
    crew = Fakes(losing=[5], room=2)
    assert sorted(report.number for report in feed(crew, 4, shards())) == list(range(8))
    assert crew.ended


def test_workers_that_are_lost_again_and_again_end_the_run():
    crew = Fakes(losing=[2] * MOST_FAILURES)
    with pytest.raises(InputError, match=r"lost 3 times, at last because it was killed: .* --workers"):
        list(feed(crew, 1, shards()))
    assert crew.ended


def test_progress_says_how_long_and_for_how_much():
    progress = RunProgress(texts=1000, shards=10, left=4, shard_size=100, price=6.0)
    progress._done, progress.seconds = 100, 600.0
    assert progress.line(took=60.0) == (
        "100 of 400 texts, 1.7 a second, 10.0 x real time, 3 min 0 s left, 0.40 for all of it"
    )
    assert [duration(seconds) for seconds in (5.4, 65, 7300)] == ["5 s", "1 min 5 s", "2 h 1 min"]
