"""Questions made from logs by a fixed recipe.

Search by words was not tuned with them. The way to fuse words and meaning was chosen with their
figures at hand. Those of the second seed are of further agents too, and were drawn when search was
done: nothing was chosen with them.

Only logs are read, never our store. Texts are what people and models said and what tools printed.
Of each kind `PER_KIND` questions are drawn with a fixed seed, at most one for a session:

- keywords: the three rarest words of a prompt or an answer that some other session has as well;
- sentence: a sentence of 8 to 20 words, every third of its longer words left out, the first half
  of the other ones in other forms (a plural or none), behind the beginning of a question;
- error: a line of an output that tells of an error, with other numbers and other folders.

The sessions that answer are those whose texts hold the three words, or the line as it was.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

PER_KIND: Final = 30
SEED: Final = 21
UNSEEN_SEED: Final = 48_271

_WORD = re.compile(r"[A-Za-z][A-Za-z_]{3,24}")
_SENTENCE = re.compile(r"[A-Z][^.!?\n`|*#<>{}]{40,160}[.!?]")
_ERROR = re.compile(r"error|failed|not found|denied|fatal|exception|cannot", re.IGNORECASE)
_STARTS = ("how did we handle this: ", "when did I ask about ", "what did we do about ", "why ")
_LEAST_LINE, _MOST_LINE = 30, 160
_LONGER = 5  # letters of a word that may be left out or changed
_LINE_SESSIONS = 3
"""A line that more sessions have is no question about one of them."""


class Fresh(NamedTuple):
    """A question of the recipe, and the sessions that answer it."""

    kind: str
    question: str
    answers: list[str]


class _Texts(NamedTuple):
    spoken: list[str]
    printed: list[str]


def fresh_questions(home: Path, seed: int = SEED) -> list[Fresh]:
    """Return the questions that the recipe makes of the logs in a home."""
    sessions = dict(_sessions(home))
    if seed != SEED:
        sessions |= dict(_further_sessions(home))
    draw = random.Random(seed)
    spoken = {uid: "\n".join(texts.spoken) for uid, texts in sessions.items()}
    words = {uid: frozenset(map(str.lower, _WORD.findall(text))) for uid, text in spoken.items()}
    counts = Counter(word for some in words.values() for word in some)
    made: list[Fresh] = []
    for kind, make in (("keywords", _keywords), ("sentence", _sentence), ("error", _error)):
        order = sorted(sessions)
        draw.shuffle(order)
        questions = (make(sessions[uid], draw, counts) for uid in order)
        of_kind: list[Fresh] = []
        for made_of in questions:
            if made_of is None or len(of_kind) == PER_KIND:
                continue
            question, literal = made_of
            if kind == "keywords":
                answers = [uid for uid in order if words[uid].issuperset(literal.split())]
            else:
                part = 0 if kind == "sentence" else 1
                answers = [uid for uid in order if any(literal in t for t in sessions[uid][part])]
            if 0 < len(answers) <= _LINE_SESSIONS:
                of_kind.append(Fresh(kind, question, sorted(answers)))
        made += of_kind
    return made


def _keywords(texts: _Texts, draw: random.Random, counts: Counter[str]) -> tuple[str, str] | None:
    choices = [set(map(str.lower, _WORD.findall(text))) for text in texts.spoken]
    choices = [some for some in choices if len(some) >= 6]
    if not choices:
        return None
    shared = [word for word in draw.choice(choices) if counts[word] > 1]
    rarest = sorted(shared, key=lambda word: (counts[word], word))[:3]
    return (" ".join(rarest), " ".join(rarest)) if len(rarest) == 3 else None


def _sentence(texts: _Texts, draw: random.Random, _: Counter[str]) -> tuple[str, str] | None:
    found = [s for text in texts.spoken for s in _SENTENCE.findall(text)]
    found = [s for s in found if 8 <= len(s.split()) <= 20]
    if not found:
        return None
    literal = draw.choice(sorted(set(found)))
    longer = [word for word in _WORD.findall(literal) if len(word) >= _LONGER]
    dropped = set(longer[2::3])
    rest = [word for word in longer if word not in dropped]
    changed = {word: word[:-1] if word.endswith("s") else f"{word}s" for word in rest[::2]}
    words = [changed.get(word, word) for word in literal.rstrip(".!?").split()]
    asked = " ".join(word for word in words if word.strip(",;:()'\"") not in dropped)
    return draw.choice(_STARTS) + asked, literal


def _error(texts: _Texts, draw: random.Random, _: Counter[str]) -> tuple[str, str] | None:
    lines = {line.strip() for text in texts.printed for line in text.splitlines()}
    found = sorted(
        line
        for line in lines
        if _LEAST_LINE <= len(line) <= _MOST_LINE and _ERROR.search(line) and line.isprintable()
    )
    if not found:
        return None
    literal = draw.choice(found)
    elsewhere = re.sub(r"(?:/[\w.@-]+)+/", "/srv/app/", literal)
    return re.sub(r"\d+", lambda _: str(draw.randrange(10, 9999)), elsewhere), literal


# -- logs -----------------------------------------------------------------------------------


def _sessions(home: Path) -> Iterator[tuple[str, _Texts]]:
    """Yield the texts of each session of Claude Code and Codex, by its uid."""
    out: dict[str, _Texts] = {}
    for path in sorted(home.glob(".claude/projects/**/*.jsonl")):
        for record in _records(path):
            uid = f"claude:{record.get('sessionId') or path.stem}"
            _gather(record, out.setdefault(uid, _Texts([], [])))
    for path in sorted(home.glob(".codex/sessions/**/*.jsonl")):
        for record in _records(path):
            _gather(record, out.setdefault(f"codex:{path.stem[-36:]}", _Texts([], [])))
    yield from out.items()


_FURTHER: Final = {
    "pi": ".pi/agent/sessions/**/*.jsonl",
    "qwen": ".qwen/projects/**/chats/*.jsonl",
    "gemini": ".gemini/tmp/**/chats/session-*.json*",
    "copilot": ".copilot/session-state/*/events.jsonl",
}
"""Where logs of further agents lie."""
_PRINTED: Final = frozenset({"toolResult", "tool_result", "functionResponse", "result", "output"})


def _further_sessions(home: Path) -> Iterator[tuple[str, _Texts]]:
    """Yield the texts of each session of further agents, by its uid."""
    out: dict[str, _Texts] = {}
    for agent, pattern in _FURTHER.items():
        for path in sorted(home.glob(pattern)):
            is_lines = path.suffix == ".jsonl"
            records = list(_records(path)) if is_lines else [json.loads(path.read_text("utf-8"))]
            first = records[0] if records else {}
            name = first.get("sessionId") or first.get("id")
            name = path.parent.name if agent == "copilot" else name
            texts = out.setdefault(f"{agent}:{name}", _Texts([], []))
            for record in records:
                _gather_anywhere(record, texts, is_printed=False)
    yield from out.items()


def _gather_anywhere(value: object, texts: _Texts, *, is_printed: bool) -> None:
    """Collect texts by the names that they have in most formats."""
    if isinstance(value, list):
        for inner in value:
            _gather_anywhere(inner, texts, is_printed=is_printed)
    if not isinstance(value, dict):
        return
    named = {value.get("role"), value.get("type")}
    is_printed = is_printed or not named.isdisjoint(_PRINTED)
    for key, inner in value.items():
        if isinstance(inner, str) and key in ("text", "content", "output"):
            (texts.printed if is_printed or key == "output" else texts.spoken).append(inner)
        else:
            _gather_anywhere(inner, texts, is_printed=is_printed or key in _PRINTED)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _gather(value: object, texts: _Texts) -> None:
    """Collect what was said and what was printed, wherever it stands in a record."""
    if isinstance(value, list):
        for inner in value:
            _gather(inner, texts)
    if not isinstance(value, dict):
        return
    if value.get("type") in ("tool_result", "function_call_output"):
        texts.printed.extend(_strings(value.get("content", value.get("output"))))
        return
    if value.get("role") in ("user", "assistant"):
        content = value.get("content")
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            if isinstance(block, str):
                texts.spoken.append(block)
            elif isinstance(block, dict) and isinstance(block.get("text"), str):
                texts.spoken.append(block["text"])
            else:
                _gather(block, texts)
        return
    for inner in value.values():
        _gather(inner, texts)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, dict):
        yield from _strings(value.get("text", value.get("output")))
