"""A shell script as the simple commands it consists of, as far as its text alone tells.

A script is cut at its separators into steps: the words of one command, without quotes, and the
files it redirects to. `programs` goes on into what other programs run: `sudo`, `uv run`, `sh -c`.
The wrappers it sees through are rows of a table.

Invariants: pure; nothing is expanded or looked up; nothing raises, a broken script is read as far
as it goes; time is linear, at most the first 16 KiB without here-documents are looked at. The body
of a here-document, a comment and what stands in quotes are data, never commands.

Never here: what a program means, be it a test runner (see testruns) or an edit (see tools).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from thence.format.expressions import expression

SHORT = 2048
"""Characters of a script up to which what was found out about it is worth remembering."""

_CLIP = 16 << 10  # characters of a script that are read
_STEPS = 500  # separators of a script that are heeded
_NESTED = 8  # wrappers nest, but not without end
_DEPTH = 4  # `sh -c` nests no deeper in earnest


class Write(NamedTuple):
    """A file the output of a command goes to, as a new content or at the end of the old one."""

    path: str
    appends: bool


class ShellStep(NamedTuple):
    """One simple command: its words from the program on, and where it redirects to."""

    words: list[str]
    writes: list[Write]


# The table keeps a row to a line or two; the formatter would give every cell its own.
# fmt: off
WRAPPERS = (
    ("sudo", "-u -g -C -p", 0), ("time", "-f -o", 0), ("nice", "-n", 0), ("nohup", "", 0),
    ("env", "-u -C", 0), ("timeout", "-s -k --signal --kill-after", 1), ("exec", "", 0),
    ("bash", "-o", 0), ("sh", "-o", 0), ("xargs", "-n -I -P -L -d", 0), ("rtk", "", 0),
    ("uv run", "--with --extra --group --python -p --project --directory --env-file --package", 0),
    ("uvx", "--with --from --python -p", 0), ("pipx run", "--spec", 0), ("poetry run", "-C", 0),
    ("pipenv run", "", 0), ("pdm run", "-p", 0), ("hatch run", "-e", 0), ("rye run", "", 0),
    ("pixi run", "-e", 0), ("conda run", "-n -p", 0), ("coverage run", "--source --rcfile", 0),
    ("python", "-X -W", 0), ("npx", "-p --package", 0), ("bunx", "", 0), ("npm exec", "", 0),
    ("bundle exec", "", 0), ("mise exec", "", 0), ("mise x", "", 0), ("direnv exec", "", 1),
    ("doppler run", "-p -c", 0), ("git bisect run", "", 0), ("php", "-d", 0), ("ruby", "-I", 0),
    ("xvfb-run", "-n -s", 0), ("stdbuf", "", 0), ("docker exec", "-u -w -e", 1),
    ("node", "-r --require --import --loader", 0), ("kubectl exec", "-n -c", 1),
    ("docker run", "-v -e -w -u -p --name --network --platform --mount --entrypoint", 1),
    ("docker compose exec", "-f -u -w -e", 1), ("docker-compose exec", "-f -u -w -e", 1),
    ("docker compose run", "-f -v -e -w -u --name", 1), ("docker-compose run", "-f -v -e -w -u", 1),
)
"""Programs that run another: their words, their options with a value, words before the program."""
# fmt: on

_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{"}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "fish", "pwsh", "powershell", "cmd"}
_APPENDS = {">": False, ">|": False, "&>": False, ">>": True, "&>>": True}
_REDIRECTS = {*_APPENDS, "<", "<&", ">&"}  # the others change no file
_TOKEN = expression(
    r"(?P<gap>(?:[ \t\r]|\\\n)+)|(?P<note>#[^\n]*)"
    r"|(?P<op>&&|\|\||;;|\|&|&>>|&>|>>|>&|<&|>\||[<>]\(|[;&|()<>\n])"
    r"|(?P<word>(?:[^\s;&|()<>'\"\\]++|'[^']*+'|\"(?:[^\"\\]|\\.)*+\"|\\.|['\"\\]|[^\S \t\r\n])++)",
    re.DOTALL,
)
_QUOTED = expression(r"'([^']*+)'|\"((?:[^\"\\]|\\.)*+)\"|\\(.)", re.DOTALL)
_HEREDOC = expression(r"(?<!<)<<-?[ \t]*\\?(['\"]?)([A-Za-z_]\w*)\1")
_ASSIGNMENT = expression(r"[A-Za-z_]\w*\+?=")
_VERSIONED = ("python", "pypy", "php", "ruby")
_NO_NAME = expression(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]")  # no program is called so


def steps(script: str) -> Iterator[ShellStep]:
    """Split a script into its simple commands, as far as quoting and separators tell."""
    step, waiting, word_end, count = ShellStep([], []), "", -1, 0
    for token in _TOKEN.finditer(without_heredocs(script)[:_CLIP]):
        value = token[0]
        if token.lastgroup == "word":
            word = _QUOTED.sub(lambda m: m[1] or m[2] or m[3] or "", value)
            if not waiting:
                step.words.append(word)
            elif waiting in _APPENDS:
                step.writes.append(Write(word, _APPENDS[waiting]))
            waiting, word_end = "", token.end()
        elif value in _REDIRECTS:
            numbered = token.start() == word_end and step.words and step.words[-1].isdigit()
            waiting = "<" if numbered and step.words.pop() != "1" else value
        elif token.lastgroup == "op" and count < _STEPS:
            yield ShellStep(_bare(step.words), step.writes)
            step, waiting, count = ShellStep([], []), "", count + 1
    yield ShellStep(_bare(step.words), step.writes)


def programs(script: str) -> Iterator[list[str]]:
    """Return the words of every program a script starts, wrappers first, then what they run."""
    return _programs(script, 0)


def without_heredocs(script: str) -> str:
    """Cut the bodies of here-documents: they are data, whatever commands they quote."""
    if "<<" not in script:
        return script
    parts, at = [], 0
    while (match := _HEREDOC.search(script, at)) and (end := script.find("\n", match.end())) >= 0:
        parts.append(script[at:end])
        at = end
        while at < len(script):
            end = script.find("\n", at + 1)
            end = len(script) if end < 0 else end  # bash, too, takes the rest if no word closes
            line, at = script[at:end], end
            if line.strip() == match[2]:
                break
    return "".join([*parts, script[at:]])


def program_name(word: str) -> str:
    """Return a program's name without its directory, suffix and, for interpreters, version."""
    name = word.rsplit("/", 1)[-1]
    if name.endswith((".exe", ".cmd", ".exe\n", ".cmd\n")):
        name = re.sub(r"\.(?:exe|cmd)$", "", name)
    if name.startswith(_VERSIONED):
        name = re.sub(r"^(python|pypy|php|ruby)[\d.]+$", r"\1", name)
    return name


def script_argument(words: list[str]) -> str | None:
    """Return the script a shell is handed by its -c option, if that is what these words do."""
    if words and program_name(words[0]) in _SHELLS:
        for at, word in enumerate(words[1:6], 2):
            if re.fullmatch(r"-[a-z]*c|-Command|/[cC]", word):
                return words[at] if at < len(words) else None
    return None


def _programs(script: str, depth: int) -> Iterator[list[str]]:
    for step in steps(script):
        words = step.words
        for _ in range(_NESTED):
            if not words or _NO_NAME.search(words[0]):
                break
            inner = script_argument(words)
            if inner is not None:
                yield from _programs(inner, depth + 1) if depth < _DEPTH else ()
                break
            yield words
            words = _bare(_unwrap(words))


def _bare(words: list[str]) -> list[str]:
    """Drop the keywords and assignments before a program."""
    at = 0
    while at < len(words) and (words[at] in _KEYWORDS or _ASSIGNMENT.match(words[at])):
        at += 1
    return words[at:]


def _unwrap(words: list[str]) -> list[str]:
    """Return the words of the program a wrapper runs; none if these words are no wrapper's."""
    words = [program_name(words[0]), *words[1:]]
    for names, options, extra in _WRAPPERS.get(words[0], ()):
        at = 0
        for part in (*names.split(), *[""] * extra):
            at = _past_options(words, at, options)
            if at >= len(words) or part not in ("", words[at]):
                break
            at += 1
        else:
            return words[_past_options(words, at, options) :]
    return []


_WRAPPERS = {
    row[0].split()[0]: [other for other in WRAPPERS if other[0].split()[0] == row[0].split()[0]]
    for row in WRAPPERS
}


def _past_options(words: list[str], at: int, valued: str) -> int:
    while 0 < at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued.split() else 1
    return at
