"""`python -m thence`: the command line, for those who have no `thence` on their PATH.

Python puts the current folder first on the path of modules for `-m`. In a folder that is not
trusted, and in every command that we write down, it is `python -E -P -m thence`.
"""

from __future__ import annotations

import atexit
import os
import sys


def main() -> None:
    """Run the command line; what a hook waits for is tried without loading it."""
    try:
        _run()
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            raise
        _leave(ended.code or 0)
        raise
    _leave(0)


def _run() -> None:
    if sys.argv[1:3] == ["brief", "--hook"] and len(sys.argv) == 4:
        from thence.serve.ready_briefs import answer_quickly

        if answer_quickly(sys.argv[3]):
            return
    import gc

    gc.disable()  # modules are many objects, and none of them is garbage
    from thence.cli import main as run

    gc.enable()
    run()


def _leave(code: int) -> None:
    """End the process at once, if nothing but Python's own tidying is left to be done.

    To take all modules apart is a twentieth of the time of a short command. What cannot be printed
    Python tells of, when it ends in its own way.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - what Python itself calls, by its only name
    os._exit(code)


if __name__ == "__main__":
    main()
