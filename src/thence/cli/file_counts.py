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
from collections import Counter, defaultdict
from collections.abc import Iterable
from sys import intern
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

_decode = msgspec.json.Decoder().decode


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_strict = json.JSONDecoder(parse_constant=_refuse).decode


class Family(Protocol):
    """What is counted in one kind of log."""

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""


# -- lines ----------------------------------------------------------------------------------


class Counts:
    """The counts of one file. Feed it every line with `add`, then ask with `to_dict`."""

    def __init__(self) -> None:
        self.records = 0
        self._lines = self._blank = self._nuls = self._longest = 0
        self._bad: Counter[str] = Counter()
        self._bad_lines: list[int] = []
        self._marks: dict[str, JSON] = {}
        self._ended = True
        self._votes = [0, 0]
        kinds: dict[str, Family] = {"claude": Linked(), "codex": Wrapped(), "other": Other()}
        self._families = kinds

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


class _Tally:
    """How often each text was seen, by what it was seen as; and the first and last time."""

    def __init__(self) -> None:
        self._by: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._times: list[str] = []

    def __getitem__(self, name: str) -> Counter[str]:
        return self._by[name]

    def add(self, record: dict[str, JSON], *names: str) -> None:
        """Count the texts that a record has under these names."""
        for name in names:
            if value := _text(record.get(name)):
                self._by[name][value] += 1

    def add_time(self, value: JSON) -> None:
        """Note a time; times are compared as texts."""
        if isinstance(value, str) and value:
            self._times = [min([value, *self._times]), max([value, *self._times])]

    def sorted(self, name: str) -> dict[str, int]:
        """Return what was seen under a name, and how often."""
        return dict(sorted(self._by[name].items()))

    def times(self) -> dict[str, JSON]:
        """Return the first and the last time."""
        first, last = self._times or (None, None)
        return {"first_timestamp": first, "last_timestamp": last}


# -- logs whose records are linked ----------------------------------------------------------


class _Links:
    """The parents that records name: roots, tips, broken links, forks, cycles.

    The first record of a uuid says its parent; every record's word counts for who is named.
    """

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._children: dict[str, str] = {}  # the first child of each, to know a second one
        self._forks: set[str] = set()
        self._roots = self._repeated = 0

    def add(self, uuid: str, record: dict[str, JSON]) -> None:
        uuid, parent = intern(uuid), record.get("parentUuid")
        above = intern(parent) if isinstance(parent, str) else None
        if uuid in self._parents:
            self._repeated += 1
        else:
            self._parents[uuid] = above
            self._roots += parent is None and "parentUuid" in record
        if above is not None and self._children.setdefault(above, uuid) != uuid:
            self._forks.add(above)

    def to_dict(self) -> dict[str, JSON]:
        known = self._parents
        lost = [uuid for uuid, above in known.items() if above is not None and above not in known]
        return {
            "unique_uuids": len(known),
            "duplicate_uuid_records": self._repeated,
            "roots": self._roots,
            "broken_parents": len(lost),
            "broken_parent_uuids": sorted(lost)[:LISTED],
            "leaves": sum(uuid not in self._children for uuid in known),
            "uuids_on_cycles": self._on_cycles(),
            "fork_points": len(self._forks),
        }

    def _on_cycles(self) -> int:
        """Count who can be reached from itself. Each is walked over once."""
        walk: dict[str, int] = {}
        on_cycle = 0
        for number, start in enumerate(self._parents):
            at: str | None = start
            while at is not None and at not in walk:
                walk[at] = number
                at = self._parents.get(at)
            end = at
            while at is not None and walk[at] == number:
                on_cycle, at = on_cycle + 1, self._parents[at]
                if at == end:
                    break
        return on_cycle


TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_creation": "cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
}
"""What tokens are called here, and in a bill."""


class _Bills:
    """Tokens, once per response: the last bill of each counts."""

    def __init__(self) -> None:
        self._responses: set[str] = set()
        self._without_id = 0
        self._bills: dict[tuple[str | None, ...], tuple[list[int], list[int]]] = {}
        """The first and the last bill of each response."""
        self._every = [0] * len(TOKENS)

    def reply(self, response: str | None) -> None:
        """Count a record of a response; several may tell of the same."""
        if response:
            self._responses.add(response)
        else:
            self._without_id += 1

    def add(self, response: str | None, request: str | None, usage: dict[str, JSON]) -> None:
        """Count a bill; one that names neither response nor request stands for itself."""
        bill = [_number(usage.get(name)) for name in TOKENS.values()]
        self._every = [old + new for old, new in zip(self._every, bill, strict=True)]
        is_named = response is not None or request is not None
        key = (response, request) if is_named else (f"{len(self._bills)}",)
        first, _ = self._bills.get(key, (bill, bill))
        self._bills[key] = first, bill

    def to_dict(self) -> dict[str, JSON]:
        bills = self._bills.values()
        return {
            "assistant_messages": len(self._responses),
            "assistant_without_id": self._without_id,
            "tokens": _sum_tokens(last for _, last in bills),
            "tokens_first": _sum_tokens(first for first, _ in bills),
            "tokens_naive": _sum_tokens([self._every]),
            "token_keys": sum(len(key) > 1 for key in self._bills),
        }


def _sum_tokens(bills: Iterable[list[int]]) -> dict[str, int]:
    columns = zip([0] * len(TOKENS), *bills, strict=True)
    return dict(zip(TOKENS, map(sum, columns), strict=True))


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
        self._links, self._bills, self._calls, self._seen = _Links(), _Bills(), _Calls(), _Tally()

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        seen = self._seen
        kind = _text(record.get("type")) or NONE
        seen["type"][kind] += 1
        seen.add(record, "version", "sessionId", "agentId")
        for name in ("isSidechain", "isCompactSummary", "isMeta", "isApiErrorMessage"):
            seen["mark"][name] += record.get(name) is True
        seen["mark"]["logical"] += bool(_text(record.get("logicalParentUuid")))
        if kind == "system":
            seen["subtype"][_text(record.get("subtype")) or NONE] += 1
        seen.add_time(record.get("timestamp"))
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
        self._seen.add(message, "model")
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._bills.add(response, request, usage)

    def _content(self, kind: str, content: list[JSON]) -> None:
        for block in content:
            if not isinstance(block, dict):
                self._seen["block"]["(not object)"] += 1
                continue
            part = _text(block.get("type")) or NONE
            self._seen["block"][f"{kind}/{part}"] += 1
            if part == "tool_use" and kind == "assistant":
                self._calls.made(_text(block.get("id")))
            elif part == "tool_result" and kind == "user":
                call = _text(block.get("tool_use_id"))
                self._calls.answered(call, failed=block.get("is_error") is True)

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        seen, marks, subtypes = self._seen, self._seen["mark"], self._seen["subtype"]
        return {
            "records_by_type": seen.sorted("type"),
            "system_subtypes": seen.sorted("subtype"),
            "client_versions": seen.sorted("version"),
            "session_ids": seen.sorted("sessionId"),
            "agent_ids": sorted(seen["agentId"]),
            "models": seen.sorted("model"),
            **self._links.to_dict(),
            "logical_parent_links": marks["logical"],
            **self._bills.to_dict(),
            "content_blocks": seen.sorted("block"),
            **self._calls.to_dict(),
            "tool_result_errors": self._calls.failed,
            "sidechain_records": marks["isSidechain"],
            "compact_boundaries": subtypes["compact_boundary"],
            "microcompact_boundaries": subtypes["microcompact_boundary"],
            "compact_summaries": marks["isCompactSummary"],
            "summary_records": seen["type"]["summary"],
            "meta_records": marks["isMeta"],
            "api_error_messages": marks["isApiErrorMessage"],
            **seen.times(),
        }


# -- logs in wrappers -----------------------------------------------------------------------

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_OUTPUTS = (*(f"{name}_output" for name in _CALLS[:3]), "tool_search_output")
_BARE = "(bare)"


class Wrapped:
    """A rollout: items in wrappers with a time and a type, or bare ones as old clients wrote."""

    def __init__(self) -> None:
        self._calls, self._seen = _Calls(), _Tally()
        self._wrapped = self._bare = self._bills = 0
        self._total: JSON = None

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        kind = _text(record.get("type")) or NONE
        self._seen["type"][kind] += 1
        self._seen.add_time(record.get("timestamp"))
        item = record.get("payload")
        if isinstance(item, dict) and "timestamp" in record:
            self._wrapped += 1
            wrapper = kind
        else:
            self._bare += 1
            item, wrapper = record, _BARE
        what = _text(item.get("type")) or NONE
        self._seen["item"][f"{wrapper}/{what}"] += 1
        if wrapper == "session_meta" or (wrapper == _BARE and _is_bare_head(record)):
            self._seen.add(item, "id", "cli_version", "originator")
        elif wrapper == "turn_context":
            self._seen.add(item, "model")
        elif wrapper == "event_msg" and what == "token_count":
            self._bill(_object(item.get("info")))
        if wrapper in ("response_item", _BARE):
            self._response(what, item)

    def _response(self, what: str, item: dict[str, JSON]) -> None:
        if what == "message":
            self._seen["role"][_text(item.get("role")) or NONE] += 1
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
                self._seen["token"][name] += _number(value)

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        seen = self._seen
        return {
            "records_by_type": seen.sorted("type"),
            "items": seen.sorted("item"),
            "wrapped_lines": self._wrapped,
            "bare_lines": self._bare,
            "client_versions": seen.sorted("cli_version"),
            "originators": seen.sorted("originator"),
            "models": seen.sorted("model"),
            "session_ids": sorted(seen["id"]),
            "session_meta_lines": seen["id"].total(),
            "messages_by_role": seen.sorted("role"),
            **self._calls.to_dict(),
            "token_count_events": self._bills,
            "tokens_total_last": self._total,
            "tokens_sum_of_last": seen.sorted("token"),
            "compacted": seen["type"]["compacted"],
            "thread_rolled_back": seen["item"]["event_msg/thread_rolled_back"],
            "turn_aborted": seen["item"]["event_msg/turn_aborted"],
            **seen.times(),
        }


def _is_bare_head(record: dict[str, JSON]) -> bool:
    return "id" in record and "type" not in record and "timestamp" in record


# -- any other log --------------------------------------------------------------------------


class Other:
    """A log of no kind that is known: types, roles, and ids if it has any."""

    def __init__(self) -> None:
        self._seen = _Tally()
        self._parents: set[str] = set()
        self._null = 0

    def add(self, record: dict[str, JSON]) -> None:
        """Count one record."""
        self._seen["type"][_text(record.get("type")) or NONE] += 1
        role = _text(_object(record.get("message")).get("role")) or _text(record.get("role"))
        if role:
            self._seen["role"][role] += 1
        self._seen.add(record, "id")
        if _text(record.get("id")) and "parentId" in record:
            parent = record["parentId"]
            if isinstance(parent, str):
                self._parents.add(parent)
            else:
                self._null += 1

    def to_dict(self) -> dict[str, JSON]:
        """Return the counts."""
        ids = self._seen["id"]
        return {
            "records_by_type": self._seen.sorted("type"),
            "messages_by_role": self._seen.sorted("role"),
            "unique_ids": len(ids),
            "duplicate_ids": ids.total() - len(ids),
            "null_parentIds": self._null,
            "broken_parentIds": len(self._parents - ids.keys()),
        }
