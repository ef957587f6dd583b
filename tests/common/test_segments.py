"""Cut utterances: nothing is lost, nothing is too long, and the cuts are where a reader would breathe."""

from functools import partial

import numpy as np
import pytest

from melforge.common.synthesis.segments import cut, fit
from melforge.common.text import Utterance
from melforge.common.text.frontends import get_frontend
from melforge.common.text.markup import analyse
from melforge.common.text.style import PLAIN

SENTENCE = "Behind the old mill stood a tall ladder, and nobody knew for what reason it had been left there."


@pytest.fixture(scope="module", params=["english", "tacotron2", "fastpitch"])
def frontend(request):
    return get_frontend(request.param)


def whole(frontend, text: str) -> Utterance:
    (utterance,) = frontend(text).utterances
    return utterance


def spoken(symbols) -> list[str]:
    return [symbol for symbol in symbols if symbol[-1].isalnum()]


def test_a_cut_behind_a_comma(frontend):
    utterance = whole(frontend, SENTENCE)
    first, second = cut(utterance, frontend.symbols)
    assert first.utterance.text == "Behind the old mill stood a tall ladder,"
    assert second.utterance.text == SENTENCE.removeprefix(first.utterance.text).strip()
    assert first.utterance.symbols[-1] == "," and first.utterance.pause > 0
    assert (first.start, second.end) == (0, len(utterance.ids)) and first.end <= second.start
    assert second.utterance.pause == utterance.pause


def test_a_cut_divides_what_marks_ask_for(frontend):
    text = (
        SENTENCE.replace(",", "")
        .replace("tall", "<emphasis>tall</emphasis>")
        .replace("it", "<mark name='a'/>it")
    )
    utterance = whole(partial(analyse, frontend), f"<speak><break/>{text}<mark name='z'/></speak>")
    first, second = (piece.utterance for piece in cut(utterance, frontend.symbols))
    assert all(len(piece.styles) == len(piece.ids) for piece in (first, second))
    assert [style for style in first.styles if style != PLAIN] and set(second.styles) == {PLAIN}
    assert not first.bookmarks and [name for _, name in second.bookmarks] == ["a", "z"]
    assert second.symbols[second.bookmarks[0][0] :][:2] in (("@IH1", "@T"), ("@IH0", "@T"), ("i", "t"))
    assert second.bookmarks[1][0] == len(second.ids) and (first.lead, second.lead) == (0.4, 0)


def test_a_cut_between_words_gets_a_comma(frontend):
    utterance = whole(frontend, SENTENCE.replace(",", ""))
    first, second = (piece.utterance for piece in cut(utterance, frontend.symbols))
    assert first.symbols[-1] == "," and len(first.ids) == len(first.symbols)
    assert [frontend.symbols[i] for i in first.ids] == list(first.symbols)
    assert spoken(first.symbols) + spoken(second.symbols) == spoken(utterance.symbols)
    assert (second.symbols[0] == " ") == (utterance.symbols[0] == " ")
    assert abs(len(first.ids) - len(second.ids)) < len(utterance.ids) / 4


def test_what_is_short_stays_whole(frontend):
    utterance = whole(frontend, "Hello there.")
    (piece,) = cut(utterance, frontend.symbols)
    assert piece.utterance is utterance and (piece.start, piece.end) == (0, len(utterance.ids))


@pytest.mark.parametrize("longest", [4, 10, 47, 60])
@pytest.mark.parametrize("text", [SENTENCE, "x" * 150, "A" + " b" * 60 + " ."])
def test_pieces_fit_and_hold_everything(longest, text):
    frontend = get_frontend("tacotron2")
    utterance = whole(frontend, text)
    pieces = list(fit(utterance, longest, frontend.symbols))
    assert max(len(piece.ids) for piece in pieces) <= longest
    assert [symbol for piece in pieces for symbol in spoken(piece.symbols)] == spoken(utterance.symbols)
    assert pieces[-1].pause == utterance.pause
    assert all(spoken(piece.symbols) for piece in pieces)


def test_what_fits_is_not_touched(frontend):
    utterance = whole(frontend, SENTENCE)
    assert list(fit(utterance, len(utterance.ids), frontend.symbols)) == [utterance]


def test_words_of_figures_cannot_be_told_apart():
    """Where one written word is several spoken ones, each piece shows the whole."""
    utterance = whole(get_frontend("english"), "The bill came to $341.50 and was paid on the 3rd of May.")
    first, second = (piece.utterance for piece in cut(utterance, get_frontend("english").symbols))
    assert first.text == second.text == utterance.text
    assert utterance.normalised.startswith(first.normalised)


def test_a_model_without_room_is_refused():
    utterance = Utterance("ab", "ab", ("a", "b"), np.array([1, 2]), 0.0)
    with pytest.raises(ValueError, match="takes 1 symbols at a time"):
        list(fit(utterance, 1, ("_", "a", "b")))
