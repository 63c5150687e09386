"""A script is cut into the commands it runs, and never into those it merely quotes."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given

from tests.format import foreign
from thence.format import shell
from thence.format.shell import ShellStep, Write


def words(script: str) -> list[list[str]]:
    """The words of the commands of a script, empty ones left out."""
    return [step.words for step in shell.steps(script) if step.words]


@pytest.mark.parametrize("wrapper", shell.WRAPPERS, ids=lambda wrapper: wrapper[0])
def test_every_wrapper_gives_the_program_it_runs(wrapper: tuple[str, str, int]) -> None:
    """A program is found behind each wrapper, its options and the words it takes first."""
    names, options, extra = wrapper
    valued = " ".join(f"{option} x" for option in options.split())
    script = f"{names} {valued} {'x ' * extra}-- pytest -q"

    assert ["pytest", "-q"] in list(shell.programs(script))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        ("ls -la", [["ls", "-la"]]),
        ("cd a && make; ls | wc\ntrue", [["cd", "a"], ["make"], ["ls"], ["wc"], ["true"]]),
        ("a || b & (c)", [["a"], ["b"], ["c"]]),
        ("echo 'a && b' \"c; d\" e\\ f", [["echo", "a && b", "c; d", "e f"]]),
        ("x=1 Y+=2 make all=1", [["make", "all=1"]]),
        ("if ! test -f a; then make; fi", [["test", "-f", "a"], ["make"], ["fi"]]),
        ("for f in a b; do ls $f; done", [["for", "f", "in", "a", "b"], ["ls", "$f"], ["done"]]),
        ("make # all; rm -r x", [["make"]]),
        ("make \\\n  all", [["make", "all"]]),
        ("echo 'never closed; ls", [["echo", "'never", "closed"], ["ls"]]),
    ],
)  # fmt: skip
def test_steps_are_cut_at_separators_only(script: str, expected: list[list[str]]) -> None:
    """Quotes, comments and continued lines hold together; keywords and assignments are no words."""
    assert expected == words(script)


def test_redirections_are_told_from_words() -> None:
    """Files written are kept with their way of writing, other streams and inputs are not."""
    script = "a > 'x y' >> z <in 2>err >&2 &>all 1>one b"

    assert [
        ShellStep(
            ["a", "b"],
            [Write("x y", False), Write("z", True), Write("all", False), Write("one", False)],
        )
    ] == list(shell.steps(script))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat > a <<'EOF'\nrm x\nEOF\nls", "cat > a <<'EOF'\nls"),
        ("cat <<-EOF\n\trm x\n\tEOF\nls", "cat <<-EOF\nls"),
        ("cat <<A <<B", "cat <<A <<B"),
        ("cat <<EOF\nrm x\nno closing word", "cat <<EOF"),
        ("cat <<< EOF\nls", "cat <<< EOF\nls"),
    ],
)
def test_heredocs_are_data(script: str, expected: str) -> None:
    """The body is cut, what follows its closing word is a command again."""
    assert expected == shell.without_heredocs(script)


def test_programs_come_in_order_with_what_they_run() -> None:
    """Wrappers, shells and the commands after them, each once."""
    script = "sudo -u bob env CI=1 make && bash -lc 'cd a; uv run ls' | wc"

    assert [
        ["sudo", "-u", "bob", "env", "CI=1", "make"],
        ["env", "CI=1", "make"],
        ["make"],
        ["cd", "a"],
        ["uv", "run", "ls"],
        ["ls"],
        ["wc"],
    ] == list(shell.programs(script))


def test_what_has_a_space_in_its_name_is_no_program() -> None:
    """A quoted sentence in the place of a program is an argument of something else."""
    assert [] == list(shell.programs("'run pytest now'; bash -c \"'a b'\""))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["bash", "-lc", "ls"], "ls"),
        (["/bin/zsh", "-l", "-c", "ls"], "ls"),
        (["pwsh", "-Command", "ls"], "ls"),
        (["cmd.exe", "/c", "dir"], "dir"),
        (["bash", "-c"], None),
        (["bash", "run.sh"], None),
        (["grep", "-c", "x"], None),
        ([], None),
    ],
)
def test_a_shell_is_handed_its_script(argv: list[str], expected: str | None) -> None:
    """Only shells have a script for a word, and only by their option."""
    assert expected == shell.script_argument(argv)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("/usr/bin/make", "make"),
        ("python3.11", "python"),
        ("node.exe", "node"),
        ("gcc-12", "gcc-12"),
        ("a/", ""),
        ("", ""),
    ],
)
def test_a_program_is_named_without_place_and_version(word: str, expected: str) -> None:
    """The same program has the same name wherever it is installed."""
    assert expected == shell.program_name(word)


@given(foreign.scripts)
def test_nothing_raises_on_any_script(script: str) -> None:
    """Broken quotes, odd bytes and half operators are read as far as they go."""
    assert list(shell.steps(script))
    assert all(shell.programs(script))
    assert len(shell.without_heredocs(script)) <= len(script)


@pytest.mark.few(6)
@pytest.mark.parametrize("unit", foreign.UNITS)
def test_what_lies_beyond_the_bound_is_not_read(unit: str) -> None:
    """A script of any length costs no more than its first part."""
    script = unit * ((1 << 16) // len(unit))
    bare = shell.without_heredocs(script)[: 1 << 14]

    assert list(shell.steps(bare)) == list(shell.steps(script))
    assert len(list(shell.steps(script))) <= 501


def nested(script: str, times: int) -> str:
    """A script handed to a shell by a shell, and so on."""
    for _ in range(times):
        script = f"sh -c {shlex.quote(script)}"
    return script


def test_shells_within_shells_are_followed_to_an_end() -> None:
    """A few are seen through; depth is bounded, whoever nests."""
    assert [["ls"]] == list(shell.programs(nested("ls", 1)))
    assert [["ls"]] == list(shell.programs(nested("ls", 2)))
    assert [] == list(shell.programs(nested("ls", 9)))
