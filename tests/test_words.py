"""Texts for users are in plain English: phrases of the old dialect stay out of src and docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from thence.cli import COMMANDS, thence

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "thence"

OLD = (
    "Nothing waits for you",
    "Promised, not done",
    "on dead branches",
    "waits or runs",
    "of it dead",
    "Fewer words find more",
    "nothing looked for yet",
    "No session fits",
    "adopt of",
    "Came to rest",
    "Go on where it stopped",
    "answers of the model",
    "answers of models",
    "What it was given and gave back",
    "What the model was left with",
    "the session it goes on from; not paid for again",
    "Open alone",
    "Tools open",
    "thence doctor names them",
    "Bills that were never written",
    "their money is not counted",
    "Given up:",
    "as far as the sessions tell",
    "A pattern stands on events",
    "only here by now",
    "passed over in silence",
    "against their caps",
    "Evicted next",
    "Nothing goes",
    "compared with their kin",
    "in every page of the store",
    "The plan loses nothing",
    "Nothing that is about to be deleted is missing",
    "nobody is known to be asking",
    "lost, trying again",
    "where you stand",
    "what parted from it, what came of it",
    "Read the account of one session",
    "What comes back in many sessions",
    "Let agents say when",
    "Let agents ask their own past",
    "Keep the caps",
    "Move a session of our own back",
    "Leave out so many",
    "Leave out no part",
    "Tell times in UTC",
    "Listen here; elsewhere",
    "kept no longer than others",
    "not back:",
    "means several sessions",
    "tells more",
    "listens to this machine only",
    "lets one browser in",
    "no bill in the sessions",
    "written down in",
    "or made-up sessions)",
    "survives anything",
    "the bridges stand",
    "what to take when",
    "kept for good",
    "lets go of",
    "would let go",
    "nobody knows this setting",
    "no session fits",
    "nothing is kept yet",
    "ratios slower or faster",
    "is in no log",
    "not spoken here",
    "nobody is there to be asked",
    "says yes",
    "since the last time",
    "brought up to date first",
    "is all a program needs",
    "What can be asked",
    "Who may ask",
    "as it stands",
)
"""Phrases of the review's table, and some like them."""

ALLOWED: set[tuple[str, str]] = set()
"""Places that may hold a phrase: (page, phrase)."""

SPACES = re.compile(r"\s+")
JOINED = re.compile(r'"\s*\n\s*f?"')
"""Where one text goes over several lines of a module."""
PHRASES = re.compile("|".join(map(re.escape, map(str.lower, OLD))))


def docstrings(tree: ast.AST) -> set[int]:
    """Return the nodes of docstrings, which no user sees."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.body and isinstance(node.body[0], ast.Expr)
    }


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a module that may reach a user, each on one line."""
    tree = ast.parse(path.read_text())
    unseen = docstrings(tree) | {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            yield SPACES.sub(" ", "…".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and id(node) not in unseen:
            yield SPACES.sub(" ", str(node.value))


def old_in(text: str) -> set[str]:
    """Return the old phrases that a text has, whatever the case of its letters."""
    matches = set(PHRASES.findall(SPACES.sub(" ", text.lower())))
    return {phrase for phrase in OLD if phrase.lower() in matches}


@pytest.mark.slow
def test_no_text_of_the_program_has_an_old_phrase() -> None:
    """Whatever the CLI, the viewer, HTTP, MCP or an error says."""
    wrong = [
        (str(path.relative_to(SRC)), phrase)
        for path in sorted(SRC.rglob("*.py"))
        if old_in(JOINED.sub("", path.read_text()))  # in a docstring or comment, perhaps
        for text in texts_of(path)
        for phrase in old_in(text)
    ]

    assert [] == wrong


@pytest.mark.parametrize("kind", ["html", "js"])
def test_no_page_of_the_viewer_has_an_old_phrase(kind: str) -> None:
    """Templates and scripts."""
    pages = [path for path in SRC.rglob(f"*.{kind}") if not path.name.endswith(".min.js")]
    wrong = [(page.name, phrase) for page in pages for phrase in old_in(page.read_text())]

    assert pages
    assert [] == wrong


def test_no_page_of_the_docs_has_an_old_phrase() -> None:
    """README, CHANGELOG and docs; what is allowed is still there."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
    phrases = {(page.name, phrase) for page in pages for phrase in old_in(page.read_text())}

    assert ALLOWED == phrases


def test_an_outcome_has_one_name_everywhere() -> None:
    """One table; what the command line lets one choose is all of it."""
    from thence.cli.ls import OutcomeName, command
    from thence.format.normal import Outcome
    from thence.memory.search import OUTCOME_NAMES

    (option,) = (parameter for parameter in command.params if parameter.name == "outcome")
    assert isinstance(option.type, OutcomeName)
    assert {*OUTCOME_NAMES} == {*get_args(Outcome)}
    assert {*OUTCOME_NAMES.values()} == {*option.type.choices}
    for stored, name in OUTCOME_NAMES.items():
        assert stored == option.type.convert(name, None, None)
        assert stored == option.type.convert(stored, None, None)


def test_an_agent_can_be_named_as_people_call_it() -> None:
    """By its stored name, its label, and its label as one word."""
    from thence.agents.profiles import agents
    from thence.cli.options import AgentFilter

    for name, agent in agents().items():
        for word in (name, agent.label, agent.label.lower().replace(" ", "-")):
            assert name == AgentFilter().convert(word, None, None)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(name: str) -> None:
    """Every line of it; sentences end, and no option is without a word about it."""
    # Commands remember their help option: with other names the page of commands would differ.
    names = thence.context_settings["help_option_names"]
    top = click.Context(thence, info_name="thence", terminal_width=80, help_option_names=names)
    command = thence.get_command(top, name)
    assert command is not None
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    for subcommand in commands:
        text = click.Context(subcommand, top, subcommand.name, terminal_width=80).get_help()
        mute = [
            option.name
            for option in subcommand.params
            if isinstance(option, click.Option)
            and not option.hidden
            and not option.help
            and not option.show_default
        ]

        assert 80 >= max(map(len, text.splitlines()))
        assert (subcommand.help or "").strip().endswith(".")
        assert [] == mute
