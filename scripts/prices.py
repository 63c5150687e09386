"""Generate the price list that ships with the program from the installed genai-prices.

    .venv/bin/python scripts/prices.py

A test compares the two, so a new version of the package (constraints.txt) asks for a new list.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from importlib.metadata import version
from typing import Any

import msgspec
from genai_prices.data import providers

from thence.memory import pricelist


def main() -> None:
    """Write the list, one model per line."""
    prices = price_list()
    head = msgspec.json.encode(prices.source).decode()
    blocks = []
    for provider in prices.providers:
        fields = msgspec.to_builtins(provider)
        models = ",\n".join(msgspec.json.encode(model).decode() for model in fields.pop("models"))
        start = msgspec.json.encode(fields).decode()[:-1]
        blocks.append(f'{start},"models":[\n{models}\n]}}')
    body = ",\n".join(blocks)
    pricelist.FILE.write_text(f'{{"source":{head},"providers":[\n{body}\n]}}\n', encoding="utf-8")


def price_list() -> pricelist.PriceList:
    """Return the list of the package in our format."""
    source = f"genai-prices {version('genai-prices')}, MIT license"
    return pricelist.PriceList(source, tuple(_provider(provider) for provider in providers))


def _provider(provider: Any) -> pricelist.Provider:
    return pricelist.Provider(
        provider.id,
        tuple(_model(model) for model in provider.models),
        _clause(provider.model_match),
        _clause(provider.provider_match),
        tuple(provider.fallback_model_providers or ()),
    )


def _model(model: Any) -> pricelist.ModelInfo:
    match = _clause(model.match)
    assert match is not None
    several = model.prices if isinstance(model.prices, list) else [model]
    return pricelist.ModelInfo(
        model.id,
        match,
        tuple(_price(price) for price in several),
        tuple(_price(variant) for variant in model.price_variants or ()),
        model.context_window,
    )


def _price(price: Any) -> pricelist.ConditionalPrice:
    return pricelist.ConditionalPrice(
        {name: _rate(rate) for name, rate in vars(price.prices).items() if rate is not None},
        _constraint(getattr(price, "constraint", None)),
        getattr(price, "when", {}),
    )


def _rate(rate: Any) -> pricelist.Rate:
    if not hasattr(rate, "tiers"):
        return rate  # type: ignore[no-any-return]
    tiers = sorted((pricelist.Tier(tier.start, tier.price) for tier in rate.tiers), key=_start)
    return pricelist.TieredPrices(rate.base, tuple(tiers))


def _start(tier: pricelist.Tier) -> int:
    return tier.start


def _constraint(constraint: Any) -> pricelist.Constraint | None:
    if constraint is None:
        return None
    if hasattr(constraint, "start_date"):
        return pricelist.Constraint(constraint.start_date)
    return pricelist.Constraint(None, _in_utc(constraint.start_time), _in_utc(constraint.end_time))


def _in_utc(moment: time) -> time:
    if moment.tzinfo is None:
        return moment
    return datetime.combine(date(1970, 1, 1), moment).astimezone(UTC).time()


def _clause(clause: Any) -> pricelist.Clause | None:
    if clause is None:
        return None
    fields = vars(clause)
    (name, value), *more = fields.items()
    assert not more, fields
    if name in ("or_", "and_"):
        value = tuple(_clause(part) for part in value)
    return pricelist.Clause(**{name: value})


if __name__ == "__main__":
    main()
