"""The package itself: two lazy names, defaults from the environment, a light import."""

from __future__ import annotations

import ast
import inspect
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

import thence
import thence.journal
from thence.errors import BadConfig

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a home of its own and no switches set."""
    for name in ("THENCE_NO_PERSISTENCE", "CLAUDE_NO_SESSION_PERSISTENCE", "HISTORY_RETAIN_DAYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("THENCE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def written(folder: Path) -> list[Path]:
    """Every file below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_names_of_the_contract_are_there() -> None:
    """`thence.Journal`, `thence.Session` and the error all others come from."""
    assert {"Journal", "Session", "ThenceError"} <= set(dir(thence))
    assert thence.Session is thence.journal.Session
    assert issubclass(thence.Journal, thence.journal.Journal)
    assert isinstance(thence.Journal(), thence.journal.Journal)
    assert "thence.Journal" == f"{thence.Journal.__module__}.{thence.Journal.__qualname__}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Lazy names do not swallow mistakes."""
    with pytest.raises(AttributeError, match="no attribute 'Jurnal'"):
        thence.Jurnal  # type: ignore[attr-defined] # noqa: B018


def test_the_journal_refuses_windows_in_plain_words() -> None:
    """No traceback about a module that only other systems have."""
    code = "import thence.system; thence.system.IS_WINDOWS = True; thence.Journal"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert "NotSupported: the journal does not work on Windows itself" in done.stderr


def test_importing_loads_neither_the_journal_nor_the_settings() -> None:
    """What is lazy is not loaded by the import, but by the first use."""
    code = (
        "import sys, thence; before = [m for m in sys.modules if m.startswith('thence.')]; "
        "thence.Journal; print(before, 'thence.journal' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert "['thence.errors'] True" == done.stdout.strip()


def test_help_loads_click_and_hardly_anything_else() -> None:
    """Counted, since machines are busy: what is imported decides how long `thence --help` takes."""
    code = (
        "import sys; before = {*sys.modules}; sys.argv = ['thence', '--help']\n"
        "from thence.cli import main\n"
        "try: main()\n"
        "finally: print(*sorted({*sys.modules} - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = done.stderr.split()
    ours = [name for name in loaded if name.partition(".")[0] == "thence"]

    assert ["thence", "thence.cli", "thence.cli.screen", "thence.errors"] == ours
    assert len(loaded) < 100
    assert {"asyncio", "json", "msgspec", "apsw", "logging", "shutil", "subprocess"}.isdisjoint(
        loaded
    )


def test_a_command_with_duckdb_ends_without_a_word() -> None:
    """It prints what is not collected at the end, where other commands collect nothing."""
    pytest.importorskip("duckdb")
    code = "import sys, duckdb; from thence.cli import main\nsys.argv[1:] = ['--version']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "" == done.stderr


HELP_RATIO = 5.5
"""60 ms where bare Python takes 11."""


def test_help_takes_at_most_five_and_a_half_times_what_bare_python_takes() -> None:
    """Processor time of both in turns, as medians; more turns where a busy machine blurs them."""
    commands = {"bare": ("-c", "pass"), "help": ("-m", "thence", "--help")}
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(20):
        for name, arguments in commands.items():
            spent[name].append(_cpu_seconds(sys.executable, *arguments))
        ratio = median(spent["help"]) / median(spent["bare"])
        if len(spent["help"]) >= 3 and ratio <= HELP_RATIO:
            break

    assert ratio <= HELP_RATIO


def _cpu_seconds(*command: str) -> float:
    """Return the processor time that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_journal_lies_in_the_home_of_the_environment(home: Path) -> None:
    """Without a root the variable decides, at the time the journal is made."""
    with thence.Journal().create() as session:
        path = session.transcript_path

    assert path is not None
    assert path.is_relative_to(home / "sessions")


def test_an_argument_wins_over_the_environment(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root, switch and days can all be given."""
    monkeypatch.setenv("THENCE_NO_PERSISTENCE", "1")
    monkeypatch.setenv("HISTORY_RETAIN_DAYS", "nonsense")
    journal = thence.Journal(tmp_path / "other", enabled=True, history_retain_days=3)
    journal.create().close()

    assert written(tmp_path / "other")
    assert [] == written(home)


@pytest.mark.parametrize("name", ["THENCE_NO_PERSISTENCE", "CLAUDE_NO_SESSION_PERSISTENCE"])
def test_the_switch_makes_everything_a_no_op(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The same calls work and not a byte is written, not even a folder."""
    monkeypatch.setenv(name, "1")
    journal = thence.Journal()
    with journal.create(cwd=home) as session:
        session.record("user", {"role": "user", "content": "hello"})
        journal.history.add("hello", session_id=session.id)
        with session.sidechain("reviewer") as side:
            side.record("user", {"role": "user", "content": "look"})
            side.finish("looked")
        session.compact("we said hello")
        session.flush()
        messages = session.messages

    assert 1 == len(messages)
    assert session.transcript_path is None
    assert not home.exists()


def test_a_bad_setting_is_told_when_the_journal_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the import, and not when the first session is lost."""
    monkeypatch.setenv("THENCE_NO_PERSISTENCE", "perhaps")

    with pytest.raises(BadConfig, match="THENCE_NO_PERSISTENCE"):
        thence.Journal()


def test_days_of_the_environment_reach_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """HISTORY_RETAIN_DAYS limits what is read back."""
    monkeypatch.setenv("HISTORY_RETAIN_DAYS", "2")

    assert 2.0 == thence.Journal().history._retain_days


def test_what_type_checkers_see_is_what_the_journal_takes() -> None:
    """The block for type checkers names every parameter of the real class, in its order."""
    tree = ast.parse(Path(thence.__file__).read_text(encoding="utf-8"))
    shown = next(
        node
        for block in tree.body
        if isinstance(block, ast.If)
        for outer in block.body
        if isinstance(outer, ast.ClassDef)
        for node in outer.body
        if isinstance(node, ast.FunctionDef)
    )
    names = [arg.arg for arg in [*shown.args.args, *shown.args.kwonlyargs]]

    assert list(inspect.signature(thence.journal.Journal.__init__).parameters) == names
