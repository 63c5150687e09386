"""Handlers of the HTML pages: they ask the context, draw, and send. No GET has an effect.

Every template escapes all text; markup comes from `markdown` alone. Pages are whole without any
script: folds are `details`, filters are links and forms, rows that are not drawn are links.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Request, Response, get, post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from thence import __version__
from thence.errors import NotReadable
from thence.format import export_formats
from thence.format.figures import clean, several, short, short_id, size
from thence.format.normal import SessionEvent
from thence.format.readout import Readout
from thence.memory.account import Digest
from thence.memory.cost_totals import PERIODS
from thence.memory.derivation import DIGEST_VERSION
from thence.memory.labels import MAX_NAME_CHARS, MAX_NOTE_CHARS, Label, set_pinned, stored_agent
from thence.memory.local_days import zone_named
from thence.memory.notes import note_events
from thence.memory.open_todos import set_dismissed
from thence.memory.search import begun, named
from thence.memory.session_status import sessions_by_standing
from thence.memory.store import Filter
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
from thence.serve.cards import RANGES
from thence.serve.chart_cache import charts_of
from thence.serve.clock import DisplayClock
from thence.serve.comparison import compare_branch, compare_sessions
from thence.serve.context import AppContext, ContextDependency
from thence.serve.outline import SessionOutline
from thence.serve.session_head import agent_head, head, standing_text, tail
from thence.serve.session_page import SessionPage, find_box
from thence.serve.session_search import Matches, find, paths_of

TEMPLATES: Final = Path(__file__).parent / "web" / "templates"
NAV: Final = (
    ("now", "/", "Now"),
    ("sessions", "/sessions", "Sessions"),
    ("projects", "/projects", "Projects"),
    ("costs", "/costs", "Costs"),
    ("patterns", "/patterns", "Patterns"),
    ("store", "/store", "Store"),
)
PIN_WAIT_S: Final = 10.0
"""Seconds that pinning waits for a sweep to end."""
_EVENT: Final = re.compile(r"e[0-9a-f]{1,13}")
_PART: Final = re.compile(r"(?:[bkcs]\d{1,9})?")

Text = Annotated[str, QueryParameter(max_length=400)]
ShowAll = Annotated[str, QueryParameter(name="whole", max_length=400)]
"""Whether all of something long is wanted; any text means yes."""


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"nav": NAV, "version": __version__, "syntax": list_page.SYNTAX}
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


def load_templates() -> None:
    """Compile all templates, as long as their files are those of this version."""
    for name in _PAGES.list_templates():
        _PAGES.get_template(name)


def _render(name: str, **values: object) -> Response[str]:
    return Response(_PAGES.get_template(name).render(**values), media_type="text/html")


def _render_page(
    context: AppContext, name: str, page: str, json: str, **values: object
) -> Response[str]:
    """Show a page with what all pages have."""
    open_now = sessions_by_standing(context.store, context.now(), context.clock())
    return _render(
        name,
        page=page,
        waiting=len(open_now["waiting"]),
        stored=size(context.store.totals()[0].raw_bytes),
        clock=f"{context.moment(None):%H:%M}",
        json=json,
        is_read_only=context.is_read_only,
        can_write=context.writes,
        max_name=MAX_NAME_CHARS,
        max_note=MAX_NOTE_CHARS,
        **values,
    )


def _file(text: str, name: str, media_type: str = "text/plain") -> Response[str]:
    """Return a text as a file to save, never as a page to show."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    body = text.encode("utf-8", "replace").decode()
    return Response(body, media_type=media_type, headers=headers)


# -- now, sessions, costs, patterns, store --------------------------------------------------


@get("/", include_in_schema=False, sync_to_thread=True)
def now(context: ContextDependency, tz: Text = "") -> Response[str]:
    """Show where things stand; days are those of a zone, this machine's if none is named."""
    made = now_page.page(context, DisplayClock(zone_named(tz)))
    return _render_page(context, "now.html", "now", "/api/now", now=made)


@get("/sessions", include_in_schema=False, sync_to_thread=True)
def sessions(
    context: ContextDependency,
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
) -> Response[str] | Redirect:
    """List sessions, or what a search found in them; what is being typed is sent on as it is meant.

    So the address says what was searched, and finds the same for whoever opens it.
    """
    wanted = list_page.ListQuery(
        *(q, agent, project, model, outcome, standing),
        *(after, before, until, cost, sort, cursor, tz),
    )
    if typing:
        return Redirect(wanted.href(q=begun(q).strip()))
    made = list_page.page(context, wanted, DisplayClock(zone_named(tz)))
    return _render_page(context, "sessions.html", "sessions", "/api/sessions", list=made)


@get("/suggest", include_in_schema=False, sync_to_thread=True)
def suggest(context: ContextDependency, q: Text = "") -> Response[str]:
    """Offer pages and sessions while somebody types into the box at the top."""
    text = " ".join(q.split())
    wanted = list_page.ListQuery(q=begun(q).strip())
    cards, lede = list_page.suggestions(context, wanted, DisplayClock())
    places = [(href, label) for _, href, label in NAV if label.lower().startswith(text.lower())]
    places += projects.places(context, text)
    return _render("suggest.html", places=places, cards=cards, lede=lede, all=wanted.href(), q=text)


@get("/costs", include_in_schema=False, sync_to_thread=True)
def costs(
    context: ContextDependency,
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
    wanted = cost_page.CostQuery(
        named("grouping", by, cost_page.BYS),
        days if days in RANGES or days == cost_page.ALL_TIME else 30,
        named("period", per, PERIODS) if per else "",
        stored_agent(context.store, agent) if agent else "",
        project,
        model,
        day if cost_page.is_date(day) else "",
        tz,
    )
    if form == "csv":
        table = cost_page.as_csv(context, wanted)
        return _file(table, f"costs-by-{table.partition(',')[0]}.csv", "text/csv")
    made = cost_page.page(context, wanted)
    json = f"/api/costs?by={made.heads}"
    costly = cost_page.COSTLY_SESSIONS
    return _render_page(context, "costs.html", "costs", json, costs=made, costly=costly)


@get("/year", include_in_schema=False, sync_to_thread=True)
def year_of_work(
    request: Request[Any, Any, Any], context: ContextDependency, tz: Text = ""
) -> Response[str]:
    """Show the days of a year and the tools that were used lately."""
    made = year.year(context, DisplayClock(zone_named(tz)))
    if "hx-request" in request.headers:
        return _render("_year.html", year=made)
    return _render_page(context, "year.html", "now", "/api/work", year=made)


@get("/projects", include_in_schema=False, sync_to_thread=True)
def all_projects(context: ContextDependency) -> Response[str]:
    """List the projects."""
    made = projects.projects(context, DisplayClock())
    return _render_page(context, "projects.html", "projects", "", projects=made)


@get("/projects/one", include_in_schema=False, sync_to_thread=True)
def one_project(context: ContextDependency, path: Text = "") -> Response[str]:
    """Show one project: its sessions, what they cost, its files and to-dos."""
    made = projects.page(context, path, DisplayClock())
    if made is None:
        raise NotFoundException("no sessions in this folder")
    return _render_page(context, "project.html", "projects", "", made=made)


@get("/patterns", include_in_schema=False, sync_to_thread=True)
def patterns(
    context: ContextDependency, kind: Text = "", days: FromQuery[int] = pattern_page.DEFAULT_DAYS
) -> Response[str]:
    """Show what comes back in many sessions."""
    if kind:
        named("kind", kind, pattern_page.KINDS)
    made = pattern_page.page(context, kind, min(max(days, 1), 3650))
    return _render_page(context, "patterns.html", "patterns", "/api/patterns", patterns=made)


@get("/store", include_in_schema=False, sync_to_thread=True)
def store(context: ContextDependency) -> Response[str]:
    """Show what is kept, and what goes next and why."""
    made = store_page.page(context)
    return _render_page(context, "store.html", "store", "/api/store", store=made)


# -- one session ----------------------------------------------------------------------------


def _show_session(page: SessionPage, name: str = "session.html", **values: object) -> Response[str]:
    """Show a page of one session."""
    fields = {**page.values(), **values}
    return _render_page(page.context, name, "sessions", f"/api{page.base}", **fields)


@get("/sessions/{uid:str}", include_in_schema=False, sync_to_thread=True)
def session(
    context: ContextDependency,
    uid: FromPath[str],
    *,
    at: Text = "",
    q: Text = "",
    end: Text = "",
    show_all: ShowAll = "",
    own: Text = "",
    tz: Text = "",
) -> Response[str]:
    """Show one session, from its start, its end or around an event, with words marked.

    What it continues stands before it, unless only its own part is wanted.
    """
    page = SessionPage(context, uid, tz)
    wanted = at if _EVENT.fullmatch(at) else ""
    if not show_all and not charts_of(context).at_hand(page.row):
        return _show_session(page, again=_once_more(page.base, wanted, q, end))
    try:
        drawing = page.drawing()
    except (NotReadable, OSError):  # its texts are gone; what the digest says is not
        return _show_session(page, digest=_digest(context, page.uid))
    matches = find(page.chart, q, wanted) if q else Matches()
    is_known = bool(wanted) and page.chart.find(wanted) is not None
    if not is_known and matches.matches:
        wanted = matches.matches[0].event
    window = drawing.main(wanted or None, end=end == "1", marking=matches.marking)
    outline = SessionOutline(drawing, window, page.clock, page.base)
    entries, left = outline.entries()
    status = context.now().live.get(page.uid)
    return _show_session(
        page,
        window=window,
        inherited=page.inherited_rows() if not window.start and own != "1" else [],
        tail=tail(page.chart, page.standing, status.waiting_for if status else None),
        map=outline.map(),
        outline=entries,
        jumps=outline.jumps(),
        left_out=left,
        settled=page.last_settled_row(drawing, window),
        live=page.live(),
        finder=find_box(page.base, q, wanted, matches),
    )


def _once_more(base: str, event: str, query: str, end: str) -> str:
    """Return the address at which a large session is laid out while the reader waits."""
    asked = {"whole": "1", "at": event, "q": query, "end": end}
    fields = urlencode({name: value for name, value in asked.items() if value})
    return f"{base}?{fields}" + (f"#{event}" if event else "")


@get("/sessions/{uid:str}/find", include_in_schema=False, sync_to_thread=True)
def find_in_session(context: ContextDependency, uid: FromPath[str], q: Text = "") -> dict[str, Any]:
    """Return the events of a session that have some words, each with the row that shows it."""
    page = SessionPage(context, uid)
    drawing = page.drawing()
    matches = find(page.chart, q)
    paths = paths_of(page.chart)
    rows = [[match.event, drawing.row_id(paths.row(match.row))] for match in matches.matches]
    return {"marks": matches.marking.script, "matches": rows}


def _digest(context: AppContext, uid: str) -> Digest:
    """Return the digest of a session whose log nobody has any more."""
    for digest in context.store.read_table("digests", Filter(uids=(uid,))):
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(digest, Digest)
    return Digest(DIGEST_VERSION, "", "unknown", 0.0, ("its digest is unavailable",))


@get("/sessions/{uid:str}/rows", include_in_schema=False, sync_to_thread=True)
def rows(
    context: ContextDependency,
    uid: FromPath[str],
    part: Text = "",
    start: Annotated[int, QueryParameter(name="from")] = 0,
    end: Annotated[int | None, QueryParameter(name="to")] = None,
) -> Response[str]:
    """Return some rows of a session, for a page that shows other rows of it."""
    page = SessionPage(context, uid)
    window = page.drawing().part(part, start, end) if _PART.fullmatch(part) else None
    if window is None:
        raise NotFoundException(f"no such part: {part}")
    return _render("rows.html", base=page.base, window=window, sub=bool(part))


@get("/sessions/{uid:str}/tail", include_in_schema=False, sync_to_thread=True)
def latest(context: ContextDependency, uid: FromPath[str], after: Text = "") -> Response[str]:
    """Return the rows that follow one, and the live end."""
    page = SessionPage(context, uid)
    name = after.partition("-")[0]
    drawing, window, settled = page.latest(name if _EVENT.fullmatch(name) else "")
    status = context.now().live.get(page.uid)
    return _render(
        "tail.html",
        base=page.base,
        window=window,
        settled=settled,
        tail=tail(drawing.chart, page.standing, status.waiting_for if status else None),
        head=head(page.row, page.standing, page.clock, {}),
    )


@get("/sessions/{uid:str}/event/{event:str}", include_in_schema=False, sync_to_thread=True)
def event(
    request: Request[Any, Any, Any],
    context: ContextDependency,
    uid: FromPath[str],
    event: FromPath[str],
    show_all: ShowAll = "",
) -> Response[str]:
    """Return the content of a folded row: the input of a call and its result."""
    page = SessionPage(context, uid)
    body = (
        page.drawing().body(event, is_complete=bool(show_all)) if _EVENT.fullmatch(event) else None
    )
    if body is None:
        raise NotFoundException(f"no such event: {event}")
    spill = spills.is_offered(page.row, page.chart, event)
    fields = {"base": page.base, "body": body, "event": event, "spill": spill}
    if "hx-request" in request.headers:
        return _render("body.html", **fields)
    return _show_session(page, "event.html", **fields)


@get("/sessions/{uid:str}/text/{event:str}", include_in_schema=False, sync_to_thread=True)
def text(context: ContextDependency, uid: FromPath[str], event: FromPath[str]) -> Response[str]:
    """Return the text of an event as a file: as it was written, never as a page."""
    page = SessionPage(context, uid)
    written = page.drawing().text(event) if _EVENT.fullmatch(event) else None
    if written is None:
        raise NotFoundException(f"no such event: {event}")
    return _file(written, f"{event}.txt")


@get("/sessions/{uid:str}/spill/{event:str}", include_in_schema=False, sync_to_thread=True)
def spill(context: ContextDependency, uid: FromPath[str], event: FromPath[str]) -> Response[str]:
    """Return the whole result of a call that its agent kept beside the log, as a file."""
    page = SessionPage(context, uid)
    output = spills.text(page.row, page.chart, event) if _EVENT.fullmatch(event) else None
    if output is None:
        raise NotFoundException(f"no more of {event} is stored")
    return _file(context.as_stored(output), f"{event}.txt")


@get("/sessions/{uid:str}/export/{form:str}", include_in_schema=False, sync_to_thread=True)
def export(context: ContextDependency, uid: FromPath[str], form: FromPath[str]) -> Response[str]:
    """Return a session as a file to share, as it is stored: secrets are redacted."""
    page = SessionPage(context, uid)
    if form not in _EXPORTS:
        raise NotFoundException(f"no such export: {form}")
    write, media_type, ending = _EXPORTS[form]
    notes = note_events(context.notes(), page.uid)
    label = context.labels().get(page.uid, Label())
    body = "\n".join(write(context.open_session(page.row).session, label, notes))
    name = re.sub(r"[^A-Za-z0-9-]", "", page.row.session.native_session_id)[:13] or "session"
    return _file(body, f"{name}.{ending}", media_type)


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a session is to be pinned."""

    pinned: bool


@post("/sessions/{uid:str}/pin", include_in_schema=False, sync_to_thread=True, status_code=200)
def pin(context: ContextDependency, uid: FromPath[str], data: JSONBody[Pin]) -> dict[str, bool]:
    """Pin a session, so that no storage limit removes it, or unpin it."""
    context.check_writable()
    with context.store.sweeping(PIN_WAIT_S):
        set_pinned(context.store, [context.row(uid)], is_pinned=data.pinned)
    return {"pinned": data.pinned}


class Dismissal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A to-do, and whether it is to be dismissed."""

    todo: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{24}$")]
    dismissed: bool


@post("/todos/dismissed", include_in_schema=False, sync_to_thread=True, status_code=200)
def dismiss(context: ContextDependency, data: JSONBody[Dismissal]) -> dict[str, bool]:
    """Dismiss a to-do, or show it again."""
    context.check_writable()
    set_dismissed(context.home, data.todo, is_dismissed=data.dismissed)
    return {"dismissed": data.dismissed}


_Writer = Callable[[Readout, Label, Sequence[SessionEvent]], Iterator[str]]


def _json_lines(session: Readout, label: Label, notes: Sequence[SessionEvent]) -> Iterator[str]:
    for line in export_formats.lines(session, notes, name=label.name, tags=list(label.tags)):
        yield msgspec.json.encode(line).decode()


def _markdown(session: Readout, label: Label, _notes: Sequence[SessionEvent]) -> Iterator[str]:
    yield export_formats.document(export_formats.markdown(session, name=label.name))


def _html_page(session: Readout, label: Label, _notes: Sequence[SessionEvent]) -> Iterator[str]:
    yield export_formats.document(export_formats.page(session, name=label.name))


_EXPORTS: Final[dict[str, tuple[_Writer, str, str]]] = {
    "markdown": (_markdown, "text/markdown", "md"),
    "html": (_html_page, "text/html", "html"),
    "json": (_json_lines, "application/x-ndjson", "jsonl"),
}
"""How a session is written, and what kind of file that is."""


@get("/sessions/{uid:str}/branch/{event:str}", include_in_schema=False, sync_to_thread=True)
def branch(
    request: Request[Any, Any, Any],
    context: ContextDependency,
    uid: FromPath[str],
    event: FromPath[str],
) -> Response[str] | Redirect:
    """Return the rows of the branch that an event is on, or the page with it opened."""
    page = SessionPage(context, uid)
    chart = page.chart
    position = chart.find(event) if _EVENT.fullmatch(event) else None
    number = chart.branch_by_place.get(position[0]) if position is not None else None
    if number is None:
        raise NotFoundException(f"no branch holds {event}")
    if "hx-request" not in request.headers:
        return Redirect(f"{page.base}?at={event}#{event}")
    window = page.drawing().part(f"b{number}")
    return _render("rows.html", base=page.base, window=window, sub=True)


@get("/sessions/{uid:str}/compare/{number:int}", include_in_schema=False, sync_to_thread=True)
def compare(context: ContextDependency, uid: FromPath[str], number: FromPath[int]) -> Response[str]:
    """Show a discarded branch beside what took its place."""
    page = SessionPage(context, uid)
    drawing = page.drawing()
    outcome, _ = standing_text(page.row, page.standing)
    made = compare_branch(drawing, number, page.base, outcome) if number >= 0 else None
    if made is None:
        raise NotFoundException(f"no such branch: {number}")
    return _show_session(page, "compare.html", made=made, what="Two branches")


@get("/sessions/{uid:str}/beside/{other:str}", include_in_schema=False, sync_to_thread=True)
def beside(context: ContextDependency, uid: FromPath[str], other: FromPath[str]) -> Response[str]:
    """Show two sessions side by side, from where they part."""
    both = (SessionPage(context, uid), SessionPage(context, other))
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
        (standing_text(left.row, left.standing)[0], standing_text(right.row, right.standing)[0]),
    )
    return _show_session(left, "compare.html", made=made, what="Two sessions")


@get("/sessions/{uid:str}/side/{key:str}", include_in_schema=False, sync_to_thread=True)
def side(
    context: ContextDependency,
    uid: FromPath[str],
    key: FromPath[str],
    start: Annotated[int, QueryParameter(name="from")] = 0,
) -> Response[str]:
    """Show a subagent alone."""
    page = SessionPage(context, uid)
    drawing = page.drawing()
    window = drawing.part(key, start) if re.fullmatch(r"s\d{1,9}", key) else None
    if window is None:
        raise NotFoundException(f"no such subagent: {key}")
    chart = page.chart
    channel = list(chart.channels)[int(key[1:])]
    return _show_session(
        page, window=window, head=agent_head(page.head(), chart, channel, page.clock)
    )


# -- errors ---------------------------------------------------------------------------------


def problem(
    request: Request[Any, Any, Any], status: int, title: str, hint: str | None
) -> Response[str] | None:
    """Show what went wrong as a page; None where there is none to show it on."""
    if "hx-request" in request.headers:
        return None
    made = _render(
        "problem.html",
        page="",
        waiting=0,
        stored="…",
        clock="now",
        json="",
        is_read_only=False,
        can_write=False,
        status=status,
        title=title,
        hint=hint or "",
    )
    made.status_code = status
    return made


ROUTES: list[HTTPRouteHandler] = [
    *(now, year_of_work, sessions, suggest, all_projects, one_project, costs, patterns, store),
    *(session, find_in_session, rows, latest, event, text, spill, branch, side),
    *(compare, beside, export, pin, dismiss),
]
