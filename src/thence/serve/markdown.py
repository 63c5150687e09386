"""Texts of logs as safe markup: Markdown without HTML, code coloured by classes, diffs as rows.

Everything here is hostile until it is escaped, and it is escaped here and nowhere else: what comes
out is `Markup`, what goes in is text. Invariants: no input raises; the work is bounded, for what
is long is cut and told; no element loads anything. Raw HTML is text. Links lead to http, https
and mailto only and say so; all other links, those to files among them, are their text. An image
is a link that shows its address, so that nothing is fetched that a reader did not ask for. There
is no attribute `style` and no script.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token as Kind
from pygments.token import _TokenType
from pygments.util import ClassNotFound

from thence.format.figures import clean_text, size

MAX_MARKDOWN_CHARS: Final = 60_000
"""Characters of a text that are read as Markdown; what is longer is shown as it is."""

MAX_COLOURED_CHARS: Final = 16_000
"""Characters of code that are coloured."""

MAX_SHOWN_CHARS: Final = 200_000
"""Characters of one text that are shown at all; the rest is counted."""

MAX_DIFFED_LINES: Final = 300
"""Lines of either side that are compared; larger edits are shown as all out, all in."""

DIFF_CONTEXT_LINES: Final = 3
"""Lines shown around a change."""

_LINK: Final = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]{1,2000}\Z", re.IGNORECASE)
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})([^`\n]*)")
_DIRECTED: Final = ("paragraph_open", "bullet_list_open", "ordered_list_open", "blockquote_open")
_LANGUAGES: Final = frozenset(
    [
        "bash",
        "c",
        "cpp",
        "csharp",
        "css",
        "diff",
        "docker",
        "dockerfile",
        "elixir",
        "go",
        "graphql",
        "haskell",
        "html",
        "http",
        "ini",
        "java",
        "javascript",
        "json",
        "jsx",
        "kotlin",
        "lua",
        "make",
        "makefile",
        "nix",
        "perl",
        "php",
        "powershell",
        "python",
        "ruby",
        "rust",
        "scala",
        "scss",
        "sh",
        "shell",
        "sql",
        "swift",
        "toml",
        "tsx",
        "typescript",
        "xml",
        "yaml",
        "zig",
    ]
)
_ALIASES: Final = {
    alias: name
    for name, aliases in {
        "python": ("py", "python3"),
        "javascript": ("js", "mjs"),
        "json": ("jsonl", "json5"),
        "bash": ("zsh", "console", "sh", "shell"),
        "cpp": ("c++", "hpp", "cc"),
        "typescript": ("ts",),
        "rust": ("rs",),
        "ruby": ("rb",),
        "yaml": ("yml",),
        "diff": ("patch",),
        "c": ("h",),
        "csharp": ("cs",),
        "kotlin": ("kt",),
        "make": ("mk",),
        "html": ("htm",),
        "xml": ("svg",),
        "ini": ("cfg",),
        "powershell": ("ps1",),
    }.items()
    for alias in aliases
}
"""Names people give to languages, and endings of files. All others are shown without colour:
a lexer reads hostile text, and only these are trusted to take their time in proportion to it."""

_CLASSES: Final = (
    (Kind.Comment, "c-c"),
    (Kind.Keyword, "c-k"),
    (Kind.Operator.Word, "c-k"),
    (Kind.Literal.String, "c-s"),
    (Kind.Literal.Number, "c-n"),
    (Kind.Name.Function, "c-f"),
    (Kind.Name.Class, "c-f"),
    (Kind.Name.Tag, "c-k"),
    (Kind.Name.Attribute, "c-f"),
    (Kind.Name.Decorator, "c-f"),
    (Kind.Generic.Inserted, "c-add"),
    (Kind.Generic.Deleted, "c-del"),
    (Kind.Generic.Heading, "c-k"),
    (Kind.Generic.Subheading, "c-k"),
)


# -- Markdown -------------------------------------------------------------------------------

_FIXED_MARKUP: Final = {
    "heading_close": "</p>\n",
    "table_open": '<div class="md-table" tabindex="0" role="group" aria-label="Table"><table>\n',
    "table_close": "</table></div>\n",
}
"""What is written of some tokens, whatever they hold. A table scrolls by itself when it is wide."""


class _Renderer(RendererHTML):
    """Writes the tokens of Markdown, all text escaped."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write a fenced block, coloured when its language is known."""
        del options, env
        token = tokens[idx]
        name = token.info.strip().split(maxsplit=1)[0] if token.info.strip() else ""
        return str(code_block(token.content, name))

    def code_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        """Write an indented block."""
        del options, env
        return str(code_block(tokens[idx].content, ""))

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Write an image as a link with its address as text."""
        del options, env
        token = tokens[idx]
        address = str(token.attrGet("src") or "")
        label = escape(f"image: {address[:300]}")
        if not _LINK.match(address):
            return f'<span class="nolink">{label}</span>'
        return str(
            Markup('<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>').format(
                address, f"image: {address[:300]}"
            )
        )

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        """Open a link that leads out; anything else is its text."""
        del options, env
        address = str(tokens[idx].attrGet("href") or "")
        if not _LINK.match(address):
            return str(Markup('<span class="nolink" title="{}">').format(address[:300]))
        return str(
            Markup('<a href="{}" rel="noopener noreferrer nofollow" target="_blank">').format(
                address
            )
        )

    def link_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        """Close what `link_open` opened."""
        del options, env
        depth = 0
        for token in reversed(tokens[:idx]):
            if token.type == "link_close":
                depth += 1
            elif token.type == "link_open":
                if depth == 0:
                    address = str(token.attrGet("href") or "")
                    return "</a>" if _LINK.match(address) else "</span>"
                depth -= 1
        return ""

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        """Open a heading as a paragraph in bold: the page has an outline of its own."""
        del options, env
        return f'<p class="md-h md-{escape(tokens[idx].tag)}" dir="auto">'

    def _cell(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Open a cell; its alignment would be a style."""
        del options, env
        return f"<{escape(tokens[idx].tag)}>"

    td_open = th_open = _cell


def _direct(state: StateCore) -> None:
    """Let each block of text run in the direction of its own first letters."""
    for token in state.tokens:
        if token.nesting == 1 and token.type in _DIRECTED:
            token.attrSet("dir", "auto")


def _any(url: str) -> bool:
    del url
    return True


def _reader() -> MarkdownIt:
    """Make a reader: CommonMark with tables and strikethrough, raw HTML off."""
    options = {"html": False, "linkify": False, "breaks": True}
    made = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    made.enable(["table", "strikethrough"])
    made.core.ruler.push("direction", _direct)
    for name, markup in _FIXED_MARKUP.items():
        made.add_render_rule(name, lambda *_, markup=markup: markup)
    # The renderer decides which links are any, and says what the others were.
    made.validateLink = _any  # type: ignore[method-assign]
    return made


_MARKDOWN: Final = _reader()


@lru_cache(maxsize=2048)
def render(text: str) -> Markup:
    """Return a text that was written as Markdown."""
    text = clean_text(text)
    if len(text) > MAX_MARKDOWN_CHARS:
        return _plain(text)
    try:
        return Markup(_MARKDOWN.render(text))  # noqa: S704 - every text in it was escaped above
    except RecursionError:
        return _plain(text)


def render_typed(text: str) -> Markup:
    """Show a text as it was typed: every character and line; only fenced code becomes a block."""
    text = clean_text(text)
    if len(text) > MAX_MARKDOWN_CHARS:
        return _plain(text)
    out, start, lines = Markup(""), 0, text.split("\n")
    at = 0
    unclosed = {
        "`": MAX_MARKDOWN_CHARS,
        "~": MAX_MARKDOWN_CHARS,
    }  # lengths of fences that no later line closes
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        if opening is None or len(opening[1]) >= unclosed[opening[1][0]]:
            at += 1
            continue
        end = _fence_end(lines, at, opening[1])
        if end is None:
            unclosed[opening[1][0]] = len(opening[1])
            continue
        out += _typed_lines(lines[start:at])
        out += code_block("\n".join(lines[at + 1 : end]), opening[2].strip().partition(" ")[0])
        start = at = end + 1
    return out + _typed_lines(lines[start:])


def _fence_end(lines: Sequence[str], at: int, mark: str) -> int | None:
    """Return the line that closes a fence; an open one is no fence but text."""
    for number in range(at + 1, len(lines)):
        line = lines[number].strip()
        if len(line) >= len(mark) and not line.strip(mark[0]):
            return number
    return None


def _typed_lines(lines: Sequence[str]) -> Markup:
    text = "\n".join(lines).strip("\n")
    return Markup('<div class="typed" dir="auto">{}</div>').format(text) if text else Markup("")


def _plain(text: str) -> Markup:
    rest = f"… {size(len(text) - MAX_SHOWN_CHARS)} more" if len(text) > MAX_SHOWN_CHARS else ""
    return Markup('<pre class="out" tabindex="0">{}</pre>').format(text[:MAX_SHOWN_CHARS] + rest)


# -- code -----------------------------------------------------------------------------------


def code_block(text: str, language: str) -> Markup:
    """Return a block of code, coloured where its language is known."""
    return Markup('<pre class="code" tabindex="0"><code>{}</code></pre>\n').format(
        highlight(text.removesuffix("\n"), language)
    )


def highlight(text: str, language: str) -> Markup:
    """Return code with the classes of its parts; without any when the language is not known."""
    text = clean_text(text)
    lexer = _lexer(_name(language)) if len(text) <= MAX_COLOURED_CHARS else None
    if lexer is None:
        return escape(text[:MAX_SHOWN_CHARS])
    out: list[str] = []
    for kind, piece in lexer.get_tokens(text):
        name = _class(kind)
        shown = str(escape(piece))
        out.append(f'<span class="{name}">{shown}</span>' if name and piece.strip() else shown)
    made = "".join(out)
    # The lexer gives every text an end of line.
    return Markup(made if text.endswith("\n") else made.removesuffix("\n"))  # noqa: S704 - escaped


def language_of(path: str) -> str:
    """Name the language of a file by its ending, or by its name where that says it."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return _name(name if name in ("makefile", "dockerfile") else name.rpartition(".")[2])


def _name(language: str) -> str:
    short = language.strip().lower()[:20]
    name = _ALIASES.get(short, short)
    return name if name in _LANGUAGES else ""


@lru_cache(maxsize=64)
def _lexer(name: str) -> Lexer | None:
    if not name:
        return None
    try:
        return get_lexer_by_name(name, stripnl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _class(kind: _TokenType) -> str:
    return next((name for above, name in _CLASSES if kind[: len(above)] == above), "")


# -- diffs ----------------------------------------------------------------------------------


class DiffLine(msgspec.Struct, frozen=True):
    """One line of a diff: `sign` is `+`, `-`, `@` for a gap, or empty for what stays."""

    sign: str
    text: Markup
    old: int | None = None
    new: int | None = None


def diff_lines(before: str, after: str, path: str = "") -> list[DiffLine]:
    """Return the lines that differ between two texts, with a few around them."""
    old, new = clean_text(before).split("\n"), clean_text(after).split("\n")
    if before == "":
        return list(_added_lines(new, path))
    if len(old) > MAX_DIFFED_LINES or len(new) > MAX_DIFFED_LINES:
        return [*_removed_lines(old, path), *_added_lines(new, path)]
    olds, news = _coloured_lines(old, path), _coloured_lines(new, path)
    lines: list[DiffLine] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(DIFF_CONTEXT_LINES):
        if lines:
            lines.append(DiffLine("@", Markup("")))
        for what, i, j, k, m in group:
            if what == "equal":
                pairs = zip(range(i, j), range(k, m), strict=True)
                lines += [DiffLine("", olds[a], a + 1, b + 1) for a, b in pairs]
                continue
            lines += [DiffLine("-", olds[a], a + 1) for a in range(i, j)]
            lines += [DiffLine("+", news[b], None, b + 1) for b in range(k, m)]
    return lines


def patch_lines(lines: Sequence[str], path: str = "") -> list[DiffLine]:
    """Return the lines of a patch as they stand in it."""
    language = language_of(path)
    out: list[DiffLine] = []
    for line in lines[:MAX_DIFF_LINES]:
        sign = line[:1]
        if sign == "@":
            out.append(DiffLine("@", highlight(line.strip("@ ")[:200], "")))
        elif sign in ("+", "-"):
            out.append(DiffLine(sign, highlight(line[1:], language)))
        else:
            out.append(DiffLine("", highlight(line.removeprefix(" "), language)))
    return out


MAX_DIFF_LINES: Final = 2_000
"""Lines of one diff that are shown."""


def _added_lines(lines: Sequence[str], path: str) -> Iterator[DiffLine]:
    shown = lines[:-1] if len(lines) > 1 and not lines[-1] else lines
    for number, text in enumerate(_coloured_lines(shown[:MAX_DIFF_LINES], path), 1):
        yield DiffLine("+", text, None, number)


def _removed_lines(lines: Sequence[str], path: str) -> Iterator[DiffLine]:
    for number, text in enumerate(_coloured_lines(lines[:MAX_DIFF_LINES], path), 1):
        yield DiffLine("-", text, number)


def _coloured_lines(lines: Sequence[str], path: str) -> Sequence[Markup]:
    """Colour lines together, so that a text over several lines is one; no span crosses a line."""
    text = "\n".join(lines)
    language = language_of(path)
    if len(text) > MAX_COLOURED_CHARS or _lexer(language) is None:
        return [escape(line) for line in lines]
    return _coloured_text(text, language)


@lru_cache(maxsize=256)
def _coloured_text(text: str, language: str) -> tuple[Markup, ...]:
    """Colour a text, line by line. The same edits are looked at again and again."""
    lexer = _lexer(language)
    out: list[list[str]] = [[]]
    for kind, piece in lexer.get_tokens(text) if lexer is not None else ():
        name = _class(kind)
        for at, part in enumerate(piece.split("\n")):
            if at:
                out.append([])
            if part:
                shown = str(escape(part))
                out[-1].append(f'<span class="{name}">{shown}</span>' if name else shown)
    wanted = text.count("\n") + 1
    made = [Markup("".join(parts)) for parts in out[:wanted]]  # noqa: S704 - escaped
    return (*made, *[Markup("")] * (wanted - len(made)))
