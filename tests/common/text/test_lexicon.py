"""Lexicons: what their files may hold, what they find in a text, and that a file is read again."""

import os
from pathlib import Path

import pytest

from melforge.common.config import watched
from melforge.common.config.lexicon import LexiconFile, read_lexicon
from melforge.common.errors import InputError
from melforge.common.text import SaidAs, with_own_words
from melforge.common.text.frontends import FRONTENDS, get_frontend
from tests.tables import read_tables

ROOT = Path(__file__).parents[3]
CASES = read_tables(Path(__file__).parent / "cases.txt")
ENTRIES = r"""
SQL: sequel
POSTGRESQL: {words: post gress, case: false}
Melforge: {ipa: ˈmɛlfɔːrdʒ}
Kokoro: {x_sampa: '"koUk@roU'}
New York: {arpabet: N UW1 | Y AO1 R K}
New York City: the big apple
US: the States
DeVito: {words: duh vee toe, case: true}
'INC-(\d+)': {pattern: true, words: 'incident \1'}
'v(\d+)\.(\d+)': {pattern: true, case: false, words: 'release \1 dot \2'}
live:
- {arpabet: L AY1 V, part_of_speech: adjective}
- {words: dwell, part_of_speech: verb}
read: {words: studied, part_of_speech: verb}
C++: see plus plus
don't: shall not
naïve: simple
ugh: ''
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "lexicon.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(("text", "said"), CASES["lexicon"])
def test_the_longest_entry_is_said(write, text, said):
    found = read_lexicon(str(write(ENTRIES))).find(text)
    assert " / ".join(one.spoken for one in found) == said


def test_conditions_tell_entries_of_one_word_apart(write):
    lexicon = read_lexicon(write("Polish: {words: one, case: true}\npolish: two\nUS: three\nus: four"))
    found = lexicon.find("Polish polish POLISH US us")
    assert [one.spoken for one in found] == ["one", "two", "two", "three", "four"]


def test_the_first_lexicon_comes_first(write):
    first, second = write("a b: one\nc: two", "a.yaml"), write("a b c: three\nb: four\nc: five", "b.yaml")
    frontend = get_frontend("english")
    frontend.own_words = (read_lexicon(second),)
    both = with_own_words(frontend, read_lexicon(first))
    spoken = [one("a b c b").utterances[0].normalised for one in (frontend, both)]
    assert spoken == ["three four", "one two four"]
    (found,) = read_lexicon(second).find("x b")
    assert found.lexeme.place == f"{second}, line 2"


def test_phonemes_in_a_text_are_no_words(write):
    lexicon = read_lexicon(write("b: bee\nEH1: not\nd: dee"))
    assert [one.spoken for one in lexicon.find("b {B EH1 D} d")] == ["bee", "dee"]


def test_what_others_say_is_not_the_lexicons(write):
    text = "SQL in New York City is SQL"
    said = [SaidAs(0, 3, "x"), SaidAs(text.index("City"), text.index("City") + 4, "town")]
    spoken = read_lexicon(write(ENTRIES)).add_to(said, text)
    assert [one.spoken for one in spoken] == ["x", "{N UW1} {Y AO1 R K}", "town", "sequel"]


def test_the_documentation_s_lexicon_says_what_it_tells(write):
    page = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    lexicon = read_lexicon(write(page.split("```yaml\n")[1].split("```")[0]))
    said = [one.spoken for one in lexicon.find("They live in New York; a gif on postgresql, INC-7. Live!")]
    live, york, _, sql, *rest = said
    assert (live, york, sql) == ("{L IH1 V}", "{N UW1} {Y AO1 R K}", "{P OW1 S T} gress")
    assert rest == ["incident 7", "{L AY1 V}"]


@pytest.mark.parametrize("name", FRONTENDS)
def test_every_frontend_speaks_a_lexicon(write, name):
    frontend = get_frontend(name)
    frontend.own_words = (read_lexicon(write(ENTRIES)),)
    (utterance,) = frontend("Melforge speaks SQL.").utterances
    said = "@M @EH1 @L @F @AO0 @JH" if name == "english-gb" else "@M @EH1 @L @F @AO0 @R @JH"
    assert said in " ".join(utterance.symbols)
    assert utterance.normalised.lower().endswith("speaks sequel.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *CASES["wrong lexicons"],
        (f"{'x' * 101}: b", "a key has 1 to 100 characters"),
        (f"x: {'y' * 501}", "what is said 500 at most"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(write, text, message):
    path = write(text)
    with pytest.raises(InputError) as error:
        read_lexicon(path)
    assert str(path) in str(error.value) and message in str(error.value)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(write, monkeypatch, caplog):
    monkeypatch.setattr(watched, "LOOK_EVERY", -1.0)
    path = write("word: one")
    file = LexiconFile(path)

    def said() -> list[str]:
        return [one.spoken for one in file.add_to((), "word")]

    def change(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        when = path.stat().st_mtime_ns + 1_000_000_000
        os.utime(path, ns=(when, when))

    assert said() == ["one"]
    change("word: two")
    assert said() == ["two"] and not caplog.messages
    change("word: 5")
    assert said() == said() == ["two"]
    assert [message for message in caplog.messages if "line 1: 'word' must be text" in message]
    assert len(caplog.messages) == 1
    path.unlink()
    assert said() == ["two"] and len(caplog.messages) == 2
    path.write_text("word: three", encoding="utf-8")
    assert said() == ["three"]
