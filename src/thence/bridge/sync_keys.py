"""Keys of a sync: a phrase of nine words that people can copy, and what is derived from it.

The phrase writes 128 random bits and a checksum as words that can be spoken. Derived from them are
the age key that bundles are encrypted to, and the names of bundles. Neither the public key nor the
phrase is ever in the shared place: whoever reads it there learns sizes and times.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from thence.errors import BadConfig, MissingPackage

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET_BYTES: Final = 16
NAME_BYTES: Final = 16
_CHECK_BYTES: Final = 2
_HEAD_BYTES: Final = 4096
"""More than the head of an encrypted file has, and less than its first piece."""
_CUT_OFF: Final = "decryption error"
"""What pyrage says of a piece that is not whole, after the head has named its key."""
_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aiou"
_BECH32: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
# The generator of BIP 173, as age keys are written in Bech32.
_POLYMOD: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


def new_secret() -> bytes:
    """Return the secret of a new key."""
    return secrets.token_bytes(SECRET_BYTES)


# -- the phrase -----------------------------------------------------------------------------


def phrase_of(secret: bytes) -> str:
    """Return a secret as nine words of five letters."""
    body = secret + _check(secret)
    pairs = (int.from_bytes(body[at : at + 2], "big") for at in range(0, len(body), 2))
    return " ".join(map(_word, pairs))


def secret_in(phrase: str) -> bytes:
    """Return the secret of a phrase; BadConfig where a word is wrong or missing."""
    words = phrase.lower().replace("-", " ").split()
    numbers = [_number(word) for word in words]
    body = b"".join(number.to_bytes(2, "big") for number in numbers if number is not None)
    secret, check = body[:SECRET_BYTES], body[SECRET_BYTES:]
    if None in numbers or len(secret) != SECRET_BYTES or check != _check(secret):
        raise BadConfig(
            "this is not a phrase of thence sync",
            hint="type the nine words that thence sync init or rotate printed",
        )
    return secret


def _check(secret: bytes) -> bytes:
    return blake2b(secret, digest_size=_CHECK_BYTES, person=b"thence-phrase").digest()


def _word(number: int) -> str:
    """Return 16 bits as consonant, vowel, consonant, vowel, consonant."""
    return (
        _CONSONANTS[number >> 12]
        + _VOWELS[number >> 10 & 3]
        + _CONSONANTS[number >> 6 & 15]
        + _VOWELS[number >> 4 & 3]
        + _CONSONANTS[number & 15]
    )


def _number(word: str) -> int | None:
    if len(word) != 5:
        return None
    number = 0
    for at, letter in enumerate(word):
        letters, bits = (_VOWELS, 2) if at % 2 else (_CONSONANTS, 4)
        if letter not in letters:
            return None
        number = number << bits | letters.index(letter)
    return number


# -- what is derived ------------------------------------------------------------------------


def content_name(secret: bytes, body: bytes) -> str:
    """Return the name of a bundle: only who has the secret can tell what has it."""
    return blake2b(body, digest_size=NAME_BYTES, key=secret, person=b"thence-bundle").hexdigest()


def ring_name(secret: bytes) -> str:
    """Return the name of the key ring that opens with a key."""
    return blake2b(b"", digest_size=NAME_BYTES, key=secret, person=b"thence-ring").hexdigest()


def closed_name(secret: bytes) -> str:
    """Return the name of the notice that a key is not used any more."""
    return blake2b(b"", digest_size=NAME_BYTES, key=secret, person=b"thence-closed").hexdigest()


class Key:
    """One key of a sync: encrypts and decrypts."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._pyrage = _pyrage()
        drawn = blake2b(secret, digest_size=32, person=b"thence-sync-age").digest()
        self._identity = self._pyrage.x25519.Identity.from_str(_age_text(drawn))

    def encrypted(self, body: bytes) -> bytes:
        """Return what only who has the secret can read."""
        made: bytes = self._pyrage.encrypt(body, [self._identity.to_public()])
        return made

    def decrypted(self, body: bytes) -> bytes | None:
        """Return what was encrypted with this key; None if that was another, or it is damaged."""
        try:
            made: bytes = self._pyrage.decrypt(body, [self._identity])
        except self._pyrage.DecryptError:  # made by another phrase: not for us, and no error
            return None
        return made

    def opens(self, body: bytes) -> bool:
        """Return whether something was encrypted with this key, by its head alone."""
        try:
            self._pyrage.decrypt(body[:_HEAD_BYTES], [self._identity])
        except self._pyrage.DecryptError as error:
            return str(error) == _CUT_OFF
        return True


def _pyrage() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise MissingPackage("thence sync", "pyrage", extra="share") from error
    return pyrage


def _age_text(drawn: bytes) -> str:
    """Return a private key as age writes it: bech32."""
    prefix = "age-secret-key-"
    data = _fives(drawn)
    spread = [*(ord(c) >> 5 for c in prefix), 0, *(ord(c) & 31 for c in prefix)]
    check = _polymod([*spread, *data, 0, 0, 0, 0, 0, 0]) ^ 1
    data += [check >> 5 * (5 - at) & 31 for at in range(6)]
    return f"{prefix}1{''.join(_BECH32[value] for value in data)}".upper()


def _fives(body: bytes) -> list[int]:
    """Return the bits of bytes in groups of five, zeros at the end."""
    number, bits = int.from_bytes(body, "big"), len(body) * 8
    groups = -(-bits // 5)
    number <<= groups * 5 - bits
    return [number >> 5 * (groups - 1 - at) & 31 for at in range(groups)]


def _polymod(values: Sequence[int]) -> int:
    made = 1
    for value in values:
        top = made >> 25
        made = (made & 0x1FFFFFF) << 5 ^ value
        for bit, factor in enumerate(_POLYMOD):
            if top >> bit & 1:
                made ^= factor
    return made
