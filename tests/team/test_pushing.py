"""What a machine pushes arrives once, redacted, however often it is cut short or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.measure import count_executed_lines
from tests.agents.transcripts import Script, usage
from tests.memory import logs
from tests.memory.stored import KEY, everything
from tests.pace import by_pace
from tests.postgres import Cluster
from tests.rules import rules
from thence.agents import adapters
from thence.format.sums import Sums
from thence.memory.exclusion import Exclusion
from thence.memory.gate import Gate
from thence.memory.rules import rule_of
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter, SessionChange, Store, pack_fold, unpack_fold
from thence.memory.sweep import Progress, Sweep
from thence.team import pushing as module
from thence.team.postgres import Postgres, StoreLost
from thence.team.pushing import Due, Pusher, PushReport, marks_in


class Team:
    """Machines and the store of their team."""

    def __init__(self, folder: Path, postgres: Cluster) -> None:
        self.folder = folder
        self.postgres = postgres
        self._opened: list[Store] = []

    def home(self, machine: str = "one") -> Path:
        """Where the agents of a machine write."""
        return self.folder / machine / "home"

    def local(self, machine: str = "one") -> Sqlite:
        """The store of a machine."""
        store = Sqlite(f"{self.folder}/{machine}/s.db")
        self._opened.append(store)
        return store

    def store(self, machine: str = "one") -> Postgres:
        """The store of the team, as a machine sees it."""
        store = Postgres(self.postgres.url(tenant=str(self.folder), machine=machine))
        self._opened.append(store)
        return store

    def sweep(self, machine: str = "one", **more: Any) -> Sqlite:
        """Keep what is new on a machine."""
        store = self.local(machine)
        with store.sweeping():
            sweep = Sweep(store, adapters(), Gate(key=KEY), rules(), **more)
            sweep.run({"claude": [self.home(machine)]})
        return store

    def push(self, machine: str = "one", **more: Any) -> PushReport:
        """Push what is new on a machine."""
        gate = more.pop("gate", Gate(key=KEY))
        target = more.pop("target", None) or self.store(machine)
        with target.sweeping(wait=60):
            return Pusher(self.local(machine), target, gate, rules(), **more).run()

    def close(self) -> None:
        """Let go of all stores."""
        for store in self._opened:
            store.close()


@pytest.fixture
def team(tmp_path: Path, postgres: Cluster) -> Iterator[Team]:
    """A team of nobody yet."""
    made = Team(tmp_path, postgres)
    yield made
    made.close()


def contents(store: Sqlite | Postgres) -> dict[str, Any]:
    """All that a store holds, but for what each index says of the kinds of events."""
    dumped = everything(store)
    return {**dumped, "words": [word for word in dumped["words"] if word[3] == "body"]}


def test_what_is_pushed_is_what_is_kept(team: Team) -> None:
    """Sessions, families, payloads, money, digests, words; what is evicted or pinned, too."""
    first = logs.script(1)
    logs.write(team.home(), first, logs.script(2), logs.script(3, turns=6))
    logs.write(team.home(), logs.fork(4, first, 6), logs.fork(5, first, 9))
    here = team.sweep()
    [row] = here.sessions(Filter(uid=logs.name(3)))
    cursor = here.known().sessions[row.session.session_uid].cursor
    here.write([SessionChange(msgspec.structs.replace(row, pinned=True), cursor)])
    here.remove([f"claude:{logs.name(2)}"], why={})
    report = team.push()
    there = team.store()
    again = team.push()

    assert (5, 0, 5) == (report.sessions, report.unchanged, report.digests)
    assert contents(here) == contents(there)
    assert here.totals(["day", "model"]) == there.totals(["day", "model"])
    assert not there.known().unsettled
    assert (0, 5, 0) == (again.sessions, again.unchanged, again.events)


def test_session_that_grew_sends_what_is_new(team: Team) -> None:
    """Events, payloads and words of the rest; what was sent stays as it is."""
    logs.write(team.home(), logs.script(1, turns=5), logs.script(2))
    team.sweep()
    team.push()
    there = team.store()
    [before] = [len(there.events(f"claude:{logs.name(1)}"))]
    packs = set(there._every("SELECT batch FROM packs WHERE tenant=%s", there.tenant))
    logs.write(team.home(), logs.script(1, turns=7))
    here = team.sweep()
    report = team.push()
    events = len(there.events(f"claude:{logs.name(1)}"))
    now = set(there._every("SELECT batch FROM packs WHERE tenant=%s", there.tenant))

    assert (1, 1, events - before) == (report.sessions, report.unchanged, report.events)
    assert before < events
    assert packs < now
    assert 1 == len(now - packs)
    assert contents(here) == contents(there)


def appended(script: Script, number: int) -> Script:
    """One more line."""
    script.user(f"one more question, number {number}")
    return script


@pytest.mark.parametrize("turns", [3, 60])
def test_pushed_line_by_line_is_pushed_at_once(team: Team, turns: int) -> None:
    """Rows, words, spend and digests: of short and long sessions, of those with a fork, too."""
    first = logs.script(1, turns=turns)
    logs.write(team.home(), first, logs.fork(4, first, 6), logs.script(2))
    team.sweep()
    team.push()
    reports = []
    for number in range(3):
        logs.write(team.home(), appended(first, number))
        here = team.sweep()
        reports.append(team.push())
    there = team.store()
    other = Postgres(team.postgres.url(tenant=f"{team.folder} at once", machine="one"))
    team.push(target=other)
    at_once = contents(other)
    other.close()

    assert [(1, 0)] * 3 == [(report.sessions, report.rebuilt) for report in reports]
    assert at_once == contents(there) == contents(here)


def test_digest_that_came_later_is_pushed_as_it_is_stored(team: Team) -> None:
    """A session that was being written is digested when it rests; its events are not sent again."""
    first = logs.script(1, turns=9)
    logs.write(team.home(), first)
    team.sweep()
    team.push()
    logs.write(team.home(), appended(first, 1))
    team.sweep(digests=False)
    grown = team.push()
    here = team.sweep()
    report = team.push()

    assert (1, 1, 0) == (grown.sessions, grown.events, grown.digests)
    assert (1, 0, 1) == (report.sessions, report.events, report.digests)
    assert contents(here) == contents(team.store())


def test_line_that_reaches_far_back_is_pushed_as_well(team: Team) -> None:
    """A branch off the start: both stores rebuild the session, it is counted, the rows agree."""
    first = logs.script(1, turns=60)
    logs.write(team.home(), first)
    team.sweep()
    team.push()
    first.user("from the start once more", parentUuid=first.records[3]["uuid"])
    logs.write(team.home(), first)
    here = team.sweep()
    report = team.push()
    logs.write(team.home(), appended(first, 1))
    team.sweep()
    after = team.push()

    assert (1, 1) == (report.sessions, report.rebuilt)
    assert (1, 0) == (after.sessions, after.rebuilt)
    assert contents(here) == contents(team.store())


def test_state_that_does_not_fit_is_not_continued(team: Team) -> None:
    """What a session adds up to is compared after each push: it is sent anew where that differs."""
    first = logs.script(1, turns=60)
    logs.write(team.home(), first)
    team.sweep()
    team.push()
    there = team.store()
    [(body,)] = there._every("SELECT body FROM folds WHERE tenant=%s", there.tenant)
    state, spend = unpack_fold(body)
    assert state is not None
    state.sealed = Sums(events=3)
    there._run("UPDATE folds SET body=%s WHERE tenant=%s", pack_fold(state, spend), there.tenant)
    logs.write(team.home(), appended(first, 1))
    here = team.sweep()
    report = team.push()

    assert (1, 1) == (report.sessions, report.rebuilt)
    assert contents(here) == contents(there)


def straight(number: int, turns: int) -> Script:
    """A session that is never rewound."""
    made = Script(logs.name(number), f"s{number}-")
    for turn in range(turns):
        made.user(f"question {turn}")
        call = f"c{number}-{turn}"
        use = {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": "/a/b.txt"}}
        made.reply([use], stop="tool_use", usage=usage(7))
        made.result(call, f"line {turn}")
        made.reply([{"type": "text", "text": f"answer {turn}"}], usage=usage(9))
    return made


@pytest.mark.sampled
def test_push_of_one_line_does_not_grow_with_the_session(team: Team) -> None:
    """Counted in executed lines, for a session ten times as long that is being written.

    Of 1,000 and 10,000 events in `make prove`.
    """
    turns_of_both = by_pace((40, 400), (40, 400), (250, 2500))
    work, first = [], 0
    gate = Gate(key=KEY)
    for number, turns in enumerate(turns_of_both, start=1):
        machine = f"m{number}"
        long = straight(number, turns)
        logs.write(team.home(machine), long)
        team.sweep(machine)
        first = count_executed_lines(
            Pusher(team.local(machine), team.store(machine), gate, rules()).run
        )
        logs.write(team.home(machine), appended(long, 1))
        team.sweep(machine, digests=False)  # it is digested when it rests
        source, target = team.local(machine), team.store(machine)
        pusher = Pusher(source, target, gate, rules())
        work.append(count_executed_lines(pusher.run))

        assert (1, 1, 0) == (pusher.report.sessions, pusher.report.events, pusher.report.rebuilt)
    assert work[1] <= 1.2 * work[0]
    assert work[1] < 0.05 * first


def test_large_session_goes_in_pieces(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a transaction of its own; one that is cut short goes on behind the last."""
    logs.write(team.home(), logs.script(1, turns=30))
    here = team.sweep()
    monkeypatch.setattr(module, "PIECE_BYTES", 2000)
    push, left = Postgres.push, [4]

    def breaks(self: Postgres, sent: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise StoreLost("the line is cut")
        return push(self, sent)

    monkeypatch.setattr(Postgres, "push", breaks)
    with pytest.raises(StoreLost):
        team.push()
    there = team.store()
    part = len(there.events(f"claude:{logs.name(1)}"))
    report = team.push()
    total = len(there.events(f"claude:{logs.name(1)}"))

    assert 0 < part < total
    assert total - part <= report.events + 5
    assert contents(here) == contents(there)


def test_push_that_is_cut_short_soon_keeps_what_it_has_sent(team: Team) -> None:
    """Small sessions go in few transactions, but not all in the first one."""
    logs.write(team.home(), *(logs.script(number) for number in range(1, 12)))
    team.sweep()

    def stop(progress: Progress) -> None:
        if progress.sources == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        team.push(progress=stop)
    there = len(list(team.store().sessions()))
    again = team.push()

    assert (4, 7, 4) == (there, again.sessions, again.unchanged)


def test_rewritten_or_swept_anew_is_sent_in_its_place(team: Team) -> None:
    """A log that became another, and a store that was lost: what is there is replaced."""
    logs.write(team.home(), logs.script(1), logs.script(2))
    team.sweep()
    team.push()
    team.folder.joinpath("one", "s.db").unlink()
    for path in team.folder.joinpath("one").glob("s.db*"):
        path.unlink()
    logs.write(team.home(), logs.script(1, seed=9))
    here = team.sweep()
    report = team.push()
    there = team.store()

    assert 2 == report.sessions
    assert contents(here) == contents(there)
    assert [len(there.search(parse(word)).matches) > 0 for word in ("harbour", "lantern")]


def test_excluded_projects_stay(team: Team) -> None:
    """Told in the plan, and nothing of them in any table."""
    logs.write(team.home(), logs.script(1, cwd="/home/dev/open"))
    logs.write(team.home(), logs.script(2, cwd="/home/dev/private/diary"), project="-private")
    here = team.sweep()
    plan = Due(here, {}, Exclusion(["/home/dev/private"])).plan
    report = team.push(exclude=["/home/dev/private"])
    there = team.store()
    rows = there._every(
        "SELECT count(*) FROM events WHERE tenant=%s AND uid=%s",
        *(there.tenant, f"claude:{logs.name(2)}"),
    )

    assert (1, 1) == (report.sessions, report.excluded)
    assert ["/home/dev/open"] == [project.project for project in plan.projects]
    assert ["/home/dev/private/diary"] == [project.project for project in plan.excluded]
    assert (plan.sessions, plan.events) == (report.sessions, report.events)
    assert [(0,)] == rows
    assert ["/home/dev/open"] == [row.session.cwd for row in there.sessions()]


def test_rules_of_today_hold_for_what_leaves(team: Team) -> None:
    """A secret that was kept before there was a rule for it does not leave the machine."""
    script = logs.script(1)
    script.user("the code word is TICKET-443322, tell nobody")
    script.say("TICKET-443322 it is")
    logs.write(team.home(), script)
    here = team.sweep()
    rule = rule_of("ticket", "TICKET-[0-9]{6}", keywords=("ticket-",))
    report = team.push(gate=Gate(key=KEY, extra=[rule]))
    there = team.store()

    assert 1 == len({hit.session_uid for hit in here.search(parse("443322")).matches})
    assert [] == there.search(parse("443322")).matches
    assert {"ticket": 1} == report.redactions
    assert 0 == team.push(gate=Gate(key=KEY, extra=[rule])).sessions


def test_what_is_forgotten_here_is_forgotten_there(team: Team) -> None:
    """And what the team forgot does not come back; evicting here evicts nothing there."""
    logs.write(team.home(), *(logs.script(number) for number in (1, 2, 3)))
    here = team.sweep()
    team.push()
    there = team.store()
    here.remove([f"claude:{logs.name(1)}"], why={}, forget=True)
    here.remove([f"claude:{logs.name(2)}"], why={})
    there.remove([f"claude:{logs.name(3)}"], why={}, forget=True)
    report = team.push()

    assert (1, 1) == (report.forgotten, report.elsewhere)
    assert [f"claude:{logs.name(2)}"] == [row.session.session_uid for row in there.sessions()]
    assert there.load_session(f"claude:{logs.name(2)}") is not None


def test_session_of_two_machines_is_pushed_by_the_one_with_more_of_it(team: Team) -> None:
    """The other one says so, and does not send it again and again."""
    logs.write(team.home("one"), logs.script(1, turns=5))
    logs.write(team.home("two"), logs.script(1, turns=3))
    for machine in ("one", "two"):
        team.sweep(machine)
    reports = [team.push(machine) for machine in ("two", "one", "two", "one")]
    there = team.store()

    assert [1, 1, 0, 0] == [report.sessions for report in reports]
    assert [0, 0, 1, 0] == [report.elsewhere for report in reports]
    assert contents(team.local("one")) == contents(there)


def test_fork_on_another_machine_is_counted_once(team: Team) -> None:
    """Whoever pushes first: the copies are the parent's, and so are their bills."""
    first = logs.script(1)
    for folder, order in (("x", ("one", "two")), ("y", ("two", "one"))):
        some = Team(team.folder / folder, team.postgres)
        logs.write(some.home("one"), first)
        logs.write(some.home("two"), logs.fork(4, first, 9))
        for machine in order:
            some.sweep(machine)
            some.push(machine)
        both = Team(team.folder / folder / "both", team.postgres)
        logs.write(both.home(), first, logs.fork(4, first, 9))
        alone = both.sweep()
        there = some.store()
        analysed = [row.session.analyzed_at is not None for row in there.sessions()]

        assert alone.totals(["session"]) == sorted(there.totals(["session"]), key=lambda t: t.key)
        assert [True, True] == analysed
        assert {"one", "two"} == {
            machine
            for (machine,) in there._every(
                "SELECT machine FROM sessions WHERE tenant=%s", there.tenant
            )
        }
        some.close()
        both.close()


def test_mark_of_another_form_is_none(team: Team) -> None:
    """A later program may write another; the session is sent again, and is the same."""
    assert {} == marks_in({"claude:a": (b"\x93\x01\x02\x03", True), "claude:b": (b"", True)})
