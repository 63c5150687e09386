"""`thence doctor`: each thing that can be wrong is found, and only that."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from thence.cli import checks, wiring
from thence.cli.sample_machine import Homes, made_id
from thence.format.normal import Session
from thence.memory.packs import pack_name
from thence.memory.store import StoreDamaged

IMPORT = made_id("gauge-import")


def examined(run: Run, *more: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the findings."""
    result = run("doctor", "--json", *more)
    findings: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return result.return_value, findings


def worst(findings: list[dict[str, Any]], topic: str) -> str:
    """What was said of a topic that is not well."""
    return " | ".join(f["words"] for f in findings if f["topic"] == topic and f["level"] != "ok")


def source_words(findings: list[dict[str, Any]], agent: str) -> str:
    """What was said of the logs of an agent."""
    return next(
        f"{finding['words']}"
        for finding in findings
        if finding["topic"] == "sources" and finding.get("agent") == agent
    )


def imported(machine: Homes) -> tuple[Session, Path]:
    """A session of the machine, and its pack."""
    with wiring.store() as store:
        row = next(r for r in store.sessions() if r.session.native_session_id == IMPORT)
    folder = machine.thence / "memory" / "packs"
    [pack] = folder.glob(f"{pack_name(row.session.session_uid)}-*.pack")
    return row.session, pack


@pytest.mark.slow
def test_a_swept_machine_is_well(looked_at: Homes, run: Run) -> None:
    """Every byte is accounted for: seen is kept, or unfinished, or forgotten, or not yet read."""
    code, findings = examined(run, "--deep")
    sources = [
        finding for finding in findings if finding["topic"] == "sources" and "bytes" in finding
    ]

    assert 0 == code
    assert 4 == len(sources)
    absent = "no sessions found of aider, Cline, Continue, Copilot CLI"
    assert any(absent in finding["words"] for finding in findings)
    for source in sources:
        assert (
            source["bytes"]
            == source["kept"] + source["torn"] + source["unread"] + source["forgotten"]
        )
        assert 0 == source["unread"]
    assert any(source["torn"] for source in sources)
    assert run("doctor").stdout.startswith("no problems")


def test_sources_stand_under_one_another(looked_at: Homes, run: Run) -> None:
    """How many files, how much, what became of it; a wide screen says where they are."""
    usual = run("doctor").stdout.splitlines()[2:6]
    wide = run("doctor", COLUMNS="120").stdout.splitlines()[2:6]

    assert 1 == len({line.index("all stored") for line in usual})
    assert not any(line.endswith("…") for line in usual)
    assert ["~/.claude", "~/.codex", "~/.grok", "~/.thence"] == [line.split()[-1] for line in wide]


def test_what_is_not_read_yet_is_counted(machine: Homes, run: Run) -> None:
    """New bytes are a note with the way to keep them, no alarm."""
    path = next(machine.claude.rglob(f"{IMPORT}.jsonl"))
    last = path.read_bytes().splitlines(keepends=True)[-1]
    path.write_bytes(path.read_bytes() + last)
    (path.parent / f"{made_id('new')}.jsonl").write_bytes(last)
    code, findings = examined(run)
    claude = next(finding for finding in findings if finding.get("agent") == "claude")

    assert (0, "thence sweep") == (code, claude["fix"])
    assert 2 * len(last) == claude["unread"]
    assert 1 == claude["new"]


def test_skipped_lines_are_named_by_file_and_line(machine: Homes, run: Run) -> None:
    """The damage is said once, where it is."""
    path = next(machine.claude.rglob(f"{IMPORT}.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, b'{"broken\n', lines[-1]]))
    run("sweep")
    code, findings = examined(run)
    skips = next(finding for finding in findings if finding["topic"] == "skips")

    assert 0 == code
    assert [(str(path), len(lines) + 1)] == [(s["path"], s["line"]) for s in skips["lines"]]
    assert f"{IMPORT}.jsonl:{len(lines) + 1}" in run("doctor").stdout
    assert run("doctor").stdout.startswith("1 line skipped; nothing imports")
    words = source_words(findings, "claude")
    assert re.search(r"1 line skipped, \d+ bytes unfinished, the rest is stored", words)


def test_what_was_removed_is_not_called_stored(machine: Homes, run: Run) -> None:
    """Though each byte of the logs was read: the transcript is gone, and its number is told."""
    run("sweep")
    run("evict", IMPORT, "--yes")
    findings = examined(run)[1]

    words = source_words(findings, "claude")
    assert re.search(r"1 transcript removed, \d+ bytes unfinished, the rest is stored", words)
    assert "all stored" in source_words(findings, "codex")


def test_a_lost_or_damaged_pack_is_found(machine: Homes, run: Run) -> None:
    """A pack that is gone is seen at once, a changed byte by `--deep`."""
    _, pack = imported(machine)
    body = bytearray(pack.read_bytes())
    body[len(body) // 2] ^= 0xFF
    pack.write_bytes(body)

    assert 0 == examined(run)[0]

    code, findings = examined(run, "--deep")

    assert 1 == code
    assert IMPORT[:8] in worst(findings, "packs")

    pack.unlink()
    code, findings = examined(run)

    assert (1, True) == (code, "its pack is missing" in worst(findings, "packs"))


@pytest.mark.slow
@pytest.mark.parametrize("deep", [[], ["--deep"]], ids=["gone", "damaged"])
def test_what_a_broken_pack_held_is_read_again(machine: Homes, run: Run, deep: list[str]) -> None:
    """The command that the doctor names does it, and then all is well."""
    session, pack = imported(machine)
    if deep:
        pack.write_bytes(bytes(pack.stat().st_size))
    else:
        pack.unlink()
    [broken] = [finding for finding in examined(run, *deep)[1] if finding["level"] == "bad"]
    mended = run(*str(broken["fix"]).removeprefix("thence ").split(), "--json")

    assert "thence doctor --mend" == broken["fix"]
    assert [session.session_uid] == json.loads(mended.stdout)["mended"]
    assert 0 == examined(run, "--deep")[0]
    assert run("doctor", "--mend").stdout.startswith("restored 0 sessions")


def test_a_broken_pack_without_a_source_can_only_be_let_go_of(machine: Homes, run: Run) -> None:
    """Nothing has its texts any more; the digest stays."""
    session, pack = imported(machine)
    Path(session.source_path or "").unlink()
    pack.unlink()
    answer = json.loads(run("doctor", "--mend", "--json").stdout)
    [broken] = [finding for finding in answer["findings"] if finding["level"] == "bad"]

    assert ([], f"thence store remove {IMPORT[:8]}") == (answer["mended"], broken["fix"])


def test_a_damaged_database_is_found(machine: Homes, run: Run) -> None:
    """A page of garbage is no silent answer."""
    path = machine.thence / "memory" / "thence.db"
    body = bytearray(path.read_bytes())
    for page in range(8, len(body) // 4096, 2):
        body[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    path.write_bytes(body)
    code, findings = examined(run)

    assert 1 == code
    assert any(finding["level"] == "bad" for finding in findings)


@pytest.mark.parametrize(
    "asked", [["ls"], ["search", "clock"], ["sweep"], ["cost"], ["show", IMPORT[:8]], ["gc", "-n"]]
)
def test_a_damaged_database_is_an_error_like_any_other(
    machine: Homes, run: Run, asked: list[str]
) -> None:
    """It says what is damaged and what to do; the doctor looks at all that can be looked at."""
    path = machine.thence / "memory" / "thence.db"
    body, head = path.read_bytes(), 8 * 4096  # which says what tables there are
    path.write_bytes(body[:head] + b"\xa5" * (len(body) - head))

    with pytest.raises(StoreDamaged, match="is damaged: ") as caught:
        run(*asked)
    assert "thence doctor" in (caught.value.hint or "")
    assert {"bad", "ok"} <= {finding["level"] for finding in examined(run)[1]}


def test_modes_that_let_others_read_are_found(machine: Homes, run: Run) -> None:
    """The fix is something to type."""
    config = machine.thence / "config.toml"
    config.touch()
    config.chmod(0o644)
    code, findings = examined(run)
    (modes,) = (finding for finding in findings if finding["topic"] == "modes")

    assert 3 == code
    assert "chmod -R go= ~/.thence/config.toml" == modes["fix"]
    assert [{"path": str(config), "mode": "0644"}] == modes["modes"]
    assert "1 warning" == run("doctor").stdout.splitlines()[0]


def test_caps_and_losses_are_told(machine: Homes, run: Run) -> None:
    """Over a cap is a warning, and so is what was evicted without a digest."""
    with wiring.store() as store:
        uid = f"claude:{IMPORT}"
        store.remove([uid], why={uid: "test"}, lost=True)
    config = machine.thence / "config.toml"
    config.touch(mode=0o600)
    config.write_text("[session_memory.retention]\nraw_soft_cap_bytes = 1\n")
    code, findings = examined(run)

    assert 3 == code
    assert "transcripts" in worst(findings, "caps")
    assert "1 session was removed before it was fully analysed" == worst(findings, "losses")


def test_an_event_of_the_future_doubts_the_clock(machine: Homes, run: Run) -> None:
    """Some clock is wrong, and which session says so is named."""
    path = next(machine.claude.rglob(f"{IMPORT}.jsonl"))
    lines = path.read_text().splitlines()
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%S}.000Z"
    before = json.loads(lines[-1])
    last = before | {"timestamp": tomorrow, "uuid": made_id("x"), "parentUuid": before["uuid"]}
    path.write_text("\n".join([*lines, json.dumps(last), ""]))
    run("sweep")
    code, findings = examined(run)

    assert 3 == code
    assert f"an event of {IMPORT[:8]} lies in the future" in worst(findings, "clock")


def test_agents_without_a_hook_are_one_finding(machine: Homes, run: Run) -> None:
    """One command helps them all; an agent with a hook is not among them."""
    run("hook", "install", "claude", "--yes")
    without = [f for f in examined(run)[1] if f["topic"] == "hooks" and f["level"] == "note"]

    assert [["codex", "grok"]] == [finding["without"] for finding in without]
    assert ["thence setup"] == [finding["fix"] for finding in without]
    assert "not installed for 2 agents: Codex, Grok" == without[0]["words"]


def test_a_hook_that_fell_silent_is_found(machine: Homes, run: Run) -> None:
    """Sessions went on and nobody said so."""
    run("hook", "install", "claude", "--yes")

    assert 0 == examined(run)[0]

    heard = machine.thence / "hooks" / "claude"
    heard.parent.mkdir(mode=0o700)
    heard.touch(mode=0o600)
    os.utime(heard, (time.time() - 9 * 86400,) * 2)
    code, findings = examined(run)

    assert 3 == code
    assert "sessions grew" in worst(findings, "hooks")


@pytest.mark.parametrize(
    ("kind", "level"), [("ext4", "ok"), ("nfs4", "warning"), ("fuse.sshfs", "warning")]
)
def test_a_home_on_the_network_is_warned_of(tmp_path: Path, kind: str, level: str) -> None:
    """The mount that is nearest counts, whatever the others are."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - xfs /dev/a rw\n"
        f"22 21 8:2 / {tmp_path} rw shared:1 - {kind} srv:/x rw\n"
        "23 21 8:3 / /elsewhere rw - nfs srv:/y rw\n"
    )
    (finding,) = checks.place(tmp_path / "home", str(mounts))

    assert level == finding.level


@pytest.mark.parametrize(
    ("platform", "is_windows", "words"),
    [
        ("linux", False, []),
        ("darwin", False, ["macOS is untested"]),
        ("win32", True, ["Windows is untested: sessions can be imported, searched and viewed"]),
    ],
)
def test_a_system_that_nobody_tested_is_named(
    monkeypatch: pytest.MonkeyPatch, platform: str, is_windows: bool, words: list[str]
) -> None:
    """As a note: nothing is wrong there that we know of."""
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("thence.system.IS_WINDOWS", is_windows)
    findings = list(checks.untested_system())

    assert words == [finding.words for finding in findings]
    assert {"note"} >= {finding.level for finding in findings}


def test_bad_settings_and_no_store_are_findings_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """It never ends in an error of its own."""
    for name in ("THENCE_HOME", "HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    code, findings = examined(run)

    assert (0, "no sessions stored yet") == (code, worst(findings, "store"))

    (tmp_path / "none").mkdir(mode=0o700)
    (tmp_path / "none/config.toml").write_text("bad = 1\n")
    code, findings = examined(run)

    assert 1 == code
    assert "unknown setting" in worst(findings, "setup")


def test_agents_are_listed_with_their_versions_and_what_is_known_of_them(
    machine: Homes, run: Run
) -> None:
    """A record that a newer client writes is counted by session, and kept as it is."""
    path = next(machine.claude.rglob(f"{IMPORT}.jsonl"))
    with path.open("a") as log:
        log.write('{"type": "zorp", "uuid": "z1", "sessionId": "x", "n": 1}\n')
    _, findings = examined(run)
    agents = {finding["agent"]: finding for finding in findings if finding["topic"] == "agents"}

    assert {"claude", "codex", "grok", "thence"} == set(agents)
    assert ["resume", "hooks", "servers", "handoff"] == agents["codex"]["offers"]
    assert "no running sessions" in agents["codex"]["words"]
    assert "status" in agents["claude"]["offers"]
    assert ["0.130.0"] == agents["codex"]["versions"]
    assert {"zorp": 1} == agents["claude"]["not_understood"]
    assert {f"claude:{IMPORT}": 1} == agents["claude"]["not_understood_by_session"]
    assert "1 record of unknown type: zorp" in worst(findings, "agents")
    assert "records of unknown type: 1, stored unchanged: zorp 1" in run("show", str(path)).stdout
