"""Print what redaction finds, one row per rule: planted secrets, near misses, hits in real logs.

    .venv/bin/python scripts/redaction.py [FOLDER…]

Planted secrets are the examples of the rules with new random characters, each in six forms. A hit
in a log of the folders is a false one unless the log has a real secret: check with `--show`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from thence.memory.redact import RULES, Redactor
from thence.memory.rules import Rule, sample

SAMPLES_PER_RULE = 20
MAX_LINE_CHARS = 1 << 20


def embed(text: str) -> Iterator[str]:
    """Yield a text in the forms in which sessions contain it."""
    yield text
    yield f"before\n{text}\nafter"
    yield json.dumps(text)
    yield json.dumps({"command": text, "n": 1})
    yield json.dumps(json.dumps([f"a\n{text}\nb"]))
    yield f"\x1b[32m{text}\x1b[0m"


def count_found(rule: Rule, redactor: Redactor) -> tuple[int, int]:
    """Return how many planted secrets of a rule are found, and how many there are."""
    texts = [
        text
        for seed in range(100, 100 + SAMPLES_PER_RULE)
        for text in embed(sample(rule.example, seed))
    ]
    return sum("[REDACTED:" in redactor.redact(text) for text in texts), len(texts)


def count_false_hits(rule: Rule, redactor: Redactor) -> tuple[int, int]:
    """Return in how many forms of a rule's near miss something is found, and how many there are."""
    texts = list(embed(sample(rule.near_miss)))
    return sum("[REDACTED:" in redactor.redact(text) for text in texts), len(texts)


def count_log_hits(
    folders: list[Path], redactor: Redactor, *, show: bool
) -> tuple[Counter[str], int]:
    """Return how often each rule finds something in the logs of folders, and their bytes."""
    size = 0
    redactor.counts.clear()
    for folder in folders:
        for path in sorted(folder.rglob("*.json*")):
            for line in path.read_text(errors="replace").splitlines():
                if len(line) > MAX_LINE_CHARS:
                    continue
                size += len(line)
                clean = redactor.redact(line)
                if show and clean is not line:
                    at = clean.find("[REDACTED:")
                    print(f"{path.name}: {clean[max(0, at - 60) : at + 60]}")
    return Counter(redactor.counts), size


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--show", action="store_true", help="print each hit in the logs, redacted")
    options = parser.parse_args()
    redactor = Redactor(key=b"a key for a table")
    log_hits, size = count_log_hits(options.folders, redactor, show=options.show)
    print(f"| rule | planted found | near misses hit | hits in {size / 1e6:.1f} MB of logs |")
    print("| --- | --- | --- | --- |")
    for rule in RULES:
        found_count, planted_count = count_found(rule, redactor)
        false_count, near_miss_count = count_false_hits(rule, redactor)
        print(
            f"| {rule.name} | {found_count} of {planted_count}"
            f" | {false_count} of {near_miss_count} | {log_hits[rule.name]} |"
        )


if __name__ == "__main__":
    main()
