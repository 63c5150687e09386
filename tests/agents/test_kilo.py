"""Kilo: a fork of OpenCode whose database has the same tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents import test_opencode
from tests.agents.databases import OPENCODE, run
from tests.agents.test_opencode import steps
from tests.pace import SUITE_BYTES, SUITE_ROUNDS
from thence.agents.kilo.reader import Kilo
from thence.agents.opencode.reader import OpenCode
from thence.testing.readers import CHECKS, AdapterSuite

PARENT = test_opencode.PARENT


def write(root: Path) -> None:
    """Write the made-up sessions of OpenCode under Kilo's name."""
    run(root / "kilo.db", OPENCODE, steps())


def test_each_of_the_two_finds_its_own_database(tmp_path: Path) -> None:
    """Both may lie in one folder."""
    write(tmp_path)
    run(tmp_path / "opencode-dev.db", OPENCODE, steps()[:2])

    assert {"kilo"} == {source.adapter for source in Kilo().find(tmp_path)}
    assert [] == OpenCode().sources_at(tmp_path / "kilo.db")


@pytest.mark.few(6)
@pytest.mark.sampled
@pytest.mark.parametrize("check", CHECKS)
def test_the_adapter_suite_passes(check: str) -> None:
    """What holds for OpenCode holds under the other name."""
    assert [] == AdapterSuite(Kilo(), write, rounds=SUITE_ROUNDS, bytewise=SUITE_BYTES).complaints(
        check
    )
