"""Changes of other stores under the numbers that they have in the store of a team. Pure."""

from __future__ import annotations

import msgspec

from thence.memory.store import Change, Digested, SessionRow, pack_fold, unpack_fold


def restated(change: Change, there: SessionRow) -> Change:
    """Return a change that says anew of a session what does not come from its events."""
    path = change.row.session.source_path
    told = {name: getattr(change.row, name) for name in ("pinned", "gone", "redactor")}
    session = msgspec.structs.replace(there.session, source_path=path)
    return msgspec.structs.replace(
        change, row=msgspec.structs.replace(there, session=session, **told)
    )


def numbered(change: Change, number: int) -> Change:
    """Return a change under the number that it has in this store; so too in its state."""
    row, fold = change.row, change.fold
    if fold and number != row.change:
        state, spend = unpack_fold(fold)
        if state is not None and state.since == row.change:
            fold = pack_fold(msgspec.structs.replace(state, since=number), spend)
    row = msgspec.structs.replace(row, change=number)
    return msgspec.structs.replace(change, row=row, fold=fold)


def renumbered(made: Digested, change: Change, number: int) -> Digested:
    """Return a digest that covers the change which it covered where it was made."""
    covers = made.change == change.row.change
    return msgspec.structs.replace(made, change=number if covers else number - 1)
