"""What calls do: commands, touched files, summaries; on made-up calls and hostile input."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format import foreign
from tests.format.derived import find_ending
from tests.pace import one_quick
from thence.format import errors, patches, tools
from thence.format.patches import Touch
from thence.format.tools import BUILT_IN, Effect

TOOLS = sorted({name for _, names in tools.TOOLS for name in names.split()})


def does(tool: str, arguments: object) -> Effect:
    """Return what a call does."""
    return BUILT_IN.judge(tool, arguments)[0]


def changes(tool: str, arguments: object) -> list[patches.Change]:
    """Return what a call changes."""
    return tools.changes(does(tool, arguments), tool, arguments)


def test_no_tool_name_has_two_kinds() -> None:
    """The table of tools is unambiguous."""
    names = [name for _, names in tools.TOOLS for name in names.split()]

    assert [] == [name for name, times in Counter(names).items() if times > 1]


# -- commands and files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
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
def test_command_is_found_in_every_shell_tool(
    tool: str, arguments: Any, expected: str | None
) -> None:
    """The script of a call is the same text whatever the agent and the shape of its input."""
    assert expected == tools.command(does(tool, arguments), tool, arguments)


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
    ("tool", "arguments", "expected"),
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
    tool: str, arguments: Any, expected: list[Touch]
) -> None:
    """Files come from edit tools, patches and evident shell edits, with lines where told."""
    effect = does(tool, arguments)

    assert expected == tools.touches(effect, tool, arguments)
    assert [touch.path for touch in expected if touch.how != "read"] == [*effect.edited]


# -- summaries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
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
def test_summary_says_what_was_done(tool: str, arguments: Any, expected: str) -> None:
    """A call is one short line a human understands."""
    assert expected == BUILT_IN.judge(tool, arguments)[1]


# -- foreign and hostile data --------------------------------------------------------------------


@given(
    st.sampled_from([*TOOLS, "use_tool", "x"]) | foreign.json_values,
    foreign.json_values | foreign.scripts,
    foreign.json_values | foreign.scripts,
)
def test_nothing_raises_on_any_json(tool: Any, arguments: Any, result: Any) -> None:
    """Every function answers for arguments of every shape, as values and as JSON text."""
    for value in (arguments, json.dumps(arguments)):
        effect, line = BUILT_IN.judge(tool, value)
        script = tools.command(effect, tool, value)
        assert isinstance(tools.touches(effect, tool, value), list)
        assert None is script or script.strip()
        assert len(line) <= tools.SUMMARY_LIMIT
        assert [line] == (line.splitlines() or [line])
    find_ending(tool, result, is_error=arguments, exit_code=arguments)
    ended = find_ending(tool, result)
    shape = errors.error_shape(result)
    assert ended.failed == bool(ended.why)
    assert None is shape or (len(shape) <= errors.SHAPE_LIMIT and "\n" not in shape)


@given(foreign.scripts)
def test_nothing_raises_on_any_script(script: str) -> None:
    """Broken quotes, odd bytes and half operators are read as far as they go."""
    assert all(path for path, _ in does("Bash", {"command": script}).touches)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("unit", one_quick(foreign.UNITS))
def test_hostile_text_costs_little(unit: str) -> None:
    """A text made to provoke backtracking is answered in linear, bounded time."""
    text = unit * ((1 << 18) // len(unit))
    started = time.process_time()
    for start in ("", "gradle ", "mvn ", "Exit code 1\n", "<tool_use_error>", '{"output":"'):
        does("Bash", {"command": start + text})
        errors.error_shape(start + text)
        find_ending("Bash", start + text)
        does("Bash", start + text)

    assert time.process_time() - started < 10


def test_changes_hold_the_very_texts() -> None:
    """Edits give both texts, new files their content, patches their lines file by file."""
    edit = {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"

    assert changes("Edit", edit) == [patches.Change("a.py", "edit", "x = 1", "x = 2")]
    assert changes("MultiEdit", {"file_path": "a.py", "edits": [edit, 7]}) == [
        patches.Change("a.py", "edit", "x = 1", "x = 2")
    ]
    assert changes("Write", {"file_path": "b.py", "content": "new\n"}) == [
        patches.Change("b.py", "add", "", "new\n")
    ]
    assert changes("apply_patch", {"input": patch}) == [
        patches.Change("a.py", "edit", patch=("@@", "-x", "+y"))
    ]
    assert changes("Bash", {"command": f"apply_patch <<'E'\n{patch}\nE"}) == [
        patches.Change("a.py", "edit", patch=("@@", "-x", "+y"))
    ]


@pytest.mark.parametrize("args", [None, [], {"file_path": 7}, "*** Begin Patch", {"edits": "x"}])
def test_what_holds_no_texts_changes_nothing(args: object) -> None:
    """A shape that nobody knows is no change."""
    for tool in ("Edit", "Write", "apply_patch", "Bash", "Read", ""):
        assert changes(tool, args) == []


def test_names_that_an_agent_adds_are_known_and_change_none_that_were() -> None:
    """Tools by kind, and the arguments that hold scripts and paths; the first box stays so."""
    added = {"shell": ["made_up_run", "Read"], "plan": ["made_up_list"]}
    more = BUILT_IN.with_names(
        added, commands=["script"], paths=["place"], lists={"made_up_list": "rows", "todo": "x"}
    )
    run, line = more.judge("made_up_run", {"script": "ls"})
    read, _ = more.judge("Read", {"place": "a.py"})
    usual, _ = more.judge("Read", {"place": "b.py", "path": "a.py"})

    assert ("shell", "read") == (more.kind("made_up_run"), more.kind("Read"))
    assert ("shell", "script", "ran ls") == (run.kind, run.argument, line)
    assert "ls" == tools.command(run, "made_up_run", {"script": "ls"})
    assert ("place", (("a.py", "read"),)) == (read.argument, read.touches)
    assert [Touch("a.py", "read")] == tools.touches(read, "Read", {"place": "a.py"})
    assert ("", (("a.py", "read"),)) == (usual.argument, usual.touches)
    assert {"made_up_list": "rows"} == more.lists
    assert "" == BUILT_IN.kind("made_up_run")


def test_a_tool_that_has_no_name_here_is_what_it_was_known_to_be() -> None:
    """Whoever lacks the package of an agent loses nothing of what was found with it."""
    more = BUILT_IN.with_names({"edit": ["made_up_edit"], "shell": ["Read"]}, paths=["place"])
    known, line = more.judge("made_up_edit", {"place": "a.py"})

    assert ("edit", "edited a.py") == (known.kind, line)
    assert (known, line) == BUILT_IN.judge("made_up_edit", {"place": "a.py"}, known)
    assert "read" == BUILT_IN.judge("Read", {"path": "a"}, Effect("shell"))[0].kind


@pytest.mark.parametrize(
    ("tool", "args"), [("write_file", {"place": "a.py"}), ("Bash", {"script": "rm a.py"})]
)
def test_an_argument_that_has_no_name_here_is_what_it_was_known_to_be(
    tool: str, args: dict[str, str]
) -> None:
    """A tool that everybody knows by its name may have arguments that one agent alone has."""
    more = BUILT_IN.with_names({}, commands=["script"], paths=["place"])
    known, line = more.judge(tool, args)

    assert ["a.py"] == [path for path, _ in known.touches]
    assert (known, line) == BUILT_IN.judge(tool, args, known)


def test_version_of_names_is_that_of_all_that_decides() -> None:
    """Equal names have equal versions in every process; one more name has another version."""
    versions = [
        box.version
        for box in (
            BUILT_IN,
            BUILT_IN.with_names({}),
            BUILT_IN.with_names({"edit": ["made_up"]}),
            BUILT_IN.with_names({"read": ["made_up"]}),
            BUILT_IN.with_names({}, commands=["script"]),
            BUILT_IN.with_names({}, paths=["script"]),
            BUILT_IN.with_names({}, lists={"made_up": "rows"}),
        )
    ]

    assert [versions[0]] * 2 == versions[:2]
    assert 6 == len(set(versions))
    assert all(version < 1 << 48 for version in versions)
