from pathlib import Path

import pytest

from melforge.common.errors import InputError
from melforge.common.text.phonemes import as_text, in_braces
from melforge.common.text.symbols import ARPABET
from tests.tables import read_tables


@pytest.mark.parametrize(
    ("alphabet", "phonemes", "expected"), read_tables(Path(__file__).parent / "cases.txt")["phonemes"]
)
def test_phonemes_of_each_alphabet_are_arpabet_with_stress(alphabet, phonemes, expected):
    assert in_braces(phonemes, alphabet) == expected
    assert set(expected.replace("{", "").replace("}", "").split()) <= set(ARPABET)


@pytest.mark.parametrize(
    ("alphabet", "phonemes", "message"),
    [
        ("arpabet", "HH XX", "'XX' in 'HH XX' is no phoneme of ARPAbet; it has AA AE"),
        ("arpabet", "AH3", "'AH3' in"),
        ("arpabet", "B1", "'B1' in"),
        ("arpabet", " | ", "holds no phoneme of ARPAbet"),
        ("ipa", "hé7", "'7' in 'hé7' is no phoneme of IPA"),
        ("ipa", "", "holds no phoneme of IPA"),
        ("x-sampa", "h#", "'#' in 'h#' is no phoneme of X-SAMPA"),
        ("sampa", "h", "unknown alphabet of phonemes 'sampa': did you mean 'x-sampa'"),
    ],
)
def test_what_is_no_phoneme_is_named(alphabet, phonemes, message):
    with pytest.raises(InputError, match="^.*" + message.replace("|", r"\|")):
        in_braces(phonemes, alphabet)


def test_a_word_of_any_length_keeps_its_phonemes():
    words = in_braces("T EH1 S T " * 30)
    assert [len(word.split()) for word in words.split("} {")] == [40, 40, 40]


@pytest.mark.parametrize(
    ("alphabet", "phonemes", "expected"),
    [
        ("arpabet", "HH AH0 L OW1 | W ER1 L D. F UW1?", "{HH AH0 L OW1} {W ER1 L D}. {F UW1}?"),
        ("arpabet", "{HH AH0 L OW1}, {W ER1 L D}.\n\n{F UW1}", "{HH AH0 L OW1}, {W ER1 L D}.\n\n{F UW1}"),
        ("ipa", "həˈloʊ, wɜːld!", "{HH AH0 L OW1}, {W ER1 L D}!"),
        ("ipa", "ˈfuː.bɑː … i:", "{F UW1 B AA0} … {IY1}:"),
        ("x-sampa", 'h@"loU, w3:ld? i:', "{HH AH0 L OW1}, {W ER1 L D}? {IY1}"),
        ("ipa", " ", ""),
    ],
)
def test_phonemes_with_marks_become_text(alphabet, phonemes, expected):
    assert as_text(phonemes, alphabet) == expected
