"""`thence hook`: the change is shown first, others' settings stay, undo is exact."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from thence.cli import thence
from thence.cli.hooking import EVENTS, MARK
from thence.memory import nudges

NINE = {
    *("SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
    *("Stop", "SubagentStop", "PreCompact", "Notification"),
}
SETTINGS = b"""{
    "model": "opus",
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "say done"}]}
        ]
    },
    "env": {"A": "\\u00e9"}
}"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with the three agents."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("THENCE_HOME", raising=False)
    for name in ("claude", "codex", "grok"):
        (tmp_path / f".{name}").mkdir()
        variable = {"claude": "CLAUDE_CONFIG_DIR"}.get(name, f"{name.upper()}_HOME")
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run a command that is meant to go well."""
    return CliRunner().invoke(thence, ["hook", *arguments], catch_exceptions=False)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def ours(path: Path) -> list[str]:
    """The events that call us."""
    hooks = json.loads(path.read_bytes())["hooks"]
    return [event for event, entries in hooks.items() if MARK in json.dumps(entries)]


def test_only_events_that_every_version_knows_are_asked_for(home: Path) -> None:
    """An older Claude Code drops all settings for one event that it does not know."""
    run("install", "claude", "--yes")

    assert set(ours(home / ".claude/settings.json")) <= NINE
    assert {"SessionStart", "Stop", "SessionEnd"} <= set(EVENTS)


def test_install_shows_the_change_and_asks(home: Path) -> None:
    """With nobody there to say yes the diff is shown and nothing is written."""
    result = CliRunner().invoke(thence, ["hook", "install", "claude"])

    assert result.exception is not None
    assert f"+++ {home}/.claude/settings.json" in result.output
    assert '+    "Stop": [' in result.output
    assert {} == tree(home / ".claude")


@pytest.mark.few(4)
@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
@pytest.mark.parametrize("before", [None, "usual", "odd"])
def test_undo_leaves_every_byte_as_it_was(home: Path, agent: str, before: str | None) -> None:
    """Whatever the file was like, or if there was none, it is so again; twice in is once in."""
    root = home / f".{agent}"
    if before:
        odd = before == "odd"
        if agent == "codex":
            text = b"# mine\r\nmodel='o3'\nnotify = [ 'x',\n  \"y\" ] # bell\n[a]\nnotify=1"
            (root / "config.toml").write_bytes(text if odd else b'model = "o3"\n\n[tui]\nx = 1\n')
        else:
            (root / "settings.json").write_bytes(SETTINGS if odd else b'{\n\t"a": {}\n}\n')
    was = tree(root)

    run("install", agent, "--yes")
    once = tree(root)
    run("install", agent, "--yes")

    assert once == tree(root)
    assert once != was

    run("uninstall", agent, "--yes")

    assert was == tree(root)


def test_others_hooks_and_settings_stay(home: Path) -> None:
    """What stood there stands there, and comes first."""
    path = home / ".claude/settings.json"
    path.write_bytes(SETTINGS)
    run("install", "claude", "--yes")
    now = json.loads(path.read_bytes())

    assert "say done" == now["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert ("opus", {"A": "é"}) == (now["model"], now["env"])
    assert SETTINGS == Path(f"{path}.before-thence").read_bytes()


def test_what_was_changed_after_us_is_kept_when_we_go(home: Path) -> None:
    """Only our lines go from a file that somebody changed since."""
    path = home / ".claude/settings.json"
    path.write_bytes(SETTINGS)
    run("install", "claude", "--yes")
    changed = json.loads(path.read_bytes()) | {"theme": "dark"}
    path.write_text(json.dumps(changed))
    run("uninstall", "claude", "--yes")

    assert json.loads(SETTINGS) | {"theme": "dark"} == json.loads(path.read_bytes())
    assert ["settings.json"] == list(tree(home / ".claude"))


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"a":1,"a":2}', b'{"hooks": []}', b"// x\n{}"])
def test_settings_that_are_not_understood_are_refused(home: Path, body: bytes) -> None:
    """Nothing is written, and the error names the file."""
    path = home / ".claude/settings.json"
    path.write_bytes(body)
    result = CliRunner().invoke(thence, ["hook", "install", "claude", "--yes"])

    assert "settings.json" in str(result.exception)
    assert {"settings.json": body} == tree(home / ".claude")


def test_a_link_to_settings_stays_a_link(home: Path) -> None:
    """People keep settings elsewhere and link to them; the mode stays too."""
    real = home / "dotfiles.json"
    real.write_bytes(b"{}\n")
    real.chmod(0o640)
    (home / ".claude/settings.json").symlink_to(real)
    run("install", "claude", "--yes")

    assert (home / ".claude/settings.json").is_symlink()
    assert [*EVENTS] == ours(real)
    assert 0o640 == real.stat().st_mode & 0o777


def test_codex_runs_the_program_that_was_there_before(home: Path) -> None:
    """Its `notify` comes after ours, and the rest of the text is untouched."""
    path = home / ".codex/config.toml"
    path.write_text('# top\nnotify = [\n  "bell", # loud\n  "x",\n]\n[profiles.a]\nmodel = "m"\n')
    run("install", "codex", "--yes")
    told = tomllib.loads(path.read_text())

    assert ["--then", "bell", "x"] == told["notify"][-3:]
    assert path.read_text().startswith("# top\nnotify = [")
    assert path.read_text().endswith(']\n[profiles.a]\nmodel = "m"\n')


def test_codex_may_have_hooks_instead(home: Path) -> None:
    """`--via hooks` writes hooks.json, and uninstalling finds it."""
    run("install", "codex", "--via", "hooks", "--yes")

    assert ["hooks.json"] == list(tree(home / ".codex"))

    run("uninstall", "codex", "--yes")

    assert {} == tree(home / ".codex")


@pytest.mark.parametrize("agent", ["claude", "grok"])
def test_the_installed_command_leaves_a_nudge_that_status_hears(home: Path, agent: str) -> None:
    """The very line in the settings, given to a shell, works."""
    run("install", agent, "--yes")
    path = home / (".claude/settings.json" if agent == "claude" else ".grok/hooks/thence.json")
    line = json.loads(path.read_bytes())["hooks"]["Stop"][0]["hooks"][0]["command"]
    done = subprocess.run(
        ["sh", "-c", line], input=b'{"session_id": "s"}', check=True, capture_output=True
    )
    (told,) = json.loads(run("status", agent, "--json").stdout)
    names = [one.name for one in (home / ".thence/queue").iterdir()]
    nudges.take(home / ".thence").done()

    assert (b"", b"") == (done.stdout, done.stderr)
    assert [f"{agent}-s.json"] == names
    assert [] == list((home / ".thence/queue").iterdir())
    assert told["installed"]
    assert told["last_nudge"] is not None
    assert [told] == json.loads(run("status", agent, "--json").stdout)


def test_status_tells_what_is_wrong(home: Path) -> None:
    """Not there, in part, of another Python, switched off: each is said."""
    path = home / ".claude/settings.json"

    assert "○ claude  not installed" in run("status").output

    run("install", "claude", "--yes")
    whole = path.read_text()

    assert "✓ claude  installed, not heard yet" in run("status").output

    path.write_text(whole.replace(shlex.quote(sys.executable), "/gone/python"))

    assert "▲ claude  installed for another place" in run("status").output

    path.write_text(whole.replace('"SessionEnd"', '"Other"'))

    assert "▲ claude  installed in part" in run("status").output

    path.write_text(json.dumps(json.loads(whole) | {"disableAllHooks": True}))

    assert "▲ claude  installed, but the agent" in run("status").output


def test_installing_again_mends_a_hook_of_another_python(home: Path) -> None:
    """Our old lines go, the new ones come once, and undo still knows the file as it was."""
    path = home / ".claude/settings.json"
    path.write_bytes(SETTINGS)
    run("install", "claude", "--yes")
    path.write_text(path.read_text().replace(sys.executable, "/gone/python"))
    run("install", "claude", "--yes")

    assert "/gone/python" not in path.read_text()
    assert len(EVENTS) == path.read_text().count(MARK)

    run("uninstall", "claude", "--yes")

    assert SETTINGS == path.read_bytes()
