"""A client of server-sent events for the tests: it reads as a browser does, and remembers."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from tests.serve.conftest import LONG, House


class Heard(NamedTuple):
    """One server-sent event."""

    kind: str
    data: Any
    mark: str | None


class Listener:
    """A client that listens until it is closed."""

    def __init__(self, house: House, path: str, *, after: str | None = None) -> None:
        self._link = http.client.HTTPConnection("127.0.0.1", house.port, timeout=LONG)
        headers: Mapping[str, str] = {"Authorization": f"Bearer {house.gate.token}"}
        if after is not None:
            headers = {**headers, "Last-Event-ID": after}
        self._link.request("GET", path, headers=headers)
        self._answer = self._link.getresponse()
        assert 200 == self._answer.status, self._answer.read()
        self.heard: list[Heard] = []
        self.beats = 0
        self.ended = False
        self.last_id = after
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        fields: dict[str, str] = {}
        try:
            for line in self._answer:
                text = line.decode().rstrip("\n")
                if text.startswith(":"):
                    self.beats += 1
                elif text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    self._hear(fields)
                    fields = {}
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # it was closed
        with self._more:
            self.ended = True
            self._more.notify_all()

    def _hear(self, fields: dict[str, str]) -> None:
        message = Heard(fields["event"], msgspec.json.decode(fields["data"]), fields.get("id"))
        with self._more:
            self.last_id = message.mark or self.last_id
            self.heard.append(message)
            self._more.notify_all()

    def wait(self, fits: Callable[[Listener], bool], seconds: float = LONG) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        with self._more:
            while not fits(self) and not self.ended and time.monotonic() < until:
                self._more.wait(0.2)
            assert fits(self), self.heard[-5:]

    def wait_for(self, kind: str, times: int = 1) -> Heard:
        """Wait until so many events of a kind were heard; the last of them."""
        self.wait(lambda listener: len(listener.of(kind)) >= times)
        return self.of(kind)[times - 1]

    def of(self, kind: str) -> list[Heard]:
        """All events of a kind so far."""
        return [message for message in self.heard if message.kind == kind]

    @property
    def line(self) -> list[int]:
        """What a client that does as it is told has: the events of the line."""
        out: list[int] = []
        for message in list(self.heard):
            if message.kind == "rewound":
                del out[message.data["count"] :]
            elif message.kind == "start":
                out.clear()
            elif message.kind == "event":
                out.append(message.data["event_id"])
        return out

    def close(self) -> None:
        """Go away, as a browser does whose page is closed."""
        if self._link.sock is not None:
            import socket

            self._link.sock.shutdown(socket.SHUT_RDWR)
        self._link.close()
        self._thread.join(LONG)
