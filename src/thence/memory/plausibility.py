"""What a pattern caught: a secret, or only something that looks like one.

Placeholders of documentation, names of variables, ids, hashes, paths and words are no secrets.
All checks are pure, see bytes only, and are linear in the secret; of a long one they judge the
first part.
"""

from __future__ import annotations

import binascii
import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from thence.format.expressions import expression
from thence.memory.rules import FOLD, Rule

_JUDGED_BYTES = 2048
"""So many bytes of a secret say enough about it."""

_PLACEHOLDER_BYTES = 64
"""A placeholder says so early; later in a long secret the same letters come by chance."""

_MIN_LETTERS = 10
"""A password of letters alone has so many; shorter ones in quotes are words of a program."""

_ENCODED_RUN_BYTES = 48
"""So many bytes before it say whether a secret stands in the middle of encoded data."""

_NAME_BYTES = 32
"""So many bytes before a match may belong to the name that it begins with."""

_BLOB = expression(rb"[0-9A-Za-z+/_-]{%d}" % _ENCODED_RUN_BYTES)

_IDS = expression(rb"[0-9A-Fa-f_/+-]{%d}[_/+-]" % (_ENCODED_RUN_BYTES - 1))
"""Digests and ids, and a sign behind them: no encoded data, which has other letters too."""

_FOLDS = expression(FOLD.replace(r"\z", r"\Z").encode() + rb"|[\s\\]")

_UNREAL = expression(
    rb"(?i)example|placeholder|redacted|your[-_. ]?[a-z]|change[-_]?(?:me|it)|replace|insert[-_]"
    rb"|dummy|fake|sample|foobar|xxxx|\*\*\*|\.\.\.|<[a-z]|\$\{|\{\{|\$\(|%\(|abcdefgh|12345678"
    rb"|not-?a-?real|deadbeef|lorem"
)
"""What only texts about secrets say."""

_WORDS = frozenset(
    b"pass passw password passwd pwd secret token test tests testing none null nil true false"
    b" undefined string str text bytes any object number admin root user username login postgres"
    b" mysql redis guest default required optional hidden empty invalid wrong correct hunter2 foo"
    b" bar baz qwerty value input prompt field key credentials env self this type name unknown"
    b" disabled enabled plaintext xxx".split()
)
"""What stands where a password would, and is none."""

_ID = expression(
    rb"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:0x|sha\d+[-:])?[0-9a-f]+"
    rb"|sha\d+-[0-9a-z+/=]+"
)
"""UUIDs and hashes in hexadecimal: names of things."""

_ASIDE = (
    "id|name|len|length|size|count|path|file|dir|url|uri|endpoint|type|version|limit|index|regex"
    "|pattern|prefix|suffix|format|label|title|hint|header|arn|ref|hash|digest|sha|checksum|max|min"
    "|fingerprint|alias|kind|status|error|message|budget|expiry|expires|at|usage|used"
)

_OTHER_NAME = expression(
    (
        # At the end of the name, after a sign or with a capital: token_count, tokenCount.
        rf"(?:[_.-](?i:{_ASIDE})|(?<=[a-z])(?:{_ASIDE.title()}))s?"
        r"[\\\"'\x60\])]*\s*[=:,>]"
        r"|(?i:(?:public|primary|foreign|cache|sort|partition|idempotency|object|lookup|dedup\w*"
        r"|group|map|sequence|natural|schema|host|react|translation)[_.-]?key"
        r"|(?:cancellation|next|page|continuation|sync|csrf|num|per|of)[_.-]?token|tokeni[sz])"
    ).encode()
)
"""Names that speak of a secret without being given one."""

_COLOUR = expression(rb"#[0-9A-Fa-f]{3,8}")

_FORMAT = expression(
    rb"%[-+# ]?[0-9.]{0,6}[sdrvqxi@](?:[^0-9A-Za-z]|\Z)|%\(|\{[^{}]{0,64}\}|#\{|\$\{?\w+\}?\Z"
)
"""How a text begins that a program fills in, or that names a variable."""

_SPEAKS = expression(
    rb"(?i)pass|pwd|word|secret|token|login|[_-]field|input|requir|valid|confirm|forgot|reset|label"
    rb"|holder|string|text|hash|plain|crypt|default|hidden|option|admin|user|change|enter|show"
    rb"|prompt|config|setting|credential|auth|encod|workspace|directory|type"
)
"""What a word in quotes says that stands where a password would, and is none."""

_ENV_LINE = expression(
    rb"(?im)^(?:export )?\w{0,40}(?:passw|passphrase|secret|token|api_?key|_key)\w{0,24}=[^\r\n]{6}"
)

_SEED_WORD = expression(rb"[a-z]{3,8}")

_NO_SEED = frozenset(
    b"the and for are was not but from has its were which your their been use used should could"
    b" would does did into only than them these those some other set get also any".split()
)
"""Words that sentences have and that no phrase of a wallet is made of."""

_DESCRIBES = expression(
    rb"(?i)[\d.,-]+[.!]?|(?:sha|md|utf|aes|rsa|bcrypt|base|scrypt|argon|pbkdf)[-_]?\d+\S*"
    rb"|\d+[-\s]?(?:char|bit|digit|letter|byte|word|sign|day|year|month)\S*|[a-z]+://\S*|\S*\(\)?"
)
"""What a sentence says about a password, in place of it."""

TABLES: tuple[re.Pattern[bytes] | frozenset[bytes], ...] = (
    *(_BLOB, _IDS, _FOLDS, _UNREAL, _WORDS, _ID, _OTHER_NAME, _COLOUR, _FORMAT, _SPEAKS, _ENV_LINE),
    *(_SEED_WORD, _NO_SEED, _DESCRIBES),
)
"""All that is looked up when a match is judged."""


def is_secret(rule: Rule, data: bytes, start: int, first: int, last: int) -> bool:
    """Judge what a rule caught: `data[first:last]`, in a match that begins at `start`."""
    secret = unfold(data[first : min(last, first + _JUDGED_BYTES)])
    after = data[last : last + 1]
    if rule.check and not CHECKS[rule.check](data[first : min(last, first + _JUDGED_BYTES)]):
        return False
    if rule.entropy == 0.0 and not rule.hashed:
        if not _is_password(rule, data[start:first], secret, after):
            return False
    elif rule.strict and not _is_given(rule, _name(data, start, first), secret, after):
        return False
    return not (
        (rule.entropy and entropy(secret) < rule.entropy)
        or (rule.shape and not re.fullmatch(rule.shape.encode(), secret))
        or _is_unreal(secret)
        or _is_inside_blob(data[max(0, first - _ENCODED_RUN_BYTES) : first])
    )


def _name(data: bytes, start: int, first: int) -> bytes:
    """Return what stands before a value: the match up to it, and the beginning of its name."""
    begun = re.search(rb"[\w.-]*\Z", data[max(0, start - _NAME_BYTES) : start])
    return (begun[0] if begun else b"") + data[start:first]


def _is_inside_blob(before: bytes) -> bool:
    """Tell a prefix that came up by chance in an image, an archive or a ciphertext."""
    if _BLOB.fullmatch(before) is None or _IDS.fullmatch(before):
        return False
    return looks_random(before)


def unfold(secret: bytes) -> bytes:
    """Take line breaks, plain or escaped, out of a secret: the same one however it was written."""
    return _FOLDS.sub(b"", secret) if _FOLDS.search(secret) else secret


def entropy(secret: bytes) -> float:
    """Return the bits per byte of a secret, from how often each of its bytes occurs."""
    size = len(secret)
    return -sum(n / size * math.log2(n / size) for n in Counter(secret).values()) if size else 0.0


def _is_unreal(secret: bytes) -> bool:
    """Tell what documentation writes in place of a secret."""
    start = secret[:_PLACEHOLDER_BYTES]
    return _UNREAL.search(start) is not None or _is_run(start)


def _is_run(secret: bytes) -> bool:
    """Tell `abcdefg…` and `aaaaa…`: every byte is the one before it or the next in order."""
    if len(secret) < 8:
        return False
    steps = sum(0 <= after - before <= 1 for before, after in pairwise(secret))
    return steps * 2 > len(secret)


def _is_given(rule: Rule, name: bytes, secret: bytes, after: bytes) -> bool:
    """Judge a value that only its name speaks for."""
    if after in {b"(", b"[", b"{"} or _OTHER_NAME.search(name):
        return False
    if not rule.ids and _ID.fullmatch(secret):
        return False
    return looks_random(secret)


def looks_random(secret: bytes) -> bool:
    """Tell chance from words: long pieces in which digits or capitals come and go."""
    pieces = re.split(rb"[^0-9A-Za-z]+", secret)
    return sum(len(piece) for piece in pieces if _is_mixed(piece)) >= 10


def _is_mixed(piece: bytes) -> bool:
    kinds = bytes(0 if byte < 58 else 1 if byte < 91 else 2 for byte in piece)
    changes = Counter(pairwise(kinds))
    by_digits = sum(n for (a, b), n in changes.items() if a != b and 0 in {a, b})
    by_case = sum(n for (a, b), n in changes.items() if a != b)
    return by_digits >= 2 or (len(piece) >= 20 and by_case > 0.45 * len(piece))


def _is_password(rule: Rule, name: bytes, secret: bytes, after: bytes) -> bool:
    """Judge a password: not a word for one, nor code that gets one."""
    if secret.lower().strip(b"*.,;:!?-_") in _WORDS or secret[:1] == b"/" or after in {b"(", b"["}:
        return False
    if _COLOUR.fullmatch(secret) or _FORMAT.match(secret):
        return False
    if not rule.strict:
        return True
    if name[-1:] in {b'"', b"'", b"`"}:
        if not re.fullmatch(rb"[A-Za-z_-]+", secret):
            return True
        # A word in quotes may be a label or the name of a field: a short one tells nothing.
        return (not secret.isalpha() or len(secret) >= _MIN_LETTERS) and not _SPEAKS.search(secret)
    if name.isupper() and name[-1:] == b"=":  # the environment holds values, not code
        return len(secret) >= 6
    return not re.fullmatch(rb"[A-Za-z_.-]+|[0-9.]+", secret)


def _is_encoded_env(secret: bytes) -> bool:
    """Tell base64 of a line that gives a value to the name of a secret."""
    data = secret.rstrip(b"=")
    for shift in range(4):
        part = data[shift:]
        text = binascii.a2b_base64(part[: len(part) - len(part) % 4])
        if _ENV_LINE.search(text):
            return True
    return False


def _is_seed_phrase(secret: bytes) -> bool:
    """Tell the words of a wallet from a sentence: no little words, hardly any word twice."""
    words = _SEED_WORD.findall(secret)
    return len(set(words)) * 3 >= len(words) and _NO_SEED.isdisjoint(words)


def _is_said_password(secret: bytes) -> bool:
    """Tell a password in a sentence from what is said about passwords: it has digits in it."""
    mixed = re.search(rb"[0-9]", secret) and re.search(rb"[A-Za-z]", secret)
    return mixed is not None and not _DESCRIBES.fullmatch(secret)


CHECKS: dict[str, Callable[[bytes], bool]] = {
    "env": _is_encoded_env,
    "seed": _is_seed_phrase,
    "said": _is_said_password,
}
"""Checks that single rules ask for, by name."""
