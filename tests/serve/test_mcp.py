"""The MCP server, driven by the official client library: over stdio, and over HTTP with a token."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvicorn

from tests.serve.past import EVIL, KEY, SPELL, swept, written
from thence.cli.sample_machine import Homes, fake_token
from thence.serve.auth import AuthMiddleware
from thence.serve.questions import TOOLS, Questions
from thence.serve.stdio import INSTRUCTIONS, StdioServer, tool_list

# What is imported inside functions takes over a second, in each process that runs tests.
if TYPE_CHECKING:
    from mcp import Client

LONG = 240.0
"""Seconds after which what should happen will not: a busy machine is slow."""


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    """A machine with a past."""
    made = written(tmp_path_factory.mktemp("machine"))
    swept(made).close()
    return made


def over_stdio(homes: Homes, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    """Start the server as an agent does, and talk to it."""
    from mcp import Client, StdioServerParameters, stdio_client

    program = "from thence.cli import main; main()"
    env = {**homes.env, "HOME": str(homes.work.parent), "PATH": os.environ["PATH"]}
    parameters = StdioServerParameters(command=sys.executable, args=["-c", program, "mcp"], env=env)

    async def run() -> Any:
        # Not the default: that is the stderr of whoever imported mcp first, which may be no file.
        async with Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)) as client:
            return await talk(client)

    return asyncio.run(run())


def text_of(result: Any) -> str:
    """Return the text of an answer."""
    (block,) = result.content
    return str(block.text)


@pytest.mark.slow
def test_an_agent_finds_asks_and_writes_down(homes: Homes) -> None:
    """Tools are listed, a search leads to its event, a decision is in its file afterwards."""

    async def talk(client: Client) -> tuple[Any, ...]:
        listed = await client.list_tools()
        hits = await client.call_tool("search", {"query": '"python -m tidal" kind:tool_call'})
        event, session = text_of(hits).split("\n")[1].split()[:2]
        around = await client.call_tool("around", {"session": session, "event": event})
        wrong = await client.call_tool("search", {"query": ""})
        done = await client.call_tool("decide", {"text": "Tides are told in UTC."})
        return listed, hits, around, wrong, done

    listed, hits, around, wrong, done = over_stdio(homes, talk)
    notes = (homes.thence / "notes" / "decisions.jsonl").read_text()

    assert list(TOOLS) == [tool.name for tool in listed.tools]
    assert ["decide"] == [t.name for t in listed.tools if not t.annotations.read_only_hint]
    assert not hits.is_error
    assert "| python -m tidal" in text_of(around)
    assert wrong.is_error
    assert not done.is_error
    assert "Tides are told in UTC." == json.loads(notes)["payload"]["text"]


@pytest.mark.slow
def test_a_hostile_past_comes_back_inert_over_the_wire(homes: Homes) -> None:
    """What the client gets has one frame, no hidden sign, no secret, and no line of the spell."""

    async def talk(client: Client) -> list[str]:
        text = text_of(await client.call_tool("search", {"query": "lantern"}))
        event = text.split("\n")[1].split()[0]
        asked = {"session": EVIL, "event": "x2", "before": 9, "after": 9}
        around = text_of(await client.call_tool("around", asked))
        outline = text_of(await client.call_tool("outline", {"session": EVIL}))
        assert event
        return [text, around, outline]

    for answer in over_stdio(homes, talk):
        lines = answer.split("\n")
        boundary = lines[0][1:17]

        assert f"[{boundary} end of data]" == lines[-1]
        assert 2 == answer.count(boundary)
        assert "gnore all previous instructions" in answer
        assert not {*SPELL.split("\n")} & {*lines} - {""}
        assert not [c for c in answer if c != "\n" and not c.isprintable()]
        assert fake_token() not in answer


def test_what_every_session_pays_for_is_small() -> None:
    """All tools together take less than 800 tokens by four characters each."""
    tools = [{**tool, "annotations": None} for tool in tool_list()]
    texts = [json.dumps(tool, separators=(",", ":")) for tool in tools]

    assert sum(map(len, texts)) + len(INSTRUCTIONS) < 3_200


def test_nothing_of_ours_commands() -> None:
    """Descriptions say what a tool gives; no text of ours tells a model what it must do."""
    texts = [tool["description"] for tool in tool_list()] + [INSTRUCTIONS]

    assert [] == [
        text for text in texts if {"must", "always", "never", "should"} & {*text.lower().split()}
    ]


# -- HTTP -----------------------------------------------------------------------------------


@contextmanager
def listening(homes: Homes) -> Iterator[AuthMiddleware]:
    """Have the server listen on a free port."""
    from thence.serve import mcp

    store = swept(homes)
    listener = socket.create_server(("127.0.0.1", 0))
    gate = AuthMiddleware("127.0.0.1", listener.getsockname()[1], key=KEY)
    made = StdioServer(lambda: Questions(store, lambda *_: {}), "0")
    server = uvicorn.Server(uvicorn.Config(mcp.over_http(made, gate), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until = time.monotonic() + LONG
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield gate
    finally:
        server.should_exit = True
        thread.join(LONG)
        listener.close()
        store.close()
        assert not thread.is_alive()


STRANGERS = (
    {"Authorization": "Bearer no"},
    {"Host": "evil.example"},
    {"Origin": "http://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Authorization": ""},
    {"Host": "localhost.evil.example"},
    {"Origin": "null"},
    {"Content-Type": "text/plain"},
)


def test_over_http_a_token_and_the_right_name_are_needed(homes: Homes) -> None:
    """The official client gets answers; without the token, by another name or site: nothing."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    from thence.serve.mcp import MAX_MESSAGE_BYTES, PATH

    with listening(homes) as gate:
        url = f"http://127.0.0.1:{gate.port}{PATH}"
        bearer = {"Authorization": f"Bearer {gate.token}"}

        async def run() -> tuple[Any, list[int]]:
            async with httpx2.AsyncClient(headers=bearer, timeout=LONG) as link:
                async with Client(streamable_http_client(url, http_client=link)) as client:
                    answer = await client.call_tool("todos", {})
                asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
                tries = [await link.post(url, json=asked, headers=headers) for headers in STRANGERS]
                long = {**asked, "params": "x" * MAX_MESSAGE_BYTES}
                tries += [await link.post(url, json=long), await link.get(url)]
            return answer, [response.status_code for response in tries]

        answer, codes = asyncio.run(run())

    assert "data: thence todos" in text_of(answer)
    assert [401, 421, 403, 403, 401, 421, 403, 415, 413, 405] == codes


@pytest.mark.slow
def test_half_a_request_to_the_command_is_not_waited_for(homes: Homes) -> None:
    """`thence mcp --http` closes a connection whose request does not arrive in time."""
    env = {**homes.env, "HOME": str(homes.work.parent), "PATH": os.environ["PATH"]}
    code = "from thence.serve import request_timeouts as limits; limits.REQUEST_TIMEOUT_S = 0.5"
    code += "; limits.TICK_S = limits.UNUSED_TICK_S = 0.1; from thence.cli import main; main()"
    program = [sys.executable, "-c", code]
    with subprocess.Popen(
        [*program, "mcp", "--http", "--port", "0"], env=env, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        port = int(running.stdout.readline().split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=LONG) as link:
            link.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            end = link.recv(65536)  # returns when the server closes it
        running.terminate()

    assert b"" == end


@pytest.mark.slow
def test_the_command_listens_where_it_says(homes: Homes) -> None:
    """`thence mcp --http` prints a URL and a token; with both it answers, until it is stopped."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    env = {**homes.env, "HOME": str(homes.work.parent), "PATH": os.environ["PATH"]}
    program = [sys.executable, "-c", "from thence.cli import main; main()"]
    with subprocess.Popen(
        [*program, "mcp", "--http", "--port", "0"], env=env, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        url, bearer = (running.stdout.readline().strip() for _ in range(2))

        async def run() -> Any:
            name, _, value = bearer.partition(": ")
            async with (
                httpx2.AsyncClient(headers={name: value}, timeout=LONG) as link,
                Client(streamable_http_client(url, http_client=link)) as client,
            ):
                return await client.list_tools()

        try:
            listed = asyncio.run(run())
        finally:
            running.terminate()
            running.wait(LONG)

    assert url.startswith("http://127.0.0.1:")
    assert list(TOOLS) == [tool.name for tool in listed.tools]


def test_a_client_that_gave_up_on_the_newer_protocol_begins_with_the_older() -> None:
    """Each request is answered in the protocol that it speaks, whatever came before it."""
    stdio = StdioServer(lambda: pytest.fail("no question was asked"), "1")
    name = "io.modelcontextprotocol/protocolVersion"

    def ask(method: str, **parameters: Any) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": parameters}
        return stdio.answer(json.dumps(request).encode()) or {}

    newer = ask("server/discover", _meta={name: "2026-07-28"})
    older = ask("initialize", protocolVersion="2025-11-25")
    unknown = ask("tools/list", _meta={name: "2199-01-01"})

    assert ["2026-07-28"] == newer["result"]["supportedVersions"]
    assert "2025-11-25" == older["result"]["protocolVersion"]
    assert list(TOOLS) == [tool["name"] for tool in ask("tools/list")["result"]["tools"]]
    assert ["2026-07-28"] == unknown["error"]["data"]["supported"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"id":1,"method":3}', -32600),
        (b'{"id":1,"method":"no"}', -32601),
        (b'{"id":1,"method":"tools/call","params":{"arguments":[1]}}', -32602),
        (b'{"id":1,"method":"tools/call","params":{"name":"todos"}}', -32603),
        (b'{"method":"notifications/initialized"}', None),
        (b'{"id":1,"result":{}}', None),
    ],
)
def test_a_line_that_is_no_question_costs_itself_only(line: bytes, code: int | None) -> None:
    """It gets an error by its kind; what needs no answer gets none; the next line is answered."""

    def fail() -> Questions:
        raise RuntimeError

    out = io.BytesIO()
    ping = b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n'
    StdioServer(fail, "1").run(io.BytesIO(line + b"\n\n" + ping), out)
    *first, last = map(json.loads, out.getvalue().splitlines())

    assert [code] * (code is not None) == [answer["error"]["code"] for answer in first]
    assert {"jsonrpc": "2.0", "id": 2, "result": {}} == last


def test_the_handshake_loads_no_package_and_opens_no_store(homes: Homes) -> None:
    """Clients wait for it: the official package and the questions are not imported for it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "from thence.cli import main; main()", "mcp"],
        input=b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n',
        env={**homes.env, "HOME": str(homes.work.parent), "PATH": os.environ["PATH"]},
        capture_output=True,
        timeout=LONG,
        check=False,
    )

    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}

    assert "thence" == json.loads(done.stdout)["result"]["serverInfo"]["name"]
    assert "thence.serve.stdio" in loaded
    assert set() == loaded & {"mcp", "pydantic", "thence.serve.questions", "thence.memory.sqlite"}


@pytest.mark.slow
def test_the_server_ends_when_its_agent_does(homes: Homes) -> None:
    """The end of stdin is the end of the server, without a word on stderr."""
    env = {**homes.env, "HOME": str(homes.work.parent), "PATH": os.environ["PATH"]}
    program = [sys.executable, "-c", "from thence.cli import main; main()", "mcp"]
    done = subprocess.run(
        program, input=b"", env=env, capture_output=True, timeout=LONG, check=False
    )

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_the_home_is_as_it_was_before_the_questions(homes: Homes) -> None:
    """Asking changes no file of anybody: the logs of agents are as they were."""

    def logs() -> dict[Path, bytes]:
        folders = (homes.claude, homes.codex, homes.grok)
        return {p: p.read_bytes() for f in folders for p in f.rglob("*") if p.is_file()}

    async def talk(client: Client) -> None:
        for tool, arguments in (
            ("search", {"query": "tide"}),
            ("outline", {"session": EVIL}),
            ("costs", {}),
        ):
            await client.call_tool(tool, arguments)

    before = logs()
    over_stdio(homes, talk)

    assert before == logs()
