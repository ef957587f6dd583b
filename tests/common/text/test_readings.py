"""Where readings come from, by the functions and by the commands `phonemes`, `say-as` and `speak`."""

import json

import pytest

from melforge.common.cli import phonemes, say_as, speak
from melforge.common.config.lexicon import lexemes
from melforge.common.config.yaml_file import entries_of
from melforge.common.errors import InputError
from melforge.common.text.frontends import get_frontend
from melforge.common.text.lexicon import Lexicon
from melforge.common.text.markup import analyse
from melforge.common.text.readings import phonemized, readings_of

ENTRIES = {
    "New York": {"arpabet": "N UW1 | Y AO1 R K"},
    "live": {"words": "dwell", "part_of_speech": "verb"},
    r"INC-(\d+)": {"words": r"incident \1", "pattern": True},
}


@pytest.fixture(scope="module")
def frontend():
    frontend = get_frontend("english")
    frontend.own_words = (Lexicon(lexemes(entries_of(ENTRIES, "lexicon"))),)
    return frontend


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("palmprints", {"P AA1 L M P R IH2 N T S": "the words in it"}),
        ("blorf", {"B L AO1 R F": "its letters"}),
        ("GPUs", {"JH IY2 P IY2 Y UW1 Z": "letters: G P U"}),
        ("New York", {"N UW1 | Y AO1 R K": "lexicon"}),
        ("INC-42", {"incident 42": "lexicon"}),
        ("dwelt", {"D W EH1 L T": "CMUdict"}),
        ("SQL", {"S IY1 K W AH0 L": "rules of the frontend english", "S IY1 K W UH0 L": "CMUdict"}),
        ("10", {"T EH1 N": "rules of the frontend english"}),
    ],
)
def test_a_word_s_readings(frontend, word, expected):
    found = {one["said"]: one["source"] for one in readings_of(frontend, word)}
    assert expected.items() <= found.items() and next(iter(found)) == next(iter(expected))


def test_a_word_with_several_readings_has_all_of_them(frontend):
    assert [one["source"].split(";")[0] for one in readings_of(frontend, "record")] == [
        "homograph",
        "homograph, as told by VERB",
        "CMUdict",
    ]
    read = [one["source"].split(";")[0] for one in readings_of(frontend, "read")]
    assert read[1].startswith("homograph, as told by PAST ~yesterday <was")  # only by what calls for it
    the = [(one["said"], one["source"].split(";")[0]) for one in readings_of(frontend, "the")]
    assert ("DH IY0", "function word, before a vowel") in the
    assert all(said for said, _ in the)
    live = readings_of(frontend, "live")
    assert live[0] == {"said": "dwell", "source": "lexicon, as verb"} and len(live) > 2


def test_a_published_frontend_has_one_reading():
    assert readings_of(get_frontend("tacotron2"), "5 km") == [
        {"said": "five | km", "source": "rules of the frontend tacotron2"}
    ]


def test_phonemes_of_a_text_have_places_and_sources(frontend):
    text = "They live  in New York, {B IY1} O'Neil-Smith: INC-42."
    words = [
        word for one in phonemized(frontend, text, frontend(text))["utterances"] for word in one["words"]
    ]
    assert [(word["written"], word["word"], word["source"].split(",")[0]) for word in words] == [
        ("They", "They", "function word"),
        ("live", "dwell", "lexicon"),
        ("in", "in", "function word"),
        ("New York", "{N UW1}", "lexicon"),
        ("New York", "{Y AO1 R K}", "lexicon"),
        ("{B IY1}", "{B IY1}", "the text"),
        ("O'Neil-Smith", "O'Neil-Smith", "CMUdict"),
        ("INC-42", "incident", "lexicon"),
        ("INC-42", "forty-two", "lexicon"),
    ]
    assert all(text[word["start"] : word["end"]] == word["written"] for word in words)


def test_commands_tell_and_take_them(tmp_path, capsys):
    path = tmp_path / "lexicon.yaml"
    path.write_text("SQL: sequel", encoding="utf-8")
    assert phonemes.main(["SQL is fun.", "--lexicon", str(path)]) == 0
    assert f"{path}, line 1, only SQL" in capsys.readouterr().out
    assert phonemes.main(["SQL is fun.", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["utterances"][0]["words"][0]["said"] == "S IY1 K W AH0 L"
    assert say_as.main(["SQL", "record", "--lexicon", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["SQL", "sequel"] and "R IH0 K AO1 R D" in "\n".join(lines)
    assert speak.main(["SQL.", "--show-text", "--lexicon", str(path)]) == 0
    assert capsys.readouterr().out.startswith("sequel.")
    assert speak.main(["həˈloʊ!", "--show-text", "--phonemes", "ipa"]) == 0
    assert capsys.readouterr().out.startswith("{HH AH0 L OW1}!")


def test_the_text_that_speak_shows_is_read_as_its_speaker_reads(capsys):
    words = ["On 3/4/2024.", "--show-text", "--voice", "orchard", "--speaker"]
    assert speak.main([*words, "heart:0.2,emma:0.8"]) == 0
    assert capsys.readouterr().out.startswith("On the third of April")
    assert speak.main([*words, "heart"]) == 0
    assert capsys.readouterr().out.startswith("On March fourth")
    with pytest.raises(InputError, match="speaker 'nobody' does not exist"):
        speak.main([*words, "nobody"])


def test_what_is_written_without_a_blank_is_not_repeated_for_each_of_its_words():
    frontend, text = get_frontend("english"), "中" * 1000
    found = phonemized(frontend, text, frontend(text))
    words = [word for utterance in found["utterances"] for word in utterance["words"]]
    assert len(words) == 1000 and {word["written"] for word in words} == {"中" * 100 + "…"}
    assert {(word["start"], word["end"]) for word in words} == {(0, 1000)}


@pytest.mark.parametrize("name", ["english", "tacotron2", "fastpitch"])
def test_words_stand_where_they_are_written_also_in_marked_texts(name):
    frontend = get_frontend(name)
    text = '<speak>She said <sub alias="World Web">WWW</sub>.<break time="1s"/> All right.</speak>'
    found = phonemized(frontend, text, analyse(frontend, text))
    words = [word for utterance in found["utterances"] for word in utterance["words"]]
    assert [word["written"] for word in words if word["word"].lower() in ("she", "all")] == ["She", "All"]
    assert all(text[word["start"] : word["end"]] == word["written"] for word in words)
    if name == "english":
        assert [word["written"] for word in words] == ["She", "said", "WWW", "WWW", "All", "right"]
    assert [utterance["pause"] for utterance in found["utterances"]] == [1.0, 0.0]
