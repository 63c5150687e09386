"""The price list of genai-prices, read without what that package brings along.

Its list is a module of plain values; the package around it loads a validator, an HTTP client and
an event loop, which takes longer than a small sweep and memory in each process of a large one. So
the module's own code runs here against these light classes, which hold what prices are made of.

Invariant: the list is all there or not at all. A version whose list says anything that these
classes do not know is read by the package itself, so the same usage has the same price either way.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from copy import copy
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias, cast

import msgspec

_PACKAGE = "genai_prices"


class Unreadable(Exception):
    """The list is not as it was when these classes were written."""


# -- what the list is made of: names and fields are those of genai-prices --------------------


class ClauseStartsWith(msgspec.Struct):
    """The name begins so."""

    starts_with: str

    def is_match(self, text: str) -> bool:
        """Whether a name does."""
        return text.lower().startswith(self.starts_with.lower())


class ClauseEndsWith(msgspec.Struct):
    """The name ends so."""

    ends_with: str

    def is_match(self, text: str) -> bool:
        """Whether a name does."""
        return text.lower().endswith(self.ends_with.lower())


class ClauseContains(msgspec.Struct):
    """The name has this in it."""

    contains: str

    def is_match(self, text: str) -> bool:
        """Whether a name has."""
        return self.contains.lower() in text.lower()


class ClauseRegex(msgspec.Struct):
    """The name has something in it that a pattern describes."""

    regex: str

    def is_match(self, text: str) -> bool:
        """Whether a name has."""
        return bool(re.search(self.regex, text))


class ClauseEquals(msgspec.Struct):
    """The name is this."""

    equals: str

    def is_match(self, text: str) -> bool:
        """Whether a name is."""
        return text.lower() == self.equals.lower()


class ClauseOr(msgspec.Struct):
    """One of these holds."""

    or_: list[Any]

    def is_match(self, text: str) -> bool:
        """Whether one does."""
        return any(clause.is_match(text) for clause in self.or_)


class ClauseAnd(msgspec.Struct):
    """All of these hold."""

    and_: list[Any]

    def is_match(self, text: str) -> bool:
        """Whether all do."""
        return all(clause.is_match(text) for clause in self.and_)


class Tier(msgspec.Struct):
    """The price of all tokens of a prompt that is longer than `start`."""

    start: int
    price: Decimal


class TieredPrices(msgspec.Struct):
    """A price that depends on the length of the prompt."""

    base: Decimal
    tiers: list[Tier]

    def __post_init__(self) -> None:
        """Sort the tiers by where they start."""
        self.tiers.sort(key=lambda tier: tier.start)


class ModelPrice:
    """Prices by what they are for, as attributes."""

    def __init__(self, **prices: Any) -> None:
        self.__dict__.update(prices)


class StartDateConstraint(msgspec.Struct):
    """From a day on, in UTC."""

    start_date: date

    def active(self, at: datetime) -> bool:
        """Whether that is so at a time, which is in UTC if it does not say otherwise."""
        moment = at if at.tzinfo is None else at.astimezone(UTC)
        return moment.date() >= self.start_date


class TimeOfDateConstraint(msgspec.Struct):
    """At some hours of every day, in UTC."""

    start_time: time
    end_time: time

    def active(self, at: datetime) -> bool:
        """Whether that is so at a time, which is in UTC if it does not say otherwise."""
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        now = moment.astimezone(UTC).timetz()
        start, end = _in_utc(self.start_time), _in_utc(self.end_time)
        return now >= start or now < end if end < start else start <= now < end


def _in_utc(moment: time) -> time:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return datetime.combine(date(1970, 1, 1), moment).astimezone(UTC).timetz()


Constraint: TypeAlias = StartDateConstraint | TimeOfDateConstraint | None


class ConditionalPrice(msgspec.Struct):
    """Prices, and when they hold."""

    constraint: Constraint = None
    prices: ModelPrice = msgspec.field(default_factory=ModelPrice)


class PriceVariant(msgspec.Struct):
    """Prices of a tier, where they differ."""

    when: dict[str, str]
    prices: ModelPrice
    constraint: Constraint = None


class ModelInfo(msgspec.Struct):
    """A model: how it is named, what it costs."""

    id: str
    match: Any
    name: str | None = None
    description: str | None = None
    context_window: int | None = None
    price_comments: str | None = None
    deprecated: bool | None = None
    prices: Any = None
    price_variants: list[PriceVariant] | None = None

    def __post_init__(self) -> None:
        """Let go of what is no price."""
        self.description = self.price_comments = None

    def get_prices(self, at: datetime, context: Mapping[str, str] | None = None) -> ModelPrice:
        """Return the prices of a time; those of a tier where the context names it."""
        standard = self._standard(at)
        if not context:
            return standard
        overrides: dict[str, Any] = {}
        for variant in self.price_variants or ():
            if variant.constraint is not None and not variant.constraint.active(at):
                continue
            if all(context.get(key) == value for key, value in variant.when.items()):
                for key, price in vars(variant.prices).items():
                    if price is not None:
                        overrides.setdefault(key, price)
        resolved = copy(standard)
        vars(resolved).update(overrides)
        return resolved

    def _standard(self, at: datetime) -> ModelPrice:
        """The last price whose condition holds; the first where none does."""
        if isinstance(self.prices, ModelPrice):
            return self.prices
        several: list[ConditionalPrice] = self.prices
        for candidate in reversed(several):
            if candidate.constraint is None or candidate.constraint.active(at):
                return candidate.prices
        return several[0].prices


class Provider(msgspec.Struct):
    """Who sells models."""

    id: str
    name: str
    api_pattern: str
    pricing_urls: list[str] | None = None
    description: str | None = None
    price_comments: str | None = None
    model_match: Any = None
    provider_match: Any = None
    extractors: list[None] | None = None
    fallback_model_providers: list[str] | None = None
    models: list[ModelInfo] = []


def _ignore(**_: Any) -> None:
    """Stand for what tells how to read an API's answer, which nobody here asks for."""


_KNOWN: dict[str, Any] = {
    **{
        kind.__name__: kind
        for kind in (
            *(ClauseStartsWith, ClauseEndsWith, ClauseContains, ClauseRegex, ClauseEquals),
            *(ClauseOr, ClauseAnd, Tier, TieredPrices, ModelPrice, StartDateConstraint),
            *(TimeOfDateConstraint, ConditionalPrice, PriceVariant, ModelInfo, Provider),
        )
    },
    **dict.fromkeys(("UsageExtractor", "UsageExtractorMapping", "ArrayMatch"), _ignore),
}


# -- reading it ------------------------------------------------------------------------------


@cache
def providers() -> list[Provider]:
    """Return all who sell models, in the order of the list."""
    try:
        return _read()
    except Exception:  # noqa: BLE001 - somebody else's module; whatever it is, they can read it
        from genai_prices.data import providers as listed

        return cast("list[Provider]", listed)


def _read() -> list[Provider]:
    """Run the module of the list against the classes above."""
    package = find_spec(_PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(f"{_PACKAGE}.data", places)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise Unreadable
    code = spec.loader.get_code(spec.name)
    types = ModuleType("types")
    vars(types).update(_KNOWN)

    def import_for_module(name: str, *more: Any) -> ModuleType:
        """Import for the module: its sister is ours, and it needs no other of the package."""
        level = more[3] if len(more) > 3 else 0  # behind globals, locals, names
        if level:
            if (name, level) != ("types", 1):
                raise Unreadable
            return types
        return builtins.__import__(name, *more)

    names: dict[str, Any] = {
        "__name__": spec.name,
        "__builtins__": {**vars(builtins), "__import__": import_for_module},
    }
    exec(code, names)  # type: ignore[arg-type]  # noqa: S102 - the code of a package we depend on
    listed: list[Provider] = names["providers"]
    if not listed or not all(isinstance(entry, Provider) for entry in listed):
        raise Unreadable
    return listed
