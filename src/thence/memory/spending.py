"""Money: bills of a session, priced one by one and added up by time, model and branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from thence.format import derived_events
from thence.format.fold import Bill
from thence.format.normal import SessionEvent
from thence.format.records import Usage
from thence.format.stored import StoredEvent
from thence.memory.prices import SYNTHETIC, recorded_ticks, tariff
from thence.memory.store import Spend

if TYPE_CHECKING:
    from thence.memory.pricelist import Prices

_COLUMNS = len(Usage.__struct_fields__) + 3  # numbers of a spend


def bills_of(events: Iterable[SessionEvent], bills: Mapping[int, Usage]) -> list[Bill]:
    """Return the bills that some events carry."""
    return [Bill(event, bills[event.event_id]) for event in events if event.event_id in bills]


def spend_of(
    bills: Iterable[Bill], prices: Prices, known: Mapping[int, int | None] | None = None
) -> list[Spend]:
    """Add up bills by slot of time, model and what became of them; each is priced for itself.

    `known` are the ticks of all of them by the ids of their events, where they were priced before.
    """
    sums: dict[tuple[str, str, str], list[int]] = {}
    for bill in bills:
        event, usage = bill.event, bill.usage
        key = (slot_of(event.ts), event.model or "", derived_events.place_of(event))
        ticks = ticks_of(event, usage, prices) if known is None else known[event.event_id]
        numbers = sums.get(key)
        if numbers is None:
            numbers = sums[key] = [0] * _COLUMNS
        more = (
            *msgspec.structs.astuple(usage),
            1,
            ticks or 0,
            usage.total if ticks is None else 0,
        )
        numbers[:] = map(add, numbers, more)
    return [_sum_spend(key, numbers) for key, numbers in sums.items()]


def slot_of(ts: str | None) -> str:
    """Return the quarter of an hour of UTC that a time lies in: `2026-01-31T13:45`.

    So fine that a day of any time zone is a sum of slots. What is no time gives what may be a day.
    """
    text = ts or ""
    if len(text) != _USUAL or text[-1] != "Z" or not text[14:16].isdigit():
        moment = derived_events.time_of(ts)
        if moment is None:
            return text[:10]
        text = moment.strftime("%Y-%m-%dT%H:%M")
    return f"{text[:14]}{int(text[14:16]) // 15 * 15:02}"


_USUAL = len("2026-01-31T13:45:00.000Z")


def _sum_spend(key: tuple[str, str, str], numbers: Sequence[int]) -> Spend:
    day, model, where = key
    *counts, responses, ticks, unpriced = numbers
    place = cast("Literal['live', 'dead', 'side']", where)
    return Spend(day, model, place, Usage(*counts), responses, ticks, unpriced)


def merge_spend(carried: Sequence[Spend], spend: list[Spend]) -> list[Spend]:
    """Return the sum of what two parts of a session took."""
    if not carried:
        return spend
    sums: dict[tuple[str, str, str], list[int]] = {}
    for part in (*carried, *spend):
        numbers = (*msgspec.structs.astuple(part.usage), part.responses, part.ticks, part.unpriced)
        totals = sums.setdefault((part.day, part.model, part.where), [0] * _COLUMNS)
        for at, number in enumerate(numbers):
            totals[at] += number
    return [_sum_spend(key, numbers) for key, numbers in sums.items()]


def spent_of(spend: Sequence[Spend]) -> derived_events.Spent:
    """Return the tokens of a session by what became of them."""
    sums = {"live": Usage(), "dead": Usage(), "side": Usage()}
    for part in spend:
        sums[part.where] = derived_events.add_usage(sums[part.where], part.usage)
    return derived_events.Spent(**sums, responses=sum(part.responses for part in spend))


def with_price(row: StoredEvent, prices: Prices) -> StoredEvent:
    """Return an event with the price of its bill by a list."""
    usage = row.usage
    if usage is None:
        return row
    return msgspec.structs.replace(row, ticks=ticks_of(row.event, usage, prices))


def ticks_of(event: SessionEvent, usage: Usage, prices: Prices) -> int | None:
    """Say what a bill cost, in ticks; None when nobody knows."""
    if event.cost_usd is not None and event.model != SYNTHETIC:
        ticks = recorded_ticks(event.cost_usd, usage)
        if ticks is not None:
            return ticks
    rates = tariff(prices, event.model or "", (event.ts or "")[:10], event.tier)
    return None if rates is None else rates.ticks(usage)


def spend_from_row(row: Mapping[str, object]) -> Spend:
    """Return a stored row of what was spent as `Spend`."""
    columns = {
        "input_tokens": "input",
        "output_tokens": "output",
        "cache_creation_input_tokens": "cache_creation",
        "cache_read_input_tokens": "cache_read",
        "cache_1h_input_tokens": "cache_1h",
        "web_searches": "searches",
    }
    usage = Usage(**{field: row.get(name) or 0 for field, name in columns.items()})  # type: ignore[arg-type]
    rest = {name: row[name] for name in ("responses", "ticks", "unpriced")}
    return Spend(row["day"], row["model"], row["place"], usage, **rest)  # type: ignore[arg-type]
