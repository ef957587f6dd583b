"""Memory in large pages."""

import mmap
import sys
from pathlib import Path

import pytest

from melforge.common.serve.large_pages import LEAST, use_large_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def advised() -> int:
    """Bytes of this process for which large pages were asked."""
    size = total = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) << 10
        elif line.startswith("VmFlags:") and "hg" in line.split():
            total += size
    return total


@pytest.mark.skipif(sys.platform != "linux" or not SETTING.exists(), reason="no large pages here")
def test_what_is_in_memory_is_put_into_large_pages():
    before = advised()
    with mmap.mmap(-1, 4 * LEAST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(bytes(LEAST))
        use_large_pages()
        assert advised() >= before + 4 * LEAST
        assert held[:LEAST] == bytes(LEAST)
