"""Modules that are loaded when they are used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from thence.late_modules import NAMES, LateInspect

HEAVY = (*NAMES, "typing_extensions", "string", "subprocess", "locale")


def modules_after(code: str, home: Path) -> set[str]:
    """Run code in a process of its own, and return the modules that it has really loaded."""
    ask = "import sys; print([n for n, m in sys.modules.items() if '__file__' in vars(m)])"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ask}"],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(home), "THENCE_HOME": str(home / "own")},
    )
    return set(ast.literal_eval(run.stdout))


def test_a_sweep_that_finds_nothing_loads_none_of_them(tmp_path: Path) -> None:
    """They are a sixth of its time."""
    code = (
        "import os, sys, thence.__main__ as entry\n"
        "sys.argv = ['thence', 'sweep', '--json']\n"
        "entry._leave = lambda code: None\n"
        "sys.stdout = open(os.devnull, 'w')\n"
        "try: entry.main()\n"
        "except SystemExit: pass\n"
        "sys.stdout = sys.__stdout__"
    )
    loaded = modules_after(code, tmp_path)

    assert "msgspec" in loaded
    assert set() == loaded.intersection(HEAVY)


@pytest.mark.parametrize(
    ("name", "part"),
    list(zip(NAMES, ("signature", "dedent", "ip_address", "translation", "uname"), strict=True)),
)
def test_a_module_is_the_real_one_once_it_is_used(name: str, part: str, tmp_path: Path) -> None:
    """Also for those who imported it before."""
    code = (
        "from thence.late_modules import delay_loading; delay_loading()\n"
        f"import {name} as before\n"
        f"assert '{part}' not in vars(before)\n"
        f"wanted = before.{part}\n"
        f"import {name} as after\n"
        f"assert before is not after and wanted is after.{part} is vars(before)['{part}']"
    )

    assert name in modules_after(code, tmp_path)


@pytest.mark.parametrize(
    "text", ["", "one line", "  led\tby blanks  ", "two\n    lines\n", "\n a\n  b"]
)
def test_helps_are_cleaned_as_inspect_does(text: str) -> None:
    """Of one line without loading it."""
    assert inspect.cleandoc(text) == LateInspect("inspect").cleandoc(text)
