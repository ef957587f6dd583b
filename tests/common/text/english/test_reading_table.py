"""The shares of docs/reading.md hold."""

import pytest

from tests import reading_table

SAID = reading_table.shares(reading_table.DOCUMENT.read_text(encoding="utf-8"))


def test_the_table_has_every_category():
    assert set(SAID) == {*reading_table.categories(), "all"}
    assert SAID["all"] == tuple(map(sum, zip(*(SAID[name] for name in SAID if name != "all"), strict=True)))


@pytest.mark.parametrize("category", reading_table.categories())
def test_no_case_of_a_category_is_read_worse_than_before(category):
    read_now, known = reading_table.cases(category), reading_table.known_wrong()
    assert len(read_now) >= 60
    worse = [case for case in read_now if not case.right and case.key not in known]
    assert [f"{case.written}: {case.said}, not {case.wanted}" for case in worse] == []
