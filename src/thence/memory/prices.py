"""What a usage cost, from a price list that ships with the program. Nothing here uses a network.

`tariff` gives the rates of a model, or None when it does not know: an unknown model, or a tier it
has no price for; `Tariff.ticks` is None where the list lacks a rate. None is never zero, and zero
is never a guess. What the log itself recorded is preferred to the list (`recorded_ticks`).

Money is a whole number of ticks: sums of them agree in any order, so that the parts of a total by
day, by model and by session are equal to the last digit, and a database can add them up.

The list is generated from genai-prices when thence is built (`pricelist`), and read when the first
price is asked for: the same version of thence gives the same usage the same price everywhere.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from thence.format.expressions import expression
from thence.format.records import Usage

if TYPE_CHECKING:
    from thence.memory.pricelist import Clause, ModelInfo, Prices, Rate, Rates, Seller

TICK: Final = Decimal("1e-10")
"""One tick in dollars: the smallest unit that any agent records."""

SYNTHETIC: Final = "<synthetic>"
"""The model of messages that a client wrote itself; nobody was asked and nothing was billed."""

_LOCAL = frozenset({"ollama", "lmstudio", "lm-studio", "oss", "llama.cpp", "llamacpp", "local"})
_OTHERWISE = frozenset({"priority", "flex", "fast", "batch", "scale"})  # other names cost as usual

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (expression(r"\s*\[[^\]]*\]$"), ""),
    (expression(r"^[^/]*/"), ""),
    (expression(r"^[^/]*/"), ""),
    (expression(r"^.*/"), ""),
    (expression(r"-v[0-9]+(?::[0-9]+[a-z]?)*$"), ""),
    (expression(r"^(?:[a-z-]+\.)?(?:anthropic|openai|xai|moonshot|google)\."), ""),
    (expression(r"[-@](?:20[0-9]{6}|20[0-9]{2}-[0-9]{2}-[0-9]{2}|default)$"), ""),
    (expression(r"[-_ ]\(?(?:minimal|low|medium|high|xhigh)\)?$"), ""),
    (expression(r"(?<=[0-9])\.(?=[0-9])"), "-"),
)
"""What is taken off a name, in this order, until the list knows it."""

_ANOTHER = expression(
    r"^[-.]?[0-9]{1,2}(?![0-9]|-[0-9]{2}(?![0-9]))"
    r"|[-_:.](?:batch|fast|flash|free|highspeed|lite|max|mini|nano|pro|spark|turbo|ultra)(?![a-z])"
)
"""How a longer name goes on when it is another model, at another price."""


class ListedModel(NamedTuple):
    """A model, and the list that has it."""

    seller: Seller
    model: ModelInfo


class Tariff:
    """The rates of one model on one day.

    They are whole numbers here, so that a response takes a few multiplications. The band for long
    prompts follows from each response: sums of several are not priced.
    """

    def __init__(self, rates: Rates, context_window: int | None = None) -> None:
        self._starts = sorted({0, *(start + 1 for start in _band_starts(rates))})
        self._longest_prompt = _longest_prompt(rates, context_window)
        self._bands = [
            [_scale(part) for part in _part_rates(rates, start)] for start in self._starts
        ]

    def ticks(self, usage: Usage) -> int | None:
        """Return what a response cost, in ticks; None when a part of it has no known rate."""
        prompt = prompt_tokens(usage)
        if prompt > self._longest_prompt:
            return None
        band = self._bands[bisect_right(self._starts, max(prompt, 0)) - 1]
        counts = _part_counts(usage)
        total = 0
        for count, rate in zip(counts, band, strict=True):
            if count > 0:
                if rate is None:
                    return None
                total += count * rate
        ticks, rest = divmod(total, _SCALE)
        # Halves go to the even number, as decimals do.
        return ticks + (rest * 2 > _SCALE or (rest * 2 == _SCALE and ticks % 2))


@lru_cache(maxsize=4096)
def tariff(
    prices: Prices, model: str, day: str = "", service_tier: str | None = None
) -> Tariff | None:
    """Return the rates of a known model on a day (`2026-01-31`; today's if it is none)."""
    if model == SYNTHETIC:
        return Tariff({"input_mtok": Decimal(0), "output_mtok": Decimal(0)})
    listing = find_listing(prices, model)
    if listing is None:
        return None
    try:
        # At noon, as some prices depend on the hour: an unknown time should not add chance.
        at = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC)
    except ValueError:
        at = datetime.now(UTC).replace(hour=12)
    tier = _context(listing.model, service_tier, at)
    if tier is None:
        return None
    return Tariff(listing.model.get_prices(at, tier), listing.model.context_window)


def is_listed(prices: Prices, model: str) -> bool:
    """Return whether the list has a price of a model, at whatever tier."""
    return model == SYNTHETIC or find_listing(prices, model) is not None


def prompt_tokens(usage: Usage) -> int:
    """Return how much the model was given to read."""
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def _band_starts(rates: Rates) -> set[int]:
    """Return the prompt lengths above which other rates hold."""
    banded = (rates.get(name) for name in _RATES)
    return {tier.start for rate in banded for tier in getattr(rate, "tiers", ())}


def _longest_prompt(rates: Rates, context_window: int | None) -> float:
    """Return how long a prompt may be for the listed rates to hold.

    A prompt beyond the context window was sent at terms that the list does not have, unless it
    has a band of its own for such prompts.
    """
    if context_window is None or any(start >= context_window for start in _band_starts(rates)):
        return math.inf
    return context_window


_RATES = (
    *("input_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_5m_mtok"),
    *("cache_write_1h_mtok", "output_mtok", "requests_kcount", "web_searches_kcount"),
)
_SCALE = 10**12
"""Parts of a tick in which rates are held: the list has none that is finer."""


def _scale(part: _PartRate) -> int | None:
    """Return a rate as a whole number; 0 for what costs nothing where the list names no rate."""
    if part.rate is None:
        return 0 if part.is_optional else None
    return int(part.rate / TICK / part.per * _SCALE)


def recorded_ticks(dollars: float, usage: Usage) -> int | None:
    """Return a recorded cost in ticks; None where it says nothing: clients write 0 for unknown."""
    # Written so that what is no number fails it.
    if isinstance(dollars, bool) or not 0 <= dollars <= 1_000_000 or (not dollars and usage.total):
        return None
    # Sums of floats have a tail of noise, far below the smallest unit.
    return int((Decimal(str(dollars)) / TICK).to_integral_value())


# -- the bill -------------------------------------------------------------------------------


class _PartRate(NamedTuple):
    """What one part of a response costs."""

    rate: Decimal | None
    per: int = 1_000_000
    is_optional: bool = False
    """Whether a response has a price though this part has none."""


def _part_rates(rates: Rates, prompt: int) -> tuple[_PartRate, ...]:
    """Return what each part of a response costs whose prompt is this long.

    These are input, cache reads, cache writes, those that are kept for an hour, output, the
    request itself, web searches.
    """
    plain = _first(prompt, rates.get("input_mtok"))
    written = rates.get("cache_write_5m_mtok"), rates.get("cache_write_mtok"), plain
    # Where the list has no price for the cache, its tokens are billed as input, and those that
    # are kept for an hour as twice the input.
    return (
        _PartRate(plain),
        _PartRate(_first(prompt, rates.get("cache_read_mtok"), plain)),
        _PartRate(_first(prompt, *written)),
        _PartRate(_first(prompt, rates.get("cache_write_1h_mtok"), plain and 2 * plain)),
        _PartRate(_first(prompt, rates.get("output_mtok"))),
        _PartRate(_first(0, rates.get("requests_kcount")), 1_000, is_optional=True),
        _PartRate(_first(prompt, rates.get("web_searches_kcount")), 1_000, is_optional=True),
    )


def _part_counts(usage: Usage) -> tuple[int, ...]:
    """Return how much of each part a response has, in the order of `_part_rates`."""
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    long = min(max(usage.cache_1h_input_tokens, 0), written)
    searches = usage.web_searches
    return usage.input_tokens, read, written - long, long, usage.output_tokens, 1, searches


def _first(prompt: int, *rates: Rate | None) -> Decimal | None:
    """The first rate there is, in the band of a prompt this long; a band holds for all tokens."""
    for rate in rates:
        if isinstance(rate, Decimal):
            return rate
        if rate is not None:
            bands = [(tier.start, tier.price) for tier in rate.tiers if prompt > tier.start]
            return max(bands)[1] if bands else rate.base
    return None


def _context(model: ModelInfo, service_tier: str | None, at: datetime) -> dict[str, str] | None:
    """What picks a tier's own rates; None when the tier costs otherwise and has none that day."""
    tier = (service_tier or "").strip().lower()
    context = {"processing": "batch"} if tier == "batch" else {"service_tier": tier}
    for variant in model.price_variants or ():
        if context == variant.when and (
            variant.constraint is None or variant.constraint.active(at)
        ):
            return context
    return None if tier in _OTHERWISE else {}


# -- the list -------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def find_listing(prices: Prices, model: str) -> ListedModel | None:
    """Look a model up along the route in its name, then at its maker."""
    name = model.strip().lower()
    hints = list(_hints(name))
    if not name or len(name) > 200 or _LOCAL.intersection(hints):
        return None
    spellings = list(_spellings(name))
    for hint in hints:
        if (seller := _seller(prices, hint)) and (
            listing := _find_model(prices, seller, spellings)
        ):
            return listing
    for spelling in spellings:
        for maker in prices.sellers:
            if maker.model_match is not None and maker.model_match.is_match(spelling):
                if listing := _find_model(prices, maker, [spelling]):
                    return listing
                break
    return None


def _hints(name: str) -> Iterator[str]:
    """Yield who may have sold a model, as the form of its name tells."""
    if re.match(r"arn:aws:bedrock|(?:[a-z-]+\.)?anthropic\.", name):
        yield "bedrock"
    if "@" in name or name.startswith(("publishers/", "projects/")):
        yield "vertex"
    yield from name.split("/")[:-1][:3]


def _spellings(name: str) -> Iterator[str]:
    """Yield the name, and what is left of it as more is taken off."""
    yield name
    for pattern, instead in _STEPS:
        shorter = pattern.sub(instead, name)
        if shorter != name and shorter:
            name = shorter
            yield name


def _seller(prices: Prices, hint: str) -> Seller | None:
    for seller in prices.sellers:
        if seller.id == hint:
            return seller
    for seller in prices.sellers:
        if seller.provider_match is not None and seller.provider_match.is_match(hint):
            return seller
    return None


def _find_model(prices: Prices, seller: Seller, spellings: Sequence[str]) -> ListedModel | None:
    others = [p for p in prices.sellers if p.id in seller.fallback_model_providers]
    models = [model for listing in (seller, *others) for model in listing.models]
    for spelling in spellings:
        for model in models:
            if _is(model.match, spelling):
                return ListedModel(seller, model)
    return None


def _is(clause: Clause, name: str) -> bool:
    """Whether a clause of the list means this model, and not just a name that starts the same.

    The list asks what a name starts with; so a newer or a faster model than it knows would get
    the price of an older one.
    """
    if clause.or_ is not None:
        return any(_is(part, name) for part in clause.or_)
    if clause.and_ is not None:
        return all(_is(part, name) for part in clause.and_)
    if clause.starts_with is not None:
        return clause.is_match(name) and _ANOTHER.search(name[len(clause.starts_with) :]) is None
    return clause.is_match(name)
