"""Prices: money with its derivation, or None; never a guess, never the network."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from thence.format.records import Usage
from thence.memory.prices import SYNTHETIC, TICK, Price, price, tariff

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
MILLION = Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000)
SMALL = Usage(1_000, 500, 2_000, 3_000)

counts = st.integers(0, 400_000)
usages = st.builds(Usage, counts, counts, counts, counts)


def usd(priced: Price | None) -> Decimal:
    """The money of a price that must be known."""
    assert priced is not None
    return priced.usd


def test_each_kind_of_token_has_its_rate() -> None:
    """Input, cache reads, cache writes and output of one response, each said apart."""
    priced = price("claude-opus-4-5", SMALL, at=NOON)

    assert priced is not None
    assert Decimal("0.0315") == priced.usd
    assert [
        "1,000 input at $5/M",
        "3,000 cache read at $0.5/M",
        "2,000 cache write at $6.25/M",
        "500 output at $25/M",
    ] == [str(line) for line in priced.lines]
    assert ("listed", "anthropic", "claude-opus-4-5") == (
        priced.source,
        priced.provider,
        priced.model,
    )


def test_a_price_explains_itself() -> None:
    """It says what was counted, at which rate, and where the rate was found."""
    priced = price("anthropic/claude-opus-4-5[1m]", Usage(2_000, 100), at=NOON)

    assert priced is not None
    assert ["2,000 input at $5/M", "100 output at $25/M"] == [str(line) for line in priced.lines]
    assert (
        "anthropic list, claude-opus-4-5 read without its context suffix and route" == priced.match
    )


def test_parts_add_up_to_the_last_digit() -> None:
    """Sums agree in any order and grouping, as no part was ever rounded."""
    prices = [usd(price("claude-opus-4-5", Usage(n, n * 7, n % 3, n), at=NOON)) for n in range(99)]

    assert sum(prices) == sum(reversed(prices)) == sum(prices[::2]) + sum(prices[1::2])


def test_writes_kept_for_an_hour_cost_twice_the_input() -> None:
    """The part of the cache writes that is kept longer is billed at its own rate."""
    usage = Usage(cache_creation_input_tokens=100_000)

    assert [Decimal("0.625"), Decimal("0.8125"), 1, 1] == [
        usd(price("claude-opus-4-5", usage, at=NOON, cache_1h=part))
        for part in (0, 50_000, 100_000, 900_000)
    ]


def test_an_hour_costs_twice_the_input_where_the_list_is_silent() -> None:
    """Bedrock's list names no rate for it; the rule does."""
    name = "anthropic.claude-3-haiku-20240307-v1:0"
    priced = price(name, Usage(cache_creation_input_tokens=100_000), cache_1h=100_000)

    assert priced is not None
    assert ("aws", Decimal("0.05")) == (priced.provider, priced.usd)


def test_a_long_prompt_moves_all_tokens_to_its_band() -> None:
    """Over 200,000 tokens of prompt, cached ones included, every token has the higher rate."""
    short = price("claude-sonnet-4-5", Usage(100_000, 1_000, 0, 100_000), at=NOON)
    long = price("claude-sonnet-4-5", Usage(100_000, 1_000, 1, 100_000), at=NOON)

    assert Decimal("0.345") == usd(short)
    assert Decimal("0.6825075") == usd(long)


def test_prices_are_those_of_the_day() -> None:
    """A list that changed is read as of the time of the response; without one, as of today."""
    usage = Usage(100_000)
    before, after = datetime(2025, 6, 9, tzinfo=UTC), datetime(2025, 6, 10, tzinfo=UTC)

    assert [Decimal(1), Decimal("0.2"), Decimal("0.2")] == [
        usd(price("o3", usage, at=at)) for at in (before, after, None)
    ]


def test_a_prompt_beyond_the_context_window_has_no_price() -> None:
    """The list has no rates for it, unless it has a band for such prompts; the tariff agrees."""
    long, longest = Usage(200_001), Usage(200_000)
    plain, banded = tariff("claude-opus-4-5"), tariff("claude-sonnet-4-5")

    assert price("claude-opus-4-5", long) is None
    assert price("claude-opus-4-5", longest) is not None
    assert price("claude-sonnet-4-5", long) is not None
    assert plain is not None
    assert banded is not None
    assert plain.ticks(long) is None
    assert plain.ticks(longest) is not None
    assert banded.ticks(long) is not None


def test_tiers_have_their_own_rates() -> None:
    """Flex and priority of one model differ from its standard price; so does a batch."""
    tiers = (None, "default", "standard", "flex", "priority", "batch", "[trimmed for fixture]")
    standard, *others = [usd(price("gpt-5.4", SMALL, service_tier=t)) for t in tiers]
    default, same, flex, priority, batch, odd = others

    assert standard == default == same == odd
    assert flex < standard < priority
    assert batch < standard


@pytest.mark.parametrize("tier", ["fast", "priority", "flex"])
def test_a_tier_without_a_price_is_unknown(tier: str) -> None:
    """It costs something else than the standard price, and we do not know what; or not yet."""
    early = datetime(2020, 1, 1, tzinfo=UTC)

    assert price("claude-opus-4-5", SMALL, service_tier=tier) is None
    assert price("gpt-5.4", SMALL, service_tier=tier, at=early) is None


def test_web_searches_are_billed_apart() -> None:
    """By the thousand where the list has a price; else the price says that it lacks them."""
    known = price("claude-opus-4-5", Usage(1_000), web_searches=3)
    silent = price("claude-3-opus-20240229", Usage(1_000), web_searches=3)

    assert Decimal("0.035") == usd(known)
    assert Decimal("0.015") == usd(silent)
    assert silent is not None
    assert ("3 web searches have no price in the list",) == silent.notes


def test_what_the_client_wrote_itself_costs_nothing() -> None:
    """A synthetic message asked no model."""
    priced = price("<synthetic>", SMALL)

    assert priced is not None
    assert (Decimal(0), "free") == (priced.usd, priced.source)


def test_a_recorded_cost_is_preferred() -> None:
    """Grok's ticks and Claude's old dollars win over the list, for unknown models, too."""
    ticks = price("grok-4.5", SMALL, recorded=Decimal(123_456_789) * TICK)
    dollars = price("nobody-knows", SMALL, recorded=0.008775999999999999)

    assert ticks is not None
    assert dollars is not None
    assert (Decimal("0.0123456789"), "recorded", 123_456_789) == (
        ticks.usd,
        ticks.source,
        ticks.ticks,
    )
    assert (Decimal("0.008776"), "nobody-knows") == (dollars.usd, dollars.model)


@pytest.mark.parametrize("recorded", [0, 0.0, -1, float("nan"), float("inf"), 10**400, True])
def test_a_recorded_cost_that_says_nothing_is_passed_over(recorded: float) -> None:
    """Clients write 0 where they know no price: it is not taken for one."""
    assert price("nobody-knows", SMALL, recorded=recorded) is None
    assert Decimal("0.0315") == usd(price("claude-opus-4-5", SMALL, recorded=recorded))


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
    priced = price(name, SMALL)

    assert priced is not None
    assert listed == f"{priced.provider}/{priced.model}"


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
    name = "text-embedding-3-small"

    assert Decimal("0.00002") == usd(price(name, Usage(1_000), provider="openai"))
    assert price(name, Usage(1_000, 1), provider="openai") is None


def test_who_sold_it_is_asked_first() -> None:
    """The seller's list beats the maker's; a seller nobody knows is said; one's own has none."""
    bedrock = price("claude-sonnet-4-5-20250929", SMALL, provider="amazon-bedrock")
    proxy = price("gpt-5", SMALL, provider="my-proxy")
    route = price("openai/gpt-5", SMALL, provider="my-proxy")

    assert bedrock is not None
    assert proxy is not None
    assert route is not None
    assert proxy.notes == route.notes
    assert ("aws", ()) == (bedrock.provider, bedrock.notes)
    assert ("openai", ("no price at 'my-proxy'; the maker's list price",)) == (
        proxy.provider,
        proxy.notes,
    )
    assert price("gpt-oss-20b", SMALL, provider="ollama") is None


@given(
    st.sampled_from([(p.id, m.id) for p in providers for m in p.models if m.is_match(m.id)]),
    usages,
    st.integers(0, 400_000),
    st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 - naive means UTC
)
def test_our_arithmetic_is_the_list_s_own(
    model: tuple[str, str], usage: Usage, cache_1h: int, at: datetime
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
        genai_request_timestamp=at,
    )
    ours = price(name, usage, provider=seller, at=at, cache_1h=cache_1h)
    silent = theirs.model_price.cache_write_1h_mtok is None
    if ours is None or ours.model != theirs.model.id or (long and silent):
        return

    assert theirs.total_price == ours.usd


@given(st.text(max_size=300), st.one_of(st.none(), st.text(max_size=120)), usages)
def test_no_name_raises(name: str, provider: str | None, usage: Usage) -> None:
    """Names come from logs: whatever they are, the answer is a price or None."""
    priced = price(name, usage, provider=provider, service_tier=provider)

    assert priced is None or priced.usd >= 0


listed = [
    model.id
    for provider in providers
    if provider.id in ("anthropic", "openai", "x-ai", "google")
    for model in provider.models
]
counts = st.one_of(st.just(0), st.integers(0, 300_000), st.integers(0, 10**12))
bills = st.builds(Usage, counts, counts, counts, counts, counts, st.integers(0, 9))


@given(
    st.sampled_from([*listed, SYNTHETIC, "nobody-knows"]),
    bills,
    st.sampled_from(["2024-07-01", "2026-01-31", "", "no day"]),
    st.sampled_from([None, "batch", "priority", "flex", "standard"]),
)
def test_tariff_says_what_price_says(name: str, usage: Usage, day: str, tier: str | None) -> None:
    """To the tick: bands, tiers, cache writes of both kinds, searches, unknown rates."""
    at = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC) if day[:2] == "20" else None
    priced = price(
        name,
        usage,
        at=at,
        cache_1h=usage.cache_1h_input_tokens,
        web_searches=usage.web_searches,
        service_tier=tier,
    )
    rates = tariff(name, day, tier)

    assert (priced and priced.ticks) == (rates and rates.ticks(usage))


ALONE = """
import sys, threading
import thence.memory.prices as prices
from thence.format.records import Usage
assert "genai_prices" not in sys.modules
def watch(event, args):
    if event.startswith("socket.") or event == "subprocess.Popen":
        sys.stdout.write(event)
sys.addaudithook(watch)
assert prices.price("claude-opus-4-5", Usage(1, 1)) is not None
assert prices.price("nobody-knows", Usage(1, 1)) is None
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
