"""Intentions: what an assistant's words promise, report as done or give up, and what a call shows.

A text is read line by line, clause by clause, into statements: something due and when ("I still
need to ..."), something done, something given up, a box of a check list. Statements and calls are
compared with what is to be done by their terms: the names and stems they share.

Invariants: pure; texts of any content are read, never raised on; the work per text is bounded, so
hostile prose costs linear time; quotes, code, tables, questions and offers promise nothing.

It holds no state. What is open, since when and what settles it is the matter of todos.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from thence.format.expressions import expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Bounds: what lies beyond them is not read, so time stays linear in the input.
TEXT: Final = 65_536
"""Characters read of one text."""

LINE: Final = 4_096
"""Characters read of one line."""

_ENOUGH: Final = 0.6  # share of a todo's weighted terms that a statement or call must have

# When an intention is due decides what may settle it without sharing words with it:
NOW: Final = "now"  # any call of its kind in the same turn, or the account at the turn's end
THEN: Final = "then"  # second in a sequence: only the account at the turn's end
NEXT: Final = "next"  # planned or announced: only the very next call, if of its kind
LATER: Final = "later"  # put off: nothing


class Statement(NamedTuple):
    """Something said about work: `status` is pending, done or dropped.

    An intention is `due` at a time of the above. A box of a check list is `boxed`, and its text is
    the whole item; else the text is a clause.
    """

    text: str
    status: str
    due: str = ""
    boxed: bool = False


def statements(text: str) -> Iterator[Statement]:
    """What an assistant's text says about its work, in order."""
    listed = False
    for line in _prose(text):
        box, bullet = _BOX.match(line), _BULLET.match(line)
        if box:
            yield Statement(box[2], "pending" if box[1] == " " else "done", boxed=True)
        elif _DUE_LIST.match(line):
            listed = True
        else:
            listed = listed and (bullet is not None or not line.strip())
            yield from _clauses(line[bullet.end() :] if bullet else line, listed=listed)


def boxes_of(text: str) -> str:
    """Return the lines of a text that are boxes of a check list."""
    if "[ ]" not in text and "[x]" not in text and "[X]" not in text:
        return ""
    return "\n".join(line for line in _prose(text) if _BOX.match(line))


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _re(*parts: str) -> re.Pattern[str]:
    return expression("".join(parts), re.IGNORECASE)


# --- words ---
_CODE: Final = expression(r"`([^`]{1,400})`")
_TOKEN: Final = expression(r"\w[\w./-]*")
_PART: Final = expression(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W_A-Za-z\d]+")
_IDENTIFIER: Final = expression(r"[\w-][._][\w-]|[a-z][A-Z]")  # a name even without backticks
_FILE: Final = expression(r"[\w.-]*\.[a-z][a-z0-9]{0,4}|makefile|dockerfile|readme|changelog")
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


@lru_cache(maxsize=8192)
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


class Terms(msgspec.Struct, frozen=True):
    """What a text is about: names weigh most, then words, the leading verb least."""

    named: frozenset[str]
    words: frozenset[str]
    verb: str

    def covered_share(self, by: Terms, verb_weight: float = 0.5) -> float:
        """The weighted share of these terms that `by` has. The verb alone is not enough."""
        rest = self.words - {self.verb}
        hits = 3 * len(self.named & by.named) + len(rest & by.words)
        verb = verb_weight if self.verb in by.words else 0.0
        total = 3 * len(self.named) + len(rest)
        return (hits + verb) / (total + verb_weight) if hits or (verb and not total) else 0.0

    def met(self, by: Terms, verb_weight: float = 0.5) -> bool:
        """Whether `by` has so many of these terms that it is about the same."""
        return self.covered_share(by, verb_weight) >= _ENOUGH

    @property
    def looks(self) -> bool:
        """Whether the verb asks for a look at something."""
        return self.verb in _LOOK

    @property
    def runs(self) -> bool:
        """Whether the verb asks for a command."""
        return self.verb in _RUN


def terms(text: str, *, evidence: bool = False) -> Terms:
    """The terms of a text; as evidence, the words inside its names count too."""
    named = {_name(code) for code in _CODE.findall(text)}
    plain: list[str] = []
    for token in dict.fromkeys(_TOKEN.findall(text if evidence else _CODE.sub(" ", text))):
        is_name = evidence or _IDENTIFIER.search(token)
        named |= {_name(token)} if is_name else set()
        if evidence or not is_name:
            plain += (_stem(part) for part in _PART.findall(token) if part.casefold() not in _STOP)
    plain = [word for word in plain if word not in _STOP]
    return Terms(frozenset(named - {""}), frozenset(plain), plain[0] if plain else "")


def aim(text: str) -> Terms:
    """The terms of something to do: of the action alone, without what is said beside it."""
    return terms(_ASIDE.sub("", text[:LINE]))


# --- prose ---
_FENCE: Final = expression(r"\s{0,12}(```|~~~)")
_BULLET: Final = expression(r"\s*(?:[-*+•]|\d{1,9}[.)])\s+")
_BOX: Final = expression(r"\s*(?:[-*+]|\d{1,9}[.)])\s+\[([ xX])\]\s+(\S.*)")
_QUOTED: Final = expression(r"`[^`]{0,400}`|\"[^\"]{0,400}\"|“[^”]{0,400}”")
_SENTENCE: Final = expression(r"(?<=[.!?;])[*_]*\s+|(?<!\s)\s+[\u2013\u2014]\s+")
_CLAUSE: Final = expression(r",?\s(?:and\s)?(?=(?:then|but|though|although)\b)")


def _prose(text: str) -> Iterator[str]:
    """The lines the assistant itself says: no fenced code, no block quotes, no tables."""
    fence = ""
    for line in text[:TEXT].replace("\u2019", "'").splitlines():
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        elif not fence and not line.lstrip().startswith((">", "|")):
            yield line[:LINE]


def _parts(at: re.Pattern[str], line: str, mask: str) -> Iterator[tuple[str, str]]:
    """Line and mask cut at the same places, without what is mere decoration in front."""
    start = 0
    for end, following in [*(cut.span() for cut in at.finditer(mask)), (len(mask), 0)]:
        blot = mask[start:end].lstrip(" \t*_#")
        yield line[end - len(blot) : end], blot
        start = following


# --- intentions ---
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
    (LATER, _re("^", _DUE, r"[*_]*:[*_]*\s+(?P<do>\S.*)")),
    (NEXT, _re(r"^(?:next up|up next|next)[*_]*(?::[*_]*| is)\s+(?P<do>\S.*)")),
    (NEXT, _re(r"^(?:the|my) next step is to\s+(?P<do>.*)")),
    (LATER, _re(
        r"^(?:what|all|all that|(?:the )?(?:only|last|one) (?:thing|step|piece|part|bit)s?)"
        r"(?:'s| is| that's)?(?: still)? (?:left|missing|remains?|remaining|to do)(?: to do)?"
        r"(?: now)?(?: is|:)\s+(?:to\s+)?(?P<do>\S.*)")),
    # "still" and "also" mark what the work at hand leaves over.
    (LATER, _re(
        r"\b(?:I|we)(?:'ll| will)? (?:(?:still|also) (?:need|have|want|ought) to"
        r"|(?:need|have|ought) to (?:also|still)|(?:should|must) (?:also|still))\s+(?P<do>.*)")),
    # Gaps it owns up to: "I haven't ... yet", "X still needs Y", "X is still missing".
    (LATER, _re(
        r"(?:\b(?:I|we) have(?:n't| not)|\bha(?:s|ve)(?:n't| not) been)\s+\w+(?=.{0,400}\byet\b)")),
    (LATER, _re(r"\bstill (?:needs?|lacks?)\b|\b(?:is|are) still (?:missing|to do)\b")),
    (LATER, _re(
        r"\bI(?:'m| am|'ve| have)? (?:leaving|left|deferring|postponing|parking)\s+"
        r"(?P<do>.{1,400}?)\s+(?:for|until|to) (?:later|a (?:later|follow|separate)|another)\b")),
    (LATER, _re("(?:", _WILL, r"|\blet me)\s+(?P<do>(?:(?:come|circle|get) back|return) to .*)")),
    # The plain future: due now unless its time words say otherwise.
    (NOW, _re("(?:", _WILL, r"|\blet(?: me| us|'s)|\b(?:I|we) (?:need|have) to)\s+(?P<do>.*)")),
)  # fmt: skip
_BARE_THEN: Final = _re(r"^then\s+(?P<do>[a-z].*)")  # "I'll fix it, then rerun it"
# Stands over bullets, each of them due.
_DUE_LIST: Final = _re(r"^[#*_\s]*", _DUE, r"[*_]*:[*_]*\s*$|^#[#*_\s]*", _DUE, r"\s*$")
_TIMES: Final = (
    (THEN, _re(r"^(?:and\s)?then\b|\bafter (?:that|this)\b|\bthen I\b")),  # orders, no more
    (LATER, _re(
        r"\blater\b|\bafter(?:wards?)?\b|\bonce\b(?! more| again)|\bas soon as\b|\bfollow[- ]?up\b"
        r"|\bat the end\b|\beventually\b|\bplanning to\b|\b(?:I|we) (?:plan|intend) to\b"
        r"|(?<!check )(?<!see )\bwhen (?:I|we|it|this|that|everything|all|those|these)\b")),
    (NEXT, _re(r"\bnext\b(?!\.\w)")),
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


def _clauses(line: str, *, listed: bool) -> Iterator[Statement]:
    """The statements of a line, or of a bullet below a heading of work that is due."""
    mask = _QUOTED.sub(lambda m: m[0][0] + "¤" * (len(m[0]) - 2) + m[0][-1], line)
    for sentence, blot in _parts(_SENTENCE, line, mask):
        after = False
        for clause, bare in () if _OFFER.search(blot) else _parts(_CLAUSE, sentence, blot):
            intention = _intention(clause, bare, after=after, listed=listed and bool(clause))
            if intention:
                after = True
                due, action = intention
                yield Statement(action, "pending", due)
            elif _GIVEN_UP.search(bare):
                yield Statement(clause, "dropped")
            elif _DONE.search(bare) and not _UNDONE.search(bare):
                yield Statement(clause, "done")


def _intention(clause: str, mask: str, *, after: bool, listed: bool) -> tuple[str, str] | None:
    """When something is due and what, if the clause says so; None if it promises nothing."""
    rows = ((due, pattern.search(mask)) for due, pattern in _INTENTIONS)
    due, match = next(((due, match) for due, match in rows if match), (LATER, None))
    if not match and after:
        due, match = THEN, _BARE_THEN.match(mask)
    if not match and not listed:
        return None
    start, end = match.span("do") if match and "do" in match.re.groupindex else (0, len(clause))
    action = _TAIL.sub("", _ADVERBS.sub("", clause[start:end])).strip(" \t*_.:;,!")
    if _NEGATED.search(mask[start:]) or _stem(action.partition(" ")[0]) in _INERT:
        return None
    if due == NOW:
        due = next((time for time, words in _TIMES if words.search(mask)), NOW)
    return due, action


# --- calls ---
# The kind of a tool by its name, so that a renamed one is still known; of a command by its words.
# A tool that matches no row, such as a subagent, may be anything.
_TOOLS: Final = (
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
_PATCHED: Final = expression(r"(?:\*\*\* (?:Add|Update|Delete) File:|\n\+\+\+)\s+(\S+)")


class EvidenceCall(msgspec.Struct, frozen=True):
    """A successful call as evidence: of which kinds it is, which files it edits, its words."""

    kinds: frozenset[str]
    files: frozenset[str]
    command: str
    terms: Terms

    def fits(self, aim: Terms) -> bool:
        """Whether a call of this kind may be what the verb announces."""
        if "plan" in self.kinds:
            return bool(aim.words & {"task", "list", "progres", "plan"})
        if aim.looks:
            return bool(self.kinds & {"look", "run", "test"})
        return bool(self.kinds & ({"run", "test"} if aim.runs else {"edit", "run"}))

    def fulfils(self, aim: Terms) -> bool:
        """Whether the call evidently does what the terms say."""
        if "plan" in self.kinds or not self.fits(aim):
            return False
        shares = aim.met(self.terms, 0.0)  # verbs are seldom found in code
        if self.command and (aim.runs or aim.looks):
            acts = {aim.verb} if aim.verb != "run" else (aim.words & _RUN) - {"run"}
            ran = acts & set(map(_stem, self.command.split()[:6]))
            tested = "test" in self.kinds and aim.words & {"test", "suit"}
            return bool(ran or tested or shares) or any(
                " " in name and name in self.command for name in aim.named
            )
        if "test" in aim.words and not any("test" in name for name in self.terms.named):
            return False  # to edit `parser.py` is not to add a test for `parser.py`
        files = {name for name in aim.named if _FILE.fullmatch(name)}
        if files & self.files:
            return aim.named == files or bool((aim.named - files) & self.terms.named)
        return shares


def call_terms(tool: str, text: str, paths: Iterable[str], *, plans: bool = False) -> EvidenceCall:
    """A call as evidence: its tool, the text and the files given to it, and if it keeps a list."""
    tool_kinds = (kind for kind, pattern in _TOOLS if pattern.search(tool))
    kind = "plan" if plans else next(tool_kinds, "")
    command = " ".join(text.split()).casefold() if kind == "shell" else ""
    kinds = {kind} if kind else {"look", "edit", "run"}
    if command:
        kinds = {name for name, pattern in _SHELL if pattern.search(command)}
        kinds |= set() if kinds == {"look"} else {"run"}
    names = frozenset(_name(file) for file in (*paths, *_PATCHED.findall(text)))
    return EvidenceCall(frozenset(kinds), names, command, terms(text, evidence=True))
