"""The routes of NVIDIA's Speech NIM, and its names of voices."""

import io

import pytest
import soundfile

from melforge.common.serve.protocols.nim import lexicon_of, voice_fields
from tests.serve.conftest import own_pcm, running, samples_of

pytestmark = pytest.mark.serve
TEXT = "The first sentence is here. The second one follows."
SYNTHESIZE, ONLINE = "/v1/audio/synthesize", "/v1/audio/synthesize_online"


def ask(server, route=SYNTHESIZE, files=None, key="", **fields):
    """As curl's -F sends it."""
    parts = {name: (None, str(value)) for name, value in fields.items()}
    with server.client(key) as client:
        return client.post(route, files={**parts, **(files or {})})


def spoken(server, text=TEXT, **fields):
    """Samples by OpenAI's route, at the voice's own rate."""
    with server.client() as client:
        return client.post("/v1/audio/speech", json=own_pcm(text, **fields)).content


def test_a_whole_wav_and_a_stream_of_samples_are_those_of_openai_s_route(server):
    wanted = spoken(server)
    voice = {"language": "en-US", "voice": "English-US.hazel", "text": TEXT}
    answer = ask(server, **voice)
    assert answer.headers["content-type"] == "audio/wav" and "content-length" in answer.headers
    assert answer.content[44:] == wanted and soundfile.info(io.BytesIO(answer.content)).samplerate == 22050
    online = ask(server, ONLINE, **voice)
    assert online.content == wanted and online.headers["x-sample-rate"] == "22050"
    with server.client() as client:  # as Python's clients send fields alone
        assert client.post(SYNTHESIZE, data=voice).content == answer.content


def test_rates_encodings_and_the_custom_dictionary(server):
    rate = ask(server, ONLINE, text=TEXT, sample_rate_hz=48000)
    assert abs(len(rate.content) / len(spoken(server)) - 48000 / 22050) < 0.001
    opus = ask(server, text=TEXT, encoding="OGGOPUS", sample_rate_hz=24000)
    assert soundfile.info(io.BytesIO(opus.content)).subtype == "OPUS"
    word = {"lexicon": {"tomato": {"ipa": "təˈmɑːtoʊ"}}}
    assert ask(server, ONLINE, text="A tomato.", custom_dictionary="tomato  təˈmɑːtoʊ").content == spoken(
        server, "A tomato.", **word
    )
    own = "speed:1.5,exaggeration_factor:2"
    faster = ask(server, ONLINE, text=TEXT, custom_configuration=own, quality=20)
    assert faster.content == spoken(server, speed=1.5)
    assert faster.headers["x-melforge-ignored"] == "exaggeration_factor, quality"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"quality": 20}, 400, "text is missing"),
        ({"text": "x" * 5000}, 400, "5000 characters, of 4096 at most"),
        ({"text": "Hello.", "voice": "English-US.nobody"}, 400, "unknown voice 'English-US.nobody'"),
        ({"text": "Hello.", "language": "de-DE"}, 400, "this is for en, not for 'de-DE'"),
        ({"text": "Hello.", "encoding": "MP3"}, 400, "unknown encoding 'MP3'"),
        ({"text": "Hello.", "encoding": "OGGOPUS"}, 400, "opus cannot have 22050 Hz"),
        ({"text": "Hello.", "sample_rate_hz": "many"}, 400, "a whole number is wanted"),
        ({"text": "Hello.", "custom_dictionary": "tomato"}, 400, "has no two blanks"),
        ({"text": "Hello.", "custom_dictionary": "a  b," * 20_000}, 400, "100000 characters, of 65536"),
        ({"text": "Hello.", "custom_configuration": "a:b," * 200}, 400, "200 fields, of 128"),
        ({"text": "Hello.", "files": {"audio_prompt": ("a.wav", b"RIFF")}}, 400, "clones no voices"),
    ],
)
def test_what_is_wrong_is_said(server, fields, status, message):
    answer = ask(server, **fields)
    assert answer.status_code == status and message in answer.json()["error"]["message"]


def test_a_form_has_few_fields_however_it_is_written(server):
    with server.client() as client:
        answer = client.post("/v1/audio/synthesize", data={f"field{n}": "x" for n in range(100)})
    assert answer.status_code == 400 and "more than 64 fields" in answer.json()["error"]["message"]


def test_voices_are_listed_by_language_and_probes_need_no_key():
    with running((b"secret",), voice=None) as server:
        with server.client() as client:
            assert client.get("/v1/audio/list_voices").status_code == 401
            assert client.get("/v1/health/live").status_code == 200
            assert client.get("/v1/health/ready").json() == {"status": "ready"}
        with server.client("secret") as client:
            (language, listed), *others = client.get("/v1/audio/list_voices").json().items()
        assert language == "en-US" and not others
        assert listed["voices"][0] == "English-US.hazel" and "English-US.emma" in listed["voices"]
        assert "English-US-tacotron2-hifigan.hazel" in listed["voices"]
        pairs = server.service.pairs
        for name in listed["voices"]:
            fields = voice_fields(pairs, name)
            assert pairs.find(fields["model"], fields["voice"]).acoustic in (*name.split("-"), "fastpitch")
        for name, voice in {
            "": pairs.voices[0],
            "emma": "emma",
            "English-US.emma:0.3,heart:0.7": "emma:0.3,heart:0.7",
            "English-US.Female-1": "alloy",
            "English-US-Male-1": "ash",
            "Magpie-Multilingual.EN-US.Aria": "nova",
        }.items():
            assert voice_fields(pairs, name)["voice"] == voice
        assert voice_fields(pairs, "Magpie-Multilingual.EN-US.Leo.Happy")["emotion"] == "happy"
        assert voice_fields(pairs, "English-US.Leo")["voice"] == "echo"
        answer = ask(server, key="secret", text="Hi.", voice="Magpie-Multilingual.EN-US.Leo")
        assert samples_of(answer.content).any()


def test_a_custom_dictionary_is_in_ipa_or_arpabet():
    assert lexicon_of("tomato  T AH0 M AA1 T OW0,Reading town  ˈrɛdɪŋ\nhello  OW1") == {
        "tomato": {"arpabet": "T AH0 M AA1 T OW0"},
        "Reading town": {"ipa": "ˈrɛdɪŋ"},
        "hello": {"arpabet": "OW1"},
    }
