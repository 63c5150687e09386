"""Our hook in the real clients: it is heard, and no client can tell that it is there."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cell
from tests.e2e.agents import AGENTS, ANSWER, CLIENTS, ENV, PROMPT, Agent, plain, texts_of, thence

pytestmark = pytest.mark.e2e

Session = tuple[Path, dict[str, Any]]
HOOK_RAN = re.compile(r"^hook: \w+(?: Completed)?\n", re.MULTILINE)
HARMS = ("none", "removed", "gone", "closed", "full")


@functools.cache
def no_cell() -> str:
    """Say why nothing can run here."""
    return cell.missing()


@pytest.fixture(params=list(AGENTS))
def agent(request: pytest.FixtureRequest) -> Agent:
    """A client, or the reason why there is none."""
    chosen = AGENTS[request.param]
    if why := no_cell():
        pytest.skip(why)
    if not (CLIENTS / "bin" / chosen.name).exists():
        reason = CLIENTS / f"{chosen.name}.reason"
        pytest.skip(reason.read_text() if reason.exists() else "scripts/clients was not run")
    return chosen


def order(agent: Agent, home: Path, *commands: list[str], harm: str = "none") -> dict[str, Any]:
    """Run commands where the client is set up, and no sweep comes that is not asked for."""
    agent.settle(home)
    (home / ".thence" / "config.toml").write_text('[session_memory.retention]\ncadence = "daily"\n')
    return cell.run(
        {
            "home": str(home),
            "commands": commands,
            "env": ENV | agent.env,
            "prompt": PROMPT,
            "answers": [agent.tool, ANSWER],
            "harm": harm,
        }
    )


def words(ran: dict[str, Any]) -> tuple[int, str, str]:
    """How a client ended and what it printed, but that Codex says on stderr which hooks it ran."""
    errors = "".join(HOOK_RAN.split(ran["err"]))
    return ran["code"], plain(ran["out"]), plain(errors)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Agent], Session]:
    """Run a client without any hook of ours, once for all tests."""

    @functools.cache
    def ran(name: str) -> Session:
        home = tmp_path_factory.mktemp("without") / "home"
        return home, order(AGENTS[name], home, AGENTS[name].ask())

    return lambda agent: ran(
        next(name for name, known in AGENTS.items() if known.name == agent.name)
    )


@pytest.mark.parametrize("harm", HARMS)
def test_no_client_is_disturbed_and_its_session_is_kept(
    agent: Agent, harm: str, undisturbed: Callable[[Agent], Session], tmp_path: Path
) -> None:
    """Whatever becomes of our queue meanwhile: same exit code, output, log, words to the model.

    The session is in the store after the next sweep, which is run with the harm still done.
    """
    without, plainly = undisturbed(agent)
    with_it = tmp_path / "with"
    hooked = order(
        agent,
        with_it,
        agent.install(),
        agent.ask(),
        thence("sweep", "--json"),
        thence("ls", "--json"),
        harm=harm,
    )
    installed, asked, swept, listed = hooked["ran"]

    assert 0 == installed["code"], installed
    assert ANSWER in plainly["ran"][0]["out"]
    assert words(plainly["ran"][0]) == words(asked)
    assert texts_of(plainly["asked"]) == texts_of(hooked["asked"])
    assert agent.log(without)
    assert agent.log(without) == agent.log(with_it)
    assert 0 == swept["code"], swept
    assert [(agent.name, "done")] == [
        (row["flavor"], row["turn"]) for row in json.loads(listed["out"])
    ]


def test_a_session_that_nobody_looks_for_is_found_by_its_nudge(
    agent: Agent, tmp_path: Path
) -> None:
    """The client lives where no sweep looks; what its hook left says where, and is used up."""
    if agent.way == "notify":
        pytest.skip("notify does not say where the session lies")
    place = f"{agent.elsewhere}={cell.HOME}/far/away"
    home = tmp_path / "home"
    (home / "far/away").mkdir(parents=True)
    if agent.settings:
        (home / "far/away/config.toml").write_text(agent.settings)
    queue = ["find", f"{cell.HOME}/.thence/queue", "-type", "f"]
    done = order(
        agent,
        home,
        [place, *agent.install()],
        [place, *agent.ask()],
        queue,
        thence("sweep", "--json"),
        thence("ls", "--json"),
        queue,
        [place, *thence("hook", "status", agent.name, "--json")],
    )
    _, asked, nudges, _, listed, left, status = done["ran"]
    names = [Path(line).stem for line in nudges["out"].split()]

    assert 0 == asked["code"], asked
    assert [f"{row['flavor']}-{row['native_session_id']}" for row in json.loads(listed["out"])] == (
        names
    )
    assert 1 == len(names)
    assert "" == left["out"]
    assert json.loads(status["out"])[0]["last_nudge"]


def test_undo_leaves_the_clients_settings_as_they_were(agent: Agent, tmp_path: Path) -> None:
    """After a session with our hook the client's settings are again what they were before it."""
    home = tmp_path / "home"
    where = (home / agent.folder).rglob
    order(
        agent,
        home,
        agent.ask(),
        agent.install(),
        agent.ask(),
        thence("uninstall", "--yes", "--json"),
    )
    names = [path for path in where("*") if path.suffix in (".toml", ".json")]

    assert [] == [path for path in names if "thence" in path.read_text(errors="replace")]
    assert [] == list(where("*.before-thence"))
    if agent.settings:  # Grok adds lines of its own at the end
        assert (home / agent.folder / "config.toml").read_text().startswith(agent.settings)


def test_no_client_says_a_word_when_our_python_is_gone(
    agent: Agent, undisturbed: Callable[[Agent], Session], tmp_path: Path
) -> None:
    """A virtual environment that was deleted: same exit code and same output as without us."""
    home = tmp_path / "home"
    change = "find ~/{} -name '*.json' -o -name config.toml | xargs sed -i 's,{},/gone/python,g'"
    done = order(
        agent,
        home,
        agent.install(),
        ["sh", "-c", change.format(agent.folder, sys.executable)],
        agent.ask(),
    )
    _, plainly = undisturbed(agent)

    assert words(plainly["ran"][0]) == words(done["ran"][-1])
