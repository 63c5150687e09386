"""Bytecode of the tests, in a new clone or after a merge.

Pytest rewrites what tests assert, which takes ten seconds for all of them. Processes that run tests
collect the same files in the same order: each would rewrite all of them.
"""

from __future__ import annotations

from pathlib import Path

from _pytest.assertion import rewrite

TESTS = Path(__file__).resolve().parent


def write_bytecode(part: int, parts: int) -> None:
    """Write what is missing or old of every nth file, where pytest looks for it."""
    for path in sorted(TESTS.rglob("test_*.py"))[part::parts]:
        pyc = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, pyc) is None:
            source_hash, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]
            pyc.parent.mkdir(exist_ok=True)
            rewrite._write_pyc(None, code, source_hash, pyc)  # type: ignore[arg-type]
