"""Settings: read when asked for, plain when they come out, never silently wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from thence import config
from thence.errors import BadConfig

Reader = Callable[[Mapping[str, str]], Any]


def test_home_is_in_the_users_home_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable everything is kept in one place."""
    monkeypatch.setenv("HOME", "/home/dev")

    assert Path("/home/dev/.thence") == config.home({})
    assert Path("/home/dev/.thence") == config.home({"THENCE_HOME": ""})
    assert Path("/srv/thence") == config.home({"THENCE_HOME": "/srv/thence"})
    assert Path("/home/dev/here") == config.home({"THENCE_HOME": "~/here"})


def test_a_relative_home_is_made_absolute_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later change of the working directory does not move the sessions."""
    monkeypatch.chdir(tmp_path)

    assert tmp_path / "kept" == config.home({"THENCE_HOME": "kept"})


@pytest.mark.parametrize("name", [config.OFF, config.OFF_ELSEWHERE])
@pytest.mark.parametrize("value", ["1", "true", "TRUE", "yes", " on "])
def test_either_switch_turns_persistence_off(name: str, value: str) -> None:
    """One yes is enough."""
    assert not config.persistence({name: value})


@pytest.mark.parametrize("value", ["", "0", "false", "No", "off"])
def test_a_no_leaves_persistence_on(value: str) -> None:
    """The switch is off when it says so."""
    assert config.persistence({config.OFF: value, config.OFF_ELSEWHERE: value})


def test_other_peoples_variable_is_read_as_they_read_it() -> None:
    """An odd value of a variable that is not ours stops nobody."""
    assert config.persistence({config.OFF_ELSEWHERE: "maybe"})


def test_numbers_have_their_defaults_and_their_values() -> None:
    """Seconds and days come out as numbers; 0 seconds means for ever."""
    assert (None, 300.0, 300.0) == (
        config.history_retain_days({}),
        config.idle_timeout({}),
        config.approval_timeout({}),
    )
    assert (7.5, 0.0, 12.0) == (
        config.history_retain_days({"HISTORY_RETAIN_DAYS": "7.5"}),
        config.idle_timeout({"IDLE_TIMEOUT": "0"}),
        config.approval_timeout({"APPROVAL_TIMEOUT": "12"}),
    )


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        (config.persistence, "THENCE_NO_PERSISTENCE", "perhaps"),
        (config.history_retain_days, "HISTORY_RETAIN_DAYS", "0"),
        (config.history_retain_days, "HISTORY_RETAIN_DAYS", "a month"),
        (config.history_retain_days, "HISTORY_RETAIN_DAYS", "-1"),
        (config.idle_timeout, "IDLE_TIMEOUT", "5 min"),
        (config.idle_timeout, "IDLE_TIMEOUT", "nan"),
        (config.approval_timeout, "APPROVAL_TIMEOUT", "1e400"),
        (config.home, "THENCE_HOME", "~nobody-of-this-name/x"),
    ],
)
def test_a_bad_value_is_named_with_its_reason(read: Reader, name: str, value: str) -> None:
    """Who made the mistake reads which variable it is and what to write instead."""
    with pytest.raises(BadConfig, match=f"^{name}: .") as caught:
        read({name: value})

    assert caught.value.hint
    assert 2 == caught.value.exit_code


def test_a_bad_value_hurts_only_who_needs_it() -> None:
    """Nothing is read before it is asked for."""
    assert config.persistence({"IDLE_TIMEOUT": "soon", "HISTORY_RETAIN_DAYS": "long"})


def test_the_environment_itself_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping the process's own variables count."""
    monkeypatch.setenv("IDLE_TIMEOUT", "17")

    assert 17.0 == config.idle_timeout()
