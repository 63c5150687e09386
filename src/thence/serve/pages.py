"""Handlers of the HTML pages: they ask the desk, draw, and send. No GET has an effect.

Every template escapes all text; markup comes from `markdown` alone. Pages are whole without any
script: folds are `details`, filters are links and forms, rows that are not drawn are links.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Request, Response, get, post
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from thence import __version__
from thence.errors import NotReadable
from thence.format import forms
from thence.format.figures import clean, several, short, short_id, size
from thence.format.joins import time_of
from thence.format.normal import SessionEvent
from thence.format.whole import SessionGraph
from thence.memory.account import Digest
from thence.memory.bills import PERIODS
from thence.memory.derivation import DIGEST_VERSION
from thence.memory.dismissals import set_dismissed
from thence.memory.labels import MAX_NAME_CHARS, MAX_NOTE_CHARS, Label
from thence.memory.notes import note_events
from thence.memory.pins import set_pinned
from thence.memory.standing import open_sessions
from thence.memory.store import Filter, SessionRow
from thence.memory.zones import millis, zone_named
from thence.serve import (
    cost_page,
    list_page,
    now_page,
    pattern_page,
    projects,
    spills,
    store_page,
    year,
)
from thence.serve.agents import agent_class, agent_label
from thence.serve.cards import named, working_time
from thence.serve.chart import Chart
from thence.serve.charts import charts_of
from thence.serve.clock import Clock
from thence.serve.comparison import compare_branch, compare_sessions
from thence.serve.days import RANGES
from thence.serve.desk import AtDesk, Desk
from thence.serve.finding import Matches, find, paths_of
from thence.serve.head import (
    Head,
    Inherited,
    address,
    agent_head,
    event_address,
    head,
    note_line,
    stands,
    tail,
)
from thence.serve.items import Window
from thence.serve.labels import project_label, project_root
from thence.serve.outline import Outline
from thence.serve.resuming import own_command
from thence.serve.view import Drawing

TEMPLATES: Final = Path(__file__).parent / "web" / "templates"
NAV: Final = (
    ("now", "/", "Now"),
    ("sessions", "/sessions", "Sessions"),
    ("projects", "/projects", "Projects"),
    ("costs", "/costs", "Costs"),
    ("patterns", "/patterns", "Patterns"),
    ("store", "/store", "Store"),
)
LATELY: Final = 2 * 86_400.0
"""Seconds for which a session may be expected to go on."""
NEIGHBOURS: Final = 50
"""Sessions among which the one that ended before another is looked for."""
PIN_WAIT_S: Final = 10.0
"""Seconds that pinning waits for a sweep to end."""
_EVENT: Final = re.compile(r"e[0-9a-f]{1,13}")
_PART: Final = re.compile(r"(?:[bkcs]\d{1,9})?")
_DAY: Final = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")

Text = Annotated[str, QueryParameter(max_length=400)]


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "agent_class": agent_class,
        "agent_label": agent_label,
        "clean": clean,
        "count": several,
        "tokens": short,
        "bytes": size,
    }
    return made


_PAGES: Final = _environment()
for _name in _PAGES.list_templates():
    _PAGES.get_template(_name)  # read once and now: the first page need not wait for it


def _html(name: str, **given: object) -> Response[str]:
    return Response(_PAGES.get_template(name).render(**given), media_type="text/html")


def _shown(desk: Desk, name: str, page: str, json: str, **given: object) -> Response[str]:
    """Show a page with what all pages have."""
    waiting = [
        row
        for row in open_sessions(desk.store, Filter(), desk.now(), desk.clock())
        if desk.now().of(row, desk.clock()) == "waiting"
    ]
    return _html(
        name,
        page=page,
        nav=NAV,
        waiting=len(waiting),
        version=__version__,
        kept=size(desk.store.totals()[0].raw_bytes),
        clock=f"{datetime.fromtimestamp(desk.clock(), UTC).astimezone():%H:%M}",
        json=json,
        is_read_only=desk.is_read_only,
        can_write=desk.writes,
        max_name=MAX_NAME_CHARS,
        max_note=MAX_NOTE_CHARS,
        syntax=list_page.SYNTAX,
        **given,
    )


# -- now, sessions, costs, patterns, store --------------------------------------------------


@get("/", include_in_schema=False, sync_to_thread=True)
def now(desk: AtDesk, tz: Text = "") -> Response[str]:
    """Show where things stand; days are those of a zone, this machine's if none is named."""
    made = now_page.page(desk, Clock(zone_named(tz)))
    return _shown(desk, "now.html", "now", "/api/now", now=made)


@get("/sessions", include_in_schema=False, sync_to_thread=True)
def sessions(
    desk: AtDesk,
    *,
    q: Text = "",
    agent: Text = "",
    project: Text = "",
    model: Text = "",
    outcome: Text = "",
    standing: Text = "",
    after: Text = "",
    before: Text = "",
    until: Text = "",
    cost: Text = "",
    sort: Text = "",
    cursor: Text = "",
    tz: Text = "",
    typing: Text = "",
) -> Response[str]:
    """List sessions, or what a search found in them."""
    wanted = list_page.Wanted(
        *(q, agent, project, model, outcome, standing),
        *(after, before, until, cost, sort, cursor, tz),
    )
    made = list_page.page(desk, wanted, Clock(zone_named(tz)), is_typing=bool(typing))
    return _shown(desk, "sessions.html", "sessions", "/api/sessions", list=made)


@get("/suggest", include_in_schema=False, sync_to_thread=True)
def suggest(desk: AtDesk, q: Text = "") -> Response[str]:
    """Offer pages and sessions while somebody types into the box at the top."""
    text = " ".join(q.split())
    cards, lede = list_page.suggestions(desk, q, Clock())
    places = [(href, label) for _, href, label in NAV if label.lower().startswith(text.lower())]
    places += projects.places(desk, text)
    href = list_page.Wanted(q=q).href()
    return _html("suggest.html", places=places, cards=cards, lede=lede, all=href, q=text)


@get("/costs", include_in_schema=False, sync_to_thread=True)
def costs(
    desk: AtDesk,
    *,
    by: Text = "model",
    days: FromQuery[int] = 30,
    per: Text = "",
    agent: Text = "",
    project: Text = "",
    model: Text = "",
    day: Text = "",
    tz: Text = "",
    form: Text = "",
) -> Response[str]:
    """Show what was spent, or give it as a table for a spreadsheet."""
    wanted = cost_page.Wanted(
        by if by in cost_page.BYS else "model",
        days if days in RANGES or days == cost_page.ALL_TIME else 30,
        per if per in PERIODS else "",
        agent,
        project,
        model,
        day if _is_day(day) else "",
        tz,
    )
    if form == "csv":
        table = cost_page.as_csv(desk, wanted)
        name = table.partition(",")[0]
        headers = {"content-disposition": f'attachment; filename="costs-by-{name}.csv"'}
        return Response(table, media_type="text/csv", headers=headers)
    made = cost_page.page(desk, wanted)
    return _shown(desk, "costs.html", "costs", f"/api/costs?by={made.heads}", costs=made)


def _is_day(text: str) -> bool:
    try:
        return _DAY.fullmatch(text) is not None and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


@get("/year", include_in_schema=False, sync_to_thread=True)
def year_of_work(request: Request[Any, Any, Any], desk: AtDesk, tz: Text = "") -> Response[str]:
    """Show the days of a year and the tools that were used lately."""
    made = year.year(desk, Clock(zone_named(tz)))
    if "hx-request" in request.headers:
        return _html("_year.html", year=made)
    return _shown(desk, "year.html", "now", "", year=made)


@get("/projects", include_in_schema=False, sync_to_thread=True)
def all_projects(desk: AtDesk) -> Response[str]:
    """List the projects."""
    made = projects.projects(desk, Clock())
    return _shown(desk, "projects.html", "projects", "", projects=made)


@get("/projects/one", include_in_schema=False, sync_to_thread=True)
def one_project(desk: AtDesk, path: Text = "") -> Response[str]:
    """Show one project: its sessions, what they cost, its files and to-dos."""
    made = projects.page(desk, path, Clock())
    if made is None:
        raise NotFoundException("no sessions in this folder")
    return _shown(desk, "project.html", "projects", "", made=made)


@get("/patterns", include_in_schema=False, sync_to_thread=True)
def patterns(
    desk: AtDesk, kind: Text = "", days: FromQuery[int] = pattern_page.DAYS
) -> Response[str]:
    """Show what comes back in many sessions."""
    kind = kind if kind in pattern_page.KINDS else ""
    made = pattern_page.page(desk, kind, min(max(days, 1), 3650))
    return _shown(desk, "patterns.html", "patterns", "/api/patterns", patterns=made)


@get("/store", include_in_schema=False, sync_to_thread=True)
def store(desk: AtDesk) -> Response[str]:
    """Show what is kept, and what goes next and why."""
    made = store_page.page(desk)
    return _shown(desk, "store.html", "store", "/api/store", store=made)


# -- one session ----------------------------------------------------------------------------


class Finder(msgspec.Struct, frozen=True):
    """The box that finds words in one session: what it looks for, and where the page stands."""

    query: str = ""
    count: int = 0
    position: int = 0
    """Of the match that is shown, from 1; 0 when none is."""
    previous: str = ""
    next: str = ""
    event: str = ""
    """The event that the page is opened at."""
    terms: str = "[]"
    """The words to mark, as JSON."""


def _finder(base: str, query: str, event: str, matches: Matches) -> Finder:
    """Return the box with the neighbours of the event that is shown."""
    events = [match.event for match in matches.matches]
    terms = msgspec.json.encode(matches.terms).decode()
    if not events:
        return Finder(query, event=event, terms=terms)
    at = matches.position(event)
    before, after = events[at - 1 if at > 0 else -1], events[(at + 1) % len(events)]
    return Finder(
        query,
        len(events),
        at + 1,
        event_address(base, before, query),
        event_address(base, after, query),
        event,
        terms,
    )


class _Session:
    """One session as it is asked for."""

    def __init__(self, desk: Desk, uid: str, tz: str = "") -> None:
        self.desk = desk
        self.row: SessionRow = desk.display([desk.row(uid)])[0]
        self.uid = self.row.session.session_uid
        self.base = address(self.uid)
        self.clock = Clock(zone_named(tz))
        self.standing = desk.now().of(self.row, desk.clock())

    @property
    def chart(self) -> Chart:
        return charts_of(self.desk).get(self.desk, self.row)

    def kept(self) -> dict[str, str]:
        """Give the sessions that this one names and that are kept, by their ids."""
        flavor = self.row.session.flavor
        uids = tuple(edge.uid(flavor) for edge in self.row.edges[:50])
        found = self.desk.store.sessions(Filter(uids=uids)) if uids else ()
        return {row.session.native_session_id: row.session.session_uid for row in found}

    def head(self) -> Head:
        """Return what stands over it."""
        working = working_time(self.desk, self.row)
        made = head(self.row, self.standing, self.clock, self.kept(), working=working)
        folder = self.row.session.cwd
        return msgspec.structs.replace(
            made,
            title=named(self.desk, self.row),
            project=project_label(self.desk, folder),
            project_path=project_root(folder or ""),
        )

    def drawing(self, chart: Chart | None = None) -> Drawing:
        """Return what draws its chart, or that of its end; ties lead to stored sessions."""
        flavor = self.row.session.flavor

        def linked(name: str) -> str | None:
            found = list(self.desk.store.sessions(Filter(uids=(f"{flavor}:{name}",))))
            return found[0].session.session_uid if found else None

        return Drawing(chart or self.chart, self.clock, linked)

    def inherited(self) -> list[Inherited]:
        """Draw what stands on its line in the sessions that it continues, the oldest first."""
        out = []
        for part in self.chart.session.inherited():
            messages = several(part.messages, "message")
            drawn = self.drawing(Chart(part.session)).line(part.places)
            size = len(drawn.items)
            window = msgspec.structs.replace(drawn, start=0, end=size, total=size)
            name, page = short_id(part.session.native), address(part.session.uid)
            out.append(Inherited(name, page, messages, window, drawn.start))
        return out

    def latest(self, after: str) -> tuple[Drawing, Window, str]:
        """Draw the rows that follow one, by the end of the session alone where that suffices.

        Returns also the last row that will not change any more.
        """
        end = charts_of(self.desk).end(self.uid) if after else None
        if end is not None:
            drawing = self.drawing(end)
            window = drawing.after_in_end(after)
            settled = self.settled(drawing, window) if window is not None else ""
            if window is not None and settled:
                return drawing, window, settled
        drawing = self.drawing()
        window = drawing.after(after)
        return drawing, window, self.settled(drawing, window)

    def live(self) -> str:
        """Give the address of what goes on in it, where something may."""
        last = time_of(self.row.session.ended_at)
        passed = self.desk.clock() - last.timestamp() if last else LATELY
        return f"/api{self.base}/live?last=1" if self.standing or passed < LATELY else ""

    def neighbours(self) -> tuple[str, str]:
        """Return the addresses of the sessions that ended just after and just before this one."""
        ended = time_of(self.row.session.ended_at)
        if ended is None:
            return "", ""
        store, end = self.desk.store, self.row.session.ended_at or ""
        after = store.sessions(Filter(after=millis(ended) + 1, order="oldest", limit=1))
        before = store.sessions(Filter(before=millis(ended), order="recent", limit=NEIGHBOURS))
        newer = next((address(row.session.session_uid) for row in after), "")
        older = (row.session for row in before if (row.session.ended_at or "") < end)
        return newer, next((address(session.session_uid) for session in older), "")

    def settled(self, drawing: Drawing, window: Window) -> str:
        """Name the last row that will not change any more; what follows is drawn anew."""
        chart = drawing.chart
        rows = chart.rows
        for at in range(len(rows) - 1, -1, -1):
            row = rows[at]
            block = chart.records[row.place].blocks[row.block]
            if at < window.start:
                return ""
            if block.call not in chart.open_calls:
                return drawing.row_id(rows[at - 1]) if at else ""
        return ""

    def shown(self, name: str = "session.html", **given: object) -> Response[str]:
        """Show its page."""
        fields: dict[str, object] = {
            "window": None,
            "inherited": [],
            "tail": None,
            "map": None,
            "outline": None,
            "jumps": [],
            "left_out": 0,
            "digest": None,
            "again": "",
            "finder": Finder(),
            "settled": "",
            "live": "",
            "base": self.base,
            "neighbours": self.neighbours(),
            "is_pinned": self.row.pinned,
            "label": self.desk.labels().get(self.uid, Label()),
            "own_command": own_command(self.row),
            "head": self.head(),
            "written": [
                note_line(note, self.clock)
                for note in self.desk.notes()
                if note.session_uid == self.uid
            ],
        }
        return _shown(self.desk, name, "sessions", f"/api{self.base}", **{**fields, **given})


@get("/sessions/{uid:str}", include_in_schema=False, sync_to_thread=True)
def session(
    desk: AtDesk,
    uid: FromPath[str],
    *,
    at: Text = "",
    q: Text = "",
    end: Text = "",
    whole: Text = "",
    own: Text = "",
    tz: Text = "",
) -> Response[str]:
    """Show one session, from its start, its end or around an event, with words marked.

    What it continues stands before it, unless only its own part is wanted.
    """
    one = _Session(desk, uid, tz)
    wanted = at if _EVENT.fullmatch(at) else ""
    if not whole and not charts_of(desk).at_hand(one.row):
        return one.shown(again=_once_more(one.base, wanted, q, end))
    try:
        drawing = one.drawing()
    except (NotReadable, OSError):
        return one.shown(digest=_digest(desk, one.uid))
    matches = find(one.chart, q) if q else Matches()
    is_known = bool(wanted) and one.chart.find(wanted) is not None
    if not is_known and matches.matches:
        wanted = matches.matches[0].event
    window = drawing.main(wanted or None, end=end == "1", terms=matches.terms)
    outline = Outline(drawing, window, one.clock, one.base)
    entries, left = outline.entries()
    told = desk.now().live.get(one.uid)
    return one.shown(
        window=window,
        inherited=one.inherited() if not window.start and own != "1" else [],
        tail=tail(one.chart, one.standing, told.waiting_for if told else None),
        map=outline.map(),
        outline=entries,
        jumps=outline.jumps(),
        left_out=left,
        settled=one.settled(drawing, window),
        live=one.live(),
        finder=_finder(one.base, q, wanted, matches),
    )


def _once_more(base: str, event: str, query: str, end: str) -> str:
    """Return the address at which a large session is laid out while the reader waits."""
    asked = {"whole": "1", "at": event, "q": query, "end": end}
    fields = urlencode({name: value for name, value in asked.items() if value})
    return f"{base}?{fields}" + (f"#{event}" if event else "")


@get("/sessions/{uid:str}/find", include_in_schema=False, sync_to_thread=True)
def found_in(desk: AtDesk, uid: FromPath[str], q: Text = "") -> dict[str, Any]:
    """Return the events of a session that have some words, each with the row that shows it."""
    one = _Session(desk, uid)
    drawing = one.drawing()
    matches = find(one.chart, q)
    paths = paths_of(one.chart)
    rows = [[match.event, drawing.row_id(paths.row(match.row))] for match in matches.matches]
    return {"terms": matches.terms, "matches": rows}


def _digest(desk: Desk, uid: str) -> Digest:
    """Give what is left of a session that nobody holds any more."""
    for told in desk.store.read_table("digests", Filter(uids=(uid,))):
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(told, Digest)
    return Digest(DIGEST_VERSION, "", "unknown", 0.0, ("its digest is unavailable",))


@get("/sessions/{uid:str}/rows", include_in_schema=False, sync_to_thread=True)
def rows(
    desk: AtDesk,
    uid: FromPath[str],
    part: Text = "",
    start: Annotated[int, QueryParameter(name="from")] = 0,
    end: Annotated[int | None, QueryParameter(name="to")] = None,
) -> Response[str]:
    """Give some rows of a session, for a page that shows others."""
    one = _Session(desk, uid)
    window = one.drawing().part(part, start, end) if _PART.fullmatch(part) else None
    if window is None:
        raise NotFoundException(f"no such part: {part}")
    return _html("rows.html", base=one.base, window=window, sub=bool(part))


@get("/sessions/{uid:str}/tail", include_in_schema=False, sync_to_thread=True)
def latest(desk: AtDesk, uid: FromPath[str], after: Text = "") -> Response[str]:
    """Give the rows that follow one, and the live end."""
    one = _Session(desk, uid)
    name = after.partition("-")[0]
    drawing, window, settled = one.latest(name if _EVENT.fullmatch(name) else "")
    told = desk.now().live.get(one.uid)
    return _html(
        "tail.html",
        base=one.base,
        window=window,
        settled=settled,
        tail=tail(drawing.chart, one.standing, told.waiting_for if told else None),
        head=head(one.row, one.standing, one.clock, {}),
    )


@get("/sessions/{uid:str}/event/{event:str}", include_in_schema=False, sync_to_thread=True)
def event(
    request: Request[Any, Any, Any],
    desk: AtDesk,
    uid: FromPath[str],
    event: FromPath[str],
    whole: Text = "",
) -> Response[str]:
    """Give what a folded row holds: what was given, and what came back."""
    one = _Session(desk, uid)
    body = one.drawing().body(event, whole=bool(whole)) if _EVENT.fullmatch(event) else None
    if body is None:
        raise NotFoundException(f"no such event: {event}")
    spill = spills.offered(one.row, one.chart, event)
    fields = {"base": one.base, "body": body, "event": event, "spill": spill}
    if "hx-request" in request.headers:
        return _html("body.html", **fields)
    return one.shown("event.html", **fields)


@get("/sessions/{uid:str}/text/{event:str}", include_in_schema=False, sync_to_thread=True)
def text(desk: AtDesk, uid: FromPath[str], event: FromPath[str]) -> Response[str]:
    """Give the text of an event as a file: as it was written, never as a page."""
    one = _Session(desk, uid)
    found = one.drawing().text(event) if _EVENT.fullmatch(event) else None
    if found is None:
        raise NotFoundException(f"no such event: {event}")
    headers = {"content-disposition": f'attachment; filename="{event}.txt"'}
    body = found.encode("utf-8", "replace").decode()
    return Response(body, media_type="text/plain", headers=headers)


@get("/sessions/{uid:str}/spill/{event:str}", include_in_schema=False, sync_to_thread=True)
def spill(desk: AtDesk, uid: FromPath[str], event: FromPath[str]) -> Response[str]:
    """Give the whole result of a call that its agent kept beside the log, as a file."""
    one = _Session(desk, uid)
    found = spills.text(one.row, one.chart, event) if _EVENT.fullmatch(event) else None
    if found is None:
        raise NotFoundException(f"no more of {event} is stored")
    headers = {"content-disposition": f'attachment; filename="{event}.txt"'}
    return Response(desk.redacted(found), media_type="text/plain", headers=headers)


@get("/sessions/{uid:str}/export/{form:str}", include_in_schema=False, sync_to_thread=True)
def export(desk: AtDesk, uid: FromPath[str], form: FromPath[str]) -> Response[str]:
    """Give a session as a file to share, as it is stored: secrets are redacted."""
    one = _Session(desk, uid)
    if form not in _EXPORTS:
        raise NotFoundException(f"no such export: {form}")
    write, media_type, ending = _EXPORTS[form]
    notes = note_events(desk.notes(), one.uid)
    label = desk.labels().get(one.uid, Label())
    body = "\n".join(write(desk.whole(one.row).whole, label, notes))
    name = re.sub(r"[^A-Za-z0-9-]", "", one.row.session.native_session_id)[:13] or "session"
    headers = {"content-disposition": f'attachment; filename="{name}.{ending}"'}
    body = body.encode("utf-8", "replace").decode()
    return Response(body, media_type=media_type, headers=headers)


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a session is to be pinned."""

    pinned: bool


@post("/sessions/{uid:str}/pin", include_in_schema=False, sync_to_thread=True, status_code=200)
def pin(desk: AtDesk, uid: FromPath[str], data: JSONBody[Pin]) -> dict[str, bool]:
    """Pin a session, so that no storage limit removes it, or unpin it."""
    if not desk.writes:
        raise PermissionDeniedException("this store is read-only")
    with desk.store.sweeping(PIN_WAIT_S):
        set_pinned(desk.store, [desk.row(uid)], is_pinned=data.pinned)
    return {"pinned": data.pinned}


class Dismissal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A to-do, and whether it is to be dismissed."""

    todo: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{24}$")]
    dismissed: bool


@post("/todos/dismissed", include_in_schema=False, sync_to_thread=True, status_code=200)
def dismiss(desk: AtDesk, data: JSONBody[Dismissal]) -> dict[str, bool]:
    """Dismiss a to-do, or show it again."""
    if not desk.writes:
        raise PermissionDeniedException("this store is read-only")
    set_dismissed(desk.home, data.todo, is_dismissed=data.dismissed)
    return {"dismissed": data.dismissed}


_Writer = Callable[[SessionGraph, Label, Sequence[SessionEvent]], Iterator[str]]


def _json_lines(whole: SessionGraph, label: Label, notes: Sequence[SessionEvent]) -> Iterator[str]:
    for line in forms.lines(whole, notes, name=label.name, tags=list(label.tags)):
        yield msgspec.json.encode(line).decode()


def _markdown(whole: SessionGraph, label: Label, _notes: Sequence[SessionEvent]) -> Iterator[str]:
    return forms.markdown(whole, name=label.name)


def _html_page(whole: SessionGraph, label: Label, _notes: Sequence[SessionEvent]) -> Iterator[str]:
    return forms.page(whole, name=label.name)


_EXPORTS: Final[dict[str, tuple[_Writer, str, str]]] = {
    "markdown": (_markdown, "text/markdown", "md"),
    "html": (_html_page, "text/html", "html"),
    "json": (_json_lines, "application/x-ndjson", "jsonl"),
}
"""How a session is written, and what kind of file that is."""


@get("/sessions/{uid:str}/branch/{event:str}", include_in_schema=False, sync_to_thread=True)
def branch(
    request: Request[Any, Any, Any], desk: AtDesk, uid: FromPath[str], event: FromPath[str]
) -> Response[str] | Redirect:
    """Give the rows of the branch that an event is on, or the page with it opened."""
    one = _Session(desk, uid)
    chart = one.chart
    found = chart.find(event) if _EVENT.fullmatch(event) else None
    number = chart.branch_at(found[0]) if found is not None else None
    if number is None:
        raise NotFoundException(f"no branch holds {event}")
    if "hx-request" not in request.headers:
        return Redirect(f"{one.base}?at={event}#{event}")
    window = one.drawing().part(f"b{number}")
    return _html("rows.html", base=one.base, window=window, sub=True)


@get("/sessions/{uid:str}/compare/{number:int}", include_in_schema=False, sync_to_thread=True)
def compare(desk: AtDesk, uid: FromPath[str], number: FromPath[int]) -> Response[str]:
    """Show a discarded branch beside what took its place."""
    one = _Session(desk, uid)
    drawing = one.drawing()
    outcome, _ = stands(one.row, one.standing)
    made = compare_branch(drawing, number, one.base, outcome) if number >= 0 else None
    if made is None:
        raise NotFoundException(f"no such branch: {number}")
    return one.shown("compare.html", made=made, what="Two branches")


@get("/sessions/{uid:str}/beside/{other:str}", include_in_schema=False, sync_to_thread=True)
def beside(desk: AtDesk, uid: FromPath[str], other: FromPath[str]) -> Response[str]:
    """Show two sessions side by side, from where they part."""
    both = (_Session(desk, uid), _Session(desk, other))
    left, right = both
    if left.uid == right.uid:
        raise NotFoundException("a session cannot be compared with itself")
    made = compare_sessions(
        (left.drawing(), right.drawing()),
        (
            f"{short_id(left.row.session.native_session_id)}, {left.head().title}",
            f"{short_id(right.row.session.native_session_id)}, {right.head().title}",
        ),
        (left.base, right.base),
        (stands(left.row, left.standing)[0], stands(right.row, right.standing)[0]),
    )
    return left.shown("compare.html", made=made, what="Two sessions")


@get("/sessions/{uid:str}/side/{key:str}", include_in_schema=False, sync_to_thread=True)
def side(
    desk: AtDesk,
    uid: FromPath[str],
    key: FromPath[str],
    start: Annotated[int, QueryParameter(name="from")] = 0,
) -> Response[str]:
    """Show a subagent alone."""
    one = _Session(desk, uid)
    drawing = one.drawing()
    window = drawing.part(key, start) if re.fullmatch(r"s\d{1,9}", key) else None
    if window is None:
        raise NotFoundException(f"no such subagent: {key}")
    chart = one.chart
    channel = list(chart.channels)[int(key[1:])]
    return one.shown(window=window, head=agent_head(one.head(), chart, channel, one.clock))


# -- errors ---------------------------------------------------------------------------------


def problem(
    request: Request[Any, Any, Any], status: int, title: str, hint: str | None
) -> Response[str] | None:
    """Show what went wrong as a page; None where there is none to show it on."""
    if "hx-request" in request.headers:
        return None
    made = _html(
        "problem.html",
        page="",
        nav=NAV,
        waiting=0,
        version=__version__,
        kept="…",
        clock="now",
        json="",
        is_read_only=False,
        can_write=False,
        syntax=list_page.SYNTAX,
        status=status,
        title=title,
        hint=hint or "",
    )
    made.status_code = status
    return made


ROUTES: list[HTTPRouteHandler] = [
    *(now, year_of_work, sessions, suggest, all_projects, one_project, costs, patterns, store),
    *(session, found_in, rows, latest, event, text, spill, branch, side),
    *(compare, beside, export, pin, dismiss),
]
