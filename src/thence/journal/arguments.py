"""What callers pass, checked when they pass it: an error says what is wrong and the right form.

Types tell only those who run a type checker. `checked` reads the types of all public methods of
a class and holds every call to them, so that a new method, and a new choice of a `Literal`, is
checked as well. `check_event` holds what is recorded to what can be given back: a message has its
own role and content that a model can get, a value has a form in JSON, and what the library keeps
itself (`header`, `boundary`, …) is not recorded by callers. `line_of` refuses a line that no
reader would follow.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as type_hints

import msgspec

from thence.errors import BadArgument
from thence.format import codec
from thence.format.records import (
    INTERNAL,
    JSON,
    PAYLOADS,
    Event,
    Malformed,
    parse_payload,
)

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of things, or bytes."""
Amount = Annotated[float, msgspec.Meta(ge=0)]
"""Seconds, days or dollars."""
Names = dict[str, JSON]
"""Values by their names."""
Text = Annotated[str, msgspec.Meta(min_length=0)]
"""A text that may be empty, as the output of many a command is; others have to say something."""
Content = Text | list[JSON]
"""What a message says: text, or blocks as the Messages API has them."""

_SPEAKERS: Final = frozenset({"user", "assistant"})
_LIBRARY_TYPES: Final = (INTERNAL | {"checkpoint", "summary"}) - {"waiting"}
"""Types of events that the library writes itself."""
_INSTEAD: Final = {
    "header": "a session has one from the start",
    "terminator": "session.close()",
    "boundary": "session.compact(summary)",
    "summary": "session.compact(summary)",
    "tip": "session.rewind(uuid)",
    "turn": "session.flush()",
    "sidechain": "session.sidechain(agent)",
    "checkpoint": "session.checkpoint(paths)",
}
_ABOUT: Final = {"id": str, "model": str, "stop_reason": str, "usage": dict, "cost_usd": Amount}
"""What a message may say of itself beside its content."""
_MAX_CONTAINERS: Final = 2_000_000
"""Lists and dicts of a payload: more would not fit a line."""
_MAX_DEPTH: Final = 400
"""Levels of a payload: parsers of JSON refuse a line that has much more of them."""
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_WORDS: Final = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


# -- calls ----------------------------------------------------------------------------------


def checked(kind: C) -> C:
    """Hold every call of a class's public methods to their types; return the class."""
    for name, method in list(vars(kind).items()):
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and inspect.isfunction(method):
            setattr(kind, name, check_call(method))
    return kind


def check_call(function: F) -> F:
    """Return a method, or a function, that checks what it is passed before it does anything."""
    signature = inspect.signature(function)
    required = -1
    if hasattr(function, "checks_itself"):
        required = sum(
            each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
            for each in signature.parameters.values()
        )
    named = {
        name
        for name, parameter in signature.parameters.items()
        if name != "self"
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    forms: dict[str, Any] = {}

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if len(args) == required and not options:
            return function(*args)
        if not forms:
            hints = type_hints(function, include_extras=True)
            forms.update({"": Any, **{name: hints.get(name, Any) for name in named}})
        try:
            bound = signature.bind(*args, **options).arguments
        except TypeError as error:  # too many, too few, or one that it does not have
            raise _refusal(args, signature, function, str(error)) from None
        for name, value in bound.items():
            if name in named and not fits(value, forms[name]):
                why = _misfit(name, value, forms[name])
                raise _refusal(args, signature, function, why)
        return function(*args, **options)

    return cast("F", call)


def checks_itself(function: F) -> F:
    """Mark a method that checks its required arguments itself.

    A call with these alone, as most records are, is not checked a second time.
    """
    function.__dict__["checks_itself"] = True
    return function


def fits(value: object, form: Any) -> bool:
    """Return whether a value is of a type; texts and paths have to say something."""
    origin = get_origin(form)
    if origin is Annotated:
        base, meta = get_args(form)
        if meta.ge is None:  # Text
            return isinstance(value, base)
        return fits(value, base) and cast("float", value) >= meta.ge
    if origin in (Union, types.UnionType):
        is_fit = any(fits(value, each) for each in get_args(form))
        return is_fit and (Path not in get_args(form) or _is_path(value))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(form)
    if form is str:
        return isinstance(value, str) and value != ""
    if form is int or form is float:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole or (form is float and isinstance(value, float) and isfinite(value))
    if origin is Callable:
        return callable(value)
    if origin is Iterable:  # of text or bytes one would go through the letters
        each = get_args(form)[0]
        is_many = isinstance(value, Iterable) and not isinstance(value, str | bytes | Path)
        items = cast("Iterable[object]", value) if isinstance(value, Collection) else ()
        return is_many and all(fits(item, each) for item in items)
    return form is Any or isinstance(form, TypeVar) or isinstance(value, origin or form)


def _is_path(value: object) -> bool:
    """Whether the system has a form for a text as a path."""
    try:
        return b"\0" not in os.fsencode(str(value))
    except UnicodeEncodeError:
        return False


def _misfit(name: str, value: object, form: Any) -> str:
    choices = [each for part in (form, *get_args(form)) for each in _choices(part)]
    if choices and isinstance(value, str):
        return f"`{_short(value)}` is no {name}: {', '.join(choices[:-1])} or {choices[-1]}"
    return f"{name} is {_describe(value)}, not {_in_words(form)}"


def _refusal(
    args: tuple[Any, ...], signature: inspect.Signature, function: Callable[..., Any], why: str
) -> BadArgument:
    """Return the error of a call: what is wrong with it, and how it is meant."""
    name = function.__name__
    parts = [type(args[0]).__name__, name] if "self" in signature.parameters else [name]
    if name == "__init__":
        name, parts = parts[0], parts[:1]
    plain = [
        p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"
    ]
    return BadArgument(f"{'.'.join(parts)}: {why}", hint=f"{name}{inspect.Signature(plain)}")


def _choices(form: Any) -> tuple[str, ...]:
    return get_args(form) if get_origin(form) is Literal else ()


def _in_words(form: Any) -> str:
    origin = get_origin(form)
    if origin is Annotated:
        base, meta = get_args(form)
        return _in_words(base) if meta.ge is None else f"{_in_words(base)} of 0 or more"
    if origin in (Union, types.UnionType):
        parts = [_in_words(part) for part in get_args(form)]
        return " or ".join(dict.fromkeys(parts))
    if origin is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(form))
    if origin is Iterable:
        return "a list of paths"
    if origin is Callable:
        return "a function"
    if form in (None, type(None)):
        return "None"
    known = _WORDS.get(form)
    return known or {"Path": "a path", "list": "a list"}.get(
        getattr(origin or form, "__name__", ""), f"a {getattr(origin or form, '__name__', form)}"
    )


def _describe(value: object) -> str:
    """Return what a caller passed, in words that fit a line."""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str):
        return f"{_short(value)!r}"
    return f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


# -- events ---------------------------------------------------------------------------------


def check_event(kind: str, payload: JSON) -> None:
    """Refuse an event that would not come back as it was meant."""
    if (  # as most are, in the path of every record
        type(payload) is dict
        and len(payload) == 2
        and payload.get("role") == kind
        and type(payload.get("content")) is str
        and kind in _SPEAKERS
    ):
        return
    if type(kind) is not str or not kind:
        raise BadArgument(
            f"the type of an event is {_describe(kind)}, not text",
            hint='record("user", {"role": "user", "content": "…"})',
        )
    if kind in _SPEAKERS:
        _check_message(kind, payload)
    elif kind in _LIBRARY_TYPES:
        raise BadArgument(f"`{kind}` is kept by the library", hint=f"use: {_INSTEAD[kind]}")
    elif kind in PAYLOADS:
        read = parse_payload(Event(kind, "", "", None, payload))
        if isinstance(read, Malformed):
            fields = ", ".join(PAYLOADS[kind].__struct_fields__)
            raise BadArgument(f"a {kind} event: {read.why}", hint=f"its fields are {fields}")
    elif (
        isinstance(payload, dict)
        and "content" in payload
        and payload.get("role") in ("user", "assistant")
    ):
        role = payload["role"]
        raise BadArgument(
            f"`{kind}` is no type of a message: the model would not get it",
            hint=f'record("{role}", {{"role": "{role}", "content": "…"}})',
        )
    check_value(payload)


def _check_message(kind: str, payload: JSON) -> None:
    why = None
    if not isinstance(payload, dict):
        why = f"is {_describe(payload)}, not a message"
    elif payload.get("role") != kind:
        role = payload.get("role")
        why = "has no role" if role is None else f"has the role {_describe(role)}"
    else:
        content = payload.get("content")
        if isinstance(content, list):
            for number, block in enumerate(content):
                wrong = _wrong_block(kind, block)
                if wrong is not None:
                    why = f"has as content[{number}] {wrong}"
                    break
        elif not isinstance(content, str):
            is_there = "content" in payload
            why = f"has as content {_describe(content)}" if is_there else "has no content"
        for name in _ABOUT.keys() & payload.keys() if why is None else ():
            value, form = payload[name], _ABOUT[name]
            if value is not None and type(value) is not form and not fits(value, form):
                why = f"has as {name} {_describe(value)}, not {_in_words(form)}"
    if why is not None:
        example = f'{{"role": "{kind}", "content": "…"}}'
        raise BadArgument(
            f"the payload of a {kind} event {why}",
            hint=f"record({kind!r}, {example}), or a list of blocks as content",
        )


def _wrong_block(role: str, block: JSON) -> str | None:
    """Return what is wrong with a block of a message; None when a model can get it."""
    if not isinstance(block, dict):
        return None if isinstance(block, str) else _describe(block)
    kind = block.get("type")
    if kind == "text":
        return None if type(block.get("text")) is str else "a text block without a text"
    if kind == "tool_use":
        is_said = role == "assistant"
        return _wrong_call(block) if is_said else "a tool_use, which only the assistant says"
    if kind == "tool_result":
        return _wrong_result(block) if role == "user" else "a tool_result, which only the user says"
    return None if _is_name(kind) else "a block without a type"


def _wrong_call(block: dict[str, JSON]) -> str | None:
    if not (_is_name(block.get("id")) and _is_name(block.get("name"))):
        return "a tool_use without an id or a name"
    if not isinstance(block.get("input", {}), dict):
        return f"a tool_use whose input is {_describe(block['input'])}, not a dict"
    return None


def _wrong_result(block: dict[str, JSON]) -> str | None:
    content, failed = block.get("content"), block.get("is_error")
    if not _is_name(block.get("tool_use_id")):
        return "a tool_result without a tool_use_id"
    if not isinstance(content, str | list | None):
        return f"a tool_result whose content is {_describe(content)}, not text or a list"
    for part in content if isinstance(content, list) else ():
        wrong = _wrong_block("user", part)
        if wrong is not None:
            return f"a tool_result that holds {wrong}"
    if not isinstance(failed, bool | None):
        return f"a tool_result whose is_error is {_describe(failed)}, not True or False"
    return None


def _is_name(value: JSON) -> bool:
    return type(value) is str and value != ""


def check_value(value: JSON) -> None:
    """Refuse what JSON has no form for, and what no reader follows: it would be lost, or changed.

    Level by level, so that what contains itself has an end.
    """
    level, number = [value], 0
    for _ in range(_MAX_DEPTH):
        below: list[JSON] = []
        for part in level:
            _look_inside(value, part, below)
        level = below
        number += len(level)
        if not level:
            return
        if number > _MAX_CONTAINERS:
            break
    raise BadArgument(
        f"the payload has over {_MAX_CONTAINERS:,} lists and dicts, or over {_MAX_DEPTH} levels",
        hint="does one of them contain itself? if not, record it as text",
    )


def _look_inside(value: JSON, part: JSON, below: list[JSON]) -> None:
    """Collect what a part of a payload holds and is not plain; refuse what JSON has no form for."""
    if isinstance(part, dict):
        for name, inner in part.items():
            if type(name) is not str and not isinstance(name, str):
                raise BadArgument(
                    f"{_place(value, part)} has as a name {_describe(name)}; in JSON names are"
                    " text",
                    hint="use `str(name)`: a number would come back as text",
                )
            if type(inner) not in _PLAIN:
                below.append(inner)
    elif isinstance(part, list | tuple):
        below += [inner for inner in part if type(inner) not in _PLAIN]
    elif not _has_json(part):
        raise BadArgument(
            f"{_place(value, part)} is {_describe(part)}, which JSON has no form for",
            hint="use text, numbers, lists and dicts; `base64` for bytes, `str` for the rest",
        )


def _has_json(value: object) -> bool:
    """Whether a value that is none of the plain ones is written as what it is."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Decimal):
        return value.is_finite()
    return isinstance(value, str | int | None)


def _place(value: JSON, wanted: object) -> str:
    """Return where a part stands in a payload."""
    todo: list[tuple[str, JSON]] = [("payload", value)]
    while todo:
        path, part = todo.pop()
        if part is wanted:
            return path
        if isinstance(part, dict):
            todo += [(f"{path}.{name}", inner) for name, inner in part.items()]
        elif isinstance(part, list):
            todo += [(f"{path}[{number}]", inner) for number, inner in enumerate(part)]
    return "payload"


def line_of(event: Event) -> bytes:
    """Return the line of an event; one that is too long for readers is refused."""
    line = codec.encode(event)
    if len(line) > codec.LINE_LIMIT:
        raise BadArgument(
            f"an event of {len(line):,} bytes is longer than any reader follows",
            hint=f"keep events below {codec.LINE_LIMIT >> 20} MiB; results of tools may be longer",
        )
    return line
