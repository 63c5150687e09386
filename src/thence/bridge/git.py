"""The one place that runs git: never on a repository that was not named, never on a word of it.

Nothing of the caller's environment says which repository is meant: git's own hooks, and whoever
runs us from one, set variables that would. Without a remote nothing but PATH and HOME is passed on,
no setting of user or system counts, and no program that a repository names can run: no hook, no
monitor, and no transport, by which a git that misses an object would fetch it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from thence.errors import BadConfig, NotReadable

_SETTINGS: Final = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0", "--no-replace-objects"),
)
_LOCAL: Final = ("PATH", "HOME", "SYSTEMROOT")
_REMOTE: Final = ("GIT_SSH", "GIT_SSL", "GIT_HTTP", "GIT_ASKPASS", "GIT_PROXY", "GIT_EXEC_PATH")
_SETTINGS_FILES: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Variables of git that say how a remote is reached; all others may lead to another repository."""


class GitFailed(NotReadable):
    """git ended with an error, or not in time."""


def run(
    repository: Path, *words: str, body: bytes = b"", timeout_s: float, asks_remote: bool = False
) -> bytes:
    """Return what a command of git prints about a repository; GitFailed with what it says.

    Only with `asks_remote` it may reach for another one, with the user's own settings.
    """
    program = shutil.which("git")
    if program is None:
        raise BadConfig("git is not installed", hint="install git, or use a folder")
    # Named, not looked for: it works where git is told to trust no other bare repository.
    where = f"--git-dir={repository.absolute()}"
    command = [str(Path(program).absolute()), *_SETTINGS, where, *words]
    try:
        done = subprocess.run(  # noqa: S603 - git of the system; nothing of the repository runs
            command,
            input=body,
            capture_output=True,
            cwd="/",
            env=_environment(asks_remote=asks_remote),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitFailed(
            f"git {words[0]} did not end within {timeout_s:.0f} seconds",
            hint="try again later: the remote may not answer",
        ) from error
    except OSError as error:
        raise GitFailed(f"git cannot be run: {error}", hint="check its installation") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitFailed(
            f"git {words[0]}: {lines[-1][:300] if lines else done.returncode}",
            hint="check the address, and that git can reach it from here",
        )
    return done.stdout


def _environment(*, asks_remote: bool) -> dict[str, str]:
    if asks_remote:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("GIT_") or name.startswith(_REMOTE) or name in _SETTINGS_FILES
        }
    else:
        env = {name: os.environ[name] for name in _LOCAL if name in os.environ}
        env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        # Older gits know only the first of the two.
        env |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    # One author for all: a reader of what is written learns no name of a machine.
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": "thence", f"GIT_{role}_EMAIL": "thence@localhost"}
    return env | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "TZ": "UTC"}
