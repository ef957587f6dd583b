"""The frontend's networks run on their caller's thread."""

import subprocess
import sys

import pytest

TIMED = """
import random, time
{make}
draw = random.Random(0)
words = ["".join(draw.choices("aeioubdklmnrst", k=12)) for _ in range(60)]
run(words[0])
whole, own = time.process_time(), time.thread_time()
for word in words:
    run(word)
print(time.process_time() - whole, time.thread_time() - own)
"""
LETTERS = "from melforge.common.text.english.letters import load_letter_reader; run = load_letter_reader()"
HOMOGRAPHS = """
from melforge.common.text.english.homographs.network import load_network
run = lambda word: [load_network().part_of_speech(["they", word, "the", "records"], 3) for _ in range(20)]
"""


@pytest.mark.parametrize("make", [LETTERS, HOMOGRAPHS])
def test_they_take_no_other_thread(make):
    """Where cores were busy, handing a product to BLAS's threads took twenty times as long as it."""
    code = TIMED.format(make=make)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    whole, own = map(float, ran.stdout.split())
    assert whole < 1.2 * own
