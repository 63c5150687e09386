"""Bytes <-> events. Damage becomes values, never exceptions.

Rules kept here, each with a test: lines end at LF and nowhere else; a bad line costs itself and
no other; every line is an event, blank, or a `Skipped` with line, offset and reason; a last line
without LF is read when it is whole and *torn* when it is not; what can be salvaged from a bad
line (two records glued together, a torn half followed by a whole record, NULs or a stray byte
around a record) is given as events and counted in that line's `Skipped`. Nothing is invented:
only a whole JSON object that is a record, standing at the start or the end of its line, counts,
and only where it cannot be an inner object of a line that was cut.

`objects` reads any JSONL file (the adapters' door), `decode` our own, `encode` writes a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from math import copysign, isinf
from sys import float_info
from typing import NoReturn

import msgspec

from thence.format.records import JSON, Event, Place, Skipped, time_text

LINE_LIMIT = 64 << 20
"""Longest line that is parsed, in bytes; longer ones are skipped and reported."""

TORN = "torn"
TOO_LONG = "too long"
BAD_UTF8 = "bad utf-8"
BAD_JSON = "bad json"
NOT_OBJECT = "not an object"
NOT_EVENT = "not an event"
NULS = "nul bytes"
GLUED = "several records on one line"

WHITE = b" \t\r\n\v\f"
"""What a blank line may hold."""

_BOM = b"\xef\xbb\xbf"
_JUNK = " \t\r\n\v\f\0\ufeff"
_ENVELOPE = ("type", "ts", "uuid", "prev_uuid", "payload")
_GOES_ON = (",", "]", "}")
_LONG = 600  # bytes of a line, from which on `find` is quicker than `split`
_DEPTH = 100_000  # more than any parser here follows
_DIGITS = 4300  # more than Python turns into an int; other readers refuse such a line as well

_fast = msgspec.json.Decoder(Event).decode
_any = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder(decimal_format="number")


_Saved = tuple[dict[str, JSON], int, int]  # a record, and where in its line it starts and ends


class RawRecord(msgspec.Struct, frozen=True, gc=False):
    """A JSON object and where it stands. Salvaged ones share the place of their bad line."""

    value: dict[str, JSON]
    place: Place
    raw: bytes = b""
    """Its line; of a salvaged one its own bytes, the same whatever it was glued to."""


class Decoded(msgspec.Struct):
    """All that a run of bytes holds: `events[i]` stands at `places[i]`."""

    events: list[Event]
    places: list[Place]
    skipped: list[Skipped]
    lines: int = 0
    end: int = 0
    """Offset after the last LF: where the next read may start."""
    torn: bool = False
    """The last line has no LF and is not whole."""


# -- lines ----------------------------------------------------------------------------------


def split(
    data: bytes | Iterable[bytes], *, offset: int = 0, line: int = 1, limit: int = LINE_LIMIT
) -> Iterator[tuple[Place, bytes | None, bool]]:
    """Cut bytes at LF: (place, bytes or None when over the limit, whether an LF ended it).

    Chunks may be cut anywhere. No more than one line and one chunk are held.
    """
    rest: list[bytes] = []
    pending_bytes = 0  # bytes of the unfinished line, counted also when they are no longer kept
    for chunk in (data,) if isinstance(data, bytes) else data:
        pieces = _cut(chunk)
        begun = pieces.pop()
        for piece in pieces:
            length, full_line = len(piece), piece
            if pending_bytes:  # the first of a chunk ends what the last one began
                length += pending_bytes
                full_line = b"".join((*rest, piece)) if length <= limit else b""
                rest, pending_bytes = [], 0
            yield Place(line, offset, length), full_line if length <= limit else None, True
            line += 1
            offset += length + 1
        pending_bytes += len(begun)
        if pending_bytes <= limit:
            rest.append(begun)
        else:
            rest = []
    if pending_bytes:
        yield (
            Place(line, offset, pending_bytes),
            None if pending_bytes > limit else b"".join(rest),
            False,
        )


def _cut(chunk: bytes) -> list[bytes]:
    """Cut at LF. `split` looks at one byte after the other, `find` at many: long lines gain."""
    if chunk.count(b"\n") * _LONG > len(chunk):
        return chunk.split(b"\n")
    out: list[bytes] = []
    start = 0
    while (end := chunk.find(b"\n", start)) >= 0:
        out.append(chunk[start:end])
        start = end + 1
    out.append(chunk[start:])
    return out


# -- objects --------------------------------------------------------------------------------


def accept_any(_value: dict[str, JSON]) -> bool:
    """Accept every object as a record."""
    return True


def objects(
    data: bytes | Iterable[bytes],
    *,
    offset: int = 0,
    line: int = 1,
    limit: int = LINE_LIMIT,
    is_record: Callable[[dict[str, JSON]], bool] = accept_any,
) -> Iterator[RawRecord | Skipped]:
    """Read the JSON objects of any JSONL bytes; `is_record` guards what may be salvaged."""
    for place, raw, ended in split(data, offset=offset, line=line, limit=limit):
        yield from parse(place, raw, ended=ended, is_record=is_record)


def quick(raw: bytes) -> dict[str, JSON] | None:
    """Read a line that is one plain object, as nearly all are; None when `parse` has to look."""
    try:
        value = _any(raw)
    except (ValueError, RecursionError):  # the slow path says what is wrong with it
        return None
    return value if type(value) is dict else None


def parse(
    place: Place, raw: bytes | None, *, ended: bool, is_record: Callable[[dict[str, JSON]], bool]
) -> Iterator[RawRecord | Skipped]:
    """Read the objects of one line: one, none when it is blank, or what can be salvaged."""
    if raw == b"":  # so many of them that an exception each would be felt
        return
    try:
        value = _any(raw) if raw is not None else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        yield RawRecord(value, place, raw or b"")
    else:
        yield from _careful(place, raw, ended=ended, is_record=is_record)


def _careful(
    place: Place, raw: bytes | None, *, ended: bool, is_record: Callable[[dict[str, JSON]], bool]
) -> Iterator[RawRecord | Skipped]:
    """Read a line that the fast decoder refused: blank, odd but whole, or damaged."""
    if raw is None:
        yield Skipped(place.line, place.offset, place.length, TOO_LONG)
        return
    if place.offset == 0 and raw.startswith(_BOM):
        raw = raw[len(_BOM) :]
    if not raw.strip(WHITE):
        return
    value, why = _strict(raw)
    if value is not None:
        yield RawRecord(value, place, raw)
        return
    text = raw.decode("utf-8", "replace")
    saved = [] if why == NOT_OBJECT else _salvage(text, is_record)
    if saved and why == BAD_JSON:
        why = GLUED if len(saved) > 1 else why
    elif not saved and not ended:
        why = TORN
    for value, start, stop in saved:
        yield RawRecord(value, place, text[start:stop].encode())
    yield Skipped(place.line, place.offset, place.length, why, len(saved))


def _strict(raw: bytes) -> tuple[dict[str, JSON] | None, str]:
    """Parse one whole object by RFC 8259, taking lone surrogates and numbers out of range."""
    try:
        value = _STRICT.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return None, BAD_UTF8
    except (ValueError, RecursionError, MemoryError):
        return None, NULS if b"\0" in raw else BAD_JSON
    return (value, "") if isinstance(value, dict) else (None, NOT_OBJECT)


def _salvage(text: str, is_record: Callable[[dict[str, JSON]], bool]) -> list[_Saved]:
    """Find the whole records at the start of a bad line and those that reach its end.

    Nothing is read more than a few times, whatever the line holds: forwards from its start,
    backwards from its end, and once more what lies between.
    """
    text = text.rstrip(_JUNK)
    records, at = _records_at_start(text, is_record)
    return records + _records_at_end(text, at, is_record)


def _records_at_start(
    text: str, is_record: Callable[[dict[str, JSON]], bool]
) -> tuple[list[_Saved], int]:
    """Read records one after the other from the start, and say where they end."""
    records: list[_Saved] = []
    at = end = 0
    while True:
        while at < len(text) and text[at] in _JUNK:
            at += 1
        value, stop = _object(text, at)
        if value is None or not is_record(value):
            break
        records.append((value, at, stop))
        at = end = stop
    if records and text[at : at + 1] in _GOES_ON:
        del records[-1]  # an inner object: the line that held it was cut in two before it
    return records, end


def _records_at_end(
    text: str, least: int, is_record: Callable[[dict[str, JSON]], bool]
) -> list[_Saved]:
    """Read records one after the other from the end backwards, as far as `least`."""
    records: list[_Saved] = []
    end = first = len(text)
    for start in _openings(text, least):
        value, stop = _object(text, start)
        if value is None or stop != end or not is_record(value):
            break
        records.append((value, start, stop))
        first = end = start
        while end > least and text[end - 1] in _JUNK:
            end -= 1
    if records and _awaits_value(text[least:first]):
        del records[-1]  # an inner object: its line may have been cut just behind it
    return records[::-1]


def _openings(text: str, least: int) -> Iterator[int]:
    """Walk back from a closing brace at the end and give where each outermost object starts.

    In JSON the quote that opens a string never follows a backslash, and one inside always does.
    """
    depth, at = 0, len(text)
    last = dict.fromkeys('"{}', at if text.endswith("}") else -1)
    while depth < _DEPTH:
        for mark, place in last.items():
            if place >= at:
                last[mark] = text.rfind(mark, least, max(at, least))
        at = max(last.values())
        if at < 0:
            return
        if at == last['"']:
            at = text.rfind('"', least, at)
            while at > least and text[at - 1] == "\\":
                at = text.rfind('"', least, at)
        elif at == last["}"]:
            depth += 1
        elif depth == 0:
            return
        else:
            depth -= 1
            if depth == 0:
                yield at


def _awaits_value(text: str) -> bool:
    """Whether text is the beginning of an object or array that may go on with an object."""
    try:
        _LENIENT.raw_decode(text.lstrip(_JUNK))
    except json.JSONDecodeError as error:
        return error.msg == "Expecting value" and error.pos >= len(error.doc) > 0
    except (ValueError, RecursionError, MemoryError):
        # Deeper than the parser goes: that it goes on cannot be ruled out.
        return True
    return False


def _object(text: str, at: int) -> tuple[dict[str, JSON] | None, int]:
    """Read the object that starts here, and say where it ends; None when there is none."""
    if text[at : at + 1] != "{":
        return None, at
    try:
        return _LENIENT.raw_decode(text, at)
    except (ValueError, RecursionError, MemoryError):
        return None, at


def _refuse(name: str) -> NoReturn:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _float(digits: str) -> float | Decimal:
    """Keep a number beyond the range of floats as it was written, as far as there are words."""
    number = float(digits)
    if not isinf(number):
        return number
    try:
        return Decimal(digits)
    except InvalidOperation:  # an exponent of more digits than Decimal takes
        return copysign(float_info.max, number)


def _int(digits: str) -> int | Decimal:
    """Keep a number of more digits than Python turns into an int."""
    return int(digits) if len(digits) <= _DIGITS else Decimal(digits)


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_float)
_LENIENT = json.JSONDecoder(parse_constant=_refuse, parse_float=_float, parse_int=_int)


# -- events ---------------------------------------------------------------------------------


def is_event(value: dict[str, JSON]) -> bool:
    """Whether an object has the shape of an event line."""
    prev = value.get("prev_uuid")
    return (
        isinstance(value.get("type"), str)
        and isinstance(value.get("uuid"), str)
        and (prev is None or isinstance(prev, str))
        and "payload" in value
    )


def event_of(value: dict[str, JSON]) -> Event | None:
    """Make an event of an object, keeping unknown envelope fields; None when it is none."""
    if not is_event(value):
        return None
    extra = {name: field for name, field in value.items() if name not in _ENVELOPE}
    # Version 1 had seconds here, and an old writer may have gone on in a newer session's file.
    ts = time_text(value.get("ts"))
    return Event(
        value["type"],
        ts if isinstance(ts, str) else "",
        value["uuid"],
        value.get("prev_uuid"),
        value["payload"],
        extra,
    )


def decode(
    data: bytes | Iterable[bytes],
    *,
    offset: int = 0,
    line: int = 1,
    limit: int = LINE_LIMIT,
    upcast: Callable[[dict[str, JSON]], dict[str, JSON]] | None = None,
) -> Decoded:
    """Decode the lines of a session. `upcast` reads an older schema as the present one."""
    out = Decoded([], [], [], end=offset)
    for place, raw, ended in split(data, offset=offset, line=line, limit=limit):
        out.lines += 1
        if ended:
            out.end = place.offset + place.length + 1
        if upcast is None and raw is not None:
            try:
                event = _fast(raw)
            except (ValueError, RecursionError):
                # Not plain: the slow path decides whether it is bad.
                pass
            else:
                if not event.extra:
                    out.events.append(event)
                    out.places.append(place)
                    continue
        _decode_carefully(out, place, raw, ended=ended, upcast=upcast or _same)
    return out


def _same(value: dict[str, JSON]) -> dict[str, JSON]:
    return value


def _decode_carefully(
    out: Decoded,
    place: Place,
    raw: bytes | None,
    *,
    ended: bool,
    upcast: Callable[[dict[str, JSON]], dict[str, JSON]],
) -> None:
    def is_record(value: dict[str, JSON]) -> bool:
        return is_event(upcast(value))

    for record in parse(place, raw, ended=ended, is_record=is_record):
        if isinstance(record, Skipped):
            out.skipped.append(record)
            out.torn = not ended
        elif (event := event_of(upcast(record.value))) is not None:
            out.events.append(event)
            out.places.append(place)
        else:
            out.skipped.append(Skipped(place.line, place.offset, place.length, NOT_EVENT))


def encode(event: Event) -> bytes:
    """Write an event as one line, LF inside. Decoding it gives the same event again."""
    try:
        if not event.extra:
            return _encoder.encode(event) + b"\n"
        return _encoder.encode(_flat(event)) + b"\n"
    except (UnicodeEncodeError, OverflowError, RecursionError):
        # A lone surrogate has no UTF-8 form, a long int no C form, and a deep payload may meet
        # a stack that is deep already: all are written out by hand.
        return _encode_text(_flat(event)) + b"\n"


def dump(value: JSON) -> bytes:
    """Write any JSON value, lone surrogates and numbers of any size included."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        # Surrogates or huge numbers: the slow encoder writes all of them.
        return _encode_text(value)


def _flat(event: Event) -> dict[str, JSON]:
    known = {name: getattr(event, name) for name in _ENVELOPE}
    return known | {name: value for name, value in event.extra.items() if name not in known}


def _encode_text(value: JSON) -> bytes:
    """Write a value without recursion."""
    out: list[bytes] = []
    todo: list[JSON] = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, msgspec.Raw):
            out.append(bytes(part))
        elif isinstance(part, (dict, list)):
            todo += reversed(_pieces(part))
        else:
            out.append(_scalar(part))
    return b"".join(out)


def _pieces(value: dict[str, JSON] | list[JSON]) -> list[JSON]:
    """Take a container apart: brackets, commas and names already written, values as they are."""
    comma = msgspec.Raw(b",")
    if isinstance(value, dict):
        named = ((msgspec.Raw(_scalar(name) + b":"), inner) for name, inner in value.items())
        inside = [piece for pair in named for piece in (comma, *pair)]
        return [msgspec.Raw(b"{"), *inside[1:], msgspec.Raw(b"}")]
    inside = [piece for inner in value for piece in (comma, inner)]
    return [msgspec.Raw(b"["), *inside[1:], msgspec.Raw(b"]")]


def _scalar(value: JSON) -> bytes:
    if isinstance(value, str) and not _is_utf8(value):
        return json.dumps(value).encode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value).encode()
    return _encoder.encode(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
