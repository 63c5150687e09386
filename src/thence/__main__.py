"""`python -m thence`: the command line, for those who have no `thence` on their PATH.

Python puts the current folder first on the path of modules for `-m`. In a folder that is not
trusted, and in every command that we write down, it is `python -E -P -m thence`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; what a hook waits for is tried without loading it."""
    if sys.argv[1:3] == ["brief", "--hook"] and len(sys.argv) == 4:
        from thence.serve.ready_briefs import answer_quickly

        if answer_quickly(sys.argv[3]):
            return
    from thence.cli import main as run

    run()


if __name__ == "__main__":
    main()
