"""What prompts and replies say by the way they begin: tables of wordings, and functions on them.

A row holds a text that it must match and one that it must not; the tests run over the rows. Only
the beginning of a text is looked at, so that what is quoted further down says nothing. A reply that
ends in a question is the exception: there the end counts. English only: in other languages nothing
is recognised. Pure; linear in the text that is looked at.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from thence.format import errors, output
from thence.format.expressions import expression
from thence.format.output import Row, Table
from thence.format.records import JSON

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
            r"thanks|more\b|other\b|further\b)\S"),
     "no, don't patch the gap afterwards.", "no worries, go on."),
    ("stop", r"(?:stop|wait|hold on|abort|cancel)[\s.!]*$", "stop!", "stop words are dropped"),
    ("not", (r"(?:that|this|it)(?:'s| is| was| does| did)?(?: still)? ?(?:n't|not)(?: quite| "
             r"really| at all)? (?:what|right|correct|it|work|how|the|fix|good|enough|ok\b|okay)"),
     "that's not what i asked for.", "that is the one."),
    ("wrong", (r"(?:you(?:'re| are)? (?:wrong|misunderst)|you(?:'ve| have)? (?:just |also |still )?"
               r"(?:missed|forgot|broke|ignored|didn't|did not|haven't|have not|should(?:n't| not)|"
               r"misread|removed|deleted|dropped|overwrote|skipped|lost|introduced|duplicated|"
               r"reverted|only (?:did|fixed|changed|handled))|wrong\b|incorrect\b|that(?:'s| is) "
               r"(?:wrong|incorrect|the wrong))"),
     "you forgot the tests.", "you can merge it."),
    ("why did you", (r"why (?:did|would|do|have|are) you\b[^?\n]{0,20}\b(?:delet|remov|chang|"
                     r"overwr|skip|renam|revert|touch|add|ignor|us(?:e|ing)|not)"),
     "why did you delete the tests?", "why do you think so?"),
    ("do not", r"(?:please )?(?:do not|don't|never) (?!mind|worry|forget|need|have|you think)\w",
     "do not stash anything, read the files you need", "don't worry about it"),
    ("not the", r"not (?:the|that|this|there|what|like)\b",
     "not the new session button. this one", "note the button"),
    ("dislike", (r"(?:i (?:really |actually |still )*(?:don't|do not) (?:like|want|need)|"
                 r"instead of)\b"),
     "i don't like this idea", "i don't know"),
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
    ("said", (r"(?:i (?:said|meant|asked (?:for|you)|told you|wanted|didn't (?:ask|say|mean|want)|"
              r"did not (?:ask|say|mean|want))|as i said|again[,:])\b"),
     "i meant the other file", "i think so"),
    ("should have", (r"(?:it|this|that|you|the [\w ]{1,30}) should(?:n't| not)? have\b|(?:it|this|"
                     r"that|the [\w ]{1,30}) should(?:n't| not)? (?:be|return|show|say|print|use)\b"
                     r"[^.?\n]{0,60}(?:, not | instead\b|rather than)"),
     "the total should be 12, not 11", "the total should be printed"),
    ("actually", r"(?:actually|rather)\b[, ]", "actually, make it blue", "factually"),
    ("the other is right", r"fix the \w{1,30}, the \w{1,30} is (?:right|correct|fine)",
     "fix the test, the code is right", "fix the test, please"),
))
"""How a prompt begins, in lower case, that corrects what the agent did."""

REPORTS: Final = Table(Row(*row) for row in (
    ("still", (r"(?!(?:is|does|do|will|would|can|could|should|if|what if|how|keep)\b)"
               r"(?:[^.?!\n]{0,60} )?still (?:fail|get|see|broken|crash|wrong|not\b|doesn't|don't|"
               r"isn't|aren't|hang|show|throw|the same|happen|red\b|miss|return|print|"
               r"a? ?(?:bug|problem|error))"),
     "i still get the same error", "does it still fail on windows?"),
    ("error seen", (r"(?:now )?(?:i|we)(?:'m|'re| am| are)? (?:now |just |also )*(?:get(?:ting)?|"
                    r"got|see(?:ing)?|saw|keep getting|hit|ran into)\b[^.?\n]{0,60}"
                    r"(?:\b[45]\d\d\b|error|exception|crash|fail|traceback|stack ?trace|undefined|"
                    r"\bnan\b|blank|timeout|panic|segfault|nothing|warning)"),
     "now i get a 500 when i log in", "i got it, thanks"),
    ("fails", (r"(?:the|this|that|it|they|these|those|your|my|our|now|tests?|build|ci|nothing|"
               r"clicking|running|when i|after|on|in|npm|pytest|make|`[^`\n]{1,60}`|\d+ tests?)"
               r"[^.?!\n]{0,70}?\b(?:crash(?:es|ed|ing)?|fails?|failed|failing|breaks?|broke|"
               r"broken|hangs?|freezes|throws|errors? out|blows up|times? out|timed out|"
               r"does nothing|nothing happens|won't (?:start|compile|build|run|load|open)|"
               r"(?:does|do|did)(?:n't| not) (?:work|compile|build|run|start|load|render|appear|"
               r"show|help|exist|pass|do anything|update|save|respond|match|fix|change)|"
               r"(?:is|are|was|were)(?:n't| not) (?:working|showing|rendering|right|correct|"
               r"updated|updating|loaded|loading|displayed|called|saved|fixed|there|found))(?!\w)"),
     "the build fails on windows", "add a test that fails"),
    ("fault", (r"(?:there(?:'s| is| are)|i (?:found|see|think there's|noticed)|found|"
               r"you (?:have|left)|this (?:is|looks like)|looks like|that(?:'s| is))(?: still)?"
               r"(?: (?!on |about |for |of )[\w'-]+){0,4} (?:bug|regression|typo|mistake|"
               r"memory leak|race|glitch|off[- ]by[- ]one|leak)s?\b"),
     "there's a bug in the parser", "there is a page on bugs"),
    ("looks wrong", (r"(?:the|this|that|it|they|these|those|your|now)\b[^.?!\n]{0,50}? (?:is|are|"
                     r"looks?|seems?|comes? out|came out|shows? up)(?: [a-z]+){0,2} (?:wrong|"
                     r"off\b|incorrect|empty|blank|missing|duplicated|misaligned|garbled|"
                     r"upside down|negative|too (?:small|large|big|slow|long|short|wide))"),
     "the total is wrong", "the total is right"),
    ("why", (r"why (?:is|does|do|are|did|isn't|doesn't)\b[^?\n]{0,60}\b(?:fail|still|broken|crash|"
             r"wrong|not work|missing|empty|undefined|null|hang)"),
     "why does the login fail now?", "why does it use a queue?"),
))
"""How a prompt begins, in lower case, that reports a fault in what the agent did."""

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

_FILLERS: Final = expression(
    r"\A(?:(?:hm+|um+|uh|oh|ah|ok(?:ay)?|well|sorry|hey|hi|but|so|and|ugh|argh|yeah|yes|yep|thanks|"
    r"thank you|nice|cool|great|good|almost|close|perfect|please|fyi|strange(?:ly)?|weird(?:ly)?|"
    r"unfortunately|however|it seems|seems like)\b[\s,.!:;\u2026-]+){1,6}"
)
"""Small words before what a prompt says, in lower case."""

_EDITOR_CONTEXT: Final = "# Context from"
_EDITOR_REQUEST: Final = "## My request for Codex:"
"""Where the prompt begins behind what Codex's editor plug-in tells of open files."""

_SENTENCE_END: Final = expression(r"(?<=[.!?:])\s+|\n+")
_OFFER: Final = expression(
    r"^(?:(?:so|now|and|if not|otherwise),? )?(?:would you like|do you want|want me|shall i|"
    r"should i|may i|can i|is it ok|is that ok|would it help|do you need me|if you (?:like|want))\b"
)
_COURTESY: Final = expression(
    r"\b(?:anything else|something else|help with (?:next|more)|what(?:'s| is) next|what next|"
    r"any (?:other |more |further )?questions|how can i help|what else|"
    r"does (?:that|this) (?:help|answer|make sense|clarify)|sounds? good|make sense)\b"
)
"""Questions of politeness: nobody has to answer them."""

SUCCESS: Final = expression(
    r"\b(?:all (?:\w{1,20} ){0,3}(?:pass|green|done|complete)|done|fixed|committed|pushed|merged|"
    r"completed?|perfect|created|updated|added|implemented|resolved|success(?:fully)?|passes)\b",
    re.IGNORECASE,
)
"""Words of a reply that closes its work."""


Tone = Literal["", "corrects", "declines", "goes on", "asks"]
"""What a text says by its wording: of a prompt that it corrects the agent or reports a fault, says
no to it, or only lets it go on; of an answer that it ends in a question."""

SPOKEN: Final = frozenset({"user_msg", "assistant_msg"})
"""Kinds of events whose texts have a tone."""


def tone_of(kind: str, payload: JSON) -> Tone:
    """Return what a prompt or an answer says by its wording; "" for all else."""
    text = output.text(payload)
    if kind == "assistant_msg":
        return "asks" if text.rstrip().endswith("?") else ""
    prompt = without_editor_context(text)
    how = corrects(prompt)
    if how not in (None, "no") or reports_fault(prompt):
        return "corrects"
    if how is not None:
        return "declines"
    return "goes on" if only_goes_on(prompt) else ""


def corrects(prompt: str) -> str | None:
    """Return the name of the wording by which a prompt corrects the agent, or None."""
    return _first_or_behind_fillers(CORRECTIONS, prompt)


def reports_fault(prompt: str) -> str | None:
    """Return the name of the wording by which a prompt reports a fault, or None.

    An error text that somebody pasted is a report as well.
    """
    name = _first_or_behind_fillers(REPORTS, prompt)
    if name is None and errors.error_shape(prompt[:LOOKED_AT].lstrip().partition("\n")[0]):
        return "error text"
    return name


def without_editor_context(prompt: str) -> str:
    """Return a prompt without what an editor's plug-in puts before it."""
    if not prompt.startswith(_EDITOR_CONTEXT):
        return prompt
    _, mark, request = prompt.partition(_EDITOR_REQUEST)
    return request.strip() if mark else prompt


def asks_user(reply: str) -> bool:
    """Return whether a reply ends in a question that only its reader can answer.

    What a polite reply offers at its end (more help, a further step) is no such question.
    """
    question = _closing_question(reply)
    return question is not None and not offers(question) and not _COURTESY.search(question)


def closes_with_offer(reply: str) -> bool:
    """Return whether a reply ends in the offer of a further step."""
    question = _closing_question(reply)
    return question is not None and offers(question) and not _COURTESY.search(question)


def offers(question: str) -> bool:
    """Return whether a question offers to do something."""
    return _OFFER.search(question) is not None


def _closing_question(reply: str) -> str | None:
    """Return the last sentence of a reply, in lower case, if it is a question."""
    end = reply[-LOOKED_AT:].rstrip().rstrip("*_`\"')] ").casefold().replace("\u2019", "'")
    if not end.endswith(("?", "\uff1f")):
        return None
    return _SENTENCE_END.split(end[:-1])[-1].strip(" *_-#>\"'([") + "?"


def only_goes_on(prompt: str) -> bool:
    """Whether a prompt asks for nothing but more of the same."""
    return _first(GO_ON, prompt) is not None


def thanks(prompt: str) -> bool:
    """Whether a prompt shows that its writer is content."""
    return _first(THANKS, prompt) is not None


def _plain(prompt: str) -> str:
    return prompt[:LOOKED_AT].lstrip(" \t\r\n>*-").casefold().replace("\u2019", "'")


def _first_or_behind_fillers(table: Table, prompt: str) -> str | None:
    """Return the name of the first row that a prompt matches, as it is or without small words."""
    name = _first(table, prompt)
    if name is None and (small := _FILLERS.match(plain := _plain(prompt))) is not None:
        return _first(table, plain[small.end() :])
    return name


def _first(table: Table, prompt: str) -> str | None:
    text = _plain(prompt)
    if table.any.match(text) is None:
        return None
    return next((row.name for row, pattern in table.each if pattern.match(text)), None)
