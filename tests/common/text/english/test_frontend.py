"""The frontend of the shipped voice: pronunciations, homographs, utterances."""

import random
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from melforge.common.text.english.homographs.network import ReadingNetwork, Vocabulary
from melforge.common.text.english.letters import LetterReader
from melforge.common.text.english.pronounce import of_word, read
from melforge.common.text.frontends import get_frontend
from melforge.common.text.split import CLAUSE_PAUSE, PARAGRAPH_PAUSE, SENTENCE_PAUSE
from recipes.misaki import from_misaki, to_misaki
from tests.tables import read_tables

ROOT = Path(__file__).parents[4]
FRONTEND = get_frontend("english")
CASES = read_tables(Path(__file__).parent / "cases.txt")


def phones(word: str, text: str) -> str:
    """How a word is said in a sentence; the first time it comes."""
    tokens = text.replace(",", " ,").replace(".", " .").replace("?", " ?").split()
    index = next(i for i, token in enumerate(tokens) if token.lower() == word.lower())
    return " ".join(read(tokens)[index])


@pytest.mark.parametrize("word, said", CASES["words"])
def test_words(word, said):
    assert " ".join(of_word(word)) == said


@pytest.mark.parametrize("word, text, said", CASES["words in context"])
def test_words_in_context(word, text, said):
    assert phones(word, text) == said


@pytest.mark.parametrize(
    "word, one, said_one, other, said_other", CASES["both readings"], ids=lambda value: value[:16]
)
def test_homographs_in_both_readings(word, one, said_one, other, said_other):
    assert phones(word, one) == said_one
    assert phones(word, other) == said_other


@pytest.mark.parametrize(
    "text, said",
    [
        ("résumé", "R EH1 Z AH0 M EY2"),
        ("Crème brûlée", "K R EH1 M B R UW0 L EY1"),
        ("rose", "R OW1 Z"),
        ("Comté", "K AA2 M T EY1"),
    ],
)
def test_accents_tell_how_a_word_is_said(text, said):
    symbols = FRONTEND(text).utterances[0].symbols[:-1]
    assert " ".join(symbol[1:] for symbol in symbols if symbol != " ") == said


def test_an_utterance_is_phones_between_a_space_and_a_mark():
    (utterance,) = FRONTEND("Hello, world").utterances
    assert utterance.symbols == (
        *(" ", "@HH", "@AH0", "@L", "@OW1", ",", " ", "@W", "@ER1", "@L", "@D", "."),
    )
    assert [FRONTEND.symbols[i] for i in utterance.ids] == list(utterance.symbols)
    assert utterance.ids.dtype == np.int64
    assert (utterance.text, utterance.normalised, utterance.pause) == ("Hello, world", "Hello, world", 0.0)


@pytest.mark.parametrize(
    "text, end",
    [
        ("Well", "."),
        ("Well?!", "?"),
        ("Well...", "."),
        ("Well;", ";"),
        ("Well -", "."),
        ('"Well!"', "!"),
        ("(Well)", ","),
    ],
)
def test_marks_at_the_end(text, end):
    assert FRONTEND(text).utterances[0].symbols[-1] == end


def test_texts_share_their_symbols():
    one, other = (FRONTEND("A sentence, said twice.").utterances[0].symbols for _ in range(2))
    assert {*map(id, one)} == {*map(id, other)}


def test_no_letter_is_ever_a_symbol():
    text = (ROOT / "tests" / "data" / "normalised.tsv").read_text(encoding="utf-8")
    allowed = {symbol for symbol in FRONTEND.symbols if symbol.startswith("@")} | set(" .,;:?!-")
    for utterance in FRONTEND(text).utterances:
        assert set(utterance.symbols) <= allowed
        assert utterance.symbols[0] == " " and utterance.symbols[-1] in ".?!,;:"
        assert len(utterance.symbols) <= FRONTEND.max_symbols


def test_nothing_to_say_makes_no_utterance():
    for text in ("", "   \n", "...", "—", "()", "***"):
        assert FRONTEND(text).utterances == ()


def test_pauses_between_sentences_paragraphs_and_clauses():
    analysis = FRONTEND("One here. Two there.\n\nThree now.")
    assert [u.pause for u in analysis.utterances] == [SENTENCE_PAUSE, PARAGRAPH_PAUSE, 0.0]
    frontend = get_frontend("english", max_symbols=40)
    utterances = frontend(
        "This sentence has a first clause, it has a second clause, and then it ends."
    ).utterances
    assert [u.pause for u in utterances] == [CLAUSE_PAUSE] * (len(utterances) - 1) + [0.0]
    assert all(u.symbols[-1] == "," for u in utterances[:-1])


def test_parts_of_a_long_sentence_hold_its_whole_text():
    text = "The quick brown fox, which had slept all day, jumped over 1,234 lazy dogs and " * 6
    frontend = get_frontend("english", max_symbols=60)
    utterances = frontend(text.strip()).utterances
    assert "".join(u.text for u in utterances).replace(" ", "") == text.replace(" ", "")
    whole = [s for u in get_frontend("english", max_symbols=5000)(text).utterances for s in u.symbols]
    parts = [s for u in utterances for s in u.symbols]
    assert [s for s in parts if s[0] == "@"] == [s for s in whole if s[0] == "@"]


def test_too_small_a_limit_is_refused():
    with pytest.raises(ValueError, match="at least 8, not 3"):
        get_frontend("english", max_symbols=3)


def test_phonemes_in_braces_are_said_as_given():
    (utterance,) = FRONTEND("Say {T AH0 M AA1 T OW2} now.").utterances
    assert "@T @AH0 @M @AA1 @T @OW2" in " ".join(utterance.symbols)


def test_every_phone_has_a_misaki_form_and_letters_have_none():
    for symbol in FRONTEND.symbols:
        if symbol in string.ascii_letters:
            with pytest.raises(ValueError, match="letters must be phones"):
                to_misaki([symbol])
        elif symbol.startswith("@"):
            assert from_misaki(to_misaki([symbol]))[0].rstrip("012") == symbol[1:].rstrip("012")
    assert (
        to_misaki([" ", "@HH", "@AH0", "@L", "@OW1", "-", "@W", "@ER1", "@L", "@D", "."]) == " həlˈO—wˈɜɹld."
    )
    assert from_misaki("sˈɜɹtn̩ ˈɛləfənt") == ["S", "ER1", "T", "N", "EH1", "L", "AH0", "F", "AH0", "N", "T"]


def test_the_letter_reader_is_the_network_that_was_trained(tmp_path):
    """The chunks that it finds are at least as likely, to the network, as those found one by one."""
    from recipes.english import train_g2p as recipe

    torch.manual_seed(1)
    chunks = [(), *((phone,) for phone in ("AH0", "EY1", "B", "K"))]
    network = recipe.LetterNetwork(len(chunks)).eval()
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.2)
    recipe.save(network, chunks, tmp_path / "letters.onnx")
    reader = LetterReader(tmp_path / "letters.onnx")
    for word in ("blimpish", "a", "o'thistle"):
        symbols = torch.tensor([recipe.encode(word, recipe.NAMES)])
        found = reader.paths(symbols[0, 1:-1].tolist(), is_name=True)[0]
        greedy = [0] * len(word)
        with torch.no_grad():
            for at in range(len(word)):
                greedy[at] = int(network(symbols, torch.tensor([greedy]))[0, at].argmax())
            scores = [
                float(network(symbols, torch.tensor([path]))[0].log_softmax(1)[range(len(word)), path].sum())
                for path in (found, greedy)
            ]
        assert scores[0] > scores[1] - 0.05
        (told,) = reader._graph.run(["scores"], {"symbols": symbols[0].numpy()})
        assert told[0] == pytest.approx(scores[0], rel=0.02)


def test_no_stem_is_learnt_that_is_held_out():
    from recipes.english import train_g2p as recipe

    assert recipe.stem("rewalked") == recipe.stem("walk's") == recipe.stem("walkers") == "walk"
    names = (("walk", "talk"), ("stroll", "saunter"), ("ambler", "walker"))
    every = [{name + ending: [] for name in some for ending in ("", "s", "ing")} for some in names]
    held = recipe.hold_out(every, (2, 1, 1), np.random.default_rng(0))
    assert list(map(len, held)) == [2, 1, 1]
    stems = {recipe.stem(word) for words in held for word in words}
    assert not stems & {recipe.stem(word) for words in every for word in words}


def test_homographs_are_read_by_the_network_that_was_trained(tmp_path):
    """But for the rounding to bytes: its scores decide where they are not near nought."""
    from recipes.english import train_homographs as recipe

    torch.manual_seed(3)
    words, homographs = ["the", "wall", "they", "of", "."], ["read", "record"]
    vocabulary = Vocabulary(words, recipe.TAILS)
    network = recipe.Network(vocabulary.size, homographs).eval()
    nn.init.normal_(network.own)
    recipe.save(network, homographs, words, tmp_path / "network.safetensors")
    reader = ReadingNetwork(tmp_path / "network.safetensors")
    sentence = ["They", "never", "record", "the", "wall-", "clocks", "of", "London", ",", "said", "read", "."]
    for index, word in ((2, "record"), (10, "read")):
        rows, shapes, bag = (torch.tensor([part]) for part in vocabulary.window(sentence, index))
        with torch.no_grad():
            hidden = network(rows, shapes, bag)[1][0]
            score = float(network.readings()[homographs.index(word)] @ hidden)
            part = int(network.part(hidden).argmax())
        assert np.allclose(reader._hidden(sentence, index), hidden, atol=0.05)
        assert abs(score) > 0.1
        assert reader.is_second(word, sentence, index, 0) == (score > 0)
        assert reader.part_of_speech(sentence, index) == recipe.PARTS[part]


def test_unknown_words_always_get_a_vowel():
    for word in ("brzk", "strength", "zzyzx", "mjolnir", "nghe", "psst"):
        assert any(phone[-1].isdigit() for phone in of_word(word)), word


def test_letters_that_are_too_many_for_a_word_are_spelt(monkeypatch):
    """Guessing how 4,090 letters are said took half a second, in which no other text was read."""
    monkeypatch.setattr("melforge.common.text.english.pronounce.load_letter_reader", None)
    letters = "".join(random.Random(0).choices(string.ascii_lowercase, k=4090))
    spoken = "".join(u.normalised for u in FRONTEND(f"{letters}.").utterances)
    assert "".join(filter(str.isalpha, spoken)) == letters.upper()
    drawn, long = "so" + "o" * 70, "pneumonoultramicroscopicsilicovolcanoconiosis"
    assert len(FRONTEND(f"It is {drawn} good.").utterances[0].ids) < 30
    monkeypatch.undo()
    assert long in FRONTEND(f"A case of {long}.").utterances[0].normalised


def test_an_ordinary_sentence_reads_neither_the_network_nor_anyascii():
    code = (
        "import sys; from melforge.common.text.frontends import get_frontend;"
        "from melforge.common.text.english.letters import load_letter_reader;"
        "get_frontend('english')('Dr. Smith paid $5 at 3:45 pm on Jan. 5th, 1999.');"
        "print(load_letter_reader.cache_info().currsize, 'anyascii' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False", "False"]
