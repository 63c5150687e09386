"""Labelled sessions, made up: how sessions of each agent end, and what prompts say.

`ENDINGS` are short stories, each with the outcome that somebody who reads the log would give it;
`PROMPTS` are second prompts, each with whether a human stepped in by it. `write` puts a story down
as an agent would write it. Labels were given before the rules were run on them.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from tests.agents import rollouts
from tests.agents.groks import Folder
from tests.agents.transcripts import Script
from tests.agents.transcripts import write as write_claude
from thence.agents.sessions import load
from thence.format.session_graph import SessionGraph
from thence.memory.outcome import Basis, Verdict, judge
from thence.memory.readouts import readout_of
from thence.memory.session_timeline import SessionTimeline
from thence.testing import Draft

AGENTS = ("claude", "codex", "grok", "thence")
REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."
CRASHED = "[Tool call interrupted: the session ended before this call's result was recorded.]"


class Ending(NamedTuple):
    """A story of one session, which agents it is told for, and how it went."""

    label: str
    agents: str
    story: tuple[str, ...]


def case(label: str, agents: str, *story: str) -> Ending:
    """A labelled story; `agents` by their first letters, t for our own journal."""
    return Ending(label, agents, story)


# Verbs of a story: ask, say (an answer), note (words before more work), run, got, bad (a result
# that failed), edit, refuse (the user rejects the open call), deny (a rule does), stop (the user
# interrupts), choose (a tool that asks the user), error (the request fails), crash (the process
# was killed and started again).
ENDINGS = (
    # -- answered -----------------------------------------------------------------------
    case("success", "cxgt", "ask What does the clock do?", "say It counts seconds since start."),
    case(
        "success", "cxgt", "ask Fix the clock.", "edit clock.py", "run pytest -q",
        "got 43 passed in 3.1s", "say Fixed; the tests pass.",
    ),
    case(
        "success", "cx", "ask Fix it and commit.", "edit clock.py", "run git commit -am fix",
        "got [main 1234567] fix", "say Committed.",
    ),
    case(
        "success", "cx", "ask Rename the flag.", "edit cli.py", "say Renamed it everywhere.",
        "ask thanks, that works", "say You're welcome.",
    ),
    case(
        "success", "cg", "ask Make the tests pass.", "run ./run_tests.sh", "bad 2 failed, 3 passed",
        "edit a.py", "run ./run_tests.sh", "got 5 passed", "say All tests pass now.",
    ),
    case(
        "success", "cx", "ask Add a limit.", "edit api.py",
        "say Added the limit. Would you like me to add a test as well?",
    ),
    case("success", "cxg", "ask How do I list files?", "say Use ls. Anything else to look at?"),
    case(
        "success", "c", "ask Why are there two clocks?",
        "say One is for tests. Do you want me to remove it?",
    ),
    case(
        "success", "x", "ask Tidy the imports.", "edit a.py",
        "say I sorted the imports and removed two. Does that help?",
    ),
    case(
        "success", "t", "ask Push it.", "run git push", "got main -> main", "say Pushed to main.",
    ),
    # -- not done -----------------------------------------------------------------------
    case("fail", "cxgt", "ask Push the branch.", "run git push", "bad fatal: no remote",
         "say I could not push the branch: there is no remote."),
    case("fail", "cx", "ask Make the tests pass.", "edit a.py", "run scripts/test-api.sh",
         "bad 2 failed, 3 passed", "say I changed the parser."),
    case("fail", "cxg", "ask Remove the old data.", "run rm -rf data", "deny",
         "say The folder was left alone."),
    case("fail", "cg", "ask Fix the flaky test.", "edit a.py", "run bin/test",
         "bad 1 failed, 3 passed", "say The test still fails on my side."),
    case("fail", "cx", "ask Summarise the log.", "error API Error: 529 overloaded"),
    case("fail", "c", "ask Upgrade the library.", "run npm install", "bad npm ERR! code E404",
         "say It is blocked: the registry does not have that version."),
    case("fail", "x", "ask Make check pass.", "run make check", "bad make: *** [check] Error 1",
         "say The linker is missing on this machine, so the check ends early."),
    # -- left by the user ---------------------------------------------------------------
    case("abandoned", "cxg", "ask Rebuild the index.", "run make index", "stop"),
    case("abandoned", "c", "ask Explain all modules.", "note The first module holds", "stop"),
    case("abandoned", "ct", "ask Delete the cache.", "run rm -rf cache", "refuse", "stop"),
    case("abandoned", "x", "ask Explain the code.", "note I will start with the parser.", "stop"),
    case("abandoned", "t", "ask Explain the code.", "note The parser reads", "stop"),
    # -- the agent asks -----------------------------------------------------------------
    case("waiting", "cxgt", "ask Fix the clock.",
         "say There are two clocks. Which of them do you mean?"),
    case("waiting", "cx", "ask Clean up the branches.", "run git branch", "got a\nb",
         "say I found two stale branches.\n\nShall I delete both?"),
    case("waiting", "ct", "ask Plan the move.", "choose Which database?"),
    case("waiting", "g", "ask Deploy it.", "note I need a target.",
         "say To which environment should I deploy it, staging or production?"),
    case("waiting", "c", "ask Add login.",
         "say Before I start: do you use sessions or tokens **in production?**"),
    case("waiting", "x", "ask Write the report.",
         "say I need two facts from you:\n1. Who reads it?\n2. Until when is it due?"),
    # -- cut in mid-turn ----------------------------------------------------------------
    case("unknown", "cxgt", "ask Run the long job.", "run sleep 300"),
    case("unknown", "cxgt", "ask Fix the clock."),
    case("unknown", "cxgt", "ask Look around.", "run ls", "got a.py"),
    case("unknown", "cx", "ask Make it faster.", "edit a.py"),
    case("unknown", "cx", "ask Test it.", "run pytest", "got 43 passed in 3.1s"),
    case("unknown", "cxg", "ask Fix the parser.", "note I will read the parser first."),
    case("unknown", "x", "ask First.", "say Done.", "ask Second.", "note Looking at the second."),
    case("unknown", "c", "ask Run it.", "run sleep 300", "crash"),
    case("unknown", "g", "ask Run it.", "run sleep 300", "crash"),
    # -- nothing to see -----------------------------------------------------------------
    case("unknown", "ct"),
    case("unknown", "cx", "ask Add rate limiting.", "say I'll add rate limiting to the API."),
    case("unknown", "c", "ask Install it.", "say Run pip install it.",
         "ask error: externally-managed-environment", "say Use a virtual environment."),
    case("unknown", "c", "ask Delete the cache.", "run rm -rf cache", "refuse",
         "say I left the cache alone."),
    # -- hard ones: a reader knows better than the rules --------------------------------
    case("fail", "c", "ask Do all three steps.", "edit a.py", "say Step one is in place."),
    case("waiting", "x", "ask Fix the import.",
         "say I fixed nothing yet. Tell me which of the two modules you want to keep."),
    case("fail", "g", "ask Add the export button.", "say The button already exists in the menu.",
         "ask it does not, look again", "say It is in the menu."),
)  # fmt: skip

PROMPTS = (
    # -- corrections --------------------------------------------------------------------
    (True, "No, use the other file."),
    (True, "that's not what I meant"),
    (True, "You forgot the tests."),
    (True, "you deleted the wrong function"),
    (True, "Why did you remove the comment?"),
    (True, "don't touch the config"),
    (True, "revert that"),
    (True, "I said the left one"),
    (True, "hmm, that isn't right"),
    (True, "Use a set instead."),
    (True, "Sorry, but that is the wrong branch"),
    (True, "It should return 12, not 11."),
    (True, "i didn't ask for a new file"),
    (True, "Stop, that is production."),
    (True, "not the header, the footer"),
    (True, "actually, keep the old name"),
    (True, "You only fixed one of the two calls"),
    (True, "ok but you haven't updated the docs"),
    # -- reports of faults --------------------------------------------------------------
    (True, "I still get the same error"),
    (True, "still broken"),
    (True, "The build fails on Windows."),
    (True, "now the login page crashes"),
    (True, "it doesn't compile"),
    (True, "When I click save nothing happens"),
    (True, "There's a bug in the new parser"),
    (True, "The total is wrong"),
    (True, "I'm getting a 500 from /login"),
    (True, "TypeError: cannot read properties of undefined (reading 'id')"),
    (True, "thanks, but the button isn't working"),
    (True, "Why does the second test fail now?"),
    (True, "tests are failing on CI"),
    (True, "the chart looks empty"),
    (True, "this broke the release script"),
    (True, "After your change the page hangs"),
    # -- neither ------------------------------------------------------------------------
    (False, "Now add tests."),
    (False, "thanks!"),
    (False, "Great, commit it."),
    (False, "What does this function do?"),
    (False, "go on"),
    (False, "Add a test that fails when the input is empty."),
    (False, "Handle the case where the server crashes."),
    (False, "Does it still work on Python 3.11?"),
    (False, "Rename the class to Clock."),
    (False, "Make sure the build does not need the network."),
    (False, "How do I run it?"),
    (False, "yes"),
    (False, "Write a page on known bugs."),
    (False, "Next: the export."),
    (False, "can you explain the error handling"),
    (False, "Looks good, push it."),
    (False, "Update the changelog and release 1.4."),
    (False, "Please also cover the empty list."),
    (False, "Why is there a queue?"),
    (False, "The header should be blue."),
    # -- hard ones ----------------------------------------------------------------------
    (True, "hmm"),
    (True, "Look at the left side of the picture again, carefully."),
)  # fmt: skip


# -- writers --------------------------------------------------------------------------------


def write(agent: str, home: Path, story: Iterable[str]) -> Path:
    """Write a story as an agent would; return the path to load."""
    steps = [step.partition(" ")[::2] for step in story]
    return _WRITERS[agent](home, steps)


def read(agent: str, home: Path, story: Iterable[str]) -> SessionGraph:
    """Return a story as it is read back."""
    return load(write(agent, home, story)).graph


Steps = list[tuple[str, str]]


def _claude(home: Path, steps: Steps) -> Path:
    script = claude(steps)
    return write_claude(home, script) / f"{script.session}.jsonl"


def claude(steps: Steps) -> Script:  # noqa: C901 - a branch per verb
    """Return a story as Claude Code writes it."""
    script = Script(cwd="/home/dev/project")
    call = ""
    for at, (verb, text) in enumerate(steps):
        if verb == "ask":
            script.user(text)
        elif verb == "say":
            script.say(text)
        elif verb == "note":
            script.reply([{"type": "text", "text": text}], stop="tool_use")
        elif verb in ("run", "choose"):
            call = f"c{at}"
            tool = "Bash" if verb == "run" else "AskUserQuestion"
            script.call(call, tool, command=text)
        elif verb == "edit":
            script.call(f"e{at}", "Edit", file_path=text, old_string="a", new_string="b")
            script.result(f"e{at}", "ok")
        elif verb in ("got", "bad"):
            script.result(call, text, wrong=verb == "bad")
        elif verb in ("refuse", "deny", "crash"):
            texts = {"refuse": REJECTED, "deny": "This command requires approval"}
            script.result(call, texts.get(verb, CRASHED), wrong=True)
        elif verb == "stop":
            script.user([{"type": "text", "text": "[Request interrupted by user]"}])
        elif verb == "error":
            block = [{"type": "text", "text": text}]
            script.reply(block, model="<synthetic>", isApiErrorMessage=True)
    return script


def _codex(home: Path, steps: Steps) -> Path:  # noqa: C901 - a branch per verb
    lines, call, turn, spent = [rollouts.meta()], "", 0, 0
    for at, (verb, text) in enumerate(steps):
        spent += 10
        bill = rollouts.counted(rollouts.tokens(100 * spent, spent), rollouts.tokens(100, 10))
        if verb == "ask":
            turn += 1
            lines += [rollouts.started(f"t{turn}"), rollouts.user(text)]
            lines += [rollouts.event("user_message", message=text)]
        elif verb == "say":
            lines += [rollouts.assistant(text), bill, rollouts.completed(f"t{turn}")]
        elif verb == "note":
            lines += [rollouts.assistant(text)]
        elif verb == "run":
            call = f"c{at}"
            lines += [rollouts.call("shell", call, command=["bash", "-lc", text]), bill]
        elif verb == "edit":
            patch = f"*** Begin Patch\n*** Update File: {text}\n@@\n-a\n+b\n*** End Patch"
            lines += [rollouts.call("shell", f"e{at}", command=["apply_patch", patch]), bill]
            lines += [rollouts.output(f"e{at}", _shell_output("Success. Updated", 0))]
        elif verb in ("got", "bad"):
            lines += [rollouts.output(call, _shell_output(text, int(verb == "bad")))]
        elif verb == "deny":
            lines += [rollouts.output(call, "exec command rejected by policy")]
        elif verb == "stop":
            if call:
                lines += [rollouts.output(call, "Wall time: 0.5 seconds\naborted by user")]
            lines += [rollouts.event("turn_aborted", turn_id=f"t{turn}", reason="interrupted")]
        elif verb == "error":
            lines += [rollouts.event("task_complete", turn_id=f"t{turn}", error={"message": text})]
    return rollouts.Home(home).write(lines)


def _shell_output(text: str, code: int) -> str:
    return f"Exit code: {code}\nWall time: 0.1 seconds\nOutput:\n{text}"


def _grok(home: Path, steps: Steps) -> Path:
    folder = Folder(home)
    folder.summary()
    call, prompts = "", 0
    for at, (verb, text) in enumerate(steps):
        if verb == "ask":
            folder.prompt(text, prompts)
            prompts += 1
        elif verb == "say":
            folder.say(text)
            folder.done()
        elif verb == "note":
            folder.say(text)
        elif verb == "run":
            call = f"c{at}"
            folder.call(call, command=text)
        elif verb == "edit":
            folder.call(f"e{at}", "search_replace", file_path=text, old_string="a", new_string="b")
            folder.result(f"e{at}", "ok")
        elif verb in ("got", "bad"):
            folder.result(call, text, int(verb == "bad"))
        elif verb == "deny":
            raw = {"output_for_prompt": "Tool `run` was not executed: Denied by policy"}
            folder.update(
                "tool_call_update", toolCallId=call, status="failed", rawOutput=raw,
                content=[{"type": "content", "content": {
                    "type": "text", "text": "Tool `run` was not executed: Denied by policy"}}],
            )  # fmt: skip
        elif verb in ("stop", "crash"):
            folder.done(0, "cancelled" if verb == "stop" else "interrupted")
    return folder.path


def _own(home: Path, steps: Steps) -> Path:
    draft = Draft()
    draft.header(cwd="/home/dev/project")
    call = ""
    for at, (verb, text) in enumerate(steps):
        if verb == "ask":
            draft.prompt(text)
        elif verb == "say":
            draft.reply(text)
        elif verb == "note":
            draft.reply(text, stop_reason="tool_use")
        elif verb in ("run", "choose"):
            call = f"c{at}"
            tool = "Bash" if verb == "run" else "AskUserQuestion"
            draft.reply(draft.call(call, tool, command=text))
        elif verb == "edit":
            draft.reply(draft.call(f"e{at}", "Edit", file_path=text, old_string="a"))
            draft.result(f"e{at}", "ok")
        elif verb in ("got", "bad"):
            draft.result(call, text, failed=verb == "bad")
        elif verb == "refuse":
            draft.result(call, REJECTED, failed=True)
        elif verb == "stop":
            draft.add("interrupted", {"by": "user"})
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{draft.session}.jsonl"
    path.write_bytes(draft.bytes())
    return path


_WRITERS = {"claude": _claude, "codex": _codex, "grok": _grok, "thence": _own}
_LETTERS = {"c": "claude", "x": "codex", "g": "grok", "t": "thence"}


def cases() -> list[tuple[str, Ending]]:
    """All labelled endings, once for each agent that they are told for."""
    return [(_LETTERS[letter], ending) for ending in ENDINGS for letter in ending.agents]


def table(counts: Counter[tuple[str, str]]) -> str:
    """A confusion table: a row per label, a column per verdict."""
    names = sorted({name for pair in counts for name in pair})
    width = max(map(len, names)) + 2
    lines = ["label".ljust(width) + "".join(name.rjust(width) for name in names)]
    for label in names:
        row = "".join(f"{counts[label, verdict]}".rjust(width) for verdict in names)
        lines.append(label.ljust(width) + row)
    return "\n".join(lines)


# -- measuring ------------------------------------------------------------------------------

LABELS = Path(__file__).parent / "labels.tsv"


class Label(NamedTuple):
    """How a real session went, by somebody who read it."""

    path: str
    uid: str
    label: str
    reason: str

    @property
    def is_held_back(self) -> bool:
        """Whether nothing was tuned on this session."""
        digest = blake2b(self.uid.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % 3 == 0


class Judged(NamedTuple):
    """A labelled session and its verdict."""

    label: str
    verdict: Verdict


def labels() -> list[Label]:
    """The labelled real sessions."""
    lines = LABELS.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [Label(*row) for row in rows[1:]]


def judge_real(data: Path, some: Iterable[Label]) -> list[Judged]:
    """Judge labelled real sessions."""
    out = []
    for labelled_log in some:
        session = load(data / labelled_log.path).graph
        assert labelled_log.uid == session.uid
        out.append(Judged(labelled_log.label, judge(SessionTimeline(readout_of(session)))))
    return out


def judge_made_up(home: Path) -> list[Judged]:
    """Judge the made-up sessions."""
    return [
        Judged(
            ending.label,
            judge(SessionTimeline(readout_of(read(agent, home / f"{at}", ending.story)))),
        )
        for at, (agent, ending) in enumerate(cases())
    ]


def confusion(some: Iterable[Judged]) -> Counter[tuple[str, str]]:
    """Count labels and verdicts."""
    return Counter((judged.label, judged.verdict.outcome) for judged in some)


def calibration(some: Iterable[Judged]) -> dict[Basis, tuple[int, int]]:
    """Count by basis how many verdicts are right, and how many there are."""
    out: dict[Basis, tuple[int, int]] = {}
    for label, verdict in some:
        right, all_ = out.get(verdict.basis, (0, 0))
        out[verdict.basis] = right + (label == verdict.outcome), all_ + 1
    return out


def stepped_in(agent: str, home: Path, *prompts: str) -> int:
    """Count the interventions in a session with an answer to each prompt."""
    story = ["ask Fix it.", "edit a.py", "say Done, it is fixed."]
    for prompt in prompts:
        story += [f"ask {prompt}", "say Done."]
    derived = read(agent, home, story).derived
    return sum(event.kind == "human_intervention" for event in derived)


def judge_prompts(home: Path) -> Counter[tuple[str, str]]:
    """Count labels and verdicts of the labelled prompts, over all agents."""
    names = {True: "stepped in", False: "not"}
    return Counter(
        (names[label], names[bool(stepped_in(agent, home / f"{agent}{at}", prompt))])
        for agent in AGENTS
        for at, (label, prompt) in enumerate(PROMPTS)
    )


def report(data: Path) -> str:
    """Return what was measured, as text; real sessions only where there are any."""
    with tempfile.TemporaryDirectory() as folder:
        made_up = judge_made_up(Path(folder) / "endings")
        prompts = judge_prompts(Path(folder) / "prompts")
    real = judge_real(data, labels()) if data.is_dir() else []
    counts = sorted(calibration([*made_up, *real]).items())
    parts = [
        f"made-up sessions\n{table(confusion(made_up))}",
        f"made-up prompts\n{table(prompts)}",
        f"real sessions\n{table(confusion(real)) if real else 'not here'}",
        "calibration, by basis: right, judged",
        "\n".join(f'    "{basis}": {pair},' for basis, pair in counts),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(report(Path(__file__).parents[2].parent / "shared" / "data"))
