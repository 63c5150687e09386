"""Docs are executed: what README shows is what happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from scripts import cli_reference
from tests.processes import run_thence
from thence.cli import COMMANDS, MODULES, thence

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
COMMAND = re.compile(r"<!-- executed: thence (.*?) -->\n```text\n(.*?)```", re.DOTALL)
PROGRAM = re.compile(r"<!-- executed -->\n```python\n(.*?)```", re.DOTALL)
SAMPLES = re.compile(r"<!-- on samples -->\n```sh\n(.*?)```", re.DOTALL)
COMMANDS_SHOWN = [(p.name, *match) for p in PAGES for match in COMMAND.findall(p.read_text())]
TRIED = [
    (p.name, line)
    for p in PAGES
    for block in SAMPLES.findall(p.read_text())
    for line in block.splitlines()
]
PROGRAMS_SHOWN = [(p.name, program) for p in PAGES for program in PROGRAM.findall(p.read_text())]


def run(*arguments: str, program: str | None = None) -> str:
    """Run a command, or a program, as from the root of the clone; return what it printed."""
    done = run_thence(*arguments, program=program, cwd=ROOT)

    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize(("page", "arguments", "shown"), COMMANDS_SHOWN)
def test_commands_print_what_the_page_shows(page: str, arguments: str, shown: str) -> None:
    """A reader who types it sees the same."""
    output = run(*arguments.split())

    assert shown == output


@pytest.mark.parametrize(
    ("page", "program"),
    [
        pytest.param(*shown, marks=[] if shown[0] == "README.md" else pytest.mark.slow)
        for shown in PROGRAMS_SHOWN
    ],
)
def test_programs_in_the_pages_run(page: str, program: str) -> None:
    """A reader who pastes it gets output and no error."""
    assert run(program=program)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program of a made-up machine, as `thence demo` leaves it."""
    folder = tmp_path_factory.mktemp("samples") / "demo"
    made = run("demo", "--dir", str(folder), "--json")

    assert made
    return folder / "thence"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["start.md", "recipes.md", "privacy.md", "formats.md", "sync.md"])
def test_commands_for_samples_work(samples: Path, page: str) -> None:
    """Who types them after `thence demo` gets an answer and no error.

    The first is run by the program that the demo left, the others with the variables it sets.
    """
    lines = [line for name, line in TRIED if name == page]
    variables = shlex.split(samples.read_text().splitlines()[-1])
    variables = variables[: variables.index("exec")]
    env = os.environ | dict(variable.split("=", 1) for variable in variables)

    assert len(lines) > 3
    assert variables
    for number, line in enumerate(lines):
        program, *words = shlex.split(line, comments=True)
        if number == 0:
            done = subprocess.run([samples, *words], capture_output=True, text=True, check=False)
        else:
            done = run_thence(*words, env=env)

        assert ("thence", 0) == (program, done.returncode), (line, done.stderr)
        assert done.stdout, line


def test_readme_shows_a_command_and_a_program() -> None:
    """The two tests above have something to run."""
    assert "README.md" in {page for page, *_ in COMMANDS_SHOWN}
    assert "README.md" in {page for page, *_ in PROGRAMS_SHOWN}


def test_first_screen_says_what_it_is_and_the_two_commands() -> None:
    """One sentence, `make run`, `make test`, in the first ten lines."""
    top = "\n".join((ROOT / "README.md").read_text().split("\n")[:10])

    assert "your coding agents" in top
    assert "make run" in top
    assert "make test" in top


def test_readme_says_how_to_install_and_remove_it() -> None:
    """Each installer has its command on the first screen, with what is not true yet."""
    readme = (ROOT / "README.md").read_text()
    top = "\n".join(readme.split("\n")[:24])

    for words in (
        "uvx thence",
        "pipx install thence",
        "pip install thence",
        "pipx install .",
        "once 0.2.0 is published",
        "untested",
    ):
        assert words in top, words
    assert readme.index("`thence setup --remove`") < readme.index("`pipx uninstall thence`")


def test_every_extra_for_users_is_in_the_getting_started_page() -> None:
    """Those for our own tools, and old names of what is in the base install, are not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {"dev", "bench", "prove", "conformance", "serve", "mcp"}
    section = (ROOT / "docs" / "start.md").read_text().partition("| extra |")[2]
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n\n")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}

    assert set(project["optional-dependencies"]) - ours == named


def drawn() -> dict[str, list[str]]:
    """Names of modules in DESIGN.md's drawing of the layers, by layer; may hold patterns."""
    design = (ROOT / "DESIGN.md").read_text()
    match = re.search(r"```\n(testing .*?)```", design, re.DOTALL)
    assert match
    out: dict[str, list[str]] = {}
    for line in match[1].splitlines():
        names = line.strip().partition("  ")[0].split()
        if line.startswith(" "):
            out[list(out)[-1]] += names
        else:
            out[names[0]] = []
    return out


def modules_in(folder: Path) -> set[str]:
    """Names of the modules and packages in a folder; none in what is a file."""
    stems = {
        path.stem
        for path in folder.glob("*")
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    return stems - {"__init__", "__main__"}


def test_the_drawing_of_the_layers_names_every_module_and_no_other() -> None:
    """A reader who looks for a module finds it in DESIGN.md, and finds it there in the tree.

    Commands are not drawn one by one: each is a module of its name.
    """
    package = ROOT / "src" / "thence"
    there = {layer: modules_in(package / layer) for layer in modules_in(package)}
    there["cli"] -= {MODULES.get(name, name) for name in COMMANDS}

    assert set(there) == set(drawn())
    for layer, names in drawn().items():
        strays = [name for name in there[layer] if not any(fnmatch(name, n) for n in names)]
        gone = [n for n in names if not any(fnmatch(name, n) for name in there[layer])]

        assert ([], []) == (strays, gone), layer
        assert len(names) == len(set(names)), layer


def test_map_for_agents_fits_one_page() -> None:
    """AGENTS.md stays short enough to be read every time."""
    assert len((ROOT / "AGENTS.md").read_text().split("\n")) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    """`thence NAME --help` tells what it does."""
    result = CliRunner().invoke(thence, [name, "--help"])

    assert 0 == result.exit_code
    assert COMMANDS[name] in " ".join(result.output.split())


def test_pages_name_no_machine() -> None:
    """No path of a developer's machine is in the tree's pages."""
    assert [] == [page.name for page in PAGES if str(ROOT) in page.read_text()]


def test_the_page_of_the_command_line_is_what_the_commands_say() -> None:
    """`make docs` would change nothing; every command and option is in it."""
    page = (ROOT / "docs" / "cli.md").read_text()

    assert cli_reference.render() == page


# -- what the pages name is there ---------------------------------------------------------------

CURRENT_PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""Pages that speak of what is; the other one also of what was."""

FILES = re.compile(r"`((?:src|tests|docs|examples|scripts|bench|prove|truth)/[\w./-]+\w)`")
LINKS = re.compile(r"\]\((?!https?:)([^)#]+)")
TARGETS = re.compile(r"`make ([a-z][a-z0-9-]*)")
TYPED = re.compile(r"(?<![\w/.])thence ([a-z]+)((?: +[^`\n;|#]*)?)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
ANYWHERE = {"--help", "-h", "--json", "--color", "--no-pager", "--utc"}


@pytest.mark.parametrize("page", CURRENT_PAGES, ids=lambda page: page.name)
def test_files_and_targets_that_a_page_names_are_there(page: Path) -> None:
    """Who goes there finds it: files, other pages, `make` targets."""
    text = page.read_text()
    made = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert [] == [name for name in FILES.findall(text) if not (ROOT / name).exists()]
    assert [] == [name for name in LINKS.findall(text) if not (page.parent / name).exists()]
    assert [] == [name for name in TARGETS.findall(text) if name not in made]


def options(command: click.Command) -> set[str]:
    """All options of a command, and of those below it."""
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(options, below))


@pytest.mark.parametrize("page", CURRENT_PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_a_page_names_are_there(page: Path) -> None:
    """Who types what a page says is not told that there is no such option."""
    unknown = []
    for name, rest in TYPED.findall(page.read_text()):
        if (command := thence.get_command(click.Context(thence), name)) is None:
            continue  # a sentence that goes on after the name
        known = options(command) | ANYWHERE
        before = rest.partition(" -- ")[0]
        unknown += [(name, option) for option in OPTION.findall(before) if option not in known]

    assert [] == unknown


def test_the_page_of_the_api_names_every_route_and_no_other() -> None:
    """What can be asked is told, and what is told can be asked."""
    from thence.serve import api, hosted, live

    page = (ROOT / "docs" / "http-api.md").read_text()
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    there = {
        re.sub(r"\{(\w+):\w+\}", r"{\1}", path)
        for module in (api, hosted, live)
        for route in module.ROUTES
        for path in route.paths
    }

    assert there == set(re.findall(r"/api/[a-z][\w{}/-]*", prose)) - {"/api/openapi"}
