"""The app: errors, ETags, compression, static files."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import logging
import select
import socket
import time
from pathlib import Path

import apsw
import pytest
import zstandard

from tests.serve.conftest import LONG, House
from thence.memory.packs import pack_name
from thence.memory.store import Filter
from thence.serve import app as serving
from thence.serve import chart_cache, request_timeouts
from thence.serve.app import STATIC, _compress


def test_asking_again_for_the_same_costs_no_bytes(house: House) -> None:
    """The ETag of an answer is enough; another one is answered whole."""
    first = house.ask("/api/projects")
    tag = first.headers["etag"]

    same = house.ask("/api/projects", headers={"If-None-Match": f'"other", {tag}'})
    other = house.ask("/api/projects", headers={"If-None-Match": '"other"'})

    assert (304, b"", tag) == (same.status, same.body, same.headers["etag"])
    assert (200, first.body) == (other.status, other.body)
    assert "private, no-cache" == first.headers["cache-control"]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("accepts", "encoding"),
    [
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("identity", None),
        ("", None),
    ],
)
def test_answers_are_packed_as_the_client_knows(
    house: House, accepts: str, encoding: str | None
) -> None:
    """And unpack to the same."""
    plain = house.ask("/api/openapi.json").body

    answer = house.ask("/api/openapi.json", headers={"Accept-Encoding": accepts})
    unpack = {"zstd": _unzstd, "gzip": gzip.decompress}.get(encoding or "", bytes)

    assert (encoding, plain) == (answer.headers.get("content-encoding"), unpack(answer.body))
    assert str(len(answer.body)) == answer.headers["content-length"]


def _unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def test_what_is_small_or_no_text_is_not_packed() -> None:
    """That would cost more than it saves."""
    assert (b"", b"x" * 1023) == _compress(b"x" * 1023, b"text/html", b"gzip")
    assert (b"", b"x" * 9999) == _compress(b"x" * 9999, b"font/woff2", b"gzip")


def test_only_our_own_files_are_beside_the_pages(house: House) -> None:
    """By their exact names; no other kind, no folder, no path."""
    own = sorted(path.name for path in STATIC.iterdir() if path.suffix in serving.KINDS)
    for name in own:
        answer = house.ask(f"/static/{name}")
        assert (200, (STATIC / name).read_bytes()) == (answer.status, answer.body)

    for name in ("app.py", "..", "nothing.js", "%2e%2e", ".css"):
        assert 404 == house.ask(f"/static/{name}").status


def test_what_breaks_is_told_without_its_reason(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns that something broke; what it was stands in the log."""

    def broken() -> None:
        raise RuntimeError("secret reason")

    monkeypatch.setattr(house.context.store, "known", broken)
    with caplog.at_level(logging.ERROR):
        answer = house.ask("/api/plan")

    assert (500, False) == (answer.status, b"secret" in answer.body)
    assert "request.failed path=/api/plan" in caplog.text
    assert "secret reason" in caplog.text


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_body_that_is_nested_too_deeply_is_refused(
    own_house: House, caplog: pytest.LogCaptureFixture, opening: str
) -> None:
    """As the client's mistake: no traceback, nothing written, and the server goes on."""
    body = b'{"type": "user", "payload": {"content": %s' % (opening.encode() * 100_000)
    headers = {"Authorization": f"Bearer {own_house.gate.token}"}
    answers = []
    begun = own_house.ask("/api/sessions", method="POST", body={}).json["session_uid"]
    for path in ("/api/sessions", f"/api/sessions/{begun}/events"):
        link = http.client.HTTPConnection("127.0.0.1", own_house.port, timeout=LONG)
        link.request("POST", path, body, {**headers, "Content-Type": "application/json"})
        answers.append(link.getresponse().status)
        link.close()

    assert [400, 400] == answers
    assert "Traceback" not in caplog.text
    assert 200 == own_house.ask("/api/sessions").status


def test_half_a_character_is_refused_in_words(own_house: House) -> None:
    """A lone surrogate is no text that an API can give back: the sender learns what it is."""
    begun = own_house.ask("/api/sessions", method="POST", body={}).json["session_uid"]
    body = rb'{"type": "user", "payload": {"content": "\ud83d"}}'
    token = {"Authorization": f"Bearer {own_house.gate.token}"}
    link = http.client.HTTPConnection("127.0.0.1", own_house.port, timeout=LONG)
    path = f"/api/sessions/{begun}/events"
    link.request("POST", path, body, {**token, "Content-Type": "application/json"})
    answer = link.getresponse()
    problem = json.loads(answer.read())
    link.close()

    assert (400, True) == (answer.status, "half a character" in problem["detail"])


HALVES = (
    b"",
    b"GET /api/sessions HTT",
    b"GET /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n",
    (
        b"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
        b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    ),
)


def _half(house: House, data: bytes) -> socket.socket:
    """Send half a request."""
    link = socket.create_connection(("127.0.0.1", house.port), timeout=LONG)
    values = (house.port, house.gate.token.encode())
    link.sendall(data % values[: data.count(b"%")])
    return link


def _is_open(link: socket.socket) -> bool:
    """Whether the other side has not closed a connection."""
    link.settimeout(0.5)
    try:
        while link.recv(65536):
            pass
    except TimeoutError:
        return True
    return False


@pytest.mark.slow
def test_half_a_request_is_not_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither headers nor a body that never come hold a connection; a stream goes on."""
    monkeypatch.setattr(request_timeouts, "REQUEST_TIMEOUT_S", 1.0)
    stream = http.client.HTTPConnection("127.0.0.1", house.port, timeout=LONG)
    stream.request("GET", "/api/live", headers={"Authorization": f"Bearer {house.gate.token}"})
    opened = stream.getresponse()
    links = [_half(house, data) for data in HALVES]
    ends = []
    for link in links:
        with contextlib.suppress(ConnectionResetError):
            ends.append(link.recv(65536))  # returns when the server closes it
        link.close()
    is_open = _is_open(stream.sock)
    stream.close()

    assert (200, True) == (opened.status, is_open)
    assert [] == [end for end in ends if b"200" in end]
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_of_too_many_half_requests_the_oldest_are_closed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has no token can keep nobody out by opening connections."""
    monkeypatch.setattr(request_timeouts, "MAX_UNFINISHED", 4)
    links = [_half(house, HALVES[1]) for _ in range(12)]
    while len(select.select(links, [], [], LONG)[0]) < 8:  # then the server knows all of them
        time.sleep(0.02)
    newer = [_half(house, HALVES[1]) for _ in range(8)]
    ends = [link.recv(65536) for link in links]
    status = house.ask("/api/sessions").status
    for link in (*links, *newer):
        link.close()

    assert ([b""] * 12, 200) == (ends, status)


def test_the_openapi_needs_nothing_from_elsewhere(house: House) -> None:
    """It is a document, and no page that loads scripts from other places."""
    document = house.ask("/api/openapi.json")
    operations = document.json["paths"]

    assert "application/json" == document.headers["content-type"]
    assert {"/api/sessions", "/api/search", "/api/costs", "/api/plan"} <= operations.keys()
    assert all(path.startswith("/api/") for path in operations)
    assert all(
        operation["get"]["description"] for operation in operations.values() if "get" in operation
    )
    assert house.ask("/api/openapi").json == document.json


def test_the_page_about_the_api_names_every_operation(house: House) -> None:
    """And the streams, which OpenAPI has no words for."""
    page = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")
    paths = house.ask("/api/openapi.json").json["paths"]

    assert [] == [path for path in paths if f"{path}`" not in page]
    assert all(path in page for path in ("GET /api/live", "GET /api/sessions/{uid}/live"))


def test_a_body_does_not_wait_for_the_acknowledgement_of_its_headers(house: House) -> None:
    """Small pieces are sent at once: else each answer takes 40 ms more, and each event."""
    assert house._listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((path, 200) for path in ("/", "/sessions", "/costs", "/patterns", "/store")),
        *((f"/costs?by={by}", 200) for by in ("model", "project", "agent", "session")),
        ("/costs?by=x", 400),
        ("/sessions?cursor=999999", 200),
        ("/sessions?cursor=-1", 200),
        ("/sessions?q=%22", 200),
        ("/sessions?q=-x", 200),
        ("/costs?day=2026-02-31", 200),
        ("/costs?days=-5", 200),
        ("/sessions/nobody", 404),
        ("/nothing", 404),
    ],
)
def test_addresses_are_answered_with_pages(house: House, path: str, status: int) -> None:
    """What is not there is a page that says so."""
    answer = house.ask(path, headers={"Accept": "text/html"})

    assert answer.status == status
    assert b"<main" in answer.body
    assert b"style=" not in answer.body
    assert b"<script>" not in answer.body


@pytest.mark.slow
def test_parts_of_sessions_are_answered_or_are_not_there(house: House) -> None:
    """Rows, bodies, branches, subagents; what is none of them is a 404."""
    for row in house.store.sessions(Filter()):
        base = f"/sessions/{row.session.session_uid}"
        [first] = house.store.events(row.session.session_uid, limit=1)
        event = f"e{first.event.event_id:013x}"
        for path in ("", "?end=1", f"?at={event}", "/rows", "/tail", f"/tail?after={event}"):
            assert house.ask(base + path).status == 200, path
        assert house.ask(f"{base}/event/{event}").status == 200
        for path in ("/rows?part=b99", "/rows?part=x", "/event/e0000000000000", "/side/s99"):
            assert house.ask(base + path).status == 404, path


def test_a_broken_pack_costs_only_its_texts(own_house: House) -> None:
    """The page is there, and says where a text should be why it is not."""
    row = max(own_house.store.sessions(), key=lambda row: row.pack_bytes)
    uid = row.session.session_uid
    for pack in own_house.store.path.with_name("packs").glob(f"{pack_name(uid)}-*"):
        pack.write_bytes(bytes(pack.stat().st_size))
    answer = own_house.ask(f"/sessions/{uid}")

    assert 200 == answer.status
    assert b"(cannot be read: the pack " in answer.body


def test_a_damaged_store_is_told_with_what_to_do(
    own_house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a page and as an answer of the API; it is no bug of ours."""
    path = tmp_path / "damaged.db"
    with apsw.Connection(str(path)) as db:
        db.execute("CREATE TABLE t(x)")
    path.write_bytes(path.read_bytes()[:4096] + b"\xa5" * 4096)
    damaged = apsw.Connection(str(path))
    monkeypatch.setattr(
        own_house.store, "totals", lambda *_: damaged.execute("SELECT * FROM t").fetchall()
    )
    page, answer = own_house.ask("/sessions"), own_house.ask("/api/sessions")

    assert (503, 503) == (page.status, answer.status)
    assert b"thence doctor" in page.body
    assert b"thence doctor" in answer.body


def test_an_evicted_session_shows_its_digest(own_house: House) -> None:
    """When its source is gone too: how it ended, what was asked, that no more is left."""
    row = next(r for r in own_house.store.sessions(Filter()) if (r.title or "").startswith("What"))
    uid = row.session.session_uid
    Path(row.files[0]).unlink()
    own_house.swept()
    own_house.store.remove([uid], why={uid: "to see"})
    answer = own_house.ask(f"/sessions/{uid}")

    assert answer.status == 200
    assert b"Only the digest is left" in answer.body
    assert b"What does clock.py do?" in answer.body


@pytest.mark.slow
def test_a_large_session_shows_its_head_at_once_and_its_rows_after(
    own_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not laid out yet is asked for by the page itself, with the event that is wanted."""
    monkeypatch.setattr(chart_cache, "LARGE_SESSION_EVENTS", 1)
    row = next(r for r in own_house.store.sessions(Filter()) if (r.title or "").startswith("What"))
    base = f"/sessions/{row.session.session_uid}"
    [stored_event] = own_house.store.events(row.session.session_uid, limit=1)
    event = f"e{stored_event.event.event_id:013x}"
    first = own_house.ask(f"{base}?at={event}").body.decode()

    assert (
        f'<meta http-equiv="refresh" content="0; url={base}?whole=1&amp;at={event}#{event}">'
        in first
    )
    assert "What does clock.py do?" in first
    assert 'id="thread"' not in first
    assert b'id="thread"' in own_house.ask(f"{base}?whole=1&at={event}").body
    assert b'id="thread"' in own_house.ask(base).body


def test_a_wrong_address_is_told_to_people_and_to_programs(house: House) -> None:
    """A page says what a person can do next; the API names its schema."""
    page = house.ask("/nowhere", headers={"Accept": "text/html"})
    api = house.ask("/api/nowhere")

    assert (404, 404) == (page.status, api.status)
    assert b"check the address" in page.body.lower()
    assert b"openapi" not in page.body
    assert b"see /api/openapi.json" in api.body
