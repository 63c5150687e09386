"""Nothing outside `agents/` knows an agent by name: what is particular to one is in its folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from thence.agents.profiles import agents

SOURCE = Path(__file__).parents[2] / "src" / "thence"
OURS = "thence"
"""The agent that is this program itself."""

ALLOWED = {
    "bridge/otlp.py": "beginnings of the names of models, by which their makers are told",
    "cli/acp.py": "an example in its help",
    "cli/exec.py": "an example in its help",
    "cli/search.py": "an example in its help",
    "serve/list_page.py": "an example in its help",
    "cli/nudge.py": "agents run it as a file, without any import: one runs the hooks of another",
    "cli/file_counts.py": "the words that the contract has for two families of logs",
    "format/wording.py": "a heading that stands in logs",
    "testing/stores.py": "ids of made-up sessions",
}
"""Files that may name agents, and why."""

_THEIRS = [agent for agent in agents().values() if agent.name != OURS]
_SHORT = {agent.name for agent in _THEIRS if len(agent.name) < 3}
_WORDS = {word for agent in _THEIRS for word in (agent.name, agent.label) if len(word) > 2}
_WORDS -= {"continue", "Continue"}  # a plain word of English as well
_NAMED = re.compile(
    rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, sorted(_WORDS)))})(?![\w-])", re.IGNORECASE
)


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    described = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in described:
            yield from [node.value] if isinstance(node.value, str) else []


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def mentions(code: str) -> bool:
    """Whether a module can name an agent at all; parsing those that cannot takes seconds."""
    code = code.lower()
    return any(word.lower() in code for word in _WORDS) or any(
        f'"{name}"' in code for name in _SHORT
    )


def named(tree: ast.AST) -> list[str]:
    """Return where a module names agents: in texts, or by importing their folders."""
    names = [text[:80] for text in texts(tree) if _NAMED.search(text) or text in _SHORT]
    folders = tuple(f"thence.agents.{agent.name}." for agent in _THEIRS)
    return names + [name for name in imports(tree) if f"{name}.".startswith(folders)]


@pytest.mark.slow
def test_no_module_names_an_agent() -> None:
    """So a further agent touches nothing but its own folder."""
    names_in = {
        str(path.relative_to(SOURCE)): names
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.is_relative_to(SOURCE / "agents")
        and mentions(code := path.read_text())
        and (names := named(ast.parse(code)))
    }

    assert {} == {path: names for path, names in names_in.items() if path not in ALLOWED}
    assert [] == [path for path in ALLOWED if path not in names_in]


def test_no_page_or_style_names_an_agent() -> None:
    """Labels and colours come from the agents themselves."""
    files = [path for path in (SOURCE / "serve" / "web").rglob("*") if path.suffix in _PAGES]

    assert files
    assert [] == [path.name for path in files if _NAMED.search(path.read_text())]


_PAGES = (".html", ".css", ".js")


def test_a_name_is_seen() -> None:
    """In a text and in an import; not in a docstring, a model's name or another word."""
    code = '"""Codex."""\nfrom thence.agents.grok import reader\nx = "for claude", "claude-opus"\n'

    assert mentions(code)
    assert ["for claude", "thence.agents.grok.reader"] == named(ast.parse(code))
