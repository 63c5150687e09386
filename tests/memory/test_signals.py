"""Signals: for every kind three planted sessions that must fire and three near misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.format.derived import judged
from thence.format.facts import fact_of
from thence.format.session_graph import SessionGraph
from thence.memory.error_tally import QUOTE_BYTES
from thence.memory.readouts import readout_of
from thence.memory.session_timeline import SessionTimeline
from thence.memory.signals import FINDERS, Kind, Signal, signals
from thence.memory.work_tally import MAX_PER_KIND
from thence.testing import Draft

Story = Callable[["Play"], None]

TRACE = "Traceback (most recent call last):\n  File \"a.py\", line {}\nKeyError: 'clock'"
NOT_READ = "<tool_use_error>File has not been read yet. Read it first.</tool_use_error>"
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


class Play(Draft):
    """A draft with the verbs of these stories."""

    def __init__(self) -> None:
        super().__init__()
        self.header()
        self.prompt("Fix the clock.")
        self._calls = 0

    def did(
        self,
        tool: str,
        text: str = "ok",
        *,
        failed: bool = False,
        after: float = 0,
        **arguments: str,
    ) -> None:
        """One call and its result, so many seconds later."""
        self._calls += 1
        call = f"c{self._calls}"
        self.reply(self.call(call, tool, **arguments))
        self.wait(after)
        self.result(call, text, failed=failed)

    def ran(
        self, command: str, text: str = "ok", *, failed: bool = False, after: float = 0
    ) -> None:
        """One command."""
        self.did("Bash", text, failed=failed, after=after, command=command)

    def edited(self, path: str = "clock.py") -> None:
        """One edit."""
        self.did("Edit", file_path=path, old_string="a", new_string="b")

    def tests(self, *, red: bool, command: str = "pytest") -> None:
        """One run of the tests."""
        text = "FAILED test_clock.py::test_tick\n1 failed in 0.1s" if red else "9 passed in 0.1s"
        self.ran(command, text, failed=red)


def signals_of(story: Story) -> list[Signal]:
    """The signals of a story."""
    play = Play()
    story(play)
    facts = judged([fact_of(event, line=line) for line, event in enumerate(play.events)])
    return signals(SessionTimeline(readout_of(SessionGraph(f"thence:{play.session}", facts))))


# -- repeated_error -------------------------------------------------------------------------


def same_exception(play: Play) -> None:
    """Three tracebacks that differ in their line numbers only."""
    for line in (1, 22, 333):
        play.ran(f"python a.py {line}", TRACE.format(line), failed=True)


def same_tool_error(play: Play) -> None:
    """The same refusal of the editor for three files."""
    for path in ("a.py", "b.py", "c.py"):
        play.did("Edit", NOT_READ, failed=True, file_path=path, old_string="a", new_string="b")


def same_missing_file(play: Play) -> None:
    """Three commands that miss a file each in its own folder."""
    for name in ("x", "y", "z"):
        play.ran(f"cat /srv/{name}", f"cat: /srv/{name}: No such file or directory", failed=True)


def twice_only(play: Play) -> None:
    """An error and its second try."""
    for line in (1, 2):
        play.ran(f"python a.py {line}", TRACE.format(line), failed=True)


def three_errors(play: Play) -> None:
    """Three errors that have nothing in common."""
    play.ran("python a.py", TRACE.format(1), failed=True)
    play.ran("cat x", "cat: x: No such file or directory", failed=True)
    play.did("Edit", NOT_READ, failed=True, file_path="a", old_string="a", new_string="b")


def nameless(play: Play) -> None:
    """Three failures of which nothing tells more than that they failed."""
    for name in ("a", "b", "c"):
        play.ran(f"grep {name} clock.py", "", failed=True)


# -- retry_loop -----------------------------------------------------------------------------


def same_command(play: Play) -> None:
    """The same command three times, nothing changed."""
    for _ in range(3):
        play.ran("make release", "make: *** [release] Error 2", failed=True)


def same_fetch(play: Play) -> None:
    """The same page three times."""
    for _ in range(3):
        play.did("WebFetch", "Request failed with status code 404", failed=True, url="https://e.x")


def five_red_runs(play: Play) -> None:
    """Tests that stay red through four edits."""
    for _ in range(5):
        play.tests(red=True)
        play.edited()


def mended_at_the_third(play: Play) -> None:
    """Two failures, then it works."""
    for failed in (True, True, False):
        play.ran("make release", "make: *** [release] Error 2", failed=failed)


def three_commands(play: Play) -> None:
    """Three commands, each fails once."""
    for target in ("a", "b", "c"):
        play.ran(f"make {target}", "make: *** Error 2", failed=True)


def red_while_fixing(play: Play) -> None:
    """Three red runs with edits in between are how tests are fixed."""
    for _ in range(3):
        play.tests(red=True)
        play.edited()
    play.tests(red=False)


# -- flaky_test -----------------------------------------------------------------------------


def red_then_green(play: Play) -> None:
    """Red, run again, green."""
    play.tests(red=True)
    play.tests(red=False)


def green_then_red(play: Play) -> None:
    """Green, a look at something, red."""
    play.tests(red=False)
    play.ran("git status")
    play.did("Read", file_path="clock.py")
    play.tests(red=True)


def flips_often(play: Play) -> None:
    """Red, green, red."""
    for red in (True, False, True):
        play.tests(red=red, command="npm test -- clock")


def mended(play: Play) -> None:
    """An edit lies between red and green."""
    play.tests(red=True)
    play.edited()
    play.tests(red=False)


def other_tests(play: Play) -> None:
    """Other tests are green."""
    play.tests(red=True, command="pytest tests/a")
    play.tests(red=False, command="pytest tests/b")


def something_ran(play: Play) -> None:
    """A command lies between them that may have changed anything."""
    play.tests(red=True)
    play.ran("npm install left-pad")
    play.tests(red=False)


# -- untested_edit --------------------------------------------------------------------------


def edited_after_green(play: Play) -> None:
    """Green, then one more edit."""
    play.edited()
    play.tests(red=False)
    play.edited()
    play.reply("Done.")


def edited_after_red_and_left(play: Play) -> None:
    """Red, mended, never run again."""
    play.tests(red=True)
    play.edited()
    play.prompt("And the docs?")
    play.did("Write", file_path="README.md", content="x")


def edited_and_committed(play: Play) -> None:
    """Other commands run no tests."""
    play.tests(red=False)
    play.edited()
    play.ran("git commit -am x")


def run_after_the_edit(play: Play) -> None:
    """The last run sees the last edit."""
    play.tests(red=False)
    play.edited()
    play.tests(red=False)


def prose_after_green(play: Play) -> None:
    """No test reads what was written then."""
    play.edited()
    play.tests(red=False)
    play.did("Write", file_path="docs/NOTES.md", content="x")


def never_tested(play: Play) -> None:
    """Where no tests were run nobody says that they are."""
    play.edited()
    play.reply("Done.")


# -- rework ---------------------------------------------------------------------------------


def edited_after_red(play: Play) -> None:
    """The same file again after three red runs."""
    for _ in range(3):
        play.edited()
        play.tests(red=True)
    play.edited()


def edited_after_corrections(play: Play) -> None:
    """The same file again after three corrections."""
    for _ in range(3):
        play.edited()
        play.reply("Done.")
        play.prompt("No, that is not what I asked for.")
    play.edited()


def churned(play: Play) -> None:
    """Seven rounds of one file in one turn, though nothing failed."""
    for _ in range(7):
        play.edited()
        play.ran("node clock.js")


def edited_in_one_go(play: Play) -> None:
    """Many edits of one file, one check."""
    for _ in range(9):
        play.edited()
    play.tests(red=True)
    play.edited()


def four_files(play: Play) -> None:
    """A file each time."""
    for path in ("a.py", "b.py", "c.py", "d.py"):
        play.edited(path)
        play.tests(red=True)


def edited_turn_by_turn(play: Play) -> None:
    """A file that every wish of the human touches, and nothing ever fails."""
    for wish in ("Add a", "Add b", "Add c", "Add d", "Add e"):
        play.edited("CHANGELOG.md")
        play.tests(red=False)
        play.reply("Done.")
        play.prompt(wish)


# -- abandoned_branch -----------------------------------------------------------------------


def went_back(play: Play) -> None:
    """An answer that the human went back from."""
    reply = play.reply("Two ways.")
    play.prompt("Try the first.")
    play.reply("Tried.", usage=(9000, 100))
    play.rewind(reply)
    play.prompt("Try the second.")
    play.reply("Works.")


def went_back_from_work(play: Play) -> None:
    """Calls that the human went back from."""
    reply = play.reply("Two ways.")
    play.prompt("Try the first.")
    play.edited()
    play.rewind(reply)
    play.reply("Works.")


def went_back_twice(play: Play) -> None:
    """Two branches, each given up."""
    reply = play.reply("Two ways.")
    for wish in ("one", "two"):
        play.prompt(wish)
        play.reply("Tried.")
        play.rewind(reply)
    play.reply("Works.")


def worded_anew(play: Play) -> None:
    """A prompt that was sent again in other words, before any answer."""
    reply = play.reply("Two ways.")
    play.prompt("Try teh first.")
    play.rewind(reply)
    play.prompt("Try the first.")
    play.reply("Works.")


def cheap_branch(play: Play) -> None:
    """A branch that cost next to nothing."""
    reply = play.reply("Two ways.")
    play.prompt("Try the first.")
    play.reply("No.", usage=(90, 10))
    play.rewind(reply)
    play.reply("Works.")


def never_went_back(play: Play) -> None:
    """A compaction leaves nothing behind."""
    play.reply("Two ways.", usage=(9000, 100))
    play.compact("Two ways were found.")
    play.reply("Works.")


# -- human_correction -----------------------------------------------------------------------


def said_no(play: Play) -> None:
    """In words."""
    play.reply("Done.")
    play.prompt("No. Do not patch the gap afterwards.")


def said_it_is_wrong(play: Play) -> None:
    """In other words."""
    play.edited()
    play.reply("Done.")
    play.prompt("That's not what I meant, undo it.")


def stopped_and_told(play: Play) -> None:
    """By refusing a call and saying what to do."""
    play.ran("git stash", REFUSED, failed=True)
    play.prompt("Read the files you need.")


def content(play: Play) -> None:
    """Praise."""
    play.reply("Done.")
    play.prompt("Great, no more questions.")


def answered_a_question(play: Play) -> None:
    """A no that answers the agent's question."""
    play.reply("Done. Shall I push it?")
    play.prompt("No, not today.")


def stopped_and_let_go_on(play: Play) -> None:
    """A refusal that nobody explained."""
    play.ran("git stash", REFUSED, failed=True)
    play.prompt("continue")


# -- slow_tool ------------------------------------------------------------------------------


def slow_build(play: Play) -> None:
    """A build of three minutes."""
    play.ran("make all", after=180)


def slow_tests(play: Play) -> None:
    """Tests of half an hour."""
    play.ran("pytest", "9 passed in 1800s", after=1800)


def slow_page(play: Play) -> None:
    """A page that took long."""
    play.did("WebFetch", after=200, url="https://e.x")


def quick_build(play: Play) -> None:
    """A build of a minute."""
    play.ran("make all", after=60)


def slow_subagent(play: Play) -> None:
    """A subagent works long; that is no slow tool."""
    play.did("Task", after=600, prompt="Look around")


def slow_question(play: Play) -> None:
    """A human takes his time."""
    play.did("AskUserQuestion", after=600, question="Which?")


# -- context_blow_up ------------------------------------------------------------------------


def one_huge_result(play: Play) -> None:
    """One output of fifty thousand tokens."""
    play.reply(play.call("big", "Bash", command="cat log"), usage=(10_000, 10))
    play.result("big", "x" * 5000)
    play.reply("It is long.", usage=(60_000, 10))


def one_huge_prompt(play: Play) -> None:
    """A prompt that fills the window."""
    play.reply("Yes?", usage=(10_000, 10))
    play.prompt("y" * 5000)
    play.reply("It is long.", usage=(110_000, 10))


def compacted_again_and_again(play: Play) -> None:
    """Three compactions."""
    for part in ("one", "two", "three"):
        play.reply(part)
        play.compact(part)
    play.reply("Done.")


def grows_slowly(play: Play) -> None:
    """A context that grows by ten thousand tokens a step."""
    for size in range(10, 160, 10):
        play.reply("on", usage=(size * 1000, 10))


def large_from_the_start(play: Play) -> None:
    """A context that is large and stays so."""
    for _ in range(3):
        play.reply("on", usage=(150_000, 10))


def compacted_twice(play: Play) -> None:
    """Two compactions of a long session are nothing."""
    for part in ("one", "two"):
        for size in (20_000, 55_000, 90_000, 125_000):
            play.reply("on", usage=(size, 10))
        play.compact(part)


# -- permission_wait ------------------------------------------------------------------------


def asked_and_waited(play: Play) -> None:
    """Two minutes until the human allowed it."""
    play.reply(play.call("p", "Bash", command="git push"))
    play.add("waiting", {"waiting_for": "approval", "tool_use_id": "p"}, moves=False)
    play.wait(120)
    play.result("p", "main -> main")
    play.reply("Pushed.")


def plan_and_waited(play: Play) -> None:
    """A plan that lay there for ten minutes."""
    play.did("ExitPlanMode", after=600, plan="1. Fix it")


def look_that_was_held_up(play: Play) -> None:
    """A look takes no time: somebody was asked."""
    play.ran("git diff clock.py", after=300)


def allowed_at_once(play: Play) -> None:
    """Ten seconds."""
    play.reply(play.call("p", "Bash", command="git push"))
    play.add("waiting", {"waiting_for": "approval", "tool_use_id": "p"}, moves=False)
    play.wait(10)
    play.result("p", "main -> main")
    play.reply("Pushed.")


def long_build(play: Play) -> None:
    """A build takes its time by itself, and so does sleep."""
    play.ran("make all", after=300)
    play.ran("sleep 200; git status", after=200)


def human_away(play: Play) -> None:
    """Nobody waits between an answer and the next prompt."""
    play.reply("Done.")
    play.wait(3600)
    play.prompt("And now the docs.")
    play.reply("Done.")


STORIES: dict[Kind, tuple[Sequence[Story], Sequence[Story]]] = {
    "repeated_error": (
        (same_exception, same_tool_error, same_missing_file),
        (twice_only, three_errors, nameless),
    ),
    "retry_loop": (
        (same_command, same_fetch, five_red_runs),
        (mended_at_the_third, three_commands, red_while_fixing),
    ),
    "flaky_test": (
        (red_then_green, green_then_red, flips_often),
        (mended, other_tests, something_ran),
    ),
    "untested_edit": (
        (edited_after_green, edited_after_red_and_left, edited_and_committed),
        (run_after_the_edit, prose_after_green, never_tested),
    ),
    "rework": (
        (edited_after_red, edited_after_corrections, churned),
        (edited_in_one_go, four_files, edited_turn_by_turn),
    ),
    "abandoned_branch": (
        (went_back, went_back_from_work, went_back_twice),
        (worded_anew, cheap_branch, never_went_back),
    ),
    "human_correction": (
        (said_no, said_it_is_wrong, stopped_and_told),
        (content, answered_a_question, stopped_and_let_go_on),
    ),
    "slow_tool": (
        (slow_build, slow_tests, slow_page),
        (quick_build, slow_subagent, slow_question),
    ),
    "context_blow_up": (
        (one_huge_result, one_huge_prompt, compacted_again_and_again),
        (grows_slowly, large_from_the_start, compacted_twice),
    ),
    "permission_wait": (
        (asked_and_waited, plan_and_waited, look_that_was_held_up),
        (allowed_at_once, long_build, human_away),
    ),
}
PLANTED = [(kind, story) for kind, (fires, _) in STORIES.items() for story in fires]
NEAR = [(kind, story) for kind, (_, misses) in STORIES.items() for story in misses]


def test_every_kind_has_its_stories() -> None:
    """Three that fire and three near misses, for each kind there is."""
    assert set(get_args(Kind)) == set(STORIES)
    assert len(FINDERS) == len(STORIES)
    assert {(3, 3)} == {(len(fires), len(misses)) for fires, misses in STORIES.values()}


@pytest.mark.parametrize(("kind", "story"), PLANTED)
def test_what_was_planted_is_found(kind: Kind, story: Story) -> None:
    """The signal is there, with a sentence, a severity and pointers to events of the session."""
    play = Play()
    story(play)
    facts = judged([fact_of(event, line=line) for line, event in enumerate(play.events)])
    session = SessionGraph(f"thence:{play.session}", facts)
    seen = [
        signal for signal in signals(SessionTimeline(readout_of(session))) if signal.kind == kind
    ]
    known = {event.event_id for event in session.events}

    assert seen
    assert all(signal.text and signal.events and signal.ts for signal in seen)
    assert {True} == {pointer in known for signal in seen for pointer in signal.events}


@pytest.mark.parametrize(("kind", "story"), NEAR)
def test_a_near_miss_is_not_found(kind: Kind, story: Story) -> None:
    """What only looks like it makes no signal of that kind."""
    assert [] == [signal for signal in signals_of(story) if signal.kind == kind]


def only(kind: Kind, story: Story) -> Signal:
    """The one signal of a kind in a story."""
    (signal,) = (signal for signal in signals_of(story) if signal.kind == kind)
    return signal


def test_a_signal_is_meaningful_without_its_events() -> None:
    """What was evicted can still be understood from the sentence, the quote and the figures."""
    error = only("repeated_error", same_missing_file)
    branch = only("abandoned_branch", went_back)
    flaky = only("flaky_test", red_then_green)

    assert "No such file or directory" in error.quote
    assert {
        "fingerprint": "shell: cat: <path>: No such file or directory",
        "count": 3,
    } == error.data
    assert ("Try the first.", 9100) == (branch.quote, branch.data["tokens"])
    assert branch.data["ticks"] > 0
    assert ["test_clock.py::test_tick"] == flaky.data["tests"]


def test_a_loop_says_what_it_cost() -> None:
    """The bills from the first try to the last are added up."""
    loop = only("retry_loop", same_command)

    assert (3, 3 * 1280) == (loop.data["count"], loop.data["tokens"])


def test_the_heaviest_of_a_kind_are_kept() -> None:
    """A session that corrects all the time gives so many signals and no more."""

    def grumble(play: Play) -> None:
        for _ in range(20):
            play.reply("Done.")
            play.prompt("No, that is wrong.")

    assert MAX_PER_KIND == sum(signal.kind == "human_correction" for signal in signals_of(grumble))


def test_quotes_are_short_and_of_one_line() -> None:
    """However long the text was, and whatever stood in it."""

    def rave(play: Play) -> None:
        play.reply("Done.")
        play.prompt("No, " + "\x1b[31m\u2028 wrong \n" * 5000)

    (signal,) = signals_of(rave)

    assert len(signal.quote.encode()) <= QUOTE_BYTES
    assert signal.quote.isprintable()


@given(
    st.lists(st.sampled_from([story for _, story in PLANTED]), min_size=1, max_size=3), st.data()
)
def test_the_order_of_facts_changes_nothing(stories: list[Story], data: st.DataObject) -> None:
    """Files come in any order; signals do not depend on it."""
    play = Play()
    for story in stories:
        story(play)
    facts = judged([fact_of(event, line=line) for line, event in enumerate(play.events)])
    shuffled = data.draw(st.permutations(facts))
    uid = f"thence:{play.session}"

    assert signals(SessionTimeline(readout_of(SessionGraph(uid, facts)))) == signals(
        SessionTimeline(readout_of(SessionGraph(uid, shuffled)))
    )
