"""Plants are as the clients write: no field is invented, none is missing that is always there.

A peer that reads real logs rightly must not be called wrong for a plant that no client writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from truth.__main__ import CASES

LOGS = {
    "claude": ("claude-code/*/*/claude", ".claude", "projects/*/*.jsonl"),
    "codex": ("codex/*/codex_home", ".codex", "sessions/**/*.jsonl"),
    "grok": ("grok/*/grok_home", ".grok", "sessions/*/*/[cu]*.jsonl"),
}
"""Homes in data, the home of a plant, and the logs below either."""

OLD = {"event_msg context_compacted", "event_msg thread_rolled_back", "compacted"}
"""What Codex of the planted version writes, and none of the versions that the data is of."""


def kind_of(record: dict[str, object]) -> tuple[str, set[str]]:
    """What a record is, and the fields of what it says."""
    content, kind = record, str(record.get("type"))
    if isinstance(payload := record.get("payload"), dict):
        content = payload
        kind = f"{kind} {payload['type']}" if kind in {"event_msg", "response_item"} else kind
    elif isinstance(params := record.get("params"), dict) and "update" in params:
        content = params["update"]
        kind = str(content["sessionUpdate"])
    elif "subtype" in record:
        kind = f"{kind} {record['subtype']}"
    return kind, set(content)


def fields(paths: Iterable[Path]) -> dict[str, list[set[str]]]:
    """The fields of every record, by what it is; what is torn counts nothing."""
    by_kind: dict[str, list[set[str]]] = {}
    for record in _records(paths):
        kind, names = kind_of(record)
        by_kind.setdefault(kind, []).append(names)
    return by_kind


def _records(paths: Iterable[Path]) -> Iterator[dict[str, object]]:
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


@pytest.mark.parametrize("agent", LOGS)
def test_plants_have_the_fields_of_real_logs(agent: str, shared: Path, tmp_path: Path) -> None:
    """Of every kind of record that is planted."""
    homes, home, logs = LOGS[agent]
    for number, case in enumerate(item for item in CASES if item.agent == agent):
        case.plant(tmp_path / str(number))
    planted = fields(tmp_path.glob(f"*/{home}/{logs}"))
    real = fields(path for item in (shared / "data").glob(homes) for path in item.glob(logs))

    assert planted
    assert set(planted) <= set(real) | OLD
    for kind in planted.keys() & real.keys() - OLD:
        invented = set[str]().union(*planted[kind]).difference(*real[kind])
        always = real[kind][0].intersection(*real[kind])
        missing = always - planted[kind][0].intersection(*planted[kind])

        assert (kind, set(), set()) == (kind, invented, missing)
