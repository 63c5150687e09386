"""Logs of all agents that are full of secrets, and a look for any part of one.

Whatever samples say is soaked: a text has so many tokens in it, one behind the other, that it is
cut inside one wherever it is cut; names, ids, paths and keys of objects have one each. Equal names
stay equal, so that a session holds together. What a type is called stays: `planted` has logs with a
token in the place of it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tests.agents.transcripts import Script
from tests.agreement.homes import MadeUp
from tests.agreement.planted import Planted
from tests.memory import logs
from tests.pace import by_pace
from tests.secrets import sample

PART: Final = 12
"""So many letters of a secret are too many."""

STEP: Final = by_pace(everyday=48, full=24, prove=1)
"""Of the fields of a record every so-many-th has a token alone in it, in a session of its own."""

VALUE: Final = "k3{A8}9{A6}4{A6}"
"""A secret by its name alone; what has letters alone may be a word."""

CUT: Final = 120
"""A summary has so many characters."""

WALL: Final = 5
"""Tokens in a text, one behind the other."""

LONG_WALL: Final = 120
"""Tokens in some texts: more than a preview shows."""

_RUN: Final = re.compile(rb"[0-9a-z_+/=-]{%d,}" % PART)
_WORD: Final = re.compile(r"[A-Za-z_][\w.:-]{0,40}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:.*|[\d.:+-]+")
_NAMES: Final = frozenset(
    (
        *("agent", "agentName", "agent_name", "author", "branch", "cwd", "directory", "git_branch"),
        *("gitBranch", "label", "model", "modelID", "model_name", "name", "originator"),
        *("provider", "providerID", "repository", "server", "slug", "tool", "tool_name"),
        *("toolName", "version"),
    )
)
"""Fields whose words are names, not types."""
_MANY: Final = 3
"""Every so-many-th name is soaked: with tools of its own alone a session would say little."""
_KINDS: Final = 7
_LONG: Final = 101


class Secrets:
    """Makes secrets, each of its own, and looks for parts of them."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known: list[str] = [*known]
        self._seed = 10_000

    def draw(self, form: str = "ghp" + "_{A36}") -> str:
        """Return another secret."""
        self._seed += 1
        self.known.append(sample(form, self._seed))
        return self.known[-1]

    @cached_property
    def _parts(self) -> dict[bytes, str]:
        parts: dict[bytes, str] = {}
        for secret in self.known:
            body = secret.lower().encode()
            for at in range(len(body) - PART + 1):
                parts[body[at : at + PART]] = secret
        return parts

    def parts_in(self, bodies: Iterable[bytes]) -> dict[str, str]:
        """Return the secrets of which a part stands in some bytes, and what stands around it.

        In any case of letters: an index folds it.
        """
        seen: set[bytes] = set()
        out: dict[str, str] = {}
        for body in bodies:
            folded = body.lower()
            for run in set(_RUN.findall(folded)) - seen:
                seen.add(run)
                for at in range(len(run) - PART + 1):
                    if secret := self._parts.get(run[at : at + PART]):
                        if secret not in out:
                            place = folded.find(run)
                            around = body[max(place - 160, 0) : place + len(run) + 40]
                            out[secret] = around.decode("utf-8", "replace")
                        break
        return out


class Soaked(MadeUp):
    """The made-up sessions of all agents, soaked, and some with one token in each record."""

    def write(self) -> None:
        """Write them, and beside them what was planted."""
        super().write()
        self._texts = self._names = 0
        self._secrets = Secrets()
        self._same: dict[str, str] = {}
        files = sorted(path for path in self.user.rglob("*") if path.is_file())
        self._paths = "\n".join(map(str, files)).replace(str(self.user), "")
        for path in files:
            self._soak_file(path)
        session = resources.files("thence") / "samples" / "tidepool.jsonl"
        with resources.as_file(session) as path:
            planted = Planted(self.user, self.folder / "scratch", path, step=STEP)
        planted.name_after_tokens()
        planted.write(0.5)
        self.write_rest = planted.write
        self._write_cut()
        self._file.write_text(json.dumps([*self._secrets.known, *planted.garden.tokens]))

    def _write_cut(self) -> None:
        """Write a session whose short lines end in the middle of a secret."""
        script = Script("7f3a91c2-0000-4000-8000-00000000000c", "r")
        script.user("Look around.")
        filler, token = "x" * (CUT - 35), self._secrets.draw()
        script.call("c1", command=f"echo {filler} {token} end")
        script.result("c1", f"{filler} {token} end")
        logs.write(self.user / ".claude", script)

    @property
    def _file(self) -> Path:
        return self.folder / "secrets.json"

    @cached_property
    def secrets(self) -> Secrets:
        """What was planted."""
        return Secrets(json.loads(self._file.read_text()))

    # -- soaking ----------------------------------------------------------------------------

    def _soak_file(self, path: Path) -> None:
        if path.suffix == ".db":
            self._soak_database(path)
        elif path.suffix in (".json", ".jsonl"):
            is_document = path.suffix == ".json"
            lines = [path.read_text()] if is_document else path.read_text().splitlines()
            soaked = [self._json(line) or f"{line} {self._secrets.draw()}" for line in lines]
            path.write_text("\n".join(soaked) + "\n")
        elif path.suffix == ".md":
            lines = [self._text(ln) if len(ln) > 20 else ln for ln in path.read_text().splitlines()]
            path.write_text("\n".join(line.replace("\n", " ") for line in lines) + "\n")

    def _soak_database(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            names = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite%'"
            for (table,) in database.execute(names).fetchall():
                rows = database.execute(f'SELECT rowid, * FROM "{table}"')
                columns = [column[0] for column in rows.description][1:]
                for number, *values in rows.fetchall():
                    soaked = [
                        self._leaf(name, value) if isinstance(value, str) else value
                        for name, value in zip(columns, values, strict=True)
                    ]
                    places = ", ".join(f'"{name}"=?' for name in columns)
                    database.execute(
                        f'UPDATE "{table}" SET {places} WHERE rowid=?', (*soaked, number)
                    )

    def _soak(self, value: Any, name: str = "") -> Any:
        """Return a value with secrets in all its texts, and in some names of its entries."""
        if isinstance(value, list):
            return [self._soak(part, name) for part in value]
        if isinstance(value, str):
            return self._leaf(name, value)
        if not isinstance(value, dict):
            return value
        out = {key: self._soak(part, key) for key, part in value.items()}
        if name in ("input", "arguments", "args", "parameters", "metadata", "toolUseResult"):
            draw = self._secrets.draw
            out |= {f"as {draw()}": draw(), "password": draw(VALUE)}
            out |= {"env": [{"name": "API_KEY", "value": draw(VALUE)}]}
        return out

    def _json(self, text: str, name: str = "") -> str:
        try:
            return json.dumps(self._soak(json.loads(text), name))
        except ValueError:
            return ""  # a line that was never written to its end

    def _leaf(self, name: str, text: str) -> str:
        """Return a text of a log with secrets in it."""
        if text[:1] in ("{", "["):
            return self._json(text, name) or self._text(text)
        if len(text) < 2 or name == "type" or _TIME.fullmatch(text) or self._is_path(text):
            return text
        if " " in text or "\n" in text:
            return self._text(text)
        if _WORD.fullmatch(text) and not any(sign.isdigit() for sign in text):
            if name not in _NAMES:
                return text  # what it is, not what it says
            self._names += 1
            if self._names % _MANY:
                return text
        return self._name(text)

    def _is_path(self, text: str) -> bool:
        """Whether a file is named after a text, as after the id of a session, or its beginning."""
        return text in self._paths or (len(text) >= PART and text[:PART] in self._paths)

    def _name(self, text: str) -> str:
        if text not in self._same:
            self._same[text] = f"{text}-{self._secrets.draw()}"
        return self._same[text]

    def _text(self, text: str) -> str:
        """Return a text with a wall of secrets in it, at its end or behind its first words."""
        self._texts += 1
        number = self._texts
        at = len(text)
        if number % 2 and at > CUT // 3:
            at = text.find(" ", CUT // 6) + 1 or at
        wall = " ".join(["x" * (1 + 5 * number % 41), *self._wall(number)])
        return f"{text[:at].rstrip()} {wall} {text[at:]}".rstrip()

    def _wall(self, number: int) -> Iterator[str]:
        draw = self._secrets.draw
        kind = number % _KINDS
        if kind == 1:
            token = draw()
            yield f"{token[:20]}\x1b[1m{token[20:]}"  # coloured inside
        elif kind == 2:
            token = draw()
            yield rf"{token[:4]}\u{ord(token[4]):04x}{token[5:]}"  # a letter as JSON may spell it
        elif kind == 3:
            yield f"export DB_PASSWORD={draw(VALUE)} && echo {self._encoded('DB_PASSWORD=')}"
        elif kind == 4:
            lines = "\n".join(draw("{A64}") for _ in range(4))
            yield f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\n"
        elif kind == 5:
            yield f"curl -H 'Authorization: Basic {self._encoded('me:')}'"
        for _ in range(LONG_WALL if number % _LONG == 0 else WALL):
            yield draw()

    def _encoded(self, before: str) -> str:
        """Return a secret in base64, with what stands before it."""
        encoded = b64encode((before + self._secrets.draw(VALUE)).encode()).decode()
        secret = encoded[4 * len(before) // 3 + 4 :]  # without what is the same in all of them
        self._secrets.known.append(secret)
        return encoded
