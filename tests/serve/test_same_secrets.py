"""How many secrets were redacted is one number: sweep, store page, API and share say the same."""

from __future__ import annotations

import json
import random
import re
import string
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from tests.serve.conftest import House, empty
from thence.agents.claude.sample import SampleTranscript
from thence.cli import thence
from thence.serve import store_page


def token(seed: int) -> str:
    """Return a made-up token that rules find."""
    signs = random.Random(seed).choices(string.ascii_letters + string.digits, k=36)
    return f"ghp_{''.join(signs)}"


def test_every_door_counts_the_same_secrets(tmp_path: Path) -> None:
    """Of a payload, the folder, the first prompt, and how a call ended; equal ones count once."""
    house = empty(tmp_path)
    work = tmp_path / f"work-{token(1)}"
    log = SampleTranscript("secrets", work, datetime.now(UTC))
    log.prompt(f"Use {token(2)} for the release.")
    log.bash(f"curl -H 'Authorization: token {token(3)}' host", "ok")
    log.call("Bash", {"command": "push"}, "refused", failed=True, structured=f"Error: {token(4)}")
    log.text(f"It is done with {token(2)} and {token(3)}.")
    log.save(house.homes.claude)
    house.close()
    env = house.homes.env | {"HOME": str(tmp_path), "THENCE_HOME": str(house.homes.thence)}

    def ran(*arguments: str) -> str:
        return CliRunner().invoke(thence, arguments, env=env, catch_exceptions=False).output

    swept = json.loads(ran("sweep", "--json"))["redactions"]
    share = ["share", log.id, "-o", str(tmp_path / "file.thence")]
    shared = json.loads(ran(*share, "--json"))["redacted"]
    printed = ran(*share, "--force")
    exported = json.loads(ran("export", log.id, "--redacted", "--json"))["redacted"]
    house = House(tmp_path)
    with house.serving():
        page = Counter({rule: n for rule, n, _ in store_page.page(house.context).redacted})
        api = house.ask("/api/store").json["redacted"]
    house.close()
    number = sum(page.values())

    assert {"github-token": 4} == page
    assert number == exported
    assert swept == dict(page) == api == shared
    assert re.search(rf"\b{number} secrets? redacted", printed)
