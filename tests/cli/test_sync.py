"""`thence sync`: machines of one person, a shared place each of several kinds, kills, keys."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.cli.machines import Machine
from tests.sshd import HOST, SshServer, missing_sshd
from thence.bridge import sync, sync_bundles
from thence.bridge.sync_keys import Key, content_name, phrase_of, secret_in
from thence.bridge.sync_places import FolderPlace
from thence.errors import BadConfig

pytest.importorskip("pyrage")

FIRST, SECOND, THIRD = (f"{digit * 8}-1111-4111-8111-111111111111" for digit in "abc")
PLANTED = "quagmire-lantern"


def _git(place: Path) -> str:
    target = place.with_suffix(".git")
    subprocess.run(["git", "init", "--quiet", "--bare", str(target)], check=True)
    return str(target)


def _folder(place: Path) -> str:
    place.mkdir()
    return str(place)


def _bucket(place: Path) -> str:
    pytest.importorskip("obstore")
    return f"file://{place}"


PLACES: dict[str, Callable[[Path], str]] = {"folder": _folder, "git": _git, "bucket": _bucket}


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A server on loopback."""
    if why := missing_sshd():
        pytest.skip(why)
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


def _place(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty shared place."""
    place = tmp_path / "shared"
    if name != "ssh":
        return PLACES[name](place)
    server: SshServer = request.getfixturevalue("sshd")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.setenv("PATH", f"{server.bin}{os.pathsep}{os.environ['PATH']}")
    place.mkdir()
    return server.address(place)


FAR = pytest.param("ssh", marks=pytest.mark.slow)


@pytest.fixture(params=[*PLACES, FAR])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty shared place, one of each kind."""
    return _place(request.param, request, tmp_path)


@pytest.fixture(params=["folder", FAR])
def near_or_far(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty shared folder, here or by ssh."""
    return _place(request.param, request, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return an empty shared folder."""
    return _folder(tmp_path / "shared")


def _pair(tmp_path: Path, target: str) -> tuple[Machine, Machine, str]:
    """Return two machines that sync, a session of its own on each."""
    first, second = Machine(tmp_path / "alpha"), Machine(tmp_path / "beta")
    first.write_claude(FIRST, [f"mend the {PLANTED} gauge", "mended"], "/work/tidepool")
    second.write_claude(SECOND, ["draw the harbour", "drawn"], "/work/harbour")
    phrase = first.begin(target, "alpha-host")
    assert 0 == second.join(target, phrase, "beta-host").returncode
    return first, second, phrase


def _rotated(machine: Machine) -> str:
    """Change the key; returns the new phrase."""
    lines = machine.run("sync", "rotate").stdout.splitlines()
    return next(line.strip() for line in lines if line.startswith("  "))


def _messages(machine: Machine, session: str) -> Any:
    return machine.json("show", session, "--as", "messages")


def _facts(machine: Machine) -> dict[str, Any]:
    """Return what must be the same on all machines."""
    return {
        uid: (row["title"], row["tags"], row["pinned"], row["events"])
        for uid, row in machine.sessions().items()
    }


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_sessions_go_both_ways(tmp_path: Path, target: str) -> None:
    """After a sync on each, both list and show the same sessions, with their machine."""
    first, second, _ = _pair(tmp_path, target)
    first.sync()
    second.sync()
    first.sync()

    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == set(first.sessions())
    assert _facts(first) == _facts(second)
    assert _messages(first, FIRST) == _messages(second, FIRST)
    assert "beta-host" == first.sessions()[f"claude:{SECOND}"]["machine"]
    assert "machine" in first.run("ls").stdout.splitlines()[0]
    assert "  beta-host  " in first.run("ls").stdout
    assert "  on beta-host  " in first.run("resume").stdout


@pytest.mark.slow
@pytest.mark.sampled(2, 1)
def test_a_second_sync_changes_nothing(tmp_path: Path, target: str) -> None:
    """Sync twice is sync once: nothing is written, nothing is received."""
    first, second, _ = _pair(tmp_path, target)
    for machine in (first, second, first):
        machine.sync()
    again = [first.sync(), second.sync(), first.sync()]

    assert [0, 0, 0] == [report["sent_bundles"] for report in again]
    assert [[], [], []] == [report["received"] for report in again]


def test_of_a_session_that_grew_the_new_records_are_written(tmp_path: Path, folder: str) -> None:
    """Cost follows what is new, and the other machine has all of it."""
    first, second, _ = _pair(tmp_path, folder)
    first.sync()
    second.sync()
    texts = [f"mend the {PLANTED} gauge", "mended", "and the buoy", "too"]
    first.write_claude(FIRST, texts, "/work/tidepool")
    report = first.sync()
    second.sync()

    assert 2 == report["sent_records"]
    assert _messages(first, FIRST) == _messages(second, FIRST)
    assert 4 == len(_messages(second, FIRST))


def test_a_log_that_was_written_anew_is_written_anew(tmp_path: Path, folder: str) -> None:
    """Records that changed are not mixed with those that follow."""
    first, second, _ = _pair(tmp_path, folder)
    first.sync()
    second.sync()
    first.write_claude(FIRST, ["something else entirely", "yes", "so it is", "it is"], "/work/t")
    first.sync()
    second.sync()

    assert _messages(first, FIRST) == _messages(second, FIRST)


@pytest.mark.slow
def test_three_machines_in_any_order_end_alike(tmp_path: Path) -> None:
    """Whoever syncs first, all have the same sessions, names, tags and pins."""
    ends = []
    for number, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)]):
        base = tmp_path / f"{number}"
        base.mkdir()
        target = _folder(base / "shared")
        first, second, phrase = _pair(base, target)
        third = Machine(base / "gamma")
        third.join(target, phrase, "gamma-host")
        third.write_claude(THIRD, ["count the gulls", "nine"], "/work/gulls")
        machines = [first, second, third]
        for at in order:
            machines[at].sync()
        first.run("name", FIRST, "gauge")
        for at in reversed(order):
            machines[at].sync()
        for machine in machines:
            machine.run("tag", FIRST, f"+{machine.folder.name}")
        machines[order[0]].run("keep", FIRST)
        for at in (*order, *order):
            machines[at].sync()
        facts = [_facts(machine) for machine in machines]

        assert facts[0] == facts[1] == facts[2]
        ends.append(facts[0])

    assert all(end == ends[0] for end in ends)
    assert ("gauge", ["alpha", "beta", "gamma"], True) == ends[0][f"claude:{FIRST}"][:3]


@pytest.mark.slow
def test_the_last_name_and_the_last_pin_win(tmp_path: Path, folder: str) -> None:
    """What was changed last counts everywhere, also taking back."""
    first, second, _ = _pair(tmp_path, folder)
    for machine in (first, second):
        machine.sync()
    first.run("name", FIRST, "first name")
    first.run("keep", FIRST)
    second.run("name", FIRST, "second name")
    for machine in (first, second, first):
        machine.sync()
    pinned = _facts(second)[f"claude:{FIRST}"]
    second.run("keep", FIRST, "--off")
    first.run("tag", FIRST, "+later")
    for machine in (second, first, second):
        machine.sync()

    assert ("second name", [], True) == pinned[:3]
    assert _facts(first) == _facts(second)
    assert ("second name", ["later"], False) == _facts(first)[f"claude:{FIRST}"][:3]


@pytest.mark.slow
@pytest.mark.sampled(2, 1)
def test_who_reads_the_place_learns_sizes_and_times(tmp_path: Path, target: str) -> None:
    """No word, id, name of a machine, folder, agent or project is in it, nor in names of files."""
    first, second, phrase = _pair(tmp_path, target)
    first.run("sweep")
    first.run("name", FIRST, f"{PLANTED} by name")
    first.run("tag", FIRST, f"+{PLANTED}")
    for machine in (first, second, first):
        machine.sync()
    place = Path(target.removeprefix("file://").removeprefix(f"ssh://{HOST}"))
    if (place / "HEAD").is_file():
        clone = tmp_path / "clone"
        subprocess.run(["git", "clone", "-q", "-b", "thence", str(place), str(clone)], check=True)
        log = ["git", "-C", str(clone), "log", "--format=%an %ae %cn %ce %B"]
        output = subprocess.run(log, capture_output=True, text=True, check=True).stdout

        assert {"thence thence@localhost thence thence@localhost thence", ""} == set(
            output.split("\n")
        )
        files = [path for path in clone.iterdir() if path.name != ".git"]
    else:
        files = [path for path in place.rglob("*") if path.is_file()]
    words = [PLANTED, FIRST, FIRST[:8], "claude", "alpha-host", "tidepool", phrase.split()[0]]
    words += ["record", "session", "thence"]

    assert len(files) >= 3
    assert all(len(path.name) == 32 for path in files)
    for path in files:
        body = path.read_bytes()
        assert [] == [word for word in words if word.encode() in body or word in path.name]


def test_equal_sessions_cannot_be_recognised_in_two_places(tmp_path: Path) -> None:
    """Names are keyed and contents encrypted: who has a session cannot ask whether it is there."""
    header = b"age-encryption.org/v1\n"
    names: list[set[str]] = []
    blocks: list[set[bytes]] = []
    for number in "12":
        machine, place = Machine(tmp_path / number / "alpha"), tmp_path / number / "shared"
        machine.write_claude(FIRST, [f"mend the {PLANTED} gauge", "mended"], "/work/tidepool")
        machine.begin(_folder(place), "alpha-host")
        machine.sync()
        bodies = [path.read_bytes() for path in place.iterdir()]
        assert all(body.startswith(header) for body in bodies)
        names.append({path.name for path in place.iterdir()})
        rests = [body.removeprefix(header) for body in bodies]
        blocks.append({rest[at : at + 16] for rest in rests for at in range(len(rest) - 15)})

    assert 2 <= len(names[0]) == len(names[1])
    assert not names[0] & names[1]
    assert not blocks[0] & blocks[1]


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_what_is_deleted_on_one_machine_is_deleted_on_all(tmp_path: Path, target: str) -> None:
    """It goes from every store and from the place, does not come back, and leaves no trace."""
    first, second, _ = _pair(tmp_path, target)
    second.write_claude(THIRD, ["keep the gulls", "kept"], "/work/gulls")
    for machine in (second, first):
        machine.sync()
    done = first.run("forget", SECOND, "--yes")
    report = first.sync()
    received = second.sync()
    first.sync()
    second.write_claude(SECOND, ["draw the harbour", "drawn", "again", "yes"], "/work/harbour")
    for machine in (second, first):
        machine.sync()

    assert 0 == done.returncode, done.stderr
    assert 1 == report["erased_bundles"]
    assert 1 == received["forgotten"]
    for machine in (first, second):
        assert {f"claude:{FIRST}", f"claude:{THIRD}"} == set(machine.sessions())
    late = Machine(tmp_path / "gamma")
    late.join(target, first.run("sync", "rotate").stdout.splitlines()[2], "gamma-host")
    late.sync()

    assert {f"claude:{FIRST}", f"claude:{THIRD}"} == set(late.sessions())
    assert _messages(second, THIRD) == _messages(late, THIRD)


def test_an_excluded_project_neither_leaves_nor_arrives(tmp_path: Path, folder: str) -> None:
    """Excludes hold on the machine that would send, and on the one that would receive."""
    first, second, _ = _pair(tmp_path, folder)
    first.home.mkdir(exist_ok=True)
    first.write_claude(THIRD, ["the private one", "yes"], "/work/private")
    first.run("sweep")
    (first.home / "config.toml").write_text('[session_memory]\nexclude = ["/work/private"]\n')
    second.home.mkdir(exist_ok=True)
    (second.home / "config.toml").write_text('[session_memory]\nexclude = ["/work/tidepool"]\n')
    report = first.sync()
    second.sync()

    assert 1 == report["excluded"]
    assert {f"claude:{SECOND}"} == set(second.sessions())


def test_secrets_leave_redacted(tmp_path: Path, folder: str) -> None:
    """What goes out is what the store has: no secret is in it."""
    from thence.agents.samples import fake_token

    first, second, _ = _pair(tmp_path, folder)
    secret = fake_token()
    first.write_claude(FIRST, [f"use {secret} here", "used"], "/work/tidepool")
    first.sync()
    second.sync()

    assert secret not in json.dumps(_messages(second, FIRST))
    assert "REDACTED" in json.dumps(_messages(second, FIRST))


def test_a_dry_run_writes_nothing(tmp_path: Path, folder: str) -> None:
    """It says what would go out and come in; neither place nor home changes."""
    first, second, _ = _pair(tmp_path, folder)
    first.sync()
    second.run("sweep")
    before = sorted(Path(folder).iterdir())
    state = {p: p.read_bytes() for p in (second.home / "sync").rglob("*") if p.is_file()}
    answer = second.json("sync", "--dry-run")
    after = {p: p.read_bytes() for p in (second.home / "sync").rglob("*") if p.is_file()}

    assert (1, ["new"]) == (
        answer["sent_sessions"],
        [bundle["status"] for bundle in answer["received"]],
    )
    assert before == sorted(Path(folder).iterdir())
    assert state == after
    assert {f"claude:{SECOND}"} == set(second.sessions())


class _Ended(BaseException):
    """The process ends here."""


def _sync_until(machine: Machine, step: int, patch: pytest.MonkeyPatch) -> bool:
    """Sync, ending at a step; returns whether it came that far."""
    made, counter = sync.Sync.__init__, itertools.count(1)

    def end(_: str) -> None:
        if next(counter) == step:
            raise _Ended

    def begin(self: sync.Sync, *values: Any, **more: Any) -> None:
        made(self, *values, **{**more, "checkpoint": end})

    with patch.context() as context:
        context.setattr(sync.Sync, "__init__", begin)
        try:
            machine.sync()
        except _Ended:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("sender_ends", [True, False])
def test_a_sync_that_ends_anywhere_is_made_up_for(
    tmp_path: Path, near_or_far: str, monkeypatch: pytest.MonkeyPatch, *, sender_ends: bool
) -> None:
    """At each step of a sync: the next one ends as if nothing had happened."""
    first, second, _ = _pair(tmp_path, near_or_far)
    first.write_claude(THIRD, ["count the gulls", "nine"], "/work/gulls")
    first.run("sweep")
    first.run("name", THIRD, "gulls")
    first.run("keep", THIRD)
    if not sender_ends:
        first.sync()
    steps = 0
    while _sync_until(first if sender_ends else second, steps + 1, monkeypatch):
        steps += 1
        if sender_ends and steps == 2:
            first.run("tag", THIRD, "+two")
    for machine in (first, second, first):
        machine.sync()

    assert steps >= 2
    assert _facts(first) == _facts(second)
    assert "gulls" == _facts(second)[f"claude:{THIRD}"][0]
    assert _messages(first, FIRST) == _messages(second, FIRST)


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_a_deletion_that_ends_anywhere_is_made_up_for(
    tmp_path: Path, near_or_far: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while bundles are rewritten, nothing but the deleted session goes."""
    first, second, phrase = _pair(tmp_path, near_or_far)
    first.write_claude(THIRD, ["count the gulls", "nine"], "/work/gulls")
    for machine in (first, second, first):
        machine.sync()
    second.run("forget", FIRST, "--yes")
    steps = 0
    while _sync_until(second, steps + 1, monkeypatch):
        steps += 1
    while _sync_until(first, steps + 1, monkeypatch):
        steps += 1
    third = Machine(tmp_path / "gamma")
    third.join(near_or_far, phrase, "gamma-host")
    for machine in (second, first, third):
        machine.sync()

    assert steps >= 3
    for machine in (first, second, third):
        assert {f"claude:{SECOND}", f"claude:{THIRD}"} == set(machine.sessions())


@pytest.mark.slow
@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize("calls", [1, 3, 5, 8])
def test_a_killed_process_is_made_up_for(tmp_path: Path, folder: str, calls: int) -> None:
    """A process that dies in the middle of a write leaves no half of anything."""
    first, second, _ = _pair(tmp_path, folder)
    first.run("sweep")
    script = (
        "import os, itertools; real, count = os.fsync, itertools.count(1)\n"
        f"os.fsync = lambda h: os._exit(9) if next(count) == {calls} else real(h)\n"
        "from thence.cli import main; main()"
    )
    env = {**os.environ, "HOME": str(first.folder), "THENCE_HOME": str(first.home)}
    killed = subprocess.run(
        [sys.executable, "-c", script, "sync"], env=env, capture_output=True, check=False
    )
    for machine in (first, second, first):
        machine.sync()

    assert killed.returncode in (0, 9), killed.stderr
    assert _facts(first) == _facts(second)
    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == set(first.sessions())


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_a_lost_machine_cannot_read_what_comes_after(tmp_path: Path, target: str) -> None:
    """Who has the new phrase goes on; the lost machine reads and adds nothing."""
    first, second, phrase = _pair(tmp_path, target)
    lost = Machine(tmp_path / "lost")
    lost.join(target, phrase, "lost-host")
    for machine in (first, second, lost):
        machine.sync()
    new = _rotated(first)
    first.write_claude(THIRD, ["after the loss", "yes"], "/work/gulls")
    first.sync()
    refused = second.run("sync")
    lost.write_claude("dddddddd-1111-4111-8111-111111111111", ["from a thief", "ha"], "/work/x")
    stolen = lost.run("sync")
    joined = second.join(target, new, "beta-host")
    second.sync()
    first.sync()

    assert refused.returncode == stolen.returncode == 11
    assert "thence sync join" in refused.stderr
    assert 0 == joined.returncode
    assert {f"claude:{FIRST}", f"claude:{SECOND}", f"claude:{THIRD}"} == set(second.sessions())
    assert set(second.sessions()) == set(first.sessions())
    assert f"claude:{THIRD}" not in lost.sessions()


@pytest.mark.slow
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_rotation_that_ends_anywhere_is_made_up_for(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Between any two writes: the next one ends it, its phrase is the only one that opens all."""
    first, second, phrase = _pair(tmp_path, folder)
    first.sync()
    real, counter = FolderPlace.write, itertools.count()

    def write(self: FolderPlace, name: str, body: bytes) -> None:
        if next(counter) == writes:
            raise _Ended
        real(self, name, body)

    with monkeypatch.context() as context:
        context.setattr(FolderPlace, "write", write)
        with contextlib.suppress(_Ended):
            first.run("sync", "rotate")
    again = first.run("sync", "rotate")
    new = next(line.strip() for line in again.stdout.splitlines() if line.startswith("  "))
    late = second.run("sync")
    refused = Machine(tmp_path / "thief").join(folder, phrase, "thief-host")
    joined = second.join(folder, new, "beta-host")
    for machine in (second, first):
        machine.sync()

    assert [0, 11, 0] == [again.returncode, late.returncode, joined.returncode]
    assert _facts(first) == _facts(second)
    assert new != phrase
    assert 0 != refused.returncode or 11 == Machine(tmp_path / "thief").run("sync").returncode


def test_what_is_written_with_a_closed_key_is_ignored(tmp_path: Path, folder: str) -> None:
    """A thief who removes the notice can write; nobody who has the new key reads it."""
    first, _, phrase = _pair(tmp_path, folder)
    lost = Machine(tmp_path / "lost")
    lost.join(folder, phrase, "lost-host")
    first.sync()
    before = set(Path(folder).iterdir())
    first.run("sync", "rotate")
    hidden = [(path, path.read_bytes()) for path in set(Path(folder).iterdir()) - before]
    for path, _ in hidden:
        path.unlink()
    lost.write_claude(THIRD, ["from a thief", "ha"], "/work/x")
    lost.sync()
    for path, body in hidden:
        path.write_bytes(body)
    report = first.sync()

    assert 1 == report["refused"]
    assert f"claude:{THIRD}" not in first.sessions()


def _frame(content_bytes: int) -> bytes:
    """Return a frame of zeros that does not say how many: four bytes stand for 128 KiB."""
    block = (128 << 10 << 3 | 0b010).to_bytes(3, "little") + b"\0"  # repeats one byte
    last = (0b011).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * (content_bytes >> 17) + last


_HEAD = b'{"type":"thence-sync","version":1,"machine":"m"}\n'
_PART = b'{"type":"session","head":{"uid":"claude:x"},"part":%s}\n'
HOSTILE: dict[str, tuple[bytes, str]] = {
    "a newer program": (b'{"type":"thence-sync","version":99}\n', "has version 99"),
    "a note that is no object": (_HEAD + b'{"type":"note","note":7}\n', "makes no sense"),
    "no JSON": (b"\xff\xfe what is this", "not a bundle"),
    "nothing": (b"", "not a bundle"),
    "hashes that are none": (_HEAD + b'{"type":"forgotten","hashes":["x"]}\n', "makes no sense"),
    "a list of no hashes": (_HEAD + b'{"type":"forgotten","hashes":7}\n', "makes no sense"),
    "a session without an id": (
        _HEAD + b'{"type":"session","head":{"uid":7},"part":{}}\n',
        "makes no sense",
    ),
    "records that are not there": (
        _HEAD + _PART % b'{"machine":"m","edition":1,"start":0,"end":9}',
        "another length",
    ),
    "a part that ends before it begins": (
        _HEAD + _PART % b'{"machine":"m","edition":1,"start":9,"end":0}',
        "begins after its end",
    ),
    "a record that is none": (
        _HEAD
        + _PART % b'{"machine":"m","edition":1,"start":0,"end":1}'
        + b'{"type":"record","record":[1]}\n',
        "makes no sense",
    ),
    "an edition that nobody can store": (
        _HEAD + _PART % b'{"machine":"m","edition":%d,"start":0,"end":0}' % 2**70,
        "edition is",
    ),
    "a number that nobody can store": (
        _HEAD
        + _PART % b'{"machine":"m","edition":1,"start":0,"end":1}'
        + b'{"type":"record","record":{"node":{"id":"n"},"line":%d}}\n' % 2**70,
        "line is",
    ),
    "fewer tokens than none": (
        _HEAD
        + _PART % b'{"machine":"m","edition":1,"start":0,"end":1}'
        + b'{"type":"record","record":{"node":{"id":"n"},"usage":{"input_tokens":-5}}}\n',
        "input_tokens is -5",
    ),
    "deep nesting": (_HEAD + b'{"type":"note","note":' + b"[" * 90_000 + b"\n", ""),
}
"""What a machine may write by mistake or malice, and what is said of it; '' if nothing."""
PACKED: dict[str, tuple[bytes, str]] = {
    "a frame that claims 1 TiB": (
        b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0",
        "claims 1,099,511,627,776 bytes",
    ),
    "more zeros than fit": (_frame(8 << 20), "unpacks to more than"),
    "no frame": (b"not compressed", "does not decode"),
}


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_bad_bundle_costs_itself_only(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch, *, is_closed: bool
) -> None:
    """Each is named with its reason and the rest arrives; with a closed key it is only counted."""
    monkeypatch.setattr(sync_bundles, "MAX_CONTENT_BYTES", 4 << 20)
    first, second, phrase = _pair(tmp_path, folder)
    if is_closed:
        joined = second.join(folder, _rotated(first), "beta-host")
        assert 0 == joined.returncode
    secret = secret_in(phrase)
    expected: dict[str, str] = {}
    packed = dict(PACKED)
    for what, (content, reason) in HOSTILE.items():
        packed[what] = zstandard.compress(content), reason
    for what, (body, reason) in packed.items():
        content = HOSTILE.get(what, (what.encode(), ""))[0]
        name = content_name(secret, content)
        (Path(folder) / name).write_bytes(Key(secret).encrypted(body))
        if reason:
            expected[name] = reason
    misnamed = "0" * 32
    content = _HEAD + b'{"type":"note","note":{}}\n'
    (Path(folder) / misnamed).write_bytes(Key(secret).encrypted(zstandard.compress(content)))
    expected[misnamed] = "something else than its name says"
    (Path(folder) / ("1" * 32)).write_bytes(b"age-encryption.org/v1\n garbage")
    first.run("sync")
    done = second.run("sync", "--json")
    report = json.loads(done.stdout)
    lines = second.run("sync").stdout

    assert f"claude:{FIRST}" in second.sessions()
    assert 1 == report["waiting"]
    if is_closed:
        assert (0, {}, len(packed) + 1) == (
            done.returncode,
            report["damaged"],
            report["refused"],
        )
        return
    assert (3, expected.keys()) == (done.returncode, report["damaged"].keys())
    assert [] == [name for name, why in expected.items() if why not in report["damaged"][name]]
    assert f"  {len(expected)} bundles left out, all others read\n" in lines
    assert 10 == lines.count("  left out bundle ")
    assert "update thence on this machine" in "".join(report["damaged"].values())


def test_what_is_no_bundle_is_not_read(tmp_path: Path, folder: str) -> None:
    """A folder, a pipe, a link, nothing, 3 TiB, by names of bundles: the rest arrives."""
    first, second, _ = _pair(tmp_path, folder)
    names = [Path(folder) / (letter * 32) for letter in "abcde"]
    names[0].mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(names[1])
    names[2].symlink_to("/dev/zero")
    names[3].touch()
    with names[4].open("wb") as file:
        file.truncate(3 << 40)
    first.sync()
    report = second.sync()

    assert f"claude:{FIRST}" in second.sessions()
    assert ({}, 0, 1) == (report["damaged"], report["refused"], report["waiting"])


def test_a_bundle_of_a_closed_key_is_known_by_its_head() -> None:
    """However long it is; with the head of another key, or half a head, it is not."""
    own, other = Key(bytes(16)), Key(bytes([1]) * 16)
    long, short = own.encrypted(bytes(1 << 20)), own.encrypted(b"")

    assert [True, True] == [own.opens(body) for body in (long, short)]
    assert [True, False] == [own.opens(long[:size]) for size in (8192, 100)]
    assert [False] * 3 == [other.opens(body) for body in (long, short, b"no head")]


def test_a_machine_whose_bundles_came_too_late_writes_them_again(
    tmp_path: Path, folder: str
) -> None:
    """What was written with the old key and arrived after the change is not lost."""
    first, second, _ = _pair(tmp_path, folder)
    first.sync()
    before = set(Path(folder).iterdir())
    second.sync()
    late = [(path, path.read_bytes()) for path in set(Path(folder).iterdir()) - before]
    for path, _ in late:
        path.unlink()
    new = _rotated(first)
    for path, body in late:
        path.write_bytes(body)
    second.join(folder, new, "beta-host")
    second.sync()
    first.sync()

    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == set(first.sessions())


def test_half_a_bundle_waits(tmp_path: Path, folder: str) -> None:
    """A tool may bring a part of a file first: it is read when it is all there."""
    first, second, _ = _pair(tmp_path, folder)
    before = set(Path(folder).iterdir())
    first.sync()
    (bundle,) = set(Path(folder).iterdir()) - before
    body = bundle.read_bytes()
    bundle.write_bytes(body[: len(body) // 2])
    half = second.sync()
    bundle.write_bytes(body)
    second.sync()

    assert 1 == half["waiting"]
    assert f"claude:{FIRST}" in second.sessions()


@pytest.mark.slow
def test_a_large_session_goes_in_parts(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a session in several bundles are put together, whatever arrives first."""
    monkeypatch.setattr("thence.bridge.sync_bundles.BUNDLE_BYTES", 2_000)
    first, second, _ = _pair(tmp_path, folder)
    first.write_claude(FIRST, [f"line {n} " + "x" * 300 for n in range(40)], "/work/tidepool")
    report = first.sync()
    monkeypatch.setattr(sync, "TOGETHER", 2)
    second.sync()

    assert report["sent_bundles"] > 5
    assert _messages(first, FIRST) == _messages(second, FIRST)


@pytest.mark.slow
def test_a_lost_state_changes_nothing(tmp_path: Path, folder: str) -> None:
    """Without what it knew a machine reads and writes everything once more, to the same end."""
    first, second, _ = _pair(tmp_path, folder)
    for machine in (first, second, first):
        machine.sync()
    before = _facts(first)
    (first.home / "sync" / "state.msgpack").unlink()
    first.write_claude(FIRST, ["mend", "mended", "more", "yes"], "/work/tidepool")
    for machine in (first, second):
        machine.sync()

    assert before.keys() == _facts(first).keys()
    assert _facts(first) == _facts(second)


@pytest.mark.slow
def test_two_machines_with_the_same_log_are_united(tmp_path: Path, folder: str) -> None:
    """A third machine has the union of what both have of a session."""
    first, second, phrase = _pair(tmp_path, folder)
    second.write_claude(
        FIRST, [f"mend the {PLANTED} gauge", "mended", "on beta", "b"], "/work/tidepool"
    )
    third = Machine(tmp_path / "gamma")
    third.join(folder, phrase, "gamma-host")
    for machine in (first, second, third):
        machine.sync()

    assert _messages(second, FIRST) == _messages(third, FIRST)
    assert "has its own log" in [bundle["status"] for bundle in first.sync()["received"]]


def test_keys_are_for_their_owner_alone(tmp_path: Path, folder: str) -> None:
    """Files of the sync in the home have mode 0600; the phrase is in none of them."""
    first, _, phrase = _pair(tmp_path, folder)
    first.sync()
    files = [path for path in (first.home / "sync").rglob("*") if path.is_file()]

    assert files
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in files}
    assert not any(phrase.encode() in path.read_bytes() for path in files)


def test_a_wrong_phrase_is_refused(tmp_path: Path, folder: str) -> None:
    """A word that is wrong is told before anything is looked at; another key opens nothing."""
    _, second, phrase = _pair(tmp_path, folder)
    wrong = Machine(tmp_path / "wrong")
    misspelt = phrase[0] + ("o" if phrase[1] == "a" else "a") + phrase[2:]  # another vowel

    assert "not a phrase" in wrong.join(folder, misspelt, "w").stderr
    assert "opens nothing" in wrong.join(folder, phrase_of(bytes(16)), "w").stderr
    assert "does not sync yet" in wrong.run("sync").stderr
    assert "syncs with" in second.run("sync", "init", folder).stderr


def test_a_phrase_is_its_secret() -> None:
    """Every secret can be written as words and read again; a changed word is told."""
    for number in (0, 1, 2**127 + 12345, 2**128 - 1):
        secret = number.to_bytes(16, "big")

        assert secret == secret_in(phrase_of(secret).upper().replace(" ", "-"))
    with pytest.raises(BadConfig):
        secret_in("babab " * 9)


def test_status_tells_what_waits(tmp_path: Path, folder: str) -> None:
    """Before a sync it counts what would go and come; after, nothing."""
    first, second, _ = _pair(tmp_path, folder)
    first.sync()
    second.run("sweep")
    before = second.json("sync", "status")
    second.sync()
    after = second.json("sync", "status")

    assert (1, 1, "beta-host") == (before["unsent"], before["unread"], before["machine"])
    assert (0, 0, ["alpha-host"]) == (after["unsent"], after["unread"], after["machines"])


def test_who_leaves_keeps_sessions_and_no_key(tmp_path: Path, folder: str) -> None:
    """After leaving nothing is sent or received; what came stays."""
    first, second, _ = _pair(tmp_path, folder)
    for machine in (first, second):
        machine.sync()
    done = second.run("sync", "leave")

    assert 0 == done.returncode
    assert not (second.home / "sync").exists()
    assert f"claude:{FIRST}" in second.sessions()


@pytest.mark.slow
@pytest.mark.sampled(2, 1)
def test_what_was_begun_here_goes_on_there_in_another_agent(tmp_path: Path, target: str) -> None:
    """Begun in Claude Code on one machine, continued in Codex on another that lacks the log."""
    first, second, _ = _pair(tmp_path, target)
    texts = [f"step {n} of the {PLANTED} gauge" for n in range(12)]
    log = first.write_claude(FIRST, texts, "/work/of/alpha")
    first.sync()
    second.sync()
    log.unlink()
    here = tmp_path / "beta" / "checkout"
    here.mkdir()
    refused = second.run("resume", FIRST, here=here)
    done = second.run("resume", FIRST, "--with", "codex", "--yes", here=here)
    (rollout,) = (second.folder / ".codex").rglob("rollout-*.jsonl")
    body = rollout.read_text()

    assert "was recorded on alpha-host" in refused.stderr
    assert "" == refused.stdout
    assert f"--with claude; read it: thence show {FIRST[:13]}" in refused.stderr
    assert 0 == done.returncode, done.stderr
    assert done.stdout.startswith(f"cd {here} && codex resume ")
    assert "Codex will ask" in done.stderr
    assert "Claude Code will ask" not in done.stderr
    assert [] == [text for text in texts if text not in body]
    places = [body.index(text) for text in texts]
    assert places == sorted(places)
