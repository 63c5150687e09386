"""Run the benchmarks: `python -m bench [NAME ...]`. Figures are ratios within one run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NAMES = sorted(
    path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")
)


def main() -> int:
    """Run the named benchmarks, or all; 1 when a budget was missed."""
    missed = 0
    for name in sys.argv[1:] or NAMES:
        missed += importlib.import_module(f"bench.bench_{name}").main()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
