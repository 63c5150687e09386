"""One story that every store must tell: kept, grown, digested, searched, evicted, forgotten.

    suite = StoreSuite(lambda: open_store("sqlite:…"))     # a new, empty store each time
    assert [] == suite.complaints()                        # or some checks by name, see CHECKS

Each check opens a store of its own, puts made-up sessions into it the way a sweep does, and says
in words what should not be. `files`, where it is given, names everything the store has on disk:
what was evicted must be in none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from thence.agents import Batch, Cursor, File, Mark, Source
from thence.agents.records import QuietAgent
from thence.errors import ThenceError
from thence.format.facts import Block, Fact
from thence.format.graph import State
from thence.format.nodes import Is, Node
from thence.format.normal import derived_id
from thence.format.records import Usage
from thence.format.stored import DerivedEvent, StoredEvent, fingerprint
from thence.format.tools import BUILT_IN
from thence.memory.gate import Gate
from thence.memory.growth import Growing
from thence.memory.ingest import Ingester, IngestResult
from thence.memory.pricelist import SHIPPED
from thence.memory.rulebook import Rulebook
from thence.memory.search import hits, parse
from thence.memory.store import (
    DATA_LOSS,
    DigestRecord,
    Filter,
    SessionChange,
    Store,
    StoredSession,
    StoreLocked,
    call_key,
    owner_key,
    pack_facts,
)

CHECKS = (
    "empty",
    "round_trip",
    "growth",
    "continuing",
    "all_or_nothing",
    "writing_twice",
    "digests",
    "owners",
    "foreign",
    "restating",
    "replacing",
    "listing",
    "spending",
    "searching",
    "evicting",
    "forgetting",
    "one_sweeper",
)
"""The checks, each a method that gives its complaints."""

CANARY = "quetzalcoatlus"
_LINES = 12  # of a session that grows line by line
_KEY = b"a key for tests, 32 bytes long!!"
_RULES = Rulebook(toolbox=BUILT_IN, prices=SHIPPED, domains={}, tasks=None, digesters=None)


class StoreSuite:
    """A way to open an empty store, and what it must do."""

    def __init__(
        self, opened: Callable[[], Store], *, files: Callable[[Store], Iterable[Path]] | None = None
    ) -> None:
        self._opened = opened
        self._files = files

    def complaints(self, *checks: str) -> list[str]:
        """Run some checks, or all, and say what should not be."""
        out: list[str] = []
        for name in checks or CHECKS:
            store = self._opened()
            try:
                out += [f"{name}: {what}" for what in getattr(self, name)(store)]
            finally:
                store.close()
        return out

    # -- keeping ------------------------------------------------------------------------

    def empty(self, store: Store) -> Iterator[str]:
        """Nothing is in a new store, and asking it breaks nothing."""
        if store.known().sessions or list(store.sessions()):
            yield "a new store holds sessions"
        if store.load_session("claude:none") is not None:
            yield "a session is held that was never written"
        if store.search(parse("anything")).matches:
            yield "a new store answers"

    def round_trip(self, store: Store) -> Iterator[str]:
        """What is written is read back: row, cursor, facts, states, payloads."""
        change = _session(store, "one", "hello there", "general reply")
        store.write([change])
        stored = store.load_session("claude:one")
        if stored is None:
            yield "a session that was written is not held"
            return
        if stored.cursor != change.cursor or len(stored.facts) != len(change.events):
            yield "cursor or facts came back changed"
        prints = sorted(fingerprint(row, with_ref=False) for row in change.events)
        if _prints(store, "claude:one") != prints:
            yield "events are missing, or came back changed"
        yield from self._ranges(store)
        bodies = [
            store.blobs.read(block.ref)
            for fact in stored.facts
            for block in fact.blocks
            if block.ref is not None
        ]
        if not any(b"hello there" in body for body in bodies):
            yield "a payload did not come back"
        listed = [row.session.session_uid for row in store.sessions()]
        if listed != ["claude:one"]:
            yield f"listed as {listed}"
        if store.known().sessions["claude:one"].cursor != change.cursor:
            yield "the inventory has another cursor"
        some = store.known(["claude:one", "claude:none"]).sessions
        if list(some) != ["claude:one"] or some["claude:one"].cursor != change.cursor:
            yield "the inventory of some sessions is not that of these"
        if store.known([]).sessions:
            yield "the inventory of no session holds some"

    def _ranges(self, store: Store) -> Iterator[str]:
        """Read parts of a session of two events."""
        rows = list(store.events("claude:one"))
        first, last = rows[0].event.event_id, rows[-1].event.event_id
        parts = [
            list(store.events("claude:one", limit=1)),
            list(store.events("claude:one", after=rows[0].seq)),
            list(store.events("claude:one", after=rows[-1].seq)),
            list(store.events("claude:one", ids=(last, last))),
            list(store.events("claude:one", ids=(first, first), after=rows[0].seq)),
        ]
        if parts != [rows[:1], rows[1:], [], rows[1:], []]:
            yield "a part of a session's events is another one than was asked for"

    def growth(self, store: Store) -> Iterator[str]:
        """A session that goes on keeps its events; changed states are changed; digests are due."""
        change = _session(store, "one", "hello")
        store.write([change])
        store.write(digests=[_digest("claude:one", 1)])
        stored = store.load_session("claude:one")
        if stored is None:
            yield "the session is not held"
            return
        more = _grow(store, stored, "one", "hello", "again")
        first = change.events[0].event
        event = msgspec.structs.replace(first, state=State.DEAD, tokens=7, tool="Bash")
        row = StoredEvent(event, derived=(DerivedEvent("retry", "again"),))
        more.altered = [row]
        store.write([more])
        after = store.load_session("claude:one")
        rows = list(store.events("claude:one"))
        if after is None or len(rows) != 2:
            yield "growing lost or doubled events"
        elif fingerprint(rows[0]) != fingerprint(row):
            yield "an event that changed is the old one"
        retries = store.search(parse("kind:retry hello")).matches
        if [derived_id("claude:one", "retry", event.event_id)] != [hit.event_id for hit in retries]:
            yield "an event is not found by the kind that is derived from it"
        if after is not None:
            last = _grow(store, after, "one", "hello", "again", "and again")
            last.vanished = [event.event_id]
            store.write([last])
        counts = (
            len(store.search(parse("hello")).matches),
            len(store.search(parse("again")).matches),
        )
        if counts != (0, 2):
            yield "an event that vanished is found, or others are not"
        if store.known().sessions["claude:one"].analysed:
            yield "a session that grew still counts as analysed"

    def continuing(self, store: Store) -> Iterator[str]:
        """A session that was written line by line is the one that is written at once."""
        texts = [f"text number{n}" for n in range(_LINES)]
        store.write([_session(store, "one", texts[0])])
        for count in range(2, _LINES + 1):
            stored = store.load_session("claude:one")
            store.write([_grow(store, stored, "one", *texts[:count])] if stored else [])
        tail = store.tail("claude:one")
        if tail is None or tail.state is None:
            yield "no state is kept by which the session could be continued"
            return
        new = _grow(store, _load(store, "claude:one"), "one", *texts, "the last")
        new.calls = [call_key("made")]
        store.write([new])
        yield from self._check_index(store, new)
        if (
            store.facts_after("claude:one", tail.position, tail.state.lines)
            != _load(store, "claude:one").facts[-1:]
        ):
            yield "the facts after those that were known are not the new one"
        grown = _comparable(store, "claude:one")
        again = _session(store, "one", *texts, "the last")
        again.row = msgspec.structs.replace(again.row, change=new.row.change + 1)
        store.write([again])
        if grown != _comparable(store, "claude:one"):
            yield "a session that grew differs from the same session written at once"
        tail = store.tail("claude:one")
        if tail is None or tail.index.has_call("made"):
            yield "a call is known of what was replaced"
        store.remove(["claude:one"], why={})
        if store.tail("claude:one") is not None:
            yield "an evicted session has an end"

    def _check_index(self, store: Store, new: SessionChange) -> Iterator[str]:
        """Look up what is stored of a session, and what is not."""
        tail = store.tail("claude:one")
        known = tail is not None and (
            tail.index.has_event(new.events[0].event.event_id),
            tail.index.has_call("made"),
            tail.index.has_bill("one-0"),
            tail.index.has_event(7),
            tail.index.has_call("another"),
            tail.index.has_bill("another"),
        )
        if known != (True, True, True, False, False, False):
            yield f"events, calls and bills are looked up as {known}"

    def all_or_nothing(self, store: Store) -> Iterator[str]:
        """A write that fails on the way leaves no trace."""
        good, bad = _session(store, "good", "fine"), _session(store, "bad", "broken")
        event = msgspec.structs.replace(bad.events[0].event, tokens="not a number")
        bad.events = [msgspec.structs.replace(bad.events[0], event=event)]
        bad.claims = ["not a number"]  # type: ignore[list-item]
        try:
            store.write([good, bad])
        except Exception:  # noqa: BLE001 - which error is the backend's own business
            if list(store.sessions()):
                yield "half of a write is there"
            return
        yield "a write of nonsense was taken"

    def writing_twice(self, store: Store) -> Iterator[str]:
        """The same change again changes nothing but its number."""
        change = _session(store, "one", "hello", "world")
        store.write([change])
        store.write([change])
        stored = store.load_session("claude:one")
        if stored is None or len(_prints(store, "claude:one")) != 2 or len(stored.facts) != 2:
            yield "writing twice doubled something"
        if len(store.search(parse("hello")).matches) != 1:
            yield "writing twice doubled the words of an event"

    def digests(self, store: Store) -> Iterator[str]:
        """A digest counts for the state it was made of, and stays when a newer one is due."""
        store.write([_session(store, "one", "hello")])
        store.write(digests=[_digest("claude:one", 99)])
        if store.known().sessions["claude:one"].analysed:
            yield "a digest of another state was taken for this one's"
        store.write(digests=[_digest("claude:one", 1, outcome="success")])
        known = store.known().sessions["claude:one"]
        if not known.analysed:
            yield "the session does not count as analysed"
        if known.digest != _DIGEST_VERSION:
            yield f"the version of the digest came back as {known.digest}"
        digests = list(store.read_table("digests"))
        if [(entry["uid"], entry.get("title")) for entry in digests] != [("claude:one", "t")]:
            yield f"the digest came back as {digests}"
        signals = list(store.read_table("signals"))
        if [(entry["uid"], entry["kind"]) for entry in signals] != [("claude:one", "retry_loop")]:
            yield f"signals came back as {signals}"
        if [row.session.outcome for row in store.sessions()] != ["success"]:
            yield "the outcome is not in the list"

    def owners(self, store: Store) -> Iterator[str]:
        """Who claims first owns; who claims later is told of it."""
        first, second = _session(store, "one", "a"), _session(store, "two", "b")
        first.claims, second.claims = [1, 2], [2, 3]
        if kin := store.write([first]):
            yield f"a first claim met {kin}"
        if (kin := store.write([second])) != {"claude:two": {"claude:one"}}:
            yield f"a second claim was told of {kin}"
        store.remove(["claude:one"], why={})
        third = _session(store, "three", "c")
        third.claims = [1]
        if store.write([third]) != {"claude:three": {"claude:one", "claude:two"}}:
            yield "ownership did not survive eviction, or kin of kin are not told"

    def foreign(self, store: Store) -> Iterator[str]:
        """What an evicted session owns stays its own; what another one took over does not."""
        bill = owner_key("bill", "two-0")
        first, second = _session(store, "one", "a"), _session(store, "two", "b")
        first.claims, second.claims = [bill], [bill]
        store.write([first])
        store.write([second])
        stored = store.load_session("claude:two")
        if stored is None or stored.foreign:
            yield "a bill is foreign though its owner is held"
        store.remove(["claude:one"], why={})
        stored = store.load_session("claude:two")
        if stored is None or stored.foreign != {bill}:
            yield "a bill that an evicted session owns is not foreign"
            return
        more = _grow(store, stored, "two", "b", "c")
        more.owned = [(bill, "claude:two")]
        store.write([more])
        stored = store.load_session("claude:two")
        if stored is None or stored.foreign:
            yield "a bill that was taken over is foreign"

    def restating(self, store: Store) -> Iterator[str]:
        """A row of the same change may say that its source is gone; all else stays."""
        change = _session(store, "one", "hello")
        store.write([change])
        store.write(digests=[_digest("claude:one", 1)])
        row = msgspec.structs.replace(change.row, gone=True, pinned=True, redactor=(1 << 63) - 1)
        store.write([SessionChange(row, change.cursor)])
        known = store.known().sessions["claude:one"]
        if not (known.gone and known.pinned and known.analysed):
            yield f"restated as {known}"
        if (known.redactor, known.reader, known.fold) != (row.redactor, row.reader, row.fold):
            yield "the versions that a session was derived by came back as others"
        stored = store.load_session("claude:one")
        events = len(_prints(store, "claude:one"))
        if stored is None or events != 1 or not list(store.read_table("spend")):
            yield "restating the row lost what it did not tell"
        store.write([_grow(store, stored, "one", "hello", "again")] if stored else [])
        if not store.known().sessions["claude:one"].pinned:
            yield "growing unpinned a session"

    def replacing(self, store: Store) -> Iterator[str]:
        """What is read from the start takes the place of what was there, payloads in the end."""
        store.write([_session(store, "one", "old words")])
        again = _session(store, "one", "new words")
        again.row = msgspec.structs.replace(again.row, change=2)
        store.write([again])
        if store.known().untidy != {"claude:one"}:
            yield "nobody is told that old payloads are left"
        if [len(store.search(parse(text)).matches) for text in ("old", "new")] != [0, 1]:
            yield "the index holds what was replaced"
        stored = store.load_session("claude:one")
        if stored is None or len(stored.facts) != 1:
            yield "what was replaced is still held"
            return
        refs = {block.ref: block.ref for fact in stored.facts for block in fact.blocks if block.ref}
        store.write(
            [SessionChange(stored.row, stored.cursor, pack_facts(stored.facts), renamed=refs)]
        )
        after = store.load_session("claude:one")
        if store.known().untidy or after is None or after.facts != stored.facts:
            yield "renaming refs changed more, or was forgotten"

    # -- reading ------------------------------------------------------------------------

    def listing(self, store: Store) -> Iterator[str]:
        """Filters, orders and pages."""
        for number, name in enumerate(("aa1", "aa2", "bb1")):
            day = f"2026-01-0{number + 1}"
            store.write([_session(store, name, *["text"] * (number + 1), day=day)])
        wanted = {
            "recent": (Filter(), ["bb1", "aa2", "aa1"]),
            "oldest": (Filter(order="oldest"), ["aa1", "aa2", "bb1"]),
            "tokens": (Filter(order="tokens", limit=1), ["bb1"]),
            "prefix": (Filter(uid="aa"), ["aa2", "aa1"]),
            "whole uid": (Filter(uid="claude:aa1"), ["aa1"]),
            "hostile prefix": (Filter(uid="a%"), []),
            "page": (Filter(limit=1, offset=1), ["aa2"]),
            "project": (Filter(project="/P/aa1"), ["aa1"]),
            "part of a project": (Filter(project="aa"), ["aa2", "aa1"]),
            "folder": (Filter(folder="/p/aa1"), ["aa1"]),
            "folder above": (Filter(folder="/p"), ["bb1", "aa2", "aa1"]),
            "part of a folder": (Filter(folder="/p/aa"), []),
            "some": (Filter(uids=("claude:bb1", "claude:aa1", "claude:none")), ["bb1", "aa1"]),
            "none": (Filter(uids=()), []),
            "agent": (Filter(agent="grok"), []),
        }
        for what, (filter_, expected) in wanted.items():
            names = [row.session.native_session_id for row in store.sessions(filter_)]
            if names != expected:
                yield f"{what}: {names} instead of {expected}"
        for name in ("cc2", "cc1"):
            store.write([_session(store, name, "text", day="2026-01-04")])
        names = [row.session.native_session_id for row in store.sessions(Filter(limit=2))]
        if names != ["cc2", "cc1"]:
            yield f"sessions of one moment are not ordered by their uids: {names}"

    def spending(self, store: Store) -> Iterator[str]:
        """What was spent is told by day and model, and written anew, not added, on growth."""
        change = _session(store, "one", "a", "b")
        store.write([change])
        store.write([change])
        rows = list(store.read_table("spend"))
        if [(row["input"], row["output"], row["responses"]) for row in rows] != [(20, 10, 2)]:
            yield f"spent {rows}"
        store.write([_session(store, "two", "c", day="2026-01-03")])
        wanted = {
            "all": (store.totals(), {(): (2, 30, 45)}),
            "day": (store.totals(["day"]), {("2026-01-01",): (1, 20, 30), _DAY: (1, 10, 15)}),
            "since": (store.totals(["day"], Filter(after=_THIRD)), {_DAY: (1, 10, 15)}),
            "slot": (
                store.totals(["slot"]),
                {("2026-01-01T12:00",): (1, 20, 30), (f"{_DAY[0]}T12:00",): (1, 10, 15)},
            ),
            "two": (
                store.totals(["agent", "session"], Filter(project="two")),
                {("claude", "claude:two"): (1, 10, 15)},
            ),
        }
        for what, (totals, expected) in wanted.items():
            sums = {total.key: (total.sessions, total.input, total.unpriced) for total in totals}
            if sums != expected:
                yield f"totals, {what}: {sums} instead of {expected}"
        if sum(total.raw_bytes for total in store.totals(["agent"])) != store.totals()[0].raw_bytes:
            yield "what sessions take depends on how they are grouped"
        bound = _session(store, "three", "d", day="2026-01-03")
        row = msgspec.structs.replace(bound.row, lower_bound=("usage is missing",))
        store.write([msgspec.structs.replace(bound, row=row)])
        marks = {total.key[0]: total.is_lower_bound for total in store.totals(["session"])}
        if [uid for uid, is_bound in marks.items() if is_bound] != ["claude:three"]:
            yield f"lower bounds by session: {marks}"
        by_day = {total.key: total.is_lower_bound for total in store.totals(["day"])}
        if by_day != {("2026-01-01",): False, _DAY: True} or not store.totals()[0].is_lower_bound:
            yield f"lower bounds by day: {by_day}"
        named = [
            row.session.native_session_id for row in store.sessions(Filter(is_lower_bound=True))
        ]
        if named != ["three"]:
            yield f"sessions whose cost is a minimum: {named}"

    def searching(self, store: Store) -> Iterator[str]:
        """Words are found, with the text around them; what was left behind is marked."""
        store.write([_session(store, "one", "nothing", f"the {CANARY} flies")])
        store.write([_session(store, "two", f"another {CANARY}", dead=True)])
        query = parse(CANARY)
        answer = hits(store.search(query), query, store.blobs)
        states = {(hit.session_uid, hit.state) for hit in answer.hits}
        if states != {("claude:one", "live"), ("claude:two", "dead")}:
            yield f"found {states}"
        if not all(CANARY in hit.snippet for hit in answer.hits):
            yield "a snippet does not show what was asked for"
        for text, expected in (
            (f"project:one {CANARY}", 1),
            ("kind:tool_call flies", 0),
            ("absent", 0),
        ):
            hit_count = len(store.search(parse(text)).matches)
            if hit_count != expected:
                yield f"{text!r} finds {hit_count}"
        store.write(digests=[_digest("claude:one", 1)])
        stored = store.load_session("claude:one")
        if stored is not None:
            store.write([_grow(store, stored, "one", *"ab", f"one more {CANARY}")])
        for hit in store.search(query).matches:
            shown = {row.event.event_id: row.event.seq for row in store.events(hit.session_uid)}
            if shown.get(hit.event_id or 0) != hit.seq:
                yield f"a hit has the number {hit.seq}, and not the one it is shown with"

    # -- removing -----------------------------------------------------------------------

    def evicting(self, store: Store) -> Iterator[str]:
        """Rows, words and payloads go, the digest stays and is found, other sessions too."""
        store.write([_session(store, "one", f"secret {CANARY}"), _session(store, "two", "other")])
        store.write(digests=[_digest("claude:one", 1)])
        if pending := store.remove(["claude:one"], why={"claude:one": "asked"}):
            yield f"still pending: {pending}"
        if store.load_session("claude:one") is not None:
            yield "an evicted session is held"
        if places := self._left(store):
            yield f"the words of an evicted session are in {places}"
        if [hit.kind for hit in store.search(parse("digested")).matches] != ["digest"]:
            yield "an evicted session is not found by its digest"
        if store.load_session("claude:two") is None or not store.search(parse("other")).matches:
            yield "another session went with it"
        if [(row["what"], row["why"]) for row in store.read_table("removals")] != [
            ("evict", "asked")
        ]:
            yield "nobody wrote down why"
        store.remove(["claude:two"], why={"claude:two": "no room"}, lost=True)
        last = [(row["what"], row["uid"]) for row in store.read_table("removals")][-1]
        if last != (DATA_LOSS, "claude:two"):
            yield f"a data loss was written down as {last}"
        known = store.known().sessions["claude:one"]
        if not known.evicted:
            yield "the inventory does not tell of the eviction"

    def forgetting(self, store: Store) -> Iterator[str]:
        """Nothing is left but a hash that keeps it from coming back."""
        store.write([_session(store, "one", f"secret {CANARY}")])
        store.write(digests=[_digest("claude:one", 1, title=CANARY)])
        store.remove(["claude:one"], why={}, forget=True)
        inventory = store.known()
        if inventory.sessions or any(store.sessions()) or any(store.read_table("digests")):
            yield "a forgotten session is listed"
        if not inventory.is_forgotten("claude:one") or inventory.is_forgotten("claude:two"):
            yield "the wrong sessions are remembered as forgotten"
        if places := self._left(store):
            yield f"the words of a forgotten session are in {places}"
        try:
            store.remove(["claude:one"], why={})
        except ThenceError:
            return
        yield "a session that is not there was removed again"

    def one_sweeper(self, store: Store) -> Iterator[str]:
        """A second sweep is told that the store is busy, and may go when the first is over."""
        with store.sweeping():
            try:
                with store.sweeping():
                    yield "two sweeps at once"
            except StoreLocked:
                pass
        with store.sweeping():
            pass

    def _left(self, store: Store) -> list[str]:
        """Files of the store that still hold the canary."""
        if self._files is None:
            return []
        word = CANARY.encode()
        return [path.name for path in self._files(store) if word in path.read_bytes()]


# -- made-up sessions -----------------------------------------------------------------------


_DAY, _THIRD = ("2026-01-03",), 1_767_398_400_000


class _BatchReader(QuietAgent):
    """An adapter that knows one session."""

    name = "claude"

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def read(self, source: Source, cursor: Cursor | None = None) -> Batch:  # noqa: ARG002
        return self._batch

    def find(self, root: Path) -> Iterator[Source]:  # noqa: ARG002
        return iter(())

    def at(self, path: Path) -> Source | None:  # noqa: ARG002
        return None


def _facts(name: str, texts: Sequence[str], day: str, *, dead: bool) -> list[Fact]:
    facts = [
        Fact(
            Node(f"{name}-{n}", f"{name}-{n - 1}" if n else None, Is.REPLY),
            "assistant",
            f"{day}T12:00:{n:02}.000Z",
            (Block("assistant_msg", "assistant", text, {"type": "text", "text": text}),),
            line=n + 1,
            model="made-up",
            usage=Usage(10, 5),
            usage_key=f"{name}-{n}",
            about={"cwd": f"/p/{name}"},
        )
        for n, text in enumerate(texts)
    ]
    if dead:  # a later root is the line, and this one a branch left behind
        last = Fact(
            Node(f"{name}-new", None, Is.PROMPT),
            "user",
            f"{day}T13:00:00.000Z",
            (Block("user_msg", "user", "new", {"type": "text", "text": "new"}),),
            line=99,
        )
        facts.append(last)
    return facts


def _session(
    store: Store, name: str, *texts: str, day: str = "2026-01-01", dead: bool = False
) -> SessionChange:
    batch = Batch(_facts(name, texts, day, dead=dead), [], Cursor({"": Mark(1, 2, 3, 4)}))
    return _ingest(store, name, batch, None)


def _grow(store: Store, stored: StoredSession, name: str, *texts: str) -> SessionChange:
    facts = _facts(name, texts, "2026-01-01", dead=False)[len(stored.facts) :]
    return _ingest(store, name, Batch(facts, [], Cursor({"": Mark(1, 2, len(texts), 6)})), stored)


def _ingest(store: Store, name: str, batch: Batch, stored: StoredSession | None) -> SessionChange:
    ingester = Ingester(store.blobs, Gate(key=_KEY), _RULES)
    source = Source("claude", name, (File(f"{name}.jsonl"),))
    tail = store.tail(f"claude:{name}") if stored is not None else None
    grown = (
        Growing(tail, lambda: store.load_session(f"claude:{name}")) if tail is not None else None
    )
    result: IngestResult = ingester.read(_BatchReader(batch), source, None, grown)
    ingester.sync()
    if result.change is None:
        raise AssertionError("nothing was kept")
    return result.change


_DIGEST_VERSION = 7


def _digest(uid: str, change: int, *, outcome: str = "unknown", title: str = "t") -> DigestRecord:
    signals = [{"kind": "retry_loop", "text": "again and again"}]
    values = {"version": _DIGEST_VERSION, "title": title, "text": "digested"}
    return DigestRecord(uid, change, values, signals, outcome)


def _prints(store: Store, uid: str) -> list[int]:
    """Return the fingerprints of the events of a session."""
    return sorted(fingerprint(row, with_ref=False) for row in store.events(uid))


def _load(store: Store, uid: str) -> StoredSession:
    """Return what is stored of a session."""
    stored = store.load_session(uid)
    if stored is None:
        raise AssertionError("nothing is stored")
    return stored


def _comparable(store: Store, uid: str) -> tuple[object, ...]:
    """Return all of a session that does not depend on when it was written."""
    stored = _load(store, uid)
    row = stored.row
    sums = (row.events, row.states, row.spent, row.ticks, row.title, row.turn, row.edges)
    spend = [
        {k: v for k, v in spend_row.items() if k != "uid"}
        for spend_row in store.read_table("spend")
    ]
    facts = [(fact.node, fact.line, fact.usage_key) for fact in stored.facts]
    return _prints(store, uid), facts, sums, spend
