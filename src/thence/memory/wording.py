"""What prompts and replies say by the way they begin: tables of wordings, and who asks them.

A row holds a text that it must match and one that it must not; the tests run over the rows. Only
the beginning of a text is looked at, so that what is quoted further down says nothing. English
only: in other languages nothing is found, which is the honest answer.
"""

from __future__ import annotations

import re
from typing import Final

from thence.format.expressions import expression
from thence.format.output import Row, Table

LOOKED_AT: Final = 2_000
"""Characters of a reply or prompt; more is never read."""

# The tables keep a row to a few lines; the formatter would give every cell its own.
# fmt: off
FAILURES: Final = Table(Row(*row) for row in (
    ("could not", (r"(?:I|[Ww]e|[Ii]t) (?:could(?: not|n't)|can(?:not|'t)|(?:was |were |am )?"
                   r"(?:unable|not able) to|failed to|(?:did|have)(?: not|n't) (?!(?:yet )?(?:find|"
                   r"found|see|seen|need|change|touch|notice|break|broken)))\b"),
     "I could not push the branch.", "I did not find any fault."),
    ("not done", (r"(?:[^.!?\n]{0,80} )?(?:(?:is|are|was|were|has been|had been) (?:not (?:yet )?"
                  r"(?:done|finished|complete|fixed|working|possible)|interrupted|aborted|refused|"
                  r"denied)|(?:is|are) blocked)\b"),
     "Resumed; the job was interrupted.", "The tests were failing because the clock was wrong."),
    ("no end", r"[^.!?\n]{0,80}\b(?:no end|no luck|gave up|giving up|out of options)\b",
     "It was started but I saw no end.", "It ended."),
    ("still", (r"[^.!?\n]{0,80}\bstill (?:fail(?:s|ing)?|broken|red|(?:does|do|is|are)(?:n't| not))"
               r"\b"), "Two tests still fail.", "The API still works."),
))
"""How a closing reply begins that tells of a failure."""

ANNOUNCEMENTS: Final = Table(Row(*row) for row in (
    ("will", r"(?:Now )?(?:I'll|I will|I'm going to|Let me|Let's)\b(?![^.!?\n]*\?)",
     "I'll add rate limiting to the API.", "I've added rate limiting."),
    ("ing", (r"(?:Running|Reading|Starting|Looking|Checking|Searching|Fixing|Working|Adding|"
             r"Writing)\b[^?\n]{0,60}$"), "Running tests.", "Running them showed three faults?"),
))
"""How a reply begins that only announces what it is going to do."""

CORRECTIONS: Final = Table(Row(*row) for row in (
    ("no", (r"(?:no|nope|nah|wait|stop|hold on|oops)\b[,.!: ]+(?!worries|problem|need|rush|idea|"
            r"thanks)\S"), "no, don't patch the gap afterwards.", "no worries, go on."),
    ("not", (r"(?:that|this|it)(?:'s| is| was| does| did)?(?: still)? ?(?:n't|not) (?:what|right|"
             r"correct|it|work|how|the|fix|good|enough)"),
     "that's not what i asked for.", "that is the one."),
    ("wrong", (r"(?:you(?:'re| are)? (?:wrong|missed|forgot|broke|ignored|didn't|did not|should"
               r"(?:n't| not)|misunderst)|wrong\b|incorrect\b)"),
     "you forgot the tests.", "you can merge it."),
    ("do not", r"(?:please )?(?:do not|don't|never) (?!mind|worry|forget|need|have|you think)\w",
     "do not stash anything, read the files you need", "don't worry about it"),
    ("not the", r"not (?:the|that|this|there|what|like)\b",
     "not the new session button. this one", "note the button"),
    ("undo", (r"(?:please )?(?:revert|undo|roll ?back|put (?:it|that) back|restore) (?:it|that|this"
              r"|your|the (?:last|change|edit))"), "revert that.", "revert to plan b came up"),
    ("still", (r"(?:it|this|that|they|ci|the \w{1,30}|tests?)(?: \w{1,30}){0,3} still (?:fail|"
               r"broken|not|doesn't|don't|wrong|red)"),
     "ci seems to still fail...", "it is still raining."),
    ("does not work", (r"(?:still|(?:the|it|this|that)\b[^.?\n]{0,40}?) ?(?:doesn't|does not|"
                       r"didn't|did not|isn't|is not) (?:work|help|fix|do anything)"),
     "the redirection doesn't work :(", "what if it doesn't work?"),
    ("instead", r"(?:use|do|try|make|put|call|name|fix|write)\b[^.?\n]{0,60}\binstead\b",
     "use local time instead", "instead of tea"),
    ("said", r"(?:i (?:said|meant|asked|told you|wanted)|as i said|again[,:])\b",
     "i meant the other file", "i think so"),
    ("actually", r"(?:actually|rather)\b[, ]", "actually, make it blue", "factually"),
    ("the other is right", r"fix the \w{1,30}, the \w{1,30} is (?:right|correct|fine)",
     "fix the test, the code is right", "fix the test, please"),
))
"""How a prompt begins, in lower case, that corrects what the agent did."""

GO_ON: Final = Table(Row(*row) for row in (
    ("go on", (r"(?:please )?(?:go on|go ahead|continue|proceed|carry on|keep going|resume|yes|"
               r"yep|ok(?:ay)?|sure|try again|retry|still there)\b[\s.!?]*(?:please)?[\s.!?]*$"),
     "go on please.", "go on with the other file"),
))
"""A prompt, in lower case, that only lets the agent go on."""

THANKS: Final = Table(Row(*row) for row in (
    ("thanks", r"(?:many )?(?:thanks|thank you|thx)\b", "thanks!", "thankless"),
    ("praise", (r"(?:great|perfect|nice|awesome|excellent|lgtm|cool|good job|well done|looks (?:"
                r"good|right|great)|that (?:works|worked|looks right))\b"),
     "great, now the docs", "greater than"),
))
"""How a prompt begins, in lower case, of a human who is content."""
# fmt: on

SUCCESS: Final = expression(
    r"\b(?:all (?:\w{1,20} ){0,3}(?:pass|green|done|complete)|done|fixed|committed|pushed|merged|"
    r"completed?|perfect|created|updated|added|implemented|resolved|success(?:fully)?|passes)\b",
    re.IGNORECASE,
)
"""Words of a reply that closes its work."""


def corrects(prompt: str) -> str | None:
    """Name the way in which a prompt corrects the agent; None when it does not."""
    return _first(CORRECTIONS, prompt)


def only_goes_on(prompt: str) -> bool:
    """Whether a prompt asks for nothing but more of the same."""
    return _first(GO_ON, prompt) is not None


def thanks(prompt: str) -> bool:
    """Whether a prompt shows that its writer is content."""
    return _first(THANKS, prompt) is not None


def _first(table: Table, prompt: str) -> str | None:
    text = prompt[:LOOKED_AT].lstrip(" \t\r\n>*-").casefold().replace("\u2019", "'")
    if table.any.match(text) is None:
        return None
    return next((row.name for row, pattern in table.each if pattern.match(text)), None)
