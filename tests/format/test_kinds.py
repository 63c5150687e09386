"""One classifier, proven on its own tables, on made-up commands and on the real clients' files.

The rows of every table carry the texts they are tried on; what needs more than a row stands here.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format import foreign
from tests.pace import one_quick
from thence.format import kinds, testruns
from thence.format.kinds import Ending, Touch
from thence.format.output import Row

TOOLS = sorted({name for _, names in kinds.TOOLS for name in names.split()})


# -- the tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "row"),
    [(rows, row) for rows in (kinds.FAILURES, kinds.ERRORS) for row in rows],
    ids=lambda value: value.name if isinstance(value, Row) else "",
)
def test_every_text_row_matches_its_example_first(rows: tuple[Row, ...], row: Row) -> None:
    """No row is shadowed by one above it, and none takes its near miss."""
    assert row == next(r for r in rows if re.match(r.pattern, row.yes))
    assert not re.match(row.pattern, row.no)


def test_no_tool_name_has_two_kinds() -> None:
    """The table of tools is unambiguous."""
    names = [name for _, names in kinds.TOOLS for name in names.split()]

    assert [] == [name for name, times in Counter(names).items() if times > 1]


def test_test_runs_can_be_asked_for_here_too() -> None:
    """Whoever has a call need not know that test runs have a module of their own."""
    ours = kinds.Tests, kinds.test_runner, kinds.tests

    assert (testruns.Tests, testruns.test_runner, testruns.tests) == ours


# -- commands and files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Bash", {"command": "ls -la", "description": "list"}, "ls -la"),
        ("shell", '{"command":["bash","-lc","pytest -q"]}', "pytest -q"),
        ("shell", {"command": ["zsh", "-lc", "a && b"], "workdir": "/w"}, "a && b"),
        ("shell", {"command": ["bash", "-l", "-c", "x"]}, "x"),
        ("shell", {"command": ["git", "commit", "-m", "a b"]}, "git commit -m 'a b'"),
        ("local_shell_call", {"type": "exec", "action": {"command": ["ls"]}}, "ls"),
        ("exec_command", '{"cmd":"ls","yield_time_ms":1000}', "ls"),
        ("run_terminal_command", {"command": "ls"}, "ls"),
        ("run_commands", {"commands": ["ls", 7, "make"]}, "ls\nmake"),
        ("run_commands", {"commands": "ls"}, None),
        ("Execute", {"summary": "list", "command": "ls"}, "ls"),
        ("mcp__box__bash", {"command": "ls"}, "ls"),
        ("use_tool", {"tool_name": "box__bash", "tool_input": '{"command":"ls"}'}, "ls"),
        ("bash", "ls -la", "ls -la"),
        ("exec", {"command": "ls"}, "ls"),
        ("exec", "const r = await tools.exec_command({cmd: 'ls'})", None),
        ("exec_command", "{not json", None),
        ("shell", {"command": []}, None),
        ("shell", {"command": ["ls", 1]}, None),
        ("Bash", {"command": "  "}, None),
        ("Read", {"command": "ls"}, None),
        ("str_replace_editor", {"command": "view", "path": "a"}, None),
    ],
)
def test_command_is_found_in_every_shell_tool(tool: str, given: Any, expected: str | None) -> None:
    """The script of a call is the same text whatever the agent and the shape of its input."""
    assert expected == kinds.command(tool, given)


PATCH = """*** Begin Patch
*** Update File: calc.py
@@
 def add(a, b):
-    return a - b
+    return a + b
*** Add File: test_calc.py
+from calc import add
+
- a line the model left unmarked
*** Delete File: old.py
*** Update File: a.py
*** Move to: b.py
@@
-x
*** End Patch
"""
PATCHED = [
    Touch("calc.py", "edit", 1, 1),
    Touch("test_calc.py", "add", 2, 0),
    Touch("old.py", "delete"),
    Touch("a.py", "move"),
    Touch("b.py", "add", 0, 1),
]


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Read", {"file_path": "a.py", "limit": 3}, [Touch("a.py", "read")]),
        ("read_file", {"target_file": "a.py"}, [Touch("a.py", "read")]),
        ("Read", {"filepath": "a.py"}, [Touch("a.py", "read")]),
        ("read_files", {"files": [{"path": "a.py"}, 7, {"path": "b.py"}]},
         [Touch("a.py", "read"), Touch("b.py", "read")]),
        ("editor", {"path": "a.py", "old_text": "x", "new_text": "y\nz"},
         [Touch("a.py", "edit", 2, 1)]),
        ("Write", {"file_path": "a.py", "content": "x\ny\n"}, [Touch("a.py", "add", 2)]),
        ("write", '{"file_path":"a.py","content":""}', [Touch("a.py", "add", 0)]),
        ("Edit", {"file_path": "a", "old_string": "1\n2\n3", "new_string": "1\n4\n5\n3"},
         [Touch("a", "edit", 2, 1)]),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "", "replace_all": True},
         [Touch("a", "edit")]),
        ("search_replace", {"file_path": "a", "old_string": "x", "new_string": ""},
         [Touch("a", "edit", 0, 1)]),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y\nz"},
                                                   {"old_string": "", "new_string": "w"}]},
         [Touch("a", "edit", 3, 1)]),
        ("edit", {"path": "a", "oldText": "x"}, [Touch("a", "edit")]),
        ("NotebookEdit", {"notebook_path": "a.nb", "new_source": "x"}, [Touch("a.nb", "edit")]),
        ("str_replace_editor", {"command": "create", "path": "a", "file_text": "x"},
         [Touch("a", "add", 1)]),
        ("str_replace_editor", {"command": "view", "path": "a"}, [Touch("a", "read")]),
        ("mcp__fs__write_file", {"path": "a", "content": "x"}, [Touch("a", "add", 1)]),
        ("apply_patch", PATCH, PATCHED),
        ("apply_patch", {"patch": PATCH}, PATCHED),
        ("shell", {"command": ["apply_patch", PATCH]}, PATCHED),
        ("shell", {"command": ["bash", "-lc", f"cd x && apply_patch <<'P'\n{PATCH}P\n"]}, PATCHED),
        ("exec", f"text(await tools.apply_patch({json.dumps(PATCH)}))", PATCHED),
        ("Bash", {"command": "echo x > a.txt; echo y >> b.txt 2>/dev/null"},
         [Touch("a.txt", "add"), Touch("b.txt", "edit")]),
        ("Bash", {"command": "cat > 'my file.md' <<'EOF'\nsed -i s/a/b/ c\nEOF"},
         [Touch("my file.md", "add")]),
        ("Bash", {"command": "sed -i 's/a/b/' a.py b.py"},
         [Touch("a.py", "edit"), Touch("b.py", "edit")]),
        ("Bash", {"command": "sed -i '' -e 's/a/b/' a.py"}, [Touch("a.py", "edit")]),
        ("Bash", {"command": "perl -pi -e 's/a/b/' a.py"}, [Touch("a.py", "edit")]),
        ("Bash", {"command": "rm -f a.py && git mv b.py c.py"},
         [Touch("a.py", "delete"), Touch("b.py", "move"), Touch("c.py", "add")]),
        ("Bash", {"command": "make | tee -a log.txt"}, [Touch("log.txt", "edit")]),
        ("Bash", {"command": "sed -n '1,5p' a.py; cat b.py 2>&1 | head > /dev/null"},
         [Touch("a.py", "read"), Touch("b.py", "read")]),
        ("Bash", {"command": "head -n 20 Makefile; tail -5 a.log; nl -ba b.py | grep -n def"},
         [Touch("Makefile", "read"), Touch("a.log", "read"), Touch("b.py", "read")]),
        ("Bash", {"command": "grep -rn -A 3 'def x' src tests/a.py; rg -e y.py b.py; cat *.py $F"},
         [Touch("tests/a.py", "read"), Touch("b.py", "read")]),
        ("Bash", {"command": "cat a.py > b.py; jq .x c.json; echo cat d.py"},
         [Touch("b.py", "add"), Touch("a.py", "read"), Touch("c.json", "read")]),
        ("Grep", {"pattern": "x", "path": "src/a.py"}, [Touch("src/a.py", "read")]),
        ("Bash", {"command": "echo x > $OUT; rm *.pyc; pytest > /tmp/log 2> err.txt; a >&2"}, []),
        ("Bash", {"command": "echo 'a > b' \"c >> d\"; [[ $x > y ]] || (( z > 5 )) || exit"}, []),
        ("Grep", {"pattern": "x", "path": "src"}, []),
        ("Write", {"content": "x"}, []),
        ("apply_patch", None, []),
    ],
)  # fmt: skip
def test_touched_files_are_those_the_input_names(
    tool: str, given: Any, expected: list[Touch]
) -> None:
    """Files come from edit tools, patches and evident shell edits, with lines where told."""
    assert expected == kinds.touches(tool, given)
    assert any(touch.how != "read" for touch in expected) == kinds.action_of(tool, given).edits


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
    assert expected == kinds.find_ending(tool, result, **evidence)


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


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_error_has_the_same_shape(one: str, other: str) -> None:
    """Paths, numbers, hex, times, quoted names and envelopes make no difference."""
    assert kinds.error_shape(one) == kinds.error_shape(other)
    assert kinds.error_shape(one)


def test_different_errors_have_different_shapes() -> None:
    """What names the error stays in its shape, and what is no error has none."""
    shapes = [kinds.error_shape(text) for text in DIFFERENT]

    assert len(DIFFERENT) == len({shape for shape in shapes if shape})
    assert kinds.SHAPE_LIMIT >= len(kinds.error_shape("ValueError: " + "x " * 500) or "")
    assert [None] * len(NO_ERRORS) == [kinds.error_shape(text) for text in NO_ERRORS]


def test_the_error_inside_is_preferred_to_what_wraps_it() -> None:
    """A task runner's complaint yields to the line that tells what went wrong."""
    text = "Exit code 1\n[lint] ERROR task failed\na/b.go:40:1: undefined: x\nmake: *** [l] Error"

    assert "compile: <path>: undefined: x" == kinds.error_shape(text)


PATHS = st.from_regex(r"(/[a-z]{1,8}){1,4}/[a-z]{1,8}\.py", fullmatch=True)
NUMBERS = st.integers(0, 10**12)


@given(st.tuples(NUMBERS, PATHS, NUMBERS), st.tuples(NUMBERS, PATHS, NUMBERS), st.integers(0, 3))
def test_shapes_do_not_depend_on_numbers_and_paths(
    one: tuple[int, str, int], other: tuple[int, str, int], which: int
) -> None:
    """Two texts that differ in numbers and paths alone have one shape."""
    template = (
        "ValueError: expected {0} arguments in {1}, got {2}",
        "{1}:{0}:{2}: error: expected ';'",
        "Exit code 3\nprog: error: line {0} of {1}: {2} is too many",
        "<tool_use_error>Found {0} matches in {1} at {2}</tool_use_error>",
    )[which]

    assert kinds.error_shape(template.format(*one)) == kinds.error_shape(template.format(*other))
    assert kinds.error_shape(template.format(*one))


# -- summaries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Bash", {"command": "pytest -q"}, "ran pytest -q"),
        ("shell", '{"command":["bash","-lc","pytest\\n -q"]}', "ran pytest -q"),
        ("Edit", {"file_path": "src/a.py", "old_string": "x"}, "edited src/a.py"),
        ("Write", {"file_path": "a.py", "content": ""}, "wrote a.py"),
        ("Read", {"file_path": "src/a.py"}, "read src/a.py"),
        ("apply_patch", PATCH, "edited calc.py, test_calc.py, old.py and 2 more"),
        ("Grep", {"pattern": "foo", "path": "src"}, "searched for foo in src"),
        ("Glob", {"pattern": "**/*.py"}, "searched for **/*.py"),
        ("list_dir", {"target_directory": "src"}, "listed src"),
        ("WebFetch", {"url": "https://a.b", "prompt": "x"}, "fetched https://a.b"),
        ("WebSearch", {"query": "x y"}, "searched the web for x y"),
        ("Task", {"description": "find it", "prompt": "long"}, "asked a subagent: find it"),
        ("TodoWrite", {"todos": []}, "updated the plan"),
        ("run_commands", {"commands": ["ls", "make"]}, "ran ls make"),
        ("spawn_agent", {"systemPrompt": "x", "task": "count"}, "asked a subagent: count"),
        ("mcp__ide__diagnose", {}, "called mcp__ide__diagnose"),
        ("Bash", {"command": "cat > a <<'EOF'\n" + "x\n" * 99 + "EOF"}, "ran cat > a <<'EOF'"),
        ("Bash", {"command": "x" * 500}, "ran " + "x" * 115 + "…"),
    ],
)
def test_summary_says_what_was_done(tool: str, given: Any, expected: str) -> None:
    """A call is one short line a human understands."""
    assert expected == kinds.summary(tool, given)


# -- foreign and hostile data --------------------------------------------------------------------


@given(
    st.sampled_from([*TOOLS, "use_tool", "x"]) | foreign.json_values,
    foreign.json_values | foreign.scripts,
    foreign.json_values | foreign.scripts,
)
def test_nothing_raises_on_any_json(tool: Any, given: Any, result: Any) -> None:
    """Every function answers for arguments of every shape, as values and as JSON text."""
    for value in (given, json.dumps(given)):
        line = kinds.summary(tool, value)
        kinds.action_of(tool, value)
        script = kinds.command(tool, value)
        assert isinstance(kinds.touches(tool, value), list)
        assert None is script or script.strip()
        assert len(line) <= kinds.SUMMARY_LIMIT
        assert [line] == (line.splitlines() or [line])
    kinds.find_ending(tool, result, is_error=given, exit_code=given)
    ended = kinds.find_ending(tool, result)
    shape = kinds.error_shape(result)
    assert ended.failed == bool(ended.why)
    assert None is shape or (len(shape) <= kinds.SHAPE_LIMIT and "\n" not in shape)


@given(foreign.scripts)
def test_nothing_raises_on_any_script(script: str) -> None:
    """Broken quotes, odd bytes and half operators are read as far as they go."""
    assert all(touch.path for touch in kinds.touches("Bash", {"command": script}))


@pytest.mark.parametrize("unit", one_quick(foreign.UNITS))
def test_hostile_text_costs_little(unit: str) -> None:
    """A text made to provoke backtracking is answered in linear, bounded time."""
    text = unit * ((1 << 18) // len(unit))
    started = time.process_time()
    for start in ("", "gradle ", "mvn ", "Exit code 1\n", "<tool_use_error>", '{"output":"'):
        kinds.touches("Bash", {"command": start + text})
        kinds.error_shape(start + text)
        kinds.find_ending("Bash", start + text)
        kinds.summary("Bash", start + text)

    assert time.process_time() - started < 10


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
        told = item if isinstance(item, dict) else payload
        name = str(told.get("call_id", told.get("id")))
        call = calls.setdefault((path, name), ["", None, None, None])
        if str(payload.get("type")).endswith("_call"):
            call[:2] = str(payload.get("name")), payload.get("arguments", payload.get("input"))
        if str(payload.get("type")).endswith("_call_output"):
            call[2] = payload.get("output")
        if isinstance(told.get("exit_code"), int):
            call[3] = told["exit_code"]
    yield from (tuple(call) for call in calls.values() if call[2] is not None)


@pytest.mark.slow
def test_real_claude_results_agree_with_what_was_recorded(shared: Path) -> None:
    """Over every real call nothing raises, and no ending contradicts a recorded is_error."""
    seen: Counter[str] = Counter()
    for name in ("claude-code", "public/claude"):
        for tool, args, result, is_error in claude(shared / "data" / name):
            kinds.summary(tool, args)
            ended = kinds.find_ending(tool, result, is_error=is_error)
            seen["results"] += 1
            if is_error is not None:
                seen["recorded"] += 1
                seen["wrong"] += ended.failed != is_error
                seen["blind"] += kinds.find_ending(tool, result).failed == is_error

    assert 0 == seen["wrong"]
    assert seen["results"] >= 1500
    assert seen["blind"] >= 0.95 * seen["recorded"], seen


@pytest.mark.slow
def test_real_codex_results_agree_with_what_was_recorded(shared: Path) -> None:
    """The text of a Codex output alone tells the exit code that another record holds."""
    seen: Counter[str] = Counter()
    for name in ("codex", "public/codex"):
        for tool, args, result, code in codex(shared / "data" / name):
            kinds.summary(tool, args)
            kinds.error_shape(str(result))
            ended = kinds.find_ending(tool, result)
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
            ended = kinds.find_ending("", result, is_error=failed or None)
            code = raw.get("exit_code") if isinstance(raw, dict) else None
            seen["results"] += 1
            seen["wrong"] += ended.failed != (failed or bool(code))

    assert 0 == seen["wrong"]
    assert seen["results"] >= 40


def test_an_exit_code_outranks_what_a_command_printed() -> None:
    """A command that ended well may print an error; one that was cut off did not end well."""
    printed = "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nError: quoted\n"

    assert not kinds.find_ending("exec_command", printed).failed
    assert kinds.find_ending("exec_command", printed.replace("code 0", "code 2")).failed


def test_changes_hold_the_very_texts() -> None:
    """Edits give both texts, new files their content, patches their lines file by file."""
    edit = {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"

    assert kinds.changes("Edit", edit) == [kinds.Change("a.py", "edit", "x = 1", "x = 2")]
    assert kinds.changes("MultiEdit", {"file_path": "a.py", "edits": [edit, 7]}) == [
        kinds.Change("a.py", "edit", "x = 1", "x = 2")
    ]
    assert kinds.changes("Write", {"file_path": "b.py", "content": "new\n"}) == [
        kinds.Change("b.py", "add", "", "new\n")
    ]
    assert kinds.changes("apply_patch", {"input": patch}) == [
        kinds.Change("a.py", "edit", patch=("@@", "-x", "+y"))
    ]
    assert kinds.changes("Bash", {"command": f"apply_patch <<'E'\n{patch}\nE"}) == [
        kinds.Change("a.py", "edit", patch=("@@", "-x", "+y"))
    ]


@pytest.mark.parametrize("args", [None, [], {"file_path": 7}, "*** Begin Patch", {"edits": "x"}])
def test_what_holds_no_texts_changes_nothing(args: object) -> None:
    """A shape that nobody knows is no change."""
    for tool in ("Edit", "Write", "apply_patch", "Bash", "Read", ""):
        assert kinds.changes(tool, args) == []


def test_names_that_an_agent_adds_are_known_and_change_none_that_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tools by kind, and the arguments that hold scripts and paths."""
    for name in ("_COMMANDS", "_PATHS"):
        monkeypatch.setattr(kinds, name, [*getattr(kinds, name)])
    kinds.learn({"shell": ["made_up_run", "Read"]}, commands=["script"], paths=["place"])

    assert ("shell", "read") == (kinds.tool_kind("made_up_run"), kinds.tool_kind("Read"))
    assert "ls" == kinds.command("made_up_run", {"script": "ls"})
    assert ["a.py"] == kinds.paths("Read", {"place": "a.py"})
