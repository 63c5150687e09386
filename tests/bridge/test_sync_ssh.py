"""A shared folder by ssh, on a real sshd: bundles whole or not at all, and errors that help."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.machines import Machine
from tests.sshd import HOST, SshServer, missing_sshd
from thence.bridge import sync_ssh
from thence.bridge.sync_places import GitPlace, SyncPlace, place_at
from thence.bridge.sync_ssh import CHUNK_BYTES, MAX_IN_FLIGHT, SshPlace
from thence.bridge.sync_state import Setup, SyncFiles
from thence.errors import BadConfig, NotReadable

NAME, OTHER = "a" * 32, "b" * 32
OUT, IN = '{} | "$ssh" "$@"', '"$ssh" "$@" | {{ {}; kill $$; }}'
"""Lines of shell that cut what goes out and what comes in."""


@pytest.fixture(scope="module")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if why := missing_sshd():
        pytest.skip(why)
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def sshd(_started: SshServer, monkeypatch: pytest.MonkeyPatch) -> SshServer:
    """Return a server that the `ssh` on the path knows."""
    monkeypatch.setenv("PATH", f"{_started.bin}{os.pathsep}{os.environ['PATH']}")
    _started.write_ssh('exec "$ssh" "$@"')
    return _started


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """Return the folder on the other side; its name has a space."""
    folder = tmp_path / "far away"
    folder.mkdir()
    return folder


def _place(sshd: SshServer, folder: Path, tmp_path: Path) -> SyncPlace:
    place = place_at(sshd.address(folder), tmp_path)
    assert isinstance(place, SshPlace)
    return place


def test_bundles_are_written_listed_read_and_removed(
    sshd: SshServer, far: Path, tmp_path: Path
) -> None:
    """Also one of more packets than are in flight, and of a length that fits none; mode 0600."""
    place = _place(sshd, far, tmp_path)
    large = secrets.token_bytes(CHUNK_BYTES * (MAX_IN_FLIGHT + 9) + 17)
    place.write(NAME, large)
    place.write(OTHER, b"")
    place.write(OTHER, b"never written: it is there")
    (far / "notes.txt").write_text("not ours")

    assert {NAME, OTHER} == place.names()
    assert large == place.read(NAME) == (far / NAME).read_bytes()
    assert b"" == place.read(OTHER)
    assert place.read("c" * 32) is None
    assert 0o600 == stat.S_IMODE((far / NAME).stat().st_mode)
    place.remove([NAME, "c" * 32])
    assert {OTHER} == place.names()
    assert {OTHER, "notes.txt"} == {path.name for path in far.iterdir()}


def test_many_names_are_listed(sshd: SshServer, far: Path, tmp_path: Path) -> None:
    """More than one packet holds."""
    names = {f"{number:032x}" for number in range(700)}
    for name in names:
        (far / name).touch()

    assert names == _place(sshd, far, tmp_path).names()


@pytest.mark.slow
@pytest.mark.parametrize(("cut", "way"), [(0, OUT), (40, OUT), (60_000, OUT), (40, IN), (300, IN)])
def test_a_connection_that_is_cut_leaves_no_half_bundle(
    sshd: SshServer, far: Path, tmp_path: Path, cut: int, way: str
) -> None:
    """Cut on either way after any number of bytes: the next sync writes what is missing."""
    body = secrets.token_bytes(200_000)
    sshd.write_ssh(way.format(f"dd bs=1 count={cut} 2>/dev/null"))  # without a buffer
    with pytest.raises(NotReadable, match="lost") as error:
        _place(sshd, far, tmp_path).write(NAME, body)
    present = [path.read_bytes() for path in far.iterdir() if path.name == NAME]
    sshd.write_ssh('exec "$ssh" "$@"')
    again = _place(sshd, far, tmp_path)
    again.write(NAME, body)

    assert "goes on where it stopped" in f"{error.value.hint}"
    assert present in ([], [body])
    assert body == again.read(NAME)


def test_a_folder_that_is_not_there_is_said_with_the_command_that_makes_it(
    sshd: SshServer, tmp_path: Path
) -> None:
    """Nothing is made on the other side unasked."""
    with pytest.raises(NotReadable, match=f"no such folder on {HOST}") as error:
        _place(sshd, tmp_path / "none", tmp_path).names()

    assert f"ssh {HOST} mkdir -p {tmp_path}/none" in f"{error.value.hint}"
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_folder_that_may_not_be_written_is_said(
    sshd: SshServer, far: Path, tmp_path: Path
) -> None:
    """What is not allowed there is an error, not silence."""
    (far / NAME).mkdir(mode=0o700)  # nothing can be put in the place of a folder
    (far / "file").write_text("")
    with pytest.raises(NotReadable, match="does not let you remove"):
        _place(sshd, far, tmp_path).remove([NAME])
    with pytest.raises(NotReadable, match="no such folder"):
        _place(sshd, far / "file", tmp_path).names()


@pytest.mark.slow
def test_an_unknown_host_key_and_a_wrong_key_are_told_with_what_to_do(
    sshd: SshServer, far: Path, tmp_path: Path
) -> None:
    """No question is asked, no unknown host is trusted."""
    settings = sshd.folder / "ssh_config"
    before = settings.read_text()
    known, key = f"{sshd.folder}/known_hosts", f"IdentityFile {sshd.folder}/key"
    try:
        settings.write_text(before.replace(known, f"{tmp_path}/none"))
        with pytest.raises(NotReadable, match="Host key verification failed") as unknown:
            _place(sshd, far, tmp_path).names()
        settings.write_text(before.replace(key, f"IdentityFile {tmp_path}/none"))
        with pytest.raises(NotReadable, match="Permission denied") as refused:
            _place(sshd, far, tmp_path).names()
    finally:
        settings.write_text(before)

    assert f"compare its key: ssh {HOST}" in f"{unknown.value.hint}"
    assert "ssh-copy-id" in f"{refused.value.hint}"


@pytest.mark.parametrize(
    "line",
    [
        "echo Welcome to the harbour, sailor; cat >/dev/null",
        r"printf '\0\0\0\5\2\0\0\0\3'; printf '\0\0\0\6\151\0\0\0\1\0'; cat >/dev/null",
        r"printf '\0\0\0\5\2\0\0\0\3'; printf '\0\0\0\1\145'; cat >/dev/null",
    ],
)
def test_an_answer_that_is_not_sftp_is_an_error(
    sshd: SshServer, far: Path, tmp_path: Path, line: str
) -> None:
    """A greeting, or packets too short for what they say they are."""
    sshd.write_ssh(line)
    with pytest.raises(NotReadable, match="does not answer as sftp does"):
        _place(sshd, far, tmp_path).names()


LIAR = """
import struct, sys

def send(kind, body):
    sys.stdout.buffer.write(struct.pack(">IB", len(body) + 1, kind) + body)
    sys.stdout.buffer.flush()

names = int(sys.argv[1])
while head := sys.stdin.buffer.read(4):
    packet = sys.stdin.buffer.read(struct.unpack(">I", head)[0])
    kind, number = packet[0], packet[1:5]
    if kind == 1:
        send(2, struct.pack(">I", 3))
    elif kind == 17:
        send(105, number + struct.pack(">IQI", 5, 1 << 30, 0o40700))
    elif kind in (3, 11):
        names = -1 if names == -3 else names
        send(102, number + struct.pack(">I", 1) + b"h")
    elif kind == 12 and names >= -1:
        name = struct.pack(">I", 32) + b"a" * 32 + struct.pack(">II", 0, 0)
        send(104, number + struct.pack(">I", abs(names)) + name * abs(names))
        names = -3 if names == -1 else names
    elif kind == 12 and names == -3:
        send(101, number + struct.pack(">III", 1, 0, 0))
    elif kind == 4:
        send(101, number + struct.pack(">III", 0, 0, 0))
"""
"""A server that lists so many names again and again, or, with -2, never does.

With -1 it lists a bundle of 1 GiB, of which nothing comes.
"""


@pytest.mark.parametrize(
    ("names", "words"), [(100, "more than 5,000 names"), (0, ""), (-1, ""), (-2, "")]
)
def test_a_server_that_lies_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: int, words: str
) -> None:
    """A list without an end, a file that never comes, no answer: an error with a hint."""
    (tmp_path / "liar.py").write_text(LIAR)
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" {tmp_path}/liar.py {names}\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sync_ssh, "MAX_NAMES", 5_000)
    monkeypatch.setattr(sync_ssh, "ANSWER_TIMEOUT_S", 60 if words else 0.5)
    machine = Machine(tmp_path / "alpha")
    setup = Setup(f"ssh://{HOST}/shared", "m" * 32, "alpha-host", [bytes(16)])
    SyncFiles(machine.home).save_setup(setup)
    done = machine.run("sync")

    assert 1 == done.returncode
    assert (words or f"{HOST} gave no end of an answer within 0 seconds") in done.stderr
    assert "hint:  choose a folder" in done.stderr or "try again later" in done.stderr


@pytest.mark.parametrize(
    "target",
    ["ssh://-oProxyCommand=touch/x", "ssh://host", "ssh://-l@host/x", "ssh://host:x/y", "ssh:///x"],
)
def test_an_address_cannot_be_an_option_of_ssh(target: str, tmp_path: Path) -> None:
    """Nothing is run with it."""
    with pytest.raises(BadConfig, match="not an address"):
        place_at(target, tmp_path)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("target", ["ssh://host/me/sessions.git", "git+ssh://host/me/sessions"])
def test_a_git_remote_by_ssh_stays_a_git_remote(target: str, tmp_path: Path) -> None:
    """By its ending, or by its scheme."""
    assert isinstance(place_at(target, tmp_path), GitPlace)
