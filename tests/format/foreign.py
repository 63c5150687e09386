"""Foreign and hostile data: what a log may hold where a call or its result should stand."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from thence.format import output, tools

KEYS = sorted({*tools._PATHS, *tools._OLD, *tools._NEW, *output._TEXTS, "edits", "command", "cmd"})
KEYS += ["action", "patch", "exit_code", "metadata", "result", "status", "is_error", "pattern"]
"""Fields that some tool, result or client gives a meaning."""

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)
"""JSON of any shape."""

scripts = st.text(
    st.sampled_from("abz019 .:/\\'\"`<>|&;()[]{}$#-_=*+\n\t\x1b\x00é\u2028\ud800"), max_size=200
)
"""Texts of the characters that mean something to a shell, to a terminal or to nobody."""

UNITS = ("'", '"', "\\", '"\\', "<<E\n", "a", "a.", "a/", "a:", " -x", "(", "$(", "{", "[",
         "\x1b[", "E\n", "Error", "1 ", "1,", "`", "ok 1\n", "--- PASS: \n", "Tests: 1 ", " a\n",
         "pytest;", "sh -c ", "uv run ", "*** Add File: a\n", "mvn a", ": ", "\n\n")  # fmt: skip
"""What, many times repeated, provokes a pattern to backtrack."""
