"""Words that are written alike and said in two ways (a record, to record), told apart by their neighbours."""

from __future__ import annotations

from melforge.common.text.english.homographs.table import choose, load, readings, usual, verb

__all__ = ["choose", "load", "readings", "usual", "verb"]
