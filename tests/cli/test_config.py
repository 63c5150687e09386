"""`thence config`: values, their origins, and projects that are not captured."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from thence.cli.sample_machine import Homes
from thence.cli.settings_file import with_exclude
from thence.errors import BadConfig


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of one's own."""
    monkeypatch.setenv("THENCE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("THENCE_STORE", "IDLE_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_every_value_has_an_origin(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default, the file or the variable."""
    (home / "config.toml").write_text("[session_memory.retention]\nraw_max_age_days = 9\n")
    monkeypatch.setenv("IDLE_TIMEOUT", "7")
    answer = json.loads(run("config", "--json").stdout)

    assert {"value": str(home), "origin": "THENCE_HOME"} == answer["home"]
    days = answer["session_memory.retention.raw_max_age_days"]

    assert {"value": 9, "origin": str(home / "config.toml")} == days
    assert {"value": 7.0, "origin": "IDLE_TIMEOUT"} == answer["idle_timeout"]
    assert "default" == answer["session_memory.store"]["origin"]
    assert "4 GiB" in run("config").stdout


@pytest.mark.parametrize("text", ["4 GiB", "500 MB", "1.5 GiB", "50 MiB", "123 bytes"])
def test_a_size_is_shown_as_it_was_written(home: Path, run: Run, text: str) -> None:
    """In the units of a thousand or of 1,024 that were meant."""
    written = text.removesuffix(" bytes")
    (home / "config.toml").write_text(f"journal.max_bytes = '{written}'\n")

    assert f" {text} " in run("config", "max_bytes").stdout


def test_one_setting_by_its_last_name(home: Path, run: Run) -> None:
    """The end of a name is enough; a wrong one is answered with those that it may mean."""
    answer = json.loads(run("config", "cadence", "--json").stdout)

    assert {"session_memory.retention.cadence": {"value": "daily", "origin": "default"}} == answer
    with pytest.raises(BadConfig, match="unknown setting 'nope'"):
        run("config", "nope")
    with pytest.raises(BadConfig) as error:
        run("config", "cadense")
    assert "did you mean session_memory.retention.cadence?" == error.value.hint


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# mine\n[session_memory.domains]\nx = 'y'\n",
        "[session_memory]\nhub = 'https://h.example'\n# end",
        "[session_memory]\nexclude=[\n'a', # 1\n\"b\"]\n[session_memory.domains]\nz = 'end of it'",
        "session_memory.exclude = ['x']\n",
        "session_memory = { hub = 'https://h.example' } # end\n",
        "[session_memory] # end\n# mine\n[session_memory.retention]",
    ],
)
def test_with_exclude_changes_that_and_nothing_else(before: str) -> None:
    """The settings say the same besides, and the text of the rest is there still."""
    after = with_exclude(Path("config.toml"), before.encode(), ["~/p"]).decode()
    wanted = tomllib.loads(before)
    wanted.setdefault("session_memory", {})["exclude"] = ["~/p"]

    assert wanted == tomllib.loads(after)
    for comment in ("# mine", "# end", "end of it"):
        assert (comment in before) == (comment in after)


@pytest.mark.slow
def test_an_excluded_project_is_not_captured(machine: Homes, run: Run) -> None:
    """Sweeps pass it over; including it again brings it back."""
    project = str(machine.work / "lumen")
    output = run("config", "--exclude", project).stdout

    assert "1 session already stored" in output
    assert [project] == json.loads(run("config", "exclude", "--json").stdout)[
        "session_memory.exclude"
    ]["value"]
    path = next(path for path in machine.claude.rglob("*.jsonl") if "lumen" in str(path.parent))
    path.write_bytes(path.read_bytes() + b"\n")

    assert 1 == json.loads(run("sweep", "--json").stdout)["excluded"]

    run("config", "--include", project)

    assert 0 == json.loads(run("sweep", "--json").stdout)["excluded"]
    with pytest.raises(BadConfig, match="is not excluded"):
        run("config", "--include", project)
