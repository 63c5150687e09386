"""The gate: forty hostile requests over real sockets, and the ways in that there are."""

from __future__ import annotations

import http.client
import json
import re
import socket
import stat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from tests.serve.conftest import KEY, LONG, Answer, House, empty
from thence.cli import thence
from thence.errors import BadConfig
from thence.serve import auth as gates
from thence.serve.auth import (
    COOKIE_MAX_AGE_S,
    CSP,
    ENTER,
    MAX_TICKETS,
    OWN_COOKIE_MAX_AGE_S,
    AuthMiddleware,
    authority,
    home_key,
    is_loopback,
)
from thence.serve.cookies import MAX_SIGNED_IN, Cookies


class Hostile(NamedTuple):
    """One request that must be refused: its first line, its headers, and how it is refused."""

    name: str
    line: str
    headers: tuple[str, ...]
    status: int
    body: str = ""


HOST = "Host: 127.0.0.1:{port}"
TOKEN = "Authorization: Bearer {token}"
BROWSER_HOST = "Host: {name}"
KNOWN = (HOST, TOKEN)
JSON_ = "Content-Type: application/json"
SMALL = "Content-Length: 2"
WRITE = "POST /api/sessions HTTP/1.1"
STREAM = "GET /api/live HTTP/1.1"
SOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip
ROOT = "GET / HTTP/1.1"
LIST = "GET /api/sessions HTTP/1.1"

HOSTILE = [
    # A name that was made to lead here.
    Hostile("rebound name", LIST, ("Host: evil.example:{port}", TOKEN), 421),
    Hostile("rebound name, our port missing", LIST, ("Host: evil.example", TOKEN), 421),
    Hostile("no host at all", "GET /api/sessions HTTP/1.0", (TOKEN,), 421),
    Hostile("empty host", LIST, ("Host:", TOKEN), 421),
    Hostile("host without port", LIST, ("Host: 127.0.0.1", TOKEN), 421),
    Hostile("another port", LIST, ("Host: 127.0.0.1:1", TOKEN), 421),
    Hostile("begins like us", LIST, ("Host: 127.0.0.1:{port}.evil.example", TOKEN), 421),
    Hostile("ends like us", LIST, ("Host: evil.example@127.0.0.1:{port}", TOKEN), 421),
    Hostile("any address", LIST, ("Host: 0.0.0.0:{port}", TOKEN), 421),
    Hostile("one number for the address", LIST, ("Host: 2130706433:{port}", TOKEN), 421),
    Hostile("a name below localhost", LIST, ("Host: a.localhost:{port}", TOKEN), 421),
    Hostile("begins as localhost", LIST, ("Host: localhost.evil.example:{port}", TOKEN), 421),
    Hostile("all of IPv6", LIST, ("Host: [::]:{port}", TOKEN), 421),
    Hostile("a whole URI of another host", "GET http://evil.example/api/sessions HTTP/1.1",
            ("Host: evil.example", TOKEN), 421),
    Hostile("our host with a path", LIST, ("Host: 127.0.0.1:{port}/x", TOKEN), 421),
    # A page of another origin.
    Hostile("foreign origin", LIST, (*KNOWN, "Origin: https://evil.example"), 403),
    Hostile("origin null", LIST, (*KNOWN, "Origin: null"), 403),
    Hostile("origin of another port", LIST, (*KNOWN, "Origin: http://127.0.0.1:1"), 403),
    Hostile("origin begins like ours", LIST,
            (*KNOWN, "Origin: http://127.0.0.1:{port}.evil.example"), 403),
    Hostile("origin with another scheme", LIST, (*KNOWN, "Origin: https://127.0.0.1:{port}"), 403),
    Hostile("fetched by another site", LIST, (*KNOWN, "Sec-Fetch-Site: cross-site"), 403),
    Hostile("fetched by another port", LIST, (*KNOWN, "Sec-Fetch-Site: same-site"), 403),
    Hostile("shown in a frame of another site", ROOT,
            (*KNOWN, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe"), 403),
    Hostile("stream with a foreign origin", STREAM, (*KNOWN, "Origin: https://evil.example"), 403),
    Hostile("socket with a foreign origin", STREAM,
            (*KNOWN, *SOCKET, "Origin: https://evil.example"), 403),
    Hostile("socket with our origin", STREAM,
            (*KNOWN, *SOCKET, "Origin: http://127.0.0.1:{port}"), 400),
    Hostile("origin of a file", LIST, (*KNOWN, "Origin: file://"), 403),
    Hostile("a site that nobody knows", LIST, (*KNOWN, "Sec-Fetch-Site: elsewhere"), 403),
    Hostile("a picture of the entry on another site", f"GET {ENTER}?ticket={{wrong}} HTTP/1.1",
            (HOST, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image"), 403),
    # Nobody we know.
    Hostile("no token", LIST, (HOST,), 401),
    Hostile("no token for a page", ROOT, (HOST,), 401),
    Hostile("no token for the stream", STREAM, (HOST,), 401),
    Hostile("no token for a script", "GET /static/viewer.js HTTP/1.1", (HOST,), 401),
    Hostile("no token for a page that is not there", "GET /nowhere HTTP/1.1", (HOST,), 401),
    Hostile("wrong token", LIST, (HOST, "Authorization: Bearer {wrong}"), 401),
    Hostile("the right token, called Basic", LIST, (HOST, "Authorization: Basic {token}"), 401),
    Hostile("the token as the cookie", LIST, (BROWSER_HOST, "Cookie: thence-{port}={token}"), 401),
    Hostile("token in the query", "GET /api/sessions?token={token} HTTP/1.1", (HOST,), 400),
    Hostile("token in the query, and in its place", "GET /?access_token={token} HTTP/1.1", KNOWN,
            400),
    Hostile("an entry that nobody drew", f"GET {ENTER}?ticket={{wrong}} HTTP/1.1", (HOST,), 401),
    Hostile("no token for the API's description", "GET /api/openapi.json HTTP/1.1", (HOST,), 401),
    Hostile("no token for a picture", "GET /favicon.ico HTTP/1.1", (HOST,), 401),
    Hostile("an empty token", LIST, (HOST, "Authorization: Bearer"), 401),
    Hostile("two tokens, one right", LIST, (*KNOWN, "Authorization: Bearer {wrong}"), 401),
    Hostile("an empty cookie", LIST, (BROWSER_HOST, "Cookie: thence-{port}="), 401),
    *(
        Hostile(f"the cookie under {name}", LIST,
                (f"Host: {name}:{{port}}", "Cookie: {cookie}"), status)
        for name, status in (("127.0.0.1", 401), ("localhost", 401), ("[::1]", 401),
                             (f"{'0' * 32}.localhost", 421))
    ),
    Hostile("an entry that is empty", f"GET {ENTER}?ticket= HTTP/1.1", (HOST,), 401),
    # Another place.
    Hostile("slash in disguise", "GET /api/sessions/..%2f..%2fetc%2fpasswd HTTP/1.1", KNOWN, 404),
    Hostile("backslash in disguise", "GET /api/sessions/..%5c..%5cserve.key HTTP/1.1", KNOWN, 404),
    Hostile("up and out", "GET /static/../../serve.key HTTP/1.1", KNOWN, 404),
    *(
        Hostile(f"elsewhere: {path}", f"GET {path} HTTP/1.1", KNOWN, 404)
        for path in (
            "/static/..%2f..%2fserve.key", "/static/%2e%2e/gate.py",
            "/static//etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%00/x", "/static/%00",
            "/sessions/..%2f..%2fserve.key", "/sessions/claude:..%5cx", "/sessions/%2e%2e",
            "/api/sessions/%2e%2e%2f", "/api/sessions/claude:%2fetc",
            "/static/C:%5cwindows", "/static/viewer.js/..",
        )
    ),
    # Other methods, and changes that nobody meant.
    *(
        Hostile(f"method {name}", f"{name} /api/sessions HTTP/1.1", (*KNOWN, JSON_, SMALL), 405,
                "{}")
        for name in ("PUT", "PATCH", "TRACE", "PROPFIND", "PURGE")
    ),
    Hostile("a body without its length", WRITE, (*KNOWN, JSON_, "Transfer-Encoding: chunked"), 411,
            "2\r\n{}\r\n0\r\n\r\n"),
    Hostile("a form with files", WRITE, (*KNOWN, "Content-Type: multipart/form-data; boundary=x",
                                         SMALL), 415, "{}"),
    Hostile("a body of no kind", WRITE, (*KNOWN, SMALL), 415, "{}"),
    Hostile("a body of two kinds", WRITE, (*KNOWN, JSON_, "Content-Type: text/plain", SMALL), 415,
            "{}"),
    Hostile("a body that is claimed to be too long", WRITE, (*KNOWN, JSON_,
                                                             "Content-Length: 5000000"), 413),
    Hostile("preflight", "OPTIONS /api/sessions HTTP/1.1",
            (*KNOWN, "Access-Control-Request-Method: POST"), 405),
    Hostile("delete", "DELETE /api/sessions/claude:x HTTP/1.1", KNOWN, 405),
    Hostile("head without a token", "HEAD /api/sessions HTTP/1.1", (HOST,), 401),
    Hostile("form of another page", WRITE, (
        BROWSER_HOST, "Cookie: {cookie}", "Content-Type: application/x-www-form-urlencoded",
        "Origin: https://evil.example", SMALL), 403, "{}"),
    Hostile("form without an origin", WRITE,
            (BROWSER_HOST, "Cookie: {cookie}", JSON_, SMALL), 403, "{}"),
    Hostile("form sent as text", WRITE, (
        BROWSER_HOST, "Cookie: {cookie}", "Origin: http://{name}", "Content-Type: text/plain",
        SMALL), 415, "{}"),
    Hostile("far too much", WRITE, (*KNOWN, JSON_, "Content-Length: 99999999999"), 413),
]  # fmt: skip


def sent(house: House, hostile: Hostile) -> Answer:
    """Send the very bytes of a request, and read what comes back."""
    words = {
        "port": str(house.port),
        "name": house.url.partition("//")[2],
        "token": house.gate.token,
        "wrong": "0" * 64,
        "cookie": cookie_of(entered(house)) if "{cookie}" in str(hostile) else "",
    }
    lines = [hostile.line, *hostile.headers, "Connection: close"]
    if any(line.startswith("Connection: Upgrade") for line in lines):
        lines.pop()
    text = "\r\n".join(lines)
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    with socket.create_connection(("127.0.0.1", house.port), timeout=LONG) as link:
        link.sendall(f"{text}\r\n\r\n{hostile.body}".encode())
        link.shutdown(socket.SHUT_WR)
        data = b""
        while piece := link.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in rest if ": " in line)
    return Answer(int(first.split()[1]), fields, body)


@pytest.mark.few(3)
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda request: request.name)
def test_a_hostile_request_is_refused(house: House, hostile: Hostile) -> None:
    """Each as listed, with the strict headers, and without a word of what is kept."""
    answer = sent(house, hostile)

    assert hostile.status == answer.status
    assert CSP.lower() == answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers
    assert "set-cookie" not in answer.headers
    assert b"session_uid" not in answer.body


def test_there_are_forty_hostile_requests() -> None:
    """None was lost from the list."""
    assert 40 <= len({hostile.name for hostile in HOSTILE})


def test_a_request_with_two_hosts_has_none_of_ours(house: House) -> None:
    """Whatever a parser lets through: one of them is somebody else's."""
    twice = Hostile("", LIST, (HOST, "Host: evil.example", TOKEN), 421)

    assert twice.status == sent(house, twice).status


def test_a_request_that_is_none_gets_no_further_than_the_parser(house: House) -> None:
    """Bytes that are no HTTP, bodies of which readers may differ, headers without end."""
    chunked = "Transfer-Encoding: chunked"
    twice = (SMALL, "Content-Length: 9")
    requests = [
        Hostile("", "\x16\x03\x01 hello", KNOWN, 400),
        Hostile("", "GET /api/sessions HTTP/9.9", KNOWN, 400),
        Hostile("", "CONNECT evil.example:443 HTTP/1.1", KNOWN, 400),
        Hostile("", WRITE, (*KNOWN, JSON_, SMALL, chunked), 400, "0\r\n\r\nGET / HTTP/1.1"),
        Hostile("", WRITE, (*KNOWN, JSON_, *twice), 400, "{}"),
        Hostile("", WRITE, (*KNOWN, JSON_, "Content-Length: -1"), 400),
    ]
    answers = [sent(house, hostile) for hostile in requests]

    assert [400] * len(requests) == [answer.status for answer in answers]
    assert [] == [answer for answer in answers if b"session_uid" in answer.body]


def test_what_passes_the_gate_leads_to_no_other_place(house: House) -> None:
    """Names that mean another place after they are decoded twice, or by a shell, mean nothing."""
    paths = ("/static/%252e%252e%252fx", "/api/sessions/claude:..", "/api/sessions/~root")

    assert [404, 404, 404] == [house.ask(path).status for path in paths]


@pytest.mark.parametrize("headers", [{"X-Long": "x" * 200_000}, {f"X-{n}": "x" for n in range(90)}])
def test_headers_of_any_size_let_nobody_in(house: House, headers: dict[str, str]) -> None:
    """They are refused as all else that brings no token, or the connection is closed."""
    try:
        status = house.ask("/api/sessions", headers=headers, bearer=False).status
    except (OSError, http.client.HTTPException):
        status = 400

    assert status in (400, 401, 431)
    assert 200 == house.ask("/api/sessions").status


# -- the ways in ----------------------------------------------------------------------------


def entered(house: House) -> Answer:
    """Follow the URL that lets a browser in."""
    return house.ask(house.gate.url().removeprefix(house.url), bearer=False)


def cookie_of(answer: Answer) -> str:
    """Return the cookie that an answer sets, as a browser sends it back."""
    return answer.headers["set-cookie"].partition(";")[0]


def statuses(house: House, cookie: str) -> list[int]:
    """Return how a page and the API answer to a cookie."""
    paths = ("/", "/api/sessions")
    return [house.ask(path, bearer=False, headers={"Cookie": cookie}).status for path in paths]


def test_a_browser_is_led_to_the_page_of_a_session_and_nowhere_else(house: House) -> None:
    """What is no such page leads to the first one: no other site, no script, no other path."""
    typed = {"Sec-Fetch-Site": "none"}
    page = "/sessions/claude:0199-a.b_c"
    url = house.gate.url(page=page).removeprefix(house.url)
    assert page == house.ask(url, bearer=False, headers=typed).headers["location"]
    at = f"{page}?at=e4c01a6"
    url = house.gate.url(page=at).removeprefix(house.url)
    assert at == house.ask(url, bearer=False, headers=typed).headers["location"]
    for wrong in (
        f"{page}?at=e1&x=1",
        f"{page}?at=<b>",
        "//evil.example",
        "https://evil.example",
        "/sessions/a/../x",
        "/sessions/<b>",
    ):
        assert "page=" not in house.gate.url(page=wrong)
        entry = f"{house.gate.url().removeprefix(house.url)}&page={quote(wrong)}"
        assert "/" == house.ask(entry, bearer=False, headers=typed).headers["location"]


def test_the_printed_url_sets_a_strict_cookie_once(house: House) -> None:
    """It leads to the first page; whoever finds it later finds it used. The cookie has an end."""
    url = house.gate.url().removeprefix(house.url)

    first, again = (house.ask(url, bearer=False) for _ in range(2))
    flags = first.headers["set-cookie"].split("; ")

    assert (200, "no-store", True) == (
        first.status,
        first.headers["cache-control"],
        b'content="0; url=/"' in first.body,
    )
    assert ["Path=/", "Max-Age=86400", "HttpOnly", "SameSite=Strict"] == flags[1:]
    assert (401, False) == (again.status, "set-cookie" in again.headers)


def test_the_cookie_and_the_token_let_in(house: House) -> None:
    """Either is enough."""
    beside = f'json={{"a": 1}}; "; {cookie_of(entered(house))}; b'

    assert ([200, 200], 200) == (statuses(house, beside), house.ask("/api/sessions").status)


def test_a_link_under_another_name_signs_nobody_in(house: House) -> None:
    """Other servers of this machine get the cookies of that name; the link is not used up."""
    url = house.gate.url().removeprefix(house.url)
    host = {"Host": f"127.0.0.1:{house.port}"}

    wrong = house.ask(url, bearer=False, headers=host)

    assert (401, False) == (wrong.status, "set-cookie" in wrong.headers)
    assert 200 == house.ask(url, bearer=False).status


def test_the_name_of_a_viewer_is_its_own() -> None:
    """It stays the same; each port and each home has another one; other hosts keep theirs."""
    gates_ = [
        AuthMiddleware("127.0.0.1", port, key=key)
        for port, key in ((7331, KEY), (7331, KEY), (7332, KEY), (7331, bytes(32)))
    ]
    first, same, *others = [gate.origin for gate in gates_]

    assert re.fullmatch(r"http://[0-9a-f]{32}\.localhost:7331", first)
    assert (first, 2) == (same, len({*others} - {first}))
    assert "http://192.0.2.1:7331" == AuthMiddleware("192.0.2.1", 7331, key=KEY).origin


def test_with_a_host_of_its_own_a_viewer_is_asked_under_that(tmp_path: Path) -> None:
    """Behind a proxy, or in Safari: for a day, never over a restart; its own name works as well."""
    house = empty(tmp_path)
    own = house.url
    house.gate = AuthMiddleware(
        "127.0.0.1", house.port, key=KEY, home=house.homes.thence, is_shared=True
    )
    house.url = house.gate.origin
    with house.serving():
        answer = entered(house)
        cookie = {"Cookie": cookie_of(answer)}
        hosts = [{"Host": url.partition("//")[2]} for url in (house.url, own)]
        answers = [house.ask("/", bearer=False, headers=cookie | host).status for host in hosts]
    house.close()

    assert (f"http://127.0.0.1:{house.port}", [200, 200]) == (house.url, answers)
    assert "Max-Age=86400" in answer.headers["set-cookie"].split("; ")
    assert [] == list(house.homes.thence.glob("signed-in-*"))


def test_a_used_link_leads_on_who_is_signed_in(house: House) -> None:
    """The link in the terminal may be opened after the browser that opened by itself."""
    url = house.gate.url().removeprefix(house.url)
    cookie = cookie_of(house.ask(url, bearer=False))

    again = house.ask(url, bearer=False, headers={"Cookie": cookie})

    assert (200, False) == (again.status, "set-cookie" in again.headers)


def test_a_cookie_ends_with_its_server_and_after_a_day(tmp_path: Path) -> None:
    """Neither a stolen cookie nor a forgotten browser gets in for ever; each has its own."""
    now = [1000.0]
    house = empty(tmp_path)
    house.gate = AuthMiddleware("127.0.0.1", house.port, key=KEY, clock=lambda: now[0])
    with house.serving():
        early, late = cookie_of(entered(house)), ""
        first = statuses(house, early)
        now[0] += COOKIE_MAX_AGE_S - 1
        late = cookie_of(entered(house))
        second = [statuses(house, cookie) for cookie in (early, late)]
        now[0] += 2
        third = [statuses(house, cookie) for cookie in (early, late)]
    house.close()
    again = House(tmp_path, house.port)
    with again.serving():
        restarted = statuses(again, late)
        token = again.ask("/api/sessions").status
    again.close()

    assert ([200, 200], [[200, 200], [200, 200]]) == (first, second)
    assert [[401, 401], [200, 200]] == third
    assert ([401, 401], 200) == (restarted, token)


@pytest.mark.slow
def test_a_browser_of_this_machine_stays_signed_in_for_30_days_and_over_restarts(
    tmp_path: Path,
) -> None:
    """The home has hashes only, for the user alone; removing them signs all browsers out."""
    now = [1000.0]
    house = empty(tmp_path)
    home, port = house.homes.thence, house.port

    def gate(host: str = "127.0.0.1") -> AuthMiddleware:
        return AuthMiddleware(host, port, key=KEY, clock=lambda: now[0], home=home)

    house.gate = gate()
    with house.serving():
        answer = entered(house)
        cookie = cookie_of(answer)
    house.close()
    file = home / f"signed-in-{port}.json"
    states = []
    for passed in (OWN_COOKIE_MAX_AGE_S - 1, 2, -2):
        now[0] += passed
        if passed < 0:
            file.unlink()
        again = House(tmp_path, port)
        again.gate = gate()
        with again.serving():
            states.append(statuses(again, cookie))
            if passed == 2:  # who signs in now is the only one that the file knows
                entered(again)
                assert file.read_bytes().count(b"hash") == 1
        again.close()

    assert f"Max-Age={30 * 86_400}" in answer.headers["set-cookie"].split("; ")
    assert [[200, 200], [401, 401], [401, 401]] == states
    assert [] == list(home.glob("signed-in-*.json.*"))
    assert COOKIE_MAX_AGE_S == gate("192.0.2.1")._cookies.max_age_s


def test_the_file_of_cookies_is_private_and_holds_no_cookie(tmp_path: Path) -> None:
    """What the file says lets nobody in, and a damaged one signs nobody in."""
    path = tmp_path / "signed-in.json"
    cookies = Cookies(lambda: 0.0, 60.0, path)
    cookie = cookies.add()
    content = path.read_text()

    assert 0o600 == path.stat().st_mode & 0o777
    assert cookie not in content
    assert Cookies(lambda: 0.0, 60.0, path).has_any([cookie])
    assert not cookies.has_any([json.loads(content)[0]["hash"], "", "x"])
    for damaged in ("", "{", '[{"hash": "é", "end": 9}]', '[{"hash": 1}]', "[" * 9_000):
        path.write_text(damaged)
        assert not Cookies(lambda: 0.0, 60.0, path).has_any([cookie, "é"])


def test_browsers_that_are_signed_in_are_few(tmp_path: Path) -> None:
    """Nobody can fill the memory with cookies: of too many the oldest is void."""
    house = empty(tmp_path)
    with house.serving():
        cookies = [cookie_of(entered(house)) for _ in range(MAX_SIGNED_IN + 1)]
        ends = [statuses(house, cookie)[1] for cookie in (cookies[0], cookies[1], cookies[-1])]
    house.close()

    assert [401, 200, 200] == ends


def test_a_browser_that_is_not_signed_in_is_shown_what_to_do(house: House) -> None:
    """A page with one sentence for people, problem+json for programs; neither sets a cookie."""
    accept = {"Accept": "text/html,application/xhtml+xml"}
    page = house.ask("/sessions", bearer=False, headers=accept)
    part = house.ask("/api/sessions", bearer=False, headers=accept)

    assert (401, 401, "application/problem+json") == (
        page.status,
        part.status,
        part.headers["content-type"],
    )
    assert "text/html; charset=utf-8" == page.headers["content-type"]
    assert b"<h1>Not signed in</h1>" in page.body
    assert b"Run <code>thence serve</code> and open the link it prints." in page.body
    assert "set-cookie" not in page.headers


def test_a_head_is_answered_as_a_get_without_its_body(house: House) -> None:
    """A client may look first."""
    answer = house.ask("/api/sessions", method="HEAD")

    assert (200, b"") == (answer.status, answer.body)
    assert 0 < int(answer.headers["content-length"])


def test_every_answer_is_strict(house: House) -> None:
    """Pages, JSON, what is not found: no framing, no sniffing, no referrer, no other origin."""
    paths = ("/api/sessions", "/nowhere", "/api/sessions/claude:nobody")
    for answer in map(house.ask, paths):
        policies = {name: answer.headers.get(name) for name in (
            "content-security-policy", "x-content-type-options", "x-frame-options",
            "referrer-policy", "cross-origin-opener-policy", "cross-origin-resource-policy",
        )}  # fmt: skip

        assert {
            "content-security-policy": CSP,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        } == policies
        assert "server" not in answer.headers


def test_entries_are_few_and_the_oldest_is_void() -> None:
    """Nobody can fill the memory by asking for more."""
    gate = AuthMiddleware("127.0.0.1", 7331, key=KEY)
    drawn = [gate.ticket() for _ in range(MAX_TICKETS + 1)]

    used = [gate._use_ticket(f"ticket={ticket}".encode()) for ticket in (*drawn, drawn[-1])]

    assert [False, *[True] * MAX_TICKETS, False] == used


def test_another_process_can_let_a_browser_in_for_a_moment() -> None:
    """Once, soon, at this port of this home; one that was made up never."""
    now = [1000.0]
    here, there = (
        AuthMiddleware("127.0.0.1", 7331, key=KEY, clock=lambda: now[0]) for _ in range(2)
    )
    other = AuthMiddleware("127.0.0.1", 7332, key=KEY, clock=lambda: now[0])
    entry, late = there.sign_ticket(), there.sign_ticket()
    forged = entry[:-1] + ("0" if entry[-1] != "0" else "1")

    def used(gate: AuthMiddleware, ticket: str) -> bool:
        return gate._use_ticket(f"ticket={ticket}".encode())

    first = [used(other, entry), used(here, forged), used(here, entry), used(here, entry)]
    now[0] += gates.TICKET_MAX_AGE_S + 1
    later = [used(here, late), used(here, entry)]

    assert ([False, False, True, False], [False, False]) == (first, later)


def test_a_query_of_any_bytes_is_no_entry() -> None:
    """Neither letters that are none nor thousands of fields raise."""
    gate = AuthMiddleware("127.0.0.1", 7331, key=KEY)

    assert not gate._use_ticket(b"ticket=\xff\xfe%ff")
    assert not gate._use_ticket("ticket=².².²".encode())
    assert not gate._use_ticket(b"ticket=..")
    assert not gate._use_ticket(b"&".join(b"ticket=a" for _ in range(1000)))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.0.0.9", True), ("::1", True), ("localhost", True),
     ("192.168.1.4", False), ("localhost.evil.example", False), ("example.org", False)],
)  # fmt: skip
def test_only_this_machine_is_the_loopback(host: str, loopback: bool) -> None:
    """A name that merely looks like it is not."""
    assert loopback == is_loopback(host)


def test_names_are_written_as_urls_have_them() -> None:
    """Addresses with colons stand in brackets; the port of http may be left out."""
    assert ("[::1]:80", "localhost:7331") == (authority("::1", 80), authority("localhost", 7331))
    assert {"127.0.0.1", "127.0.0.1:80", "[::1]", "localhost"} <= AuthMiddleware(
        "127.0.0.1", 80, key=KEY
    )._authorities
    assert {"192.168.1.4:7331"} == AuthMiddleware("192.168.1.4", 7331, key=KEY)._authorities


def test_the_key_is_drawn_once_and_is_the_users_alone(tmp_path: Path) -> None:
    """The same key again; nobody else can read it; one that was cut is refused."""
    home = tmp_path / "home"
    key = home_key(home)

    assert (key, 32) == (home_key(home), len(key))
    assert 0o600 == stat.S_IMODE((home / gates.KEY).stat().st_mode)
    (home / gates.KEY).write_bytes(b"short")
    with pytest.raises(BadConfig, match="not a key"):
        home_key(home)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_it_does_not_listen_elsewhere_unasked(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every address is never one; another machine's reach must be asked for by --token."""
    monkeypatch.setenv("THENCE_HOME", str(tmp_path))

    done = CliRunner().invoke(thence, ["serve", "--host", host, "--no-open"])

    assert isinstance(done.exception, BadConfig)
    assert done.exception.hint
