"""Changes of YAML text: one item more, or fewer, and no other byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.cli import yaml_text
from thence.cli.yaml_text import NotUnderstood

yaml = pytest.importorskip("yaml")

ITEM = {"command": "/h/bin/thence", "args": ["mcp", "a b"], "timeout": 3}
TEXTS = (
    "",
    "# nothing is set\n",
    "model: made-up\n",
    "model: made-up",
    "---\nmodel:\n  name: x # mine\n\n# the end\n",
    "servers:\n    other: {command: x}\nmodel: y\n",
    "servers:\n  other:\n    command: x\n    args:\n    - a\n    - b\n# behind\n",
    "servers: {}\nmodel: y\n",
    'servers: {"other": {"command": "x"}} # mine\n',
    "model: |\n  servers:\n    no: place\nz: 1\n",
    "a: >-\n  text\n\n  more\nservers:\n  'other': x\n",
    "list:\n- a\n- b: 1\n  c: 2\nmodel: y\n",
)


def is_ours(item: str) -> bool:
    """Return whether an item is the one that was put in."""
    return "bin/thence" in item


@pytest.mark.parametrize("text", TEXTS)
def test_an_item_comes_under_a_name_and_goes_again(text: str) -> None:
    """Read by another reader; then byte for byte as before."""
    before = yaml.safe_load(text) or {}
    after = yaml_text.insert(text, ["servers"], ITEM, "thence")

    assert {**before, "servers": {**(before.get("servers") or {}), "thence": ITEM}} == (
        yaml.safe_load(after)
    )
    assert ITEM == dict(yaml_text.items(after, ["servers"]))["thence"]
    assert text == yaml_text.remove(after, ["servers"], is_ours)


LISTS = (
    "",
    "x: 1\n",
    "hooks:\n  start:\n  - command: mine\n    timeout: 9\n  # none at the end\nz: 1\n",
    "hooks:\n  start:\n    - command: mine\n",
    "hooks:\n  other:\n    - command: mine\n",
    "hooks: {}\n",
    'hooks: {"other": [{"command": "mine"}]}\nz: 1\n',
    "hooks:\n  start: [{command: mine}]\n",
)


@pytest.mark.parametrize("text", LISTS)
def test_an_item_comes_into_a_list_two_levels_down_and_goes_again(text: str) -> None:
    """As hooks stand: a list per event."""
    before = yaml.safe_load(text) or {}
    hooks = before.get("hooks") or {}
    after = yaml_text.insert(text, ["hooks", "start"], ITEM)
    read = yaml.safe_load(after)

    start = hooks.get("start", [])
    assert sorted([ITEM, *start], key=str) == sorted(read["hooks"]["start"], key=str)
    read["hooks"]["start"] = start
    assert {**before, "hooks": {**hooks, "start": start}} == read
    back = yaml_text.remove(after, ["hooks", "start"], is_ours)
    assert text == yaml_text.remove(back, ["hooks"], is_ours)


def test_an_item_that_the_agent_wrote_anew_is_found_and_goes() -> None:
    """Agents write their settings in a form of their own."""
    data = {"servers": {"a": {"x": 1}, "thence": ITEM, "z": {}}, "other": [1]}
    text = yaml.safe_dump(data, sort_keys=False)
    entry = dict(yaml_text.items(text, ["servers"]))["thence"]

    assert (ITEM["command"], ITEM["args"]) == (entry["command"], entry["args"])
    rest = yaml_text.remove(text, ["servers"], lambda item: item.startswith("  thence:"))
    assert {"servers": {"a": {"x": 1}, "z": {}}, "other": [1]} == yaml.safe_load(rest)


@pytest.mark.parametrize(
    "text",
    [
        "- a\n- b\n",
        "{a: 1}\n",
        "servers: &x\n  a: 1\n",
        "servers: text\n",
        "servers:\n\ta: 1\n",
        "a: 1\n---\nb: 2\n",
        "servers: {a: 1,\n  b: 2}\n",
        "servers:\n  a: 1\nservers:\n  b: 1\n",
        "servers: {thence: 1}\n",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    """Nothing is written that might say something else."""
    with pytest.raises(NotUnderstood):
        yaml_text.insert(text, ["servers"], ITEM, "thence")


_WORDS = st.text("abcxyz -_.", min_size=1, max_size=8).filter(lambda word: word.strip() == word)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_WORDS | st.just("servers"), _VALUES, max_size=4), st.booleans())
def test_any_settings_take_an_item_or_refuse_it(data: dict[str, Any], flow: bool) -> None:
    """Whatever they hold: nothing else changes, and the item goes without a trace."""
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None if flow else False)
    servers = data.get("servers")
    try:
        after = yaml_text.insert(text, ["servers"], ITEM, "thence")
    except NotUnderstood:
        return

    assert servers is None or isinstance(servers, dict)
    assert {**data, "servers": {**(servers or {}), "thence": ITEM}} == yaml.safe_load(after)
    if servers is not None or "servers" not in data:
        assert text == yaml_text.remove(after, ["servers"], is_ours)
