"""Pull requests: which ones a session opened, and which sessions worked for one.

A session opened one where its client recorded the link, or a call that creates one printed its
address. Sessions on the same branch of the same repository worked for it as well, unless that is
the branch on which everything ends up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from thence.format import shell
from thence.format.expressions import expression
from thence.format.records import JSON
from thence.memory.store import SessionRow

if TYPE_CHECKING:
    from thence.format.derived_events import Call
    from thence.memory.session_timeline import SessionTimeline
    from thence.memory.tally import Place

MAIN_BRANCHES: Final = frozenset({"main", "master", "trunk", "develop", "dev", "HEAD"})

_LINK = expression(
    r"https?://[\w.:-]{1,120}/((?:[\w.-]{1,100}/){1,6}?[\w.-]{1,100}?)"
    r"/(-/merge_requests|pull)/(\d{1,9})\b"
)
_CREATING: Final = (("gh", "pr", "create"), ("glab", "mr", "create"), ("hub", "pull-request"))
_CREATING_TOOLS: Final = ("create_pull_request", "create_merge_request")
_SCRIPT_CHARS: Final = 4_000


def opened_pulls(timeline: SessionTimeline) -> Iterator[tuple[Place, str]]:
    """Yield the pull requests that calls opened, as `owner/repository#7`, with their places."""
    from thence.memory.session_timeline import (
        event_text,  # digests are made with it loaded; costs need not be
    )

    for pair in timeline.all_calls:
        if pair.result is not None and not pair.outcome.failed and _creates(timeline, pair):
            # What is created is printed last; a description above it may name other ones.
            for name in list(pull_names(event_text(pair.result)))[-1:]:
                yield timeline.places[pair.call.event_id], name


def pull_names(text: str) -> Iterator[str]:
    """Yield the pull requests that links in a text lead to; GitLab's as `group/repository!7`."""
    for match in _LINK.finditer(text):
        yield f"{match[1]}{'#' if match[2] == 'pull' else '!'}{match[3]}"


def _creates(timeline: SessionTimeline, pair: Call) -> bool:
    """Return whether a call creates a pull request."""
    if (pair.call.tool or "").endswith(_CREATING_TOOLS):
        return True
    script = (timeline.script(pair) or "")[:_SCRIPT_CHARS]
    if not any(" ".join(words) in script for words in _CREATING):
        return False
    programs = [tuple(program) for program in shell.programs(script)]
    return any(program[: len(words)] == words for program in programs for words in _CREATING)


def pulls_by_session(
    rows: Iterable[SessionRow], digests: Iterable[Mapping[str, JSON]]
) -> Callable[[SessionRow], list[str | None]]:
    """Return what names the pull requests that a session worked for; [None] for none."""
    own = {digest["uid"]: digest["pulls"] for digest in digests if digest.get("pulls")}
    by_branch: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if (branch := _branch(row)) is not None:
            pulls = own.get(row.session.session_uid, ())
            by_branch.setdefault(branch, {}).update(dict.fromkeys(pulls))

    def pulls_of(row: SessionRow) -> list[str | None]:
        branch = _branch(row)
        others = by_branch[branch] if branch is not None and branch in by_branch else ()
        return list(own.get(row.session.session_uid) or others) or [None]

    return pulls_of


def _branch(row: SessionRow) -> tuple[str, str] | None:
    session = row.session
    if not session.git_branch or session.git_branch in MAIN_BRANCHES:
        return None
    return session.repo or session.cwd or "", session.git_branch
