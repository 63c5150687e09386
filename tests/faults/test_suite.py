"""The crash suite we ship sees what it is for: stores that break a promise, each in its own way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from thence.testing import CrashReport, CrashSuite

SCRIPT = """
import sys
path, buffering, first, count = sys.argv[1:]
with open(path, "ab", int(buffering)) as file:
    for number in range(int(first), int(first) + int(count)):
        file.write(b'{"n": %d}\\n' % number)
        print(number, flush=True)
"""


class LineStore:
    """A file of lines: as good a store as its options let it be."""

    def __init__(self, *, buffered: bool = False, ends_lines: bool = True) -> None:
        self.buffered = buffered
        self.ends_lines = ends_lines

    def write_script(self, path: Path) -> list[str]:
        """Buffered, it acknowledges what it has not written."""
        return [sys.executable, "-c", SCRIPT, str(path), "65536" if self.buffered else "0"]

    def read(self, path: Path) -> list[int]:
        """Skip what is no line of ours."""
        numbers = []
        for line in path.read_bytes().split(b"\n"):
            try:
                numbers.append(int(json.loads(line)["n"]))
            except (ValueError, TypeError):
                continue
        return numbers

    def append_one(self, path: Path, number: int) -> None:
        """End a torn line first, or do not."""
        with path.open("ab+") as file:
            file.seek(0)
            data = file.read()
            torn = self.ends_lines and data and not data.endswith(b"\n")
            file.write((b"\n" if torn else b"") + b'{"n": %d}\n' % number)


class RewritingStore(LineStore):
    """A store that throws its last line away when it is opened, torn or not."""

    def append_one(self, path: Path, number: int) -> None:
        """Rewrite the file."""
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        path.write_bytes(b"".join(line + b"\n" for line in lines[:-1]) + b'{"n": %d}\n' % number)


def cut_everywhere(subject: LineStore, folder: Path) -> CrashReport:
    """Cut a small store of a subject everywhere."""
    file = folder / "store"
    file.write_bytes(b"".join(b'{"n": %d}\n' % number for number in range(8, 13)))
    return CrashSuite(subject).cuts(file, file)


def test_a_sound_store_passes(tmp_path: Path) -> None:
    """Nothing is found where nothing is wrong."""
    suite = CrashSuite(LineStore(), folder=tmp_path, wait=(0.001, 0.004))
    reports = [
        suite.kills(2),
        suite.writers(3, 200, killed=1),
        cut_everywhere(LineStore(), tmp_path),
    ]

    assert [0, 0, 0] == [report.violations for report in reports]
    assert all(report.acknowledged for report in reports)


def test_a_store_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    """What sat in a buffer is lost with its process."""
    suite = CrashSuite(LineStore(buffered=True), folder=tmp_path, wait=(0.001, 0.004))

    assert 0 < suite.kills(2).lost


def test_a_store_that_appends_to_a_torn_line_is_found_out(tmp_path: Path) -> None:
    """The next event is glued to the half of another."""
    assert 0 < cut_everywhere(LineStore(ends_lines=False), tmp_path).unreadable_next


def test_a_store_that_rewrites_its_file_is_found_out(tmp_path: Path) -> None:
    """A whole event is gone, and bytes that were there."""
    report = cut_everywhere(RewritingStore(), tmp_path)

    assert 0 < report.lost
    assert 0 < report.strange
