"""Wheels of this package, built and installed without the network, each in an environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from thence import __version__

ROOT = Path(__file__).resolve().parent.parent
LATER = "99.0.0"
"""A version that is higher than any of ours."""


def build(folder: Path, version: str = __version__) -> Path:
    """Build a wheel in an empty folder; its code says that it is of that version."""
    if find_spec("hatchling") is None or find_spec("pip") is None:
        pytest.skip("no pip and hatchling here to build and install a wheel with")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name, line in (
        ("pyproject.toml", 'version = "{}"\n'),
        ("src/thence/__init__.py", '__version__ = "{}"\n'),
    ):
        text = (source / name).read_text(encoding="utf-8")
        assert 1 == text.count(line.format(__version__)), name
        changed = text.replace(line.format(__version__), line.format(version))
        (source / name).write_text(changed, encoding="utf-8")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", f"{folder}"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path) -> None:
    """Make an environment that has the packages which thence needs, and not thence itself.

    They are those of this environment: a line in a .pth file leads to them, and leaves out the
    editable install beside them.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / python / "site-packages"
    (packages / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def install(folder: Path, wheel: Path) -> Path:
    """Install a wheel into an environment, over the one that is there; return its command.

    Bytecode is written by what imports a module: pip would compile all of them.
    """
    options = ("--quiet", "--no-deps", "--no-index", "--prefix", f"{folder}", "--ignore-installed")
    pip = [sys.executable, "-m", "pip", "install", *options, "--no-warn-script-location"]
    for old in folder.glob("lib/*/site-packages/thence*"):
        shutil.rmtree(old)
    subprocess.run([*pip, "--no-compile", f"{wheel}"], check=True, capture_output=True)
    return _set_interpreter(folder, sys.executable)


def copy_environment(program: Path, folder: Path) -> Path:
    """Copy the environment of a command, all that was installed with it; return its command."""
    own = program.parent.parent
    shutil.copytree(own, folder, symlinks=True)
    return _set_interpreter(folder, str(own / "bin" / "python"))


def _set_interpreter(folder: Path, before: str) -> Path:
    """Let the command of an environment be run by the Python there; return it."""
    script = folder / "bin" / "thence"
    script.write_text(script.read_text().replace(before, str(folder / "bin" / "python"), 1))
    return script
