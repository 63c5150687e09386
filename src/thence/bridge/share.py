"""One session in one file that a colleague opens: a share file, plain or encrypted with age.

A share file is JSON lines: a head that says what it is and what was redacted, then for each session
(those first that the last one continues) a line for the session and one for each record. It is
always redacted, and read once more by the rules before it is written: a secret that is left stops
it. Encryption is that of age (pyrage, extra `share`), to the public keys of those who may read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.bridge.record_json import Parcel, fact_in, frame_of, head_of, parcel_in, parcel_of
from thence.errors import BadConfig, MissingPackage, NotReadable, ThenceError
from thence.format.records import JSON
from thence.memory.placeholders import count_by_rule, secrets_in

if TYPE_CHECKING:
    from thence.agents.sessions import LoadedSession
    from thence.format.facts import Fact
    from thence.memory.gate import Gate

TYPE: Final = "thence-share"
VERSION: Final = 1
AGE: Final = b"age-encryption.org/"
"""How an encrypted file begins."""


class SecretLeft(ThenceError):
    """The rules find a secret in what was about to be written."""


# -- out ------------------------------------------------------------------------------------


def share_file(
    loaded: LoadedSession,
    gate: Gate,
    *,
    by: str,
    name: str | None = None,
    tags: Sequence[str] = (),
) -> tuple[bytes, dict[str, int]]:
    """Return a session as a share file, and how many secrets were redacted, by rule.

    Placeholders that the store had put in before are counted as well.
    """
    clean = gate.session(loaded)
    parcels = [parcel_of(generation) for generation in reversed(clean.generations)]
    parcels[-1].name = gate.text(name) if name else None
    parcels[-1].tags = tuple(gate.text(tag) for tag in tags)
    lines = [line for parcel in parcels for line in _session_lines(parcel)]
    counts = count_by_rule(secrets_in(*map(msgspec.json.encode, lines)))
    head: dict[str, JSON] = {
        "type": TYPE,
        "version": VERSION,
        "by": by,
        "session": clean.graph.uid,
        "title": gate.text(clean.graph.title or ""),
        "redacted": counts,
    }
    lines.insert(0, head)
    _check(lines, gate)
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines), counts


def _session_lines(parcel: Parcel) -> Iterator[dict[str, JSON]]:
    yield {"type": "session", **head_of(parcel)}
    for fact in parcel.facts:
        yield {"type": "record", "record": frame_of(fact)}


def _check(lines: Iterable[JSON], gate: Gate) -> None:
    """Pass what is about to be written through the gate; SecretLeft when that changes anything."""
    for number, line in enumerate(lines, start=1):
        clean = gate.value(line)
        if clean != line:
            left = secrets_in(msgspec.json.encode(clean)) - secrets_in(msgspec.json.encode(line))
            rules = ", ".join(count_by_rule(left)) or "a rule"
            raise SecretLeft(
                f"not written: line {number} still has what looks like a secret ({rules})",
                hint="exclude the session, or forget it: thence forget ID",
            )


# -- in -------------------------------------------------------------------------------------


def is_share(first: JSON) -> bool:
    """Whether the first line of a file is the head of a share file."""
    return isinstance(first, dict) and first.get("type") == TYPE


def parcels_in(lines: Sequence[JSON]) -> Iterator[Parcel]:
    """Yield the sessions of a share file, those first that others continue."""
    version = lines[0].get("version")
    if version != VERSION:
        raise NotReadable(
            f"a share file of version {version!r}; this program reads {VERSION}",
            hint="update thence",
        )
    head: JSON = None
    facts: list[Fact] = []
    for line in lines[1:]:
        kind = line.get("type") if isinstance(line, dict) else None
        if kind == "session":
            if head is not None:
                yield parcel_in(head, facts)
            head, facts = line, []
        elif kind == "record" and head is not None:
            facts.append(fact_in(line.get("record")))
    if head is None:
        raise NotReadable("the share file has no session", hint="ask for it again")
    yield parcel_in(head, facts)


# -- age ------------------------------------------------------------------------------------


def _pyrage() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise MissingPackage("encryption", "pyrage", extra="share") from error
    return pyrage


def encrypt_file(body: bytes, recipients: Sequence[str]) -> bytes:
    """Return a file that only the owners of these public keys can read.

    A key is that of age (`age1…`) or of SSH (`ssh-ed25519 …`, `ssh-rsa …`).
    """
    pyrage = _pyrage()
    keys = []
    for text in recipients:
        kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
        try:
            keys.append(kind.Recipient.from_str(text.strip()))
        except pyrage.RecipientError as error:
            raise BadConfig(
                f"not a public key: {text[:40]!r}", hint="an age1… or ssh-ed25519 … key"
            ) from error
    made: bytes = pyrage.encrypt(body, keys)
    return made


def decrypt_file(body: bytes, identities: Sequence[Path]) -> bytes:
    """Return what an encrypted file holds, by the private keys in files."""
    pyrage = _pyrage()
    keys = [key for path in identities for key in _identities(path, pyrage)]
    if not keys:
        raise NotReadable(
            "the file is encrypted", hint="add --identity FILE with your age or SSH private key"
        )
    try:
        made: bytes = pyrage.decrypt(body, keys)
    except pyrage.DecryptError as error:
        raise NotReadable(
            "none of these keys opens the file", hint="ask for a file encrypted to your key"
        ) from error
    return made


def _identities(path: Path, pyrage: Any) -> Iterator[Any]:
    try:
        body = path.read_bytes()
    except OSError as error:
        raise NotReadable(f"cannot read {path}: {error.strerror}") from error
    try:
        if b"PRIVATE KEY" in body:
            yield pyrage.ssh.Identity.from_buffer(body)
            return
        for line in body.decode("utf-8", "replace").splitlines():
            if line.startswith("AGE-SECRET-KEY-"):
                yield pyrage.x25519.Identity.from_str(line.strip())
    except pyrage.IdentityError as error:
        raise NotReadable(f"not a private key: {path}", hint="an age or SSH key file") from error
