"""Content blocks: what the API would refuse is put right or told in words, and counted."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.messages_api import PNG, refusals
from tests.pace import by_pace
from thence.agents import adapters
from thence.agents.sessions import find_source, load_source
from thence.format.repair import Orphans, mend
from thence.memory.readouts import readout_of

WAYS: tuple[Orphans, ...] = ("answer", "drop", "mark")
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()
PDF = base64.b64encode(b"%PDF-1.7\n").decode()

# -- hostile histories ------------------------------------------------------------------------

texts = st.sampled_from(["hi", "", " \n", "\ud800", "a\udfff\u202e", "\x00", "é日"]) | st.text(
    st.characters(exclude_categories=()), max_size=4
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
ids = st.sampled_from(["a", "b", "", None, "functions.exec_command:0", "x" * 200, 3]) | values
sources = (
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["base64", "url", "file", "text", None]),
            "media_type": st.sampled_from(["image/png", "image/svg+xml", "application/pdf", "", 3]),
            "data": st.sampled_from([PNG, SVG, PDF, "no base64!", "AAAA", "", None]),
            "url": st.sampled_from(["https://x.org/a.png", "http://x.org/", "javascript:0", None]),
        }
    )
    | values
)
blocks = st.one_of(
    st.builds(lambda text, more: {"type": "text", "text": text, "more": more}, texts, values),
    st.builds(lambda source: {"type": "image", "source": source}, sources),
    st.builds(lambda source: {"type": "document", "source": source, "title": "t"}, sources),
    st.builds(
        lambda name, call, arguments: {
            "type": "tool_use",
            "id": call,
            "name": name,
            "input": arguments,
        },
        st.sampled_from(["Bash", "a.b", "two words", "", "日本", "n" * 300, None]),
        ids,
        values,
    ),
    st.builds(
        lambda call, content, wrong: {
            "type": "tool_result",
            "tool_use_id": call,
            "content": content,
            "is_error": wrong,
        },
        ids,
        values | st.lists(st.builds(lambda s: {"type": "image", "source": s}, sources), max_size=2),
        st.sampled_from([True, False, None, 1]),
    ),
    st.builds(
        lambda text, by: {"type": "thinking", "thinking": text, "signature": by}, texts, texts
    ),
    st.builds(lambda kind, name: {"type": kind, "name": name}, texts | st.just("fallback"), texts),
    values,
)
histories = st.lists(
    st.builds(
        lambda role, content, name: {"role": role, "content": content, "id": name},
        st.sampled_from(["user", "assistant"]),
        texts | st.lists(blocks, max_size=5) | values,
        st.sampled_from([None, "r1", "r2"]),
    ),
    max_size=8,
)


@given(histories, st.sampled_from(WAYS))
def test_no_history_is_refused(messages: list[dict[str, Any]], way: Orphans) -> None:
    """Ids, names, images, texts, numbers and thoughts of any kind: the API takes what comes out."""
    mended = mend(messages, way)

    assert [] == refusals(mended.messages)
    assert mended.messages == mend(mended.messages, way).messages


def test_the_checker_itself_refuses_what_was_let_through() -> None:
    """Each kind of content that used to pass, by itself."""
    prompt = {"role": "user", "content": [{"type": "text", "text": "go"}]}
    svg = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/svg+xml", "data": SVG},
    }
    call = {"type": "tool_use", "id": "f.x:0", "name": "Bash", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "f.x:0", "content": "ok"}
    named = {**call, "id": "a", "name": "a.b"}

    assert [] == refusals([prompt])
    assert refusals([{"role": "user", "content": [svg]}])
    assert refusals(
        [prompt, {"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
    )
    assert refusals(
        [
            prompt,
            {"role": "assistant", "content": [named]},
            {"role": "user", "content": [{**answer, "tool_use_id": "a"}]},
        ]
    )


# -- single rules ---------------------------------------------------------------------------


def only(block: dict[str, Any], role: str = "user") -> tuple[dict[str, Any], dict[str, int]]:
    """Mend a history of one block; gives what became of it, and what was counted."""
    before = [] if role == "user" else [{"role": "user", "content": "go"}]
    mended = mend([*before, {"role": role, "content": [block]}])
    return mended.messages[-1]["content"][-1], mended.reworded


@pytest.mark.parametrize(
    ("source", "text", "counted"),
    [
        (
            {"type": "base64", "media_type": "image/svg+xml", "data": SVG},
            "[image left out: image/svg+xml]",
            "image/svg+xml",
        ),
        (
            {"type": "base64", "media_type": "image/png", "data": "no base64!"},
            "[image left out: undecodable image]",
            "undecodable image",
        ),
        (
            {"type": "url", "url": "http://x.org/a.png"},
            "[image left out: image without an https address]",
            "image without an https address",
        ),
        (None, "[image left out: image without data]", "image without data"),
    ],
)
def test_an_image_that_the_api_refuses_is_told_in_words(
    source: Any, text: str, counted: str
) -> None:
    """One such image would have the whole request refused."""
    block, counts = only({"type": "image", "source": source})

    assert {"type": "text", "text": text} == block
    assert {counted: 1} == counts


def test_an_image_is_named_by_what_it_is() -> None:
    """A wrong media type is refused as well; the data tell the right one."""
    source = {"type": "base64", "media_type": "image/jpeg", "data": PNG}
    block, counts = only({"type": "image", "source": source})

    assert {"type": "base64", "media_type": "image/png", "data": PNG} == block["source"]
    assert {} == counts


def test_a_thought_that_nobody_signed_is_left_out_and_counted() -> None:
    """The API takes only its own."""
    text_block = {"type": "text", "text": "Hello."}
    thought = {"type": "thinking", "thinking": "Hm."}
    mended = mend(
        [{"role": "user", "content": "go"}, {"role": "assistant", "content": [thought, text_block]}]
    )

    assert [text_block] == mended.messages[1]["content"]
    assert {"thinking": 1} == mended.reworded


def test_a_block_that_nobody_knows_is_told_in_words() -> None:
    """With the name that it has, so that a reader knows what was there."""
    block, counts = only({"type": "tool_reference", "tool_name": "WebFetch"})

    assert {"type": "text", "text": "[tool_reference: WebFetch]"} == block
    assert {"tool_reference": 1} == counts


def test_a_failed_result_holds_text_and_is_not_empty() -> None:
    """The API refuses images in a failed result, and one that says nothing."""
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    for content in ([image], "", None, []):
        answer = {"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True}
        mended = mend(
            [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [answer]},
            ]
        )

        assert [] == refusals(mended.messages)


# -- real sessions --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled
def test_no_session_of_a_real_client_is_refused(shared: Path) -> None:
    """Sessions at hand, of every agent that is read, damaged ones too; in `make prove` all."""
    known = adapters()
    refused: dict[str, list[str]] = {}
    seen: set[str] = set()
    logs = sorted((shared / "data").rglob("*.jsonl"))
    for path in logs[:: by_pace(everyday=6, full=6, prove=1)]:
        claim = find_source(path, known)
        if claim is None or claim[1].path in seen:
            continue
        seen.add(claim[1].path)
        messages = readout_of(load_source(*claim).graph).messages().messages
        if why := refusals(messages):
            refused[str(path.relative_to(shared))] = why[:3]

    assert len(seen) > 50
    assert {} == refused
