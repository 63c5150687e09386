"""Prints what redaction finds, a row per rule: planted secrets, near misses, and hits in real logs.

    .venv/bin/python scripts/redaction.py [FOLDER…]

Planted are the examples of the rules, filled anew, each in six forms. A hit in a log of the
folders is a false one unless somebody left a secret there: look with `--show`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from thence.memory.redact import RULES, Redactor
from thence.memory.rules import Rule, sample

SAMPLES = 20
LONGEST_LINE = 1 << 20


def forms(text: str) -> Iterator[str]:
    """Yield a text as sessions hold it."""
    yield text
    yield f"before\n{text}\nafter"
    yield json.dumps(text)
    yield json.dumps({"command": text, "n": 1})
    yield json.dumps(json.dumps([f"a\n{text}\nb"]))
    yield f"\x1b[32m{text}\x1b[0m"


def found_share(rule: Rule, redactor: Redactor) -> tuple[int, int]:
    """Return how many planted secrets of a rule are found, and how many there are."""
    texts = [
        form for seed in range(100, 100 + SAMPLES) for form in forms(sample(rule.example, seed))
    ]
    return sum("[REDACTED:" in redactor.redact(text) for text in texts), len(texts)


def false_hits(rule: Rule, redactor: Redactor) -> tuple[int, int]:
    """Return in how many forms of a rule's near miss something is found, and how many there are."""
    texts = list(forms(sample(rule.near_miss)))
    return sum("[REDACTED:" in redactor.redact(text) for text in texts), len(texts)


def hits_in(folders: list[Path], redactor: Redactor, *, show: bool) -> tuple[Counter[str], int]:
    """Return how often each rule finds something in the logs of folders, and their bytes."""
    size = 0
    redactor.counts.clear()
    for folder in folders:
        for path in sorted(folder.rglob("*.json*")):
            for line in path.read_text(errors="replace").splitlines():
                if len(line) > LONGEST_LINE:
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
    given = parser.parse_args()
    redactor = Redactor(key=b"a key for a table")
    in_logs, size = hits_in(given.folders, redactor, show=given.show)
    print(f"| rule | planted found | near misses hit | hits in {size / 1e6:.1f} MB of logs |")
    print("| --- | --- | --- | --- |")
    for rule in RULES:
        found, planted = found_share(rule, redactor)
        wrong, near = false_hits(rule, redactor)
        print(f"| {rule.name} | {found} of {planted} | {wrong} of {near} | {in_logs[rule.name]} |")


if __name__ == "__main__":
    main()
