"""A server on loopback that takes what is posted to it: a hub, or a collector of spans."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple


class Post(NamedTuple):
    """One request."""

    path: str
    authorization: str | None
    body: bytes

    @property
    def json(self) -> Any:
        """What it says, as JSON."""
        return json.loads(self.body)


@contextlib.contextmanager
def listening() -> Iterator[tuple[str, list[Post]]]:
    """Listen; what is yielded is the address, and what was posted so far."""
    posts: list[Post] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append(Post(self.path, self.headers.get("Authorization"), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", posts
        finally:
            server.shutdown()
            thread.join()
