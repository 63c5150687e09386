"""Todos: what an agent still owes, read out of the conversation itself.

Three sources, in order of trust: the todo and task tools of the agents, check lists in the
assistant's prose, and intentions it stated ("I still need to ...") with whether a later statement
or a later successful call fulfilled them. An announcement ("I'll fix it") lives only as long as
its turn: a call of its kind, or an account given after the work, settles it.

Invariants: pure, and the answer depends on nothing but the steps; todos come in the order in which
they were opened; a failed call changes nothing; foreign data of any shape is tolerated, never
raised on; the work per text is bounded, so hostile prose costs linear time.

It never reads side files (agents move and drop them), never takes the user's words, quotes or code
for intentions of the agent, and never closes a todo without naming the step, in `closed_by`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Step(msgspec.Struct, frozen=True):
    """One thing said or done, in chain order."""

    id: str
    role: str
    text: str = ""
    tool: str = ""
    input: Any = None
    result: Any = None
    failed: bool = False


class Todo(msgspec.Struct, frozen=True):
    """One thing to do, and the steps that opened it and closed it (fulfilled or dropped)."""

    text: str
    status: str
    origin: str
    opened_by: str
    closed_by: str | None = None
    key: str = ""


def todos(steps: Iterable[Step]) -> list[Todo]:
    """Every todo of the chain, open and closed, in order of opening."""
    ledger = _Ledger()
    for step in steps:
        ledger.take(step)
    ledger.rest()
    return [
        Todo(item.text, item.status, item.origin, item.opened_by, item.closed_by, item.key)
        for item in ledger.items
        if item.status != _NO_TODO
    ]


def pending(steps: Iterable[Step]) -> list[Todo]:
    """Only what is still to be done."""
    return [todo for todo in todos(steps) if todo.status in _OPEN]


_OPEN: Final = frozenset({"pending", "in_progress"})
_NO_TODO: Final = ""  # status of an announcement that its own turn settled

# Bounds: what lies beyond them is not read, so time stays linear in the input.
_TEXT: Final = 65_536  # characters of one text
_LINE: Final = 4_096  # of one line
_SHOWN: Final = 300  # of an intention
_EVIDENCE: Final = 8_192  # of a call: in a longer one any word occurs, so it proves nothing
_RECENT: Final = 128  # todos that a statement or a call is compared with
_ENOUGH: Final = 0.6  # share of a todo's weighted terms that a statement or call must have
_ALIKE: Final = 0.6  # share of their terms that two open todos have in common when they are one


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _re(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


# --- what the tools hold ---
# Tool -> field with the list, family of lists it belongs to, does it merge unless told otherwise.
# Grok's client fills in merge=true where the model left it out, and repeats the list as a plan.
_LISTS: Final = {
    "TodoWrite": ("todos", "claude", False),
    "todo_write": ("todos", "grok", True),
    "plan": ("entries", "grok", False),
    "update_plan": ("plan", "codex", False),
}
_TASKS: Final = frozenset({"TaskCreate", "TaskUpdate", "TaskList", "TaskGet"})
_TASK_MADE: Final = re.compile(r"Task #(\w{1,64}) created")
_TASK_LINE: Final = re.compile(r"#(?P<id>\w{1,64}) \[(?P<status>\w{1,32})\] (?P<subject>\S.*)")
# An unknown status counts as pending: to show one too many is better than to lose one.
_STATUS: Final = {
    **dict.fromkeys(("in_progress", "inprogress", "active", "doing", "started"), "in_progress"),
    **dict.fromkeys(("completed", "complete", "done", "finished", "resolved"), "done"),
    **dict.fromkeys(("cancelled", "canceled", "deleted", "dropped", "skipped"), "dropped"),
}


def _string(value: Any) -> str:
    if type(value) is int and abs(value) < 1 << 63:  # longer ones Python may refuse to write
        return str(value)
    return value if isinstance(value, str) else ""


def _decoded(value: Any) -> Any:
    """A JSON string as what it holds; anything else, and text that is no JSON, as it is."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, ValueError, RecursionError):
        return value


def _fields(value: Any) -> dict[Any, Any]:
    decoded = _decoded(value)
    return decoded if isinstance(decoded, dict) else {}


def _flat(value: Any, limit: int) -> str:
    """The strings inside a value, as many as fit into the limit."""
    found, queue = [""], [value]
    for node in queue:
        if isinstance(node, str):
            found.append(node[:limit])
            limit -= len(found[-1])
        elif isinstance(node, dict | list) and len(queue) < _EVIDENCE:
            queue.extend((list(node.values()) if isinstance(node, dict) else node)[:_EVIDENCE])
    return "\n".join(found)


# --- words ---
_CODE: Final = re.compile(r"`([^`]{1,400})`")
_TOKEN: Final = re.compile(r"\w[\w./-]*")
_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W_A-Za-z\d]+")
_IDENTIFIER: Final = re.compile(r"[\w-][._][\w-]|[a-z][A-Z]")  # a name even without backticks
_FILE: Final = re.compile(r"[\w.-]*\.[a-z][a-z0-9]{0,4}|makefile|dockerfile|readme|changelog")
_STOP: Final = _words(
    "a about after afterwards again all also an and another any are as at back be been before but"
    " by can case come could did do does done each eventually finally first follow for from get go"
    " going had has have haven how i if in into is isn it its just later leave left let like ll m"
    " me missing more must my need next no not now of off on once one only or other our out over"
    " re remain s should so some still t than that the their them then there these thing this those"
    " through throughout to todo too until up us use ve want was way we were what when where which"
    " while will with would yet you your"
)
# Said with one word and reported with another. On stems, so that one row serves every tense.
_SAME: Final = {
    stem: row[0]
    for row in map(str.split, (
        "add creat writ wrot written introduc implement", "remov delet drop strip eliminat rm",
        "updat chang modify adjust edit bump rais increas", "fix repair correct resolv",
        "run ran rerun reran execut", "rewrit rewrot rewritten", "tidy clean cleanup",
        "doc document documentat", "build built", "config configurat", "test spec",
    ))
    for stem in row
}  # fmt: skip
_LOOK: Final = _words(
    "look inspect check read review verify confirm see explor search trac examin investigat find"
    " research load open understand scan analyz analys study compar view list locat audit"
)
_RUN: Final = _words(
    "run push commit tag merg rebas install deploy publish build lint format squash benchmark"
    " releas regenerat stag launch restart"
)
_SUFFIXES: Final = (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))


def _stem(word: str) -> str:
    """A tiny stemmer: enough that "tidied", "tidies" and "tidy" meet."""
    word = word.casefold()
    for suffix, put in () if word.endswith(("ss", "eed")) else _SUFFIXES:
        if word.endswith(suffix) and len(word) > len(suffix) + 2:
            word = word[: -len(suffix)] + put
            break
    word = word[:-3] if word.endswith(("tion", "sion")) else word
    if len(word) > 3:
        word = (word[:-1] if word[-1] == word[-2] else word).removesuffix("e")
    return _SAME.get(word, word)


def _name(code: str) -> str:
    """A file, identifier or command as it can be compared: a path by its last part."""
    name = " ".join(code.casefold().split())
    return (name if " " in name else name.rstrip("/").rpartition("/")[2]).strip("()[]./-,:;'\"")


class _Terms(msgspec.Struct, frozen=True):
    """What a text is about: names weigh most, then words, the leading verb least."""

    named: frozenset[str]
    words: frozenset[str]
    verb: str

    def covered(self, by: _Terms, verb_weight: float = 0.5) -> float:
        """The weighted share of these terms that `by` has. The verb alone is not enough."""
        rest = self.words - {self.verb}
        hits = 3 * len(self.named & by.named) + len(rest & by.words)
        verb = verb_weight if self.verb in by.words else 0.0
        total = 3 * len(self.named) + len(rest)
        return (hits + verb) / (total + verb_weight) if hits or (verb and not total) else 0.0


def _terms(text: str, *, evidence: bool = False) -> _Terms:
    """The terms of a text; as evidence, the words inside its names count too."""
    named = {_name(code) for code in _CODE.findall(text)}
    plain: list[str] = []
    for token in dict.fromkeys(_TOKEN.findall(text if evidence else _CODE.sub(" ", text))):
        is_name = evidence or _IDENTIFIER.search(token)
        named |= {_name(token)} if is_name else set()
        if evidence or not is_name:
            plain += (_stem(part) for part in _PART.findall(token) if part.casefold() not in _STOP)
    plain = [word for word in plain if word not in _STOP]
    return _Terms(frozenset(named - {""}), frozenset(plain), plain[0] if plain else "")


def _normal(text: str) -> str:
    """Text as an identity: case, emphasis, spacing and closing punctuation do not matter."""
    return " ".join(re.sub(r"[`*~]", "", text[:_LINE]).casefold().split()).rstrip(".,;:! ")


# --- prose ---
_FENCE: Final = re.compile(r"\s{0,12}(```|~~~)")
_BULLET: Final = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)])\s+")
_BOX: Final = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+\[([ xX])\]\s+(\S.*)")
_QUOTED: Final = re.compile(r"`[^`]{0,400}`|\"[^\"]{0,400}\"|“[^”]{0,400}”")
_SENTENCE: Final = re.compile(r"(?<=[.!?;])[*_]*\s+|(?<!\s)\s+[\u2013\u2014]\s+")
_CLAUSE: Final = re.compile(r",?\s(?:and\s)?(?=(?:then|but|though|although)\b)")


def _prose(text: str) -> Iterator[str]:
    """The lines the assistant itself says: no fenced code, no block quotes, no tables."""
    fence = ""
    for line in text[:_TEXT].replace("\u2019", "'").splitlines():
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        elif not fence and not line.lstrip().startswith((">", "|")):
            yield line[:_LINE]


def _parts(at: re.Pattern[str], line: str, mask: str) -> Iterator[tuple[str, str]]:
    """Line and mask cut at the same places, without what is mere decoration in front."""
    start = 0
    for end, following in [*(cut.span() for cut in at.finditer(mask)), (len(mask), 0)]:
        blot = mask[start:end].lstrip(" \t*_#")
        yield line[end - len(blot) : end], blot
        start = following


# --- intentions ---
# When an intention is due decides what may settle it without sharing words with it:
_NOW: Final = "now"  # any call of its kind in the same turn, or the account at the turn's end
_THEN: Final = "then"  # second in a sequence: only the account at the turn's end
_NEXT: Final = "next"  # planned or announced: only the very next call, if of its kind
_LATER: Final = "later"  # put off: nothing

_WILL: Final = (
    r"\b(?:I|we)(?:'ll| will|(?:'m| am|'re| are) (?:going|planning) to| (?:plan|intend|want) to)\b"
)
_DUE: Final = (
    r"(?:todo|fixme|to[- ]do|follow[- ]?ups?|note to self|(?:one|another)(?: more)? (?:thing|item"
    r"|task|step)(?: left| remaining)?(?: to do)?|(?:still )?(?:remaining|outstanding|missing"
    r"|left to do|to be done|not(?: yet)? done|still open)(?: (?:work|tasks?|items?|steps?))?)"
)
# Ordered: the first row that matches a clause decides. `do` is the action; without it, the clause.
_INTENTIONS: Final = (
    # A label and a colon, or "what is left is": the most explicit forms, so they go first.
    (_LATER, _re("^", _DUE, r"[*_]*:[*_]*\s+(?P<do>\S.*)")),
    (_NEXT, _re(r"^(?:next up|up next|next)[*_]*(?::[*_]*| is)\s+(?P<do>\S.*)")),
    (_NEXT, _re(r"^(?:the|my) next step is to\s+(?P<do>.*)")),
    (_LATER, _re(
        r"^(?:what|all|all that|(?:the )?(?:only|last|one) (?:thing|step|piece|part|bit)s?)"
        r"(?:'s| is| that's)?(?: still)? (?:left|missing|remains?|remaining|to do)(?: to do)?"
        r"(?: now)?(?: is|:)\s+(?:to\s+)?(?P<do>\S.*)")),
    # "still" and "also" mark what the work at hand leaves over.
    (_LATER, _re(
        r"\b(?:I|we)(?:'ll| will)? (?:(?:still|also) (?:need|have|want|ought) to"
        r"|(?:need|have|ought) to (?:also|still)|(?:should|must) (?:also|still))\s+(?P<do>.*)")),
    # Gaps it owns up to: "I haven't ... yet", "X still needs Y", "X is still missing".
    (_LATER, _re(
        r"(?:\b(?:I|we) have(?:n't| not)|\bha(?:s|ve)(?:n't| not) been)\s+\w+(?=.{0,400}\byet\b)")),
    (_LATER, _re(r"\bstill (?:needs?|lacks?)\b|\b(?:is|are) still (?:missing|to do)\b")),
    (_LATER, _re(
        r"\bI(?:'m| am|'ve| have)? (?:leaving|left|deferring|postponing|parking)\s+"
        r"(?P<do>.{1,400}?)\s+(?:for|until|to) (?:later|a (?:later|follow|separate)|another)\b")),
    (_LATER, _re("(?:", _WILL, r"|\blet me)\s+(?P<do>(?:(?:come|circle|get) back|return) to .*)")),
    # The plain future: due now unless its time words say otherwise.
    (_NOW, _re("(?:", _WILL, r"|\blet(?: me| us|'s)|\b(?:I|we) (?:need|have) to)\s+(?P<do>.*)")),
)  # fmt: skip
_BARE_THEN: Final = _re(r"^then\s+(?P<do>[a-z].*)")  # "I'll fix it, then rerun it"
# Stands over bullets, each of them due.
_DUE_LIST: Final = _re(r"^[#*_\s]*", _DUE, r"[*_]*:[*_]*\s*$|^#[#*_\s]*", _DUE, r"\s*$")
_TIMES: Final = (
    (_THEN, _re(r"^(?:and\s)?then\b|\bafter (?:that|this)\b|\bthen I\b")),  # orders, no more
    (_LATER, _re(
        r"\blater\b|\bafter(?:wards?)?\b|\bonce\b(?! more| again)|\bas soon as\b|\bfollow[- ]?up\b"
        r"|\bat the end\b|\beventually\b|\bplanning to\b|\b(?:I|we) (?:plan|intend) to\b"
        r"|(?<!check )(?<!see )\bwhen (?:I|we|it|this|that|everything|all|those|these)\b")),
    (_NEXT, _re(r"\bnext\b(?!\.\w)")),
)  # fmt: skip
# Sentences that promise nothing: questions, offers, conditions, advice to the user.
_OFFER: Final = _re(
    r"\?[*_\s]*$|^if\b|\bif you\b|\bunless\b|\blet me know\b|\bfeel free\b|\bup to you\b|\bI(?:'d"
    r"| would)\b|\b(?:happy|glad) to\b|\bwould you\b|\bdo you want\b|\bwant me to\b|\b(?:shall"
    r"|should) I\b|(?<!so )\bI (?:can|could|might|may)\b|\bwe (?:could|might|can)\b"
    r"|\byou(?:'ll| will| can| could| may| might| want| should)\b|\bwhen you(?:'re| are)\b"
)
_NEGATED: Final = _re(r"^(?:not|never|no)\b|\bno need to\b|\bnot going to\b")
_ADVERBS: Final = _re(
    r"^(?:(?:also|now|first|just|then|next|quickly|only|simply|finally|again|still|go ahead and"
    r"|(?:start|begin) by|(?:proceed|continue|need|have|try) to|be)\s+)+"
)
_TAIL: Final = _re(r"(?<![\s,])[\s,]+(?:next|later|afterwards?|then|now|too|as well|for you)\W*$")
# What a clause says beside its action: time, purpose, reason, description.
_ASIDE: Final = _re(
    r",?\s(?:once|after|as soon as|when|while|until|before|so|as a|rather than|because|which"
    r"|that (?:\w+s|will|won't|would|can|are|were|need|have)"
    r"|to (?:verify|confirm|see|ensure|make|check|understand|identify|track))\s.*"
)
# Verbs that leave nothing to do: speaking is done by speaking, the rest is restraint or waiting.
_INERT: Final = _words(
    "explain summariz describ answer outlin walk show giv tel not mention say recap report present"
    " provid categoriz compil leav keep avoid skip stop wait assum treat refrain hold let know help"
    " hav seen found notic stick respect stay ask defer continu proceed thank focus non noth"
)


def _intention(clause: str, mask: str, *, after: bool, listed: bool) -> tuple[str, str] | None:
    """When something is due and what, if the clause says so; None if it promises nothing."""
    rows = ((due, pattern.search(mask)) for due, pattern in _INTENTIONS)
    due, match = next(((due, match) for due, match in rows if match), (_LATER, None))
    if not match and after:
        due, match = _THEN, _BARE_THEN.match(mask)
    if not match and not listed:
        return None
    start, end = match.span("do") if match and "do" in match.re.groupindex else (0, len(clause))
    action = _TAIL.sub("", _ADVERBS.sub("", clause[start:end])).strip(" \t*_.:;,!")
    if _NEGATED.search(mask[start:]) or _stem(action.partition(" ")[0]) in _INERT:
        return None
    if due == _NOW:
        due = next((time for time, words in _TIMES if words.search(mask)), _NOW)
    return due, action


_PAST: Final = (
    r"(?:\w{2,30}ed|wrote|rewrote|written|ran|reran|built|rebuilt|made|split|put|set|cut|sent|took"
    r"|done|brought)\b"
)
_DONE: Final = _re(
    rf"^(?:done|completed|finished|fixed)\b\s*[:!-]|^[✅✓✔☑]|^(?:also |now |just )?{_PAST}"
    rf"|\b(?:I|we)(?:'ve| have)?(?: also| now| just| already| since)* {_PAST}|\band {_PAST}"
    rf"|\b(?:is|are|was|were|has|have|been)(?: been| all| now| already)* {_PAST}"
    r"|\b(?:is|are) (?:now|in place|complete|gone|there|ready|green)\b"
    r"|\bnow \w{2,30}s\b|\bpass(?:es)?\b|\bno longer\b"
)
_UNDONE: Final = _re(r"\b(?:not|never|cannot|yet|still|incomplete|fail(?:s|ed|ing)?)\b|n't\b")
_GIVEN_UP: Final = _re(
    r"\bwo(?:n't|uld not)\b|\bwill not\b|\bnot going to\b|\bno (?:longer (?:need|plan)|need to)\b"
    r"|\bdecided (?:against|not to)\b|\b(?:skipping|dropping|gave up)\b"
)

# --- calls ---
# The kind of a tool by its name, so that a renamed one is still known; of a command by its words.
# A tool that matches no row, such as a subagent, may be anything.
_TOOLS: Final = (
    ("plan", _re("^(?:", "|".join((*_LISTS, *_TASKS)), ")$")),
    ("shell", _re("bash$|shell|exec|terminal|stdin")),
    ("edit", _re("edit|write|patch|replace|create_file")),
    ("look", _re("read|grep|glob|^ls$|list|view|search|fetch|output")),
)
_SHELL: Final = (
    ("look", _re(
        r"(?:^|[;&|(]\s*)(?:cat|ls|grep|rg|sed -n|head|tail|find|nl|wc|tree"
        r"|git (?:status|log|diff|show|ls-remote))\b")),
    ("edit", _re(r"\bsed -i|>\s*[\w./~]|\btee\b|\bapply_patch\b|\b(?:mv|rm|cp)\s")),
    ("test", _re(
        r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest)\b"
        r"|\b(?:npm|pnpm|yarn|bun|cargo|go|make|just|mvn|gradlew?|dotnet|mix|swift|deno)"
        r"(?: run)? (?:[\w:-]{0,40}test|check)")),
)  # fmt: skip
_PATCHED: Final = re.compile(r"(?:\*\*\* (?:Add|Update|Delete) File:|\n\+\+\+)\s+(\S+)")


class _Call(msgspec.Struct, frozen=True):
    """A successful call as evidence: of which kinds it is, which files it edits, its words."""

    kinds: frozenset[str]
    files: frozenset[str]
    command: str
    terms: _Terms


def _call(tool: str, given: Any) -> _Call:
    kind = next((kind for kind, pattern in _TOOLS if pattern.search(tool)), "")
    value = _decoded(given)
    text = _flat(value, _EVIDENCE)
    command = " ".join(text.split()).casefold() if kind == "shell" else ""
    kinds = {kind} if kind else {"look", "edit", "run"}
    if command:
        kinds = {name for name, pattern in _SHELL if pattern.search(command)}
        kinds |= set() if kinds == {"look"} else {"run"}
    fields = value if isinstance(value, dict) else {}
    files = {_string(fields.get(key)) for key in ("file_path", "path", "notebook_path")}
    names = frozenset(_name(file) for file in files | set(_PATCHED.findall(text)))
    return _Call(frozenset(kinds), names, command, _terms(text, evidence=True))


def _fits(call: _Call, terms: _Terms) -> bool:
    """Whether a call of this kind may be what the verb announces."""
    if "plan" in call.kinds:
        return bool(terms.words & {"task", "list", "progres", "plan"})
    if terms.verb in _LOOK:
        return bool(call.kinds & {"look", "run", "test"})
    return bool(call.kinds & ({"run", "test"} if terms.verb in _RUN else {"edit", "run"}))


def _fulfils(call: _Call, terms: _Terms) -> bool:
    """Whether the call evidently does what the terms say."""
    if "plan" in call.kinds or not _fits(call, terms):
        return False
    shares = terms.covered(call.terms, 0.0) >= _ENOUGH  # verbs are seldom found in code
    if call.command and terms.verb in _RUN | _LOOK:
        acts = {terms.verb} if terms.verb != "run" else (terms.words & _RUN) - {"run"}
        ran = acts & set(map(_stem, call.command.split()[:6]))
        tested = "test" in call.kinds and terms.words & {"test", "suit"}
        return bool(ran or tested or shares) or any(
            " " in name and name in call.command for name in terms.named
        )
    if "test" in terms.words and not any("test" in name for name in call.terms.named):
        return False  # to edit `parser.py` is not to add a test for `parser.py`
    files = {name for name in terms.named if _FILE.fullmatch(name)}
    if files & call.files:
        return terms.named == files or bool((terms.named - files) & call.terms.named)
    return shares


# --- the ledger ---


class _Item(msgspec.Struct, eq=False):
    """A todo while the steps are read. `turn` and `since` (calls before it) place an intention."""

    text: str
    origin: str
    opened_by: str
    key: str
    terms: _Terms
    due: str = ""
    turn: int = 0
    since: int = 0
    status: str = "pending"
    closed_by: str | None = None


class _Ledger:
    """The todos so far, and what is needed to recognise them again."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self.known: dict[tuple[str, str], _Item] = {}  # by (family, id) and by (origin, text)
        self.lists: dict[str, list[_Item]] = {}  # by family, what its list holds now
        self.turn = self.calls = self.tasks = 0
        self.fresh: _Item | None = None  # the last intention said, before any call
        self.account = ""  # the step that spoke last, if no call came after it

    def take(self, step: Step) -> None:
        """Read one step: first what it says, then what it does."""
        text, tool, where = _string(step.text), _string(step.tool), _string(step.id)
        if step.role == "assistant" and text.strip():
            self._hear(text, where)
        elif step.role == "user" and not tool and text.strip():
            self.rest()
            self.turn += 1
        if tool and not step.failed:
            self._see(tool, step.input, where)
            if tool in _LISTS:
                self._list(step, where)
            elif tool in _TASKS:
                self._tasks(step, where)

    def rest(self) -> None:
        """The turn is over. Words after deeds are its account, and settle what it announced."""
        announced = self.fresh and self.fresh.due in (_NOW, _THEN)
        for item in self._due() if self.account and not announced else ():
            if item.turn == self.turn and item.since < self.calls:
                if item.due == _NOW:
                    item.status = _NO_TODO
                elif item.due == _THEN and item.terms.verb not in _RUN:  # commands leave a trace
                    self._set(item, "done", self.account)

    def _add(self, text: str, origin: str, where: str, key: str) -> _Item:
        terms = _terms(_ASIDE.sub("", text[:_LINE]))
        self.items.append(_Item(text, origin, where, key, terms, "", self.turn, self.calls))
        return self.items[-1]

    def _set(self, item: _Item, status: str, where: str) -> None:
        if status != item.status:
            item.status, item.closed_by = status, None if status in _OPEN else where
            if status == "done" and item.origin != "intention":
                self._close(item.text[:_LINE], "done", where)

    def _due(self) -> Iterator[_Item]:
        """The open intentions among the recent todos."""
        recent = self.items[-_RECENT:]
        return (item for item in recent if item.origin == "intention" and item.status in _OPEN)

    def _close(self, said: str, status: str, where: str) -> None:
        terms = _terms(said, evidence=True)
        for item in self._due():
            if item.terms.covered(terms) >= _ENOUGH:
                self._set(item, status, where)

    def _hear(self, text: str, where: str) -> None:
        self.fresh, self.account = None, where
        seen: dict[str, int] = {}
        listed = False
        for line in _prose(text):
            box, bullet = _BOX.match(line), _BULLET.match(line)
            if box:
                item = self._named(box[2], "checklist", where, seen)
                self._set(item, "pending" if box[1] == " " else "done", where)
            elif _DUE_LIST.match(line):
                listed = True
            else:
                listed = listed and (bullet is not None or not line.strip())
                self._say(line[bullet.end() :] if bullet else line, where, listed=listed)

    def _named(self, text: str, origin: str, where: str, seen: dict[str, int]) -> _Item:
        """The todo of this text, told apart from its namesakes in one list by a number."""
        normal = _normal(text)
        seen[normal] = seen.get(normal, 0) + 1
        key = normal if seen[normal] == 1 else f"{normal}#{seen[normal]}"
        item = self.known.get((origin, key)) or self._add(text.strip(), origin, where, key)
        self.known[origin, key] = item
        return item

    def _say(self, line: str, where: str, *, listed: bool) -> None:
        mask = _QUOTED.sub(lambda m: m[0][0] + "¤" * (len(m[0]) - 2) + m[0][-1], line)
        for sentence, blot in _parts(_SENTENCE, line, mask):
            after = False
            for clause, bare in () if _OFFER.search(blot) else _parts(_CLAUSE, sentence, blot):
                found = _intention(clause, bare, after=after, listed=listed and bool(clause))
                if found:
                    after = True
                    self._intend(*found, where)
                elif _GIVEN_UP.search(bare):
                    self._close(clause, "dropped", where)
                elif _DONE.search(bare) and not _UNDONE.search(bare):
                    self._close(clause, "done", where)

    def _intend(self, due: str, text: str, where: str) -> None:
        terms = _terms(_ASIDE.sub("", text))
        mine = terms.named | terms.words
        for other in self.items[-_RECENT:]:
            theirs = other.terms.named | other.terms.words
            same = len(mine & theirs) >= _ALIKE * len(mine | theirs)
            same = same or (other.origin != "intention" and mine <= theirs)
            if same and other.status in _OPEN:
                return  # said before, or on a list: the earlier one stands
        if mine:
            self.fresh = self._add(text[:_SHOWN], "intention", where, _normal(text))
            self.fresh.due = due

    def _see(self, tool: str, given: Any, where: str) -> None:
        """Close what the call fulfils."""
        due = list(self._due())
        if due:
            call = _call(tool, given)
            for item in due:
                fits = item.turn == self.turn and _fits(call, item.terms)
                near = item.due == _NEXT and (item is self.fresh or item.terms.verb in _LOOK)
                if fits and item.due == _NOW:
                    item.status = _NO_TODO
                elif (fits and near) or _fulfils(call, item.terms):
                    self._set(item, "done", where)
        self.fresh, self.account, self.calls = None, "", self.calls + 1

    def _list(self, step: Step, where: str) -> None:
        field, family, merges = _LISTS[step.tool]
        fields = _fields(step.input)
        rows = _decoded(fields.get(field))
        if not isinstance(rows, list):
            return
        seen: dict[str, int] = {}
        held = [item for row in rows if (item := self._row(row, family, where, seen))]
        kept = {id(item) for item in held}
        rest = [item for item in self.lists.get(family, []) if id(item) not in kept]
        if fields.get("merge", merges) is not True:
            for item in rest:
                if item.status in _OPEN:  # a whole list replaces: what is not on it was given up
                    self._set(item, "dropped", where)
            rest = []
        self.lists[family] = rest + held

    def _row(
        self, row: Any, family: str, where: str, seen: dict[str, int] | None = None
    ) -> _Item | None:
        """The todo of one row, updated. Without `seen` it is a task: known by its id alone."""
        fields = {"content": row} if isinstance(row, str) else _fields(row)
        names = ("content", "step", "subject", "text", "title")
        text = next((text for n in names if (text := _string(fields.get(n)).strip())), "")
        ident = _string(fields.get("id"))
        item = self.known.get((family, ident)) if ident else None
        if item and text and seen is not None:
            item = self._reworded(item, text, where)
        if not item and not text:
            return None  # created before the chain begins: there is nothing to show
        if not item and seen is not None:
            item = self._named(text, "tool", where, seen)
        item = item or self._add(text, "tool", where, ident)
        item.text = text or item.text
        if ident:
            self.known[family, ident], item.key = item, ident
        if "status" in fields:
            word = _string(fields["status"]).strip().casefold().replace("-", "_").replace(" ", "_")
            self._set(item, _STATUS.get(word, "pending"), where)
        return item

    def _reworded(self, item: _Item, text: str, where: str) -> _Item | None:
        """The todo under its new text; None if its id now stands for something else."""
        if _normal(text) != _normal(item.text):
            if item.status not in _OPEN:
                return None
            if not item.terms.covered(_terms(text[:_LINE])):
                self._set(item, "dropped", where)
                return None
            self.known["tool", _normal(text)] = item
        return item

    def _tasks(self, step: Step, where: str) -> None:
        given, result = _fields(step.input), _fields(step.result)
        told, one = _flat(step.result, _TEXT), _fields(result.get("task"))
        rows = result.get("tasks", [one])
        if step.tool == "TaskCreate":
            made = _TASK_MADE.search(told)
            self.tasks += 1  # ids are handed out from 1 upwards: a lost one can be made good
            ident = _string(one.get("id")) or (made[1] if made else str(self.tasks))
            self.known.pop(("task", ident), None)
            rows = [{**given, "id": ident}]
        elif step.tool == "TaskUpdate":
            done = result.get("success") is not False
            rows = [{**given, "id": given.get("taskId")}] if done else []
        elif not result:
            rows = [line.groupdict() for line in _TASK_LINE.finditer(told)]
        for row in rows if isinstance(rows, list) else ():
            self._row(row, "task", where)
