"""Speaking again: other seeds, then pieces, only for what went wrong, and the best of all is kept."""

import numpy as np
import pytest

from melforge.common.speech import AcousticOutput, Controls, MelTooLong
from melforge.common.synthesis.utterances import speak_utterances
from melforge.common.text import Utterance
from melforge.common.text.frontends import get_frontend

FRAMES = 3  # of each symbol
LONG = "Behind the old mill stood a tall ladder, and nobody knew for what reason it had been left there."


class Moody:
    """An acoustic model that says which utterances it speaks badly: `bad` of the symbols and the seed."""

    def __init__(self, bad, attention: bool = True):
        self.bad = bad
        self.attention = attention
        self.calls: list[tuple[int | tuple[int, ...], list[str]]] = []

    def synthesise(self, ids, controls, styles=()) -> AcousticOutput:
        symbols = get_frontend("english").symbols
        texts = ["".join(symbols[i] for i in row) for row in ids]
        seeds = [one.seed for one in controls]
        self.calls.append((seeds[0] if len(set(seeds)) == 1 else tuple(seeds), texts))
        lengths = np.array([len(row) for row in ids])
        durations = np.where(np.arange(lengths.max()) < lengths[:, None], FRAMES, 0)
        frames = np.repeat(np.arange(lengths.max()), FRAMES)
        alignment = np.tile(np.eye(lengths.max(), dtype=np.float32)[frames], (len(ids), 1, 1))
        mel = np.zeros((len(ids), 80, lengths.max() * FRAMES), np.float32) + np.array(seeds)[:, None, None]
        return AcousticOutput(
            mel=mel.astype(np.float32),
            mel_lengths=lengths * FRAMES,
            durations=durations,
            pitch=None if self.attention else durations.astype(np.float32),
            alignment=alignment if self.attention else None,
            alignment_lengths=lengths * FRAMES if self.attention else None,
            problems=tuple(map(self.bad, texts, seeds)),
        )


@pytest.fixture(scope="module")
def frontend():
    return get_frontend("english")


@pytest.fixture(scope="module")
def utterances(frontend) -> list[Utterance]:
    return [u for text in ("A short one.", LONG) for u in frontend(text).utterances]


def test_without_retries_problems_are_only_told(frontend, utterances):
    model = Moody(lambda text, seed: "it wanders" if len(text) > 40 else "")
    said = speak_utterances(model, frontend.symbols, utterances, Controls(), 0)
    assert [one.problem for one in said] == ["", "it wanders"]
    assert len(model.calls) == 1


def test_only_what_went_wrong_is_spoken_again(frontend, utterances):
    model = Moody(lambda text, seed: "it wanders" if len(text) > 40 and seed != 7 else "")
    short, long = speak_utterances(model, frontend.symbols, utterances, Controls(seed=5), 3)
    assert [(seed, len(texts)) for seed, texts in model.calls] == [(5, 2), (6, 1), (7, 1)]
    assert (short.note, short.problem) == ("", "")
    assert (long.note, long.problem) == ("spoken again with seed 7", "")
    assert short.mel[0, 0] == 5 and long.mel[0, 0] == 7


def test_each_is_spoken_again_with_its_own_further_seeds(frontend, utterances):
    """What an utterance gets does not depend on its neighbours' controls."""

    def bad(text, seed):
        return "it wanders" if seed not in (7, 31) else ""

    mates = [utterances[1], utterances[0], utterances[1]]
    controls = [Controls(seed=5), Controls(seed=31), Controls(seed=29)]
    model = Moody(bad)
    first, second, third = speak_utterances(model, frontend.symbols, mates, controls, 3)
    assert [seeds for seeds, _ in model.calls] == [(5, 31, 29), (6, 30), (7, 31)]
    assert [one.note for one in (first, second, third)] == [
        "spoken again with seed 7",
        "",
        "spoken again with seed 31",
    ]
    assert [one.mel[0, 0] for one in (first, second, third)] == [7, 31, 31]
    model = Moody(lambda text, seed: "it wanders" if text.count("@") > 24 else "")
    _, in_segments = speak_utterances(model, frontend.symbols, utterances, controls[1:], 1)
    assert in_segments.segments > 1 and set(in_segments.mel[0]) <= {29.0, 30.0}


def test_then_it_is_spoken_in_pieces(frontend, utterances):
    longest = len(utterances[1].ids) * 2 // 3
    model = Moody(lambda text, seed: "it never ends" if text.count("@") > longest * 0.8 else "")
    _, long = speak_utterances(model, frontend.symbols, utterances, Controls(), 1)
    assert (long.note, long.problem) == ("spoken in 2 pieces", "")
    size = len(utterances[1].ids)
    assert long.durations.shape == (size,) and long.mel.shape == (80, long.durations.sum())
    assert (long.durations >= FRAMES).all() and long.durations.sum() == size * FRAMES
    assert long.alignment.shape == (long.mel.shape[1], size)
    np.testing.assert_array_equal(long.alignment.sum(1), 1)
    # The attention goes through all of the text in order.
    assert (np.diff(long.alignment.argmax(1)) >= 0).all()


def test_a_piece_that_still_fails_is_halved_again(frontend, utterances):
    model = Moody(lambda text, seed: "it repeats itself" if text.count("@") > 24 else "")
    (long,) = speak_utterances(model, frontend.symbols, utterances[1:], Controls(), 1)
    assert long.note == "spoken in 4 pieces" and not long.problem
    # A comma that only a piece has counts to the symbol before it.
    commas = long.durations.sum() // FRAMES - len(utterances[1].ids)
    assert 0 < commas <= 3 and sorted(set(long.durations.tolist())) == [FRAMES, 2 * FRAMES]


def test_the_best_is_kept_and_what_is_still_wrong_is_told(frontend, utterances):
    first = "".join(utterances[1].symbols[1:9])
    model = Moody(lambda text, seed: f"stuck in seed {seed}" if first in text else "")
    (long,) = speak_utterances(model, frontend.symbols, utterances[1:], Controls(), 1)
    assert long.note.startswith("spoken in") and long.problem == "stuck in seed 0"
    assert 0 < long.trouble < 0.5

    hopeless = Moody(lambda text, seed: f"stuck in seed {seed}")
    (long,) = speak_utterances(hopeless, frontend.symbols, utterances[1:], Controls(), 2)
    assert (long.note, long.problem, long.trouble) == ("", "stuck in seed 0", 1.0)


def test_the_same_call_gives_the_same_result(frontend, utterances):
    def speak():
        model = Moody(lambda text, seed: "it wanders" if text.count("@") > 30 - seed else "")
        return speak_utterances(model, frontend.symbols, utterances, Controls(), 2), model.calls

    (first, calls), (second, again) = speak(), speak()
    assert calls == again
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.mel, other.mel)


def test_without_noise_no_other_seed_is_tried(frontend, utterances):
    model = Moody(lambda text, seed: "it wanders" if text.count("@") > 40 else "")
    speak_utterances(model, frontend.symbols, utterances, Controls(dropout=False), 5)
    assert {seed for seed, _ in model.calls} == {0}


def test_pitches_are_joined_too(frontend, utterances):
    model = Moody(lambda text, seed: "it wanders" if text.count("@") > 60 else "", attention=False)
    (long,) = speak_utterances(model, frontend.symbols, utterances[1:], Controls(), 1)
    assert long.note == "spoken in 2 pieces" and long.alignment is None
    np.testing.assert_array_equal(long.pitch, FRAMES)


def test_pieces_go_in_batches_no_larger_than_the_first(frontend, utterances):
    model = Moody(lambda text, seed: "it wanders" if text.count("@") > 10 else "")
    speak_utterances(model, frontend.symbols, utterances, Controls(), 1)
    assert max(len(texts) for _, texts in model.calls) == 2


class Short(Moody):
    """One that takes so many frames only, as a bucket does."""

    def __init__(self, longest: int):
        super().__init__(lambda text, seed: "")
        self.longest = longest

    def synthesise(self, ids, controls, styles=()) -> AcousticOutput:
        rows = [row for row, item in enumerate(ids) if len(item) * FRAMES > self.longest]
        if rows:
            self.calls.append((controls[0].seed, []))
            raise MelTooLong(
                f"{FRAMES * max(map(len, ids))} frames; up to {self.longest}: raise the pace", rows
            )
        return super().synthesise(ids, controls)


@pytest.mark.parametrize("longest", [120, 60, 30])
def test_what_is_too_long_is_spoken_in_pieces_and_its_batch_mates_as_ever(frontend, utterances, longest):
    model = Short(longest)
    mates = [utterances[0], utterances[1], utterances[0]]
    short, long, other = speak_utterances(model, frontend.symbols, mates, Controls(), 0)
    if len(utterances[0].ids) * FRAMES <= longest:
        assert short.note == other.note == "" and short.mel.shape[1] == len(utterances[0].ids) * FRAMES
    assert long.segments > 1 and long.note == f"spoken in {long.segments} pieces"
    assert long.durations.shape == (len(utterances[1].ids),) and (long.durations >= FRAMES).all()
    assert long.mel.shape[1] == long.durations.sum() == long.alignment.shape[0]


def test_what_cannot_be_cut_any_more_raises_the_models_error(frontend, utterances):
    with pytest.raises(MelTooLong, match="up to 5: raise the pace"):
        speak_utterances(Short(5), frontend.symbols, utterances, Controls(), 0)
