"""Text to safe markup: Markdown, code, diffs."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from tests.pace import grows_linearly
from thence.serve import markdown

ELEMENTS = frozenset(
    [
        "p",
        "em",
        "strong",
        "s",
        "code",
        "pre",
        "span",
        "a",
        "br",
        "hr",
        "ul",
        "ol",
        "li",
        "blockquote",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    ]
)
ATTRIBUTES = frozenset(
    ["class", "href", "rel", "target", "title", "tabindex", "role", "aria-label", "start", "dir"]
)


class Elements(HTMLParser):
    """Collects what a browser would make of some markup."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and what it says of itself."""
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data


def read(markup: str) -> Elements:
    """Read markup as a browser does."""
    elements = Elements()
    elements.feed(markup)
    elements.close()
    return elements


@given(st.text(max_size=300) | st.text(alphabet="<>\"'&[]()!*_`#|-\n hjx:/=", max_size=200))
def test_any_text_gives_harmless_elements_only(text: str) -> None:
    """No text raises, and none gives an element, attribute or scheme that does anything."""
    elements = read(str(markdown.render(text)))

    assert elements.tags <= ELEMENTS
    assert elements.names <= ATTRIBUTES
    assert all(re.match(r"(?:https?://|mailto:)", link, re.IGNORECASE) for link in elements.links)


def test_markdown_is_read_and_html_is_text() -> None:
    """Emphasis, lists, tables and code are; what looks like an element is what it says."""
    text = "**b** `c` <b>x</b>\n\n- one\n\n| a |\n|---|\n| 1 |\n\n# Head"
    made = str(markdown.render(text))

    assert "<strong>b</strong>" in made
    assert "&lt;b&gt;x&lt;/b&gt;" in made
    assert {"table", "li", "code"} <= read(made).tags
    assert '<p class="md-h md-h1" dir="auto">Head</p>' in made


def test_links_lead_out_or_are_their_text() -> None:
    """A file of the project is no page of this server."""
    made = str(markdown.render("[a](https://x.example/y) [f](src/app.py) [j](javascript:x)"))

    assert read(made).links == ["https://x.example/y"]
    assert 'rel="noopener noreferrer nofollow"' in made
    assert "src/app.py" in made


def test_an_image_is_a_link_with_its_address() -> None:
    """Nothing is fetched that a reader did not ask for."""
    elements = read(str(markdown.render("![alt](https://x.example/p.png)")))

    assert "img" not in elements.tags
    assert elements.links == ["https://x.example/p.png"]
    assert "https://x.example/p.png" in elements.text


def test_code_is_coloured_by_classes() -> None:
    """Where the language is known; all else is plain, and all of it is escaped."""
    made = str(markdown.code_block('def f():\n    return "<b>"  # x\n', "py"))

    assert '<span class="c-k">def</span>' in made
    assert '<span class="c-f">f</span>' in made
    assert "&lt;b&gt;" in made
    assert "span" not in str(markdown.highlight("<x>", "brainfuck"))


def test_a_very_long_text_is_shown_as_it_is_and_measured() -> None:
    """Not read as Markdown, cut, and the rest told."""
    made = str(markdown.render("*x* " * 200_000))

    assert "<em>" not in made
    assert "more" in made[-200:]


def test_a_diff_shows_what_went_and_what_came() -> None:
    """With some lines around, and gaps where nothing changed."""
    before = "\n".join(f"line {n}" for n in range(40))
    after = before.replace("line 5", "LINE 5").replace("line 30\n", "")
    lines = markdown.diff_lines(before, after, "a.txt")

    assert [str(line.text) for line in lines if line.sign == "-"] == ["line 5", "line 30"]
    assert [str(line.text) for line in lines if line.sign == "+"] == ["LINE 5"]
    assert sum(line.sign == "@" for line in lines) == 1


def test_a_new_file_is_all_added_and_numbered() -> None:
    """From its first line on."""
    lines = markdown.diff_lines("", "one\ntwo\n", "a.py")

    assert [(line.sign, line.new) for line in lines] == [("+", 1), ("+", 2)]


def test_a_string_over_many_lines_is_one_and_no_span_crosses_a_line() -> None:
    """Each row of a table closes what it opened."""
    lines = markdown.diff_lines("x = 1", 'x = """\na < b\n"""', "a.py")

    for line in lines:
        assert str(line.text).count("<span") == str(line.text).count("</span>")
    assert any("a &lt; b" in str(line.text) for line in lines)


def test_a_patch_keeps_its_signs() -> None:
    """Out, in, around, and the places it names."""
    lines = markdown.patch_lines(["@@ def f():", " a", "-b", "+c"], "a.py")

    assert [line.sign for line in lines] == ["@", "", "-", "+"]


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("piece", ["[", "*", "`", "> ", "![a](", "| a ", "<a ", "- \n"])
def test_hostile_text_takes_time_in_proportion(piece: str) -> None:
    """However it is nested."""

    def work(size: int) -> None:
        markdown.render.__wrapped__(piece * size)

    assert grows_linearly(work, 400)


def test_a_prompt_is_shown_as_it_was_typed() -> None:
    """Nothing is read as Markdown; every character and line stays."""
    text = "opk/cli/__main__.py\n> assert x\n_ _ _\ntext:\n-\n8.\n  indented *so*"
    made = str(markdown.render_typed(text))

    assert f'<div class="typed" dir="auto">{escape(text)}</div>' == made


def test_fenced_code_in_a_prompt_is_a_block_and_an_open_fence_is_text() -> None:
    """Around it the text stays as it was typed."""
    made = str(markdown.render_typed("See:\n```python\nx = 1\n```\nand\n```\nnever closed"))

    assert 1 == made.count("<pre")
    assert '<div class="typed" dir="auto">See:</div>' in made
    assert "and\n```\nnever closed" in made


def test_single_newlines_of_an_answer_stay() -> None:
    """A list of lines is not joined into a paragraph."""
    assert 2 == str(markdown.render("one\ntwo\nthree")).count("<br")
