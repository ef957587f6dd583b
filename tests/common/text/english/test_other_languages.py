"""Other languages are told by their frequent words, and no English text is taken for one."""

from pathlib import Path

import pytest

from melforge.common.text.english.other_languages import other_language

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("German", "Ich möchte ein Bier"),
        ("German", "Guten Tag, wie geht es Ihnen?"),
        ("French", "Je voudrais une bière, s'il vous plaît."),
        ("Spanish", "¿Dónde está la biblioteca?"),
        ("Italian", "Vorrei una birra, grazie."),
        ("Portuguese", "Eu não quero mais isso."),
        ("Dutch", "Ik wil graag een biertje, alsjeblieft."),
        ("", "Los Angeles, Las Vegas and San Diego."),
        ("", "A certain je ne sais quoi, and a la carte menus."),
        ("", "Que sera, sera."),
        ("", "IT IS UND DAS"),
        ("", "42"),
        ("", ""),
    ],
)
def test_languages_are_told_apart(language, text):
    assert other_language(text) == language


@pytest.mark.parametrize("file", ["examples/sentences.txt", "README.md", "CHANGELOG.md", "docs/contracts.md"])
def test_english_is_english(file):
    assert not any(map(other_language, (ROOT / file).read_text(encoding="utf-8").splitlines()))
