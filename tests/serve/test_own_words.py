"""Own words of a request and of a server, phonemes as input, and /v1/audio/phonemize."""

import asyncio
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from melforge.common.config import watched
from melforge.common.serve.pairs import Pairs
from melforge.common.serve.requests import SpeechRequest
from melforge.common.serve.service import Service
from melforge.common.text.phonemes import in_braces
from tests.serve.conftest import own_pcm
from tests.serve.test_api import expected, require_samples
from tests.serve.test_pairs import OPTIONS

PHONEMIZE = "/v1/audio/phonemize"
PCM = {"response_format": "pcm", "sample_rate": 22050}
MELFORGE = {"Melforge": {"ipa": "ˈmɛlfɔːrdʒ"}, "SQL": "sequel"}


def test_a_request_s_own_words_and_phonemes_are_spoken(server, direct):
    said = f"{in_braces('ˈmɛlfɔːrdʒ', 'ipa')} speaks sequel."
    with_lexicon = server.speak("Melforge speaks SQL.", **PCM, lexicon=MELFORGE)
    require_samples(with_lexicon, expected(direct, said))
    phonemes = server.speak("həˈloʊ ðɛr.", **PCM, phonemes="ipa")
    require_samples(phonemes, expected(direct, "{HH AH0 L OW1} {DH EH1 R}."))


def test_phonemize_has_words_places_and_sources(server):
    with server.client() as client:
        answer = client.post(PHONEMIZE, json={"input": "Melforge pays $2.", "lexicon": MELFORGE}).json()
    assert (answer["model"], answer["voice"]) == ("fastpitch-hifigan", "hazel")
    (utterance,) = answer["utterances"]
    assert utterance["text"] == "Melforge pays $2." and len(utterance["symbols"]) == len(utterance["ids"])
    assert [tuple(word.values()) for word in utterance["words"]] == [
        ("Melforge", "M EH1 L F AO0 R JH", "Melforge", 0, 8, "lexicon"),
        ("pays", "P EY1 Z", "pays", 9, 13, "CMUdict"),
        ("two", "T UW1", "$2", 14, 16, "CMUdict"),
        ("dollars", "D AA1 L ER0 Z", "$2", 14, 16, "CMUdict"),
    ]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"lexicon": {"x": 5}}, "lexicon", "lexicon: 'x' must be text"),
        ({"lexicon": {"x": {"ipa": "b7"}}}, "lexicon", "'7' in 'b7' is no phoneme of IPA"),
        ({"lexicon": {"x": {"word": "y"}}}, "lexicon", "did you mean 'words'?"),
        ({"lexicon": {"(a+)+": {"words": "y", "pattern": True}}}, "lexicon", "patterns are for the lexicons"),
        ({"lexicon": {str(n): "x" for n in range(201)}}, "lexicon", "201 entries, of 200 at most"),
        ({"lexicon": {"x": {"ipa": "ə" * 40_000}}}, "lexicon", "characters of JSON, of 30000 at most"),
        ({"lexicon": {"x": ["y"] * 10_000}}, "lexicon", "characters of JSON, of 30000 at most"),
        (
            {"lexicon": {"a": "y" * 500}, "input": "a " * 2000},
            "lexicon",
            "it says more than 20000 characters",
        ),
        ({"lexicon": ["x"]}, "lexicon", "lexicon"),
        ({"phonemes": "ipa", "input": "h7"}, "input", "input: '7' in 'h7' is no phoneme of IPA"),
        ({"phonemes": "english"}, "phonemes", "phonemes"),
        ({"input": ""}, "input", "the text is empty"),
    ],
)
def test_what_is_wrong_is_named(server, fields, param, message):
    for path in ("/v1/audio/speech", PHONEMIZE):
        with server.client() as client:
            answer = client.post(path, json=own_pcm() | fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param) and message in error["message"]


def test_a_server_s_lexicon_is_read_again_when_it_changes(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watched, "LOOK_EVERY", -1.0)
    path = tmp_path / "lexicon.yaml"
    path.write_text("word: one")
    pairs = Pairs(replace(OPTIONS, lexicon=str(path)))
    tts = pairs.get(pairs.first)
    assert tts.analyse("word").utterances[0].normalised == "one"
    path.write_text("word: the second")
    os.utime(path, ns=(1, 1))
    assert tts.analyse("word").utterances[0].normalised == "the second"
    path.write_text("word: [")
    os.utime(path, ns=(2, 2))
    assert tts.analyse("word").utterances[0].normalised == "the second"
    assert str(path) in caplog.text


def test_of_lexicons_that_come_together_the_event_loop_reads_one_a_round():
    """Others have their turn between them."""
    requests = [SpeechRequest(model="tts-1", voice="hazel", input="Hi.", lexicon=MELFORGE) for _ in range(5)]

    async def rounds_of_each() -> list[int]:
        service: Any = SimpleNamespace(_reading=asyncio.Lock())
        rounds, read = 0, []

        async def reading(one: SpeechRequest) -> None:
            await Service.read_words(service, one)
            read.append(rounds)

        tasks = [asyncio.create_task(reading(one)) for one in requests]
        while len(read) < len(tasks):
            rounds += 1
            await asyncio.sleep(0)
        return read

    assert len(set(asyncio.run(rounds_of_each()))) == len(requests)
    assert all("own_words" in vars(one) for one in requests)
