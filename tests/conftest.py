"""Profiles for hypothesis, and fixtures every folder of tests may use.

`everyday` is quick; `full` looks harder and is what `make test` and continuous integration use.
Thousands of examples, kills and cuts are for `make prove`, which also runs all cases of the tests
that are marked `sampled` (`tests.pace`), those with made-up examples among them.
Under CI the examples follow from the test alone, so that two runs of one commit agree.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.bytecode import write_bytecode

if TYPE_CHECKING:
    from tests.postgres import Cluster

MakeFolder = Callable[[Path], None]
"""Makes a folder, which is not there yet, and what is in it."""

ROOT = Path(__file__).resolve().parent.parent

# Without bytecode each of the hundreds of processes that tests start compiles all of it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Thousands of tests write files that are gone a moment later: in memory none waits for a disk.
# A small one, or one where nothing may be run, as containers have it, is left alone.
MEMORY = Path("/dev/shm")
MEMORY_NEEDED_BYTES = 4 << 30
if sys.platform == "linux" and os.access(MEMORY, os.W_OK | os.X_OK):
    _free = os.statvfs(MEMORY)
    if _free.f_bavail * _free.f_frsize >= MEMORY_NEEDED_BYTES and not _free.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Collecting makes what stays to the end: there is nothing in it for the collector to find.
gc.disable()

# A shell has the signal ignored for what it runs in the background; some tests raise it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CI = bool(os.environ.get("CI"))
PROVING = bool(os.environ.get("THENCE_PROVE"))
EVERYDAY_CASES = 2
"""Cases of a test in the everyday subset; the others, between these, are slow."""
SLOWEST = 12
"""Files that are named at the end of a run, with what each took."""
GC_THRESHOLD = 20_000
"""Objects made before the collector looks for rings of them; 700 costs a tenth of the time."""
NO_SHARED = "no ../shared beside the clone: checks against the real clients' files are skipped"

# No deadline and no word about slow inputs: a busy machine is not a bug. The blob lets a failure
# be replayed from a log.
for profile, examples in {"everyday": 5, "full": 100 if PROVING else 8}.items():
    settings.register_profile(
        profile,
        max_examples=int(os.environ.get("THENCE_EXAMPLES") or examples),
        deadline=None,
        derandomize=CI,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("THENCE_TEST") or ("full" if CI else "everyday"))


@pytest.hookimpl(optionalhook=True)  # prove runs tests without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are processors: tests wait for browsers and servers.

    Each of them collects all tests, and makes what its tests share.
    """
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else 2


def pytest_configure() -> None:
    """Write what bytecode of the tests is missing, each process that runs tests a part of it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        write_bytecode(int(worker[2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Choose among the cases of a test before an item is made of each: that takes seconds.

    Not all cases of what has many are for every day, and only `make prove` runs all cases of what
    is marked `sampled(n, first)`: other runs take every nth.
    """
    yield
    everyday = metafunc.config.getoption("markexpr") == "not slow"
    few = metafunc.definition.get_closest_marker("few")
    step = few.args[0] if few else -(-len(metafunc._calls) // EVERYDAY_CASES)
    marks = [mark for mark in metafunc.definition.iter_markers("sampled") if mark.args]
    chosen = []
    number = 0
    for at, case in enumerate(metafunc._calls):
        own = [mark for mark in case.marks if mark.name == "sampled" and mark.args]
        if not PROVING and (marks or own):
            every, first = (*(marks or own)[0].args, 0)[:2]
            number += 1
            if (number - 1) % every != first:
                continue
        if at % step:
            if everyday:
                continue
            case.marks.append(pytest.mark.slow.mark)
        chosen.append(case)
    if chosen:
        metafunc._calls = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is proven at the numbers of a release, unless it is asked for by its mark.

    What needs a Postgres server is not for every day.
    """
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("sampled")
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
    if "prove" not in (config.getoption("markexpr") or ""):
        left_out = [item for item in items if item.get_closest_marker("prove")]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that took most of the time, where there are many."""
    took: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    if len(took) > SLOWEST:
        terminalreporter.section("slowest files")
        for name, seconds in took.most_common(SLOWEST):
            terminalreporter.line(f"{seconds:7.1f} s  {name}")


def pytest_collection_finish() -> None:
    """Spare the collector what stays to the end: thousands of tests, and all that was imported."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of documents and real clients' files beside the clone, or skip."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(NO_SHARED)
    return folder


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, MakeFolder], Path]:
    """Return a folder that one of the processes that run tests makes for all; change nothing."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base

    def made(name: str, make: MakeFolder) -> Path:
        out, done = base / name, base / f"{name}.done"  # a store knows the paths of its sources
        with out.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(out, ignore_errors=True)
                make(out)
                done.touch()
        return out

    return made


@pytest.fixture(scope="session")
def corpus(shared: Path, made_once: Callable[[str, MakeFolder], Path]) -> Path:
    """The hostile inputs, made anew, once for all processes that run tests; change nothing."""
    program = shared / "tools" / "gen_hostile.py"

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, program, folder], check=True, capture_output=True)

    return made_once("hostile", make)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A Postgres server: one for each process that runs tests, and only where one is asked for."""
    from tests.postgres import cluster

    with cluster() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_problems_of_packages() -> None:
    """Forget what other tests' packages broke: a process remembers it as long as it runs."""
    packages = sys.modules.get("thence.agents.packages")
    if packages is not None:
        packages._PROBLEMS.clear()
