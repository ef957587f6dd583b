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

ROOT = Path(__file__).parents[4]
FRONTEND = get_frontend("english")


def phones(word: str, text: str) -> str:
    """How a word is said in a sentence; the first time it comes."""
    tokens = text.replace(",", " ,").replace(".", " .").replace("?", " ?").split()
    index = next(i for i, token in enumerate(tokens) if token.lower() == word.lower())
    return " ".join(read(tokens)[index])


@pytest.mark.parametrize(
    "word, said",
    [
        ("hello", "HH AH0 L OW1"),
        ("colonel", "K ER1 N AH0 L"),
        ("roominghouse", "R UW1 M IH0 NG HH AW2 S"),
        ("palmprints", "P AA1 L M P R IH2 N T S"),
        ("smartphones", "S M AA1 R T F OW2 N Z"),
        ("rebooted", "R IY0 B UW1 T IH0 D"),
        ("unfriended", "AH0 N F R EH1 N D IH0 D"),
        ("hidell's", "HH AY1 D AH0 L Z"),
        ("netflix's", "N EH1 T F L IH0 K S IH0 Z"),
        ("pokemon's", "P OW1 K EY0 M AA2 N Z"),
        ("dogs'", "D AO1 G Z"),
        ("axolotls", "AE1 K S AH0 L AA2 T AH0 L Z"),
        ("expatriated", "EH0 K S P EY1 T R IY0 EY2 T IH0 D"),
        ("yesss", "Y EH1 S"),
        ("prstvw", "P IY2 AA2 R EH2 S T IY2 V IY2 D AH1 B AH0 L Y UW0"),
    ],
)
def test_words(word, said):
    assert " ".join(of_word(word)) == said


@pytest.mark.parametrize(
    "word, text, said",
    [
        ("the", "in the house", "DH AH0"),
        ("the", "in the apple", "DH IY0"),
        ("a", "take a walk", "AH0"),
        ("A", "vitamin A is good", "EY1"),
        ("to", "go to bed", "T AH0"),
        ("to", "what is it to", "T UW0"),
        ("of", "full of it", "AH0 V"),
        ("FBI", "the FBI came", "EH2 F B IY2 AY1"),
        ("GPUs", "two GPUs", "JH IY2 P IY2 Y UW1 Z"),
        ("re-", "they re- elect him", "R IY1"),
    ],
)
def test_words_in_context(word, text, said):
    assert phones(word, text) == said


NOUN_OR_VERB = [
    ("record", "play the record again", "R EH1 K ER0 D", "please record this", "R IH0 K AO1 R D"),
    ("object", "an object fell", "AA1 B JH EH0 K T", "I object to it", "AH0 B JH EH1 K T"),
    ("present", "a present for you", "P R EH1 Z AH0 N T", "to present it", "P R IY0 Z EH1 N T"),
    ("conduct", "his conduct was good", "K AA1 N D AH0 K T", "we conduct tests", "K AH0 N D AH1 K T"),
    ("separate", "a separate room", "S EH1 P R AH0 T", "to separate them", "S EH1 P ER0 EY2 T"),
    ("estimate", "the estimate is low", "EH1 S T AH0 M AH0 T", "we estimate it", "EH1 S T AH0 M EY2 T"),
    ("use", "make use of it", "Y UW1 S", "you can use it", "Y UW1 Z"),
    ("house", "the house burned", "HH AW1 S", "to house them", "HH AW1 Z"),
    ("refuse", "the refuse was removed", "R EH1 F Y UW2 Z", "they refuse it", "R AH0 F Y UW1 Z"),
    ("wind", "the wind blew", "W IH1 N D", "to wind a clock", "W AY1 N D"),
    ("live", "a live show", "L AY1 V", "they live here", "L IH1 V"),
    ("close", "she sat close to me", "K L OW1 S", "please close the door", "K L OW1 Z"),
    ("lead", "a lead pipe", "L EH1 D", "lead the way", "L IY1 D"),
    ("tear", "a tear fell", "T IH1 R", "do not tear it", "T EH1 R"),
    ("bow", "a bow and arrow", "B OW1", "the bow of the ship", "B AW1"),
    ("live", "we watched it live", "L AY1 V", "we live by the sea", "L IH1 V"),
    ("read", "he never read it again", "R EH1 D", "they almost always read the label", "R IY1 D"),
    (
        "confines",
        "the wall confines the garden",
        "K AH0 N F AY1 N Z",
        "the confines of it",
        "K AA1 N F AY2 N Z",
    ),
    ("decrease", "earnings decrease each year", "D IH0 K R IY1 S", "a decrease", "D IY1 K R IY2 S"),
    ("read", "she has read it", "R EH1 D", "she will read it", "R IY1 D"),
    ("read", "I read it yesterday", "R EH1 D", "I read every day", "R IY1 D"),
    ("read", "he read the book", "R EH1 D", "read this", "R IY1 D"),
    ("used", "I used to go", "Y UW1 S T", "it was used to open it", "Y UW1 Z D"),
    ("records", "the records are lost", "R EH1 K ER0 D Z", "he records it", "R IH0 K AO1 R D Z"),
    ("uses", "its uses are many", "Y UW1 S IH0 Z", "he uses it", "Y UW1 Z IH0 Z"),
    ("lives", "he saved many lives", "L AY1 V Z", "she lives there", "L IH1 V Z"),
    ("minute", "wait a minute", "M IH1 N AH0 T", "in minute detail", "M AY0 N UW1 T"),
    ("bass", "he plays the bass", "B EY1 S", "he caught a bass in the lake", "B AE1 S"),
    ("Polish", "the Polish language", "P OW1 L IH0 SH", "to polish it", "P AA1 L IH0 SH"),
    ("wound", "the wound healed", "W UW1 N D", "he wound up there", "W AW1 N D"),
    ("desert", "in the desert", "D EH1 Z ER0 T", "do not desert me", "D IH0 Z ER1 T"),
    ("content", "the content of it", "K AA1 N T EH0 N T", "I am content with it", "K AH0 N T EH1 N T"),
    ("resume", "send your resume", "R EH1 Z AH0 M EY2", "they resume work", "R IH0 Z UW1 M"),
    ("excuse", "no excuse", "IH0 K S K Y UW1 S", "please excuse me", "IH0 K S K Y UW1 Z"),
]


@pytest.mark.parametrize("word, one, said_one, other, said_other", NOUN_OR_VERB, ids=lambda value: value[:16])
def test_homographs_in_both_readings(word, one, said_one, other, said_other):
    assert phones(word, one) == said_one
    assert phones(word, other) == said_other


@pytest.mark.parametrize(
    "text, said",
    [("résumé", "R EH1 Z AH0 M EY2"), ("Crème brûlée", "K R EH1 M B R UW0 L EY1"), ("rose", "R OW1 Z")],
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
    recipe.save(network, chunks, tmp_path / "letters.safetensors")
    reader = LetterReader(tmp_path / "letters.safetensors")
    for word in ("blimpish", "a", "o'thistle"):
        symbols = torch.tensor([recipe.encode(word, recipe.NAMES)])
        found = reader._read(symbols[0, 1:-1].tolist(), is_name=True)
        greedy = [0] * len(word)
        with torch.no_grad():
            seen = network.encoder(network.embed(symbols))[0][0, 1:-1]
            for at in range(len(word)):
                greedy[at] = int(network(symbols, torch.tensor([greedy]))[0, at].argmax())
            scores = [
                float(network(symbols, torch.tensor([path]))[0].log_softmax(1)[range(len(word)), path].sum())
                for path in (found, greedy)
            ]
        assert np.allclose(reader._encoded(symbols[0, 1:-1].tolist(), is_name=True), seen, atol=0.05)
        assert scores[0] > scores[1] - 0.05


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
