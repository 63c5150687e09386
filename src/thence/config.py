"""Settings: the only reader of the environment. Plain values come out, for layers that take them.

    THENCE_HOME                     the folder everything is kept in; ~/.thence when unset
    THENCE_NO_PERSISTENCE           1, true, yes or on: nothing is written
    CLAUDE_NO_SESSION_PERSISTENCE   the same, under the name other tools use
    HISTORY_RETAIN_DAYS             how far back the history is read; all of it when unset
    IDLE_TIMEOUT, APPROVAL_TIMEOUT  seconds; 300 when unset, 0 for never

Invariants: nothing is read before it is asked for, so that a bad value hurts only who needs it;
an empty value counts as unset; a value that makes no sense is a `BadConfig` that names the
variable and the reason, never a silent default. Read by the command line and, when a journal is
made, by `thence` itself; no lower layer knows this module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from thence.errors import BadConfig

HOME = "THENCE_HOME"
OFF = "THENCE_NO_PERSISTENCE"
OFF_ELSEWHERE = "CLAUDE_NO_SESSION_PERSISTENCE"
RETAIN_DAYS = "HISTORY_RETAIN_DAYS"
IDLE = "IDLE_TIMEOUT"
APPROVAL = "APPROVAL_TIMEOUT"

TIMEOUT = 300.0
"""Seconds that a session may rest and a question may wait, unless a variable says otherwise."""

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


def home(env: Mapping[str, str] | None = None) -> Path:
    """Give the folder everything is kept in."""
    told = _told(HOME, env)
    try:
        return Path(told).expanduser().absolute() if told else Path.home() / ".thence"
    except RuntimeError as error:
        raise BadConfig(
            f"{HOME}: {'this home' if told else 'the home of this user'} cannot be found: {error}",
            hint=f"set {HOME} to the full path of a folder",
        ) from error


def persistence(env: Mapping[str, str] | None = None) -> bool:
    """Tell whether sessions are written; either switch is enough to say no."""
    told = _told(OFF, env)
    if told.lower() not in _YES | _NO:
        raise BadConfig(
            f"{OFF}: neither yes nor no: {told[:80]!r}",
            hint="1, true, yes or on write nothing; 0, false, no, off or unset write sessions",
        )
    # The second name belongs to others: what they do not take for a yes is none here either.
    return told.lower() not in _YES and _told(OFF_ELSEWHERE, env).lower() not in _YES


def history_retain_days(env: Mapping[str, str] | None = None) -> float | None:
    """Give the number of days the history is read back; None for all of it."""
    told = _told(RETAIN_DAYS, env)
    if not told:
        return None
    days = _number(RETAIN_DAYS, told, "days", hint="days, such as 30; unset it to see all prompts")
    if not days:
        raise BadConfig(
            f"{RETAIN_DAYS}: 0 days would hide every prompt",
            hint=f"unset it to see all prompts; {OFF}=1 keeps none",
        )
    return days


def idle_timeout(env: Mapping[str, str] | None = None) -> float:
    """Give the seconds a session may rest; 0 means for ever."""
    return _seconds(IDLE, env)


def approval_timeout(env: Mapping[str, str] | None = None) -> float:
    """Give the seconds a question for approval may wait; 0 means for ever."""
    return _seconds(APPROVAL, env)


def _seconds(name: str, env: Mapping[str, str] | None) -> float:
    told = _told(name, env)
    hint = "seconds, such as 300 or 0.5; 0 means never; unset it for the default"
    return _number(name, told, "seconds", hint=hint) if told else TIMEOUT


def _number(name: str, told: str, unit: str, *, hint: str) -> float:
    if _NUMBER.fullmatch(told) is None:
        raise BadConfig(f"{name}: not a number of {unit}: {told[:80]!r}", hint=hint)
    return float(told)


def _told(name: str, env: Mapping[str, str] | None) -> str:
    return (os.environ if env is None else env).get(name, "").strip()
