"""What a reading command tells besides its answer."""

from __future__ import annotations

import pytest

from thence.cli.read_notices import exit_code, flow, group_notices, skipped_line
from thence.cli.terminal import columns
from thence.format.codec import BAD_JSON, TORN
from thence.format.records import Notice, Skipped


@pytest.mark.parametrize(
    ("whys", "code"), [([], 0), ([TORN], 0), ([BAD_JSON], 3), ([TORN, BAD_JSON], 3)]
)
def test_skipped_lines_decide_the_exit_code(whys: list[str], code: int) -> None:
    """A torn last line does not: its writer may still be at it."""
    assert code == exit_code([Skipped(1, 0, 1, why) for why in whys])


def test_notices_of_one_kind_are_summed_up() -> None:
    """The first is quoted."""
    notices = [Notice("a", "x"), Notice("b", "y"), Notice("a", "z"), Notice("a", "")]

    assert [Notice("a", "x and 2 more"), Notice("b", "y")] == list(group_notices(notices))


@pytest.mark.parametrize(
    ("skip", "line"),
    [
        (Skipped(4418, 9, 212, "torn"), "skipped line 4,418, 212 bytes: torn"),
        (Skipped(1, 0, 1, "glued", 2), "skipped line 1, 1 byte: glued, 2 records recovered"),
        (Skipped(0, 0, 0, "denied", source="/a"), "skipped file /a: denied"),
    ],
)
def test_skip_is_told_with_its_place_and_reason(skip: Skipped, line: str) -> None:
    """And with what was saved."""
    assert line == skipped_line(skip)


def test_facts_flow_and_are_not_broken_inside() -> None:
    """A line ends between two of them, without a mark at its end."""
    lines = flow(["one fact", "another fact", "", "a third"], 24)

    assert ["one fact · another fact", "a third"] == lines
    assert ["a" * 9 + "…"] == flow(["a" * 50], 10)
    assert all(columns(line) <= 24 for line in lines)
