"""The gate: who may ask anything, before anything is looked at. Pure ASGI, around everything.

A page in the user's browser can send requests to this machine, names can be made to lead here,
and other users share the loopback. So every request, whatever its path, must name this server
exactly, come from one of its own pages or from none, and bring a cookie of this server or the
bearer token of this home. A cookie is set by a URL that works once; it is random and has an end. A
browser of this machine stays signed in for 30 days, restarts of the server included; any other one
for a day, or until the server ends. The token follows from a key that only the user can read.

Browsers send a cookie to all ports of a host. So on this machine they ask under a host name below
`localhost` that follows from the key: whoever listens on another port cannot know it and is never
asked under it. Under the other names of the loopback only the token counts.

Invariants: hosts and origins are compared whole, never by how they begin or end; secrets are
compared in constant time; a token in a query is refused, right or wrong; what is not asked for by
a page of ours can change nothing; every answer carries the strict headers, refusals as well.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import ipaddress
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from thence import config
from thence.serve.cookies import Cookies

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

KEY: Final = "serve.key"
COOKIE: Final = "thence"
ENTER: Final = "/enter"
TICKET: Final = "ticket"
PAGE: Final = "page"
"""Where a browser is led once it is signed in."""
MAX_TICKETS: Final = 16
"""Tickets that are valid at a time."""
TICKET_MAX_AGE_S: Final = 60.0
"""How long a ticket of another process is valid, in seconds."""
COOKIE_MAX_AGE_S: Final = 86_400  # a stolen cookie is of use for no longer
"""How long a browser stays signed in, in seconds."""
OWN_COOKIE_MAX_AGE_S: Final = 30 * 86_400
"""How long a browser of this machine stays signed in, in seconds."""
MAX_BODY_BYTES: Final = 4 << 20
"""Largest body of a request, in bytes."""

_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:1rem/1.6 system-ui,sans-serif;max-width:36rem;margin:18vh auto 0;padding:0 1.5rem}"
    "h1{font-size:1.375rem;line-height:1.25;margin:0 0 .5rem}p{margin:.5rem 0}"
    "code{font:.9em ui-monospace,monospace}"
)
"""The style of the pages below: who is not signed in gets none of our files."""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_PAGE: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">{head}'
    '<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">'
    "<title>{title} · thence</title>"
    f"<style>{_STYLE.replace('{', '{{').replace('}', '}}')}</style></head>"
    "<body><main><h1>{title}</h1><p>{text}</p></main></body></html>"
)
_SESSION_PAGE: Final = re.compile(r"/sessions/[A-Za-z0-9:._-]{1,200}(?:\?at=e[0-9a-f]{1,13})?")
"""Pages that a browser can be led to once it is signed in; all others are the first one."""


def _signed_in(to: str) -> str:
    """Return a page that leads on.

    A browser that comes from another page, as from a file, sends the cookie only when a page of
    this server asks: then a page leads on, no redirect.
    """
    return _PAGE.format(
        head=f'<meta http-equiv="refresh" content="0; url={to}">',
        title="Signed in",
        text=f'<a href="{to}">Open thence</a>',
    )


CSP: Final = (
    f"default-src 'none'; style-src 'self' 'sha256-{_STYLE_HASH}'; script-src 'self';"
    " img-src 'self'; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)

_READS = frozenset({"GET", "HEAD"})
_WRITES = frozenset({"POST"})
_OWN_SITES = frozenset({b"same-origin", b"none"})
_SECRETS = frozenset({"token", "access_token", "key", "bearer", "cookie"})
_IN_PATH = (b"%2f", b"%5c", b"%00", b"\\", b"//")


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused."""

    status: int
    title: str
    hint: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    hint_for_programs: str = ""


class AuthMiddleware:
    """Checks requests to one address before an app (`around`): host, origin, credentials."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: bytes,
        clock: Callable[[], float] = time.time,
        on_sign_in: Callable[[str], None] = lambda _ticket: None,
        home: Path | None = None,
        is_shared: bool = False,
    ) -> None:
        """Guard host and port; the token follows from the key. Used tickets go to `on_sign_in`.

        With a home, browsers of this machine stay signed in when the server is started again.
        `is_shared` lets browsers ask under `host`, as a proxy does and as some of them must: then
        a cookie is sent to the other ports of that host.
        """
        self.host, self.port = host, port
        self.realm = f"thence {_derive(key, 'home')[:16]}{' shared' if is_shared else ''}"
        """What tells this home's server from others', without a secret."""
        self._key = key
        self._clock = clock
        self._signed: dict[str, float] = {}
        self._on_sign_in = on_sign_in
        secret_name = f"{_derive(key, f'name:{port}')[:32]}.localhost"
        is_own = is_loopback(host) and not is_shared
        path = home / f"signed-in-{port}.json" if home is not None and is_own else None
        age = OWN_COOKIE_MAX_AGE_S if path is not None else COOKIE_MAX_AGE_S
        self._cookies = Cookies(clock, age, path)
        self.cookie_name = f"{COOKIE}-{port}"
        """Cookies are shared by all ports of a host: each server needs a name of its own."""
        self.token = _derive(key, "bearer")
        """What a program gives as `Authorization: Bearer …`."""
        self.origin = f"http://{authority(secret_name if is_own else host, port)}"
        """Where browsers ask; a secret like the token, if nothing else may be asked there."""
        own = frozenset(_authorities(secret_name, port) if is_loopback(host) else ())
        shared = frozenset(_authorities(host, port))
        self._authorities = own | shared
        self._browser_authorities = own if is_own else self._authorities
        self._tickets: dict[str, None] = {}
        self._mutex = threading.Lock()

    # -- entering -----------------------------------------------------------------------

    def ticket(self) -> str:
        """Return a new ticket that works once; of too many the oldest becomes invalid."""
        drawn = secrets.token_urlsafe(32)
        with self._mutex:
            self._tickets[drawn] = None
            while len(self._tickets) > MAX_TICKETS:
                del self._tickets[next(iter(self._tickets))]
        return drawn

    def sign_ticket(self) -> str:
        """Return a ticket that any server of this home and port accepts, once, for a short time.

        So that another process can give one out, and whoever listens there in place of a server
        of ours learns nothing that lasts.
        """
        drawn = f"{int(self._clock())}.{secrets.token_urlsafe(16)}"
        return f"{drawn}.{_derive(self._key, f'entry:{self.port}:{drawn}')}"

    def url(self, ticket: str | None = None, page: str = "") -> str:
        """Return a URL that signs a browser in, once, and leads it to a page of a session."""
        entry = self.ticket() if ticket is None else ticket
        to = f"&{PAGE}={quote(page)}" if _SESSION_PAGE.fullmatch(page) else ""
        return f"{self.origin}{ENTER}?{TICKET}={entry}{to}"

    def _use_ticket(self, query: bytes) -> bool:
        """Use up the ticket that a query names; False when it is unknown or was used."""
        ticket = dict(_pairs(query)).get(TICKET, "")
        with self._mutex:
            # Compared with each of them, to the end: the time it takes tells nothing.
            matches = [drawn for drawn in self._tickets if _is_equal(ticket, drawn)]
            for drawn in matches:
                del self._tickets[drawn]
            is_valid = bool(matches) or self._is_signed(ticket)
        if is_valid:
            self._on_sign_in(ticket)
        return is_valid

    def _is_signed(self, ticket: str) -> bool:
        """Whether a ticket was signed a moment ago and not used since."""
        drawn, _, proof = ticket.rpartition(".")
        moment = drawn.partition(".")[0]
        now = self._clock()
        # A ticket may be dated its whole age ahead: it could be tried again for twice as long.
        self._signed = {
            signed: at for signed, at in self._signed.items() if at > now - 2 * TICKET_MAX_AGE_S
        }
        right = _is_equal(proof, _derive(self._key, f"entry:{self.port}:{drawn}"))
        if not right or not moment.isdecimal() or abs(int(moment) - now) > TICKET_MAX_AGE_S:
            return False
        if drawn in self._signed:
            return False
        self._signed[drawn] = now
        return True

    # -- guarding -----------------------------------------------------------------------

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return an app that checks each request before it passes it to `app`."""

        async def guard(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
                return
            if scope["type"] != "http":  # no page of ours opens a socket
                await send({"type": "websocket.close", "code": 1008})
                return
            sealed = _with_headers(send)
            refused = self.refusal(scope)
            if refused is not None:
                await _refuse(refused, scope, sealed)
            elif scope["path"] == ENTER:
                await self._enter(scope, sealed)
            else:
                await app(scope, receive, sealed)

        return guard

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is refused; None when it is allowed."""
        headers = _by_name(scope)
        return (
            self._check_host(headers)
            or self._check_origin(scope, headers)
            or _check_request(scope, headers)
            or self._check_credentials(scope, headers)
            or _check_write(scope, headers)
        )

    def _check_host(self, headers: dict[bytes, list[bytes]]) -> Refusal | None:
        hosts = headers.get(b"host", [])
        # Exact, against DNS rebinding: another site may point its own name at this address.
        if len(hosts) == 1 and _text(hosts[0]) in self._authorities:
            return None
        return Refusal(421, "wrong host name", "use the link that thence serve prints")

    def _check_origin(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> Refusal | None:
        """Refuse what a page of another origin sends; a program sends no origin.

        The file that signs a browser in is a page of another origin: it brings a ticket.
        """
        hint = "open the page directly, not from another site"
        # Browsers set it and no page can: it tells apart what an origin, often left out, does not.
        sites = headers.get(b"sec-fetch-site", [])
        is_sign_in = scope["path"] == ENTER and headers.get(b"sec-fetch-dest") == [b"document"]
        if not is_sign_in and any(site not in _OWN_SITES for site in sites):
            return Refusal(403, "request from another site", hint)
        own = b"http://" + headers[b"host"][0]
        if any(origin != own for origin in headers.get(b"origin", [])):
            return Refusal(403, "request from another origin", hint)
        return None

    def _check_credentials(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> Refusal | None:
        if any(name.lower() in _SECRETS for name, _ in _pairs(scope["query_string"])):
            hint = "send it as a header: Authorization: Bearer …"
            return Refusal(400, "tokens in URLs are not accepted", hint)
        if scope["path"] == ENTER:
            return None  # the entry itself is looked at there
        if self._has_token(headers) or self._has_cookie(headers):
            return None
        return Refusal(
            401,
            "Not signed in",
            "Run `thence serve` and open the link it prints.",
            ((b"www-authenticate", f'Bearer realm="{self.realm}"'.encode()),),
            " Programs send what `thence serve --token` prints as `Authorization: Bearer`.",
        )

    def _has_token(self, headers: dict[bytes, list[bytes]]) -> bool:
        values = headers.get(b"authorization", [])
        if len(values) != 1:
            return False
        scheme, _, token = _text(values[0]).partition(" ")
        return scheme.lower() == "bearer" and _is_equal(token.strip(), self.token)

    def _has_cookie(self, headers: dict[bytes, list[bytes]]) -> bool:
        """Whether a request brings the cookie of a browser that is signed in."""
        values = _cookies(headers.get(b"cookie", []), self.cookie_name)
        return self._is_browser_host(headers) and self._cookies.has_any(values)

    def _is_browser_host(self, headers: dict[bytes, list[bytes]]) -> bool:
        """Whether a request names this server as browsers do that can be signed in."""
        return _text(headers[b"host"][0]) in self._browser_authorities

    async def _enter(self, scope: Scope, send: Send) -> None:
        """Sign a browser in that brings a ticket, and lead it on to the first page."""
        headers: tuple[tuple[bytes, bytes], ...] = ()
        is_browser_host = self._is_browser_host(_by_name(scope))
        if scope["method"] == "GET" and is_browser_host and self._use_ticket(scope["query_string"]):
            age = int(self._cookies.max_age_s)
            flags = f"Path=/; Max-Age={age}; HttpOnly; SameSite=Strict"
            cookie = f"{self.cookie_name}={self._cookies.add()}; {flags}"
            headers = ((b"set-cookie", cookie.encode()),)
        elif not self._has_cookie(_by_name(scope)):
            hint = "Run `thence serve` once more: it prints and opens a new link."
            await _refuse(Refusal(401, "This link was already used", hint), scope, send)
            return
        wanted = dict(_pairs(scope["query_string"])).get(PAGE, "")
        to = wanted if _SESSION_PAGE.fullmatch(wanted) else "/"
        if _by_name(scope).get(b"sec-fetch-site") == [b"none"]:  # typed, or opened from a terminal
            fields = [(b"location", to.encode()), (b"cache-control", b"no-store"), *headers]
            await send({"type": "http.response.start", "status": 303, "headers": fields})
            await send({"type": "http.response.body", "body": b""})
        else:
            await _send_page(200, _signed_in(to), send, headers)


def _by_name(scope: Scope) -> dict[bytes, list[bytes]]:
    """Return the headers of a request: all values of each name, in small letters."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def _check_request(scope: Scope, headers: dict[bytes, list[bytes]]) -> Refusal | None:
    """Refuse methods and protocols that nothing here has, and paths that mean another place."""
    if b"upgrade" in headers:
        return Refusal(400, "unsupported protocol", "use plain HTTP")
    if scope["method"] not in _READS | _WRITES:
        allow = ((b"allow", b"GET, HEAD, POST"),)
        return Refusal(405, "method not allowed", "GET reads, POST writes", allow)
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    raw = raw.partition(b"?")[0].lower()
    path: str = scope["path"]
    hidden = any(sign in raw for sign in _IN_PATH)
    if hidden or any(part in (".", "..") for part in path.split("/")) or not path.isprintable():
        return Refusal(404, "no such page", "ids have letters, digits and dashes")
    return None


def _check_write(scope: Scope, headers: dict[bytes, list[bytes]]) -> Refusal | None:
    """Refuse what would change something and was not sent on purpose by a page or a program."""
    if scope["method"] in _READS:
        return None
    if b"authorization" not in headers and b"origin" not in headers:
        return Refusal(403, "Origin header missing", "browsers send Origin with changes")
    kinds = [kind.partition(b";")[0].strip().lower() for kind in headers.get(b"content-type", [])]
    if kinds != [b"application/json"]:
        return Refusal(415, "send changes as JSON", "Content-Type: application/json")
    sizes = headers.get(b"content-length", [])
    if len(sizes) != 1 or not sizes[0].isdigit():
        return Refusal(411, "Content-Length missing", "Content-Length: …")
    if int(sizes[0]) > MAX_BODY_BYTES:
        return Refusal(413, "request too large", f"at most {MAX_BODY_BYTES} bytes")
    return None


# -- answers --------------------------------------------------------------------------------


def _with_headers(send: Send) -> Send:
    """Put the strict headers on an answer, whoever made it."""
    own = {name for name, _ in HEADERS}

    async def send_sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            rest = [(n, v) for n, v in message.get("headers", ()) if n.lower() not in own]
            message = {**message, "headers": [*rest, *HEADERS]}
        await send(message)

    return send_sealed


async def _refuse(refused: Refusal, scope: Scope, send: Send) -> None:
    """Send why a request is refused: a page to a browser that asks for one, else problem+json."""
    if scope["method"] == "GET" and _wants_page(scope):
        text = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(refused.hint))
        page = _PAGE.format(head="", title=html.escape(refused.title), text=text)
        await _send_page(refused.status, page, send, refused.headers)
        return
    body = msgspec.json.encode(
        {
            "type": "about:blank",
            "title": refused.title,
            "status": refused.status,
            "hint": refused.hint + refused.hint_for_programs,
        }
    )
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *refused.headers,
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    shown = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": shown})


def _wants_page(scope: Scope) -> bool:
    """Whether a browser asks for a page to show."""
    headers = dict(scope["headers"])
    is_part = scope["path"].startswith(("/api", "/static")) or b"hx-request" in headers
    return not is_part and b"text/html" in headers.get(b"accept", b"")


async def _send_page(
    status: int, page: str, send: Send, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    body = page.encode()
    fields = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


# -- secrets and names ----------------------------------------------------------------------


def home_key(home: Path) -> bytes:
    """Return the key that this home's cookies and tokens are made with."""
    return config.key(home / KEY, hint="remove it to create a new one")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def authority(host: str, port: int) -> str:
    """Write host and port the way a URL does."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _authorities(host: str, port: int) -> Iterable[str]:
    """Name this server in all the ways that a browser may."""
    names = [host, *(("localhost", "127.0.0.1", "::1") if is_loopback(host) else ())]
    for name in dict.fromkeys(names):
        yield authority(name, port)
        if port == 80:
            yield authority(name, port).removesuffix(":80")


def _derive(key: bytes, what: str) -> str:
    return hmac.new(key, what.encode(), hashlib.sha256).hexdigest()


def _is_equal(value: str, right: str) -> bool:
    return hmac.compare_digest(value.encode("utf-8", "replace"), right.encode())


def _cookies(headers: Iterable[bytes], name: str) -> list[str]:
    """Return the values of the cookies with this name; those of other servers may be anything."""
    pairs = [part.partition("=") for header in headers for part in _text(header).split(";")]
    return [value.strip() for key, _, value in pairs if key.strip() == name]


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(_text(query), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return [("token", "")]  # so many that nobody can say what they are: refused


def _text(value: bytes) -> str:
    return value.decode("latin-1")
