"""A recogniser's three stages in one graph: what stands in for the CUDA graph runs the captured function."""

import numpy as np
import pytest

from melforge.common.recognition import one_graph
from melforge.common.recognition.loading import make_recogniser
from melforge.common.weights.published import read_checkpoint
from tests.captured import Launched, capture_on_cpu
from tests.jasper.test_model import GOLDEN


@pytest.fixture
def recognisers(monkeypatch):
    """One with its stages in a graph, and one without."""
    source = read_checkpoint(GOLDEN / "checkpoint.pt")
    plain = make_recogniser(source, "torch", "cpu")
    assert plain._graph is None  # type: ignore[attr-defined]
    capture_on_cpu(monkeypatch, one_graph)
    return make_recogniser(source, "torch", "cpu"), plain


def test_it_hears_what_the_stages_hear(recognisers):
    graphed, plain = recognisers
    rng = np.random.default_rng(0)
    audios = [(0.1 * rng.standard_normal(n)).astype(np.float32) for n in (30000, 12000, 23456)]
    kept = []
    for batch in (audios, audios[:1], audios[1:], audios[:1]):
        kept.append((graphed.hear(batch), plain.hear(batch)))
    launched = graphed._graph._captured
    assert (launched.waits, len(launched.runs)) == (4, 3)
    for found, wanted in kept:  # what was heard stays when the graph runs again
        for one, other in zip(found, wanted, strict=True):
            assert one.log_probs.shape == other.log_probs.shape
            assert np.abs(one.log_probs - other.log_probs).max() <= 1e-3
            assert np.abs(one.scores - other.scores).max() <= 1e-3
            assert one.labels.tolist() == other.labels.tolist()


def test_without_a_graph_the_stages_hear(recognisers, monkeypatch):
    graphed, plain = recognisers
    monkeypatch.setattr(Launched, "__call__", lambda self, inputs, own=False: None)
    audio = np.random.default_rng(0).standard_normal(20000).astype(np.float32) * 0.1
    (one,), (other,) = graphed.hear([audio]), plain.hear([audio])
    assert one.labels.tolist() == other.labels.tolist()
