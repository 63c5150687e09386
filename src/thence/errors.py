"""What can go wrong, named for the user's situation.

Every error carries a message that says what happened and, where there is one, a hint that says
what to do next. Foreign data never raises: a bad line is a `format.records.Skipped` value.
"""

from __future__ import annotations

import errno
import sys

SKIPS = 3
"""Exit code of a command that did all it could, and had to skip something."""
STOPPED = 130
"""Exit code of a command that was told to stop; what it did by then is kept."""


class ThenceError(Exception):
    """The root of every error thence raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotSupported(ThenceError):
    """What our promises rest on is not there on this system."""

    exit_code = 2


class SessionNotFound(ThenceError):
    """No session answers to this id, prefix or path."""

    exit_code = 10


class NotReadable(ThenceError):
    """A file that was asked for cannot be opened or is not a session."""

    exit_code = 1


class SessionBusy(ThenceError):
    """Somebody is sealing or cleaning up this session."""

    exit_code = 11


class Conflict(ThenceError):
    """The session went on since the caller looked, and the caller asked to be told."""

    exit_code = 11


class NotAppendable(ThenceError):
    """A log cannot be written: the disk, the mode or the file itself is in the way."""


class DiskFull(NotAppendable):
    """No space is left where something must be written."""

    def __init__(self, what: str) -> None:
        """Say what cannot be written."""
        super().__init__(
            f"the disk is full: {what}",
            hint="free some space, then try again; stored data is safe",
        )


def is_disk_full(error: BaseException) -> bool:
    """Whether the system says that no space is left, on the disk or of the user's quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


_REMEDIES = {
    errno.EACCES: "check the owner and the permissions of the file and its folder",
    errno.EPERM: "check the owner and the permissions of the file and its folder",
    errno.EROFS: "the file system is read-only: make it writable, or choose another folder",
    errno.EMFILE: "close files, or raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "close files, or raise the limit of open files of the system",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.ENOTDIR: "a part of the path is no folder: check the path",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "a symbolic link is in the way: check the path",
}


def remedy(error: BaseException) -> str:
    """Return what to do about a file that the system refused, for the hint of an error."""
    number = error.errno if isinstance(error, OSError) else None
    return _REMEDIES.get(number or 0, "check the disk and the path")


class BadArgument(ThenceError):
    """A call that means nothing; the message names the argument, the hint has the right form."""

    exit_code = 2


class BudgetExceeded(ThenceError):
    """A limit that was set would be passed."""


class BadConfig(ThenceError):
    """A setting that makes no sense; the message names file, key and reason."""

    exit_code = 2


class MissingPackage(BadConfig):
    """A part of thence needs a package that is not installed."""

    def __init__(self, part: str, package: str | None, *, extra: str) -> None:
        """Name the part, the package and the command that installs the extra."""
        super().__init__(
            f"{part} needs the package {package or extra}, which is not installed",
            hint=install_command(extra),
        )


def is_in_uv_cache(prefix: str = sys.prefix) -> bool:
    """Whether a Python environment is in uv's cache, as it is under `uvx`.

    `uv cache prune` may delete it at any time.
    """
    folders = prefix.replace("\\", "/").split("/")
    return any(name.startswith(("archive-v", "environments-v")) for name in folders)


def install_command(extra: str, prefix: str = sys.prefix, *, reinstall: bool = False) -> str:
    """Return the command that adds an extra, for the way thence was installed.

    `prefix` is the folder of the Python environment; pipx and uv put theirs below folders of
    their own. `reinstall` replaces packages that are already there.
    """
    wanted = f"'thence[{extra}]'"
    place = prefix.replace("\\", "/")
    if "/pipx/venvs/" in place:
        return f"pipx install --force {wanted}"  # makes the environment anew in any case
    again = "--reinstall " if reinstall else ""
    if "/uv/tools/" in place:
        return f"uv tool install {again}{wanted}"
    if is_in_uv_cache(prefix):
        return f"uvx {again}--from {wanted} thence …"
    return f"pip install {'--force-reinstall ' if reinstall else ''}{wanted}"
