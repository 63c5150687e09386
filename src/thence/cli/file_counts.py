"""What one log file holds, counted line by line, whoever wrote it. Pure.

These are the plain facts of a single file, by definitions that need no knowledge of a session: a
line is what stands between LFs; a blank line holds nothing; a bad line is not UTF-8, not strict
JSON, or not an object. Nothing is salvaged here, nothing is repaired, no other file is looked at,
so that the numbers can be checked against any other program's.

Invariants: a line is counted once, as blank, good or bad; no line raises; memory holds one line
and the distinct ids, never the records. The kind of log is told by its first records; until then
every kind counts along.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn, Protocol

import msgspec

from thence.format.records import JSON, Place

UNDECIDED = 200
"""How many records are looked at before a log's kind is settled."""

LISTED = 50
"""How many bad lines and broken links are named, not only counted."""

NONE = "(none)"
"""Stands for a type, role or name that is missing or no text."""

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\f\v"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NOWHERE = -1  # a parent that is null
_UNTOLD = -2  # no parent is told, or it is no text

_decode = msgspec.json.Decoder().decode


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_strict = json.JSONDecoder(parse_constant=_refuse).decode


class Family(Protocol):
    """What is counted in one kind of log."""

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        ...

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        ...


# -- lines ----------------------------------------------------------------------------------


class Counts:
    """The counts of one file. Feed it every line with `add`, then ask with `told`."""

    def __init__(self) -> None:
        self.records = 0
        self._lines = self._blank = self._nuls = self._longest = 0
        self._bad: Counter[str] = Counter()
        self._bad_lines: list[int] = []
        self._marks: dict[str, JSON] = {}
        self._ended = True
        self._votes = [0, 0]
        self._families: dict[str, Family] = {
            "claude": Linked(),
            "codex": Wrapped(),
            "other": Other(),
        }

    def add(self, place: Place, raw: bytes | None, *, ended: bool) -> None:
        """Count one line; without its bytes it was too long to be looked at."""
        self._lines += 1
        self._longest = max(self._longest, place.length)
        self._ended = ended
        if raw is None:
            self._count_bad("bad_json", place.line)
            return
        if b"\0" in raw:
            self._nuls += 1
        if place.offset == 0 and raw.startswith(_BOM):
            raw = raw[len(_BOM) :]
            self._marks["bom"] = True
        try:
            value = _decode(raw)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            self._record(value)
        else:
            self._carefully(raw, place.line)

    def _carefully(self, raw: bytes, line: int) -> None:
        """Count a line that the fast decoder did not take: blank, odd but good, or bad."""
        if not raw.strip(_BLANK):
            self._blank += 1
            return
        try:
            value = _strict(raw.decode())
        except UnicodeDecodeError:
            self._count_bad("bad_utf8", line)
        except (ValueError, RecursionError, MemoryError):
            self._count_bad("bad_json", line)
        else:
            if isinstance(value, dict):
                self._record(value)
            else:
                self._count_bad("not_object", line)

    def _count_bad(self, why: str, line: int) -> None:
        self._bad[why] += 1
        if len(self._bad_lines) < LISTED:
            self._bad_lines.append(line)

    def _record(self, record: dict[str, JSON]) -> None:
        if self.records < UNDECIDED:
            self._votes[0] += _looks_linked(record)
            self._votes[1] += _looks_wrapped(record)
        elif self.records == UNDECIDED:
            self._families = {self.family: self._families[self.family]}
        self.records += 1
        for family in self._families.values():
            family.add(record)

    @property
    def family(self) -> str:
        """The kind of log, as far as its first records tell."""
        linked, wrapped = self._votes
        if linked and linked >= wrapped:
            return "claude"
        return "codex" if wrapped else "other"

    def to_dict(self) -> dict[str, JSON]:
        """Return all counts of the file."""
        return {
            "lines": self._lines,
            "blank_lines": self._blank,
            "good_records": self.records,
            "bad_lines": self._bad.total(),
            "bad_utf8": self._bad["bad_utf8"],
            "bad_json": self._bad["bad_json"],
            "not_object": self._bad["not_object"],
            "bad_line_numbers": self._bad_lines,
            "lines_with_nul": self._nuls,
            "longest_line": self._longest,
            "no_final_newline": not self._ended,
            **self._marks,
            "family": self.family,
            **self._families[self.family].to_dict(),
        }


def _looks_linked(record: dict[str, JSON]) -> bool:
    """Whether a record is one of a log whose records name their parents, as Claude Code's do."""
    return (
        "parentUuid" in record
        or ("sessionId" in record and "uuid" in record)
        or ("leafUuid" in record and record.get("type") == "summary")
    )


def _looks_wrapped(record: dict[str, JSON]) -> bool:
    """Whether a record is a rollout's, as Codex writes them: in a wrapper, or bare."""
    if isinstance(record.get("payload"), dict) and "timestamp" in record:
        return True
    kind = record.get("type")
    if "record_type" in record or kind in ("function_call", "function_call_output"):
        return True
    return kind in ("reasoning", "message") and "message" not in record and "role" in record


# -- what is read of a record ---------------------------------------------------------------


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _number(value: JSON) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _sort_counter(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


class _Times:
    """The first and the last time told, compared as texts."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._last: str | None = None

    def add(self, value: JSON) -> None:
        if isinstance(value, str) and value:
            if self._first is None or value < self._first:
                self._first = value
            if self._last is None or value > self._last:
                self._last = value

    def to_dict(self) -> dict[str, JSON]:
        return {"first_timestamp": self._first, "last_timestamp": self._last}


class _Names:
    """Numbers for texts, the same for the same text. A uuid is kept in half of its room."""

    def __init__(self) -> None:
        self._numbers: dict[str | int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        key = int(name.replace("-", ""), 16) if _UUID.fullmatch(name) else name
        return self._numbers.setdefault(key, len(self._numbers))

    def names(self) -> Iterable[str]:
        """All texts, by their number."""
        for key in self._numbers:
            yield key if isinstance(key, str) else _uuid(key)


def _uuid(number: int) -> str:
    digits = f"{number:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


# -- logs whose records are linked ----------------------------------------------------------


class _Links:
    """The parents that records name: roots, tips, broken links, forks, cycles.

    The first record of a uuid says its parent; every record's word counts for who is named.
    """

    def __init__(self) -> None:
        self._names = _Names()
        self._parents = array("i")  # by number; of texts that are only named it stays untold
        self._is = bytearray()  # 1 where a record has this uuid
        self._named = bytearray()  # 1 where a record names it as its parent
        self._child = array("i")  # the first child of each, to know a second one
        self._forks: set[int] = set()
        self._repeated = 0

    def _number(self, name: str) -> int:
        number = self._names.number(name)
        if number == len(self._is):
            self._parents.append(_UNTOLD)
            self._is.append(0)
            self._named.append(0)
            self._child.append(_UNTOLD)
        return number

    def add(self, uuid: str, record: dict[str, JSON]) -> None:
        own = self._number(uuid)
        parent = record.get("parentUuid", _UNTOLD)
        above = _NOWHERE if parent is None else _UNTOLD
        if isinstance(parent, str):
            above = self._number(parent)
            self._named[above] = 1
            if self._child[above] == _UNTOLD:
                self._child[above] = own
            elif self._child[above] != own:
                self._forks.add(above)
        if self._is[own]:
            self._repeated += 1
        else:
            self._is[own] = 1
            self._parents[own] = above

    def to_dict(self) -> dict[str, JSON]:
        parents, known = self._parents, self._is
        lost = {n for n, above in enumerate(parents) if above >= 0 and not known[above]}
        named = sorted(name for n, name in enumerate(self._names.names()) if n in lost)
        return {
            "unique_uuids": sum(known),
            "duplicate_uuid_records": self._repeated,
            "roots": parents.count(_NOWHERE),
            "broken_parents": len(lost),
            "broken_parent_uuids": named[:LISTED],
            "leaves": sum(
                1 for last, named in zip(known, self._named, strict=True) if last > named
            ),
            "uuids_on_cycles": self._on_cycles(),
            "fork_points": len(self._forks),
        }

    def _on_cycles(self) -> int:
        """Count who can be reached from itself. Each is walked over once."""
        walk = array("i", bytes(4 * len(self._is)))
        on_cycle = 0
        for start in range(len(walk)):
            at = start
            while at >= 0 and not walk[at]:
                walk[at] = start + 1
                at = self._parents[at]
            if at >= 0 and walk[at] == start + 1:
                end, on_cycle, at = at, on_cycle + 1, self._parents[at]
                while at != end:
                    on_cycle, at = on_cycle + 1, self._parents[at]
        return on_cycle


TOKENS = ("input", "output", "cache_creation", "cache_read")
_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


class _Bills:
    """Tokens, once per response: the last bill of each counts.

    Responses are known by 64 bits of a hash, which no log can aim at: Python keys it anew in
    every process. Their ids would take more room than all else that is kept.
    """

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}
        self._responses: set[int] = set()
        self._without_id = 0
        self._numbers = array("q")  # four numbers per response
        self._huge: dict[int, list[int]] = {}  # those that no column holds
        self._last = [0] * 4
        self._first = [0] * 4
        self._every = [0] * 4

    def reply(self, response: str | None) -> None:
        """Count a record of a response; several may tell of the same."""
        if response:
            self._responses.add(hash(response))
        else:
            self._without_id += 1

    def add(self, response: str | None, request: str | None, usage: dict[str, JSON]) -> None:
        """Count a bill."""
        bill = [_number(usage.get(name)) for name in _FIELDS]
        _increase(self._every, bill)
        if response is None and request is None:
            _increase(self._last, bill)
            _increase(self._first, bill)
            return
        known = len(self._keys)
        number = self._keys.setdefault(hash((response, request)), known)
        if number == known:
            _increase(self._first, bill)
            self._numbers.extend((0, 0, 0, 0))
        before = self._huge.pop(number, None) or self._numbers[4 * number : 4 * number + 4]
        _increase(self._last, [new - old for new, old in zip(bill, before, strict=True)])
        try:
            self._numbers[4 * number : 4 * number + 4] = array("q", bill)
        except OverflowError:
            self._huge[number] = bill

    def to_dict(self) -> dict[str, JSON]:
        return {
            "assistant_messages": len(self._responses),
            "assistant_without_id": self._without_id,
            "tokens": dict(zip(TOKENS, self._last, strict=True)),
            "tokens_first": dict(zip(TOKENS, self._first, strict=True)),
            "tokens_naive": dict(zip(TOKENS, self._every, strict=True)),
            "token_keys": len(self._keys),
        }


def _increase(total: list[int], by: Iterable[int]) -> None:
    for at, number in enumerate(by):
        total[at] += number


class _Calls:
    """Calls and results, paired by id alone."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._answered: dict[str, bool] = {}

    def made(self, call: str | None) -> None:
        if call:
            self._made.add(call)

    def answered(self, call: str | None, *, failed: bool = False) -> None:
        if call:
            self._answered.setdefault(call, failed)

    @property
    def failed(self) -> int:
        return sum(self._answered.values())

    def to_dict(self) -> dict[str, JSON]:
        return {
            "tool_use": len(self._made),
            "tool_result": len(self._answered),
            "orphaned_tool_use_ids": sorted(self._made - self._answered.keys()),
            "unmatched_tool_result_ids": sorted(self._answered.keys() - self._made),
        }


class Linked:
    """A log whose records are linked by uuids, as Claude Code writes it."""

    def __init__(self) -> None:
        self._links, self._bills, self._calls, self._times = _Links(), _Bills(), _Calls(), _Times()
        self._types: Counter[str] = Counter()
        self._subtypes: Counter[str] = Counter()
        self._blocks: Counter[str] = Counter()
        self._named: dict[str, Counter[str]] = {
            name: Counter() for name in ("version", "sessionId", "agentId", "model")
        }
        self._marked: Counter[str] = Counter()

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        kind = _text(record.get("type")) or NONE
        self._types[kind] += 1
        for name in ("version", "sessionId", "agentId"):
            if value := _text(record.get(name)):
                self._named[name][value] += 1
        for name in ("isSidechain", "isCompactSummary", "isMeta", "isApiErrorMessage"):
            if record.get(name) is True:
                self._marked[name] += 1
        if _text(record.get("logicalParentUuid")):
            self._marked["logical"] += 1
        if kind == "system":
            self._subtypes[_text(record.get("subtype")) or NONE] += 1
        self._times.add(record.get("timestamp"))
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            self._links.add(uuid, record)
        message = _object(record.get("message"))
        if kind == "assistant":
            self._reply(message, _text(record.get("requestId")))
        content = message.get("content")
        if isinstance(content, list):
            self._content(kind, content)

    def _reply(self, message: dict[str, JSON], request: str | None) -> None:
        response = _text(message.get("id"))
        self._bills.reply(response)
        if model := _text(message.get("model")):
            self._named["model"][model] += 1
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._bills.add(response, request, usage)

    def _content(self, kind: str, content: list[JSON]) -> None:
        for block in content:
            if not isinstance(block, dict):
                self._blocks["(not object)"] += 1
                continue
            part = _text(block.get("type")) or NONE
            self._blocks[f"{kind}/{part}"] += 1
            if part == "tool_use" and kind == "assistant":
                self._calls.made(_text(block.get("id")))
            elif part == "tool_result" and kind == "user":
                call = _text(block.get("tool_use_id"))
                self._calls.answered(call, failed=block.get("is_error") is True)

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        return {
            "records_by_type": _sort_counter(self._types),
            "system_subtypes": _sort_counter(self._subtypes),
            "client_versions": _sort_counter(self._named["version"]),
            "session_ids": _sort_counter(self._named["sessionId"]),
            "agent_ids": sorted(self._named["agentId"]),
            "models": _sort_counter(self._named["model"]),
            **self._links.to_dict(),
            "logical_parent_links": self._marked["logical"],
            **self._bills.to_dict(),
            "content_blocks": _sort_counter(self._blocks),
            **self._calls.to_dict(),
            "tool_result_errors": self._calls.failed,
            "sidechain_records": self._marked["isSidechain"],
            "compact_boundaries": self._subtypes["compact_boundary"],
            "microcompact_boundaries": self._subtypes["microcompact_boundary"],
            "compact_summaries": self._marked["isCompactSummary"],
            "summary_records": self._types["summary"],
            "meta_records": self._marked["isMeta"],
            "api_error_messages": self._marked["isApiErrorMessage"],
            **self._times.to_dict(),
        }


# -- logs in wrappers -----------------------------------------------------------------------

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_OUTPUTS = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
)
_BARE = "(bare)"


class Wrapped:
    """A rollout: items in wrappers with a time and a type, or bare ones as old clients wrote."""

    def __init__(self) -> None:
        self._calls, self._times = _Calls(), _Times()
        self._types: Counter[str] = Counter()
        self._items: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        self._named: dict[str, Counter[str]] = {
            name: Counter() for name in ("cli_version", "originator", "model", "id")
        }
        self._wrapped = self._bare = self._bills = 0
        self._total: JSON = None
        self._sum: Counter[str] = Counter()

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        kind = _text(record.get("type")) or NONE
        self._types[kind] += 1
        self._times.add(record.get("timestamp"))
        item = record.get("payload")
        if isinstance(item, dict) and "timestamp" in record:
            self._wrapped += 1
            wrapper = kind
        else:
            self._bare += 1
            item, wrapper = record, _BARE
        what = _text(item.get("type")) or NONE
        self._items[f"{wrapper}/{what}"] += 1
        if wrapper == "session_meta" or (wrapper == _BARE and _is_bare_head(record)):
            self._note(item, ("id", "cli_version", "originator"))
        elif wrapper == "turn_context":
            self._note(item, ("model",))
        elif wrapper == "event_msg" and what == "token_count":
            self._bill(_object(item.get("info")))
        if wrapper in ("response_item", _BARE):
            self._response(what, item)

    def _note(self, item: dict[str, JSON], names: tuple[str, ...]) -> None:
        for name in names:
            if value := _text(item.get(name)):
                self._named[name][value] += 1

    def _response(self, what: str, item: dict[str, JSON]) -> None:
        if what == "message":
            self._roles[_text(item.get("role")) or NONE] += 1
        call = _text(item.get("call_id")) or _text(item.get("id"))
        if what in _CALLS:
            self._calls.made(call)
        elif what in _OUTPUTS:
            self._calls.answered(call)

    def _bill(self, info: dict[str, JSON]) -> None:
        if isinstance(total := info.get("total_token_usage"), dict):
            self._total = total
        if isinstance(last := info.get("last_token_usage"), dict):
            self._bills += 1
            for name, value in last.items():
                self._sum[name] += _number(value)

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        return {
            "records_by_type": _sort_counter(self._types),
            "items": _sort_counter(self._items),
            "wrapped_lines": self._wrapped,
            "bare_lines": self._bare,
            "client_versions": _sort_counter(self._named["cli_version"]),
            "originators": _sort_counter(self._named["originator"]),
            "models": _sort_counter(self._named["model"]),
            "session_ids": sorted(self._named["id"]),
            "session_meta_lines": self._named["id"].total(),
            "messages_by_role": _sort_counter(self._roles),
            **self._calls.to_dict(),
            "token_count_events": self._bills,
            "tokens_total_last": self._total,
            "tokens_sum_of_last": _sort_counter(self._sum),
            "compacted": self._types["compacted"],
            "thread_rolled_back": self._items["event_msg/thread_rolled_back"],
            "turn_aborted": self._items["event_msg/turn_aborted"],
            **self._times.to_dict(),
        }


def _is_bare_head(record: dict[str, JSON]) -> bool:
    return "id" in record and "type" not in record and "timestamp" in record


# -- any other log --------------------------------------------------------------------------


class Other:
    """A log of no kind that is known: types, roles, and ids if it has any."""

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        self._names = _Names()
        self._is: set[int] = set()
        self._named: set[int] = set()
        self._repeated = self._null = 0

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        self._types[_text(record.get("type")) or NONE] += 1
        role = _text(_object(record.get("message")).get("role")) or _text(record.get("role"))
        if role:
            self._roles[role] += 1
        own = _text(record.get("id"))
        if not own:
            return
        number = self._names.number(own)
        self._repeated += number in self._is
        self._is.add(number)
        if "parentId" in record:
            parent = record["parentId"]
            if isinstance(parent, str):
                self._named.add(self._names.number(parent))
            else:
                self._null += 1

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        return {
            "records_by_type": _sort_counter(self._types),
            "messages_by_role": _sort_counter(self._roles),
            "unique_ids": len(self._is),
            "duplicate_ids": self._repeated,
            "null_parentIds": self._null,
            "broken_parentIds": len(self._named - self._is),
        }
