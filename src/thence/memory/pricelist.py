"""The price list that ships with the program: who sells which model, by which names, at what price.

It is generated from genai-prices by `scripts/prices.py`, when thence is built and not when it runs:
that package loads a validator, an HTTP client and an event loop, which takes longer than a small
sweep. Names and fields are those of genai-prices; what is no price is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

FILE: Final = Path(__file__).with_name("prices.json")


class Clause(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a name must be like: one of these is set."""

    starts_with: str | None = None
    ends_with: str | None = None
    contains: str | None = None
    regex: str | None = None
    equals: str | None = None
    or_: tuple[Clause, ...] | None = None
    and_: tuple[Clause, ...] | None = None

    def is_match(self, text: str) -> bool:
        """Return whether a name is like that."""
        if self.or_ is not None:
            return any(clause.is_match(text) for clause in self.or_)
        if self.and_ is not None:
            return all(clause.is_match(text) for clause in self.and_)
        if self.regex is not None:
            return bool(re.search(self.regex, text))
        name = text.lower()
        return (
            (self.starts_with is not None and name.startswith(self.starts_with.lower()))
            or (self.ends_with is not None and name.endswith(self.ends_with.lower()))
            or (self.contains is not None and self.contains.lower() in name)
            or (self.equals is not None and name == self.equals.lower())
        )


class Tier(msgspec.Struct, frozen=True):
    """The price of all tokens of a prompt that is longer than `start`."""

    start: int
    price: Decimal


class TieredPrices(msgspec.Struct, frozen=True):
    """A price that depends on the length of the prompt."""

    base: Decimal
    tiers: tuple[Tier, ...]


Rate: TypeAlias = Decimal | TieredPrices
Rates: TypeAlias = dict[str, Rate]
"""Prices by what they are for."""


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a price holds: from a day on, or at some hours of every day, in UTC."""

    start_date: date | None = None
    start_time: time | None = None
    end_time: time | None = None

    def active(self, at: datetime) -> bool:
        """Return whether it does at a time, which is in UTC if it does not say otherwise."""
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if self.start_date is not None:
            return moment.date() >= self.start_date
        now, start, end = moment.time(), self.start_time or time.min, self.end_time or time.max
        return now >= start or now < end if end < start else start <= now < end


class ConditionalPrice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Prices, and when they hold."""

    prices: Rates
    constraint: Constraint | None = None
    when: dict[str, str] = {}
    """The tier that they are of, where they are not the standard ones."""


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model: how it is named, what it costs."""

    id: str
    match: Clause
    prices: tuple[ConditionalPrice, ...]
    price_variants: tuple[ConditionalPrice, ...] = ()
    context_window: int | None = None

    def get_prices(self, at: datetime, context: Mapping[str, str] | None = None) -> Rates:
        """Return the prices of a time; those of a tier where the context names it."""
        overrides: Rates = {}
        for variant in self.price_variants if context else ():
            if variant.constraint is not None and not variant.constraint.active(at):
                continue
            if all((context or {}).get(key) == value for key, value in variant.when.items()):
                overrides = {**variant.prices, **overrides}
        return {**self._standard(at), **overrides}

    def _standard(self, at: datetime) -> Rates:
        """The last price whose condition holds; the first where none does."""
        for candidate in reversed(self.prices):
            if candidate.constraint is None or candidate.constraint.active(at):
                return candidate.prices
        return self.prices[0].prices


class Provider(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who sells models, as the list is written."""

    id: str
    models: tuple[ModelInfo, ...]
    model_match: Clause | None = None
    provider_match: Clause | None = None
    fallback_model_providers: tuple[str, ...] = ()


class PriceList(msgspec.Struct, frozen=True):
    """All who sell models, in the order of the list."""

    source: str
    """What it was generated from, and under which license that stands."""
    providers: tuple[Provider, ...]


class Seller(msgspec.Struct, frozen=True, dict=True):
    """Who sells models, as the list is read: a sweep meets the models of one or two of them."""

    id: str
    body: msgspec.Raw = msgspec.field(name="models")
    model_match: Clause | None = None
    provider_match: Clause | None = None
    fallback_model_providers: tuple[str, ...] = ()

    @cached_property
    def models(self) -> tuple[ModelInfo, ...]:
        """Return the models, in the order of the list."""
        return msgspec.json.decode(self.body, type=tuple[ModelInfo, ...])


class _Sellers(msgspec.Struct, frozen=True):
    providers: tuple[Seller, ...]


class Prices(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A price list: a file that nothing changes while the program runs; read when it is asked."""

    file: Path

    @cached_property
    def version(self) -> int:
        """A checksum, so that nobody has to raise it."""
        return crc32(self.file.read_bytes())

    @cached_property
    def sellers(self) -> tuple[Seller, ...]:
        """All who sell models, in the order of the list."""
        return msgspec.json.decode(self.file.read_bytes(), type=_Sellers).providers


SHIPPED: Final = Prices(FILE)
"""The list that ships with the program."""
