"""The frontend's networks: their products, and whose thread they take."""

import subprocess
import sys

import numpy as np
import pytest

from melforge.common.text.english.homographs.network import Matrix

UNKNOWN_WORDS = """
import random, time
from melforge.common.text.english.letters import load_letter_reader
reader, draw = load_letter_reader(), random.Random(0)
words = ["".join(draw.choices("aeioubdklmnrst", k=12)) for _ in range(60)]
reader(words[0])
whole, own = time.process_time(), time.thread_time()
for word in words:
    reader(word)
print(time.process_time() - whole, time.thread_time() - own)
"""


@pytest.mark.parametrize("shape", [(478, 64), (160, 640), (256, 115), (3, 5), (12_000, 2)])
@pytest.mark.parametrize("rows", [1, 4, 20])
def test_they_are_the_matrix_s(shape, rows):
    random = np.random.default_rng(0)
    matrix = random.standard_normal(shape, dtype=np.float32)
    given = random.standard_normal((rows, shape[0]), dtype=np.float32)
    np.testing.assert_allclose(given @ Matrix(matrix), given @ matrix, rtol=1e-3, atol=1e-3)


def test_unknown_words_take_no_other_thread():
    """Where cores were busy, handing a word's products to BLAS's threads took twenty times as long as it."""
    ran = subprocess.run([sys.executable, "-c", UNKNOWN_WORDS], capture_output=True, text=True, check=True)
    whole, own = map(float, ran.stdout.split())
    assert whole < 1.2 * own
