"""Homes whose sessions are compared: of all agents, made up or real, and commands in processes.

`tests/agreement` mirrors no module: it holds what no module can promise alone. All ways into a
store give equal rows, all ways out of it equal numbers, and none of them gives a secret.

A command runs in a process that has done nothing else, as it does for a user: what one command
teaches a process, the next one must not need.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.agents.transcripts import Script, usage
from tests.cli.desk import Ran
from tests.memory import logs
from tests.test_examples import unpack_template
from tests.testing.test_planted_mistakes import HERON
from thence.agents.profiles import agents, folder_variables
from thence.cli import sample_machine

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
"""When the made-up sessions were written."""

_PROGRAM = """
import io, json, sys
from thence import cli

out = sys.stdout
for line in sys.stdin:
    words, typed = json.loads(line)
    sys.argv = ["thence", *words]
    sys.stdin = io.StringIO(typed)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\\n") for _ in "oe"]
    sys.stdout, sys.stderr = streams
    code = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    said = []
    for stream in streams:
        stream.flush()
        said.append(stream.buffer.getvalue().decode("utf-8", "replace"))
    print(json.dumps([code, *said]), file=out, flush=True)
"""

Run = Callable[..., Ran]


class Home:
    """A home of thence on a machine, where agents have their folders or nobody has any."""

    def __init__(
        self, thence: Path, env: Mapping[str, str] | None = None, *, package: Path | None = None
    ) -> None:
        """Make it; `env` leads to the agents, `package` is a folder with an agent of its own."""
        self.path = thence
        self.env = dict.fromkeys(folder_variables()) | dict(env or {})
        self.package = package
        self.nobody = thence.parent / f"{thence.name}-nobody"
        self.nobody.mkdir(parents=True, exist_ok=True)
        thence.mkdir(parents=True, exist_ok=True)

    @property
    def store(self) -> Path:
        """The file of its store."""
        return self.path / "memory" / "thence.db"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its commands."""
        paths = [str(path) for path in (self.package, ROOT) if path is not None]
        known = {name: value for name, value in self.env.items() if value is not None}
        usual = {"HOME": str(self.nobody), "TZ": "UTC", "COLUMNS": "120"}
        usual |= {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths)}
        return usual | known | {"THENCE_HOME": str(self.path)}

    def read_also(self, roots: Mapping[str, Sequence[Path]]) -> None:
        """Read sessions in these folders too, by agent."""
        lines = [
            f"{agent} = {json.dumps([str(path) for path in paths])}"
            for agent, paths in roots.items()
        ]
        text = "[session_memory.sources]\n" + "".join(f"{line}\n" for line in lines)
        (self.path / "config.toml").write_text(text, encoding="utf-8")

    @contextlib.contextmanager
    def process(self) -> Iterator[Run]:
        """Start a process; it runs one command after the other, each must end well."""
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.variables,
            cwd=self.nobody,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            asked, answers = process.stdin, process.stdout

            def run(*words: str | Path, typed: str = "", ends: Sequence[int] = (0,)) -> Ran:
                asked.write(json.dumps([list(map(str, words)), typed]) + "\n")
                asked.flush()
                ran = Ran(*json.loads(answers.readline()))
                assert ran.code in ends, (words, ran)
                return ran

            yield run
            asked.close()

    def run(self, *words: str | Path, typed: str = "", ends: Sequence[int] = (0,)) -> Ran:
        """Run one command in a process of its own."""
        with self.process() as run:
            return run(*words, typed=typed, ends=ends)


# -- made-up sessions of all agents ------------------------------------------------------------

_PEBBLE = """
import sys
from datetime import datetime
from pathlib import Path
from thence.agents.profiles import agents
from thence.agents.samples import Machine
home, work, now = sys.argv[1:]
agents()["pebble"].sample(Machine(Path(home), Path(work)), datetime.fromisoformat(now))
"""
_HERON = "import pathlib, sys, heron_thence; heron_thence.write(pathlib.Path(sys.argv[1]))"


class MadeUp:
    """The samples of all agents, of two of other packages, and of our own journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = folder / "user"
        self.package = folder / "package"

    def write(self) -> None:
        """Write them."""
        homes = sample_machine.write(self.user, NOW)
        for path in homes.thence.rglob("*.jsonl"):  # the journal has written them just now
            answers = path.read_text()
            path.write_text(re.sub(r'"\d{4}-\d\d-\d\dT', f'"{NOW:%Y-%m-%d}T', answers))
        logs.write(homes.of("claude"), *odd_sessions())
        unpack_template(self.package)
        unpack_heron(self.package)
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(self.package), str(ROOT)])}
        pebble = (_PEBBLE, str(self.user / ".pebble"), str(homes.work), NOW.isoformat())
        for code, *words in (pebble, (_HERON, str(self.user / ".heron"))):
            subprocess.run([sys.executable, "-c", code, *words], check=True, env=env)

    def home(self, name: str) -> Home:
        """Return a home that reads them."""
        env = sample_machine.homes(self.user).env
        made = Home(self.folder / name, env, package=self.package)
        own = self.user / ".thence"
        roots = {"pebble": [self.user / ".pebble"], "heron": [self.user / ".heron"]}
        made.read_also({"thence": [own], **roots})
        return made

    def empty(self, name: str | Path) -> Home:
        """Return a home on a machine where no agent has a session."""
        return Home(self.folder / name, package=self.package)


def odd_sessions() -> Iterator[Script]:
    """Yield sessions that were forked, rewound, corrected; one branch of them hangs on a copy."""
    first = logs.script(2, turns=6)
    yield from (logs.trials(1), first, logs.fork(3, first, 9))
    odd = logs.fork(4, first, 8, turns=0)
    copied = [record["uuid"] for record in odd.records]
    odd.user("Try the lamp.", parentUuid=copied[3], timestamp="2026-01-03T00:00:01.000Z")
    odd.say("It is dark.", usage=usage(40), timestamp="2026-01-03T00:00:02.000Z")
    odd.user("The wick, then.", parentUuid=copied[-1], timestamp="2026-01-03T00:00:03.000Z")
    odd.say("It burns.", usage=usage(30), timestamp="2026-01-03T00:00:04.000Z")
    yield odd
    asked = Script(logs.name(5), "q")
    for prompt in ("Go.", "No, the other one.", "thanks", "It still fails."):
        asked.user(prompt)
        many = [{"type": "text", "text": "a word or two " * 300}]
        response = f"m{len(asked.records)}"
        asked.reply(many, id=response, usage=usage(8))  # its last record has all of its usage
        call = [{"type": "tool_use", "id": f"c{response}", "name": "Bash", "input": {}}]
        counted = usage(8 if prompt == "thanks" else 1200)
        asked.reply(call, id=response, stop="tool_use", usage=counted)
        asked.result(f"c{response}")
        asked.say(usage=usage(3))
    yield asked


def unpack_heron(target: Path) -> None:
    """Put a small agent of another package, with a tool of its own, where an installer would."""
    info = target / "heron_thence-0.1.0.dist-info"
    info.mkdir(parents=True)
    (target / "heron_thence.py").write_text(HERON, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: heron-thence\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[thence.agents]\nheron = heron_thence:PROFILE\n")


# -- real sessions -----------------------------------------------------------------------------


class Real:
    """The real sessions beside the clone, each home of a client a root, or every so-manyth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = folder / "user"

    def write(self, shared: Path, step: int) -> None:
        """Copy them: what is read is changed by some of the tests."""
        places: dict[str, list[str]] = {}
        seen: set[str] = set()
        for number, (agent, root, below) in enumerate(real_roots(shared)):
            if number % step:
                continue
            into = self.user / f"{number}"
            shutil.copytree(root, into / below, symlinks=True)
            uids = {source.uid for source in agents()[agent].reader.find(into)}
            if uids & seen:  # a session has one home
                shutil.rmtree(into)
                continue
            seen |= uids
            places.setdefault(agent, []).append(str(into))
        (self.folder / "places.json").write_text(json.dumps(places))

    def home(self, name: str) -> Home:
        """Return a home that reads them."""
        made = Home(self.folder / name)
        made.read_also(json.loads((self.folder / "places.json").read_text()))
        return made

    def empty(self, name: str | Path) -> Home:
        """Return a home on a machine where no agent has a session."""
        return Home(self.folder / name)


def real_roots(shared: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield all folders of real clients and of public logs: agent, folder, where it is put."""
    data, known = shared / "data", agents()
    for agent, pattern in (
        ("claude", "claude-code/*/*/claude"),
        ("codex", "codex/*/codex_home"),
        ("grok", "grok/*/grok_home"),
    ):
        yield from ((agent, path, "") for path in sorted(data.glob(pattern)))
    names = {"claude-code": "claude"}
    for home in sorted([*data.glob("agents/*/*/home"), *data.glob("versions/*/*/home")]):
        agent = names.get(home.parents[1].name, home.parents[1].name)
        if agent in known and (root := known[agent].root(home, {})).is_dir():
            yield agent, root, ""
    for folder in sorted({path.parent for path in data.glob("public/claude/**/*.jsonl")}):
        if folder.name != "subagents":
            yield "claude", folder, f"projects/-public-{folder.name}"
    for folder in sorted(data.glob("public/*/*")):
        if folder.is_dir() and folder.parent.name in {*known} - {"claude"}:
            yield folder.parent.name, folder, ""


# -- logs that grow ----------------------------------------------------------------------------


class Growing:
    """The files of agents as they were while they were written, line by line."""

    def __init__(self, user: Path) -> None:
        files = [path for path in sorted(user.rglob("*")) if _is_file(path)]
        self._all = {path: path.read_bytes() for path in files}
        self._times = {path: path.stat().st_mtime_ns for path in files}
        self._logs = {
            path: body.splitlines(keepends=True)
            for path, body in self._all.items()
            if path.suffix in (".jsonl", ".md")
        }

    @property
    def lines(self) -> int:
        """The lines of the longest log."""
        return max(map(len, self._logs.values()), default=0)

    def shrink(self) -> None:
        """Take all of it away."""
        for path in self._all:
            path.unlink()

    def grow(self, number: int, of: int) -> None:
        """Write so many of the parts of each log; documents are there from the start."""
        for path, body in self._all.items():
            if path in self._logs:
                lines = self._logs[path]
                upto = b"".join(lines[: -(-len(lines) * number // of)])
                there = path.stat().st_size if path.exists() else 0
                if upto[there:] or not path.exists():
                    with path.open("ab") as log:
                        log.write(upto[there:])
            elif not path.exists():
                path.write_bytes(body)
            if path.exists():  # some agents say in no other way when something was
                os.utime(path, ns=(self._times[path],) * 2)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
