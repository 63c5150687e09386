"""The app: all routes put together, errors as problem+json, answers packed.

Every answer to a GET that is whole has an ETag, so that asking again for the same costs no bytes,
and is compressed with what the client knows, zstd before gzip. A HEAD is answered as a GET without
its body. Errors that thence raises on purpose say what happened and what to do; of any other the
client learns only that there was one, and the log the rest.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import hashlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
import zstandard
from litestar import Litestar, MediaType, Request, Response, get
from litestar.di import Provide
from litestar.exceptions import HTTPException, NotFoundException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from thence import __version__
from thence.errors import (
    BadConfig,
    BudgetExceeded,
    Conflict,
    NotAppendable,
    NotReadable,
    SessionBusy,
    SessionNotFound,
    ThenceError,
)
from thence.memory.sqlite_file import DAMAGE_ERRORS, RECOVERY_HINT
from thence.memory.store import StoreDamaged, StoreLocked
from thence.serve import agents, api, label_editing, live, pages
from thence.serve import hosted as writing
from thence.serve.auth import ASGIApp, AuthMiddleware, Message, Receive, Scope, Send
from thence.serve.context import AppContext
from thence.serve.hosted import HostedSessions, NotWritable
from thence.serve.live import Hub
from thence.serve.request_timeouts import LimitedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STATIC: Final = Path(__file__).parent / "web" / "static"
MAX_WORKER_THREADS: Final = 8
"""Requests that are worked on at a time: each thread has a connection to the store of its own."""
MIN_COMPRESSED_BYTES: Final = 1024
"""Bytes under which nothing is compressed."""
KINDS: Final = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}
"""What is served beside the pages, by the end of its name; nothing else is."""

_STATUS: Final[tuple[tuple[type[ThenceError], int], ...]] = (
    (StoreLocked, 503),
    (StoreDamaged, 503),
    (SessionNotFound, 404),
    (NotWritable, 403),
    (NotReadable, 410),
    (Conflict, 409),
    (SessionBusy, 503),
    (NotAppendable, 507),
    (BudgetExceeded, 503),
    (BadConfig, 400),
    (ThenceError, 400),
)
_API_HINT: Final = "see /api/openapi.json"
_PAGE_HINT: Final = "check the address, search above, or choose from all sessions"
"""What a page says in the place of `_API_HINT`: a person has no use for a schema."""
_WORDS: Final = {
    400: ("invalid request", _API_HINT),
    404: ("no such page", _API_HINT),
    405: ("method not allowed", "GET reads, POST writes"),
}
_TEXTS: Final = (b"text/", b"application/json", b"application/problem", b"image/svg")
_TRUNCATED: Final = "Input data was truncated"
"""What msgspec says of half a surrogate pair, too."""
_log = logging.getLogger(__name__)


class ProblemDetails(msgspec.Struct, frozen=True):
    """What went wrong, as RFC 9457 has it, and what to do."""

    title: str
    status: int
    type: str = "about:blank"
    detail: str | None = None
    hint: str | None = None


class App:
    """Everything that `thence serve` answers with, behind its gate."""

    def __init__(self, context: AppContext, gate: AuthMiddleware) -> None:
        self.hub = Hub(context)
        self.hosted = HostedSessions(context, self.hub)
        self.failure: Exception | None = None
        """Why it could not start."""
        inside: ASGIApp = routes(context, self.record_failure, self.hub, self.hosted)  # type: ignore[assignment]  # its own types
        self._app = gate.around(compress_answers(inside))

    @contextmanager
    def record_failure(self) -> Iterator[None]:
        """Keep the error that a start fails with: the server would only report a failure."""
        try:
            yield
        except Exception as error:
            self.failure = error
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as ASGI has it."""
        await self._app(scope, receive, send)


class Server(LimitedServer):
    """A server that raises what its start fails with, and ends its streams when it ends."""

    def __init__(
        self, config: uvicorn.Config, app: App, on_started: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._served = app
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call `on_started` once requests are answered."""
        try:
            await super().startup(sockets)
        except SystemExit:
            if self._served.failure is None:
                raise
            raise self._served.failure from None
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then all else."""
        self._served.hub.close()
        await super().shutdown(sockets)


def listener(host: str, port: int, *, backlog: int | None = None) -> socket.socket:
    """Make a socket that listens, for connections on which small pieces are sent at once.

    The loop sees to that only where a socket names its protocol, which those of `create_server`
    do not: a body would wait for the acknowledgement of its headers, 40 ms. What is accepted has
    the options that the socket had when the client came: so they are set before any can.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, backlog=backlog)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def server(app: App, on_started: Callable[[], None] = lambda: None) -> Server:
    """Make a server for an app, to be run with sockets that listen."""
    options = uvicorn.Config(
        app,
        log_level="critical",  # what breaks is logged by the app itself
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=5,
        limit_concurrency=None,
    )
    return Server(options, app, on_started)


def settle() -> None:
    """Calm the collector, for a process that does nothing but serve.

    Sessions at hand are many small things that stay: to look through all of them again and again
    would take a fifth of the time in which a large one is laid out.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


class MsgspecApp(Litestar):
    """An app whose requests and answers are described by msgspec, and by nothing else."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        # Litestar also loads Pydantic where it is installed: 8 MB for models that we do not have.
        return [*plugins, MsgspecDIPlugin()]


def routes(
    context: AppContext,
    record_failure: Callable[[], AbstractContextManager[None]],
    hub: Hub,
    hosted: HostedSessions,
) -> Litestar:
    """Make the app without its gate; a start that fails does so in `record_failure`."""

    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        with ThreadPoolExecutor(MAX_WORKER_THREADS, thread_name_prefix="thence-serve") as threads:
            asyncio.get_running_loop().set_default_executor(threads)
            threads.submit(pages.load_templates)  # half a second that no start should wait for
            with record_failure():
                hub.start()
                hosted.start()
            try:
                yield
            finally:
                await asyncio.to_thread(hosted.stop)
                await hub.stop()

    return MsgspecApp(
        [
            static,
            openapi,
            *live.ROUTES,
            *writing.ROUTES,
            *api.ROUTES,
            *pages.ROUTES,
            *label_editing.ROUTES,
        ],
        dependencies={
            "context": Provide(lambda: context, sync_to_thread=False),
            "hub": Provide(lambda: hub, sync_to_thread=False),
            "hosted": Provide(lambda: hosted, sync_to_thread=False),
        },
        exception_handlers={
            ThenceError: _handle_thence_error,
            HTTPException: _handle_http_error,
            **dict.fromkeys(DAMAGE_ERRORS, _handle_damaged_store),
            RecursionError: _handle_recursion,
            Exception: _handle_bug,
        },
        lifespan=[lifespan],
        openapi_config=OpenAPIConfig(
            title="thence",
            version=__version__,
            description="Stored sessions of coding agents.",
            path="/api/openapi",  # no page of theirs: these load scripts from elsewhere
            render_plugins=[JsonRenderPlugin(path="/", media_type=MediaType.JSON)],
            use_handler_docstrings=True,
        ),
        request_max_body_size=None,  # the gate bounds it
        logging_config=None,
        debug=False,
    )


@get("/static/{name:str}", include_in_schema=False, sync_to_thread=True)
def static(name: FromPath[str]) -> Response[bytes]:
    """Return one of our own files."""
    headers = {"cache-control": "private, no-cache"}
    kind = KINDS.get(Path(name).suffix)
    if name == agents.STYLESHEET:
        return Response(agents.stylesheet(), media_type=kind, headers=headers)
    # A name that is in the folder is no path; what is not there is not looked for.
    if kind is None or name not in {path.name for path in STATIC.glob("*") if path.is_file()}:
        raise NotFoundException(f"no such file: {name}")
    return Response((STATIC / name).read_bytes(), media_type=kind, headers=headers)


@get("/api/openapi.json", include_in_schema=False, sync_to_thread=True)
def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Return the OpenAPI document of the API."""
    return request.app.openapi_schema.to_schema()


# -- errors ---------------------------------------------------------------------------------


def _handle_thence_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    assert isinstance(error, ThenceError)  # noqa: S101 - registered for these alone
    status = next(number for kind, number in _STATUS if isinstance(error, kind))
    return _problem_response(request, ProblemDetails(error.message, status, hint=error.hint))


def _handle_http_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    extra = error.extra if isinstance(error.extra, Sequence | dict) else None
    detail = "; ".join(_detail_text(entry) for entry in extra) if isinstance(extra, list) else None
    if _TRUNCATED in f"{detail} {error.detail}":
        detail = "the body ends early, or a text in it has half a character, such as \\ud83d alone"
    title, hint = _WORDS.get(error.status_code, (error.detail, None))
    problem = ProblemDetails(title, error.status_code, detail=detail or error.detail, hint=hint)
    return _problem_response(request, problem, headers=error.headers)


def _handle_damaged_store(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    hint = f"see thence doctor; {RECOVERY_HINT}"
    return _problem_response(
        request, ProblemDetails(f"the store is damaged: {error}", 503, hint=hint)
    )


def _handle_recursion(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Refuse a body that is nested deeper than Python can follow; elsewhere it is a bug."""
    if request.method != "POST":
        return _handle_bug(request, error)
    hint = "send less deeply nested values"
    return _problem_response(
        request, ProblemDetails("the body is nested too deeply", 400, hint=hint)
    )


def _handle_bug(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    _log.error("request.failed path=%s", request.url.path, exc_info=error)
    hint = "this is a bug; see the terminal that runs thence serve"
    return _problem_response(request, ProblemDetails("internal error", 500, hint=hint))


def _detail_text(problem: object) -> str:
    if isinstance(problem, dict):
        return ": ".join(str(problem[name]) for name in ("key", "message") if problem.get(name))
    return str(problem)


def _problem_response(
    request: Request[Any, Any, Any], problem: ProblemDetails, headers: dict[str, str] | None = None
) -> Response[Any]:
    """Return a problem as a page if a browser asked for one, else as problem+json."""
    wants_page = "text/html" in request.headers.get("accept", "")
    if wants_page and not request.url.path.startswith(("/api", "/static")):
        hint = _PAGE_HINT if problem.hint == _API_HINT else problem.hint
        shown = pages.problem(request, problem.status, problem.title, hint)
        if shown is not None:
            return shown
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type="application/problem+json",
        headers={"cache-control": "no-store", **(headers or {})},
    )


# -- packing --------------------------------------------------------------------------------


def compress_answers(app: ASGIApp) -> ASGIApp:
    """Wrap an app: answer HEAD, add ETags, compress complete answers that are large enough."""

    async def compressing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        compressor = _Compressor(scope, send)
        if scope["method"] == "HEAD" and not scope["path"].endswith("/live"):
            scope = {**scope, "method": "GET"}
        await app(scope, receive, compressor.take)

    return compressing


class _Compressor:
    """One answer on its way out."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._head = scope["method"] == "HEAD"
        self._reads = scope["method"] in ("GET", "HEAD")
        asked = {name.lower(): value for name, value in scope["headers"]}
        self._accepts = asked.get(b"accept-encoding", b"").lower()
        self._known = asked.get(b"if-none-match", b"")
        self._start: Message | None = None
        self._body = bytearray()
        self._through = False

    async def take(self, message: Message) -> None:
        """Take a message of the app; what streams goes straight through."""
        if message["type"] == "http.response.start":
            kind = _header(message, b"content-type")
            self._through = kind.startswith(b"text/event-stream")
            if not self._through:
                self._start = message
                return
        if self._through or self._start is None:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            await self._send_complete(self._start, bytes(self._body))

    async def _send_complete(self, start: Message, body: bytes) -> None:
        headers = [(n, v) for n, v in start["headers"] if n.lower() != b"content-length"]
        status: int = start["status"]
        if self._reads and status == 200:
            tag = _header(start, b"etag")
            if not tag:
                tag = b'W/"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
                headers.append((b"etag", tag))
            headers.append((b"vary", b"Accept-Encoding, Cookie, Authorization"))
            if not _header(start, b"cache-control"):
                headers.append((b"cache-control", b"private, no-cache"))
            if tag in [known.strip() for known in self._known.split(b",")]:
                status, body = 304, b""
                headers = [(n, v) for n, v in headers if n.lower() != b"content-type"]
        encoding, body = _compress(body, _header(start, b"content-type"), self._accepts)
        if encoding:
            headers.append((b"content-encoding", encoding))
        if status not in (204, 304):
            headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"" if self._head else body})


def _header(start: Message, name: bytes) -> bytes:
    return next((value for n, value in start.get("headers", ()) if n.lower() == name), b"")


def _compress(body: bytes, kind: bytes, accepts: bytes) -> tuple[bytes, bytes]:
    """Return the encoding and the compressed body; an empty encoding where that does not help."""
    if len(body) < MIN_COMPRESSED_BYTES or not kind.startswith(_TEXTS):
        return b"", body
    ways = {encoding.partition(b";")[0].strip(): encoding for encoding in accepts.split(b",")}
    wanted = {way for way, weight in ways.items() if b"q=0" not in weight.replace(b"q=0.", b"")}
    if b"zstd" in wanted:
        return b"zstd", zstandard.ZstdCompressor(level=3).compress(body)
    if b"gzip" in wanted:
        return b"gzip", gzip.compress(body, compresslevel=5, mtime=0)
    return b"", body
