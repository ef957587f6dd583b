"""Unicode to ASCII, against what the published tables give."""

import pytest

from melforge.common.text.published.transliterate import to_ascii_bundled, to_ascii_unidecode

LATIN = "áàâãåçéèêëíñóøúýžłőğŠĐ"


def test_both_take_accents_off():
    plain = "aaaaaceeeeinoouyzlogSD"
    assert to_ascii_bundled(LATIN) == to_ascii_unidecode(LATIN) == plain
    assert to_ascii_bundled("e\u0301") == to_ascii_unidecode("e\u0301") == "e"


@pytest.mark.parametrize(
    ("text", "bundled", "unidecode"),
    [
        ("äöüß Æ Þ", "aeoeuess AE TH", "aouss AE Th"),
        ("œ ō ŵ ŋ", "   ", "oe o w ng"),  # the bundled tables lack them
        ("‘a’ “b” – — … •", "'a' \"b\" -   ", "'a' \"b\" - -- ... *"),
        ("€ £ ¥ ₩ ₹ ¢", "E  Y W R c", "EUR PS Y= W Rs C/"),
        ("½ ⅓ x² 5° ™ №", "  x 5  ", " 1/2  1/3  x2 5deg (tm) No. "),
        ("× ÷ ± − ≤ →", "x   -  ", "x / +- - <= -"),
        ("Щука ёж объём", "Schuka yozh obyom", "Shchuka iozh ob'iom"),
        ("Αθήνα φυσική", "Athina fysiki", "Athena phusike"),
        ("你好, こんにちは", ", ", "Ni Hao , konnichiha"),
        ("😀☀👍🏽", "", ""),  # and not the names that anyascii has for them
        ("\u200bﬁ\x7f", "", " fi\x7f"),
    ],
)
def test_the_tables_differ(text, bundled, unidecode):
    assert to_ascii_bundled(text) == bundled
    assert to_ascii_unidecode(text) == unidecode
