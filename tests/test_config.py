"""Settings: read when asked for, plain when they come out, never silently wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
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


# -- the file -----------------------------------------------------------------------------------


def load_settings(home: Path, text: str, env: Mapping[str, str] | None = None) -> config.Settings:
    """Read settings from this text."""
    (home / config.FILE).write_text(text)
    return config.settings(home, env or {})


def test_a_home_without_a_file_has_every_default(tmp_path: Path) -> None:
    """Nothing has to be written down, and each value says that nobody wrote it."""
    settings = config.settings(tmp_path, {})

    assert {"default"} == {value.origin for value in settings.values.values()}
    assert f"sqlite:{tmp_path}/memory/thence.db" == settings["session_memory.store"]
    assert 4 << 30 == settings["session_memory.retention.raw_soft_cap_bytes"]
    assert 6 << 30 == settings["session_memory.retention.raw_hard_cap_bytes"]
    assert 1 << 30 == settings["session_memory.retention.distilled_cap_bytes"]


def test_the_page_of_settings_is_true(tmp_path: Path) -> None:
    """What the module shows as an example is read as it stands, every key of it."""
    shown = (config.__doc__ or "").partition("[session_memory]")[2].partition("Invariants:")[0]
    lines = (line.removeprefix("    ") for line in f"    [session_memory]{shown}".splitlines())
    settings = load_settings(tmp_path, "\n".join(lines))

    assert {str(tmp_path / config.FILE)} == {value.origin for value in settings.values.values()}
    assert [{"name": "story", "pattern": "story ([0-9]+)", "ref": r"S\1"}] == settings[
        "session_memory.tasks"
    ]
    assert ["burndown", "my.package:Mine"] == settings["session_memory.digesters"]


def test_a_variable_names_the_store_before_the_file_does(tmp_path: Path) -> None:
    """And is told as its origin."""
    settings = load_settings(
        tmp_path, "session_memory.store = 'sqlite:/a'", {config.STORE: "postgresql://b"}
    )

    assert ("postgresql://b", config.STORE) == settings.values["session_memory.store"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1048576", 1 << 20),
        ("'4GiB'", 4 << 30),
        ("'1.5 GB'", 1_500_000_000),
        ("' 10 kib '", 10 << 10),
        ("'7'", 7),
        ("0", 0),
    ],
)
def test_sizes_are_read_as_people_write_them(tmp_path: Path, written: str, expected: int) -> None:
    """Units of a thousand and of 1024, in any case, with or without a blank."""
    settings = load_settings(tmp_path, f"session_memory.retention.raw_soft_cap_bytes = {written}")

    assert expected == settings["session_memory.retention.raw_soft_cap_bytes"]


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("session_memory.retention.raw_soft_cap_bytes = '4 horses'", "raw_soft_cap_", "not a size"),
        ("session_memory.retention.raw_soft_cap_bytes = true", "raw_soft_cap_", "not a size"),
        ("session_memory.retention.raw_max_age_days = -1", "raw_max_age_days", "number of days"),
        ("session_memory.retention.cadence = 'hourly'", "cadence", "no such cadence"),
        ("session_memory.retentoin.cadence = 'daily'", "retentoin", "unknown setting"),
        ("session_memory.store = ''", "store", "not a string"),
        ("session_memory.hub = 'ftp://x'", "hub", "not an address"),
        ("session_memory.objects = 'bucket'", "objects", "not an address of an object store"),
        ("session_memory.exclude = 'x'", "exclude", "not a list of strings"),
        ("session_memory.digesters = [1]", "digesters", "not a list of strings"),
        ("session_memory.domains = ['x']", "domains", "not a table of names"),
        ("session_memory.sources.claude = '~/.claude'", "sources", "not a list of strings"),
        ("session_memory.sources = 1", "sources", "not a table of paths"),
        ("session_memory.redact = 1", "redact", "not a list of rules"),
        ("[[session_memory.redact]]\nname = 'x'", "redact", "not a rule"),
        ("[[session_memory.redact]]\nname='x'\npattern='y'\nz=1", "redact", "a rule has no z"),
        ("session_memory.tasks = 1", "tasks", "not a list of patterns"),
        ("[[session_memory.tasks]]\nname = 'x'", "tasks", "not a pattern"),
        ("[[session_memory.tasks]]\nname='x'\npattern='y'\nz=1", "tasks", "a pattern has no z"),
        ("[[session_memory.tasks]]\nname='x'\npattern=1", "tasks", "pattern of"),
        ("[[session_memory.tasks]]\nname='x'\npattern='('", "tasks", "no pattern or ref: 'x'"),
        ("[[session_memory.tasks]]\nname='x'\npattern='y'\nref='\\1'", "tasks", "no pattern or"),
        ("session_memory = [", "", "not TOML"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bad_setting_is_named_with_file_key_reason_and_hint(
    tmp_path: Path, text: str, key: str, reason: str
) -> None:
    """Nobody has to guess which of all lines is meant, nor what would be right."""
    with pytest.raises(BadConfig) as raised:
        load_settings(tmp_path, text)

    message = str(raised.value)

    assert message.startswith(f"{tmp_path / config.FILE}: ")
    assert key in message
    assert reason in message
    assert raised.value.hint


# -- keys -------------------------------------------------------------------------------------


def test_a_key_is_whole_wherever_drawing_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before its bytes are on the disk leaves none, and the next who asks draws one."""
    path = tmp_path / "home" / "some.key"

    def stopped(_handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", stopped)
        with pytest.raises(KeyboardInterrupt):
            config.key(path, hint="draw anew")

    assert not path.exists()
    assert config.KEY_BYTES == len(config.key(path, hint="draw anew"))


def test_all_who_draw_a_key_at_once_get_the_same(tmp_path: Path) -> None:
    """Of two processes that begin together one wins, and the other takes its key."""
    path = tmp_path / "some.key"
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: config.key(path, hint="draw anew"), range(8)))

    assert {path.read_bytes()} == set(drawn)
    assert [path] == list(tmp_path.iterdir())


def test_a_disk_without_links_has_a_key_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stick that somebody keeps a home on knows no hard links."""

    def refused(*_names: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)

    assert config.key(tmp_path / "k", hint="") == config.key(tmp_path / "k", hint="")


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    """The system does not when it refuses bytes; the old file stays."""
    path = tmp_path / "settings"
    path.write_text("old")

    def replace() -> None:
        with config.replacing(path) as file, Path("/dev/full").open("wb", buffering=0) as full:
            file.write(b"new")
            full.write(b"new")

    with pytest.raises(OSError, match="No space left") as caught:
        replace()

    assert str(path) == caught.value.filename
    assert "old" == path.read_text()
    assert [path] == [*tmp_path.iterdir()]
