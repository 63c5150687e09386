"""What can go wrong, named for the user's situation.

Every error carries a message that says what happened and, where there is one, a hint that says
what to do next. Foreign data never raises: a bad line is a `format.records.Skipped` value.
"""

from __future__ import annotations


class ThenceError(Exception):
    """The root of every error thence raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SessionNotFound(ThenceError):  # noqa: N818 - named for the situation, not for the class tree
    """No session answers to this id, prefix or path."""

    exit_code = 10


class NotReadable(ThenceError):  # noqa: N818 - named for the situation
    """A file that was asked for cannot be opened or is not a session."""

    exit_code = 1
