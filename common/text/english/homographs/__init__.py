"""Words that are written alike and said in two ways (a record, to record), told apart by their neighbours."""

from __future__ import annotations

from melforge.common.text.english.homographs.table import choose, find, load, readings, usual, verb

__all__ = ["choose", "find", "load", "readings", "usual", "verb"]
