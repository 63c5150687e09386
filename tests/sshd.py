"""A real sshd on loopback: keys, port and settings of its own, below a temporary folder.

`SshServer(folder)` starts it. `bin` in the folder has an `ssh` that reads the settings of this
server only; tests put it first on the path, so that nothing of the user's own is read or written.
Run by root it runs as nobody, in a user namespace in which root's files are nobody's: as root it
would need an account that only an installed one has.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNPACKED = ROOT / ".venv" / "sshd"
HOST = "harbour.test"
START_S = 20.0


def missing_sshd() -> str:
    """Return why no sshd can run here; empty if one can."""
    needed = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    if needed or not _program().is_file():
        return "needs sshd and ssh (OpenSSH)"
    if os.geteuid() == 0:
        tried = subprocess.run([*_as_nobody(), "true"], capture_output=True, check=False)
        return "user namespaces are refused" if tried.returncode else ""
    return ""


def _program() -> Path:
    installed = Path("/usr/sbin/sshd")
    return installed if installed.is_file() else UNPACKED / "usr" / "sbin" / "sshd"


def _as_nobody() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534"]


class SshServer:
    """The server, and how it is reached."""

    def __init__(
        self, folder: Path, *, address: str = "127.0.0.1", within: Sequence[str] = ()
    ) -> None:
        """Start it; `within` is the command that runs another one in a network of its own."""
        self.folder, self._address, self._within = folder, address, within
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self._ssh = shutil.which("ssh")  # before the one in `bin` is on the path
        for name in ("host", "key"):
            path = str(folder / name)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        with socket.socket() as handle:
            handle.bind(("127.0.0.1", 0))
            self.port = handle.getsockname()[1]
        self._write_settings()
        self._process = self._start()

    def _write_settings(self) -> None:
        folder, user = self.folder, "nobody" if os.geteuid() == 0 else getpass.getuser()
        (folder / "sshd_config").write_text(
            f"ListenAddress {self._address}\nPort {self.port}\nHostKey {folder}/host\n"
            f"PidFile none\nAuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nMaxStartups 100\nSubsystem sftp internal-sftp\n"
        )
        public = (folder / "host.pub").read_text()
        (folder / "known_hosts").write_text(f"[{self._address}]:{self.port} {public}")
        (folder / "ssh_config").write_text(
            f"Host {HOST}\n  HostName {self._address}\n  Port {self.port}\n  User {user}\n"
            f"  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
        )
        self.write_ssh('exec "$ssh" "$@"')

    def write_ssh(self, line: str) -> None:
        """Write the `ssh` of the tests: a line of shell, in which `$ssh "$@"` connects."""
        path = self.bin / "ssh"
        path.write_text(
            f'#!/bin/sh\nssh={self._ssh}\nset -- -F "{self.folder}/ssh_config" "$@"\n{line}\n'
        )
        path.chmod(0o755)

    def _start(self) -> subprocess.Popen[bytes]:
        libraries = ":".join(str(path) for path in UNPACKED.glob("**/*-linux-gnu"))
        program = [*self._within, *_as_nobody(), str(_program()), "-D", "-e"]
        program += ["-f", f"{self.folder}/sshd_config"]
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                program, stderr=log, env={**os.environ, "LD_LIBRARY_PATH": libraries}
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and process.poll() is None:
            if b"Server listening" in (self.folder / "log").read_bytes():
                return process
            time.sleep(0.05)
        process.kill()
        raise AssertionError((self.folder / "log").read_text())

    def address(self, path: Path) -> str:
        """Return the address of a folder there."""
        return f"ssh://{HOST}{path}"

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait()
