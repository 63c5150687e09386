"""Convert session logs with Harbor's own converters, and print the tokens of each as JSON.

Run it with the Python of an environment that has `harbor` (Python 3.12 or later), outside of this
tree: `python scripts/harbor_totals.py claude FOLDER…` (a folder for each session, with its files)
or `codex FOLDER…`. `tests/bridge/test_atif_harbor.py` compares them with ours.
"""

# ruff: noqa: SLF001, BLE001 - a script that asks other people's private methods

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Print an object: the tokens of each folder, or why there are none."""
    logging.disable(logging.CRITICAL)
    agent, *folders = sys.argv[1:]
    if agent == "claude":
        from harbor.agents.installed.claude_code import ClaudeCode as Converter
    else:
        from harbor.agents.installed.codex import Codex as Converter
    converter = Converter(logs_dir=Path(tempfile.mkdtemp()), model_name="made-up/model")
    out = {}
    for folder in folders:
        try:
            made = converter._convert_events_to_trajectory(Path(folder))
            final = made.final_metrics if made is not None else None
            out[folder] = None if final is None else final.model_dump(mode="json")
        except Exception as error:
            out[folder] = {"error": repr(error)[:300]}
    print(json.dumps(out))


main()
