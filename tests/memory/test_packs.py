"""Packs: refs that lead to their bytes or to an error, whatever happens in between."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from thence import system
from thence.errors import NotAppendable, SessionBusy
from thence.memory import packs as module
from thence.memory.packs import (
    FRAME_BYTES,
    BlobStore,
    PackDamaged,
    PackMissing,
    Packs,
    Ref,
    pack_name,
)

UID = "claude:17092961"
CANARY = b"canary-7d1f"


def text(seed: int, size: int) -> bytes:
    """Bytes that compress like prose, the same for the same seed."""
    dice = random.Random(seed)
    words = [b"window", b"local", b"time", b"spring", b"skipped", b"tests/feed.py", b"fails"]
    out = bytearray()
    while len(out) < size:
        out += dice.choice(words) + b" "
    return bytes(out[:size])


def only_file(folder: Path) -> Path:
    """The one pack of a folder."""
    (path,) = folder.iterdir()
    return path


def failing(call: Callable[..., object], *, after: int, code: int) -> Callable[..., object]:
    """A system call that fails for ever after so many good calls."""
    calls = 0

    def fake(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(code, os.strerror(code))
        return call(*args)

    return fake


@given(st.lists(st.lists(st.binary(max_size=400), max_size=12), max_size=5), st.integers(0, 2**16))
def test_every_ref_gives_back_its_payload(batches: list[list[bytes]], cached: int) -> None:
    """Whatever was appended in whatever batches is read back, by this process and the next."""
    with tempfile.TemporaryDirectory() as folder:
        packs: BlobStore = Packs(Path(folder), cached=cached)
        refs = [packs.append(UID, batch, sync=False) for batch in batches]
        packs.sync()
        again = Packs(Path(folder), cached=cached)

        assert batches == [[packs.read(ref) for ref in batch] for batch in refs]
        assert batches == [[again.read(ref) for ref in batch] for batch in refs]


def test_small_payloads_share_a_frame(tmp_path: Path) -> None:
    """Frames hold about 64 KB, so that a thousand short payloads compress as one text would."""
    packs = Packs(tmp_path)
    payloads = [text(n, 1000) for n in range(1000)]

    frames = {(ref.offset, ref.length) for ref in map(Ref.parse, packs.append(UID, payloads))}

    assert -(-1000 * 1000 // FRAME_BYTES) == len(frames)
    assert packs.size(UID) < 300_000


def test_a_large_payload_has_a_frame_of_its_own(tmp_path: Path) -> None:
    """Reading a short payload never inflates a large neighbour."""
    packs = Packs(tmp_path)
    payloads = [b"short", text(1, 3 * FRAME_BYTES), b"", b"also short"]
    refs = packs.append(UID, payloads)
    a, b, c, d = map(Ref.parse, refs)

    assert 3 == len({a.offset, b.offset, c.offset})
    assert c.offset == d.offset
    assert payloads == [packs.read(ref) for ref in refs]


def test_a_payload_over_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be read back is not written."""
    monkeypatch.setattr(module, "MAX_PAYLOAD_BYTES", 1000)

    with pytest.raises(NotAppendable, match="over the limit"):
        Packs(tmp_path).append(UID, [bytes(1001)])


def test_a_pack_is_plain_zstd(tmp_path: Path) -> None:
    """Any zstd tool reads a pack: it is frames and nothing else."""
    packs = Packs(tmp_path)
    packs.append(UID, [b"one ", b"two "])
    packs.append(UID, [b"three"])

    with only_file(tmp_path).open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)

        assert b"one two three" == reader.read()


@pytest.mark.parametrize(
    "uid", ["../../escape", "/etc/passwd", "a\0b", "", "x" * 10_000, "\ud800", "CON", "..", "ä/ß"]
)
def test_no_session_id_becomes_a_path(tmp_path: Path, uid: str) -> None:
    """Ids are opaque: the file has a name of ours, inside the folder."""
    packs = Packs(tmp_path / "packs")
    ref = packs.append(uid, [CANARY])[0]

    assert [tmp_path / "packs"] == list(tmp_path.iterdir())
    assert f"{pack_name(uid)}-0.pack" == only_file(tmp_path / "packs").name
    assert CANARY == packs.read(ref)


def test_folder_and_files_are_the_owner_s_alone(tmp_path: Path) -> None:
    """0700 and 0600, whatever the umask says."""
    before = os.umask(0)
    try:
        Packs(tmp_path / "packs").append(UID, [b"x"])
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "packs", only_file(tmp_path / "packs"))
    ]

    assert [0o700, 0o600] == modes


def test_a_pack_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    """A mode that was widened since is set right by the next append."""
    packs = Packs(tmp_path)
    packs.append(UID, [b"x"])
    only_file(tmp_path).chmod(0o644)
    packs.append(UID, [b"y"])

    assert 0o600 == stat.S_IMODE(only_file(tmp_path).stat().st_mode)


def test_a_pack_that_is_evicted_while_it_is_being_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are never written to a file that has lost its name."""
    packs = Packs(tmp_path)
    packs.append(UID, [b"x"])
    flock = fcntl.flock

    def late(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        only_file(tmp_path).unlink()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)

    assert b"y" == packs.read(packs.append(UID, [b"y"])[0])


def test_links_and_pipes_are_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    """A planted link or pipe in place of a pack is an error, and its target is untouched."""
    packs = Packs(tmp_path / "packs")
    ref = packs.append(UID, [b"x"])[0]
    path = only_file(tmp_path / "packs")
    target = tmp_path / "target"
    path.rename(target)
    before = target.read_bytes()
    path.symlink_to(target)
    with pytest.raises(NotAppendable):
        packs.append(UID, [b"y"])
    with pytest.raises(PackDamaged):
        packs.read(ref)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(NotAppendable):
        packs.append(UID, [b"y"])
    with pytest.raises(PackDamaged, match="regular file"):
        packs.read(ref)

    assert before == target.read_bytes()


def test_a_tail_torn_at_any_byte_costs_nothing_that_a_row_names(tmp_path: Path) -> None:
    """Cut inside an append that never returned: earlier refs hold, and the next append works."""
    packs = Packs(tmp_path)
    first = packs.append(UID, [b"first", text(1, 90)])
    path = only_file(tmp_path)
    size = path.stat().st_size
    packs.append(UID, [text(2, 120)])
    data = path.read_bytes()
    for cut in range(size, len(data)):
        path.write_bytes(data[:cut])
        again = Packs(tmp_path)
        later = again.append(UID, [b"later"])

        assert [b"first", text(1, 90)] == [again.read(ref) for ref in first]
        assert b"later" == again.read(later[0])


@pytest.mark.slow
def test_a_flipped_bit_is_never_taken_for_the_payload(tmp_path: Path) -> None:
    """Any damage in a pack is an error with a hint, or leaves the payload as it was."""
    packs = Packs(tmp_path, cached=0)
    payload = text(3, 300)
    ref = packs.append(UID, [payload])[0]
    path = only_file(tmp_path)
    data = path.read_bytes()
    caught = 0
    for place in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert payload == packs.read(ref)
        except PackDamaged:
            caught += 1

    assert caught > len(data) * 7


def test_a_cut_pack_is_damaged_not_short(tmp_path: Path) -> None:
    """Bytes that are missing are never made up for."""
    packs = Packs(tmp_path)
    ref = packs.append(UID, [text(4, 500)])[0]
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(PackDamaged, match="shorter") as caught:
        packs.read(ref)

    assert "--mend" in (caught.value.hint or "")


def test_a_frame_that_claims_too_much_is_not_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds for reading, too."""
    packs = Packs(tmp_path)
    ref = packs.append(UID, [bytes(5000)])[0]
    monkeypatch.setattr(module, "MAX_PAYLOAD_BYTES", 1000)

    with pytest.raises(PackDamaged, match="claims"):
        packs.read(ref)


@given(st.one_of(st.text(), st.from_regex(r"\A[a-z./]{0,22}-?[0-9]?#[0-9,]*\Z")))
def test_what_is_no_ref_of_ours_is_refused(words: str) -> None:
    """No other text leads to a file."""
    with tempfile.TemporaryDirectory() as folder, pytest.raises(PackDamaged):
        Packs(Path(folder)).read(words)


def test_refs_keep_their_form() -> None:
    """Rows hold refs for ever: the text is as it always was, and reads back as itself."""
    ref = "abcdefghijklmnopqr27-1#1024,733,12,345,00c0ffee"

    assert Ref("abcdefghijklmnopqr27", 1, 1024, 733, 12, 345, 0xC0FFEE) == Ref.parse(ref)
    assert ref == str(Ref.parse(ref))


def test_a_ref_never_leads_to_other_bytes(tmp_path: Path) -> None:
    """A session that was evicted and read anew does not answer to its old refs."""
    packs = Packs(tmp_path)
    old = packs.append(UID, [b"as it was"])[0]
    packs.evict(UID)
    new = packs.append(UID, [b"as it is!"])[0]

    with pytest.raises(PackDamaged):
        packs.read(old)

    assert b"as it is!" == packs.read(new)


def test_one_writer_per_session(tmp_path: Path) -> None:
    """While one has unsynced payloads of a session, others may write every other session."""
    first, second = Packs(tmp_path), Packs(tmp_path)
    ref = first.append(UID, [b"x"], sync=False)[0]
    for work in (lambda: second.append(UID, [b"y"]), lambda: second.evict(UID)):
        with pytest.raises(SessionBusy):
            work()
    second.append("codex:other", [b"z"])

    assert b"x" == second.read(ref)

    first.sync()

    assert b"y" == first.read(second.append(UID, [b"y"])[0])


def test_payloads_are_on_the_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced each time, its entry in the folder the first time."""
    synced: list[str] = []
    monkeypatch.setattr(system, "sync_data", lambda handle: synced.append("file"))
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append("folder"))
    packs = Packs(tmp_path)
    packs.append(UID, [b"x"])
    packs.append(UID, [b"y"])
    packs.append(UID, [b"z"], sync=False)

    assert ["file", "folder", "file"] == synced

    packs.sync()

    assert ["file", "folder", "file", "file"] == synced

    Packs(tmp_path).append(UID, [b"w"])

    assert ["file", "folder"] == synced[4:]


def test_many_sessions_wait_for_the_disk_together(tmp_path: Path) -> None:
    """More sessions than may wait at once are synced on the way, and none is lost."""
    packs = Packs(tmp_path)
    refs = [
        packs.append(f"s{n}", [b"%d" % n], sync=False) for n in range(module.MAX_UNSYNCED_PACKS + 5)
    ]

    assert 5 == len(packs._unsynced)

    packs.sync()

    assert [b"%d" % n for n in range(len(refs))] == [packs.read(ref) for (ref,) in refs]


def test_a_failed_sync_is_told_to_everyone_it_concerns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the wait fails in somebody else's append, `sync` still raises: no row may be committed."""
    packs = Packs(tmp_path)
    packs.append("mine", [b"x"], sync=False)
    with monkeypatch.context() as patched:
        patched.setattr(system, "sync_data", failing(os.fdatasync, after=0, code=errno.EIO))
        with pytest.raises(NotAppendable):
            packs.append("other", [b"y"])

    with pytest.raises(NotAppendable):
        packs.sync()
    packs.sync()

    assert b"x" == packs.read(packs.append("mine", [b"x"])[0])


def test_a_failed_sync_of_one_s_own_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has heard that the batch does not count is not told again."""
    packs = Packs(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(system, "sync_data", failing(os.fdatasync, after=0, code=errno.EIO))
        with pytest.raises(NotAppendable, match="Input/output error"):
            packs.append(UID, [b"x"])
    packs.sync()

    assert b"x" == packs.read(packs.append(UID, [b"x"])[0])


def test_a_full_disk_leaves_no_tail_and_harms_no_ref(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that stops half-way gives its space back; earlier batches say that they are lost."""
    packs = Packs(tmp_path)
    ref = packs.append(UID, [b"kept"])[0]
    packs.append(UID, [b"unsynced"], sync=False)
    size = packs.size(UID)
    write = os.write
    with monkeypatch.context() as patched:
        halves = failing(lambda handle, data: write(handle, data[:5]), after=1, code=errno.ENOSPC)
        patched.setattr(os, "write", halves)
        with pytest.raises(NotAppendable, match="the disk is full") as caught:
            packs.append(UID, [text(5, 1000)])
    with pytest.raises(NotAppendable):
        packs.sync()

    assert caught.value.hint is not None
    assert b"kept" == packs.read(ref)
    assert size == packs.size(UID)


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes a few bytes only is no error."""
    packs = Packs(tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    payload = random.Random(1).randbytes(200)

    assert payload == packs.read(packs.append(UID, [payload])[0])


def test_repack_drops_tails_and_gathers_small_frames(tmp_path: Path) -> None:
    """Refs are given anew, both sets are readable until the rows are committed, then one is."""
    packs = Packs(tmp_path)
    payloads = [text(n, 300) for n in range(50)]
    old = [packs.append(UID, [payload])[0] for payload in payloads]
    lost = packs.append(UID, [CANARY + os.urandom(5000)])[0]
    before = packs.size(UID)
    with packs.repack(UID, old) as renamed:
        new = [renamed[ref] for ref in old]

        assert payloads == [packs.read(ref) for ref in old]
        assert payloads == [packs.read(ref) for ref in new]

    assert 1 == len({Ref.parse(ref).offset for ref in new})
    assert payloads == [packs.read(ref) for ref in new]
    assert packs.size(UID) < before / 4
    for ref in [*old, lost]:
        with pytest.raises(PackMissing):
            packs.read(ref)


def test_a_repack_that_fails_changes_nothing(tmp_path: Path) -> None:
    """Rows may be committed or not: all bytes stay, and the next repack is told which count."""
    packs = Packs(tmp_path)
    old = packs.append(UID, [b"one", b"two"])

    with pytest.raises(KeyboardInterrupt), packs.repack(UID, old) as renames:
        raise KeyboardInterrupt

    assert [b"one", b"two"] == [packs.read(ref) for ref in old]
    assert [b"one", b"two"] == [packs.read(renames[ref]) for ref in old]

    with packs.repack(UID, old) as renamed:
        pass

    assert [b"one", b"two"] == [packs.read(renamed[ref]) for ref in old]
    assert 1 == len(list(tmp_path.iterdir()))


def test_a_damaged_frame_stops_a_repack_before_it_changes_anything(tmp_path: Path) -> None:
    """What cannot be read is not silently left behind."""
    packs = Packs(tmp_path, cached=0)
    refs = packs.append(UID, [b"one"]) + packs.append(UID, [b"two"])
    path = only_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[Ref.parse(refs[1]).offset] ^= 255
    path.write_bytes(data)

    with pytest.raises(PackDamaged), packs.repack(UID, refs):
        pass

    assert b"one" == packs.read(refs[0])
    assert [path] == list(tmp_path.iterdir())


def test_repacks_cut_short_again_and_again_lose_nothing(tmp_path: Path) -> None:
    """Kills may leave rows in every slot; a repack still brings all of them into one."""
    packs = Packs(tmp_path)
    rows = {b"0": packs.append(UID, [b"0"])[0]}
    for n in range(1, 6):
        with pytest.raises(KeyboardInterrupt), packs.repack(UID, rows.values()):
            raise KeyboardInterrupt
        rows[b"%d" % n] = packs.append(UID, [b"%d" % n])[0]

        assert list(rows) == [packs.read(ref) for ref in rows.values()]

    for _ in range(2):
        with packs.repack(UID, rows.values()) as renamed:
            rows = {payload: renamed[ref] for payload, ref in rows.items()}

        assert list(rows) == [packs.read(ref) for ref in rows.values()]
        assert 1 == len(list(tmp_path.iterdir()))


def test_repack_takes_refs_of_its_session_only(tmp_path: Path) -> None:
    """Another session's payloads cannot be moved by mistake."""
    packs = Packs(tmp_path)
    refs = packs.append("other", [b"x"])

    with pytest.raises(ValueError, match="another session"), packs.repack(UID, refs):
        pass


def test_repack_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    """A session whose rows name no payload needs no pack."""
    packs = Packs(tmp_path)
    packs.append(UID, [b"x"])
    with packs.repack(UID, []) as renamed:
        pass

    assert {} == renamed
    assert 0 == packs.size(UID)


def test_evicted_is_gone(tmp_path: Path) -> None:
    """No file of the folder holds the payload any more, and reading says why."""
    packs = Packs(tmp_path)
    ref = packs.append(UID, [CANARY, os.urandom(100)])[0]
    other = packs.append("other", [b"stays"])[0]
    packs.read(ref)
    size = packs.size(UID)

    assert size == packs.evict(UID)
    assert 0 == packs.size(UID) == packs.evict(UID)
    assert 0 == packs._frames._cached_bytes
    assert b"stays" == packs.read(other)
    with pytest.raises(PackMissing):
        packs.read(ref)


def test_a_frame_is_decoded_once_for_all_its_payloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a session in order costs each frame once, and memory stays within its limit."""
    packs = Packs(tmp_path, cached=2 * FRAME_BYTES)
    payloads = [text(n, 5000) for n in range(300)]
    refs = packs.append(UID, payloads)
    frames = len({Ref.parse(ref).offset for ref in refs})
    decoded: list[Ref] = []
    decode = packs._decode

    def counting(handle: int, where: Ref) -> bytes:
        decoded.append(where)
        return decode(handle, where)

    monkeypatch.setattr(packs, "_decode", counting)

    assert payloads == [packs.read(ref) for ref in refs]
    assert frames == len(decoded)
    assert packs._frames._cached_bytes <= 2 * FRAME_BYTES


def test_threads_may_read_and_write_at_once(tmp_path: Path) -> None:
    """Readers need no lock, and writers of one object wait for each other."""
    packs = Packs(tmp_path, cached=FRAME_BYTES)
    wrong: list[object] = []

    def work(n: int) -> None:
        for k in range(20):
            payload = text(n * 100 + k, 2000)
            (ref,) = packs.append(f"s{n % 2}", [payload], sync=False)
            if packs.read(ref) != payload:
                wrong.append(ref)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong


WRITER = """
import sys
from pathlib import Path
from thence.memory.packs import Packs
packs = Packs(Path(sys.argv[1]))
for n in range(10**6):
    refs = packs.append("s", [b"%d " % n * 3000, b"%d" % n])
    sys.stdout.write(f"{n} {refs[0]} {refs[1]}\\n")
    sys.stdout.flush()
"""


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "lines", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 400, 20))]
)
def test_a_killed_writer_loses_nothing_it_was_told_of(tmp_path: Path, lines: int) -> None:
    """Every ref that came back before a SIGKILL leads to its payload, and the next append works."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        rows = [writer.stdout.readline().split() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        rows += [row for line in writer.stdout if len(row := line.split()) == 3]
    packs = Packs(tmp_path)
    packs.append("s", [b"next"])

    assert [(b"%d " % n * 3000, b"%d" % n) for n in range(len(rows))] == [
        (packs.read(long), packs.read(short)) for _, long, short in rows
    ]
