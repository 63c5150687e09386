"""Changes of JSON text: what is asked for changes, and not one byte beside it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from thence.cli.json_text import append, remove

NAMES = st.sampled_from(["a", "b", 'q"', "é", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)
STYLES = st.sampled_from([None, 0, 2, "\t"])


@given(st.dictionaries(NAMES, VALUES, max_size=4), STYLES)
def test_what_is_appended_and_removed_leaves_the_text_as_it_was(
    data: dict[str, Any], indent: int | str | None
) -> None:
    """In any style; a container that was empty is empty again."""
    text = json.dumps(data, indent=indent)
    longer = append(text, [], '"new": [1, {}]')

    assert data | {"new": [1, {}]} == json.loads(longer)
    assert text == remove(longer, ["new"])

    for name, value in data.items():
        if isinstance(value, list):
            longer = append(text, [name], "7")
            assert data | {name: [*value, 7]} == json.loads(longer)
            assert text == remove(longer, [name, len(value)])


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), STYLES)
def test_any_item_can_be_removed(data: dict[str, Any], indent: int | str | None) -> None:
    """The first, the last, one in between: the rest says what it said."""
    text = json.dumps(data, indent=indent)
    for name in data:
        rest = {other: value for other, value in data.items() if other != name}

        assert rest == json.loads(remove(text, [name]))
