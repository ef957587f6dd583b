"""A corpus of what is read aloud: its texts, a voice as reader, and what is refused at once."""

import random
import re
import sys
import zlib

import numpy as np
import pytest

from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.training.corpus.dataset import HOP, CorpusAudio, load_labels
from recipes.corpus import one_line_a_sentence, read_transcripts
from recipes.hazel import prepare
from recipes.hazel.texts import CONVERSATION, extra_sentences, fill


def test_transcripts_are_read_in_ljspeechs_formats(tmp_path):
    (tmp_path / "metadata.csv").write_text('LJ1|"Dr." 2|"Doctor" two\n', encoding="utf-8")
    lines = read_transcripts(tmp_path / "metadata.csv")
    assert [(line.name, line.text) for line in lines] == [("LJ1", '"Doctor" two')]
    (tmp_path / "list.txt").write_text("wavs/LJ1.wav|One. Two!\n", encoding="utf-8")
    lines = read_transcripts(tmp_path / "list.txt")
    assert [line.name for line in one_line_a_sentence(lines)] == ["LJ1", "LJ1-b"]
    (tmp_path / "list.txt").write_text("no separator, but a comma\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"list\.txt, line 1: write name\|text"):
        read_transcripts(tmp_path / "list.txt")


def test_extra_sentences_are_the_same_every_time_and_hold_no_digits():
    transcripts = [f"The committee number {w} met in the old hall of the town." for w in "abcdefgh"]
    dictionary = ["apple", "berry", "cedar", "dahlia", "elder", "fir", "gorse"]
    first = extra_sentences(transcripts, dictionary)
    assert first == extra_sentences(transcripts, dictionary)
    assert not any(c.isdigit() for line in first for c in line)
    assert any(line.endswith("?") for line in first)
    spoken = first[-sum(count for count, _ in CONVERSATION.values()) :]
    assert len(set(spoken)) == len(spoken)
    assert not any(re.search(r"[{}|]|^[a-z]|^\W[a-z]", line) for line in spoken)
    assert sum(len(line.split()) <= 4 for line in spoken) > 1000


def test_slots_of_a_template_get_different_words_but_for_those_that_repeat():
    for seed in range(20):
        first, second, third = fill("{color}, {same}, {color}", random.Random(seed)).lower().split(", ")
        assert first == second != third


@pytest.mark.align
def test_a_voice_reads_a_corpus_whose_labels_are_its_own(tiny_voice, tmp_path):
    texts, corpus = tmp_path / "texts.txt", tmp_path / "corpus"
    texts.write_text("one|Is it late? It is.\ntwo|Hello there.\nnone|...\n", encoding="utf-8")
    command = ["--corpus", str(corpus), "--transcripts", str(texts), "--workers", "1"]
    prepare.main([*command, "--voice", str(tiny_voice)])
    labels = load_labels(corpus)
    assert sorted(labels.names) == ["one", "one-b", "two"]
    assert (corpus / "failed.txt").read_text(encoding="utf-8").startswith("none|")
    sound = CorpusAudio(corpus, labels, HOP)
    audio, offsets = sound.read_all(), sound.offsets
    tts = TextToSpeech.load("fastpitch", "hifigan", voice=tiny_voice, device="cpu")
    row = labels.names.index("two")
    spoken = tts.acoustic.synthesise([labels.ids[row]])
    assert labels.durations[row].tolist() == spoken.durations[0].tolist()
    samples = tts.speak("Hello there.", Controls(seed=zlib.crc32(b"two"))).samples
    read = audio[offsets[row] : offsets[row + 1]] / 32768
    inside = slice(HOP, len(read) - HOP)  # what is spoken is faded at its ends
    np.testing.assert_allclose(read[inside], samples[inside], atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--voice", "hazel", "--sources"), "--sources are the teacher's"),
        (("--voice", "nobody"), "unknown voice 'nobody'"),
    ],
)
def test_what_a_voice_cannot_read_is_said_before_anything_is_written(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("one|Hello there.\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        prepare.main(["--corpus", "corpus", "--transcripts", "texts.txt", *options])
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("voice", [(), ("--voice", "hazel")])
def test_a_package_that_is_missing_is_named_before_anything_is_written(voice, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyworld", None)
    (tmp_path / "texts.txt").write_text("one|Hello there.\n", encoding="utf-8")
    command = ["--corpus", str(tmp_path / "corpus"), "--transcripts", str(tmp_path / "texts.txt"), *voice]
    with pytest.raises(InputError, match=r"needs pyworld: pip install -e '\.\[train\]'"):
        prepare.main(command)
    assert not (tmp_path / "corpus").exists()
