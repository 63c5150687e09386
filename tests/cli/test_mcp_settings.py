"""Our server in agents' settings: in, found, out, and nobody else's bytes touched or shown."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.agents.profiles import ServerFile, agents
from thence.cli.file_changes import EditRefused, carry_out
from thence.cli.mcp_settings import ServerPlace, install, server_entry, state, uninstall

ENTRY = {"command": "/opt/thence", "args": ["mcp"]}
FAR = {**ENTRY, "env": {"THENCE_HOME": '/far "away"\\x'}}
SECRET = "sk-nobody-may-see-this"

CLAUDE = [
    "",
    "{}",
    "{}\n",
    '{\n  "numStartups": 3\n}',
    '{\n  "mcpServers": {}\n}\n',
    '{"a": {"mcpServers": {"x": 1}}, "mcpServers": {"thence-2": {"command": "y"}}}',
    """{
  "key": "SECRET",
  "mcpServers": {
    "db": {
      "command": "db"
    }
  },
  "text": "\\"mcpServers\\": {\\"thence\\": {} }"
}
""",
    '{"mcpServers":{"db":{"command":"db","env":{"KEY":"SECRET"}}},"z":1.50}',
]
TOML = [
    "",
    'model = "x"',
    'model = "x"\n',
    '# SECRET\n[mcp_servers.db]\ncommand = "db"\n\n[mcp_servers.db.env]\nKEY = "SECRET"\n',
    'text = """\n[mcp_servers.thence]\n"""\n\n[tui]\nx = 1\n\n\n',
    '[mcp_servers.thence-2]\ncommand = "y"\r\n',
    '\ufeffmodel = "x"\n',
]
FILES = [("claude", body) for body in CLAUDE] + [
    (agent, body) for body in TOML for agent in ("codex", "grok")
]


def put(folder: Path, agent: str, body: str | None) -> ServerPlace:
    """Have an agent with these settings."""
    file = agents()[agent].profile.servers
    assert file is not None
    path = folder / file.path
    if body is not None:
        path.write_bytes(body.replace("SECRET", SECRET).encode())
    return ServerPlace(agent, path, file)


def read(place: ServerPlace) -> dict[str, Any]:
    """Read settings as the agent does."""
    body = place.path.read_text().removeprefix("\ufeff")
    return json.loads(body) if place.agent == "claude" else tomllib.loads(body)


def without_timeout(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without what only says how long to wait for it."""
    return {name: value for name, value in entry.items() if name != "startup_timeout_sec"}


@pytest.mark.few(4)
@pytest.mark.parametrize("entry", [ENTRY, FAR])
@pytest.mark.parametrize(("agent", "body"), FILES)
def test_in_and_out_again_leaves_every_byte(
    agent: str, body: str, entry: dict[str, Any], tmp_path: Path
) -> None:
    """The agent reads our entry, all else as before; taken out, the file says what it said."""
    place = put(tmp_path, agent, body)
    before = place.path.read_bytes()
    was = read(place) if body else {}
    change = install(place, entry)
    carry_out(change)
    now = read(place)

    assert entry == without_timeout(now[place.key]["thence"])
    others = {k: v for k, v in now[place.key].items() if k != "thence"}
    assert was.get(place.key, {}) == others
    assert {k: v for k, v in was.items() if k != place.key} == {
        k: v for k, v in now.items() if k != place.key
    }
    assert "installed" == state(place, entry)
    assert SECRET not in "\n".join(change.diff())
    out = uninstall(place)
    assert SECRET not in "\n".join(out.diff())
    carry_out(out)
    after = place.path.read_bytes()
    assert "none" == state(place, entry)
    if was.get(place.key) != {}:
        assert before == after


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_where_nothing_was_a_private_file_is_made(agent: str, tmp_path: Path) -> None:
    """Mode 0600; one that was there keeps its own."""
    place = put(tmp_path, agent, None)
    carry_out(install(place, ENTRY))

    assert 0o600 == place.path.stat().st_mode & 0o777
    place.path.chmod(0o644)
    carry_out(install(place, FAR))
    assert 0o644 == place.path.stat().st_mode & 0o777
    assert [place.path.name] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_a_file_that_was_not_there_is_gone_again(agent: str, tmp_path: Path) -> None:
    """Unless somebody wrote something else into it."""
    place = put(tmp_path, agent, None)
    carry_out(install(place, FAR))
    carry_out(uninstall(place))

    assert [] == list(tmp_path.iterdir())
    carry_out(install(place, ENTRY))
    if agent == "claude":
        place.path.write_text(json.dumps(read(place) | {"numStartups": 1}))
    else:
        place.path.write_text(place.path.read_text() + "\n[tui]\nx = 1\n")
    carry_out(uninstall(place))
    assert ({"numStartups": 1} if agent == "claude" else {"tui": {"x": 1}}) == read(place)


@pytest.mark.parametrize(("agent", "body"), [("claude", CLAUDE[6]), ("codex", TOML[3])])
def test_an_entry_of_another_place_is_replaced(agent: str, body: str, tmp_path: Path) -> None:
    """Installing twice changes nothing; installing for another home leaves one entry."""
    place = put(tmp_path, agent, body)
    carry_out(install(place, FAR))

    assert not install(place, FAR).changes
    assert "elsewhere" == state(place, ENTRY)
    carry_out(install(place, ENTRY))
    assert "installed" == state(place, ENTRY)
    assert ENTRY == without_timeout(read(place)[place.key]["thence"])


@pytest.mark.parametrize(
    ("agent", "body"),
    [
        ("claude", "[1]"),
        ("claude", "{nothing"),
        ("claude", '{"mcpServers": 3}'),
        ("claude", '{"a": 1, "a": 2}'),
        ("codex", "a = ["),
        ("codex", "mcp_servers = 3"),
        ("codex", 'mcp_servers = { db = { command = "x" } }'),
        ("grok", b"\xff\xfe".decode("latin-1")),
    ],
)
def test_settings_that_say_something_else_are_refused(
    agent: str, body: str, tmp_path: Path
) -> None:
    """Nothing is mended, nothing is written."""
    place = put(tmp_path, agent, body)
    place.path.write_bytes(body.encode("latin-1"))
    before = place.path.read_bytes()

    with pytest.raises(EditRefused):
        install(place, ENTRY)
    assert before == place.path.read_bytes()


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The client may have written it since it was looked at."""
    place = put(tmp_path, "claude", "{}")
    change = install(place, ENTRY)
    place.path.write_text('{"numStartups": 4}')

    with pytest.raises(EditRefused, match="another program"):
        carry_out(change)
    assert '{"numStartups": 4}' == place.path.read_text()


def test_a_home_that_is_not_the_usual_one_is_named(tmp_path: Path) -> None:
    """So that the server an agent starts looks where we do."""
    usual = server_entry(tmp_path, tmp_path)

    assert "mcp" == usual["args"][-1]
    assert str(tmp_path / "bin" / "thence") == usual["command"]
    assert "env" not in usual
    assert {"THENCE_HOME": str(tmp_path)} == server_entry(tmp_path, tmp_path / "other")["env"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("thence"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["mcpServers", "thence", "a", 'q"', "b"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["mcpServers", "thence", "a", "b"]), VALUES, max_size=4),
    st.sampled_from([None, 2, "\t"]),
)
def test_any_settings_hold_our_entry_or_are_refused(data: dict[str, Any], indent: Any) -> None:
    """Whatever else stands there, under whatever names: in, and out, and the same as before."""
    import tempfile

    servers = data.get("mcpServers")
    if isinstance(servers, dict):
        servers.pop("thence", None)
    with tempfile.TemporaryDirectory() as folder:
        place = ServerPlace("claude", Path(folder) / "c.json", ServerFile("c.json"))
        place.path.write_text(json.dumps(data, indent=indent))
        try:
            carry_out(install(place, ENTRY))
        except EditRefused:
            assert "mcpServers" in data
            assert not isinstance(servers, dict)
            return
        wanted = {**data, "mcpServers": {**(servers or {}), "thence": ENTRY}}
        assert wanted == read(place)
        carry_out(uninstall(place))
        bare = {k: v for k, v in data.items() if k != "mcpServers" or v}
        assert {k: v for k, v in read(place).items() if k != "mcpServers" or v} == bare
