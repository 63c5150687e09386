"""What each way out of a store says of a session, as numbers that can be compared.

A door is a command, a page, an answer of the API or of MCP, or a file of an export. `Numbers` asks
all of them and says of each number which door gives what.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from tests.agreement.homes import Home
from tests.cli.desk import Ran, in_process
from tests.serve.conftest import House
from thence.format.figures import format_duration, money, short
from thence.memory.search import OUTCOME_NAMES
from thence.memory.session_status import TURN_WORDS
from thence.serve.questions import Questions

Answers = Iterator[tuple[str, str, Any]]
"""A number, the door that gives it, and its value."""

WIDE: Final = 400
"""Columns of a terminal on which no head of a session is cut."""

_ENDS: Final = {words: turn for turn, words in TURN_WORDS.items()}
"""How a session ends, by the words of pages and terminals."""

DOORS: Final = {
    "turns": ("ls", "parquet", "show --json", "show", "digest", "api digest", "page", "api"),
    "outcome": ("ls", "parquet", "show --json", "digest", "api digest", "page", "api", "mcp"),
    "end": ("ls", "parquet", "show --json", "show", "show --stats", "page", "api", "mcp"),
    "running": ("ls", "page", "api"),
    "title": ("ls", "parquet", "show --json", "show", "digest", "api digest", "page", "api", "mcp"),
    "events": (
        *("ls", "parquet", "show --json", "digest", "api digest", "page", "api", "api events"),
        "mcp",
    ),
    "discarded events": ("ls", "parquet", "show --json", "show", "digest", "api digest", "api"),
    "discarded branches": ("show", "digest", "api digest", "page"),
    "discarded money": ("ls", "parquet", "cost", "digest", "api digest", "page", "api"),
    "money": ("ls", "parquet", "cost", "digest", "api digest", "api"),
    "cost": ("ls", "show", "page", "api", "mcp", "mcp costs"),
    "is a minimum": ("ls", "cost", "digest", "api digest", "api"),
    "unpriced": ("ls", "parquet", "cost", "digest", "api digest", "api"),
    "responses": ("parquet", "cost", "show --json", "digest", "api digest", "page"),
    "tokens": ("parquet", "cost", "show --json"),
    "own tokens": ("ls", "show --json", "api"),
    "short tokens": ("cost", "page"),
    "seconds": ("ls", "parquet", "show --json", "digest", "api digest", "api"),
    "duration": ("ls", "page"),
    "retries": ("ls", "parquet", "show --json", "digest", "api digest", "api"),
    "redactions": ("store", "share", "export"),
}
"""Each number, and the doors that give it."""

_BRANCH: Final = re.compile(r"^[│├ ]*├─[╮╳]  (discarded branch|rolled back)\b")
"""How a discarded branch begins on a terminal."""


class Numbers:
    """All doors of one home; its store must lie in a folder `.thence`."""

    def __init__(self, home: Home) -> None:
        self._env = home.variables | {"COLUMNS": str(WIDE), "PATH": os.environ["PATH"]}
        self.house = House(home.path.parent)
        self.uids = [row.session.session_uid for row in self.house.store.sessions()]
        self._ls = {row["session_uid"]: row for row in self._json("ls", "-n", "99999")}
        costs = self._json("cost", "--by", "session", "-n", "99999")
        self._costs = {part["key"]: part for part in costs["parts"]}
        table = self._json("sql", "SELECT * FROM sessions", "--limit", "0")
        self._parquet = {row["session_uid"]: row for row in table}
        self._questions = Questions(self.house.store, lambda _text, _uid: {})
        self._told_costs = dict(self._costs_told())

    def _costs_told(self) -> Iterator[tuple[str, str]]:
        """Yield what agents are told of the costs of sessions, as far as names tell them apart."""
        asked = {"by": "session", "since": "9999d", "limit": 50}
        values = self._questions.answer("costs", asked)
        for cost, name in re.findall(r"^(.+) in 1 sessions.*: (\S+)$", values, re.MULTILINE):
            named = [uid for uid in self.uids if uid.startswith(name)]
            if len(named) == 1:
                yield named[0], _amount(cost)

    def close(self) -> None:
        """Let go of the store."""
        self.house.close()

    def run(self, *words: str) -> Ran:
        """Run a command in this process."""
        return in_process(*words, env=self._env)

    def _json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").out)

    def of(self, uid: str) -> dict[str, dict[str, Any]]:
        """Return what each door says of a session, by number and door."""
        out: dict[str, dict[str, Any]] = defaultdict(dict)
        read = (self._lists, self._show, self._digest, self._page, self._api, self._mcp)
        for values in (*read, self._sent):
            for number, door, value in values(uid):
                out[number][door] = value
        return out

    # -- the doors ----------------------------------------------------------------------

    def _lists(self, uid: str) -> Answers:
        """Yield what ls, cost and the Parquet export say."""
        yield from _row("ls", self._ls[uid])
        row = self._parquet[uid]
        usd = [row[f"{place}_usd"] for place in ("live", "dead", "side")]
        yield from (
            ("turns", "parquet", row["turns"]),
            ("outcome", "parquet", row["outcome"]),
            ("end", "parquet", row["turn"]),
            ("events", "parquet", row["events"]),
            ("discarded events", "parquet", row["dead_events"]),
            ("discarded money", "parquet", money(ticks_of(row["dead_usd"]))),
            ("money", "parquet", [ticks_of(part) for part in usd]),
            ("title", "parquet", row["title"]),
            ("seconds", "parquet", _seconds(row["wall_s"])),
            ("retries", "parquet", row["retries"]),
            ("unpriced", "parquet", row["unpriced_tokens"]),
            ("responses", "parquet", row["responses"]),
            ("tokens", "parquet", _tokens(row, "_tokens")),
        )
        if (part := self._costs.get(uid)) is not None:
            usd = [part[f"{place}_usd"] for place in ("live", "dead", "subagents")]
            yield "money", "cost", [ticks_of(dollars) for dollars in usd]
            yield "discarded money", "cost", money(ticks_of(part["dead_usd"]))
            yield "unpriced", "cost", part["unpriced_tokens"]
            yield "responses", "cost", part["responses"]
            yield "tokens", "cost", [part["tokens"][kind] for kind in ("input", "output", "cache")]
            yield "is a minimum", "cost", part["is_lower_bound"]
            yield "short tokens", "cost", _short(part["tokens"])

    def _show(self, uid: str) -> Answers:
        """Yield what the terminal says: its page, its events, its count of the file."""
        values = self._json("show", uid)
        session, spent = values["session"], values["spent"]
        yield "turns", "show --json", session["cost"]["turns"]
        yield "outcome", "show --json", session["outcome"]
        yield "end", "show --json", values["turn"]["state"]
        yield "seconds", "show --json", _seconds(session["cost"]["wall_clock_s"])
        yield "title", "show --json", values["title"]
        yield "events", "show --json", sum(values["counts"].values())
        yield "discarded events", "show --json", _discarded(values["counts"])
        yield "responses", "show --json", spent.get("responses", 0)
        yield "retries", "show --json", session["cost"]["retries"]
        yield "tokens", "show --json", _spent_tokens(spent)
        yield "own tokens", "show --json", _own_tokens(session["cost"])
        if (stats := self.run("show", uid, "--stats")).code == 0:  # of a log that is there
            groups = re.search(r"^turn +(.+)$", stats.out, re.MULTILINE)
            if groups:  # the reader of its agent is installed
                yield "end", "show --stats", _end(groups[1])
        lines = self.run("show", uid).lines
        yield from _terminal(lines)
        opened = self.run("show", uid, "--branch", "all").lines
        yield "discarded branches", "show", sum(bool(_BRANCH.search(line)) for line in opened)

    def _digest(self, uid: str) -> Answers:
        """Yield what the digest says, printed and asked for."""
        for door, digest in (
            ("digest", self._json("digest", uid)),
            ("api digest", self.house.ask(f"/api/sessions/{quote(uid, safe='')}/digest").json),
        ):
            cost = digest["cost"]
            parts = [cost[place] for place in ("live", "dead", "side")]
            yield "turns", door, digest.get("turns") or 0
            yield "outcome", door, digest["outcome"]
            yield "title", door, digest.get("title")
            yield "events", door, digest.get("events") or 0
            yield "discarded events", door, _discarded(digest.get("states") or {})
            yield "discarded branches", door, len(digest.get("branches") or ())
            yield "discarded money", door, money(cost["dead"].get("ticks") or 0)
            yield "money", door, [part.get("ticks") or 0 for part in parts]
            yield "unpriced", door, cost.get("unpriced") or 0
            yield "responses", door, cost.get("responses") or 0
            yield "seconds", door, _seconds(digest["seconds"])
            yield "retries", door, digest.get("retries") or 0
            yield "is a minimum", door, bool(cost.get("lower_bound") or cost.get("unpriced"))

    def _page(self, uid: str) -> Answers:
        """Yield what the viewer's page says."""
        page = self.house.ask(f"/sessions/{quote(uid, safe=':')}?end=1").body.decode()
        head = _between(page, 'id="s-facts"', "</div>")
        if groups := re.search(r"<b>([\d,]+)</b> turns?,", head):
            yield "turns", "page", _count(groups[1])
        if groups := re.search(r"<b>([\d,]+)</b> events?", head):
            yield "events", "page", _count(groups[1])
        word = _text(_between(head, "<b", "</b>").partition(">")[2])
        if word in OUTCOME_NAMES.values():
            names = {name: outcome for outcome, name in OUTCOME_NAMES.items()}
            yield "outcome", "page", names[word]
        yield "running", "page", word in ("running", "needs you")
        if groups := re.search(r">([^<]+) discarded</span>", head):
            yield "discarded money", "page", groups[1]
        else:
            yield "discarded money", "page", money(0)
        yield "title", "page", _text(_between(page, '<h1 id="s-title" dir="auto">', "</h1>"))
        cost = _between(page, '<div id="why-cost"', "</div>")
        if groups := re.search(r"for ([\d,]+) responses", cost):
            yield "responses", "page", _count(groups[1])
        yield "cost", "page", _text(_between(cost, "<b>", " for "))
        if groups := re.search(r"Tokens: (.*?)(?:\. |<|;)", cost):
            kinds = dict(part.rsplit(" ", 1) for part in groups[1].split(", ") if " " in part)
            yield "short tokens", "page", [kinds.get(name, "0") for name in ("input", "output")]
        wall = round(self._ls[uid]["cost"]["wall_clock_s"] * 1000)
        if groups := re.search(r'title="([^"]+) from start to end"', head):
            yield "duration", "page", groups[1]
            yield "duration", "ls", format_duration(wall)
        jump = _between(page, 'class="jump"', "</div>")
        if groups := re.search(r"Discarded <b>([\d,]+)</b>", jump):
            yield "discarded branches", "page", _count(groups[1])
        if 'class="tail ' in page:
            word = _text(
                _between(page[page.index('class="tail ') :], "<b", "</b>").partition(">")[2]
            )
            yield "end", "page", _end(word)

    def _api(self, uid: str) -> Answers:
        """Yield what the API says."""
        path = f"/api/sessions/{quote(uid, safe='')}"
        yield from _row("api", self.house.ask(path).json["session"])
        yield "events", "api events", self.house.ask(f"{path}/events?limit=1").json["total"]

    def _mcp(self, uid: str) -> Answers:
        """Yield what agents are told."""
        values = self._questions.answer("outline", {"session": uid})
        facts = dict(re.findall(r"^(title|outcome): (.*)$", values, re.MULTILINE))
        yield "title", "mcp", facts["title"]
        if (cost := self._told_costs.get(uid)) is not None:
            yield "cost", "mcp costs", cost
        if "outcome" in facts:
            names = {name: outcome for outcome, name in OUTCOME_NAMES.items()}
            word = facts["outcome"].partition(" (")[0]
            yield "outcome", "mcp", names.get(word, word)
        groups = re.search(r"^cost (.+), (\d+) events, last turn: (.*)$", values, re.MULTILINE)
        if groups:
            yield "events", "mcp", int(groups[2])
            yield "end", "mcp", _end(groups[3])
            yield "cost", "mcp", _amount(groups[1])

    def _sent(self, uid: str) -> Answers:
        """Yield how many secrets were taken out: as it is stored, shared, and exported."""
        yield "redactions", "store", len(self.house.context.row(uid).secrets)
        file = str(self.house.folder / "sent.thence")
        shared = self._json("share", uid, "-o", file, "--force")
        yield "redactions", "share", sum(shared["redacted"].values())
        yield "redactions", "export", self._json("export", uid, "--redacted")["redacted"]


# -- in the words of each ----------------------------------------------------------------------


def _row(door: str, row: Mapping[str, Any]) -> Answers:
    """Yield what a row of a list says, which `ls` and the API give alike."""
    cost, usd = row["cost"], row["usd"]
    ticks = [ticks_of(usd.get(place) or 0) for place in ("live", "dead", "side")]
    is_minimum = bool(row["lower_bound"] or row["unpriced_tokens"])
    yield "turns", door, cost["turns"]
    yield "outcome", door, row["outcome"]
    yield "end", door, row["turn"]
    yield "running", door, row["standing"] in ("running", "waiting")
    yield "events", door, row["events"]
    yield "discarded events", door, _discarded(row["states"])
    yield "money", door, ticks
    yield "discarded money", door, money(ticks[1])
    yield "cost", door, money(sum(ticks), row["unpriced_tokens"], is_bound=bool(row["lower_bound"]))
    yield "title", door, row["title"]
    yield "seconds", door, _seconds(cost["wall_clock_s"])
    yield "retries", door, cost["retries"]
    yield "unpriced", door, row["unpriced_tokens"]
    yield "is a minimum", door, is_minimum
    yield "own tokens", door, _own_tokens(cost)


def _terminal(lines: list[str]) -> Answers:
    """Yield what the page on a terminal says in its head and its last lines."""
    head = " · ".join(lines[1:3])
    if groups := re.search(r"(?:^|· )([\d,]+) turns?\b", head):
        yield "turns", "show", _count(groups[1])
    yield "title", "show", lines[0]
    if groups := re.search(r"(\$[\d.,]+\+?|cost unknown)", lines[1]):
        yield "cost", "show", groups[1].replace("cost unknown", "?")
    last = next((line for line in reversed(lines) if re.match(r"^[●◆○]    \S", line)), "")
    if last:
        word = last[1:].strip().partition("  ")[0]
        yield "end", "show", _end(word)
    foot = next((line for line in lines if line.startswith("events: ")), "")
    found_all = re.findall(r"(discarded|rolled back) ([\d,]+)", foot)
    yield "discarded events", "show", sum(_count(number) for _, number in found_all)


def _end(words: str) -> str:
    """Return how a session ends by what a page or a terminal says, with or without the reason."""
    short_words = words.partition(" · ")[0]
    return _ENDS.get(short_words[:1].lower() + short_words[1:], words)


def _amount(values: str) -> str:
    """Return an amount that was said in words as a screen shows it."""
    if values == "unknown":
        return "?"
    return f"{values.removeprefix('at least ')}{'+' if values.startswith('at least ') else ''}"


def ticks_of(usd: float) -> int:
    """Return money as a store counts it."""
    return round(float(usd) * 1e10)


def _short(tokens: Mapping[str, int]) -> list[str]:
    return [short(tokens[kind]) if tokens[kind] else "0" for kind in ("input", "output")]


def _seconds(value: float) -> float:
    return round(value, 1)


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _discarded(states: Mapping[str, int]) -> int:
    return sum(states.get(state, 0) for state in ("dead", "rolled_back"))


def _tokens(row: Mapping[str, Any], end: str) -> list[int]:
    cache = row[f"cache_write{end}"] + row[f"cache_read{end}"]
    return [row[f"input{end}"], row[f"output{end}"], cache]


def _own_tokens(cost: Mapping[str, int]) -> list[int]:
    """Return tokens by kind of what the session took itself, without its subagents."""
    return [cost[f"{kind}_tokens"] for kind in ("input", "output", "cache")]


def _spent_tokens(spent: Mapping[str, Any]) -> list[int]:
    """Return tokens by kind of all that was billed, subagents too."""
    parts = [spent.get(place) or {} for place in ("live", "dead", "side")]
    kinds = (
        ("input_tokens",),
        ("output_tokens",),
        ("cache_creation_input_tokens", "cache_read_input_tokens"),
    )
    return [sum(part.get(name) or 0 for part in parts for name in names) for names in kinds]


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


def _text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).strip()


def normal(number: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what doors say of a number, where some of them say it shorter than others."""
    if number == "title":
        return {door: _same_title(value) for door, value in values.items()}
    if number == "cost":  # agents are told "at least" in front of it
        return {
            door: f"{value}".rstrip("+").replace("cost unknown", "?")
            for door, value in values.items()
        }
    return dict(values)


def _same_title(title: str | None) -> str:
    """Return the beginning of a title: lists say `untitled`, and some cut it."""
    flat = " ".join((title or "untitled").split())
    return flat.rstrip("…")[:60]
