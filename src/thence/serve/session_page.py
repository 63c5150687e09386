"""What the page of one session is made of: its head, its rows, its neighbours, the box that finds.

`pages` has the handlers; nothing here renders a template.
"""

from __future__ import annotations

import shlex
from typing import Final

import msgspec

from thence.agents.profiles import agent_of
from thence.format.derived_events import time_of
from thence.format.figures import clean, several, short_id
from thence.memory.labels import Label
from thence.memory.local_days import millis, zone_named
from thence.memory.store import Filter, SessionRow
from thence.serve.cards import working_time
from thence.serve.chart import Chart
from thence.serve.chart_cache import charts_of
from thence.serve.clock import DisplayClock
from thence.serve.context import AppContext
from thence.serve.project_names import project_label, project_root
from thence.serve.row_fields import Window
from thence.serve.session_head import Head, InheritedRows, address, event_address, head, note_line
from thence.serve.session_search import Matches
from thence.serve.view import Drawing

RECENT_S: Final = 2 * 86_400.0
"""Seconds for which a session may be expected to go on."""
MAX_NEIGHBOURS: Final = 50
"""Sessions among which the one that ended before another is looked for."""


class FindBox(msgspec.Struct, frozen=True):
    """The box that finds words in one session: what it looks for, and where the page stands."""

    query: str = ""
    count: int = 0
    position: int = 0
    """Of the match that is shown, from 1; 0 when none is."""
    previous: str = ""
    next: str = ""
    event: str = ""
    """The event that the page is opened at."""
    marks: str = ""
    """What to mark: an expression for the browser."""


def find_box(base: str, query: str, event: str, matches: Matches) -> FindBox:
    """Return the box with the neighbours of the event that is shown."""
    events = [match.event for match in matches.matches]
    marks = matches.marking.script
    if not events:
        return FindBox(query, event=event, marks=marks)
    at = matches.position(event)
    before, after = events[at - 1 if at > 0 else -1], events[(at + 1) % len(events)]
    return FindBox(
        query,
        len(events),
        at + 1,
        event_address(base, before, query),
        event_address(base, after, query),
        event,
        marks,
    )


class SessionPage:
    """One session as a request asks for it: its row, its chart, and what its page is made of."""

    def __init__(self, context: AppContext, uid: str, tz: str = "") -> None:
        self.context = context
        self.row: SessionRow = context.display([context.row(uid)])[0]
        self.uid = self.row.session.session_uid
        self.base = address(self.uid)
        self.clock = DisplayClock(zone_named(tz))
        self.standing = context.now().of(self.row, context.clock())

    @property
    def chart(self) -> Chart:
        """The chart of the session."""
        return charts_of(self.context).get(self.context, self.row)

    def stored_uids(self) -> dict[str, str]:
        """Return the uids of stored sessions that this one names, by their ids."""
        flavor = self.row.session.flavor
        uids = tuple(edge.uid(flavor) for edge in self.row.edges[:50])
        rows = self.context.store.sessions(Filter(uids=uids)) if uids else ()
        return {row.session.native_session_id: row.session.session_uid for row in rows}

    def head(self) -> Head:
        """Return what stands over it."""
        working = working_time(self.context, self.row)
        made = head(self.row, self.standing, self.clock, self.stored_uids(), working=working)
        folder = self.row.folder
        return msgspec.structs.replace(
            made,
            project=project_label(self.context, folder),
            project_path=project_root(folder or ""),
        )

    def drawing(self, chart: Chart | None = None) -> Drawing:
        """Return what draws its chart, or that of its end; ties lead to stored sessions."""
        flavor = self.row.session.flavor

        def find_uid(name: str) -> str | None:
            rows = list(self.context.store.sessions(Filter(uids=(f"{flavor}:{name}",))))
            return rows[0].session.session_uid if rows else None

        return Drawing(chart or self.chart, self.clock, find_uid)

    def inherited_rows(self) -> list[InheritedRows]:
        """Draw what stands on its line in the sessions that it continues, the oldest first."""
        out = []
        for part in self.chart.session.inherited():
            messages = several(part.messages, "message")
            drawn = self.drawing(Chart(part.session)).line(part.places)
            size = len(drawn.items)
            name, page = short_id(part.session.native), address(part.session.uid)
            items = [
                msgspec.structs.replace(item, origin=name, lane="replayed") for item in drawn.items
            ]
            window = msgspec.structs.replace(drawn, items=items, start=0, end=size, total=size)
            out.append(InheritedRows(name, page, messages, window, drawn.start))
        return out

    def latest(self, after: str) -> tuple[Drawing, Window, str]:
        """Draw the rows that follow one, by the end of the session alone where that suffices.

        Returns also the last row that will not change any more.
        """
        end = charts_of(self.context).end(self.uid) if after else None
        if end is not None:
            drawing = self.drawing(end)
            window = drawing.after_in_end(after)
            settled = self.last_settled_row(drawing, window) if window is not None else ""
            if window is not None and settled:
                return drawing, window, settled
        drawing = self.drawing()
        window = drawing.after(after)
        return drawing, window, self.last_settled_row(drawing, window)

    def live(self) -> str:
        """Return the address of its live stream; empty if nothing more is expected."""
        last = time_of(self.row.session.ended_at)
        passed = self.context.clock() - last.timestamp() if last else RECENT_S
        return f"/api{self.base}/live?last=1" if self.standing or passed < RECENT_S else ""

    def neighbours(self) -> tuple[str, str]:
        """Return the addresses of the sessions that ended just after and just before this one."""
        ended = time_of(self.row.session.ended_at)
        if ended is None:
            return "", ""
        store, end = self.context.store, self.row.session.ended_at or ""
        after = store.sessions(Filter(after=millis(ended) + 1, order="oldest", limit=1))
        before = store.sessions(Filter(before=millis(ended), order="recent", limit=MAX_NEIGHBOURS))
        newer = next((address(row.session.session_uid) for row in after), "")
        older = (row.session for row in before if (row.session.ended_at or "") < end)
        return newer, next((address(session.session_uid) for session in older), "")

    def last_settled_row(self, drawing: Drawing, window: Window) -> str:
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

    def values(self) -> dict[str, object]:
        """Return the values that the templates of a session need, with nothing drawn yet."""
        return {
            "window": None,
            "inherited": [],
            "tail": None,
            "map": None,
            "outline": None,
            "jumps": [],
            "left_out": 0,
            "digest": None,
            "again": "",
            "finder": FindBox(),
            "settled": "",
            "live": "",
            "base": self.base,
            "neighbours": self.neighbours(),
            "is_pinned": self.row.pinned,
            "label": self.context.labels().get(self.uid, Label()),
            "own_command": own_command(self.row),
            "head": self.head(),
            "written": [
                note_line(note, self.clock)
                for note in self.context.notes()
                if note.session_uid == self.uid
            ],
        }


def own_command(row: SessionRow) -> str:
    """Return what resumes a session in its agent, as a shell reads it; empty if nothing does."""
    session = row.session
    agent = agent_of(session.flavor)
    if agent is None or not agent.offers("resume"):
        return ""
    command = shlex.join(agent.profile.resume_command(session.native_session_id))
    line = f"cd {shlex.quote(session.cwd)} && {command}" if session.cwd else command
    return line if clean(line) == line else ""  # what cannot be shown as it is is not offered
