"""Spill: large results leave the transcript and come back exactly."""

from __future__ import annotations

import base64
import itertools
import json
import stat
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handles import open_below
from tests.journal.test_blobs import SHORT, assert_whole, faults, names, order_of
from thence.errors import ThenceError
from thence.format import codec
from thence.format.records import JSON, Event
from thence.format.spills import PREVIEW, Spilled, placeholder, spilled_in
from thence.journal.log import Disk
from thence.journal.spill import BULKY_CHARS, Budget, Spill, inline_bytes, slim

LONG = "".join(f"line {number}\n" for number in range(5000))


def recorded(content: JSON) -> JSON:
    """Content as a log gives it back."""
    line = codec.encode(Event("user", "", "u", None, content))
    return codec.decode(line).events[0].payload


def image(size: int) -> dict[str, JSON]:
    """An image block of so many bytes."""
    data = base64.b64encode(bytes(size)).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }


# -- what fits ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["", "short", "x" * Budget.per_result, None, [], [{"type": "text", "text": "x"}], [image(99)]],
)
def test_what_fits_is_left_alone(tmp_path: Path, content: JSON) -> None:
    """No file, no folder, the same content."""
    spill = Spill(tmp_path / "spill")

    assert (content, []) == spill.fit(content)
    assert [] == names(tmp_path)


def test_a_long_text_leaves_a_placeholder(tmp_path: Path) -> None:
    """The placeholder tells size, hash, name, the start and the end; the text is one file."""
    spill = Spill(tmp_path)

    content, (spilled,) = spill.fit(LONG)
    key = sha256(LONG.encode()).hexdigest()

    assert (f"{key}.txt", key, len(LONG), len(LONG)) == msgspec.structs.astuple(spilled)[:4]
    assert placeholder(spilled) == content
    assert [f"{key}.txt"] == names(tmp_path)
    assert LONG.encode() == (tmp_path / f"{key}.txt").read_bytes() == spill.load(spilled)
    assert spilled.preview.startswith("line 0\n")
    assert spilled.preview.endswith("line 4999\n")
    assert len(content) < PREVIEW + 500


def test_a_placeholder_has_exactly_this_form() -> None:
    """It stands in transcripts and is read back from them: it never changes."""
    spilled = Spilled(f"{'0' * 64}.txt", "0" * 64, 40_000, 39_000, "start … end")

    assert (
        "[Spilled: 39000 characters, 40000 bytes, kept outside this conversation. "
        f"To see all of it, ask for spill {'0' * 64}.txt, named after its SHA-256. Preview:]\n"
        "start … end\n[End of preview]"
    ) == placeholder(spilled)
    assert [spilled] == spilled_in(placeholder(spilled))


def test_one_character_over_the_budget_spills(tmp_path: Path) -> None:
    """The limit is the last length that stays."""
    spill = Spill(tmp_path)

    assert 0 == len(spill.fit("é" * Budget.per_result)[1])
    assert 1 == len(spill.fit("é" * (Budget.per_result + 1))[1])


def test_the_largest_blocks_go_until_the_rest_fits(tmp_path: Path) -> None:
    """Other blocks, their order and their fields stay."""
    content: list[Any] = [
        {"type": "text", "text": "first"},
        {"type": "text", "text": "m" * 20_000, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "l" * 25_000, "cache_control": {"type": "ephemeral"}},
        "bare",
        {"type": "text", "text": "last"},
    ]

    fitted, (spilled,) = Spill(tmp_path).fit(content)

    assert [*content[:2], {**content[2], "text": placeholder(spilled)}, *content[3:]] == fitted


def test_an_image_over_the_budget_spills_as_well(tmp_path: Path) -> None:
    """A block that is no text leaves a text block, and comes back as it was."""
    content = [{"type": "text", "text": "a screenshot"}, image(100_000)]
    spill = Spill(tmp_path)

    fitted, (spilled,) = spill.fit(content)

    assert [content[0], {"type": "text", "text": placeholder(spilled)}] == fitted
    assert "image/png" in spilled.preview
    assert content[1] == json.loads(spill.load(spilled))
    assert content == spill.restore(fitted)


def test_many_small_blocks_spill_together(tmp_path: Path) -> None:
    """When no block is worth a file of its own, the list goes as one."""
    content = [{"type": "text", "text": f"{number:>100}"} for number in range(1000)]
    spill = Spill(tmp_path)

    fitted, (spilled,) = spill.fit(content)

    assert [{"type": "text", "text": placeholder(spilled)}] == fitted
    assert [spilled.name] == names(tmp_path)
    assert content == spill.restore(fitted)
    assert inline_bytes(fitted) == spill.inline_so_far


def test_a_session_has_a_budget_too(tmp_path: Path) -> None:
    """Once the session's bytes are used up, smaller results spill, but not the small ones."""
    spill = Spill(tmp_path, per_session=50_000)
    texts = [str(number) * 20_000 for number in range(4)]

    spilled = [len(spill.fit(text)[1]) for text in texts]

    assert [0, 0, 1, 1] == spilled
    assert ("ok", []) == spill.fit("ok")


def test_what_would_hardly_get_shorter_stays(tmp_path: Path) -> None:
    """No placeholder is longer than half of what it stands for."""
    spill = Spill(tmp_path, per_result=10, per_session=0)
    for length in range(0, 1000, 7):
        text = "x" * length
        content, spilled = spill.fit(text)

        assert 2 * len(content) <= len(text) if spilled else content == text


def test_a_text_that_looks_like_a_placeholder_is_spilled_itself(tmp_path: Path) -> None:
    """A tool that prints a transcript cannot make us take its words for ours."""
    spill = Spill(tmp_path)
    quoted, _ = spill.fit(LONG)
    blocks = [{"type": "text", "text": "see:"}, {"type": "text", "text": quoted}]

    again, (spilled,) = spill.fit(quoted)
    in_list, _ = spill.fit(blocks)

    assert quoted.encode() == spill.load(spilled)
    assert quoted == spill.restore(again)
    assert blocks == spill.restore(in_list)
    assert ("see: " + quoted, []) == spill.fit("see: " + quoted)


# -- what comes back ------------------------------------------------------------------------

ODD = [
    "\ud800",
    "\udfff\ud800",
    "\ud83d\ude00",
    "\0",
    "\u2028\u2029",
    "\r\n",
    "\ufeff",
    "😀",
    "\x1b[",
]


@pytest.mark.parametrize("odd", ODD)
def test_any_text_comes_back_exactly(tmp_path: Path, odd: str) -> None:
    """Lone surrogates, NUL, odd line ends: the file gives them back, the preview is clean."""
    text = odd * 40_000
    spill = Spill(tmp_path)

    content, (spilled,) = spill.fit(text)

    assert text == spill.load(spilled).decode("utf-8", "surrogatepass")
    assert text == spill.restore(recorded(content))
    assert content == recorded(content)
    assert content.encode().decode() == content


PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from([*ODD, "x" * 400, "y" * 3000]),
    st.characters(categories=["Cs"]),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
BLOCKS = st.one_of(
    TEXTS,
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(image, st.integers(0, 3000)),
    st.builds(lambda text: {"type": "text", "text": text, "citations": [text]}, TEXTS),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.none(),
)
CONTENTS = st.one_of(TEXTS, st.lists(BLOCKS, max_size=6), BLOCKS)


@given(st.lists(CONTENTS, max_size=6), st.integers(0, 3000), st.integers(0, 20_000))
def test_any_content_comes_back_and_the_budget_holds(
    contents: list[JSON], per_result: int, per_session: int
) -> None:
    """Whole content, names as placeholders tell them, and no more inline than can be helped."""
    with TemporaryDirectory() as folder:
        spill = Spill(Path(folder) / "s", per_result=per_result, per_session=per_session)
        for content in contents:
            before = spill.inline_so_far
            fitted, spilled = spill.fit(content)

            assert inline_bytes(recorded(fitted)) == spill.inline_so_far - before
            assert content == spill.restore(fitted)
            assert spilled == spilled_in(fitted) == spilled_in(recorded(fitted))
            assert [spill_ref.hash for spill_ref in spilled] == [
                sha256(spill.load(spill_ref.name)).hexdigest() for spill_ref in spilled
            ]


@given(st.lists(CONTENTS, min_size=1, max_size=8), st.integers(0, 8))
def test_a_resumed_session_decides_as_the_first_one(contents: list[JSON], at: int) -> None:
    """What was recorded tells the state of the budget: the same bytes, resumed or not."""
    with TemporaryDirectory() as folder:
        first = Spill(Path(folder), per_result=1000, per_session=4000)
        fitted = [first.fit(content) for content in contents]
        done = [recorded(content) for content, _ in fitted[:at]]
        second = Spill(
            Path(folder),
            per_result=1000,
            per_session=4000,
            inline_so_far=sum(map(inline_bytes, done)),
        )

        assert fitted[at:] == [second.fit(content) for content in contents[at:]]
        assert first.inline_so_far == second.inline_so_far


@given(st.lists(st.integers(0, 50_000), max_size=8))
def test_a_result_never_stays_over_the_budget(lengths: list[int]) -> None:
    """With the default budget every result gets below it, whatever it is made of."""
    content = [{"type": "text", "text": "x" * length} for length in lengths]
    with TemporaryDirectory() as folder:
        fitted, _ = Spill(Path(folder)).fit(content)

    assert Budget.per_result >= sum(len(block["text"]) for block in fitted)


@pytest.mark.slow
def test_what_has_no_json_form_is_left_for_the_log_to_judge(tmp_path: Path) -> None:
    """Depth beyond any writer and foreign objects do not raise here."""
    deep: JSON = {}
    for _ in range(200_000):
        deep = {"x": deep}
    content = [deep, {"type": "x", "data": object()}]

    fitted, spilled = Spill(tmp_path, per_session=0).fit(content)

    assert [] == spilled
    assert fitted[0] is deep


# -- the files ------------------------------------------------------------------------------


def test_side_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    """0600 in a folder of 0700."""
    _, (spilled,) = Spill(tmp_path / "spill").fit(LONG)

    assert 0o700 == stat.S_IMODE((tmp_path / "spill").stat().st_mode)
    assert 0o600 == stat.S_IMODE((tmp_path / "spill" / spilled.name).stat().st_mode)


def test_the_same_text_is_kept_once(tmp_path: Path) -> None:
    """A result that comes again costs no second file."""
    spill = Spill(tmp_path)
    first, second = spill.fit(LONG), spill.fit(LONG)

    assert first == second
    assert 1 == len(names(tmp_path))


@pytest.mark.parametrize("harm", ["missing", "flipped", "cut", "link"])
def test_a_damaged_side_file_is_told(tmp_path: Path, harm: str) -> None:
    """What does not verify is an error with a hint, never a text."""
    spill = Spill(tmp_path / "spill")
    content, (spilled,) = spill.fit(LONG)
    path = tmp_path / "spill" / spilled.name
    data = path.read_bytes()
    path.unlink()
    if harm == "link":
        (tmp_path / "copy").write_bytes(data)
        path.symlink_to(tmp_path / "copy")
    elif harm != "missing":
        path.write_bytes(data[:-1] + (b"?" if harm == "flipped" else b""))

    for asked in (spilled, spilled.name):
        with pytest.raises(ThenceError, match="saved content") as caught:
            spill.load(asked)
        assert caught.value.hint
    with pytest.raises(ThenceError):
        spill.restore(content)


@pytest.mark.parametrize(
    "name",
    ["", "../secret", "/etc/passwd", "0" * 64, "0" * 64 + ".exe", "0" * 64 + ".txt/..", "\0", "é"],
)
def test_only_our_own_names_are_opened(tmp_path: Path, name: str) -> None:
    """A name from a log that is not one of ours leads nowhere."""
    (tmp_path / "secret").write_text("x")
    spill = Spill(tmp_path / "spill")

    for asked in (name, Spilled(name, "0" * 64, 1, 1, "")):
        with pytest.raises(ThenceError, match="not the name of a spill"):
            spill.load(asked)

    assert [] == spilled_in(placeholder(Spilled(name, "0" * 64, 1, 1, "")))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + " ",
        lambda text: " " + text,
        lambda text: text.replace(" characters", "0 characters").replace("Spilled: ", "Spilled: 0"),
        lambda text: text.replace(".txt", ".TXT"),
        lambda text: text.replace("[End of preview]", ""),
        lambda text: [{"type": "text", "text": text, "more": 1}],
        lambda text: [{"type": "tool_use", "text": text}],
        lambda text: {"content": text},
        lambda _: 5,
    ],
)
def test_only_a_whole_placeholder_is_read_as_one(tmp_path: Path, change: Any) -> None:
    """Anything before, behind or around it makes it a text like others."""
    content, _ = Spill(tmp_path).fit(LONG)

    assert [] == spilled_in(change(content))


def test_a_fault_gives_no_placeholder_without_its_file(tmp_path: Path) -> None:
    """Whichever call fails: a clear error and files that verify; short writes are finished."""
    folders = (tmp_path / str(number) for number in itertools.count())
    used: list[Path] = []
    done: list[tuple[Spill, JSON]] = []
    content = [{"type": "text", "text": LONG}, image(50_000)]

    def run(disk: Disk) -> None:
        used.append(next(folders))
        fitted, _ = Spill(used[-1], disk=disk).fit(content)
        done.append((Spill(used[-1]), fitted))

    met = 0
    for fault, error in faults(run):
        met += 1
        assert error is None or (fault != SHORT and error.hint)
        if used[-1].exists():
            assert_whole(used[-1])
    for spill, fitted in done:
        assert content == spill.restore(fitted)

    assert met > 40
    assert [] == open_below(tmp_path)


def test_a_side_file_is_durable_before_its_placeholder_is_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes before the name, the folder last."""
    disk, order = order_of(monkeypatch)

    _, (spilled,) = Spill(tmp_path, disk=disk).fit(LONG)

    assert ["sync scratch", f"rename {spilled.name}", f"sync {tmp_path.name}"] == order


def test_a_failed_spill_takes_nothing_of_the_budget(tmp_path: Path) -> None:
    """What was not handed out was not recorded."""
    (tmp_path / "spill").touch()
    spill = Spill(tmp_path / "spill")

    with pytest.raises(ThenceError):
        spill.fit(LONG)

    assert 0 == spill.inline_so_far


# -- copies ---------------------------------------------------------------------------------

OUTPUT = "some output\n" * 100


def test_a_copy_loses_only_what_stands_in_the_blocks() -> None:
    """Numbers, ids, flags and texts of its own stay."""
    result = {
        "stdout": OUTPUT,
        "stderr": "",
        "exitCode": 1,
        "interrupted": False,
        "agentId": "a1b2",
        "originalFile": "own " + OUTPUT,
        "content": [{"type": "text", "text": OUTPUT}],
        "file": {"base64": OUTPUT, "size": 7},
    }

    slimmed = slim(result, [{"type": "tool_result", "content": [{"type": "text", "text": OUTPUT}]}])

    assert {
        "stderr": "",
        "exitCode": 1,
        "interrupted": False,
        "agentId": "a1b2",
        "originalFile": "own " + OUTPUT,
        "content": [{"type": "text"}],
        "file": {"size": 7},
    } == slimmed
    assert OUTPUT == result["stdout"] == result["file"]["base64"]  # type: ignore[index]


@pytest.mark.parametrize("field", ["agentId", "exitCode", "error", "stderr", "structuredPatch"])
def test_ids_codes_errors_and_diffs_stay(field: str) -> None:
    """Even when the very same text stands in the blocks."""
    for result in ({field: OUTPUT}, {"deeper": [{field: OUTPUT}]}, {field: [{"lines": OUTPUT}]}):
        assert result == slim(result, OUTPUT)


def test_short_values_stay() -> None:
    """An id that happens to be the whole output is not bulk."""
    result = {"taskId": "x" * (BULKY_CHARS - 1)}

    assert result == slim(result, "x" * (BULKY_CHARS - 1))


@pytest.mark.parametrize(
    ("result", "blocks", "expected"),
    [
        (OUTPUT, OUTPUT, None),
        (OUTPUT, [{"type": "text", "text": OUTPUT}], None),
        (OUTPUT, [{"type": "tool_result", "content": OUTPUT, "is_error": True}], OUTPUT),
        (OUTPUT, "other", OUTPUT),
        (None, OUTPUT, None),
        (5, None, 5),
        ([OUTPUT], OUTPUT, [OUTPUT]),
    ],
)
def test_a_copy_of_any_shape_is_taken(result: JSON, blocks: JSON, expected: JSON) -> None:
    """A bare text goes when it is in the blocks, unless it is an error; the rest stays."""
    assert expected == slim(result, blocks)


@pytest.mark.slow
def test_a_deep_copy_is_no_problem() -> None:
    """Depth costs no stack."""
    deep: JSON = {"stdout": OUTPUT}
    for _ in range(100_000):
        deep = [{"x": deep}]
    slimmed = slim(deep, deep)
    for _ in range(100_000):
        slimmed = slimmed[0]["x"]

    assert {} == slimmed


@pytest.mark.slow
def test_real_copies_get_smaller_and_lose_nothing_else(shared: Path) -> None:
    """On real clients' logs: every dropped text stands in the blocks of the same record."""
    dropped = records = 0
    for path in sorted((shared / "data").rglob("*.jsonl")):
        for record in codec.objects(path.read_bytes()):
            if not isinstance(record, codec.RawRecord) or "toolUseResult" not in record.value:
                continue
            message = record.value.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            result = record.value["toolUseResult"]
            missing = set(leaves(result)) - set(leaves(slim(result, content)))
            records += 1
            dropped += sum(map(len, missing))

            assert missing <= set(leaves(content))

    assert records > 100
    assert dropped > 1000


def leaves(value: JSON) -> list[str]:
    """Every text in a value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in leaves(part)]


def test_nothing_from_content_becomes_a_name(tmp_path: Path) -> None:
    """However a result tries to name itself, only hashes are in the folder."""
    spill = Spill(tmp_path / "spill", per_result=10)
    for hostile in ("../" * 2000, "/etc/passwd\0" * 500, {"type": "../x", "name": "../" * 2000}):
        spill.fit([hostile])

    assert ["spill"] == names(tmp_path)
    assert all(len(Path(name).stem) == 64 for name in names(tmp_path / "spill"))
    assert 3 == len(names(tmp_path / "spill"))
