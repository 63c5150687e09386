"""Convert session logs with Harbor's own converters, and print the tokens of each as JSON.

Run it with the Python of an environment that has `harbor` (Python 3.12 or later), outside of this
tree: `python scripts/harbor_totals.py claude FOLDER…` (a folder for each session, with its files)
or `codex FOLDER…`. `tests/bridge/test_atif_harbor.py` compares them with ours.
"""

# ruff: noqa: SLF001, BLE001 - a script that calls private methods of another package

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Print a JSON object: the tokens of each folder, or the error."""
    logging.disable(logging.CRITICAL)
    agent, *folders = sys.argv[1:]
    if agent == "claude":
        from harbor.agents.installed.claude_code import ClaudeCode as Converter
    else:
        from harbor.agents.installed.codex import Codex as Converter
    converter = Converter(logs_dir=Path(tempfile.mkdtemp()), model_name="made-up/model")
    totals = {}
    for folder in folders:
        try:
            trajectory = converter._convert_events_to_trajectory(Path(folder))
            metrics = trajectory.final_metrics if trajectory is not None else None
            totals[folder] = None if metrics is None else metrics.model_dump(mode="json")
        except Exception as error:
            totals[folder] = {"error": repr(error)[:300]}
    print(json.dumps(totals))


main()
