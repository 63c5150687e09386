"""Handlers of the HTML pages."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler

ROUTES: list[HTTPRouteHandler] = []


def problem(
    request: Request[Any, Any, Any], status: int, title: str, hint: str | None
) -> Response[str] | None:
    """Show what went wrong as a page; None where there is none to show it on."""
    del request, status, title, hint
    return None
