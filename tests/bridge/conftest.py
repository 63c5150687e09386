"""What the tests of the bridges share: the SDKs, if `make conformance` has brought them."""

from __future__ import annotations

import asyncio
import importlib
import sys
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from thence.journal import Journal

SDKS = Path(__file__).resolve().parent.parent.parent / ".venv" / "conformance"

if SDKS.is_dir() and str(SDKS) not in sys.path:
    sys.path.append(str(SDKS))  # last: what the tests themselves stand on stays as it is


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal in a home of its own."""
    return Journal(tmp_path / "home")


@pytest.fixture
def sdk() -> Callable[[str], ModuleType]:
    """Import a module of an SDK, or skip the test with the reason."""

    def import_sdk(name: str) -> ModuleType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an SDK says of its own imports is its business
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError:
                pytest.skip(f"{name} is not installed: make conformance brings it")

    return import_sdk


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end."""
    return asyncio.run
