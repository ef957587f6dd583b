"""Segments of a corpus with harmonic sources beside its audio."""

from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.errors import InputError
from melforge.common.training.corpus import batches
from melforge.common.training.corpus.dataset import HOP, RATE, load_labels
from melforge.common.training.corpus.sources import SOURCES, SourcedSegments, load_source
from melforge.hifigan.source_filter import pulses
from tests.sourced_corpus import FRAMES, write_sourced_corpus

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_sourced_corpus(tmp_path_factory.mktemp("sources") / "corpus")


@pytest.fixture
def few_validate(monkeypatch) -> None:
    monkeypatch.setattr(batches, "VALIDATION_FRAMES", 30)


def load(corpus: Path, edges: int = 0) -> SourcedSegments:
    return SourcedSegments(corpus, MelContract(), [], CPU, edges)


def test_what_stands_beside_a_segment_is_what_the_files_hold(corpus):
    segments, labels = load(corpus), load_labels(corpus)
    firsts = np.cumsum(labels.frames) - labels.frames
    for number in (0, 3, 7):
        source = load_source(corpus, labels.names[number], FRAMES[number])
        beside = segments.beside(torch.tensor([firsts[number], firsts[number] + 4]), 12)
        _, audio = segments.cut(torch.tensor([firsts[number] + 4]), 12, torch.tensor([0]))
        for row, first in enumerate((0, 4)):
            at, samples = slice(first, first + 12), slice(first * HOP, (first + 12) * HOP)
            given = {name: value[row].numpy() for name, value in beside.items()}
            np.testing.assert_array_equal(given["source"][0], source.phase[at])
            np.testing.assert_allclose(given["source"][1], source.pitch[at] / RATE, rtol=1e-6)
            np.testing.assert_array_equal(given["voiced"], source.voiced[at])
            np.testing.assert_array_equal(given["harmonic"][0] * 32768, source.harmonic[samples])
        noise = (audio - beside["harmonic"][1:]).std()
        assert noise == pytest.approx(0.01, rel=0.05)  # all that is left: audio and harmonic part are in step


def test_a_segments_pulses_are_those_of_the_whole_utterance(corpus):
    segments = load(corpus)
    (whole,), (part,) = (
        pulses(segments.beside(torch.tensor([first]), frames)["source"], HOP)
        for first, frames in ((0, FRAMES[0]), (6, 20))
    )
    # Before the first centre and behind the last one the pitch goes on evenly.
    between = slice(HOP // 2, 20 * HOP - HOP // 2)
    assert (part[between] - whole[6 * HOP : 26 * HOP][between]).abs().max() < 1e-3 * whole.abs().max()


def test_segments_at_the_edges_begin_and_end_with_utterances(corpus, few_validate):
    frames, edges, segments = 25, 2, load(corpus, edges=2)
    ends = np.cumsum(FRAMES)
    firsts = ends - FRAMES
    limit = sum(FRAMES) - segments.validation_frames - frames
    random = torch.Generator().manual_seed(0)
    drawn = np.array([segments.draw_starts(8, frames, limit, random).tolist() for _ in range(200)])
    fit = (np.array(FRAMES) >= frames) & (ends <= limit + frames)
    assert set(drawn[:, :edges].ravel()) == set(firsts[fit])
    assert set(drawn[:, edges : 2 * edges].ravel() + frames) == set(ends[fit])
    assert len(set(drawn[:, 2 * edges :].ravel())) > 100  # anywhere
    assert drawn.min() >= 0 and drawn.max() <= limit
    _, drawn = next(segments.batches(8, frames, 0.0, seed=1))
    batch = segments.place(segments.fetch(drawn, frames), frames)
    shapes = {"mel": (8, 80, frames), "audio": (8, 1, frames * HOP), "source": (8, 2, frames)}
    shapes |= {"voiced": (8, frames), "harmonic": (8, 1, frames * HOP)}
    assert {name: tuple(value.shape) for name, value in batch.items()} == shapes


def test_segments_that_are_longer_than_all_utterances_have_no_edges(corpus, few_validate):
    with pytest.raises(InputError, match=r"no utterance .* has the 50 frames of a segment: give fewer segm"):
        next(load(corpus, edges=1).batches(4, 50, 0.0, seed=0))
    assert next(load(corpus).batches(4, 50, 0.0, seed=0))


def test_a_source_that_is_missing_or_of_another_reading_is_named(tmp_path):
    corpus = write_sourced_corpus(tmp_path / "corpus")
    shorter, longer = (load_source(corpus, name, FRAMES[int(name[1])]) for name in ("u1", "u2"))
    for other in (shorter, longer):
        other.save(corpus, "u4")
        with pytest.raises(
            InputError, match=r"u4\.npz has \d+ frames, the corpus's labels 28: prepare .* again"
        ):
            load(corpus)
    (corpus / SOURCES / "u4.npz").unlink()
    with pytest.raises(InputError, match=r"sources/u4\.npz is missing: prepare the corpus with --sources"):
        load(corpus)
