"""How calls ended, on the tables' own rows, made-up results and the real clients' files.

The rows of every table carry the texts they are tried on; what needs more than a row stands here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.derived import find_ending
from thence.format import errors
from thence.format.errors import Ending
from thence.format.output import Row
from thence.format.tools import BUILT_IN


@pytest.mark.parametrize(
    ("rows", "row"),
    [(rows, row) for rows in (errors.FAILURES, errors.ERRORS) for row in rows],
    ids=lambda value: value.name if isinstance(value, Row) else "",
)
def test_every_text_row_matches_its_example_first(rows: tuple[Row, ...], row: Row) -> None:
    """No row is shadowed by one above it, and none takes its near miss."""
    assert row == next(r for r in rows if re.match(r.pattern, row.yes))
    assert not re.match(row.pattern, row.no)


# -- endings -------------------------------------------------------------------------------------

DENIED = "The user doesn't want to proceed with this tool use. The tool use was rejected"


@pytest.mark.parametrize(
    ("tool", "result", "evidence", "expected"),
    [
        ("Bash", "fine", {"exit_code": 0, "is_error": True}, Ending(False, 0)),
        ("Bash", "fine", {"exit_code": True}, Ending(False)),
        ("Bash", "fine", {"exit_code": 2, "is_error": False}, Ending(True, 2, "exit code")),
        ("shell", "Wall time: 0.5 seconds\naborted by user", {"exit_code": -1},
         Ending(True, -1, "interrupted")),
        ("Bash", "Exit code 1\nno", {"is_error": True}, Ending(True, 1, "exit code")),
        ("Bash", "Exit code 1\nsays the log", {"is_error": False}, Ending(False)),
        ("Bash", DENIED, {"is_error": True}, Ending(True, None, "denied")),
        ("Edit", [{"type": "text", "text": "odd"}], {"is_error": True},
         Ending(True, None, "is_error")),
        ("exec_command", "Chunk ID: a\nWall time: 0 seconds\nProcess exited with code 3\nOutput:\n",
         {}, Ending(True, 3, "exit code")),
        ("exec_command", "Chunk ID: a\nWall time: 1 seconds\nProcess running with session ID 7\n",
         {}, Ending(False)),
        ("shell_command", "Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 9", {},
         Ending(False, 0)),
        ("shell", '{"output":"x","metadata":{"exit_code":7,"duration_seconds":0.0}}', {},
         Ending(True, 7, "exit code")),
        ("shell", {"metadata": {"duration": 1, "exit_code": 7}, "output": "x"}, {},
         Ending(True, 7, "exit code")),
        ("shell", "failed in sandbox None with execution error: command timed out", {},
         Ending(True, None, "timeout")),
        ("run_terminal_command", "exit: 1\nTraceback", {}, Ending(True, 1, "exit code")),
        ("run_terminal_command", {"type": "Bash", "exit_code": 3, "timed_out": False}, {},
         Ending(True, 3, "exit code")),
        ("run_terminal_command", {"exit_code": None, "timed_out": True}, {},
         Ending(True, None, "timeout")),
        ("search_replace", {"NoMatchesFound": {"message": "not found"}}, {},
         Ending(True, None, "is_error")),
        ("use_tool", {"type": "MCP", "output": {"Error": "it failed"}}, {},
         Ending(True, None, "is_error")),
        ("mcp", {"Ok": {"content": [], "isError": False}}, {}, Ending(False)),
        ("Bash", {"stdout": "", "interrupted": True}, {}, Ending(True, None, "interrupted")),
        ("x", "<tool_use_error>No task found</tool_use_error>", {}, Ending(True, None, "text")),
        ("x", "unsupported call: x", {}, Ending(True, None, "text")),
        ("Read", "Exit code 1\nis the first line of this file", {}, Ending(False)),
        ("Bash", "all is well", {}, Ending(False)),
        ("Bash", None, {}, Ending(False)),
    ],
)  # fmt: skip
def test_ending_follows_the_best_evidence(
    tool: str, result: Any, evidence: dict[str, Any], expected: Ending
) -> None:
    """Exit code before flag before text, and the reason is the most telling one."""
    assert expected == find_ending(tool, result, **evidence)


# -- error shapes --------------------------------------------------------------------------------

SAME = [
    ("KeyError: 'alpha'", "KeyError: 'beta gamma'"),
    ("a.go:12:3: undefined: foo", "pkg/b.go:7:30: undefined: foo"),
    ("cat: /home/a/x.txt: No such file or directory", "cat: ./y/z.md: No such file or directory"),
    ("Error: at 2026-01-02T03:04:05Z: 7f3a9c1", "Error: at 2025-11-12T13:14:15.5Z: 0be77d42"),
    ("fatal: bad object 1234567", "fatal: bad object 99"),
    ("Exit code 1\nTraceback (most recent call last):\n  File a.py, line 3\nValueError: x 3",
     "exit: 1\nTraceback (most recent call last):\n  File b.py, line 9\nValueError: x 40"),
    ("E   AssertionError: assert 1 == 2", "\x1b[31mAssertionError: assert 30 == 4\x1b[0m"),
]  # fmt: skip
DIFFERENT = [
    "KeyError: 'a'", "ValueError: 'a'", "error[E0308]: bad types", "error[E0382]: bad types",
    "Request failed with status code 404", "Request failed with status code 503", DENIED,
    "bash: foo: command not found", "make: *** [all] Error 2", "--- FAIL: TestA (0.00s)", "aborted",
    "<tool_use_error>File does not exist.</tool_use_error>", "Exit code 1\nsomething odd",
]  # fmt: skip
NO_ERRORS = ["", "  \n", "Exit code 1", "all tests passed", "0 errors, 0 warnings"]


@pytest.mark.parametrize(("text", "other"), SAME)
def test_the_same_error_has_the_same_shape(text: str, other: str) -> None:
    """Paths, numbers, hex, times, quoted names and envelopes make no difference."""
    assert errors.error_shape(text) == errors.error_shape(other)
    assert errors.error_shape(text)


def test_different_errors_have_different_shapes() -> None:
    """What names the error stays in its shape, and what is no error has none."""
    shapes = [errors.error_shape(text) for text in DIFFERENT]

    assert len(DIFFERENT) == len({shape for shape in shapes if shape})
    assert errors.SHAPE_LIMIT >= len(errors.error_shape("ValueError: " + "x " * 500) or "")
    assert [None] * len(NO_ERRORS) == [errors.error_shape(text) for text in NO_ERRORS]


def test_the_error_inside_is_preferred_to_what_wraps_it() -> None:
    """A task runner's complaint yields to the line that tells what went wrong."""
    text = "Exit code 1\n[lint] ERROR task failed\na/b.go:40:1: undefined: x\nmake: *** [l] Error"

    assert "compile: <path>: undefined: x" == errors.error_shape(text)


PATHS = st.from_regex(r"(/[a-z]{1,8}){1,4}/[a-z]{1,8}\.py", fullmatch=True)
NUMBERS = st.integers(0, 10**12)


@given(st.tuples(NUMBERS, PATHS, NUMBERS), st.tuples(NUMBERS, PATHS, NUMBERS), st.integers(0, 3))
def test_shapes_do_not_depend_on_numbers_and_paths(
    values: tuple[int, str, int], other: tuple[int, str, int], which: int
) -> None:
    """Two texts that differ in numbers and paths alone have one shape."""
    template = (
        "ValueError: expected {0} arguments in {1}, got {2}",
        "{1}:{0}:{2}: error: expected ';'",
        "Exit code 3\nprog: error: line {0} of {1}: {2} is too many",
        "<tool_use_error>Found {0} matches in {1} at {2}</tool_use_error>",
    )[which]

    assert errors.error_shape(template.format(*values)) == errors.error_shape(
        template.format(*other)
    )
    assert errors.error_shape(template.format(*values))


# -- the real clients' files ---------------------------------------------------------------------


def records(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every JSON object of every JSONL file below a folder, with the file it stands in."""
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield str(path), value


def claude(folder: Path) -> Iterator[tuple[str, Any, Any, bool | None]]:
    """Tool, input, result and recorded is_error of every result below a folder."""
    calls: dict[tuple[str, str], tuple[str, Any]] = {}
    for path, record in records(folder):
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                calls[path, str(block.get("id"))] = str(block.get("name")), block.get("input")
            if isinstance(block, dict) and block.get("type") == "tool_result":
                call = calls.get((path, str(block.get("tool_use_id"))), ("", None))
                yield *call, block.get("content"), block.get("is_error")


def codex(folder: Path) -> Iterator[tuple[str, Any, Any, int | None]]:
    """Tool, input, result and recorded exit code of every output below a folder."""
    calls: dict[tuple[str, str], list[Any]] = {}
    for path, record in records(folder):
        payload = record.get("payload", record)
        payload = payload if isinstance(payload, dict) else {}
        item = payload.get("item")
        details = item if isinstance(item, dict) else payload
        name = str(details.get("call_id", details.get("id")))
        call = calls.setdefault((path, name), ["", None, None, None])
        if str(payload.get("type")).endswith("_call"):
            call[:2] = str(payload.get("name")), payload.get("arguments", payload.get("input"))
        if str(payload.get("type")).endswith("_call_output"):
            call[2] = payload.get("output")
        if isinstance(details.get("exit_code"), int):
            call[3] = details["exit_code"]
    yield from (tuple(call) for call in calls.values() if call[2] is not None)


@pytest.mark.slow
def test_real_claude_results_agree_with_what_was_recorded(shared: Path) -> None:
    """Over every real call nothing raises, and no ending contradicts a recorded is_error."""
    seen: Counter[str] = Counter()
    for name in ("claude-code", "public/claude"):
        for tool, args, result, is_error in claude(shared / "data" / name):
            BUILT_IN.judge(tool, args)
            ended = find_ending(tool, result, is_error=is_error)
            seen["results"] += 1
            if is_error is not None:
                seen["recorded"] += 1
                seen["wrong"] += ended.failed != is_error
                seen["blind"] += find_ending(tool, result).failed == is_error

    assert 0 == seen["wrong"]
    assert seen["results"] >= 1500
    assert seen["blind"] >= 0.95 * seen["recorded"], seen


@pytest.mark.slow
def test_real_codex_results_agree_with_what_was_recorded(shared: Path) -> None:
    """The text of a Codex output alone tells the exit code that another record holds."""
    seen: Counter[str] = Counter()
    for name in ("codex", "public/codex"):
        for tool, args, result, code in codex(shared / "data" / name):
            BUILT_IN.judge(tool, args)
            errors.error_shape(str(result))
            ended = find_ending(tool, result)
            seen["results"] += 1
            if code is not None and "Process running" not in str(result):
                seen["recorded"] += 1
                seen["wrong"] += ended.failed != (code != 0) or ended.exit_code not in (None, code)

    assert 0 == seen["wrong"]
    assert seen["results"] >= 900
    assert seen["recorded"] >= 20


def test_real_grok_results_agree_with_what_was_recorded(shared: Path) -> None:
    """A command Grok calls completed has failed if its exit code says so."""
    seen: Counter[str] = Counter()
    for _, record in records(shared / "data" / "grok"):
        params = record.get("params")
        update = params.get("update") if isinstance(params, dict) else None
        if isinstance(update, dict) and update.get("status"):
            raw = update.get("rawOutput")
            failed = update["status"] == "failed"
            result = update.get("content") if raw is None else raw
            ended = find_ending("", result, is_error=failed or None)
            code = raw.get("exit_code") if isinstance(raw, dict) else None
            seen["results"] += 1
            seen["wrong"] += ended.failed != (failed or bool(code))

    assert 0 == seen["wrong"]
    assert seen["results"] >= 40


def test_an_exit_code_outranks_what_a_command_printed() -> None:
    """A command that ended well may print an error; one that was cut off did not end well."""
    printed = "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nError: quoted\n"

    assert not find_ending("exec_command", printed).failed
    assert find_ending("exec_command", printed.replace("code 0", "code 2")).failed
