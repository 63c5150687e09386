"""The cost of redaction, compared with decoding the same text.

The texts are synthetic but shaped like sessions: code, logs, JSON in text, many short results, a
few long ones, a few images, hardly any secrets. Copying the text once is the lower bound. Every
planted secret must be gone, or the figures would be worth nothing.
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
from tests.secrets import FILLERS, sample
from thence.memory.redact import Redactor

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


def make_texts(megabytes: int, *, seed: int = 1) -> list[str]:
    """Return synthetic texts of a session, of so many megabytes in total."""
    rng = random.Random(seed)
    texts: list[str] = []
    total = 0
    while total < megabytes * 1_000_000:
        texts.append(_text(rng))
        total += len(texts[-1])
    return texts


def _text(rng: random.Random) -> str:
    if rng.random() < 0.002:
        return "".join(rng.choices(FILLERS["b"], k=200_000))
    parts = rng.choices([CODE, LOG, PROSE, json.dumps(DATA)], k=rng.choice((1, 1, 2, 4, 30)))
    if rng.random() < 0.005:
        parts.append("export GITHUB_TOKEN=ghp" + "_{A36}\n")
    return sample("\n".join(parts), rng.randrange(1000))


def time_and_print(name: str, data: list[str], work: Callable[[], object]) -> float:
    """Print the throughput of work over texts, and return its seconds."""
    elapsed = seconds(work, rounds=3)
    print(f"  {name:<40} {sum(map(len, data)) / elapsed / 1e6:8.0f} MB/s")
    return elapsed


def measure_log_lines(redactor: Redactor) -> int:
    """Measure redacting log lines as a sweep does: decode and walk only lines that look suspect."""
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
    elapsed = time_and_print("lines of a log", texts, work)
    speed = sum(map(len, lines)) / elapsed / 1e6
    return verdict("40 MB/s / lines of a log", 40 / speed, 1)


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    texts = make_texts(20)
    lines = [msgspec.json.encode(text) for text in texts]
    values = [
        [{"type": "text", "text": text} for text in texts[at : at + 4]]
        for at in range(0, len(texts), 4)
    ]
    redactor = Redactor(key=KEY)
    print(f"redact: {len(texts):,} texts, {sum(map(len, texts)) / 1e6:.0f} MB")

    first = seconds(lambda: Redactor(key=KEY).redact("the token and the password"), rounds=3)
    print(f"  first text, with compiling            {first * 1e3:8.1f} ms")
    time_and_print("one copy", texts, lambda: [text.encode() for text in texts])
    decode_time = time_and_print(
        "decoding", texts, lambda: [msgspec.json.decode(line) for line in lines]
    )
    text_time = time_and_print(
        "each text", texts, lambda: [redactor.redact(text) for text in texts]
    )
    value_time = time_and_print(
        "JSON values", texts, lambda: [redactor.redact_json(v) for v in values]
    )
    missed = measure_log_lines(redactor)
    missed += verdict("redaction of texts / decoding them", text_time / decode_time, 40)
    missed += verdict("redaction of JSON values / of their texts", value_time / text_time, 2.5)

    hostile = {
        "one letter": "a" * 16_000_000,
        "base64": "".join(random.Random(2).choices(FILLERS["b"], k=8_000_000)),
        "key headers": ("-----BEGIN PRIVATE " + "KEY-----\n") * 200_000,
        "names without values": "secret.token " * 600_000,
    }
    for name, text in hostile.items():
        full_time = time_and_print(name, [text], lambda text=text: redactor.redact(text))  # type: ignore[misc]
        quarter = text[: len(text) // 4]
        quarter_time = seconds(lambda quarter=quarter: redactor.redact(quarter), rounds=3)  # type: ignore[misc]
        missed += verdict(
            f"{name}: time for 4 times the text / 4 times the time", full_time / quarter_time / 4, 2
        )

    redacted = [redactor.redact(text) for text in texts]
    assert not any("ghp" + "_" in text for text in redacted if "export" in text)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
