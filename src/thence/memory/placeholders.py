"""What stands in the place of a secret, and how many different secrets some texts had.

A placeholder is `[REDACTED:kind:1a2b3c4d]`: eight digits by which equal secrets stay equal, none
for kinds that can be guessed. What is between the brackets and after the first colon, `kind` and
mark, names a secret here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

BEGINNING: Final = "[REDACTED:"
"""How every placeholder begins."""

PLACEHOLDER: Final = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}(?::[0-9a-f]{8})?\]")
PLACEHOLDER_BYTES: Final = re.compile(rb"\[REDACTED:([a-z0-9-]{1,40}(?::[0-9a-f]{8})?)\]")


MAX_SECRETS: Final = 1000
"""Secrets of one session that are told apart: a log full of them must not fill its row."""


def placeholder(kind: str, mark: str = "") -> str:
    """Return what stands in the place of a secret."""
    return f"{BEGINNING}{kind}:{mark}]" if mark else f"{BEGINNING}{kind}]"


def secrets_in(*bodies: bytes) -> set[str]:
    """Return the secrets that were taken out of some texts.

    Equal secrets have equal marks and count once. Those of a kind that can be guessed, such as
    passwords, have none: all of a kind count as one.
    """
    beginning = BEGINNING.encode()
    names = (PLACEHOLDER_BYTES.findall(body) for body in bodies if beginning in body)
    return {secret.decode() for secrets in names for secret in secrets}


def distinct_secrets(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the secrets of a session that its row keeps: all of them, or the first by name."""
    return tuple(sorted(secrets)[:MAX_SECRETS])


def has_more(secrets: Collection[str]) -> bool:
    """Whether a session may have more secrets than its row keeps: its counts are minimums."""
    return len(secrets) >= MAX_SECRETS


def count_by_rule(secrets: Iterable[str]) -> dict[str, int]:
    """Return how many secrets each rule found, by its name."""
    return dict(sorted(Counter(secret.partition(":")[0] for secret in secrets).items()))
