"""`thence tag`: words that the user sorts sessions by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from thence.cli import options, wiring
from thence.cli.columns import short_id
from thence.cli.terminal import answer, clean, several


@click.command(
    "tag",
    help="Tag a session. +word adds a tag, -word removes one. Without words: show its tags."
    " Without ID: list all tags.",
    epilog="tag:WORD finds tagged sessions in a search.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("wanted", metavar="[ID]", required=False, shell_complete=options.complete_ids)
@click.argument("words", metavar="[+WORD|-WORD]...", nargs=-1)
@options.as_json
def command(wanted: str | None, words: tuple[str, ...], *, json: bool) -> int:
    """Change or tell the tags of a session."""
    from thence.cli import notes

    if wanted is None:
        return _list_all(json=json)
    with wiring.store() as store:
        session = wiring.session(store, wanted).session
    tags = notes.label(session, tags=_change_tags(session.session_uid, words)).tags
    shown = clean(", ".join(tags) or "has no tags")
    lines = [f"{clean(short_id(session.native_session_id))}  {shown}"]
    return answer({"session_uid": session.session_uid, "tags": list(tags)}, lines, json=json)


def _change_tags(uid: str, words: Sequence[str]) -> list[str] | None:
    """Return the tags that a session shall have; a word that is no tag changes nothing at all."""
    from thence.memory.labels import Label, tag_of

    if not words:
        return None
    tags = set(wiring.labels().get(uid, Label()).tags)
    gate = wiring.gate()
    for word in words:
        tag = tag_of(gate.text(word.lstrip("+-")))
        (tags.discard if word.startswith("-") else tags.add)(tag)
    return sorted(tags)


def _list_all(*, json: bool) -> int:
    counts = Counter(tag for label in wiring.labels().values() for tag in label.tags)
    ordered = sorted(counts.items(), key=lambda count: (-count[1], count[0]))
    lines = [f"{clean(tag)}  {several(number, 'session')}" for tag, number in ordered]
    return answer(
        [{"tag": tag, "sessions": number} for tag, number in ordered],
        lines or ["no tags yet: thence tag ID +word"],
        json=json,
    )
