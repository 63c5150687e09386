"""Which test runner a command starts, and what its output says of the run.

Everything known of test runners stands here in tables; a row holds a text it must match and one it
must not, and the tests run over the rows themselves. The functions only read the tables, so a new
runner is one more row.

Invariants: pure; nothing raises, whatever the shape of the arguments; time is linear, as far as
shell reads a script and output reads a result. What is not evident is left out: a command that
merely names a runner is no test run, a count the output does not tell is None.

Never here: whether a call failed (see errors), the event made of a run (see derived_events).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from thence.format import output, shell
from thence.format.expressions import expression
from thence.format.output import Row, Table

Counts = tuple[int | None, int | None, int | None]
"""How many tests passed, failed and were skipped."""


class Tests(msgspec.Struct, frozen=True):
    """One test run; a count is None where the output does not tell, errors count as failed."""

    runner: str
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None


# The tables keep a row to a line or two; the formatter would give every cell its own.
# fmt: off
_VALUES = {
    "npm": "--prefix -w --workspace -C", "pnpm": "--filter -F -C --dir", "yarn": "--cwd",
    "bun": "--filter -F --cwd", "make": "-C -f -I -o -W", "go": "-C", "mvn": "-f -pl -P",
    "gradle": "-p -b", "cargo": "--manifest-path -p --package --features", "just": "-f -d",
    "turbo": "--filter -F", "ninja": "-C -f -j", "swift": "--package-path", "mise": "-C",
    "nx": "-c -p",
    "xcodebuild": "-scheme -project -workspace -destination -configuration -sdk",
}
"""Options with a value that may stand between a program and the word that says what it does."""

_NOT_A_RUN = {"--version", "--help", "-h", "--collect-only", "--co", "--listTests", "--list-tests",
              "--no-run", "--fixtures", "--markers", "--list", "--init", "--dry-run"}
_END = r"(?= |$)"
_JS = r"(?:(?:npm|pnpm|yarn|bun)(?: run| exec| x| dlx)? )?"
_TASK = (r"(?:(?:ci|unit|e2e|integration)[:_-])?(?:tests?|e2e|unit)(?::[\w:.-]+|[-_](?:unit|int\w*|"
         r"e2e|ci|all|cov\w*|once|only|fast|slow|py\w*|js|go|race))?(?= |$)")

_NO_TASK = (r"(?!(?:\S*[-_.])?(?:setup|install|gen\w*|make|create|build|deps|env|data|fixtures?|"
            r"clean\w*|deploy|start|stop|serve\w*|utils?|helpers?|lint|format|download|prepare|seed|"
            r"reset|update|list|report|results?|md|txt|json|ya?ml|html|png|log|csv)(?:[-_.]|$| ))")
"""Words in the name of a script that only gets tests ready, or of a file that is none."""

RUNNERS = Table(Row(*row) for row in (
    ("pytest", r"py\.?test(?:-\d[\d.]*)?" + _END, "pytest -q tests", "cat pytest.ini"),
    ("unittest", "unittest" + _END, "python3 -m unittest discover", "python -c 'import unittest'"),
    ("django", r"(?:manage\.py|django-admin) test" + _END, "python manage.py test app",
     "python manage.py testserver"),
    ("", "(?:tox|nox|nose2|stestr|trial|behave|prove|ava|gotestsum|ginkgo|busted|shellspec)" + _END,
     "tox -e py311", "cat tox.ini"),
    ("jest", _JS + r"jest(?:\.js)?" + _END, "npx jest --ci", "npm install jest"),
    ("vitest", _JS + "vitest" + _END, "pnpm vitest run", "yarn add vitest"),
    ("mocha", _JS + "mocha" + _END, "npx mocha test/", "npm ls mocha"),
    ("playwright", _JS + "playwright test" + _END, "npx playwright test", "npx playwright install"),
    ("cypress", _JS + "cypress run" + _END, "npx cypress run", "npx cypress open"),
    ("node test", "(?:node|tsx) --test" + _END, "node --test test/", "node test.js"),
    ("npm test", "npm (?:run(?:-script)? )?(?:t|tst|" + _TASK + ")" + _END, "npm run test:unit",
     "npm run build"),
    ("pnpm test", "pnpm (?:run )?" + _TASK, "pnpm --filter web test", "pnpm add test-utils"),
    ("yarn test", r"yarn (?:workspace \S+ )?(?:run )?" + _TASK, "yarn workspace a test", "yarn up"),
    ("bun test", "bun (?:run )?" + _TASK, "bun test src/", "bun run lint"),
    ("deno test", "deno test" + _END, "deno test -A", "deno run test.ts"),
    ("go test", "go test" + _END, "go test ./...", "go build ./test"),
    ("nextest", r"cargo (?:\+\S+ )?nextest run" + _END, "cargo nextest run", "cargo nextest list"),
    ("cargo test", r"cargo (?:\+\S+ )?(?:t|test)" + _END, "cargo +nightly test", "cargo check"),
    ("maven", r"mvnw?(?: \S+){0,9}? (?:\S+:)?(?:test|verify|integration-test)" + _END,
     "./mvnw -q clean verify", "mvn package -DskipTests"),
    ("gradle", r"gradlew?(?: \S+){0,9}? (?:\S*:)?(?:test|check|\w+Test)" + _END,
     "./gradlew :app:test", "gradle assemble"),
    ("ctest", "ctest" + _END, "ctest --output-on-failure", "cmake --build ."),
    ("rspec", "rspec" + _END, "bundle exec rspec spec/a_spec.rb", "gem install rspec"),
    ("rails", r"rails test(?::\w+)?" + _END, "bin/rails test", "rails db:test:prepare"),
    ("rake", r"rake(?: \S+){0,9}? (?:test|spec)(?::\w+)?" + _END, "rake spec", "rake db:migrate"),
    ("phpunit", "(?:phpunit|pest|paratest|artisan test)" + _END, "vendor/bin/phpunit", "php -v"),
    ("dotnet", "dotnet test" + _END, "dotnet test -c Release", "dotnet build"),
    ("swift test", "swift test" + _END, "swift test", "swift build"),
    ("xcodebuild", r"xcodebuild(?: \S+){0,9}? test" + _END, "xcodebuild -scheme A test",
     "xcodebuild -list"),
    ("mix test", r"mix test(?:\.\w+)?" + _END, "MIX_ENV=test mix test", "mix deps.get"),
    ("bats", "bats" + _END, "bats test/", "brew install bats-core"),
    ("make test", r"make(?: \S+){0,9}? (?:check|" + _TASK + ")" + _END, "make -j 8 test",
     "make all"),
    ("dune", "dune (?:runtest|test)" + _END, "dune runtest", "dune build"),
    ("mise test", "mise (?:run |r )?" + _TASK, "mise run test:integration", "mise run lint"),
    ("", (r"(?:bazel|meson|zig(?: build)?|sbt|lein|stack|cabal|ninja|flutter|dart|forge|ng|"
          r"hatch|inv|composer|elm-test|invoke|just|task|nx|turbo|rush|lerna) (?:run )?(?:\S+:)?"
          + _TASK),
     "just test", "just fmt"),
    ("script", (r"(?:run[-_]?(?:all[-_]?)?tests?(?:\.py)?|(?:run[-_]?)?(?:all[-_]?)?tests?\.(?:sh|"
                r"bash|ps1)|\./" + _NO_TASK + r"(?:[a-z0-9]{1,20}[-_.]){0,3}(?:tests?|e2e|specs?)"
                r"(?:[-_.][a-z0-9]{1,20}){0,3})" + _END),
     "bash scripts/test-api.sh --fast", "test -f setup.py"),
    ("script", r"\./tests?/(?:run|all|main|runner|check)(?:[-_][a-z]+)?(?:\.\w+)?" + _END,
     "./tests/run.sh", "./tests/data.sh"),
))
"""Known test runners, matched at the start of a simple command freed of wrappers and options;
a row without a name is named by what it matched."""


class Format(NamedTuple):
    """How one runner closes its output: which lines count, added up or the last one alone."""

    name: str
    pattern: str
    add_up: bool
    yes: str
    counts: Counts
    no: str


FORMATS = tuple(Format(*row) for row in (
    ("pytest", (r"(?:=+ )?(?:no tests ran|\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|"
                r"deselected|warnings?)\b[^\n]*) in [\d.]+s"), True,
     "== 1 failed, 19 passed, 2 skipped, 1 error in 3.2s ==", (19, 2, 2), "3 passed the exam"),
    ("unittest", r"Ran \d+ tests? in |(?:OK|FAILED) \([a-z ]+=", True,
     "Ran 5 tests in 0.01s\n\nFAILED (failures=1, errors=1, skipped=1)", (2, 2, 1), "OK then"),
    ("jest", r"Tests:\s+\d+ \w+,? ?.*\d+ total", True,
     "Tests:       1 failed, 2 skipped, 3 passed, 6 total", (3, 1, 2), "Tests: none"),
    ("vitest", r"Tests\s+\d+ (?:failed|passed|skipped|todo)\b.*\(\d+\)", True,
     "      Tests  1 failed | 3 passed | 1 skipped (5)", (3, 1, 1), "Tests are run"),
    ("mocha", r"\d+ (?:passing|failing|pending)\b", True,
     "  3 passing (20ms)\n  1 pending\n  2 failing", (3, 2, 1), "passing by"),
    ("bun test", r"\d+ (?:pass|fail|skip|todo)$", True,
     " 1329 pass\n 0 fail\n 2901 expect() calls", (1329, 0, None), "1 pass over"),
    ("playwright", r"\d+ (?:passed|failed|skipped|flaky)(?: \([\d.]+m?s?\))?$", True,
     "  1 failed\n  2 skipped\n  9 passed (10.1s)", (9, 1, 2), "9 passed by"),
    ("node test", r"(?:#|\u2139) (?:tests|pass|fail|skipped|todo) \d+$", True,
     "# tests 5\n# pass 3\n# fail 1\n# skipped 1", (3, 1, 1), "# pass the salt"),
    ("deno test", r"(?:ok|FAILED) \| \d+ passed", True,
     "ok | 5 passed | 0 failed | 1 ignored (10ms)", (5, 0, 1), "ok | fine"),
    ("nextest", r"Summary \[.*\d+ tests? run:", True,
     "     Summary [   0.02s] 10 tests run: 9 passed, 1 failed, 2 skipped", (9, 1, 2), "Summary"),
    ("cargo test", r"test result: ", True,
     "test result: FAILED. 5 passed; 1 failed; 2 ignored; 0 measured", (5, 1, 2), "test resulted"),
    ("maven", r"(?:\[\w+\] )?Tests run: \d+(?!.*Time elapsed)", True,
     "[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1", (2, 2, 1),
     "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s - in A"),
    ("gradle", r"\d+ tests? completed\b", True,
     "5 tests completed, 1 failed, 1 skipped", (3, 1, 1), "5 tests planned"),
    ("ctest", r"\d+% tests passed, ", True,
     "90% tests passed, 1 tests failed out of 10", (9, 1, None), "90% done"),
    ("rspec", r"\d+ examples?, \d+ failures?", True,
     "10 examples, 2 failures, 1 pending", (7, 2, 1), "10 examples"),
    ("rails", r"\d+ runs, \d+ assertions, ", True,
     "5 runs, 7 assertions, 1 failures, 1 errors, 1 skips", (2, 2, 1), "5 runs"),
    ("phpunit", r"OK \(\d+ tests?, |Tests: \d+, Assertions: ", True,
     "Tests: 5, Assertions: 7, Failures: 1, Skipped: 1.", (3, 1, 1), "OK (fine)"),
    ("dotnet", r"(?:Passed|Failed)!\s+- Failed:", True,
     "Failed!  - Failed:     1, Passed:     9, Skipped:     2, Total:    12", (9, 1, 2), "Failed!"),
    ("swift test", r"Executed \d+ tests?, with ", False,
     "Executed 2 tests, with 1 failure (0 unexpected)\nExecuted 5 tests, with 1 failure",
     (4, 1, None), "Executed"),
    ("mix test", r"(?:\d+ doctests?, )?(?:\d+ properties, )?\d+ tests?, \d+ failures?", True,
     "1 doctest, 10 tests, 2 failures, 1 skipped", (8, 2, 1), "10 tests"),
))

_CLOSES = expression("|".join(f"(?:{form.pattern})" for form in FORMATS))
"""What a closing line of any runner matches: most lines of an output are none, and many forms
would look at each."""

COUNTED = Table(Row(*row) for row in (
    ("passed", r"--- PASS: |ok \d+(?!.*# (?i:skip))", "--- PASS: TestA (0.00s)", "=== RUN TestA"),
    ("failed", r"--- FAIL: |not ok \d+(?!.*# (?i:todo|skip))", "not ok 2 - adds", "FAIL"),
    ("skipped", r"--- SKIP: |(?:not )?ok \d+.*# (?i:skip)", "ok 3 # skip no disk", "ok 3 - adds"),
    ("package ok", r"ok\s+\S+\s+(?:\(cached\)|[\d.]+s)", "ok  \texample.org/a\t0.3s", "ok 1 - a"),
    ("package bad", r"FAIL\s+\S+\s+(?:\[.*\]|[\d.]+s)", "FAIL\texample.org/a [build failed]",
     "FAIL"),
))
"""Runners without a closing line (go test, TAP): the lines themselves are counted."""

_BUCKETS = {
    "passed": "passed pass passing",
    "failed": "failed fail failing failures failure errors error",
    "skipped": "skipped skip skips pending ignored todo",
    "total": "tests test examples example runs run total doctests doctest properties",
}
# fmt: on

_MAY_TEST = expression(
    r"test|tst|e2e|unit|spec|check|verify|tox|nox|nose2|trial|behave|prove|ava|ginkgo|busted|jest"
    r"|mocha|cypress|pest|bats|\bt\b"
)
"""What every script that starts a known runner holds; most scripts hold none of it."""

_WORDS = "|".join(" ".join(_BUCKETS.values()).split())
_COUNT = expression(
    rf"\b(\d{{1,9}}) +(?:tests? (?=passed|failed))?({_WORDS})\b"
    rf"|(?<!expected )\b({_WORDS})\s*[:=]?\s*(\d{{1,9}}+)(?!\d|\s*(?:{_WORDS})\b)"
    r"|out of (\d{1,9})",
    re.IGNORECASE,
)


def test_runner(command: str) -> str | None:
    """Return the name of the first test runner a script starts, or None if it starts none."""
    script = command if isinstance(command, str) else ""
    return _short_runner(script) if len(script) <= shell.SHORT else _runner(script)


@lru_cache(maxsize=4096)
def _short_runner(command: str) -> str | None:
    return _runner(command)


def _runner(command: str) -> str | None:
    if _MAY_TEST.search(command) is None:
        return None
    runners = map(_runner_of, shell.programs(command))
    return next((name for name in runners if name is not None), None)


def tests(command: str, result_text: str) -> Tests | None:
    """Return what a test run says of itself in its output, or None if it was no test run.

    A runner is named as the command names it; a task (`npm test`) as its output does.
    """
    runner = test_runner(command)
    return None if runner is None else count_tests(runner, result_text)


def count_tests(runner: str, result_text: str) -> Tests:
    """Return what the output of a test runner says of the run."""
    text = output.text(result_text)
    lines = output.lines(output.open_envelope(text)[1])
    own = [form for form in FORMATS if form.name == runner]
    # A task or a script may start any runner: what it prints at its end says which.
    task = runner == "bun test" or (" " in runner and not own) or runner == "script"
    forms = own if own and not task else FORMATS if runner != "go test" else ()
    if (closed := _closing_counts(forms, lines)) is not None:
        name, counts = closed
        return Tests(name if task else runner, *counts)
    if task and any(re.match(r"--- (?:PASS|FAIL): |(?:ok  |FAIL)\t", line) for line in lines):
        runner = "go test"
    is_complete = len(text) <= 2 * output.CLIP and len(lines) < 2 * output.LINES
    return Tests(runner, *_count_lines(lines, is_complete=is_complete))


def _closing_counts(forms: Sequence[Format], lines: list[str]) -> tuple[str, Counts] | None:
    """Return the runner whose closing lines an output has, and what they count."""
    closing = [
        (line, text_of_line) for line in lines if _CLOSES.match(text_of_line := line.lstrip())
    ]
    for form in forms if closing else ():
        match = re.compile(form.pattern).match
        matches = [line for line, text_of_line in closing if match(text_of_line)]
        if matches:
            return form.name, _counts(" ; ".join(matches if form.add_up else matches[-1:]))
    return None


def _runner_of(words: list[str]) -> str | None:
    """Name the runner these words start, wrappers apart."""
    name = shell.program_name(words[0])
    rest: list[str] = []
    skip, valued = False, _VALUES.get(name, "").split()
    for word in words[1:40]:
        if not skip and not word.isdigit() and (word[:1] != "-" or word == "--test"):
            rest.append(word)
        skip = not skip and word in valued
    if _NOT_A_RUN.intersection(words):
        return None
    for called in (name, *_script_names(words[0], name)):
        line = " ".join([called, *rest])
        row = output.first(RUNNERS, line)
        if row is not None:
            match = re.match(row.pattern, line)
            return row.name or (match[0] if match else None)
    return None


def _script_names(word: str, name: str) -> list[str]:
    """Return a script's names as seen from its folder, if it is one of the project's own.

    What lies in a folder for programs of the system, or was installed, is none of them.
    """
    folder = word.rpartition("/")[0]
    if not folder or _INSTALLED.search(f"{folder}/"):
        return []
    inner = folder.rpartition("/")[2]
    return [f"./{name}", *([f"./{inner}/{name}"] if inner in ("test", "tests") else [])]


_INSTALLED = expression(
    r"^(?:/usr|/bin|/opt|/sbin|~)/|node_modules/|(?:^|/)\.?venv/|vendor/|site-packages/"
)


def _counts(text: str) -> Counts:
    """Add up the numbers of a closing line by what stands beside them."""
    sums: dict[str, int] = {}
    for match in _COUNT.finditer(text):
        word = (match[2] or match[3] or "total").casefold()
        bucket = next(name for name, words in _BUCKETS.items() if word in words.split())
        sums[bucket] = sums.get(bucket, 0) + int(match[1] or match[4] or match[5])
    failed, skipped = sums.get("failed", 0), sums.get("skipped")
    passed = sums.get("passed")
    if passed is None and "total" in sums:
        passed = max(0, sums["total"] - failed - (skipped or 0))
    return passed, failed if sums else None, skipped


def _count_lines(lines: list[str], *, is_complete: bool) -> Counts:
    """Count the lines of runners that do not; what a cut text does not show is not known."""
    some = [line for line in lines if COUNTED.any.match(line)]
    n = {row.name: sum(bool(pattern.match(line)) for line in some) for row, pattern in COUNTED.each}
    failed = n["failed"] or n["package bad"]
    known = failed > 0 or (is_complete and any(n.values()))
    return (
        n["passed"] or None if is_complete else None,
        failed if known else None,
        n["skipped"] or None,
    )
