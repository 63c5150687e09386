"""Prices: money, or None; never a guess, never the network."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime, time
from decimal import Decimal

import genai_prices
import msgspec
import pytest
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from thence.format.records import Usage
from thence.memory.pricelist import SHIPPED
from thence.memory.prices import SYNTHETIC, TICK, find_listing, recorded_ticks, tariff

DAY = "2026-01-15"
SMALL = Usage(1_000, 500, 2_000, 3_000)

counts = st.integers(0, 400_000)
usages = st.builds(Usage, counts, counts, counts, counts)


def price(model: str, usage: Usage, day: str = DAY, tier: str | None = None) -> Decimal | None:
    """Return the dollars that a response costs on a day."""
    rates = tariff(SHIPPED, model, day, tier)
    ticks = rates.ticks(usage) if rates is not None else None
    return None if ticks is None else ticks * TICK


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(1_000), "0.005"),
        (Usage(cache_read_input_tokens=3_000), "0.0015"),
        (Usage(cache_creation_input_tokens=2_000), "0.0125"),
        (Usage(output_tokens=500), "0.0125"),
        (SMALL, "0.0315"),
    ],
)
def test_each_kind_of_token_has_its_rate(usage: Usage, dollars: str) -> None:
    """Input, cache reads, cache writes and output of one response; together they add up."""
    assert Decimal(dollars) == price("claude-opus-4-5", usage)


def test_writes_kept_for_an_hour_cost_twice_the_input() -> None:
    """The part of the cache writes that is kept longer is billed at its own rate."""
    parts = (0, 50_000, 100_000, 900_000)
    bills = [
        Usage(cache_creation_input_tokens=100_000, cache_1h_input_tokens=part) for part in parts
    ]

    assert [Decimal("0.625"), Decimal("0.8125"), 1, 1] == [
        price("claude-opus-4-5", usage) for usage in bills
    ]


def test_an_hour_costs_twice_the_input_where_the_list_is_silent() -> None:
    """Bedrock's list names no rate for it; the rule does."""
    name = "anthropic.claude-3-haiku-20240307-v1:0"
    usage = Usage(cache_creation_input_tokens=100_000, cache_1h_input_tokens=100_000)
    listing = find_listing(SHIPPED, name)

    assert listing is not None
    assert ("aws", Decimal("0.05")) == (listing.seller.id, price(name, usage))


def test_a_long_prompt_moves_all_tokens_to_its_band() -> None:
    """Over 200,000 tokens of prompt, cached ones included, every token has the higher rate."""
    short = price("claude-sonnet-4-5", Usage(100_000, 1_000, 0, 100_000))
    long = price("claude-sonnet-4-5", Usage(100_000, 1_000, 1, 100_000))

    assert Decimal("0.345") == short
    assert Decimal("0.6825075") == long


def test_prices_are_those_of_the_day() -> None:
    """A list that changed is read as of the time of the response; without one, as of today."""
    usage = Usage(100_000)

    assert [Decimal(1), Decimal("0.2"), Decimal("0.2"), Decimal("0.2")] == [
        price("o3", usage, day) for day in ("2025-06-09", "2025-06-10", "", "no day")
    ]


def test_a_prompt_beyond_the_context_window_has_no_price() -> None:
    """The list has no rates for it, unless it has a band for such prompts."""
    long, longest = Usage(200_001), Usage(200_000)

    assert price("claude-opus-4-5", long) is None
    assert price("claude-opus-4-5", longest) is not None
    assert price("claude-sonnet-4-5", long) is not None


def test_tiers_have_their_own_rates() -> None:
    """Flex and priority of one model differ from its standard price; so does a batch."""
    tiers = (None, "default", "standard", "flex", "priority", "batch", "[trimmed for fixture]")
    standard, *others = [price("gpt-5.4", SMALL, "", t) or Decimal(0) for t in tiers]
    default, same, flex, priority, batch, odd = others

    assert standard == default == same == odd
    assert 0 < flex < standard < priority
    assert 0 < batch < standard


@pytest.mark.parametrize("tier", ["fast", "priority", "flex"])
def test_a_tier_without_a_price_is_unknown(tier: str) -> None:
    """It costs something else than the standard price, and we do not know what; or not yet."""
    assert price("claude-opus-4-5", SMALL, tier=tier) is None
    assert price("gpt-5.4", SMALL, "2020-01-01", tier) is None


def test_web_searches_are_billed_apart() -> None:
    """By the thousand where the list has a price; else the rest is billed."""
    usage = Usage(1_000, web_searches=3)

    assert Decimal("0.035") == price("claude-opus-4-5", usage)
    assert Decimal("0.015") == price("claude-3-opus-20240229", usage)


def test_what_the_client_wrote_itself_costs_nothing() -> None:
    """A synthetic message asked no model."""
    assert Decimal(0) == price(SYNTHETIC, SMALL)


def test_a_recorded_cost_is_read_to_the_tick() -> None:
    """Claude's old dollars have a tail of noise, as sums of floats do."""
    assert [123_456_789, 87_760_000] == [
        recorded_ticks(dollars, SMALL) for dollars in (0.0123456789, 0.008775999999999999)
    ]


@pytest.mark.parametrize("recorded", [0, 0.0, -1, float("nan"), float("inf"), 10**400, True])
def test_a_recorded_cost_that_says_nothing_is_passed_over(recorded: float) -> None:
    """Clients write 0 where they know no price: it is not taken for one."""
    assert recorded_ticks(recorded, SMALL) is None


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("claude-haiku-4-5-20251001", "anthropic/claude-haiku-4-5"),
        ("claude-haiku-4.5", "anthropic/claude-haiku-4-5"),
        ("Claude-Sonnet-4.6", "anthropic/claude-sonnet-4-6"),
        ("claude-opus-4-20250514", "anthropic/claude-opus-4-0"),
        ("claude-fable-5.1", "anthropic/claude-fable-5-1"),
        ("claude-opus-4-5[1m]", "anthropic/claude-opus-4-5"),
        ("claude-opus-4-5-thinking", "anthropic/claude-opus-4-5"),
        ("anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5"),
        (
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "aws/regional.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("global.anthropic.claude-opus-4-6-v1", "aws/global.anthropic.claude-opus-4-6-v1:0"),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-4-1-20250805-v1:0",
            "aws/regional.anthropic.claude-opus-4-1-20250805-v1:0",
        ),
        ("claude-sonnet-4-5@20250929", "google/claude-sonnet-4-5"),
        ("vertex_ai/claude-opus-4-5@20251101", "google/claude-opus-4-5"),
        ("publishers/anthropic/models/claude-sonnet-4-6", "google/claude-sonnet-4-6"),
        ("gpt-5-codex", "openai/gpt-5"),
        ("gpt-5.2-codex-xhigh", "openai/gpt-5.2"),
        ("gpt-5 (high)", "openai/gpt-5"),
        ("gpt-5.2-20251211", "openai/gpt-5.2"),
        ("openai/gpt-5", "openai/gpt-5"),
        ("azure/gpt-5", "azure/gpt-5"),
        ("grok-4", "x-ai/grok-4-0709"),
        ("xai/grok-4.5", "x-ai/grok-4.5"),
        ("grok-code-fast-1", "x-ai/grok-code-fast-1"),
        ("moonshot-ai/kimi-k2.7-code", "moonshotai/kimi-k2.7-code"),
        ("models/gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("gemini-2.5-flash-preview-05-20", "google/gemini-2.5-flash-preview"),
    ],
)
def test_names_of_all_agents_lead_to_the_list(name: str, listed: str) -> None:
    """Dates, context suffixes, routes, Bedrock and Vertex forms, dots and efforts are read."""
    listing = find_listing(SHIPPED, name)

    assert listing is not None
    assert listed == f"{listing.seller.id}/{listing.model.id}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "haiku",
        "mock-grok",
        "codex-auto-review",
        "gpt-5.3-codex-spark",
        "grok-4.5-fast",
        "claude",
        "claude-opus-4-10",
        "claude-sonnet-4-6-1",
        "claude-opus-4-8-fast",
        "ollama/gpt-oss-20b",
        "[1m]",
        "/",
        "omni-moderation-latest",
        "a" * 100_000,
        "\ud800\0" * 50,
    ],
)
def test_an_unknown_model_has_no_price(name: str) -> None:
    """Not zero, and not the price of a model whose name starts the same."""
    assert price(name, SMALL) is None


def test_a_rate_that_the_list_lacks_is_unknown() -> None:
    """A model that sells no output has a price for input, and none for what it cannot do."""
    name = "openai/text-embedding-3-small"

    assert Decimal("0.00002") == price(name, Usage(1_000))
    assert price(name, Usage(1_000, 1)) is None


def test_who_sold_it_is_asked_first() -> None:
    """The list of the seller that a route names beats the maker's; one's own machine has none."""
    routes = ("azure/gpt-5", "my-proxy/gpt-5", "gpt-5")
    listings = [find_listing(SHIPPED, route) for route in routes]

    assert ["azure", "openai", "openai"] == [made and made.seller.id for made in listings]
    assert find_listing(SHIPPED, "ollama/gpt-oss-20b") is None


@given(
    st.sampled_from([(p.id, m.id) for p in providers for m in p.models if m.is_match(m.id)]),
    usages,
    st.integers(0, 400_000),
    st.dates(date(2024, 1, 1), date(2027, 1, 1)),
)
def test_our_arithmetic_is_the_list_s_own(
    model: tuple[str, str], usage: Usage, cache_1h: int, day: date
) -> None:
    """For any model of the list we come to the price that its own code comes to, or to None."""
    seller, name = model
    long = min(cache_1h, usage.cache_creation_input_tokens)
    theirs = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.total - usage.output_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_input_tokens,
            cache_write_tokens=usage.cache_creation_input_tokens,
            cache_write_1h_tokens=long,
        ),
        name,
        provider_id=seller,
        genai_request_timestamp=datetime.combine(day, time(12)),
    )
    listing = find_listing(SHIPPED, f"{seller}/{name}")
    bill = msgspec.structs.replace(usage, cache_1h_input_tokens=cache_1h)
    ours = price(f"{seller}/{name}", bill, day.isoformat())
    silent = theirs.model_price.cache_write_1h_mtok is None
    if listing is None or ours is None or (long and silent):
        return
    if (listing.seller.id, listing.model.id) != (theirs.provider.id, theirs.model.id):
        return

    assert theirs.total_price.quantize(TICK) == ours


@given(st.text(max_size=300), st.one_of(st.none(), st.text(max_size=120)), usages)
def test_no_name_raises(name: str, tier: str | None, usage: Usage) -> None:
    """Names come from logs: whatever they are, the answer is a price or None."""
    priced = price(name, usage, tier=tier)

    assert priced is None or priced >= 0


ALONE = """
import sys, threading
import thence.memory.prices as prices
from thence.memory.pricelist import SHIPPED
from thence.format.records import Usage
assert "genai_prices" not in sys.modules
def watch(event, args):
    if event.startswith("socket.") or event == "subprocess.Popen":
        sys.stdout.write(event)
sys.addaudithook(watch)
assert prices.tariff(SHIPPED, "claude-opus-4-5").ticks(Usage(1, 1)) is not None
assert prices.tariff(SHIPPED, "nobody-knows") is None
assert threading.active_count() == 1
"""


@pytest.mark.slow
def test_no_socket_is_ever_opened() -> None:
    """Neither reading the list nor asking it uses the network, a thread or a process.

    And the list is not read before it is asked.
    """
    result = subprocess.run(
        [sys.executable, "-c", ALONE], check=False, capture_output=True, text=True
    )

    assert ("", "", 0) == (result.stdout, result.stderr, result.returncode)
