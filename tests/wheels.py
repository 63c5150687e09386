"""Wheels of this package, built and installed without the network, each in an environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePath

import pytest

from scripts import sbom
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
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD-PARTY-NOTICES.txt"):
        shutil.copy(ROOT / name, source / name)
    for name, line in (
        ("pyproject.toml", 'version = "{}"\n'),
        ("src/thence/__init__.py", '__version__ = "{}"\n'),
    ):
        text = (source / name).read_text(encoding="utf-8")
        assert 1 == text.count(line.format(__version__)), name
        changed = text.replace(line.format(__version__), line.format(version))
        (source / name).write_text(changed, encoding="utf-8")
    run_hatchling(folder, "wheel")
    (wheel,) = folder.glob("*.whl")
    return wheel


def run_hatchling(folder: Path, target: str) -> None:
    """Build from the source that `build` left in a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", f"{folder}"]
    subprocess.run(command, cwd=folder / "source", check=True, capture_output=True)


def make_environment(folder: Path, wheel: Path) -> None:
    """Make an environment that has the packages which a wheel declares, and not the wheel itself.

    They are links to those of this environment. No extra is in it, and none of our tools: to import
    what is not declared fails, as it does for a user.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / python / "site-packages"
    for name in filter(None, sbom.dependencies(wheel)):
        files = [file for file in metadata.files(name) or () if ".." not in file.parts]
        _link(files, Path(sysconfig.get_path("purelib")), packages)


def _link(files: Iterable[PurePath], source: Path, target: Path) -> None:
    """Link modules and packages; of a folder that distributions share, link the parts."""
    for top in {file.parts[0] for file in files}:
        inside = [PurePath(*file.parts[1:]) for file in files if file.parts[0] == top]
        is_shared = PurePath() not in inside and not (source / top / "__init__.py").exists()
        if is_shared:
            (target / top).mkdir(exist_ok=True)
            _link(inside, source / top, target / top)
        elif not (target / top).exists():
            (target / top).symlink_to(source / top)


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
