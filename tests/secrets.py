"""Made-up secrets: the blanks of the examples that redaction rules have, filled."""

from __future__ import annotations

import hashlib
import re
import string

FILLERS = {
    "A": string.ascii_letters + string.digits,
    "L": string.ascii_letters,
    "U": string.ascii_uppercase + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "B": "023456789ACDEFGHJKLMNPQRSTUVWXYZ",
    "d": string.digits,
    "h": "0123456789abcdef",
    "l": string.ascii_lowercase,
    "n": string.ascii_lowercase + string.digits,
    "s": string.ascii_letters + string.digits + "-_",
    "u": string.ascii_uppercase + "234567",
    "x": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
"""What the letter of a blank stands for."""

_BLANK = re.compile(r"\{([ABLUbdhlnsux])(\d+)\}")


def sample(template: str, seed: int = 0) -> str:
    """Fill the blanks of a template, `{A36}` say, with characters that follow from the seed."""
    supply = hashlib.shake_256(f"{seed}:{template}".encode()).digest(8 * len(template) + 8192)
    used = 0

    def filled(blank: re.Match[str]) -> str:
        nonlocal used
        letters, count = FILLERS[blank[1]], int(blank[2])
        used += count
        return "".join(letters[byte % len(letters)] for byte in supply[used - count : used])

    return _BLANK.sub(filled, template)
