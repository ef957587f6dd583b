import numpy as np
import pytest

from melforge.common.text.frontends import get_frontend


@pytest.mark.teacher
def test_its_seconds_are_those_of_its_audio():
    from recipes.hazel import benchmark_teacher

    text = "Printing was the first of the arts that anybody could afford."
    ids = get_frontend("english")(text).utterances[0].ids
    first, second = benchmark_teacher.speak([ids, ids[:20]])
    assert first.dtype == np.float32 and len(second) < len(first)
    assert 3.2 < len(first) / benchmark_teacher.RATE < 4.2
