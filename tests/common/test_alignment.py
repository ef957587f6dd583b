"""CTC forced alignment on log-probabilities made of known words, with noise."""

from itertools import pairwise

import numpy as np
import pytest

from melforge.common.recognition import alignment
from melforge.common.recognition.alignment import (
    ENDS,
    LEFT_OUT,
    NEVER,
    NO_SPACE,
    TextStates,
    align,
    word_ends,
)

LABELS = " abcdefghijklmnopqrstuvwxyz'"
BLANK = len(LABELS)
STEP = 0.02
SENTENCES = [
    "the earliest book printed with movable types is a work of great beauty",
    "it was made in the middle of the fifteenth century",
    "printers of later times took less care and what they made was cheaper",
    "only in our own day have some of them gone back to the first models",
    "in being comparatively modern the art has neither charm nor tradition",
    "he said that that was all that he had to say",
]


def spoken(words: list[str], rng: np.random.Generator, noise: float, wrong: float = 0.0):
    """Log-probabilities [F, labels + 1] of a recogniser that hears these words, and their times [N, 2].

    `noise` is the deviation of logits; characters are heard as others with the probability `wrong`.
    """
    outputs, times = [BLANK] * 4, []
    for word in words:
        start = len(outputs)
        for place, character in enumerate(word):
            if place and character == word[place - 1]:
                outputs.append(BLANK)
            label = LABELS.index(character)
            if rng.random() < wrong:
                label = int(rng.integers(1, BLANK))
            outputs += [label] * int(rng.integers(1, 3))
            end = len(outputs)
            outputs += [BLANK] * int(rng.integers(0, 3))
        times.append((start * STEP, end * STEP))
        outputs += [0] * int(rng.integers(1, 3)) + [BLANK] * int(rng.integers(0, 4))
    logits = rng.standard_normal((len(outputs), BLANK + 1)) * noise
    logits[np.arange(len(outputs)), outputs] += 8.0
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return log_probs.astype(np.float32), np.array(times)


def aligned(log_probs: np.ndarray, words: list[str], start: float = 0.0):
    return align(log_probs, words, LABELS, start + np.arange(len(log_probs)) * STEP, STEP)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_was_said_is_found_with_its_times(sentence):
    words = sentence.split()
    log_probs, times = spoken(words, np.random.default_rng(1), noise=1.0)
    found = aligned(log_probs, words, 5.0)
    assert found.as_expected and [word.word for word in found.words] == words
    got = np.array([(word.start, word.end) for word in found.words]) - 5.0
    assert np.abs(got - times).max() <= 3 * STEP
    assert all(word.score > 0.9 and not word.again for word in found.words)
    assert all(one.end <= other.start for one, other in pairwise(found.words))


def changed(sentence: str, rng: np.random.Generator) -> dict[str, tuple[list[str], int]]:
    """What is said with a word left out, and with one said again, and the word's number."""
    words = sentence.split()
    number = int(rng.integers(0, len(words)))
    while words[number] in (words[number - 1 : number] + words[number + 1 : number + 2]):
        number = int(rng.integers(0, len(words)))
    return {
        "left out": (words[:number] + words[number + 1 :], number),
        "again": (words[: number + 1] + words[number:], number),
        "as expected": (words, -1),
    }


@pytest.mark.parametrize(("noise", "wrong", "fewest"), [(1.0, 0.0, 1.0), (1.5, 0.08, 0.95)])
def test_words_left_out_or_said_again_are_found(noise, wrong, fewest):
    """Also by a recogniser that mistakes every twelfth character."""
    rng = np.random.default_rng(2)
    right: dict[str, list[bool]] = {"left out": [], "again": [], "as expected": []}
    for _ in range(4):
        for sentence in SENTENCES:
            words = sentence.split()
            for what, (said, number) in changed(sentence, rng).items():
                log_probs, times = spoken(said, rng, noise, wrong)
                found = aligned(log_probs, words)
                missing = [one.number for one in found.left_out]
                again = [one.number for one in found.again]
                wanted = {"left out": ([number], []), "again": ([], [number]), "as expected": ([], [])}[what]
                # Which of "that that" was left out nobody can tell.
                same = [words[n] for n in missing] == [words[n] for n in wanted[0]]
                right[what].append(same and again == wanted[1])
                if what == "again" and right[what][-1]:
                    (one,) = found.again
                    assert abs(one.start - times[number + 1][0]) <= 4 * STEP
                if what == "left out" and right[what][-1] and number:
                    assert abs(found.left_out[0].time - times[number - 1][1]) <= 6 * STEP
    rates = {what: np.mean(found) for what, found in right.items()}
    assert min(rates.values()) >= fewest, rates


def test_a_phrase_said_again_is_found():
    words = SENTENCES[0].split()
    said = words[:6] + words[3:]
    found = aligned(spoken(said, np.random.default_rng(0), 1.0)[0], words)
    assert [one.number for one in found.again] == [3, 4, 5] and not found.left_out


def test_ends_and_runs_of_words_may_be_missing():
    words = SENTENCES[2].split()
    for said in (words[2:], words[:-3], words[:4] + words[9:]):
        found = aligned(spoken(said, np.random.default_rng(0), 1.0)[0], words)
        assert [one.word for one in found.words] == said
        assert len(found.left_out) == len(words) - len(said) and not found.again


def test_nothing_said_leaves_all_out():
    silent = np.full((50, BLANK + 1), -12.0, np.float32)
    silent[:, BLANK] = -1e-4
    found = aligned(silent, ["all", "of", "it"])
    assert not found.words and [one.word for one in found.left_out] == ["all", "of", "it"]
    assert aligned(silent[:0], ["it"]).left_out[0].number == 0
    assert aligned(silent, []).as_expected


def test_words_run_together_are_still_words():
    log_probs, _ = spoken(["notable"], np.random.default_rng(0), 0.5)
    found = aligned(log_probs, ["not", "able"])
    assert found.as_expected and found.words[1].start >= found.words[0].end


def test_a_word_heard_badly_has_a_low_score_and_is_not_missing():
    rng = np.random.default_rng(4)
    words = SENTENCES[1].split()
    said = [word if word != "middle" else "muddle" for word in words]
    found = aligned(spoken(said, rng, 1.0)[0], words)
    assert found.as_expected
    scores = {word.word: word.score for word in found.words}
    assert scores["middle"] < 0.6 < min(score for word, score in scores.items() if word != "middle")


def test_a_word_that_is_cheaper_than_its_price_is_never_left_out():
    """Where characters are heard as well as others, leaving a word out pays only if that costs less."""
    even = np.log(np.full((40, BLANK + 1), 1 / (BLANK + 1), np.float32))
    assert aligned(even, ["a", "b"]).as_expected and LEFT_OUT < 0


def test_of_a_long_text_only_what_is_near_is_looked_at_and_the_same_is_found(monkeypatch):
    """Else an hour of speech would take dozens of gigabytes."""
    rng = np.random.default_rng(0)
    words = [word for sentence in SENTENCES * 3 for word in sentence.split()]
    said = words[:60] + words[64:120] + words[116:]
    log_probs, _ = spoken(said, rng, noise=1.0, wrong=0.1)
    whole = aligned(log_probs, words)
    assert len(whole.left_out) >= 4 and len(whole.again) >= 4
    monkeypatch.setattr(alignment, "NEAR", 30)
    assert len(words) > 200 and aligned(log_probs, words) == whole


@pytest.mark.parametrize("offset", ENDS)
def test_a_word_may_end_without_its_space_at_a_price(offset):
    text = TextStates(["not", "able"], LABELS)
    score = np.full(len(text.ids), NEVER)
    score[text.last[0] + offset] = -7.0
    is_spaced = text.ids[text.last[0] + offset] == LABELS.index(" ") or offset == max(ENDS)
    ends, end = word_ends(score, text, slice(0, 2))
    assert ends[1] == pytest.approx(-7.0 + (0.0 if is_spaced else -2.0)) and NO_SPACE == -2.0
    assert ENDS[end[1]] == offset and ends[2] < -1e8


def evident(said: str, against: dict[int, float]) -> np.ndarray:
    """Log-probabilities of these characters, "-" for the blank. At these places the blank lies so many nats
    below, or where the blank is said, a "b" does.
    """
    outputs = [BLANK if c == "-" else LABELS.index(c) for c in said]
    log_probs = np.full((len(said), BLANK + 1), -12.0, np.float32)
    log_probs[np.arange(len(said)), outputs] = 0.0
    for place, nats in against.items():
        other = LABELS.index("b") if outputs[place] == BLANK else BLANK
        log_probs[place, other] = -nats
    return log_probs


@pytest.mark.parametrize(("nats", "again"), [(0.5, []), (2.0, [0, 1])])
def test_words_are_said_again_where_that_is_worth_its_price(nats, again):
    """To hear nothing there costs four times these nats; to go back costs three in all."""
    found = aligned(evident("a b a b", dict.fromkeys(range(3, 7), nats)), ["a", "b"])
    assert [word.number for word in found.again] == again and not found.left_out


@pytest.mark.parametrize(("nats", "left_out"), [(1.5, []), (6.0, [1])])
def test_the_last_word_is_left_out_where_that_is_worth_its_price(nats, left_out):
    found = aligned(evident("a -", {2: nats}), ["a", "b"])
    assert [word.number for word in found.left_out] == left_out
