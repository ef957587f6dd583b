"""The order in which texts are analysed, with analyses that note their steps."""

import asyncio
import threading

import pytest

from melforge.common.errors import InputError
from melforge.common.runner import AnalysedText
from melforge.common.serve.priority import hurrying
from melforge.common.serve.texts import TextAnalyser
from melforge.common.text.lexicon import Lexicon
from tests.serve.test_scheduler import goes_first, own_policy

OWN_WORDS = Lexicon(())


class Noting:
    """Notes whose sentence it analyses; a text's sentences are its letters. "w" waits for the gate."""

    def __init__(self):
        self.steps, self.gate, self.begun = [], threading.Event(), threading.Event()

    def analysing(self, text, own_words=None, speaker=0):
        for sentence in text:
            self.steps.append(sentence)
            if sentence == "w":
                self.begun.set()
                self.gate.wait(60)
            yield None
        if text == "e":
            raise InputError("nothing can be spoken")
        yield AnalysedText((), text=text)


def analyse(tts, texts, meanwhile=lambda tasks: None):
    """The results of all that wait behind a text that holds the thread, by its own words."""

    async def run():
        analyser = TextAnalyser()
        tasks = [asyncio.create_task(analyser.analyse(tts, "w", own_words=OWN_WORDS))]
        tasks += [asyncio.create_task(analyser.analyse(tts, text)) for text in texts]
        await asyncio.to_thread(tts.begun.wait, 60)
        meanwhile(tasks[1:])
        await asyncio.sleep(0)
        tts.gate.set()
        try:
            return (await asyncio.gather(*tasks, return_exceptions=True))[1:]
        finally:
            analyser.stop()

    return asyncio.run(run())


def test_short_texts_come_before_long_ones_that_came_earlier():
    tts = Noting()
    found = analyse(tts, ["p" * 9000, "q" * 4000, "s"])
    assert [len(one.text) for one in found] == [9000, 4000, 1]
    assert "".join(tts.steps) == "ws" + "q" * 4000 + "p" * 9000


def test_a_short_text_is_analysed_at_once_while_no_other_is():
    async def run():
        analyser, tts = TextAnalyser(), Noting()
        with pytest.raises(StopIteration) as found:
            analyser.analyse(tts, "aa").send(None)  # it awaits nothing
        with pytest.raises(InputError):
            await analyser.analyse(tts, "e")
        other_script = analyser.analyse(Noting(), "\u4e2d")
        assert asyncio.isfuture(other_script.send(None))
        other_script.close()
        tts.steps.clear()
        first = asyncio.create_task(analyser.analyse(tts, "w", own_words=OWN_WORDS))
        await asyncio.to_thread(tts.begun.wait, 60)
        behind = asyncio.create_task(analyser.analyse(tts, "s"))
        await asyncio.sleep(0.05)
        waited = not behind.done() and tts.steps == ["w"]
        tts.gate.set()
        await asyncio.gather(first, behind)
        analyser.stop()
        return found.value.value.text, waited

    assert asyncio.run(run()) == ("aa", True)


def test_a_fault_is_a_text_s_own():
    tts = Noting()
    fault, whole = analyse(tts, ["e", "w" + "p" * 50])
    assert isinstance(fault, InputError) and whole.text == "w" + "p" * 50


def test_what_is_cancelled_is_left_out():
    tts = Noting()
    gone, found = analyse(tts, ["gg", "ss"], lambda tasks: tasks[0].cancel())
    assert isinstance(gone, asyncio.CancelledError) and found.text == "ss" and tts.steps == ["w", "s", "s"]


@own_policy
def test_short_texts_are_analysed_before_what_else_a_core_could_do_and_books_are_not():
    class Noted(Noting):
        def analysing(self, text, own_words=None, speaker=0):
            for one in super().analysing(text):
                found.setdefault(text[0], set()).add(goes_first())
                yield one

    found = {}
    with hurrying(True) as first:
        pass
    analyse(Noted(), ["s" * 50, "b" * 1100])
    assert found == {"w": {first}, "s": {first}, "b": {False}}


def test_a_stopped_analyser_s_thread_ends():
    before = set(threading.enumerate())
    analyser = TextAnalyser()
    (thread,) = set(threading.enumerate()) - before
    analyser.stop()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "text", ["", "...", "One. Two is here; and so on.\n\nThree \u4e2d is. Four \u4e2d \u6587!"]
)
def test_a_text_by_its_sentences_is_the_whole(direct, text):
    try:
        wanted = direct.frontend(text)
        *behind, analysed = direct.analysing(text)
    except InputError as error:
        assert "no audio made" in str(error) and not wanted.utterances
        return
    assert behind == [None] * 4
    for one, other in zip(analysed.utterances, wanted.utterances, strict=True):
        assert (one.text, one.symbols, one.pause) == (other.text, other.symbols, other.pause)
    assert [(one.symbol, one.position) for one in analysed.unspoken] == [
        ("\u4e2d", 36)
    ]  # its script is reported once
