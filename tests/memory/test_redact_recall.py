"""How many planted secrets are found, in the forms that sessions hold them in.

The generator here knows the services' formats on its own: it shares neither templates nor values
with the table it tests. What is planted must be gone from the redacted text.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from thence.memory.redact import Redactor

Dice = random.Random
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits


def of(letters: str, size: int, prefix: str = "", suffix: str = "") -> Callable[[Dice], str]:
    """Make secrets of so many letters between a prefix and a suffix."""
    return lambda dice: prefix + "".join(dice.choices(letters, k=size)) + suffix


def joined(*parts: Callable[[Dice], str] | str) -> Callable[[Dice], str]:
    """Make secrets of several parts."""
    return lambda dice: "".join(part if isinstance(part, str) else part(dice) for part in parts)


def uuid(dice: Dice) -> str:
    """Make a UUID."""
    return "-".join("".join(dice.choices(HEX, k=size)) for size in (8, 4, 4, 4, 12))


def jwt(dice: Dice) -> str:
    """Make a token of three parts, the first two of them JSON in base64."""
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": uuid(dice), "iat": dice.randrange(10**9)})
    encoded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*encoded, of(URLSAFE, 43)(dice)])


def password(dice: Dice) -> str:
    """Make what a person would take for a strong password."""
    chosen = (
        dice.choices(ALNUM, k=9) + dice.choices(string.digits, k=2) + dice.choices("!@#%*+", k=1)
    )
    dice.shuffle(chosen)
    return "".join(chosen).replace("@", "!")


PREFIXED: dict[str, Callable[[Dice], str]] = {
    "anthropic": of(URLSAFE, 93, "sk-ant-" + "api03-", "AA"),
    "anthropic login": of(URLSAFE, 93, "sk-ant-" + "oat01-", "AA"),
    "openai project": joined("sk-" + "proj-", of(URLSAFE, 74), "T3Blbk" + "FJ", of(URLSAFE, 74)),
    "openai old": joined("sk" + "-", of(ALNUM, 20), "T3Blbk" + "FJ", of(ALNUM, 20)),
    "openrouter": of(HEX, 64, "sk-" + "or-v1-"),
    "xai": of(ALNUM, 80, "xai" + "-"),
    "groq": of(ALNUM, 52, "gsk" + "_"),
    "perplexity": of(ALNUM, 48, "pplx" + "-"),
    "hugging face": of(string.ascii_letters, 34, "hf" + "_"),
    "google key": of(URLSAFE, 33, "AIza" + "Sy"),
    "google login": of(URLSAFE, 160, "ya29" + ".a0"),
    "google secret": of(URLSAFE, 28, "GOCSPX" + "-"),
    "aws key": of(string.ascii_uppercase + "234567", 16, "AK" + "IA"),
    "github": of(ALNUM, 36, "gh" + "p_"),
    "github app": of(ALNUM, 36, "gh" + "s_"),
    "github fine": joined("github" + "_pat_", of(ALNUM, 22), "_", of(ALNUM, 59)),
    "gitlab": of(URLSAFE, 20, "gl" + "pat-"),
    "slack bot": joined(
        "xox" + "b-", of("123456789", 12), "-", of("123456789", 13), "-", of(ALNUM, 24)
    ),
    "slack app": joined("xapp" + "-1-A", of(UPPER, 10), "-", of("123456789", 13), "-", of(HEX, 64)),
    "stripe": of(ALNUM, 24, "sk" + "_live_"),
    "stripe new": of(ALNUM, 99, "rk" + "_live_"),
    "sendgrid": joined("SG" + ".", of(URLSAFE, 22), ".", of(URLSAFE, 43)),
    "npm": of(ALNUM, 36, "npm" + "_"),
    "pypi": of(URLSAFE, 160, "pypi-AgEIcHlwaS5" + "vcmc"),
    "docker hub": of(URLSAFE, 27, "dckr" + "_pat_"),
    "digitalocean": of(HEX, 64, "dop" + "_v1_"),
    "shopify": of(HEX, 32, "shp" + "at_"),
    "telegram": joined(of("123456789", 10), ":A" + "A", of(URLSAFE.replace("-", ""), 33)),
    "linear": of(ALNUM, 40, "lin" + "_api_"),
    "notion": joined("ntn" + "_", of(string.digits, 11), of(ALNUM, 35)),
    "databricks": of(HEX, 32, "dapi"),
    "vault": of(URLSAFE, 95, "hvs" + "."),
    "terraform": joined(of(ALNUM, 14), ".atlas" + "v1.", of(ALNUM, 67)),
    "grafana": joined("gl" + "sa_", of(ALNUM, 32), "_", of(HEX, 8)),
    "sentry": of(HEX, 64, "sntry" + "u_"),
    "new relic": of(UPPER, 27, "NRAK" + "-"),
    "postman": joined("PMAK" + "-", of(HEX, 24), "-", of(HEX, 34)),
    "supabase": of(HEX, 40, "sbp" + "_"),
    "fly": of(BASE64, 180, "fm2" + "_"),
    "age": of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58, "AGE-SECRET-" + "KEY-1"),
    "rubygems": of(HEX, 48, "rubygems" + "_"),
    "pulumi": of(HEX, 40, "pul" + "-"),
    "figma": of(URLSAFE, 40, "figd" + "_"),
    "jwt": jwt,
}
"""Secrets that are known by their own form, wherever they stand."""

NAMED: dict[str, tuple[str, Callable[[Dice], str]]] = {
    "aws secret": ("AWS_SECRET_ACCESS_KEY", of(BASE64, 40)),
    "heroku": ("HEROKU_API_KEY", uuid),
    "cloudflare": ("CLOUDFLARE_API_TOKEN", of(URLSAFE, 40)),
    "datadog": ("DD_API_KEY", of(HEX, 32)),
    "twilio": ("TWILIO_AUTH_TOKEN", of(HEX, 32)),
    "vercel": ("VERCEL_TOKEN", of(ALNUM, 24)),
    "azure": ("AZURE_OPENAI_API_KEY", of(HEX, 32)),
    "mistral": ("MISTRAL_API_KEY", of(ALNUM, 32)),
    "codecov": ("CODECOV_TOKEN", uuid),
    "secret": ("DJANGO_SECRET_KEY", of(ALNUM, 50)),
    "token": ("BUILDKITE_AGENT_TOKEN", of(ALNUM, 40)),
    "client secret": ("oauth_client_secret", of(LOWER, 40)),
    "password": ("DATABASE_PASSWORD", password),
}
"""Secrets that only their name gives away."""

WRAPPED = [
    "anthropic",
    "openai project",
    "xai",
    "google login",
    "github fine",
    "pypi",
    "vault",
    "jwt",
]
"""Secrets long enough for a terminal or an encoder to break them."""


def key_block(dice: Dice) -> tuple[str, list[str]]:
    """Make a private key, and its lines."""
    kind = dice.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = [of(BASE64, 64)(dice) for _ in range(dice.randint(2, 20))] + [
        of(BASE64, 42)(dice) + "=="
    ]
    head, tail = f"-----BEGIN {kind}PRIVATE " + "KEY-----", f"-----END {kind}PRIVATE " + "KEY-----"
    return "\n".join([head, *lines, tail]), lines


def planted() -> Iterator[tuple[str, str, list[str]]]:
    """Return texts with a secret: what it is, the text, and the pieces that must be gone."""
    dice = random.Random(20_26)
    for kind, make in PREFIXED.items():
        for form, text, secret in prefixed_forms(dice, make):
            yield f"{kind}, {form}", text, [secret]
    for kind, (name, make) in NAMED.items():
        for form, text, secret in named_forms(dice, name, make):
            yield f"{kind}, {form}", text, [secret]
    for kind in WRAPPED:
        for form, text, pieces in wrapped_forms(dice, PREFIXED[kind]):
            yield f"{kind}, {form}", text, pieces
    for _ in range(8):
        block, lines = key_block(dice)
        numbered = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(block.split("\n"), 1))
        yield "key block, plain", f"$ cat key\n{block}\n$", lines
        yield "key block, escaped", json.dumps({"private_key": block + "\n"}), lines
        yield "key block, escaped twice", json.dumps(json.dumps({"k": block})), lines
        yield "key block, numbered", numbered, lines
        yield "key block, cut off", "\n".join(block.split("\n")[:-2]), lines[:-1]
        yield "key block, in code", block.replace("\n", '\\n" +\n    "'), lines


def prefixed_forms(dice: Dice, make: Callable[[Dice], str]) -> Iterator[tuple[str, str, str]]:
    """Plant a secret that needs no name."""
    for _ in range(3):
        yield "plain", f"it is {(s := make(dice))} as agreed", s
        yield "code", f"client = Client('{(s := make(dice))}')", s
        yield "JSON", json.dumps({"a": 1, "value": (s := make(dice)), "b": [2]}), s
        yield "escaped JSON", json.dumps(json.dumps({"value": (s := make(dice))})), s
        yield "after an escape", json.dumps(f"first\n{(s := make(dice))}\nlast"), s
        yield "URL", f"GET https://h.internal/v1?q={quote(s := make(dice))}&limit=5", quote(s)
        yield (
            "URL user",
            f"git clone https://bot:{quote(s := make(dice))}@h.internal/r.git",
            quote(s),
        )
        yield "env dump", f"HOME=/root\nTHING={(s := make(dice))}\nSHELL=/bin/sh", s
        yield "export", f'export THING="{(s := make(dice))}"', s
        yield "header", f"> Authorization: Bearer {(s := make(dice))}\r\n> Accept: */*", s


def named_forms(
    dice: Dice, name: str, make: Callable[[Dice], str]
) -> Iterator[tuple[str, str, str]]:
    """Plant a secret with its name."""
    camel = name.title().replace("_", "")
    for _ in range(6):
        yield "env dump", f"HOME=/root\n{name}={(s := make(dice))}\nSHELL=/bin/sh", s
        yield "export", f"export {name}='{(s := make(dice))}'", s
        yield "code", f'{name.lower()} = "{(s := make(dice))}"', s
        yield "JSON", json.dumps({camel: (s := make(dice)), "b": 2}), s
        yield "escaped JSON", json.dumps(json.dumps({name.lower(): (s := make(dice))})), s
        yield "YAML", f"env:\n  {name}: {(s := make(dice))}\n", s
        yield "escaped lines", json.dumps(f"A=1\n{name}={(s := make(dice))}\nB=2\n"), s


def wrapped_forms(dice: Dice, make: Callable[[Dice], str]) -> Iterator[tuple[str, str, list[str]]]:
    """Plant a secret that is broken over lines."""
    for width in (60, 64, 76):
        s = make(dice)
        lines = [s[at : at + width] for at in range(0, len(s), width)]
        gone = [line for line in lines if len(line) >= 8]
        yield f"wrapped at {width}", "$ show\n" + "\n".join(lines) + "\n$ next", gone
        yield f"escaped, at {width}", json.dumps("$ show\n" + "\n".join(lines) + "\n$"), gone
        yield (
            f"literals, at {width}",
            "(" + "\n    ".join(f'"{line}"' for line in lines) + ")",
            gone,
        )


@pytest.fixture(scope="module")
def outcome() -> list[tuple[str, bool]]:
    """Tell of every planted secret what it was and whether it is gone."""
    redactor = Redactor(key=b"a key for tests")
    outcomes = []
    for kind, text, pieces in planted():
        redacted = redactor.redact(text)
        outcomes.append((kind, all(piece not in redacted for piece in pieces)))
    return outcomes


@pytest.mark.slow
def test_planted_secrets_are_found(outcome: list[tuple[str, bool]]) -> None:
    """At least 99 of 100 are gone, over more than forty kinds and all forms."""
    missed = [kind for kind, gone in outcome if not gone]

    assert 40 <= len(PREFIXED) + len(NAMED)
    assert 1900 <= len(outcome)
    assert len(missed) <= 0.01 * len(outcome), missed


@pytest.mark.slow
def test_every_kind_is_found_most_of_the_time(outcome: list[tuple[str, bool]]) -> None:
    """No kind hides behind the others."""
    seen: dict[str, list[bool]] = {}
    for kind, gone in outcome:
        seen.setdefault(kind.partition(",")[0], []).append(gone)

    assert [] == [kind for kind, gone in seen.items() if sum(gone) < 0.9 * len(gone)]


@pytest.mark.parametrize("kind", sorted(NAMED))
def test_a_name_in_a_json_value_counts(kind: str) -> None:
    """A secret is found by the key of the entry that holds it."""
    name, make = NAMED[kind]
    dice = random.Random(7)
    secrets = [make(dice) for _ in range(20)]
    redacted = Redactor(key=b"k").redact_json([{name.lower(): secret} for secret in secrets])

    assert 19 <= sum(
        secret not in json.dumps(entry) for secret, entry in zip(secrets, redacted, strict=True)
    )
