"""The JSON beside every page."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from thence.format.records import JSON
from thence.memory.standing import session_object
from thence.serve.desk import AtDesk


@get("/api/sessions", sync_to_thread=True)
def many(desk: AtDesk) -> list[dict[str, JSON]]:
    """Sessions."""
    return [session_object(row) for row in desk.store.sessions()]


@get("/api/sessions/{uid:str}", sync_to_thread=True)
def one(desk: AtDesk, uid: FromPath[str]) -> dict[str, JSON]:
    """One session."""
    row = desk.row(uid)
    return session_object(row, desk.now().of(row))


ROUTES: list[HTTPRouteHandler] = [one, many]
