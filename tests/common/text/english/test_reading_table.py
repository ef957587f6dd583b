"""The shares of docs/reading.md hold."""

import pytest

from tests import reading_table

SAID = reading_table.shares(reading_table.DOCUMENT.read_text(encoding="utf-8"))


def test_the_table_has_every_category():
    assert set(SAID) == {*reading_table.categories(), "all"}
    assert SAID["all"] == tuple(map(sum, zip(*(SAID[name] for name in SAID if name != "all"), strict=True)))


@pytest.mark.parametrize("category", reading_table.categories())
def test_no_category_is_read_worse_than_the_table_says(category):
    read_now = reading_table.cases(category)
    assert len(read_now) >= 60
    right, right_held_out = reading_table.counts(read_now)
    assert (right >= SAID[category][0], right_held_out >= SAID[category][1]) == (True, True)


@pytest.mark.parametrize(
    "said, wanted",
    [
        ("A B-52", "ab fifty-two"),
        ("salt & pepper", "Salt, and pepper."),
        ("the dogs'", "the dogs"),
        ("Mr", "mister"),
    ],
)
def test_readings_are_compared_loosely(said, wanted):
    same = said.replace("52", "fifty two").replace("&", "and")
    assert reading_table.loose(same) == reading_table.loose(wanted)
