"""`thence sql` and `thence export parquet`: up to date, in every form, and what goes goes."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Run
from thence.analytics import views
from thence.analytics.exports import MANIFEST, FolderTarget, read_manifest
from thence.analytics.parquet import load_duckdb
from thence.analytics.tables import SCHEMA_VERSION, TABLES
from thence.analytics.views import BadSql, ask
from thence.cli import thence, wiring
from thence.cli.sample_machine import Homes, fake_token, made_id
from thence.cli.sql import SAMPLES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "analytics.md").read_text()
PART = PAGE[PAGE.index("## Ten example queries") : PAGE.index("## Other readers")]
QUESTIONS = re.findall(r"```sql\n(.*?)```", PART, re.DOTALL)


def _answers(questions: list[str]) -> list[list[tuple[Any, ...]]]:
    """Ask one after the other, of views that are opened once."""
    engine, folder = load_duckdb(), FolderTarget(wiring.analytics())
    manifest = read_manifest(folder.get(MANIFEST))
    assert manifest is not None
    with views._open_engine(engine, folder, manifest) as db:
        return [views._run_query(engine, db, question, None).rows for question in questions]


@pytest.mark.slow
def test_the_page_has_ten_questions_and_each_is_answered(looked_at: Homes, run: Run) -> None:
    """On the made-up machine, with something in every answer."""
    run("sql", "SELECT 1")
    answers = _answers(QUESTIONS)

    assert 10 == len(QUESTIONS)
    assert [] == [QUESTIONS[at] for at, rows in enumerate(answers) if not rows]


@pytest.mark.slow
@pytest.mark.parametrize(("_asks", "question"), SAMPLES)
def test_samples_are_answered(looked_at: Homes, run: Run, _asks: str, question: str) -> None:
    """What the command itself suggests works as it is."""
    assert json.loads(run("sql", question, "--json").stdout)


def test_the_page_tells_every_table_and_column() -> None:
    """The schema in the docs is that of the code, word for word."""
    for name, table in TABLES.items():
        lines = [f"### {name}", "", f"{table.about} `day`: {table.day}.", ""]
        lines += ["| column | type | says |", "| --- | --- | --- |"]
        lines += [
            f"| `{c.name}` | `{c.type}` | {c.about}{' *' if c.is_spoken else ''} |"
            for c in table.columns
        ]

        assert "\n".join(lines) in PAGE
    assert f"This is version {SCHEMA_VERSION};" in PAGE


@pytest.mark.slow
def test_a_question_brings_the_export_up_to_date_and_says_so(machine: Homes, run: Run) -> None:
    """The first time, and after a change; not when there is nothing to do."""
    shutil.rmtree(wiring.analytics(), ignore_errors=True)
    first = run("sql", "SELECT count(*) FROM sessions", "--csv")
    again = run("sql", "SELECT count(*) FROM sessions", "--csv")
    run("evict", made_id("clock-change"), "--yes")
    changed = run("sql", "SELECT count(*) FROM sessions WHERE evicted", "--csv")

    assert "exported first: " in first.stderr
    assert first.stdout == again.stdout
    assert "" == again.stderr
    assert "exported first: " in changed.stderr
    assert ["1"] == changed.stdout.splitlines()[1:]


@pytest.mark.slow
def test_an_answer_is_a_table_csv_or_json(looked_at: Homes, run: Run) -> None:
    """The same rows in each."""
    question = (
        "SELECT kind, count(*) AS n, sum(cost_usd) AS usd, max(ts) AS ts, list(tool) AS tools"
        " FROM events GROUP BY kind ORDER BY kind"
    )
    table = run("sql", question).stdout.splitlines()
    rows = list(csv.DictReader(run("sql", question, "--csv").stdout.splitlines()))
    objects = json.loads(run("sql", question, "--json").stdout)

    assert ["kind", "n", "usd", "ts", "tools"] == table[0].split()
    assert [row["kind"] for row in rows] == [line.split()[0] for line in table[1:]]
    assert [int(row["n"]) for row in rows] == [row_object["n"] for row_object in objects]
    assert [row["usd"] == "" for row in rows] == [
        row_object["usd"] is None for row_object in objects
    ]
    assert all(
        row_object["ts"].endswith("Z") and isinstance(row_object["tools"], list)
        for row_object in objects
    )


@pytest.mark.slow
def test_a_long_answer_is_cut_and_says_so(looked_at: Homes, run: Run) -> None:
    """On stderr, so that a pipe gets rows alone; 0 gives all."""
    short = run("sql", "SELECT * FROM range(9)", "--limit", "4", "--csv")
    complete = run("sql", "SELECT * FROM range(900)", "--limit", "0", "--csv")
    usual = run("sql", "SELECT * FROM range(900)", "--json")

    assert 1 + 4 == len(short.stdout.splitlines())
    assert "the first 4 rows; --limit 0 gives all" in short.stderr
    assert 1 + 900 == len(complete.stdout.splitlines())
    assert "--limit" not in complete.stderr
    assert 100 == len(json.loads(usual.stdout))


@pytest.mark.slow
def test_content_cannot_reach_the_terminal(looked_at: Homes, run: Run) -> None:
    """Escapes, line ends and marks that turn text around are shown, not sent."""
    question = "SELECT 'a' || chr(27) || '[31m' || chr(10) || chr(8238) || 'b' AS \"x\ty\""
    for form in ((), ("--csv",), ("--json",)):
        output = run("sql", question, *form).stdout

        assert not re.search("[\x1b\u202e]", output)
        assert "31m" in output


def test_without_a_question_tables_and_samples_are_told(looked_at: Homes, run: Run) -> None:
    """Every column, in words and as JSON, without a store."""
    output = " ".join(run("sql").stdout.split())
    answer = json.loads(run("sql", "--json").stdout)

    assert set(TABLES) == {entry["table"] for entry in answer["tables"]}
    for name, table in TABLES.items():
        assert all(f"{column.name} " in output for column in table.columns), name
    assert 'thence sql "SELECT' in output


def test_a_question_comes_from_stdin_too(looked_at: Homes) -> None:
    """For questions that a shell would spoil."""
    done = CliRunner().invoke(thence, ["sql", "-", "--csv"], input="SELECT 'it''s' AS x")

    assert ["x", "it's"] == done.stdout.splitlines()


def test_a_plan_is_shown_as_it_is_drawn(looked_at: Homes, run: Run) -> None:
    """On as many lines as it has."""
    assert len(run("sql", "EXPLAIN SELECT count(*) FROM events").stdout.splitlines()) > 3


def test_a_wrong_question_is_a_usage_error(looked_at: Homes, run: Run) -> None:
    """With the columns as the hint."""
    with pytest.raises(BadSql) as caught:
        run("sql", "SELECT nope FROM usage")

    assert "usage: day, session_uid, " in (caught.value.hint or "")


@pytest.mark.slow
def test_another_export_can_be_asked(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """As it is: nothing is exported first."""
    done = run("export", "parquet", str(tmp_path / "out"))
    asked = run("sql", "SELECT count(*) FROM sessions", "--from", str(tmp_path / "out"), "--csv")

    assert "13 sessions" in done.stdout
    assert ["13"] == asked.stdout.splitlines()[1:]
    assert "" == asked.stderr


@pytest.mark.slow
def test_an_export_tells_what_it_did(looked_at: Homes, run: Run, tmp_path: Path) -> None:
    """In words and as JSON; a dry run writes nothing."""
    out = str(tmp_path / "out")
    dry = run("export", "parquet", out, "--dry-run").stdout
    there = Path(out).exists()
    first = json.loads(run("export", "parquet", out, "--json").stdout)
    again = run("export", "parquet", f"file://{out}").stdout

    assert "would read all of 13 sessions" in dry
    assert not there
    assert (13, True, SCHEMA_VERSION) == (first["read"], first["whole"], first["schema"])
    assert set(TABLES) == set(first["rows"])
    assert "nothing changed" in again


def test_one_session_is_exported_as_before(looked_at: Homes, run: Run) -> None:
    """Options may stand before the id; the word parquet alone means all of them."""
    before = run("export", "--as", "markdown", made_id("clock-change")).stdout
    after = run("export", made_id("clock-change"), "--as", "markdown", "--color", "never").stdout

    assert before == after
    assert before.startswith("# ")


@pytest.mark.slow
def test_what_is_forgotten_is_out_of_the_files_at_once(machine: Homes, run: Run) -> None:
    """Its title is in no file of the home's own export, and the proof looked there."""
    name = made_id("clock-change")
    run("sql", "SELECT 1")
    uid = f"claude:{name}"
    where = f"SELECT count(*) FROM sessions WHERE session_uid = '{uid}'"
    before = ask(wiring.analytics(), where).rows
    done = json.loads(run("forget", name, "--yes", "--json").stdout)
    after = ask(wiring.analytics(), where).rows
    state = b"".join(path.read_bytes() for path in wiring.analytics().glob("_state*"))
    left = run("sql", "SELECT count(*) FROM sessions", "--csv").stdout

    assert [(1,)] == before
    assert [(0,)] == after
    assert name.encode() not in state
    assert any(MANIFEST in path for path in done["files_checked"])
    assert ["12"] == left.splitlines()[1:]
    assert FolderTarget(wiring.analytics()).names()


@pytest.mark.slow
def test_what_is_evicted_is_out_of_the_files_at_once(machine: Homes, run: Run) -> None:
    """Its events; what else stood on these days is back with the next question."""
    name = made_id("clock-change")
    counted = "SELECT count(*) FROM events WHERE session_uid <> 'claude:NAME'".replace("NAME", name)
    others = run("sql", counted, "--csv").stdout
    run("evict", name, "--yes")
    question = f"SELECT count(*) FROM events WHERE session_uid = 'claude:{name}'"
    at_once = ask(wiring.analytics(), question).rows
    later = run("sql", counted, "--csv").stdout
    stays = run("sql", f"SELECT cost_usd > 0 FROM sessions WHERE session_uid = 'claude:{name}'")

    assert [(0,)] == at_once
    assert others == later
    assert "True" in stays.stdout


@pytest.mark.slow
def test_no_secret_of_the_made_up_machine_is_exported(looked_at: Homes, run: Run) -> None:
    """The one that a session printed is in no table."""
    output = "".join(run("sql", f"FROM {name}", "--json", "--limit", "0").stdout for name in TABLES)

    assert fake_token() not in output
    assert made_id("gauge-import") in output


def _forever(env: dict[str, str], folder: Path, number: int) -> subprocess.Popen[bytes]:
    """Ask a question whose answer never comes, and wait until the engine is at it."""
    program = [sys.executable, "-c", "from thence.cli import main; main()", "sql"]
    question = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    process = subprocess.Popen([*program, question], env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while len(list(folder.glob("thence-sql-*"))) < number and time.monotonic() < until:
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_a_killed_question_leaves_nothing_for_ever(looked_at: Homes, tmp_path: Path) -> None:
    """The next one removes its folder; that of a question that still runs stays."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = _forever(env, tmp_path, 1)
    killed.kill()
    killed.wait()
    [left] = tmp_path.glob("thence-sql-*")
    running = _forever(env, tmp_path, 2)
    for path in tmp_path.glob("thence-sql-*"):
        os.utime(path, (1000, 1000))
    program = [sys.executable, "-c", "from thence.cli import main; main()", "sql", "SELECT 1"]
    done = subprocess.run(program, env=env, check=False, capture_output=True)
    folders = list(tmp_path.glob("thence-sql-*"))
    running.kill()
    running.wait()

    assert 0 == done.returncode
    assert (1, False) == (len(folders), left in folders)
