"""Redaction against decoding: what taking secrets out costs beside reading the same text.

The texts are made up but shaped like sessions: code, logs, JSON in text, many short results, a few
long ones, an image now and then, hardly any secrets. The floor is one copy of the text. Every
secret that was planted must be gone, or the figures would be worth nothing.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.corpus import write_claude
from bench.measure import seconds, verdict
from thence.memory.redact import Redactor
from thence.memory.rules import FILLERS, sample

KEY = b"a key for the benchmark"

CODE = """    def refresh(self, client: Client, *, limit: int = 50) -> list[Page]:
        \"\"\"Read the pages that changed since the last call.\"\"\"
        token = self._tokens.get(client.name)
        for page in client.pages(after=token, limit=limit):
            if page.key not in self._seen:
                self._seen[page.key] = page
        return sorted(self._seen.values(), key=lambda page: page.path)
"""
LOG = """2026-03-04T11:22:33.444Z INFO  worker  request_id={h12} path=/v1/items status=200 took=12ms
2026-03-04T11:22:33.501Z DEBUG store   commit {h40} session {h8}-{h4}-{h4}-{h4}-{h12}
PASSED tests/feed/test_window.py::test_the_hour_that_is_skipped [ 42%]
"""
PROSE = """The window walks local time, so in spring one hour is skipped. I will look at the test,
then change the reader; see https://docs.internal/feed/windows for what it promises.
"""
DATA = {"usage": {"input_tokens": 5123, "output_tokens": 210}, "path": "src/feed.py", "ok": True}


def texts(megabytes: int, *, seed: int = 1) -> list[str]:
    """Give made-up texts of a session, so many megabytes of them."""
    dice = random.Random(seed)
    made: list[str] = []
    size = 0
    while size < megabytes * 1_000_000:
        made.append(_text(dice))
        size += len(made[-1])
    return made


def _text(dice: random.Random) -> str:
    if dice.random() < 0.002:
        return "".join(dice.choices(FILLERS["b"], k=200_000))
    parts = dice.choices([CODE, LOG, PROSE, json.dumps(DATA)], k=dice.choice((1, 1, 2, 4, 30)))
    if dice.random() < 0.005:
        parts.append("export GITHUB_TOKEN=ghp" + "_{A36}\n")
    return sample("\n".join(parts), dice.randrange(1000))


def throughput(name: str, data: list[str], work: Callable[[], object]) -> float:
    """Time some work over texts, and say how fast it was."""
    taken = seconds(work, rounds=3)
    print(f"  {name:<40} {sum(map(len, data)) / taken / 1e6:8.0f} MB/s")
    return taken


def logged(redactor: Redactor) -> int:
    """Go over lines of a log as a sweep does: a look at the bytes, a walk where that is needed."""
    with tempfile.TemporaryDirectory() as folder:
        write_claude(Path(folder), 20)
        lines = [
            line
            for path in sorted(Path(folder).rglob("*.jsonl"))
            for line in path.read_bytes().splitlines()
        ]
    values = [msgspec.json.decode(line) for line in lines]
    pairs = list(zip(lines, values, strict=True))

    def work() -> None:
        for line, value in pairs:
            if suspects := redactor.doubts(line):
                redactor.redact_json(value, suspects)

    texts = [line.decode() for line in lines]
    taken = throughput("lines of a log", texts, work)
    speed = sum(map(len, lines)) / taken / 1e6
    return verdict("40 MB/s / lines of a log", 40 / speed, 1)


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    data = texts(20)
    lines = [msgspec.json.encode(text) for text in data]
    values = [
        [{"type": "text", "text": text} for text in data[at : at + 4]]
        for at in range(0, len(data), 4)
    ]
    redactor = Redactor(key=KEY)
    print(f"redact: {len(data):,} texts, {sum(map(len, data)) / 1e6:.0f} MB")

    first = seconds(lambda: Redactor(key=KEY).redact("the token and the password"), rounds=3)
    print(f"  first text, rules compiled               {first * 1e3:8.1f} ms")
    throughput("one copy", data, lambda: [text.encode() for text in data])
    decode = throughput("decoding", data, lambda: [msgspec.json.decode(line) for line in lines])
    each = throughput("each text", data, lambda: [redactor.redact(text) for text in data])
    tree = throughput("JSON values", data, lambda: [redactor.redact_json(v) for v in values])
    missed = logged(redactor)
    missed += verdict("redaction of texts / decoding them", each / decode, 40)
    missed += verdict("redaction of JSON values / of their texts", tree / each, 2.5)

    hostile = {
        "one letter": "a" * 16_000_000,
        "base64": "".join(random.Random(2).choices(FILLERS["b"], k=8_000_000)),
        "heads of keys": ("-----BEGIN PRIVATE " + "KEY-----\n") * 200_000,
        "names without values": "secret.token " * 600_000,
    }
    for name, text in hostile.items():
        whole = throughput(name, [text], lambda text=text: redactor.redact(text))  # type: ignore[misc]
        quarter = text[: len(text) // 4]
        part = seconds(lambda quarter=quarter: redactor.redact(quarter), rounds=3)  # type: ignore[misc]
        missed += verdict(f"{name}: four times the text / four times the time", whole / part / 4, 2)

    redacted = [redactor.redact(text) for text in data]
    assert not any("ghp" + "_" in text for text in redacted if "export" in text)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
