"""No process that we start loads code from the folder it is started in.

`STARTS` lists every place of the package that starts a process or writes down the command line of
one, with the trials that run it. Each trial runs the real thing in a project whose folder holds a
module of every name that Python or a package of ours could ask for; each of these leaves a mark
when it is loaded. A new place that starts a process fails a test until it is listed here.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.test_guard import READER, install
from tests.agents.transcripts import Script, write
from tests.pace import PROVING, by_pace
from tests.processes import run_thence
from tests.sshd import SshServer, missing_sshd
from thence import Journal
from thence.testing import JournalSubject

PACKAGE = Path(__file__).resolve().parent.parent.parent / "src" / "thence"
SCRIPT = Path(sys.executable).with_name("thence")
SESSION = "5e550000-0000-4000-8000-000000000001"
PATIENCE_S = 120
"""How long anything may take; only what hangs takes so long."""
BIG_SESSION_BYTES = 9 << 20
"""A sweep with so much to read starts other processes."""

PLANTED = """import posix
place = __file__[: __file__.rindex("/project/")] + "/loaded"
mark = posix.open(place, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND, 0o600)
posix.write(mark, b"{name}\\n")
raise ImportError("planted {name}")
"""
"""A module that leaves a mark beside the project, however early Python loads it."""


@pytest.fixture(scope="module")
def hostile_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of every name: Python's own, those of every package, and ours."""
    folder = tmp_path_factory.mktemp("hostile")
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()}
    for name in names | {"thence", "sitecustomize", "usercustomize"}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(PLANTED.format(name=name))
    for name in ("thence", "json"):  # a folder comes before a file of the same name
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(PLANTED.format(name=name))
    return folder


class Machine:
    """A user with agents, and a project whose folder holds a module of every name."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.user = folder / "user"
        self.home = self.user / ".thence"
        self.bin = folder / "bin"
        self.project = folder / "project"
        self._mark = folder / "loaded"
        for path in (self.user, self.bin):
            path.mkdir(parents=True)
        shutil.copytree(project, self.project, copy_function=os.link)
        for name in ("claude", "codex", "grok"):
            (self.user / f".{name}").mkdir()
        self.env = {
            "HOME": str(self.user),
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }

    @property
    def loaded(self) -> list[str]:
        """Names of the planted modules that some process loaded."""
        return self._mark.read_text().split() if self._mark.exists() else []

    def run(self, command: list[str], payload: str = "", **env: str) -> str:
        """Run a command in the project, which must go well, and return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.env | env,
            input=payload,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

        assert 0 == done.returncode, (command, done.stdout, done.stderr, self.loaded)
        return done.stdout

    def thence(self, *arguments: str, **env: str) -> str:
        """Run a command of ours as a user does."""
        return self.run([str(SCRIPT), *arguments], **env)

    def sessions(self) -> list[str]:
        """Agents of the sessions that are stored."""
        rows = json.loads(run_thence("ls", "--json", env=self.env).stdout)
        return [row["flavor"] for row in rows]

    def import_sessions(self) -> None:
        """Import what was written, not from the project."""
        assert 0 == run_thence("sweep", env=self.env).returncode

    def write_session(self, *, large: bool = False) -> None:
        """Write a session of Claude Code in the project."""
        script = Script(SESSION, cwd=str(self.project))
        script.user("What does calc.py do?" + " Look." * (BIG_SESSION_BYTES // 6 * large))
        script.reply([{"type": "text", "text": "It subtracts."}], stop="end_turn")
        write(self.user / ".claude", script)

    def program(self, name: str, body: str) -> None:
        """Put a shell script on the user's PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, hostile_project: Path) -> Machine:
    """A machine for one trial."""
    return Machine(tmp_path, hostile_project)


def wait(ready: Callable[[], object]) -> None:
    """Wait until something has come true."""
    stop = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < stop, "it never happened"
        time.sleep(0.1)


# -- trials ---------------------------------------------------------------------------------


def hook(machine: Machine, **env: str) -> None:
    """A hook that an agent runs in the project, and the sweep that it starts."""
    machine.write_session()
    machine.thence("hook", "install", "claude", "--yes")
    settings = json.loads((machine.user / ".claude/settings.json").read_bytes())
    line = settings["hooks"]["Stop"][0]["hooks"][0]["command"]
    machine.run(["sh", "-c", line], json.dumps({"session_id": SESSION}), **env)
    wait(lambda: not list((machine.home / "queue").iterdir()) or machine.loaded)

    assert ["claude"] == machine.sessions()


def hook_of_a_hostile_environment(machine: Machine) -> None:
    """The same, where the project's own settings have set variables for the agent."""
    hook(machine, PYTHONPATH=str(machine.project), PYTHONSTARTUP="json.py", PYTHONHOME="")


def notify(machine: Machine) -> None:
    """The program that Codex ran before ours, run by ours."""
    config = machine.user / ".codex" / "config.toml"
    config.write_text('notify = ["touch"]\n')
    machine.thence("hook", "install", "codex", "--yes")
    command = tomllib.loads(config.read_text())["notify"]
    machine.run([*command, str(machine.user / "notified")])

    assert (machine.user / "notified").exists()


def resume_own(machine: Machine) -> None:
    """A session of our own, gone on with in its folder."""
    with Journal(machine.home).create(cwd=str(machine.project)) as session:
        session.record("user", {"role": "user", "content": "Hello"})
        name = session.id
    machine.import_sessions()
    printed = machine.run([str(SCRIPT), "resume", name, "--exec"], "print('on:', session.id)\n")

    assert "on: " in printed


def resume_agent(machine: Machine) -> None:
    """A session of an agent: its program is the user's, whatever the project's folder holds."""
    machine.write_session()
    machine.import_sessions()
    machine.program("claude", 'echo "ours: $*"')
    planted = machine.project / "claude"
    planted.write_text(f"#!/bin/sh\necho claude >> {machine.project.parent / 'loaded'}\n")
    planted.chmod(0o755)
    done = subprocess.run(
        [SCRIPT, "resume", SESSION, "--exec"],
        cwd=machine.user,
        env=machine.env | {"PATH": f".:{machine.env['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert f"ours: --resume {SESSION}\n" == done.stdout, done.stderr


def mcp_server(machine: Machine) -> None:
    """The server as each agent is told to start it, in a Python that has no script beside it."""
    venv = machine.user / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "lib").symlink_to(Path(sys.prefix) / "lib")
    (venv / "pyvenv.cfg").write_bytes((Path(sys.prefix) / "pyvenv.cfg").read_bytes())
    agents = by_pace(("codex",), ("codex",), ("claude", "codex"))
    for agent in agents:
        machine.run(
            [str(venv / "bin" / "python"), "-P", "-m", "thence", "mcp", "install", agent, "-y"]
        )
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-03-26",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    codex = tomllib.loads((machine.user / ".codex/config.toml").read_text())
    entries = [codex["mcp_servers"]["thence"]]
    if "claude" in agents:
        claude = json.loads((machine.user / ".claude.json").read_bytes())
        entries.append(claude["mcpServers"]["thence"])
    for entry in entries:
        command = [entry["command"], *entry["args"]]
        answer = machine.run(command, json.dumps(asked) + "\n", PYTHONPATH=str(machine.project))

        assert "thence" == json.loads(answer)["result"]["serverInfo"]["name"]


def cron(machine: Machine) -> None:
    """The line of cron."""
    machine.write_session()
    table = machine.user / "crontab"
    machine.program("crontab", f'[ "$1" = -l ] && exec cat {table}; exec cat > {table}')
    machine.thence("schedule", "install", "--by", "cron", "--yes")
    _, line = table.read_text().split(" ", 1)
    machine.run(["sh", "-c", line])

    assert ["claude"] == machine.sessions()


def systemd(machine: Machine) -> None:
    """The program of the timer."""
    machine.write_session()
    machine.program("systemctl", "exit 0")
    machine.thence("schedule", "install", "--by", "systemd", "--yes")
    (unit,) = (machine.user / ".config/systemd/user").glob("thence-sweep*.service")
    (line,) = (entry for entry in unit.read_text().splitlines() if entry.startswith("ExecStart="))
    machine.run(shlex.split(line.removeprefix("ExecStart=")))

    assert ["claude"] == machine.sessions()


def demo(machine: Machine) -> None:
    """The command that lives on the made-up machine."""
    answer = json.loads(machine.thence("demo", "--dir", str(machine.user / "demo"), "--json"))
    listed = json.loads(machine.run([answer["command"], "ls", "--json"]))

    assert {"claude", "codex", "grok", "thence"} <= {row["flavor"] for row in listed}


def sweep(machine: Machine) -> None:
    """A sweep with so much to read that it starts other processes."""
    machine.write_session(large=True)
    machine.thence("sweep")

    assert ["claude"] == machine.sessions()


def run_agent(machine: Machine) -> None:
    """A command run by ours, and the sweep after it."""
    machine.write_session()
    printed = machine.thence("exec", "--", "sh", "-c", "echo done")

    assert ("done\n", ["claude"]) == (printed, machine.sessions())


def hand_over(machine: Machine) -> None:
    """A client that takes a session in by a command of its own, run in the project."""
    machine.write_session()
    machine.import_sessions()
    taken = machine.user / "taken"
    machine.program("opencode", f'echo "$1" > {taken}')
    planted = machine.project / "opencode"
    planted.write_text(f"#!/bin/sh\necho opencode >> {machine.project.parent / 'loaded'}\n")
    planted.chmod(0o755)
    subprocess.run(
        [SCRIPT, "handoff", SESSION, "--to", "opencode", "--yes"],
        cwd=machine.user,
        env=machine.env | {"PATH": f".:{machine.env['PATH']}"},
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )

    assert "import\n" == taken.read_text()


def record_editor_agent(machine: Machine) -> None:
    """An agent that an editor starts through ours."""
    machine.thence("acp", "--", "cat")


def self_check(machine: Machine) -> None:
    """Our own commands, tried on made-up sessions."""
    machine.thence("self-check")


def pager(machine: Machine) -> None:
    """A long answer on a terminal."""
    ours, theirs = pty.openpty()
    page = machine.user / "page"
    env: dict[str, str] = machine.env | {"THENCE_PAGER": f"cat > {page}", "LINES": "5"}
    subprocess.run(
        [SCRIPT, "config"],
        cwd=machine.project,
        env=env,
        stdout=theirs,
        check=True,
        timeout=PATIENCE_S,
    )
    os.close(ours)
    os.close(theirs)

    assert "session_memory.store" in page.read_text()


def browser(machine: Machine) -> None:
    """The viewer with so much to read that its first sweep is a process, and the browser."""
    machine.write_session(large=True)
    seen = machine.user / "seen"
    machine.program("browser", f'echo "$1" > {seen}')
    with subprocess.Popen(
        [SCRIPT, "serve", "--port", "0"],
        cwd=machine.project,
        env=machine.env | {"BROWSER": "browser"},
        stdout=subprocess.DEVNULL,
    ) as running:
        try:
            wait(lambda: (seen.exists() and seen.read_text()) or running.poll() is not None)
            wait(machine.sessions)
        finally:
            running.terminate()

    assert seen.exists()


def brief(machine: Machine) -> None:
    """The command that an agent runs in the project when a session begins."""
    machine.write_session()
    machine.import_sessions()
    machine.thence("hook", "install", "claude", "--brief", "--yes")
    settings = json.loads((machine.user / ".claude/settings.json").read_bytes())
    (line,) = (
        hook["command"]
        for entry in settings["hooks"]["SessionStart"]
        for hook in entry["hooks"]
        if "brief" in hook["command"].partition("--hook")[0].rpartition("/")[2]
    )
    payload = json.dumps({"cwd": str(machine.project), "session_id": "new"})
    printed = machine.run(["sh", "-c", line], payload, PYTHONPATH=str(machine.project))

    assert "It ended with: It subtracts." in printed


def background(machine: Machine) -> None:
    """The viewer in the background."""
    machine.thence("serve", "--background", "--port", "0", "--no-open")

    assert "stopped\n" == machine.thence("serve", "--stop")


def upgrade(machine: Machine) -> None:
    """The viewer in the background, which starts again by the launcher after an upgrade."""
    machine.thence("serve", "--background", "--port", "0", "--no-open")
    home = machine.user / ".thence"
    with (home / "bin/thence").open("a") as launcher:
        launcher.write("# upgraded\n")
    end = time.monotonic() + PATIENCE_S
    while "upgraded" not in (home / "serve.log").read_text() and time.monotonic() < end:
        time.sleep(0.1)
    while not (home / "serve.lock").read_bytes() and time.monotonic() < end:
        time.sleep(0.1)

    assert "stopped\n" == machine.thence("serve", "--stop")


def crash_suite(machine: Machine) -> None:
    """The writer that the crash suite kills."""
    script = JournalSubject().write_script(machine.user / "journal")

    assert "0\n1\n" == machine.run([*script, "0", "2"])


def commands(machine: Machine) -> None:
    """Commands that start nothing, typed in the project: by the script, and by our own line."""
    machine.write_session()
    machine.import_sessions()
    words = (["show", SESSION], ["doctor"], ["ls"], ["search", "calc"], ["cost"], ["config"])
    for some in words[: by_pace(2, 2, len(words))]:
        machine.thence(*some)
        machine.run([sys.executable, "-E", "-P", "-m", "thence", *some])


def git_of_the_project(machine: Machine) -> None:
    """Git is asked for the first commit of the project, and starts nothing of it."""
    machine.program("trap", f"touch {machine.user}/ran")
    machine.run(["git", "init", "--quiet", "."])
    config = machine.project / ".git" / "config"
    trap = machine.bin / "trap"
    config.write_text(f"{config.read_text()}[core]\nfsmonitor = {trap}\nhooksPath = {trap}\n")
    machine.write_session()
    machine.thence("sweep")

    assert (machine.home / "folders.json").exists()
    assert not (machine.user / "ran").exists()


def package_agent(machine: Machine) -> None:
    """The agent of another package, which runs in a process of its own."""
    place = machine.user / "packages"
    install(place, "thence.agents", READER)
    (machine.user / ".acme").mkdir()
    printed = machine.thence("doctor", PYTHONPATH=str(place))

    assert "acme: version unknown" in printed


def git_remote(machine: Machine) -> None:
    """A sync through a git remote, started in the project."""
    pytest.importorskip("pyrage")
    remote = machine.user / "remote.git"
    machine.run(["git", "init", "--quiet", "--bare", str(remote)])
    machine.write_session()
    machine.thence("sync", "init", str(remote))

    assert 1 == json.loads(machine.thence("sync", "--json"))["sent_sessions"]


def ssh_folder(machine: Machine) -> None:
    """A sync through a folder on another machine, started in the project."""
    pytest.importorskip("pyrage")
    if missing := missing_sshd():
        pytest.skip(missing)
    server = SshServer(machine.user.parent / "sshd")
    try:
        (machine.bin / "ssh").symlink_to(server.bin / "ssh")
        place = server.folder / "shared"
        place.mkdir()
        machine.write_session()
        machine.thence("sync", "init", server.address(place))

        assert 1 == json.loads(machine.thence("sync", "--json"))["sent_sessions"]
    finally:
        server.stop()


Trial = Callable[[Machine], None]

STARTS: dict[str, list[Trial]] = {
    "agents/guard.py subprocess": [package_agent],
    "agents/guard.py sys.executable": [package_agent],
    "bridge/acp_proxy.py subprocess": [record_editor_agent],
    "bridge/git.py subprocess": [git_of_the_project, git_remote],
    "bridge/handoff.py subprocess": [hand_over],
    "bridge/sync_ssh.py subprocess": [ssh_folder],
    "cli/background.py os.execv": [upgrade],
    "cli/background.py subprocess": [background],
    "cli/demo.py processes": [demo],
    "cli/exec.py subprocess": [run_agent],
    "cli/home_sweep.py processes": [browser],
    "cli/home_sweep.py subprocess": [browser],
    "cli/launcher.py processes": [hook, brief, notify, mcp_server, cron, systemd],
    "cli/launcher.py sys.executable": [hook],
    "cli/nudge.py os.execve": [hook, hook_of_a_hostile_environment],
    "cli/nudge.py os.fork": [hook],
    "cli/nudge.py sys.executable": [hook],
    "cli/processes.py sys.executable": [commands],
    "cli/resume.py os.execv": [resume_agent],
    "cli/resume_plans.py processes": [resume_own],
    "cli/scheduling.py subprocess": [cron, systemd],
    "cli/screen.py subprocess": [pager],
    "cli/self_check.py processes": [self_check],
    "cli/self_check.py subprocess": [self_check],
    "cli/viewer.py webbrowser": [browser],
    "memory/parcels.py multiprocessing": [sweep],
    "testing/crashes.py subprocess": [crash_suite],
    "testing/crashes.py sys.executable": [crash_suite],
}
"""Every module that starts a process, by what, and the trials that run it."""

LEFT_TO_PROVE: dict[Trial, str] = {
    hook: "the one with a hostile environment does the same and more",
    systemd: "cron is given the same command line",
    self_check: "what it starts are commands, which another trial runs",
    upgrade: "it is given the command line with which the viewer was started",
}
"""Trials that only `make prove` runs, with the reason."""

TRIALS = [
    trial
    for trial in dict.fromkeys(trial for trials in STARTS.values() for trial in trials)
    if PROVING or trial not in LEFT_TO_PROVE
]


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)
def test_no_process_loads_code_from_the_folder_it_is_started_in(
    machine: Machine, trial: Trial
) -> None:
    """A project may hold any module of any name: none is loaded, and the work is done."""
    trial(machine)

    assert [] == machine.loaded


def test_a_planted_module_is_noticed(machine: Machine) -> None:
    """Python as it is started by most programs loads what lies in the project."""
    done = subprocess.run(
        [sys.executable, "-c", "import thence"],
        cwd=machine.project,
        env=machine.env,
        capture_output=True,
        check=False,
    )

    assert 1 == done.returncode
    assert machine.loaded  # which of them comes first depends on the version of Python


# -- nothing is forgotten -------------------------------------------------------------------

MODULES = {
    *("subprocess", "multiprocessing", "webbrowser", "pty", "runpy", "_posixsubprocess"),
    *("thence.cli.processes", "asyncio.subprocess"),
}
"""Modules with which processes are started; who imports one is listed."""
NAMES = {"sys.executable", "sys._base_executable", "ProcessPoolExecutor"}
FUNCTIONS = tuple(
    f"{module}.{word}"
    for module in ("os", "asyncio")
    for word in ("exec", "spawn", "posix_spawn", "fork", "system", "popen", "create_subprocess")
)
"""How functions that start processes begin."""


def names(node: ast.AST) -> list[str]:
    """Modules and functions that a node names, in full as far as it says."""
    match node:
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(module), names=aliases):
            words = [alias.name for alias in aliases]
            return [module, *words, *(f"{module}.{word}" for word in words)]
        case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
            return [f"{owner}.{attribute}", attribute]
        case ast.Attribute(attr=attribute):
            return [attribute]
    return []


WORDS = (
    *{name.rpartition(".")[2] for name in MODULES | NAMES},
    *FUNCTIONS,
    *("from os ", "from asyncio "),
)
"""One of these stands in every module that starts a process; parsing the others takes seconds."""


def starts(name: str, source: str) -> Iterator[str]:
    """Ways in which a module starts processes, or writes down how one is started."""
    if not any(word in source for word in WORDS):
        return
    for word in (word for node in ast.walk(ast.parse(source)) for word in names(node)):
        top = word.partition(".")[0]
        if top in MODULES:
            yield f"{name} {top}"
        elif word in MODULES | NAMES or word.startswith(FUNCTIONS):
            yield f"{name} {word.removeprefix('thence.cli.')}"


@pytest.mark.slow
def test_every_place_that_starts_a_process_is_tried() -> None:
    """Whoever starts a process somewhere new lists it in STARTS, with a trial that runs it."""
    files = {
        start
        for path in sorted(PACKAGE.rglob("*.py"))
        for start in starts(path.relative_to(PACKAGE).as_posix(), path.read_text())
    }

    assert sorted(STARTS) == sorted(files)


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "from subprocess import run as go",
        "import os\nos.posix_spawn('x', [], {})",
        "from os import execvp",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "from multiprocessing.pool import Pool",
        "from concurrent.futures import ProcessPoolExecutor",
        "import concurrent.futures as f\nf.ProcessPoolExecutor()",
        "import sys\nx = [sys.executable, '-c']",
        "from thence.cli import processes",
    ],
)
def test_a_new_way_to_start_a_process_is_noticed(source: str) -> None:
    """However it is written."""
    assert list(starts("new.py", source))
