"""The page's choice of a speaker, with a voice that has two."""

import json

import pytest

from tests.fastpitch import test_speakers
from tests.serve import test_page
from tests.serve.conftest import running, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.slow]
browser, voice, weights = test_page.browser, test_speakers.voice, test_speakers.weights


def test_a_speaker_or_a_mix_of_two_is_chosen_sent_and_linked(browser, voice):
    with running(voice=str(voice)) as server, test_page.opened(browser, server.url) as page:
        sent = []
        page.page.on("request", lambda one: one.post_data and sent.append(one.post_data))
        first, other, share = (page.part(name) for name in ("speaker", "other", "share"))
        assert first.locator("option").all_inner_texts() == ["ann", "ben"] and share.is_disabled()
        seconds = []
        for choose, speaker in (
            (lambda: None, None),
            (lambda: first.select_option("ben"), "ben"),
            (lambda: (other.select_option("ann"), share.fill("0.3")), "ben:0.70,ann:0.30"),
        ):
            choose()
            page.speak("Hello there.")
            page.wait("whole")
            assert json.loads(sent[-1]).get("speaker") == speaker
            wanted = server.speak(voice="pair", response_format="pcm", sample_rate=22050, speaker=speaker)
            seconds.append(f"{len(wanted.content) / 44100:.2f} s")
            assert page.part("audio").inner_text() == seconds[-1]
        page.part("hear").click()
        page.wait("whole")
        greeting = json.loads(sent[-1])
        assert (greeting["input"], greeting["speaker"]) == (
            "Hello, this is ben. How do I sound to you?",
            "ben:0.70,ann:0.30",
        )
        assert page.page.input_value("#text") == "Hello there."
        assert page.part("mix").inner_text() == "70\u00a0% ben, 30\u00a0% ann" and len({*seconds}) == 3
        page.page.click("#share")
        wait_for(lambda: "address bar" in page.page.inner_text("#status"), "the link")
        with test_page.opened(browser, page.page.url) as again:
            chosen = [again.part(name).input_value() for name in ("speaker", "other", "share")]
            assert chosen == ["ben", "ann", "0.3"]
            again.part("other").select_option("")
            assert not again.part("mix").inner_text() and again.part("share").is_disabled()


def test_a_voice_of_one_speaker_offers_none(browser):
    with running() as server, test_page.opened(browser, server.url) as page:
        assert not page.part("speakers").is_visible()
