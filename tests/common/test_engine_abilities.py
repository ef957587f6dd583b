"""Abilities of engines: the base class's, a wrapped engine's; and the store of what is made once."""

import numpy as np
import pytest

from melforge.common import noise
from melforge.common.config.deployment import Bucket
from melforge.common.engines import (
    CapturableEngine,
    Engine,
    Recent,
    WrappedEngine,
    as_capturable,
    attend_to_padding,
)
from melforge.common.engines.buckets import BucketedEngine, EnginePool
from melforge.common.engines.counts import CountedBuckets
from melforge.common.stages import Dim, Stage, TensorSpec

STAGE = Stage(
    "fastpitch",
    "encoder",
    "",
    "",
    (TensorSpec("x", "float32", (Dim("batch", 1, 1, 8), Dim("text", 1, 10, 40))),),
    (TensorSpec("y", "float32", (Dim("batch", 1, 1, 8), Dim("text", 1, 10, 40))),),
)
SMALL, LARGE = Bucket(10, 50), Bucket(40, 150)


class Plain(Engine):
    """An engine that implements what it must."""

    stage, backend, device = STAGE, "torch", "cpu"
    memory_bytes = 3_000_000

    def __init__(self):
        self.memory_owner = self

    def __call__(self, x):
        return {"y": x + 1}


class Able(Plain, CapturableEngine):
    """One whose every ability is another than the base class's."""

    attends_to_padding = False
    prefers_batches = prefers_pieces = can_be_shared = can_be_repeated = True
    text_step = 8
    buckets = CountedBuckets(STAGE, (SMALL, LARGE), lambda bucket: False)

    def capturable(self, bucket=None):
        return lambda inputs: self(**inputs)

    def repeated(self, fixed, state, noise, steps, kept):
        return lambda values: {name: values * steps for name in kept}

    def draw(self, distribution, seeds, first, count):
        return distribution, seeds, first, count


# What engines declare with a default: what a wrapped engine could forget to pass on.
ABILITIES = [name for name in Engine.__annotations__ if hasattr(Engine, name)]


def test_an_engine_draws_on_the_host_unless_it_has_its_own_way():
    what = "normal", [1, 2], 5, 7
    assert np.array_equal(Plain().draw(*what), noise.draw(*what))


def test_what_an_engine_does_not_declare_it_refuses():
    engine = Plain()
    assert attend_to_padding(engine) and not engine.can_be_captured and not engine.can_be_repeated
    with pytest.raises(TypeError, match=r"fastpitch\.encoder on torch cannot be captured"):
        as_capturable(engine)
    with pytest.raises(TypeError, match=r"fastpitch\.encoder on torch has no CUDA graph of several steps"):
        CapturableEngine.repeated(engine, {}, {}, "noise", 4, ("y",))


@pytest.mark.parametrize("name", ABILITIES)
def test_a_wrapped_engine_has_every_ability_of_its_inner_one(name):
    inner = Able()
    assert getattr(inner, name) != getattr(Plain(), name)
    assert getattr(WrappedEngine(WrappedEngine(inner)), name) is getattr(inner, name)


def test_a_wrapped_engine_makes_every_call_of_its_inner_one():
    inner = Able()
    engine = WrappedEngine(inner)
    x = np.zeros((1, 4), np.float32)
    assert (engine.stage, engine.backend, engine.device) == (STAGE, "torch", "cpu")
    assert engine.memory_bytes == inner.memory_bytes and engine.memory_owner is inner
    for outputs in (engine(x=x), as_capturable(engine).capturable()({"x": x})):
        assert (outputs["y"] == 1).all()
    assert engine.repeated({}, {}, "noise", 4, ("y",))(2) == {"y": 8}
    assert engine.draw("uniform", [3], 0, 4) == ("uniform", [3], 0, 4)


def test_a_wrapped_engine_passes_counts_on():
    inner = BucketedEngine(STAGE, (SMALL, LARGE), lambda *_: Plain(), EnginePool(), "torch", "cpu")
    engine = WrappedEngine(inner)
    buckets = engine.buckets
    assert list(buckets.uses) == [SMALL, LARGE] and buckets.covering(text=11) == LARGE
    assert not engine.can_be_captured and not engine.can_be_repeated
    buckets.count_call(SMALL, 2, 15)
    buckets.count_padding(SMALL, 5)
    buckets.count_miss(SMALL)
    buckets.count_miss()
    first, second = buckets.report()
    assert (first["calls"], first["steps"], first["valid"], first["misses"]) == (1, 20, 10, 1)
    assert second["misses"] == 1
    buckets.count_anew()
    assert [row["calls"] + row["misses"] for row in buckets.report()] == [0, 0]
    engine(x=np.zeros((1, 4), np.float32))
    assert engine.memory_bytes == Plain.memory_bytes


def test_what_was_unused_for_longest_goes_first():
    gone: list[str] = []
    recent: Recent[int, str] = Recent(2, gone.append)
    for key in (1, 2, 1, 3):
        assert recent.get_or_make(key, lambda key=key: f"made {key}") == f"made {key}"
    assert list(recent) == [1, 3] and gone == ["made 2"]
    assert recent.get_or_make(1, lambda: "again") == "made 1"
    recent.drop_oldest()
    assert list(recent) == [1] and gone == ["made 2", "made 3"]


def test_what_cannot_be_made_costs_no_other():
    recent: Recent[int, str] = Recent(1)
    recent.get_or_make(1, lambda: "one")

    def fail() -> str:
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        recent.get_or_make(2, fail)
    assert recent == {1: "one"}
