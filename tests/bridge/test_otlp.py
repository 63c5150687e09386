"""OTLP: spans whose sums are those of the session, with ids that never change."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.posts import Post, listening
from thence.agents.sessions import LoadedSession, load
from thence.bridge import otlp
from thence.errors import BadConfig
from thence.format.derived_events import sum_usages
from thence.journal import Journal
from thence.memory.readouts import readout_of

PHOENIX = Path(__file__).resolve().parent.parent.parent / ".venv" / "phoenix"
START_S = 300.0
USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 7}


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedSession:
    """A session with a discarded branch, a failed call and a subagent."""
    journal = Journal(tmp_path / "home")
    with journal.create(cwd="/work/made-up", model="claude-sonnet-4-5") as session:
        first = session.record("user", {"role": "user", "content": "Count."})
        text = [{"type": "text", "text": "Wrong."}]
        session.record("assistant", {"role": "assistant", "content": text, "usage": USAGE})
        session.rewind(to=first.uuid)
        call = [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}]
        session.record("assistant", {"role": "assistant", "content": call, "usage": USAGE})
        with session.sidechain("helper", tool_use_id="c1") as side:
            side.record("user", {"role": "user", "content": "Help."})
            side.record("assistant", {"role": "assistant", "content": text, "usage": USAGE})
            side.finish("done")
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}
        session.record("user", {"role": "user", "content": [result]})
        session.record("assistant", {"role": "assistant", "content": text, "usage": USAGE})
    return load(next((journal.root / "sessions").rglob("*.jsonl")))


def _trace(loaded: LoadedSession, **more: bool) -> otlp.Trace:
    return otlp.trace_of(readout_of(loaded.graph), agent="Made-up", version="0", **more)


def _attributes(span: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for attribute in span["attributes"]:
        (kind, value), *_ = attribute["value"].items()
        out[attribute["key"]] = int(value) if kind == "intValue" else value
    return out


def _spans(trace: otlp.Trace) -> list[dict[str, Any]]:
    document: Any = json.loads(json.dumps(otlp.otlp_json(trace)))
    spans: list[dict[str, Any]] = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


def test_sums_over_spans_are_those_of_the_session(loaded: LoadedSession) -> None:
    """Every bill is on one span: live, discarded and of subagents; the cache is in the input."""
    spans = [_attributes(span) for span in _spans(_trace(loaded))]
    usage = sum_usages(loaded.graph.bills.values())

    assert 4 == len(loaded.graph.bills)
    assert usage.output_tokens == sum(span.get("gen_ai.usage.output_tokens", 0) for span in spans)
    assert usage.input_tokens + usage.cache_read_input_tokens == sum(
        span.get("gen_ai.usage.input_tokens", 0) for span in spans
    )


def test_a_trace_has_agents_responses_and_calls(loaded: LoadedSession) -> None:
    """Each below the agent that made it; a failed call has the status of an error."""
    spans = _spans(_trace(loaded))
    names = {span["spanId"]: span["name"] for span in spans}
    below = {(span["name"], names.get(span.get("parentSpanId", ""))) for span in spans}
    call = next(span for span in spans if span["name"] == "execute_tool Bash")

    assert ("invoke_agent Made-up", None) in below
    assert ("chat claude-sonnet-4-5", "invoke_agent Made-up") in below
    assert ("execute_tool Bash", "invoke_agent Made-up") in below
    assert any(name.startswith("invoke") and over == "execute_tool Bash" for name, over in below)
    assert 2 == sum(name.startswith("chat") for name, _ in below)
    assert 2 == call["status"]["code"]
    assert len(spans) == len(names)


def test_the_same_session_has_the_same_ids(loaded: LoadedSession) -> None:
    """What is sent twice is the same spans, so that nobody counts them twice."""
    assert _spans(_trace(loaded)) == _spans(_trace(loaded))
    assert len({span["traceId"] for span in _spans(_trace(loaded))}) == 1


def test_what_was_said_is_sent_only_when_asked_for(loaded: LoadedSession) -> None:
    """As the conventions have it."""
    plain, full = (json.dumps(_spans(_trace(loaded, has_content=on))) for on in (False, True))

    assert "Count." not in plain
    assert "Count." in full


def test_openinference_names_stand_beside_the_others(loaded: LoadedSession) -> None:
    """Tokens and kinds are told under both names."""
    spans = [_attributes(span) for span in _spans(_trace(loaded, is_openinference=True))]
    kinds = {span["openinference.span.kind"] for span in spans}

    assert {"AGENT", "LLM", "TOOL"} == kinds
    assert [span.get("gen_ai.usage.input_tokens") for span in spans] == [
        span.get("llm.token_count.prompt") for span in spans
    ]


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Post]]]:
    """A server on loopback that takes what it is sent."""
    with listening() as address_and_posts:
        yield address_and_posts


def test_spans_are_sent_as_protobuf_that_others_decode(
    loaded: LoadedSession, collector: tuple[str, list[Post]]
) -> None:
    """The protobuf says what the JSON says, by the owner's own definitions where they are."""
    endpoint, taken = collector
    trace = _trace(loaded)
    otlp.send(trace, endpoint, {"Authorization": "made-up"})
    path, header, body = taken[0]
    messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    formats = pytest.importorskip("google.protobuf.json_format")
    read = messages.ExportTraceServiceRequest.FromString(body)
    expected = formats.ParseDict(
        _with_base64_ids(otlp.otlp_json(trace)), messages.ExportTraceServiceRequest()
    )

    assert ("/v1/traces", "made-up") == (path, header)
    assert expected == read


def _with_base64_ids(document: Any) -> Any:
    """Spell ids as protobuf's own JSON does; that of OTLP has them in hexadecimal."""
    import base64

    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return document


def test_an_endpoint_that_is_none_is_refused(loaded: LoadedSession) -> None:
    """Only http and https, and nobody there is said in a sentence."""
    with pytest.raises(BadConfig):
        otlp.send(_trace(loaded), "file:///etc/passwd")
    with pytest.raises(otlp.CollectorFailed, match="no collector"):
        otlp.send(_trace(loaded), "http://127.0.0.1:9")


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    """Return the address of an Arize Phoenix that runs on loopback meanwhile."""
    if address := os.environ.get("THENCE_PHOENIX"):
        yield address
        return
    if not (PHOENIX / "ready").is_file():
        pytest.skip("needs Arize Phoenix: make conformance brings it")
    ports = [str(_free_port()) for _ in range(2)]
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": ports[0],
        "PHOENIX_GRPC_PORT": ports[1],
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_WORKING_DIR": str(tmp_path / "phoenix"),
    }
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(PHOENIX / "bin" / "phoenix"), "serve"], env=env, stdout=log, stderr=log
        )
    try:
        address = f"http://127.0.0.1:{ports[0]}"
        _wait_for(address, server, tmp_path / "log")
        yield address
    finally:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        return int(handle.getsockname()[1])


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(f"{address}/healthz"):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def test_phoenix_holds_the_same_totals_however_often_it_is_sent(
    loaded: LoadedSession, phoenix: str
) -> None:
    """Sent twice, Phoenix has each span once, and its tokens are those of the session."""
    trace = _trace(loaded, is_openinference=True)
    otlp.send(trace, phoenix)
    otlp.send(trace, phoenix)
    spans = _phoenix_spans(phoenix, trace, len(trace.spans))
    usage = sum_usages(loaded.graph.bills.values())
    names = ("llm.token_count.prompt", "llm.token_count.completion")
    totals = [sum(int(span["attributes"].get(name, 0)) for span in spans) for name in names]

    assert len(trace.spans) == len(spans)
    assert [usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens] == totals


def _phoenix_spans(address: str, trace: otlp.Trace, number: int) -> list[dict[str, Any]]:
    """Ask Phoenix for the spans of a trace, until all have been written."""
    spans: list[dict[str, Any]] = []
    for _ in range(60):
        cursor, spans = "", []
        while True:
            url = f"{address}/v1/projects/default/spans?limit=1000&cursor={cursor}"
            with urlopen(url) as answer:
                page = json.loads(answer.read())
            ours = trace.trace_id.hex()
            spans += [s for s in page["data"] if s["context"]["trace_id"] == ours]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                break
        if len(spans) >= number:
            break
        time.sleep(0.5)
    return spans
