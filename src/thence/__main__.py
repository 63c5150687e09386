"""`python -m thence`: the command line, for those who have no `thence` on their PATH.

Python puts the current folder first on the path of modules for `-m`. In a folder that is not
trusted, and in every command that we write down, it is `python -E -P -m thence`.
"""

from __future__ import annotations

from thence.cli import main

if __name__ == "__main__":
    main()
