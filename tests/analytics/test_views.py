"""SQL over an export: answers, and walls on all sides."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.memory import logs
from tests.memory.exported import exported, manifest
from tests.memory.stored import sweep
from thence.analytics import views
from thence.analytics.exports import FolderTarget, read_manifest
from thence.analytics.parquet import load_duckdb
from thence.analytics.tables import TABLES
from thence.analytics.views import BadSql, ask
from thence.errors import BadConfig, NotReadable

NOT_READ = "/etc/hostname"
ELSEWHERE = (
    f"SELECT * FROM read_text('{NOT_READ}')",
    f"SELECT * FROM read_csv('{NOT_READ}')",
    f"SELECT * FROM '{NOT_READ}'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_parquet('https://example.com/x.parquet')",
    "SELECT * FROM read_text('DIR/_manifest.json')",
    "SELECT * FROM parquet_metadata('/x.parquet')",
    "SELECT * FROM sniff_csv('/x.csv')",
    "SELECT * FROM hidden",
    f"SELECT * FROM read_blob('{NOT_READ}')",
    "SELECT * FROM read_json_auto('/x.json')",
    "SELECT * FROM read_ndjson('DIR/_manifest.json')",
    "SELECT * FROM read_parquet('/x.parquet')",
    "SELECT * FROM parquet_schema('/x.parquet')",
    "SELECT * FROM glob('~/.thence/serve.key')",
    "SELECT * FROM sqlite_scan('/x.db', 'sessions')",
    "SELECT * FROM read_text('s3://bucket/x')",
    "SELECT getenv('HOME')",
    "SELECT * FROM which_secret('s3://bucket', 's3')",
)
NO_QUESTIONS = (
    "COPY usage TO 'DIR/x.parquet'",
    "COPY (SELECT 1) TO 'FILE' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'FILE' (USE_TMP_FILE false)",
    "EXPORT DATABASE 'DIR/x'",
    "ATTACH 'DIR/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access=true",
    "SET allowed_directories=['/']",
    "RESET lock_configuration",
    "CREATE TABLE x AS SELECT 1",
    "DROP VIEW usage",
    "CREATE SECRET (TYPE s3)",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "SELECT 1; COPY usage TO 'DIR/x.parquet'",
    "SELECT 1; SELECT 2",
    "SET home_directory='/'",
    "PRAGMA enable_profiling",
    "DETACH memory",
    "CREATE MACRO f(x) AS x",
    "IMPORT DATABASE 'DIR/x'",
    "INSERT INTO usage SELECT * FROM usage",
    "DELETE FROM usage",
    "CHECKPOINT",
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export that no test changes."""
    folder = tmp_path_factory.mktemp("views")
    logs.write(folder / "home", logs.script(1), logs.script(2))
    sweep(folder / "store", {"claude": [folder / "home"]})
    exported(folder / "store", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def query(out: Path) -> Iterator[Callable[[str], views.QueryResult]]:
    """Ask many questions of views that were opened once, as `ask` opens them for each."""
    engine = load_duckdb()
    with views._open_engine(engine, FolderTarget(out), manifest(out)) as db:
        yield lambda question: views._run_query(engine, db, _named(question, out), None)


def _named(question: str, out: Path) -> str:
    file = out / manifest(out).tables["usage"].files[0].path
    return question.replace("FILE", str(file)).replace("DIR", str(out))


def _lies(out: Path) -> dict[str, bytes]:
    """All files of the folder, and what is in them."""
    return {str(path): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.few(3)
@pytest.mark.parametrize("question", ELSEWHERE)
def test_nothing_else_can_be_read(question: str, query: Callable[[str], views.QueryResult]) -> None:
    """Other files, those beside the tables, addresses, variables of this program."""
    hidden = [("a", 1)]
    with pytest.raises(BadSql):
        query(question)

    assert hidden


@pytest.mark.parametrize("question", NO_QUESTIONS)
def test_nothing_can_be_written_or_set(
    question: str, out: Path, query: Callable[[str], views.QueryResult]
) -> None:
    """Only one statement, and only one that reads; not a byte of the export changes."""
    before = _lies(out)
    with pytest.raises(BadSql) as error:
        query(question)

    assert error.value.hint
    assert before == _lies(out)


@pytest.mark.parametrize(
    "question",
    [
        "SELECT count(*) FROM sessions",
        "FROM sessions LIMIT 1",
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "DESCRIBE events",
        "SHOW TABLES",
        "SUMMARIZE usage",
        "PIVOT events ON kind USING count(*) GROUP BY agent",
        "EXPLAIN SELECT 1",
        "explain analyze select count(*) from events",
        "-- a note\nSELECT 1 /* and one */",
    ],
)
def test_whatever_reads_is_answered(
    question: str, query: Callable[[str], views.QueryResult]
) -> None:
    """All ways to ask that DuckDB has."""
    assert query(question).rows


@pytest.mark.slow
def test_tables_have_the_columns_that_are_told(out: Path) -> None:
    """Names and types as the schema says, the day first; a table without rows as well."""
    for name, table in TABLES.items():
        columns = ask(out, f"DESCRIBE {name}").rows

        assert [("day", "DATE"), *((c.name, c.type) for c in table.columns)] == [
            (row[0], row[1]) for row in columns
        ]
    assert () == manifest(out).tables["signals"].files
    assert [] == ask(out, "SELECT * FROM signals").rows


def test_an_answer_is_cut_where_it_was_asked_to_be(out: Path) -> None:
    """And says so; an answer of just so many rows is whole."""
    assert (2, True) == _sizes(ask(out, "SELECT * FROM range(3)", limit=2))
    assert (3, False) == _sizes(ask(out, "SELECT * FROM range(3)", limit=3))
    assert (3, False) == _sizes(ask(out, "SELECT * FROM range(3)"))


def _sizes(answer: views.QueryResult) -> tuple[int, bool]:
    return len(answer.rows), answer.cut


def test_a_wrong_question_is_answered_with_the_columns(out: Path) -> None:
    """The hint names what there is, of the table it is about or of all."""
    with pytest.raises(BadSql, match="nope") as column:
        ask(out, "SELECT nope FROM usage WHERE usage.nope = 1")
    with pytest.raises(BadSql) as table:
        ask(out, "SELECT 1 FROM nope")
    with pytest.raises(BadSql) as nothing:
        ask(out, "  -- nothing")

    assert "cost_usd" in (column.value.hint or "")
    assert ", ".join(TABLES) in (table.value.hint or "")
    assert "no query" in nothing.value.message
    assert 2 == column.value.exit_code


def test_no_export_says_how_to_make_one(tmp_path: Path) -> None:
    """Neither an empty folder nor none is taken for one."""
    with pytest.raises(BadConfig, match="no export") as caught:
        ask(tmp_path, "SELECT 1")

    assert "thence export parquet" in (caught.value.hint or "")


@pytest.mark.slow
def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    """An export that somebody took a file from says so, and how to mend it."""
    logs.write(tmp_path / "home", logs.script(1))
    sweep(tmp_path / "store", {"claude": [tmp_path / "home"]})
    exported(tmp_path / "store", tmp_path / "out")
    (tmp_path / "out" / manifest(tmp_path / "out").tables["usage"].files[0].path).unlink()
    with pytest.raises(NotReadable, match="cannot be read"):
        ask(tmp_path / "out", "SELECT * FROM usage")


@pytest.mark.slow
def test_a_question_during_an_export_is_answered_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the manifest that was read are gone: the new one is taken."""
    logs.write(tmp_path / "home", logs.script(1))
    sweep(tmp_path / "store", {"claude": [tmp_path / "home"]})
    out = tmp_path / "out"
    exported(tmp_path / "store", out)
    old = manifest(out)
    logs.write(tmp_path / "home", logs.script(1, 6))
    sweep(tmp_path / "store", {"claude": [tmp_path / "home"]})
    exported(tmp_path / "store", out)
    looks = [old]
    monkeypatch.setattr(
        views, "read_manifest", lambda body: looks.pop() if looks else read_manifest(body)
    )

    assert [(6,)] == ask(out, "SELECT turns FROM sessions").rows
    assert [] == looks


def test_nothing_is_left_where_one_stands(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No database, no folder for what does not fit into memory."""
    monkeypatch.chdir(tmp_path)
    ask(out, "SELECT * FROM events ORDER BY summary")

    assert [] == list(tmp_path.iterdir())


def test_without_duckdb_it_says_what_to_install(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named; nothing else of thence needs it."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(BadConfig, match="duckdb") as caught:
        ask(out, "SELECT 1")

    assert "thence[analytics]" in (caught.value.hint or "")


@pytest.mark.prove
def test_polars_opens_the_same_files(out: Path) -> None:
    """By the list of the manifest, and by the folder: the same rows, days, money and times."""
    polars = pytest.importorskip("polars")
    for name, table in TABLES.items():
        paths = [out / file.path for file in manifest(out).tables[name].files]
        if not paths:
            continue
        listed = polars.read_parquet(paths, hive_partitioning=True)
        globbed = polars.read_parquet(out / name / "**/*.parquet", hive_partitioning=True)
        ours = ask(out, f"SELECT count(*), count(DISTINCT day) FROM {name}").rows

        assert {"day", *(column.name for column in table.columns)} == set(listed.columns)
        assert ours == [(listed.height, listed["day"].n_unique())]
        assert listed.height == globbed.height
    usage = polars.read_parquet([out / file.path for file in manifest(out).tables["usage"].files])

    assert ask(out, "SELECT sum(cost_usd) FROM usage").rows == [(usage["cost_usd"].sum(),)]
    assert FolderTarget(out).names() == manifest(out).names()


@pytest.mark.prove
def test_spark_opens_the_same_files(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is a folder to it: the same rows, days and money. It needs a Java."""
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark runs on Java, and there is none")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    made = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = made.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        for name, table in TABLES.items():
            if not manifest(out).tables[name].files:
                continue
            read = spark.read.parquet(str(out / name))
            read.createOrReplaceTempView(name)
            rows = spark.sql(f"SELECT count(*), count(DISTINCT day) FROM {name}").collect()
            ours = ask(out, f"SELECT count(*), count(DISTINCT day) FROM {name}").rows

            assert {"day", *(column.name for column in table.columns)} == set(read.columns)
            assert ours == [tuple(row) for row in rows]
        spent = spark.sql("SELECT sum(cost_usd) FROM usage").collect()
    finally:
        spark.stop()

    assert ask(out, "SELECT sum(cost_usd) FROM usage").rows == [tuple(row) for row in spent]
