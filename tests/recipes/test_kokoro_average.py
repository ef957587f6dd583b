"""The mean of two networks' weights."""

import numpy as np
import pytest

from melforge.common.errors import InputError
from recipes.kokoro.average import averaged


def test_each_weight_is_the_mean_of_both_in_the_type_of_the_second():
    first = {"weight": np.float32([[1.0, -2.0]])}
    mean = averaged(first, {"weight": np.float16([[3.0, 2.0]])})
    assert mean["weight"].dtype == np.float16 and mean["weight"].tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize("other", [{"bias": np.zeros(2)}, {"weight": np.zeros(3)}])
def test_networks_of_other_sizes_have_no_mean(other):
    with pytest.raises(InputError, match="other networks: weight differs"):
        averaged(other, {"weight": np.zeros(2, np.float16)})
