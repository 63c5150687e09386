"""Names of files and segments. Pure text: nothing here looks at a disk.

Every name is ours: made of a uuid we drew or a hash we took, so that no id from a log's content
ever becomes a path. Both the journal, which writes these files, and the native adapter, which
reads them back, ask here.

    sessions/<project-id>/<session>.jsonl          channel 1, first segment
    sessions/<project-id>/<session>.0002.jsonl     later segments; sealed ones end in .zst
    sidechains/<session>/<agent>.jsonl             channel 3
    history.jsonl, history.jsonl.1                 channel 2
    .transcripts/<session>.jsonl                   the same, local to a project
    .transcripts/spill/<session>/<hash>.txt        large results, in the home's spill/ otherwise
    .sidechains/<agent>.jsonl
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from thence.errors import BadArgument

SESSIONS = "sessions"
SIDECHAINS = "sidechains"
SPILL = "spill"
CHECKPOINTS = "checkpoints"
AUDIT = "audit"
QUEUE = "queue"
HISTORY = "history.jsonl"
LOCAL_SESSIONS = ".transcripts"
LOCAL_SIDECHAINS = ".sidechains"
LOCAL_SPILL = f"{LOCAL_SESSIONS}/{SPILL}"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UID = re.compile(r"[A-Za-z0-9_-]{1,40}:[A-Za-z0-9_\[][A-Za-z0-9_.:\[\]-]{0,199}")
_SEGMENT = re.compile(r"([A-Za-z0-9_-]{1,64})(?:\.(\d{4,9}))?\.jsonl(\.zst)?")
_ROLLOVER = re.compile(r"history\.jsonl(?:\.(\d{1,9}))?")


class Segment(msgspec.Struct, frozen=True, order=True):
    """One file of a session: which session, which of its segments, compressed or not."""

    session: str
    number: int = 1
    sealed: bool = False

    def __post_init__(self) -> None:
        """Refuse a session id that is no name: it must not lead out of its folder."""
        if not is_id(self.session):
            raise BadArgument(
                f"not an id: {self.session[:80]!r}", hint="an id has 1 to 64 of A-Z a-z 0-9 _ -"
            )

    @property
    def name(self) -> str:
        """The file's name."""
        number = "" if self.number == 1 else f".{self.number:04d}"
        return f"{self.session}{number}.jsonl{'.zst' if self.sealed else ''}"


def is_id(text: str) -> bool:
    """Whether a text may be used as an id in a name or an address."""
    return _ID.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """Whether a text may name a session of an agent: `agent:id`; an id may be redacted."""
    return _UID.fullmatch(text) is not None


def segment_of(name: str) -> Segment | None:
    """Read a file name back; None when it is none of ours."""
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    session, number, sealed = match.groups()
    segment = Segment(session, int(number or 1), sealed is not None)
    return segment if segment.name == name and segment.number else None


def project_id(cwd: str) -> str:
    """Name the folder of a project: its last name for the eye, a hash for identity."""
    cwd = cwd.rstrip("/\\") or cwd
    last = cwd.replace("\\", "/").rpartition("/")[2]
    shown = re.sub(r"[^A-Za-z0-9]+", "-", last)[:40].strip("-").lower()
    digest = sha256(cwd.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{shown}-{digest}" if shown else digest


def rollover(number: int) -> str:
    """Name the history file that was rolled over so many times; 0 is the current one."""
    return f"{HISTORY}.{number}" if number else HISTORY


def rollover_of(name: str) -> int | None:
    """Read a history file's name back."""
    match = _ROLLOVER.fullmatch(name)
    if match is None:
        return None
    number = int(match[1] or 0)
    return number if rollover(number) == name else None
