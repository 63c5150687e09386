"""Questions that a fixed recipe generates from logs.

Search by words was not tuned with them. The way to combine words and meaning was chosen with their
figures known. Questions of the second seed are also about further agents, and were generated after
search was finished: nothing was chosen with them.

Only logs are read, never our store. Texts are messages of people and models, and outputs of tools.
Of each kind `PER_KIND` questions are drawn with a fixed seed, at most one per session:

- keywords: the three rarest words of a prompt or an answer that another session has, too;
- sentence: a sentence of 8 to 20 words without every third of its longer words, with half of the
  others in another form (plural or singular), after the beginning of a question;
- error: an output line about an error, with other numbers and other folders.

The sessions that answer are those whose texts have the three words, or the original line.
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
_MIN_LINE_CHARS, _MAX_LINE_CHARS = 30, 160
_MIN_LONG_WORD_CHARS = 5  # shorter words are neither left out nor changed
_MAX_ANSWERS = 3
"""A line that more sessions have does not identify one of them."""


class GeneratedQuestion(NamedTuple):
    """A question of the recipe, and the sessions that answer it."""

    kind: str
    question: str
    answers: list[str]


class _Texts(NamedTuple):
    messages: list[str]
    outputs: list[str]


def generate_questions(home: Path, seed: int = SEED) -> list[GeneratedQuestion]:
    """Return the questions that the recipe generates from the logs in a home."""
    sessions = dict(_sessions(home))
    if seed != SEED:
        sessions |= dict(_further_sessions(home))
    rng = random.Random(seed)
    messages = {uid: "\n".join(texts.messages) for uid, texts in sessions.items()}
    words = {uid: frozenset(map(str.lower, _WORD.findall(text))) for uid, text in messages.items()}
    counts = Counter(word for vocabulary in words.values() for word in vocabulary)
    generated: list[GeneratedQuestion] = []
    for kind, make in (("keywords", _keywords), ("sentence", _sentence), ("error", _error)):
        order = sorted(sessions)
        rng.shuffle(order)
        questions = (make(sessions[uid], rng, counts) for uid in order)
        of_kind: list[GeneratedQuestion] = []
        for candidate in questions:
            if candidate is None or len(of_kind) == PER_KIND:
                continue
            question, literal = candidate
            if kind == "keywords":
                answers = [uid for uid in order if words[uid].issuperset(literal.split())]
            else:
                part = 0 if kind == "sentence" else 1
                answers = [uid for uid in order if any(literal in t for t in sessions[uid][part])]
            if 0 < len(answers) <= _MAX_ANSWERS:
                of_kind.append(GeneratedQuestion(kind, question, sorted(answers)))
        generated += of_kind
    return generated


def _keywords(texts: _Texts, rng: random.Random, counts: Counter[str]) -> tuple[str, str] | None:
    choices = [set(map(str.lower, _WORD.findall(text))) for text in texts.messages]
    choices = [words for words in choices if len(words) >= 6]
    if not choices:
        return None
    shared = [word for word in rng.choice(choices) if counts[word] > 1]
    rarest = sorted(shared, key=lambda word: (counts[word], word))[:3]
    return (" ".join(rarest), " ".join(rarest)) if len(rarest) == 3 else None


def _sentence(texts: _Texts, rng: random.Random, _: Counter[str]) -> tuple[str, str] | None:
    sentences = [s for text in texts.messages for s in _SENTENCE.findall(text)]
    sentences = [s for s in sentences if 8 <= len(s.split()) <= 20]
    if not sentences:
        return None
    literal = rng.choice(sorted(set(sentences)))
    longer = [word for word in _WORD.findall(literal) if len(word) >= _MIN_LONG_WORD_CHARS]
    dropped = set(longer[2::3])
    rest = [word for word in longer if word not in dropped]
    changed = {word: word[:-1] if word.endswith("s") else f"{word}s" for word in rest[::2]}
    words = [changed.get(word, word) for word in literal.rstrip(".!?").split()]
    rest_of_sentence = " ".join(word for word in words if word.strip(",;:()'\"") not in dropped)
    return rng.choice(_STARTS) + rest_of_sentence, literal


def _error(texts: _Texts, rng: random.Random, _: Counter[str]) -> tuple[str, str] | None:
    lines = {line.strip() for text in texts.outputs for line in text.splitlines()}
    candidates = sorted(
        line
        for line in lines
        if _MIN_LINE_CHARS <= len(line) <= _MAX_LINE_CHARS
        and _ERROR.search(line)
        and line.isprintable()
    )
    if not candidates:
        return None
    literal = rng.choice(candidates)
    other_folder = re.sub(r"(?:/[\w.@-]+)+/", "/srv/app/", literal)
    return re.sub(r"\d+", lambda _: str(rng.randrange(10, 9999)), other_folder), literal


# -- logs -----------------------------------------------------------------------------------


def _sessions(home: Path) -> Iterator[tuple[str, _Texts]]:
    """Yield the texts of each session of Claude Code and Codex, by its uid."""
    sessions: dict[str, _Texts] = {}
    for path in sorted(home.glob(".claude/projects/**/*.jsonl")):
        for record in _records(path):
            uid = f"claude:{record.get('sessionId') or path.stem}"
            _collect(record, sessions.setdefault(uid, _Texts([], [])))
    for path in sorted(home.glob(".codex/sessions/**/*.jsonl")):
        for record in _records(path):
            _collect(record, sessions.setdefault(f"codex:{path.stem[-36:]}", _Texts([], [])))
    yield from sessions.items()


_FURTHER_LOGS: Final = {
    "pi": ".pi/agent/sessions/**/*.jsonl",
    "qwen": ".qwen/projects/**/chats/*.jsonl",
    "gemini": ".gemini/tmp/**/chats/session-*.json*",
    "copilot": ".copilot/session-state/*/events.jsonl",
}
"""Where the logs of further agents are."""
_OUTPUT_TYPES: Final = frozenset(
    {"toolResult", "tool_result", "functionResponse", "result", "output"}
)


def _further_sessions(home: Path) -> Iterator[tuple[str, _Texts]]:
    """Yield the texts of each session of further agents, by its uid."""
    sessions: dict[str, _Texts] = {}
    for agent, pattern in _FURTHER_LOGS.items():
        for path in sorted(home.glob(pattern)):
            is_lines = path.suffix == ".jsonl"
            records = list(_records(path)) if is_lines else [json.loads(path.read_text("utf-8"))]
            first = records[0] if records else {}
            name = first.get("sessionId") or first.get("id")
            name = path.parent.name if agent == "copilot" else name
            texts = sessions.setdefault(f"{agent}:{name}", _Texts([], []))
            for record in records:
                _collect_by_name(record, texts, is_output=False)
    yield from sessions.items()


def _collect_by_name(value: object, texts: _Texts, *, is_output: bool) -> None:
    """Add texts, recognised by the field names that most formats use."""
    if isinstance(value, list):
        for inner in value:
            _collect_by_name(inner, texts, is_output=is_output)
    if not isinstance(value, dict):
        return
    named = {value.get("role"), value.get("type")}
    is_output = is_output or not named.isdisjoint(_OUTPUT_TYPES)
    for key, inner in value.items():
        if isinstance(inner, str) and key in ("text", "content", "output"):
            (texts.outputs if is_output or key == "output" else texts.messages).append(inner)
        else:
            _collect_by_name(inner, texts, is_output=is_output or key in _OUTPUT_TYPES)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _collect(value: object, texts: _Texts) -> None:
    """Add messages and tool outputs, wherever they are in a record."""
    if isinstance(value, list):
        for inner in value:
            _collect(inner, texts)
    if not isinstance(value, dict):
        return
    if value.get("type") in ("tool_result", "function_call_output"):
        texts.outputs.extend(_strings(value.get("content", value.get("output"))))
        return
    if value.get("role") in ("user", "assistant"):
        content = value.get("content")
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            if isinstance(block, str):
                texts.messages.append(block)
            elif isinstance(block, dict) and isinstance(block.get("text"), str):
                texts.messages.append(block["text"])
            else:
                _collect(block, texts)
        return
    for inner in value.values():
        _collect(inner, texts)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, dict):
        yield from _strings(value.get("text", value.get("output")))
