"""The price list that ships with the program."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import msgspec

from scripts import prices
from thence.memory import pricelist


def test_it_is_generated_from_the_installed_package() -> None:
    """Every seller, model, price, tier, condition and clause; `scripts/prices.py` makes it anew."""
    generated = prices.price_list()

    assert f"genai-prices {version('genai-prices')}, MIT license" == generated.source
    body = pricelist.FILE.read_bytes()
    assert generated == msgspec.json.decode(body, type=pricelist.PriceList)


def test_the_models_of_a_seller_are_those_of_the_list() -> None:
    """Each is read when it is asked for: none is left out, none changed."""
    body = pricelist.FILE.read_bytes()
    listed = msgspec.json.decode(body, type=pricelist.PriceList).providers
    names = pricelist.Provider.__struct_fields__
    read = [pricelist.Provider(*(getattr(s, n) for n in names)) for s in pricelist.SHIPPED.sellers]

    assert list(listed) == read


def test_no_price_needs_the_package() -> None:
    """Neither its validator nor its HTTP client: it is not installed with thence."""
    script = (
        "import sys; from thence.memory import pricelist, prices;"
        "prices.tariff(pricelist.SHIPPED, 'claude-opus-4-5');"
        "print([name for name in ('genai_prices', 'pydantic', 'asyncio') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "[]" == run.stdout.strip()
