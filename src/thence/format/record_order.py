"""Records in the order in which they were written, each with a name of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from thence.format import fact_assembly
from thence.format.copies import place_of
from thence.format.facts import (
    Fact,
    is_line_name,
)


def in_written_order(facts: Iterable[Fact]) -> list[Fact]:
    """Sort facts as they were written; a line that was read twice is read once.

    Records salvaged from one line share its place; they were read together, in their order.
    """
    in_order = list(facts)
    if _is_in_order(in_order):
        return in_order
    ordered = sorted(in_order, key=lambda f: (f.file, f.generation, f.line))
    read: dict[tuple[str, int, int], list[Fact]] = {}
    out: list[Fact] = []
    for fact in ordered:
        known = read.setdefault((fact.file, fact.generation, fact.line), [])
        if fact in known:
            continue
        known.append(fact)
        out.append(fact)
    return out


def _is_in_order(facts: list[Fact]) -> bool:
    """Whether facts stand in written order, none of them twice, as nearly always."""
    file, generation, line, begin = "", 0, -1, 0  # of the last one, and the first on its line
    for at, fact in enumerate(facts):
        if fact.line > line and fact.file == file and fact.generation == generation:
            line, begin = fact.line, at
            continue
        now, last = (fact.file, fact.generation, fact.line), (file, generation, line)
        if now < last or (now == last and fact in facts[begin:at]):
            return False
        if now != last:
            file, generation, line, begin = *now, at
    return True


def name_repeats(facts: list[Fact]) -> list[Fact]:
    """Return facts in which repeated records without an id have names of their own."""
    if len({fact.node.id for fact in facts}) == len(facts):
        return facts
    if any(fact.piece is not None for fact in facts):
        facts = fact_assembly.latest_texts(facts)
    times: dict[tuple[str, int, str], int] = {}
    out = facts
    for at, fact in enumerate(facts):
        name = fact.node.id
        if not is_line_name(name) or not fact.blocks:
            continue
        line = name, fact.generation, place_of(fact.file)
        before = times.get(line, 0)
        times[line] = before + 1
        if before:
            out = list(facts) if out is facts else out
            out[at] = named_repeat(fact, before)
    return out


def named_repeat(fact: Fact, before: int) -> Fact:
    """Return a record without an id under the name it has after so many of the same bytes."""
    node = msgspec.structs.replace(fact.node, id=f"{fact.node.id}~{before}")
    return msgspec.structs.replace(fact, node=node)


def last_of_runs(facts: list[Fact]) -> Iterator[Fact]:
    """Yield of facts in written order those after which another log or generation begins."""
    for fact, after in pairwise(facts):
        if after.line < fact.line or after.file != fact.file:
            yield fact
    yield from facts[-1:]
