"""Redaction: a secret is replaced by its kind before anything is stored.

Text in, text out. `Redactor.redact` never raises on any text, keeps everything that is no secret
as it is, lone surrogates and NUL included, and works in time linear in the text.

A placeholder is `[REDACTED:kind:1a2b3c4d]`: eight digits of an HMAC under the caller's key, so
that equal secrets stay equal; `[REDACTED:kind]` for kinds that can be guessed, such as passwords.
What touches a placeholder is left alone: redacting twice is redacting once, and counts once.
Counts are kept per kind, values never.

One search for what stands near secrets (`re2.Set`), keywords mostly, says which rules to try; most
texts hold none and cost nothing more. Rules are compiled when first needed: importing this module
and making a `Redactor` is free. No files, no clock; the key is an argument.
"""

from __future__ import annotations

import hmac
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from string import ascii_letters, digits
from typing import Any, NamedTuple

from thence.format.expressions import source_of
from thence.memory import plausibility
from thence.memory.context_rules import CONTEXTS
from thence.memory.placeholders import BEGINNING, PLACEHOLDER_BYTES, placeholder
from thence.memory.rules import Rule
from thence.memory.vendor_rules import VENDORS

RULES: tuple[Rule, ...] = VENDORS + CONTEXTS
"""Kinds with a form of their own first: of two that catch the same text the earlier names it."""

_SHORTEST = 8
"""No text shorter than this holds a secret: a name, a sign and four characters."""

_PASSES = 4
"""How often a text is gone over; the second pass finds something in odd texts only."""

_SHORT = 1024
"""Texts up to this length are searched together."""

_BETWEEN = "\n\0\n"
"""Stands between texts that are searched together: no pattern goes on over it but that of a key."""

_REMEMBERED = 4096
"""So many names of entries are remembered from one JSON value to the next."""

_RETRIED = 256
"""A rejected value up to this length is searched once more for what may begin inside it."""

_BLOB = 1 << 14
"""No secret is a run of so many letters; it is an image or an archive."""

_MARGIN = 1 << 9
"""So much of either end of a blob is searched with the text beside it."""

_OWN_NAMES = frozenset({"usage_key"})
"""Names of fields of ours that make no secret of a text, though they sound like it."""

_LETTERS = bytes(
    ord("a") if chr(byte) in f"{ascii_letters}{digits}+/=_-" else ord(" ") for byte in range(256)
)
"""Turns encoded data into one letter and all else into blanks."""

_CODE = rb"\[[0-9;:?]{0,32}[A-Za-z]"
_DISGUISES = re.compile(
    rb"\x1b%b|\\\\?u001[bB]%b|\\\\?x1[bB]%b|\\{1,4}u00([2-7][0-9A-Fa-f])" % (_CODE, _CODE, _CODE)
)
"""Colour codes, which may stand inside of a secret, and letters that JSON spells as numbers.

JSON inside of JSON has the sign before such a number twice, and so on."""

_DISGUISE = rb"\x1b\[|\\(?:u001b|x1b)\[|\\u00[2-7]"
"""What is in every text with disguises: looked for together with the keywords."""

DISGUISED = -1
"""Stands first among the rules to try where a text has disguises in it."""


def rules_version(rules: Iterable[Rule]) -> int:
    """Return the version of rules: a hash of all that decides what they find, in their order.

    It has 63 bits, so that every database holds it as an integer. Nothing is compiled.
    """
    texts = [
        (
            *(rule.name, rule.pattern, rule.keywords, rule.entropy, rule.hashed),
            *(rule.shape, rule.strict, rule.ids, rule.near, rule.check),
        )
        for rule in rules
    ]
    tables = [
        sorted(table) if isinstance(table, frozenset) else source_of(table)
        for table in plausibility.TABLES
    ]
    body = repr((texts, tables)).encode("utf-8", "backslashreplace")
    # 63 bits: columns of both databases are signed.
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big") >> 1


class _Revealed(NamedTuple):
    """A text without disguises, and where its bytes stand in the text as it is."""

    data: bytes
    places: Sequence[int] = ()
    """Where in `data` each part begins, in order."""
    originals: Sequence[int] = ()
    """Where that part begins in the text as it is."""
    letters: Mapping[int, int] = {}
    """The parts that are one letter, spelled as a number, and how long that is."""

    def start(self, place: int) -> int:
        """Return where a byte of `data` begins in the text as it is."""
        if not self.places:
            return place
        part = bisect_right(self.places, place) - 1
        return self.originals[part] + place - self.places[part]

    def end(self, place: int) -> int:
        """Return where the byte before a place of `data` ends in the text as it is."""
        if not self.places:
            return place
        part = bisect_right(self.places, place - 1) - 1
        return self.originals[part] + self.letters.get(part, place - self.places[part])


def _reveal(data: bytes) -> _Revealed:
    """Return a text without disguises."""
    pieces: list[bytes] = []
    places, originals = [0], [0]
    letters: dict[int, int] = {}
    end = size = 0
    for match in _DISGUISES.finditer(data):
        start, stop = match.span()
        pieces.append(data[end:start])
        size += start - end
        if match[1] is not None:
            pieces.append(bytes([int(match[1], 16)]))
            letters[len(places)] = stop - start
            places.append(size)
            originals.append(start)
            size += 1
        end = stop
        places.append(size)
        originals.append(end)
    if not pieces:
        return _Revealed(data)
    pieces.append(data[end:])
    return _Revealed(b"".join(pieces), places, originals, letters)


class SecretSpan(NamedTuple):
    """A secret in the bytes of a text, and the number of the rule that found it."""

    start: int
    end: int
    rule: int


class Redactor:
    """Replaces secrets by placeholders; `counts` says how many of which kind."""

    def __init__(
        self, rules: Sequence[Rule] = RULES, *, key: bytes, extra: Sequence[Rule] = ()
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._key = key
        self._clean: set[str] = set()
        self._heads: dict[str, str] = {}
        self._finder = _finder((*rules, *extra))

    @cached_property
    def version(self) -> int:
        """The version of its rules; see `rules_version`."""
        return rules_version(self._finder.rules)

    def redact(self, text: str, suspects: list[int] | None = None) -> str:
        """Return the text with a placeholder for every secret; the text itself if there is none.

        `suspects` is what `doubts` said of something that holds the text, if that was asked.
        """
        if len(text) < _SHORTEST:  # no rule matches anything as short
            return text
        data = _bytes(text)
        if suspects is None:
            suspects = self._finder.suspects(data)
        if not suspects:
            return text
        if len(data) < _BLOB:
            redacted = self._replace_secrets(data, suspects)
        else:
            redacted = self._replaced_outside_blobs(data)
        # The same object where nothing changed: callers compare by identity.
        return text if redacted is data else redacted.decode("utf-8", "surrogatepass")

    def doubts(self, data: bytes) -> list[int]:
        """Return the rules that may find a secret in the bytes of a text, or of our JSON.

        No keyword is spelled otherwise in JSON, so that one look spares the walk through it.
        """
        # A keyword that JSON escapes would be missed in its bytes.
        return self._finder.suspects(data) if self._finder.spelled else self._finder.all

    def redact_all(self, texts: Sequence[str]) -> list[str]:
        """Redact each text; many short ones are searched together for keywords."""
        redacted = list(texts)
        short = [at for at, text in enumerate(redacted) if len(text) <= _SHORT]
        for at in self._doubtful(redacted, short):
            redacted[at] = self.redact(redacted[at])
        if len(short) < len(redacted):
            for at, text in enumerate(redacted):
                if len(text) > _SHORT:
                    redacted[at] = self.redact(text)
        return redacted

    def redact_json(self, value: Any, suspects: list[int] | None = None) -> Any:
        """Return a JSON value with every text in it redacted, keys included; itself if none is.

        What has a name in the value, as in `{"password": …}` or `{"name": …, "value": …}`, is
        judged with that name. Two keys that become equal become one. `suspects` as in `redact`.
        """
        # Names come from logs: without a limit a log could fill the memory.
        if len(self._clean) > _REMEMBERED:
            self._clean.clear()
            self._heads.clear()
        texts = self._texts(value)
        if texts is not None and not self._tell(texts, suspects):
            return value
        return self._redact_value(value)

    def _texts(self, value: Any) -> list[str] | None:
        """Return all texts of a value, each with the head that names it; None where a key tells."""
        texts: list[str] = []
        # A stack: JSON of a log may nest deeper than Python recurses.
        todo: list[tuple[Any, str]] = [([value], "")]
        while todo:
            box, outer = todo.pop()
            if type(box) is list:
                parts = [(0, part, outer) for part in box]
            elif self._are_clean(box):
                parts = self._secrets_by_key(box)
            else:
                return None
            for _, part, head in parts:
                kind = type(part)
                if kind is str:
                    if head:
                        # The name and the value together are what a rule looks for.
                        texts.append(f'{head}{part}"')
                    elif len(part) >= _SHORTEST:
                        texts.append(part)
                elif kind is list or kind is dict:
                    todo.append((part, head))
        return texts

    def _are_clean(self, entries: dict[str, Any]) -> bool:
        """Whether no key of an object holds a secret."""
        if entries.keys() <= self._clean:
            return True
        for name in entries.keys() - self._clean:
            self._judge(name)
        return entries.keys() <= self._clean

    def _tell(self, texts: Sequence[str], suspects: list[int] | None) -> bool:
        """Whether any of some texts holds a secret."""
        finder = self._finder
        for text in texts:
            if len(text) >= _BLOB and any(
                next(finder.all_spans(piece), None) is not None
                for piece, blob in _outside_blobs(_bytes(text))
                if not blob
            ):
                return True
        short = [text for text in texts if len(text) < _BLOB]
        # One search for all of them; what stands between belongs to no secret.
        data = _bytes(_BETWEEN.join(["", *short, ""]))
        return next(finder.all_spans(data, suspects), None) is not None

    def _redact_value(self, value: Any) -> Any:
        """Return a copy of a value, redacted text by text."""
        root: list[Any] = [value]
        leaves: list[tuple[Any, Any, str]] = []
        todo: list[tuple[Any, str]] = [(root, "")]
        while todo:
            box, outer = todo.pop()
            if type(box) is dict:
                parts = self._secrets_by_key(box)
            else:
                parts = [(at, part, outer) for at, part in enumerate(box)]
            for at, part, head in parts:
                kind = type(part)
                if kind is str:
                    if head or len(part) >= _SHORTEST:
                        leaves.append((box, at, head))
                elif kind is list:
                    box[at] = items = part.copy()
                    todo.append((items, head))
                elif kind is dict:
                    box[at] = entries = self._entries(part)
                    todo.append((entries, head))
        self._redact_leaves(leaves)
        return root[0]

    def _secrets_by_key(self, entries: dict[str, Any]) -> list[tuple[Any, Any, str]]:
        """Return key, part and head of every entry: by its key, or by the name beside a `value`."""
        heads = self._heads
        parts = [(key, part, heads.get(key, "")) for key, part in entries.items()]
        if "value" not in entries:
            return parts
        beside = entries.get("name") or entries.get("key")
        if type(beside) is not str:
            return parts
        # `{"name": "API_KEY", "value": …}`: the name of one is the value of another.
        if beside not in self._clean:
            self._judge(beside)
        named = ("value", entries["value"], heads.get(beside, ""))
        return [named if part[0] == "value" else part for part in parts]

    def _redact_leaves(self, leaves: Sequence[tuple[Any, Any, str]]) -> None:
        """Redact texts where they stand, each with the head that names it."""
        texts = [f'{head}{box[at]}"' if head else box[at] for box, at, head in leaves]
        for (box, at, head), old, new in zip(leaves, texts, self.redact_all(texts), strict=True):
            if new is old:
                continue
            if not head:
                box[at] = new
            elif new.startswith(head) and new.endswith('"'):
                box[at] = new[len(head) : -1]
            else:
                # The head was changed, too: judge the value by itself, and leave the name.
                box[at] = self.redact(box[at])

    def _entries(self, entries: dict[str, Any]) -> dict[str, Any]:
        """Copy an object, its keys redacted."""
        if self._are_clean(entries):
            return entries.copy()
        return {self.redact(key): part for key, part in entries.items()}

    def _judge(self, name: str) -> None:
        """Remember what a name says about the text it is given to, and that it is no secret."""
        if len(name) > _SHORT:
            return
        if name in _OWN_NAMES:
            self._clean.add(name)
            return
        head = f'"{name}": "'
        telling = self._finder.rules_for_name(_bytes(head))
        if any(self._finder.spans(_bytes(name), telling)):
            return
        self._clean.add(name)
        # A name with a placeholder had a secret in it, and said nothing then.
        if telling and BEGINNING not in name:
            self._heads[name] = head

    def _doubtful(self, texts: Sequence[str], among: list[int]) -> list[int]:
        """Return those of the numbered texts that may hold a secret, by halving."""
        doubtful = []
        todo = [among] if among else []
        while todo:
            part = todo.pop()
            if not self._finder.suspects(_bytes("\0".join([texts[at] for at in part]))):
                continue
            if len(part) == 1:
                doubtful.append(part[0])
            else:
                todo += [part[: len(part) // 2], part[len(part) // 2 :]]
        return doubtful

    def _replaced_outside_blobs(self, data: bytes) -> bytes:
        pieces = [
            piece if blob else self._replace_secrets(piece, self._finder.suspects(piece))
            for piece, blob in _outside_blobs(data)
        ]
        redacted = b"".join(pieces)
        return data if redacted == data else redacted

    def _replace_secrets(self, data: bytes, suspects: list[int]) -> bytes:
        """Replace what the rules find; the same bytes if that is nothing."""
        # One secret may hide another: what a placeholder leaves is looked at again.
        for _ in range(_PASSES):
            seen = _reveal(data) if DISGUISED in suspects[:1] else _Revealed(data)
            spans = _merge_spans(self._finder.spans(seen.data, suspects))
            if not spans:
                break
            data = b"".join(self._pieces(data, seen, spans))
        return data

    def _pieces(
        self, data: bytes, seen: _Revealed, spans: list[tuple[SecretSpan, int, int]]
    ) -> Iterator[bytes]:
        end = 0
        for secret, start, stop in spans:
            yield data[end : seen.start(start)]
            yield self._placeholder(
                self._finder.rules[secret.rule], seen.data[secret.start : secret.end]
            )
            end = seen.end(stop)
        yield data[end:]

    def _placeholder(self, rule: Rule, secret: bytes) -> bytes:
        self.counts[rule.name] += 1
        if not rule.hashed:
            return placeholder(rule.name).encode()
        # keyed, so that nobody can try words against it; short, so that it tells no more.
        mark = hmac.digest(self._key, plausibility.unfold(secret), "sha256")[:4].hex()
        return placeholder(rule.name, mark).encode()


class _Finder:
    """The rules, compiled one by one when a text has their keywords."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._always = [at for at, rule in enumerate(self.rules) if not rule.keywords]
        words = "".join(word for rule in self.rules for word in rule.keywords)
        self.spelled = words.isascii() and words.isprintable() and "\\" not in words
        """Whether all keywords stand in JSON as they stand in text; so does what is `near`."""
        self.all = [DISGUISED, *range(len(self.rules))]
        self._patterns: dict[int, tuple[Any, int]] = {}
        self._find_keywords: Any = None
        self._owners: list[list[int]] = []
        self._disguise = 0
        """The number of what tells that a text has disguises in it; the last one."""

    def __reduce__(self) -> tuple[type[_Finder], tuple[tuple[Rule, ...]]]:
        """Another process compiles for itself."""
        return _Finder, (self.rules,)

    def suspects(self, data: bytes) -> list[int]:
        """Return the rules that may find something: what they look for first is in the text."""
        if self._find_keywords is None:
            self._compile_keywords()
        hits = self._find_keywords(data)
        if not hits:
            return self._always
        disguised = self._disguise in hits
        if disguised:  # A disguised keyword is seen only when the disguise is off
            hits = self._find_keywords(_reveal(data).data) or ()
        rules = {rule for hit in hits for rule in self._owners[hit]}.union(self._always)
        if disguised and rules:
            rules.add(DISGUISED)
        return sorted(rules)

    def rules_for_name(self, head: bytes) -> list[int]:
        """Return the rules whose keywords a name holds: a secret may be what it is given to."""
        text = head.lower()
        hits = {at for word, rules in self._rules_by_word.items() if word in text for at in rules}
        return sorted(hits.union(self._always))

    @cached_property
    def _rules_by_word(self) -> dict[bytes, list[int]]:
        """The rules of each keyword."""
        out: dict[bytes, list[int]] = {}
        for at, rule in enumerate(self.rules):
            for word in _encode_words(rule.keywords):
                out.setdefault(word, []).append(at)
        return out

    def spans(self, data: bytes, suspects: Iterable[int]) -> Iterator[SecretSpan]:
        """Yield all secrets that the rules find, in no order, overlapping or not."""
        placeholders: list[tuple[int, int]] = []
        if BEGINNING.encode() in data:
            placeholders = [match.span() for match in PLACEHOLDER_BYTES.finditer(data)]
        for at in suspects:
            if at == DISGUISED:
                continue
            for start, end, first, last in self._secrets(at, data):
                # A secret may not adjoin a placeholder; what only surrounds it may.
                near = (min(start + 1, first), max(end - 1, last))
                if not (placeholders and _touches(placeholders, *near)):
                    yield SecretSpan(first, last, at)

    def all_spans(self, data: bytes, suspects: list[int] | None = None) -> Iterator[SecretSpan]:
        """Return all secrets in a text, where they stand when its disguises are taken off."""
        if suspects is None:
            suspects = self.suspects(data)
        return self.spans(_reveal(data).data if DISGUISED in suspects else data, suspects)

    def _secrets(self, at: int, data: bytes) -> Iterator[tuple[int, int, int, int]]:
        """Yield the bounds of each match of one rule and of the secret in it."""
        rule = self.rules[at]
        pattern, groups = self._pattern(at)
        position = 0
        while match := pattern.search(data, position):
            start, end = match.span()
            first, last = _widen_to_token(data, *_secret(match, groups))
            if first < last and plausibility.is_secret(rule, data, start, first, last):
                yield start, end, first, last
                position = last
            elif start < first and last - first <= _RETRIED:
                # Not a secret, but one may begin inside what was taken for it.
                position = first
            else:
                # Always forward, or a pattern that matches nothing would never end.
                position = max(last, start + 1)

    def _pattern(self, at: int) -> tuple[Any, int]:
        """Return a rule's pattern, compiled, and how many groups it has."""
        if at not in self._patterns:
            import re2  # type: ignore[import-untyped]

            pattern = re2.compile(self.rules[at].pattern)
            self._patterns[at] = (pattern, pattern.groups)
        return self._patterns[at]

    def _compile_keywords(self) -> None:
        """Put the keywords of all rules into one search, blind to the case of letters."""
        import re2

        options = re2.Options()
        # Bytes as they are: a keyword must be found in text that is no UTF-8.
        options.encoding = re2.Options.Encoding.LATIN1
        options.case_sensitive = False
        options.max_mem = 32 << 20
        owners: dict[bytes, list[int]] = {}
        for at, rule in enumerate(self.rules):
            patterns = (
                [rule.near.encode()] if rule.near else map(re2.escape, _encode_words(rule.keywords))
            )
            for pattern in patterns:
                owners.setdefault(pattern, []).append(at)
        keywords = re2.Set.SearchSet(options)
        for pattern in owners:
            keywords.Add(pattern)
        self._owners = [*owners.values(), []]
        self._disguise = keywords.Add(_DISGUISE)
        keywords.Compile()
        self._find_keywords = keywords.Match


@lru_cache(maxsize=4)
def _finder(rules: tuple[Rule, ...]) -> _Finder:
    """Return a finder; what it has compiled serves every redactor of the same rules."""
    return _Finder(rules)


def _encode_words(words: Iterable[str]) -> Iterator[bytes]:
    return (word.encode() for word in words)


def _secret(match: Any, groups: int) -> tuple[int, int]:
    """Return the bounds of the first group that took part, or else of the match."""
    for group in range(1, groups + 1):
        start, end = match.span(group)
        if start >= 0:
            return start, end
    start, end = match.span()
    return start, end


def _widen_to_token(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Widen bounds that a pattern set inside a character; the text must decode afterwards."""
    while 0 < start < len(data) and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return start, end


def _touches(spans: list[tuple[int, int]], start: int, end: int) -> bool:
    """Tell whether bounds overlap or adjoin those of a placeholder; these are in order."""
    at = bisect_left(spans, end + 1, key=lambda span: span[0])
    return at > 0 and spans[at - 1][1] >= start


def _merge_spans(spans: Iterable[SecretSpan]) -> list[tuple[SecretSpan, int, int]]:
    """Settle overlaps: give the longest secret of each cluster, in order, with its bounds.

    The whole cluster is replaced, so that no part of a shorter secret stays.
    """
    settled: list[tuple[SecretSpan, int, int]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, span.rule)):
        if settled and span.start < settled[-1][2]:
            best, start, end = settled[-1]
            longer = span.end - span.start > best.end - best.start
            settled[-1] = (span if longer else best, start, max(end, span.end))
        else:
            settled.append((span, span.start, span.end))
    return settled


def _outside_blobs(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Cut a text into what is to be searched and what is encoded data, marked with true.

    Nearly every short prefix comes up in a megabyte of letters, so that nearly every rule would go
    over it, for nothing: what stands in the middle of such data is no secret.
    """
    letters = data.translate(_LETTERS)
    done = at = 0
    while (start := letters.find(b"a" * _BLOB, at)) >= 0:
        at = letters.find(b" ", start)
        at = len(data) if at < 0 else at
        yield data[done : start + _MARGIN], False
        yield data[start + _MARGIN : at - _MARGIN], True
        done = at - _MARGIN
    yield data[done:], False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
