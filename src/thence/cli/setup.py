"""`thence setup`: everything that one person needs, installed once, and undone exactly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from thence.cli import hook_install, launcher, options, setup_parts, wiring
from thence.cli.columns import TextCell, tell, tilde
from thence.cli.file_changes import NotAnswered, show_diff
from thence.cli.terminal import as_json, clean, say
from thence.errors import ThenceError

if TYPE_CHECKING:
    from thence.cli.setup_parts import PartChange, SetupPart
    from thence.format.records import JSON


@click.command(
    "setup",
    help="Set everything up: hooks, brief, MCP, daily import, completion. Shows each change and"
    " asks; the viewer as a service comes with --service.",
    epilog="--remove undoes what setup installed, and nothing else.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask; the service only with --service.")
@click.option("-n", "--dry-run", is_flag=True, help="Show the changes; write nothing.")
@click.option("--remove", is_flag=True, help="Undo what setup installed.")
@click.option("--service", is_flag=True, help="Also run the viewer from login on.")
@click.option(
    "--without",
    type=click.Choice(setup_parts.NAMES),
    multiple=True,
    help="Leave this part out; may be repeated.",
)
@options.as_json
def command(
    *, yes: bool, dry_run: bool, remove: bool, service: bool, without: tuple[str, ...], json: bool
) -> int:
    """Install the parts that are wanted, or remove those that were installed."""
    if not (yes or dry_run) and (json or not sys.stdin.isatty()):
        raise NotAnswered(
            "nothing was changed: there is no terminal to ask on",
            hint="add --yes to confirm, or --dry-run to see the changes",
        )
    run = _Run(yes=yes, dry_run=dry_run, json=json)
    chosen = [part for part in setup_parts.PARTS if part.name not in without]
    if not json:
        run.show_agents()
    if remove:
        run.remove(chosen)
    else:
        run.install([part for part in chosen if part.name != "service" or service or not yes])
    if json:
        say(as_json({"dry_run": dry_run, "removed": remove, "changes": run.report}))
    return 0


class _Run:
    """One run of setup: what is asked, shown, done and remembered."""

    def __init__(self, *, yes: bool, dry_run: bool, json: bool) -> None:
        self._yes, self._dry_run, self._json = yes, dry_run, json
        self._home = wiring.home()
        self._installed = setup_parts.read_record(self._home)
        self.report: list[dict[str, JSON]] = []

    def show_agents(self) -> None:
        """Print which agents are on this machine."""
        known = wiring.agents()
        here = [agent.label for agent in known.values() if wiring.root_of(agent).is_dir()]
        tell([f"agents found: {', '.join(here) or 'none'}", ""])

    def install(self, chosen: Sequence[SetupPart]) -> None:
        """Install parts, one after another: two of them may change the same file."""
        for part in chosen:
            self._say_heading(part.purpose)
            planned = self._plan(part, part.whose, part.install)
            if planned is not None and "launchd" in {whose for whose, _ in planned.changes}:
                self._say("by launchd (not tested on macOS)")
            if planned is not None and self._do(part, planned, f"Set up {part.name}?"):
                whose = part.whose()
                changed = [name for name, _ in planned.due if name in whose]
                before = self._installed.get(part.name, [])
                self._installed[part.name] = list(dict.fromkeys([*before, *changed]))
                setup_parts.record(self._home, self._installed)
            if part.name == "brief" and planned is not None:
                self._say(*hook_install.without_brief(wiring.agents_here("hooks")))
            self._say("")
        if self._dry_run:
            self._say("Nothing was changed. thence setup asks for each part; --yes does all.")
            return
        if setup_parts.is_launcher_used():
            launcher.ensure(self._home)
        self._say("thence doctor checks all of it; thence setup --remove undoes it.")

    def remove(self, chosen: Sequence[SetupPart]) -> None:
        """Undo what was installed, the last part first."""
        if not self._installed:
            self._say("setup has installed nothing here; thence uninstall removes hooks and more")
            return
        for part in reversed(chosen):
            whose = self._installed.get(part.name, [])
            if not whose:
                continue
            self._say_heading(f"Remove {part.name}")
            planned = self._plan(part, whose.copy, part.remove)
            if planned is not None and self._do(part, planned, f"Remove {part.name}?"):
                del self._installed[part.name]
                setup_parts.record(self._home, self._installed)
            self._say("")
        if not self._dry_run and not setup_parts.is_launcher_used():
            launcher.remove(self._home)

    def _plan(
        self,
        part: SetupPart,
        whose: Callable[[], list[str]],
        plan: Callable[[list[str]], PartChange],
    ) -> PartChange | None:
        """Return the changes of a part; None, and words, where it is not possible here."""
        try:
            return plan(whose())
        except ThenceError as error:  # one agent's settings do not keep the others from theirs
            self._say(f"{part.name}: left out: {clean(error.message)}")
            if error.hint:
                self._say(f"  {clean(error.hint)}")
            self.report.append({"part": part.name, "error": error.message, "done": False})
            return None

    def _do(self, part: SetupPart, planned: PartChange, question: str) -> bool:
        """Show changes, ask, and make them; return whether they were made, or need not be."""
        if not planned.due:
            self._say(f"{part.name}: nothing to change")
            return not self._dry_run and part.name in self._installed
        for _, change in planned.due if not self._json else ():
            show_diff(change)
        is_wanted = not self._dry_run and self._ask(part, question)
        if is_wanted:
            planned.carry_out()
        if not self._dry_run:
            self._say(f"{part.name}: {'done' if is_wanted else 'left out'}")
        for whose, change in planned.due:
            self.report.append(
                {
                    "part": part.name,
                    "whose": whose,
                    "path": str(change.path),
                    "diff": "\n".join(change.diff()),
                    "done": is_wanted,
                }
            )
        return is_wanted

    def _ask(self, part: SetupPart, question: str) -> bool:
        """Ask whether a part is wanted, unless that was answered before."""
        return self._yes or click.confirm(question, default=part.name != "service")

    def _say_heading(self, text: str) -> None:
        self._say(TextCell(text, bold=True).paint(text))

    def _say(self, *lines: str) -> None:
        if not self._json:
            tell([tilde(line) for line in lines], pager=False)
