"""An object store that speaks as much of S3 as obstore asks for, and fails when it is told to.

Names and bytes lie in a dictionary. `faults` says, request by request, what goes wrong: `refuse`
answers 503 and does nothing, `lose` does as asked and cuts the line. Signatures are not looked at;
checksums of bodies are. moto, a server that others made, takes its place where it is installed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import pytest

MOTO = Path(__file__).resolve().parent.parent / ".venv" / "s3" / "bin" / "moto_server"
TIMEOUT_S = 60.0


class Bucket(ThreadingHTTPServer):
    """The server, and what it holds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.mutex = threading.Lock()

    def handle_error(self, *_: Any) -> None:
        """Say nothing of lines that were cut."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _run(self) -> None:
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix("/team").removeprefix("/")
        query = parse_qs(url.query, keep_blank_values=True)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.server.mutex:
            self.server.asked.append(f"{self.command} {key} {sorted(query)}")
            fault = self.server.faults.pop(0) if self.server.faults else ""
            if fault == "refuse":
                self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
                return
            status, content, headers = self._handle(key, query, body)
        if fault == "lose":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(status, content, headers)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _run  # noqa: N815 - names of the library

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(
        self, key: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        checksum = self.headers.get("x-amz-checksum-sha256")
        if checksum and checksum != base64.b64encode(hashlib.sha256(body).digest()).decode():
            return 400, b"<Error><Code>BadDigest</Code></Error>", {}
        handlers = {"PUT": self._put, "POST": self._post, "DELETE": self._delete}
        return handlers.get(self.command, self._get)(key, query, body)

    def _put(
        self, key: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        if "uploadId" in query:
            self.server.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
        elif self.headers.get("if-none-match") == "*" and key in self.server.objects:
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        else:
            self.server.objects[key] = body
        return 200, b"", {"ETag": f'"{hashlib.sha256(body).hexdigest()}"'}

    def _post(
        self, key: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        if "uploads" in query:
            name = f"u{len(self.server.uploads)}"
            self.server.uploads[name] = {}
            content = f"<UploadId>{name}</UploadId>"
            return _xml("InitiateMultipartUploadResult", content)
        if "uploadId" in query:
            parts = self.server.uploads[query["uploadId"][0]]
            self.server.objects[key] = b"".join(parts[at] for at in sorted(parts))
            return _xml("CompleteMultipartUploadResult", '<ETag>"x"</ETag>')
        keys = [unescape(name) for name in re.findall("<Key>(.*?)</Key>", body.decode())]
        for name in keys:
            self.server.objects.pop(name, None)
        content = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in keys)
        return _xml("DeleteResult", content)

    def _delete(self, key: str, *_: Any) -> tuple[int, bytes, dict[str, str]]:
        self.server.objects.pop(key, None)
        return 204, b"", {}

    def _get(
        self, key: str, query: dict[str, list[str]], _body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        if "list-type" in query:
            return self._list(query.get("prefix", [""])[0])
        body = self.server.objects.get(key)
        if body is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        headers = {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
        if byte_range is None:
            return 200, body, headers
        start, end = int(byte_range[1]), min(int(byte_range[2]), len(body) - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
        return 206, body[start : end + 1], headers

    def _list(self, prefix: str) -> tuple[int, bytes, dict[str, str]]:
        content = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, body in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        return _xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{content}")


def _xml(name: str, content: str) -> tuple[int, bytes, dict[str, str]]:
    body = f'<?xml version="1.0" encoding="UTF-8"?><{name}>{content}</{name}>'
    return 200, body.encode(), {"Content-Type": "application/xml"}


def environment(port: int) -> dict[str, str]:
    """How a client finds a server here."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def bucket() -> Iterator[Bucket]:
    """Serve meanwhile."""
    server = Bucket()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def moto() -> Iterator[int]:
    """Serve with moto meanwhile, a bucket `team` made; the test is skipped where it is not."""
    if not MOTO.exists():
        pytest.skip("no moto here: scripts/bucket fetches it")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    server = subprocess.Popen(
        [str(MOTO), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", "")},
    )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/team", method="PUT")
                urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()
