"""Test runs are told from near misses and counted, proven on the tables and on made-up commands.

The rows of every table carry the texts they are tried on; what needs more than a row stands here.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given

from tests.format import foreign
from tests.pace import one_quick
from thence.format import testruns
from thence.format.output import Row

RUNS = """
pytest
cd src && pytest -q tests/test_a.py::test_b -x
python3.11 -X dev -m pytest
.venv/bin/python -m unittest discover -s tests
uv run --with pytest --python 3.12 pytest -q
poetry run pytest --cov
coverage run -m pytest && coverage report
time pytest -q
timeout -k 5 60s npm test
sudo -u bob env CI=1 pytest
pytest -q 2>&1 | tail -20
if pytest -q; then echo ok; fi
for f in a b; do pytest $f; done
(cd web && npm test)
x=$(pytest -q)
bash -lc 'cd a && pytest -q'
bash -eo pipefail -c "pytest | tail"
! pytest -q
npm t -- --watch=false
npm --prefix web run test:unit
pnpm -r test
yarn jest src
npx --yes vitest run
npx playwright test e2e/login.spec.ts
node_modules/.bin/mocha
GOFLAGS=-mod=mod go test -run TestA ./pkg
go -C sub test ./...
mvn -q -pl core test
./gradlew clean :app:testDebugUnitTest --info
bin/rails test:system
mix test test/a_test.exs:12
make -C lib -j4 check
mise run test:integration -- -run A
docker compose exec -T web pytest
docker run --rm -v "$PWD:/w" -w /w python:3.12 pytest -q
find . -name 'test_*.py' | xargs pytest
./scripts/run-tests.sh
git bisect run pytest -x
""".strip().splitlines()

NEAR_MISSES = r"""
grep -rn pytest .
gh run view --log | rg "go test"
echo "pytest"
echo run npm test now
pip install pytest
python -m pip install pytest
uv add --dev pytest
npm install --save-dev jest
npm run lint:test
npm run test-data:generate
pnpm add -D @playwright/test
npx tsc --noEmit
cat test.py
sed -n '1,40p' tests/test_a.py
git commit -m "run pytest"
git commit -am 'make test pass && go test ./...'
git add tests && git commit -m "fix: npm test"
git log --grep=pytest
which pytest
command -v pytest
apt-get install -y phpunit
curl https://example.org/pytest
test -f pytest.ini
test -d tests && echo yes
if [ -f Makefile ]; then cat Makefile; fi
pytest --version
pytest --collect-only -q
cargo test --no-run
cargo build --tests
go build ./... && go vet ./...
make latest
python test_data.py
python -c "import pytest; print(pytest.__version__)"
python -c 'print("run /usr/bin/pytest now")'
# pytest -q
true # then pytest
kill $(pgrep -f vitest)
tail -f pytest.log
mv tests/a.py tests/b.py
export TEST_CMD=pytest
""".strip().splitlines()

HEREDOCS = (
    "cat > notes.md <<'EOF'\npytest -q\nnpm test\nEOF",
    "apply_patch << 'PATCH'\n*** Begin Patch\n*** Add File: a.sh\n+pytest\n*** End Patch\nPATCH",
    "git commit -m \"$(cat <<'EOF'\nfix\n\npytest && go test\nEOF\n)\"",
    "cat <<EOF\npytest\nno closing word",
)


# -- the tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", testruns.RUNNERS, ids=lambda row: row.name or row.yes)
def test_every_runner_finds_its_example_and_not_its_near_miss(row: Row) -> None:
    """A row of the runners is found by its own example and leaves its near miss alone."""
    runner = testruns.test_runner(row.yes)

    assert (row.name or runner, None) == (runner, testruns.test_runner(row.no))
    assert runner


@pytest.mark.parametrize("form", testruns.FORMATS, ids=lambda form: form.name)
def test_every_closing_line_is_counted(form: testruns.Format) -> None:
    """A runner's closing lines give its counts, also through a task that does not name it."""
    expected = testruns.Tests(form.name, *form.counts)

    assert expected == testruns.tests("just test", f"noise 3 passed\n{form.yes}\n{form.no}")
    assert testruns.Tests("tox", *form.counts) == testruns.tests("tox", form.yes)
    assert testruns.Tests("tox") == testruns.tests("tox", form.no)


@pytest.mark.parametrize("row", testruns.COUNTED, ids=lambda row: row.name)
def test_every_counted_line_is_found_by_its_own_row_first(row: Row) -> None:
    """No row is shadowed by one above it, and none takes its near miss."""
    assert row == next(r for r in testruns.COUNTED if re.match(r.pattern, row.yes))
    assert not re.match(row.pattern, row.no)


# -- test runs -----------------------------------------------------------------------------------


def test_runs_are_told_from_near_misses_without_error() -> None:
    """Over the labelled commands precision and recall are both one."""
    runs = {line for line in [*RUNS, *NEAR_MISSES, *HEREDOCS] if testruns.test_runner(line)}

    assert (set(), set()) == (set(RUNS) - runs, runs - set(RUNS))
    assert min(len(RUNS), len(NEAR_MISSES)) > 30


def test_a_run_after_a_heredoc_is_found() -> None:
    """What follows the body of a here-document is a command again."""
    assert "pytest" == testruns.test_runner("cat > a.py <<'EOF'\nx = 1\nEOF\npytest -q")
    assert "pytest" == testruns.test_runner("cat > a.py <<-EOF\n\tx\n\tEOF\npytest -q")


@pytest.mark.parametrize(
    ("command", "output", "expected"),
    [
        ("pytest -q", "\x1b[32m4 passed\x1b[0m in 0.1s", ("pytest", 4, 0, None)),
        ("pytest -q", "....\n4 passed, 2 warnings in 0.12s", ("pytest", 4, 0, None)),
        ("pytest", "no tests ran in 0.01s", ("pytest", None, None, None)),
        ("pytest a && pytest b", "1 passed in 1s\n2 failed in 1s", ("pytest", 1, 2, None)),
        ("pytest", '{"output":"== 3 passed in 1s ==\\n","metadata":{"exit_code":0}}',
         ("pytest", 3, 0, None)),
        ("pytest", "Exit code 1\n== 1 failed in 1s ==", ("pytest", None, 1, None)),
        ("go test -v .", "--- PASS: A (0.0s)\n    --- PASS: A/x\n--- FAIL: B (0.0s)\nFAIL",
         ("go test", 1, 1, None)),
        ("go test ./...", "ok  \ta/b\t0.2s\n? \ta/c\t[no test files]", ("go test", None, 0, None)),
        ("go test ./...", "FAIL\ta/b [build failed]\nok  \ta/c\t0.1s", ("go test", None, 1, None)),
        ("go test ./...", "3 passed in 1s", ("go test", None, None, None)),
        ("mise run test", "[test] $ go test\nok  \ta/b\t(cached)", ("go test", None, 0, None)),
        ("npm test", "Tests: 2 passed, 2 total", ("jest", 2, 0, None)),
        ("bun run test", "  Tests  2 passed (2)", ("vitest", 2, 0, None)),
        ("bats t", "1..3\nok 1 a\nnot ok 2 b\nok 3 c # skip", ("bats", 1, 1, 1)),
        ("cargo test", "test result: ok. 2 passed; 0 failed\ntest result: ok. 3 passed; 1 ignored",
         ("cargo test", 5, 0, 1)),
        ("make test", "gcc -o a a.c", ("make test", None, None, None)),
    ],
)  # fmt: skip
def test_counts_are_read_from_the_closing_lines(
    command: str, output: str, expected: tuple[str, int | None, int | None, int | None]
) -> None:
    """Counts come from the lines that close a run; what is not told is None."""
    assert testruns.Tests(*expected) == testruns.tests(command, output)


def test_no_test_run_has_no_counts() -> None:
    """A closing line in the output of another command is no test run."""
    assert None is testruns.tests("cat log.txt", "== 3 passed in 1s ==")


def test_counts_of_a_cut_output_are_not_invented() -> None:
    """Where lines are counted and the middle was not read, the number passed is not known."""
    output = "--- PASS: TestA (0.0s)\n" * 5000 + "PASS"

    assert testruns.Tests("go test") == testruns.tests("go test -v .", output)
    assert testruns.Tests("pytest", 9, 0) == testruns.tests(
        "pytest -v", output + "\n9 passed in 1s"
    )


# -- foreign and hostile data --------------------------------------------------------------------


@given(foreign.json_values | foreign.scripts, foreign.json_values | foreign.scripts)
def test_nothing_raises_on_any_json(command: Any, result: Any) -> None:
    """Commands and outputs of every shape are answered, as values and as JSON text."""
    for value in (command, json.dumps(command)):
        runner = testruns.test_runner(value)

        assert (runner is None) == (testruns.tests(value, result) is None)
    assert testruns.tests("pytest", result)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("unit", one_quick(foreign.UNITS))
def test_hostile_text_costs_little(unit: str) -> None:
    """A text made to provoke backtracking is answered in linear, bounded time."""
    text = unit * ((1 << 18) // len(unit))
    started = time.process_time()
    for start in ("", "gradle ", "mvn ", "Exit code 1\n", "<tool_use_error>", '{"output":"'):
        testruns.test_runner(start + text)
        testruns.tests("pytest", start + text)
        testruns.tests("npm test", start + text)

    assert time.process_time() - started < 10


def test_letters_that_only_fold_to_ours_do_not_raise() -> None:
    """A long s matches a pattern that ignores case; it counts as the letter it folds to."""
    counts = testruns.tests("npm test", "Tests: 1 pa\u017f\u017fed, 1 total")

    assert counts is not None
    assert 1 == counts.passed
