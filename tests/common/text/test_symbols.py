"""The published symbol sets, against the ids of the golden sentences' checkpoints."""

import pytest

from melforge.common.text.symbols import ARPABET, SYMBOL_SETS, get_symbols

PUBLISHED = [symbols for name, symbols in SYMBOL_SETS.items() if name != "english_accents"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("english_basic", 148),
        ("english_basic_lowercase", 123),
        ("english_expanded", 175),
        ("tacotron2", 148),
        ("fastspeech", 148),
    ],
)
def test_sizes(name, size):
    assert len(get_symbols(name)) == len(set(get_symbols(name))) == size


@pytest.mark.parametrize(
    ("name", "symbol", "id_"),
    [
        ("english_basic", "_", 0),
        ("english_basic", "-", 1),
        ("english_basic", " ", 11),
        ("english_basic", "A", 12),
        ("english_basic", "z", 63),
        ("english_basic", "@AA", 64),
        ("english_basic", "@ZH", 147),
        ("english_basic_lowercase", '"', 4),
        ("english_basic_lowercase", "a", 13),
        ("english_basic_lowercase", "@AA", 39),
        ("english_expanded", "!", 0),
        ("english_expanded", "_", 20),
        ("english_expanded", "½", 24),
        ("english_expanded", "ž", 38),
        ("english_expanded", "@ZH", 174),
    ],
)
def test_published_ids(name, symbol, id_):
    assert get_symbols(name).index(symbol) == id_


def test_phones_are_in_alphabetical_order():
    assert len(ARPABET) == 84
    assert list(ARPABET) == sorted(ARPABET)
    assert all(symbols[-84:] == tuple("@" + phone for phone in ARPABET) for symbols in PUBLISHED)


def test_unknown_set_names_the_nearest():
    with pytest.raises(ValueError, match="unknown symbol set 'english_basics': did you mean 'english_basic'"):
        get_symbols("english_basics")
