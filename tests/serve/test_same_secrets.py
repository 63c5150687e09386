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
from thence.memory.placeholders import MAX_SECRETS
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


def test_a_count_that_reached_its_bound_says_so(tmp_path: Path) -> None:
    """Everywhere the number of a stored session is told; what is counted whole says all of it."""
    house = empty(tmp_path)
    log = SampleTranscript("secrets", tmp_path / "work", datetime.now(UTC))
    log.prompt(" ".join(map(token, range(MAX_SECRETS + 1))))
    log.text("Done.")
    log.save(house.homes.claude)
    house.close()
    env = house.homes.env | {"HOME": str(tmp_path), "THENCE_HOME": str(house.homes.thence)}

    def ran(*arguments: str) -> str:
        return CliRunner().invoke(thence, arguments, env=env, catch_exceptions=False).output

    swept = ran("sweep")
    file = str(tmp_path / "file.thence")
    shared = json.loads(ran("share", log.id, "-o", file, "--json"))["redacted"]
    house = House(tmp_path)
    with house.serving():
        page = house.ask("/store").body.decode()
        api = house.ask("/api/store").json
    house.close()
    env["THENCE_HOME"] = str(tmp_path / "another")
    imported = ran("import", file)
    env["THENCE_HOME"] = str(tmp_path / "third")
    [arrival] = json.loads(ran("import", file, "--json"))["sessions"]

    assert {"github-token": MAX_SECRETS + 1} == shared
    assert "1,000+ secrets redacted: 1,000 github-token" in swept
    assert "1,000+ secrets redacted" in imported
    assert "1,000+ secrets" in page
    assert "1000+</td>" in page
    assert "minimums: 1,000 secrets of a session are told apart at most, and 1 session" in page
    assert ({"github-token": MAX_SECRETS}, True) == (api["redacted"], api["more_redacted"])
    assert arrival["more_redacted"]


def test_a_count_below_its_bound_is_whole(tmp_path: Path) -> None:
    """Nor does a session that grows without another secret tell of more."""
    house = empty(tmp_path)
    log = SampleTranscript("secrets", tmp_path / "work", datetime.now(UTC))
    log.prompt(" ".join(map(token, range(MAX_SECRETS))))
    log.save(house.homes.claude)
    first = house.sweep().run(house.roots)
    log.text("Done.")
    log.save(house.homes.claude)
    second = house.sweep().run(house.roots)
    house.close()

    assert ({"github-token": MAX_SECRETS}, False) == (first.redactions, first.more_redacted)
    assert (1, {}, False) == (second.sessions_changed, second.redactions, second.more_redacted)
