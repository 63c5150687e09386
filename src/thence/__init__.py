"""thence: the session layer for coding agents.

    journal = thence.Journal()                  # in $THENCE_HOME or ~/.thence
    with journal.create(cwd=".") as session:    # a thence.Session
        session.record("user", {"role": "user", "content": "Hello"})

Importing this package stays light: no database, no asyncio, no web framework. `Journal` and
`Session` are imported when they are first asked for. `thence.Journal` is `thence.journal.Journal`
with defaults from the environment; this module and the command line are all that read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thence.errors import ThenceError

if TYPE_CHECKING:
    from pathlib import Path

    from thence.format.state import Domains
    from thence.journal import Journal as _Journal
    from thence.journal import Session
    from thence.journal.log import Durability

    class Journal(_Journal):
        """The journal of one home folder. What is None comes from the environment."""

        def __init__(
            self,
            root: Path | str | None = None,
            *,
            durability: Durability = ...,
            local: Path | str | None = ...,
            enabled: bool | None = None,
            domains: Domains | None = ...,
            sidechain_cap: int = ...,
            max_bytes: int = ...,
            history_retain_days: float | None = None,
            idle_timeout: float | None = None,
            approval_timeout: float | None = None,
            spill_per_result: int = ...,
            spill_per_session: int = ...,
        ) -> None: ...


__all__ = ["Journal", "Session", "ThenceError", "__version__"]

__version__ = "0.2.0"


def _journal() -> object:
    """Make the class that the block for type checkers above describes."""
    from thence import config
    from thence.journal import Journal as Base

    from_environment = {
        "enabled": config.persistence,
        "history_retain_days": config.history_retain_days,
        "idle_timeout": config.idle_timeout,
        "approval_timeout": config.approval_timeout,
    }

    class Journal(Base):
        """The journal of one home folder. What is None comes from the environment."""

        def __init__(self, root: Any = None, *arguments: Any, **options: Any) -> None:
            for name, read in from_environment.items():
                if options.get(name) is None:
                    options[name] = read()
            super().__init__(config.home() if root is None else root, *arguments, **options)

    Journal.__qualname__ = "Journal"
    Journal.__module__ = __name__
    return Journal


if not TYPE_CHECKING:  # type checkers see the block above, and object to any other name

    def __getattr__(name: str) -> object:
        """Import what a harness embeds when it is first asked for."""
        if name not in ("Journal", "Session"):
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        import thence.journal

        value: object = _journal() if name == "Journal" else thence.journal.Session
        return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
