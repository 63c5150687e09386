"""Originals: kept beside what is shown, long texts once, and given back equal."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.bridge.sdk_records import LONG, NotPlain, fold, plain, session_name, unfold
from thence.errors import MissingPackage, ThenceError
from thence.format import codec, layout
from thence.journal import Journal

TEXTS = st.sampled_from(["", "=", "short", "a" * LONG, "b" * (LONG + 9)])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(VALUES, VALUES)
def test_an_original_comes_back_equal_whatever_it_holds(original: Any, shown: Any) -> None:
    """Through the bytes of a log as well, and neither value is touched."""
    before = plain([original, shown])
    written = plain(fold(original, shown))

    assert original == unfold(written, plain(shown))
    assert before == [original, shown]


def test_a_long_text_is_kept_once() -> None:
    """What is shown holds it; the original names it."""
    text = "x" * 5000

    assert len(codec.dump(fold({"a": [text], "b": text}, {"content": text}))) < 100


def test_what_belongs_to_other_words_gives_nothing() -> None:
    """Never a wrong text."""
    text = "x" * 500
    folded = fold({"a": text}, {"content": text})

    assert unfold(folded, {"content": "short"}) is None
    assert unfold({"a": {"=": -1}}, {"content": text}) is None
    assert unfold({"a": {"=": True}}, {"content": text}) is None


def test_a_uuid_names_its_session_and_any_other_word_is_hashed() -> None:
    """Two SDKs that say `1` mean two things; every name is one that a file may have."""
    own = "7f3a91c2-55d0-4c1e-9a53-0d6c1f2b7e10"
    names = {session_name(bridge, scope, "1") for bridge in "ab" for scope in "pq"}

    assert own == session_name("a", "p", own)
    assert 4 == len(names)
    assert all(layout.is_id(name) for name in names)
    assert layout.is_id(session_name("a", "../..", "../../etc\0\ud800"))


def test_a_copy_is_plain_and_does_not_change_with_its_source() -> None:
    """Lone surrogates and large numbers included."""
    source = {"a": [1, 2**70, "\ud800"], "b": (1, 2)}
    copied = plain(source)
    source["a"] = []

    assert {"a": [1, 2**70, "\ud800"], "b": [1, 2]} == copied


def test_what_json_has_no_words_for_is_refused_as_the_sdks_would() -> None:
    """A TypeError for their callers, an error of ours for ours."""
    with pytest.raises(NotPlain) as caught:
        plain([object()])

    assert isinstance(caught.value, ThenceError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("bridge", "extra"),
    [
        ("langgraph", "langgraph"),
        ("openai_agents", "agents-sdk"),
        ("pydantic_ai", "pydantic-ai"),
        ("claude_agent_sdk", "claude-sdk"),
    ],
)
def test_a_bridge_without_its_sdk_names_the_extra(
    bridge: str, extra: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command to type; who catches an import error catches it, too."""
    modules = "langgraph.checkpoint.base agents.memory.session pydantic_ai.messages"
    for name in (*modules.split(), "claude_agent_sdk"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "thence.bridge.langgraph", raising=False)

    with pytest.raises(ModuleNotFoundError) as caught:
        asyncio.run(_use(import_module(f"thence.bridge.{bridge}"), journal))

    assert isinstance(caught.value, MissingPackage)
    assert f"'thence[{extra}]'" in (caught.value.hint or "")


async def _use(module: Any, journal: Journal) -> None:
    """Ask a bridge for what only its SDK can do."""
    if module.BRIDGE == "openai-agents":
        await module.JournalSession("s", journal)._get_compaction_snapshot(1)
    if module.BRIDGE == "pydantic-ai":
        await module.JournalHistory("s", journal).save([])
    if module.BRIDGE == "claude-agent-sdk":
        store = module.JournalSessionStore(journal)
        key = {"project_key": "p", "session_id": "s"}
        await store.append(key, [{"type": "user", "uuid": "u1"}])
        await store.list_session_summaries("p")
