"""What installed packages offer us, by the entry points they declare.

To ask all of them takes as long as a sweep with nothing new, and nearly always only we ourselves
offer anything. A look at their files tells whether that is so.

Other people's code may do anything: raise, end the process, lack a method. What fails is left out
and noted with the reason, for reports to name (`problems`); everything else goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OURS = "thence."
_MAX_REASON_CHARS = 300  # characters of a reason


class Problem(msgspec.Struct, frozen=True, order=True):
    """Something of an installed package that is not used, and why."""

    group: str
    """Its group of entry points: `thence.agents`, `thence.stores`, `thence.digesters`."""
    name: str
    package: str
    why: str

    @property
    def words(self) -> str:
        """What every screen says of it."""
        what = self.group.rpartition(".")[2].removesuffix("s")
        return f"{what} {self.name} of {self.package} is not used: {self.why}"


_PROBLEMS: dict[tuple[str, str], Problem] = {}
_SILENT: dict[str, str] = {}
_REMEMBERED: dict[str, str] = {}


def problems() -> list[Problem]:
    """Return what was left out so far in this process, sorted."""
    return sorted(_PROBLEMS.values())


def note_problems(more: Iterable[Problem]) -> None:
    """Note what was left out in another process of the same command."""
    for problem in more:
        _PROBLEMS.setdefault((problem.group, problem.name), problem)


def note_problem(point: EntryPoint, why: str | BaseException) -> None:
    """Note that something of a package is left out; the first reason counts."""
    note_problems([Problem(point.group, point.name, package_of(point), reason_of(why))])
    if isinstance(why, NoAnswer):
        _SILENT[_known_by(point)] = reason_of(why)


def silent() -> dict[str, str]:
    """Return why packages were left out that gave no answer in time, by what they are known by."""
    return dict(_SILENT)


def remember_silent(known: Mapping[str, str]) -> None:
    """Do not ask packages that gave no answer to an earlier command; `silent` gave this."""
    _REMEMBERED.clear()
    _REMEMBERED.update(known)


def silence_of(point: EntryPoint) -> str | None:
    """Return why a package is not asked; None if it is, for it was changed or always answered."""
    return _REMEMBERED.get(_known_by(point)) if _REMEMBERED else None


def _known_by(point: EntryPoint) -> str:
    """Return what a package is known by until somebody changes it, without importing it."""
    from importlib.util import find_spec

    newest = 0
    with contextlib.suppress(ImportError, ValueError, OSError):
        spec = find_spec(point.module.partition(".")[0])
        folders = spec.submodule_search_locations if spec is not None else None
        files = [path for folder in folders or () for path in Path(folder).rglob("*.py")]
        if spec is not None and spec.origin is not None:
            files.append(Path(spec.origin))
        newest = max(path.stat().st_mtime_ns for path in files)
    return f"{point.group} {point.name} {point.value} {package_of(point)} {newest}"


def package_of(point: EntryPoint) -> str:
    """Return the package of an entry point, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def reason_of(why: str | BaseException) -> str:
    """Return a reason in words: what was raised, and what it says."""
    if isinstance(why, ForeignFailure):
        why = str(why)
    elif isinstance(why, SystemExit):
        why = f"it ended the process with {why.code!r}"
    elif isinstance(why, BaseException):
        try:
            text = str(why)
        except Exception:  # noqa: BLE001 - somebody else's code, which may do anything
            text = ""
        why = f"{type(why).__name__}: {text}" if text else type(why).__name__
    return " ".join(why.split())[:_MAX_REASON_CHARS]


class ForeignFailure(Exception):
    """Somebody else's code raised something, or tried to end the process."""


class NoAnswer(ForeignFailure):
    """Somebody else's code gave no answer in time."""


@contextlib.contextmanager
def foreign() -> Iterator[None]:
    """Run somebody else's code: whatever it raises, an exit too, becomes a ForeignFailure."""
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit, ForeignFailure):
        raise
    except BaseException as error:  # it may raise anything, and must not end us
        raise ForeignFailure(reason_of(error)) from error


def is_ours(point: EntryPoint) -> bool:
    """Whether an entry point is one of this package."""
    return point.value.startswith(_OURS)


def others_offer(group: str) -> bool:
    """Whether a package besides this one brings something for a group of entry points."""
    return f"[{group}]".encode() in _entry_points_of_others(tuple(sys.path))


@lru_cache(maxsize=1)
def _entry_points_of_others(path: tuple[str, ...]) -> bytes:
    """Return what all other packages on a path declare."""
    declared: list[bytes] = []
    for folder in path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208 - names are all that is needed
                if not name.endswith((".dist-info", ".egg-info")) or name.startswith("thence-"):
                    continue
                with (
                    contextlib.suppress(OSError),
                    open(  # noqa: PTH123
                        f"{folder or '.'}/{name}/entry_points.txt", "rb"
                    ) as file,
                ):
                    declared.append(file.read())
    return b"\n".join(declared)


def entry_points(group: str) -> list[EntryPoint]:
    """Ask all installed packages, always in the same order."""
    from importlib.metadata import entry_points as installed

    return sorted(installed(group=group), key=lambda point: (point.name, point.value))
