"""A place with nothing but loopback, and a home of its own: where a real client runs.

`run(order)` starts this file in private namespaces (network, mounts, processes) and gives back what
happened. Inside, the home that was ordered lies at `/mnt/dev`, whatever it is called outside, so
that two runs say the same words; a scripted model listens; commands run one after another without
any capability, so that modes of files mean something even to root; a `capable` order leaves
them, for a client that makes a sandbox of its own; `talks` run after them, on a terminal. When the
model is about to give its second answer, the agent being in the midst of its work, the order's harm
is done to our queue. A cell with a `link` has a cable to another network as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = Path("/mnt/dev")
QUEUE = HOME / ".thence" / "queue"
DATABASE = HOME / ".thence" / "memory" / "thence.db"

TIME = 300
"""Seconds that one command may take; only one that hangs takes so long."""

WAIT_S = 60
"""Seconds that are waited for the last text to be in the store."""

_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def missing() -> str:
    """Say why no cell can be made here; nothing if one can."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "needs Linux and unshare (util-linux)"
    if ROOT.is_relative_to("/mnt"):
        return "needs /mnt, and the checkout lies there"
    tried = subprocess.run(
        [*_command(), "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"private namespaces are refused: {tried.stderr.strip()}" if tried.returncode else ""


def _command() -> list[str]:
    return [*_UNSHARE, *(() if os.geteuid() == 0 else ("--map-root-user",))]


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order in a cell: commands, environment, prompt, answers, harm."""
    done = subprocess.run(
        [*_command(), sys.executable, "-m", "tests.e2e.cell"],
        input=json.dumps(order),
        cwd=ROOT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIME * 4,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# -- inside ---------------------------------------------------------------------------------


def main() -> None:
    """Carry out the order on stdin; what happened goes to stdout."""
    from tests.e2e.models import Call, Models

    order = json.load(sys.stdin)
    _loopback()
    if "link" in order:
        _join(**order["link"])
    _mount("-t", "tmpfs", "tmpfs", "/mnt")
    HOME.mkdir()
    _mount("--bind", order["home"], str(HOME))
    script = order["script"] if "script" in order else {order["prompt"]: order["answers"]}
    answers = {
        prompt: [reply if isinstance(reply, str) else Call(*reply) for reply in listed]
        for prompt, listed in script.items()
    }
    harm = HARMS[order.get("harm", "none")]
    models = Models(
        answers,
        lambda at: harm() if at == 1 else None,
        needs_tools=order.get("needs_tools", True),
    )
    before = None if order.get("capable") else _powerless
    watch = Watch(order["watch"], order["env"]) if "watch" in order else None
    ran = [_ran(command, order["env"], before) for command in order["commands"]]
    ran += [_typed(talk, order["env"]) for talk in order.get("talks", ())]
    lags = watch.lags() if watch is not None else {}
    asked = [{"prompt": key[0], "number": key[1]} for key in models.asked]
    out = {"ran": ran, "asked": list(models.asked.values()), "answered": asked}
    json.dump({**out, "billed": models.bills, "lags": lags}, sys.stdout)


def _loopback() -> None:
    """Bring loopback up, which in a new network it is not."""
    with socket.socket() as handle:
        ask = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # up and running
        fcntl.ioctl(handle, 0x8914, ask)  # SIOCSIFFLAGS


def _join(network: str, address: str, port: str) -> None:
    """Plug this cell into the bridge of another network, which `ip netns` knows by its name."""
    there = ("ip", "netns", "exec", network)
    for command in (
        ("ip", "link", "add", "eth0", "type", "veth", "peer", "name", port),
        ("ip", "link", "set", port, "netns", network),
        ("ip", "addr", "add", address, "dev", "eth0"),
        ("ip", "link", "set", "eth0", "up"),
        (*there, "ip", "link", "set", port, "master", "bridge"),
        (*there, "ip", "link", "set", port, "up"),
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stdout=subprocess.DEVNULL)


def _ran(
    command: Sequence[str], env: dict[str, str], before: Callable[[], None] | None
) -> dict[str, Any]:
    # As `env` would have it: words before the program that hold a = are variables.
    settings = list(itertools.takewhile(lambda word: "=" in word, command))
    env = {**env, **dict(word.split("=", 1) for word in settings)}
    done = subprocess.run(
        command[len(settings) :],
        cwd=HOME / "project",
        env={"HOME": str(HOME), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=TIME,
        preexec_fn=before,
    )
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def _typed(talk: dict[str, str], env: dict[str, str]) -> dict[str, Any]:
    """Run a command line on a terminal, and type into it."""
    from tests.e2e import terminal

    env = {"HOME": str(HOME), **env, "TERM": "xterm-256color"}
    return terminal.converse(cwd=HOME, env=env, prepare=_powerless, **talk)


class Watch:
    """How long after a text is in an agent's files our store has it, while a sweep watches.

    Each text is looked for in the bytes below the agent's folder, and in what the store says of the
    newest sessions. The time in which the sweep was ready to run and had no processor, because
    others had them all, is not counted.
    """

    def __init__(self, watched: dict[str, Any], env: dict[str, str]) -> None:
        self._folder, self._logs = HOME / watched["folder"], watched["logs"]
        self._texts: list[str] = watched["texts"]
        self._written: dict[str, float] = {}
        self._stored: dict[str, float] = {}
        self._is_over = threading.Event()
        home = {"HOME": str(HOME), **env}
        command = [*watched["sweep"], "sweep", "--watch"]
        out = subprocess.DEVNULL
        self._sweep = subprocess.Popen(command, env=home, cwd=HOME, stdout=out, stderr=out)
        until = time.monotonic() + TIME
        while not DATABASE.exists() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(2)  # it has begun to watch
        self._threads = [threading.Thread(target=look) for look in (self._source, self._store)]
        for thread in self._threads:
            thread.start()

    def lags(self) -> dict[str, float | None]:
        """Return how long each text took, in seconds; None for one that never came."""
        until = time.monotonic() + WAIT_S
        while len(self._stored) < len(self._texts) and time.monotonic() < until:
            time.sleep(0.02)
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._sweep.terminate()
        self._sweep.wait()
        return {
            text: round(self._stored[text] - self._written[text], 2)
            if text in self._stored and text in self._written
            else None
            for text in self._texts
        }

    def _time(self) -> float:
        """Return the time, less what the sweep has waited for a processor until now."""
        threads = Path(f"/proc/{self._sweep.pid}/task").glob("*/schedstat")
        waited_ns = (int(path.read_text().split()[1]) for path in threads)
        return time.monotonic() - max(waited_ns, default=0) / 1e9

    def _source(self) -> None:
        while not self._is_over.wait(0.02):
            for text in self._texts:
                if text not in self._written and _is_written(text, self._folder, self._logs):
                    self._written[text] = self._time()

    def _store(self) -> None:
        from thence.memory.store import open_store

        store = open_store(f"sqlite:{DATABASE}", must_exist=True)
        while not self._is_over.wait(0.02):
            for row in list(store.sessions()):
                uid = row.session.session_uid
                summaries = " ".join(stored.event.summary for stored in store.events(uid))
                for text in self._texts:
                    if text not in self._stored and text in summaries:
                        self._stored[text] = self._time()
        store.close()


def _is_written(text: str, folder: Path, logs: str) -> bool:
    wanted = text.encode()
    # A file that is being replaced, or a folder that is removed while it is listed: the next look
    # tells.
    with contextlib.suppress(OSError):
        return any(wanted in path.read_bytes() for path in folder.glob(logs) if path.is_file())
    return False


def _powerless() -> None:
    """Leave no capability to what is run: else modes of files mean nothing to it."""
    prctl = ctypes.CDLL(None).prctl
    for capability in range(64):
        prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


# -- harms ----------------------------------------------------------------------------------


def _nothing() -> None:
    pass


def _removed() -> None:
    """Somebody removes the queue."""
    shutil.rmtree(QUEUE)


def _gone() -> None:
    """Somebody removes all that is ours."""
    shutil.rmtree(QUEUE.parent)


def _closed() -> None:
    """The queue takes nothing."""
    QUEUE.chmod(0o500)


def _full() -> None:
    """The disk of the queue has not one byte left."""
    _mount("-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(QUEUE))
    try:
        (QUEUE / "ballast").write_bytes(bytes(1 << 20))
    except OSError:
        return
    raise AssertionError("the disk is not full")


HARMS: dict[str, Callable[[], None]] = {
    "none": _nothing,
    "removed": _removed,
    "gone": _gone,
    "closed": _closed,
    "full": _full,
}

if __name__ == "__main__":
    main()
