"""scripts/buckets.py prints lists that a hparams file takes, and infer.py tells what became of them."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
TEXTS = (
    "Short.\n\nA text of middle length, so to say.\nThis one is the longest of them all, by far and wide.\n"
)


@pytest.fixture
def run(tiny_voice, tmp_path, program, monkeypatch):
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text(TEXTS)
    return lambda script, *arguments: program(ROOT / "scripts" / script, *arguments)


@pytest.mark.slow
def test_the_proposal_is_a_hparams_file_that_speaks(run, tmp_path):
    status, proposal, errors = run("buckets.py", "-i", "texts.txt", "--count", 2)
    assert status == 0, errors
    assert "padding: " in proposal and "3 utterances of " in proposal
    content = yaml.safe_load(proposal)
    assert content["trt_multi_engine"] is True
    texts, mels = content["trt_max_input_seq_len_list"], content["trt_max_output_seq_len_list"]
    assert len(texts) == len(mels) == 2

    (tmp_path / "buckets.yaml").write_text(proposal)
    status, _, errors = run(
        "infer.py", "-i", "texts.txt", "-o", "out", "--hparam", "buckets.yaml", "--timing"
    )
    assert status == 0, errors
    lines = [line.split() for line in errors.splitlines()]
    assert ["stage", "bucket", "calls", "waste", "%", "misses", "loaded"] in lines
    shown = {(line[0], line[1]): line[2:] for line in lines if len(line) == 6}
    for bucket in (f"{text}x{mel}" for text, mel in zip(texts, mels, strict=True)):
        for stage in ("fastpitch.encoder", "fastpitch.decoder"):
            calls, _, misses, loaded = shown[stage, bucket]
            assert calls in "12" and (misses, loaded) == ("0", "yes")
    assert ("hifigan.masked_generator", str(mels[-1])) in shown


def test_json_of_both_commands(run):
    found = json.loads(run("buckets.py", "-i", "texts.txt", "--json")[1])
    assert found["utterances"] == 3 and found["waste"] == 0  # three lengths, a bucket for each
    assert found["single_bucket"]["waste"] > 0.3
    texts, mels = found["trt_max_input_seq_len_list"], found["trt_max_output_seq_len_list"]
    keys = {
        "trt_multi_engine": "true",
        "trt_max_input_seq_len_list": texts,
        "trt_max_output_seq_len_list": mels,
    }
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    _, spoken, _ = run("infer.py", "--text", "Short.", "--json", *settings)
    rows = json.loads(spoken)["buckets"]
    used = {(row["stage"], row["bucket"]) for row in rows if row["loaded"]}
    assert ("fastpitch.decoder", f"{texts[0]}x{mels[0]}") in used
    assert {"calls", "steps", "valid", "waste", "misses", "loads", "masked"} <= set(rows[0])


def test_a_file_without_texts_is_named(run, tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    status, _, errors = run("buckets.py", "-i", "empty.txt")
    assert status == 2 and errors == "error: empty.txt holds no text to speak\n"
