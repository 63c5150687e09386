"""The price list, read without the package that holds it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
from genai_prices.data import providers as listed

from thence.memory import pricelist

UNREAD = {"description", "price_comments", "extractors", "_"}


def told(value: Any) -> Any:
    """Give a value of either list as plain ones: the name of its kind, and its fields."""
    kind = type(value).__name__
    if kind == "ModelPrice":
        return kind, {name: told(price) for name, price in vars(value).items()}
    if dataclasses.is_dataclass(value):
        names = {field.name for field in dataclasses.fields(value)}
        return kind, {name: told(getattr(value, name)) for name in names - UNREAD}
    if hasattr(value, "__struct_fields__"):
        names = set(value.__struct_fields__)
        return kind, {name: told(getattr(value, name)) for name in names - UNREAD}
    return [told(part) for part in value] if isinstance(value, list) else value


def test_it_is_the_list_of_the_package() -> None:
    """Every seller, model, price, tier, condition and clause."""
    found = pricelist.providers()

    assert all(isinstance(one, pricelist.Provider) for one in found)
    assert told(listed) == told(found)


def test_a_list_that_says_something_new_is_read_by_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kind of clause that is not known here costs time, never a price."""
    known = {name: kind for name, kind in pricelist._KNOWN.items() if name != "ClauseRegex"}
    monkeypatch.setattr(pricelist, "_KNOWN", known)
    pricelist.providers.cache_clear()
    try:
        found: list[Any] = list(pricelist.providers())

        assert listed == found
    finally:
        pricelist.providers.cache_clear()


def test_reading_it_loads_no_other_part_of_the_package() -> None:
    """Neither its validator nor its HTTP client."""
    script = (
        "import sys; from thence.memory import prices; prices.tariff('claude-opus-4-5');"
        "print([name for name in ('genai_prices', 'pydantic', 'asyncio') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "[]" == run.stdout.strip()
