"""Packs against plain files: what it costs to keep payloads compressed, checked and durable.

Payloads are made up but shaped like real ones: mostly a few hundred bytes to a few kilobytes of
words, paths and numbers, now and then a long tool result. All on one core.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import zstandard

from bench.measure import seconds, verdict
from thence.memory.packs import COMPRESSION_LEVEL, FRAME_BYTES, Packs

SMALL = 500
"""Sessions of one batch each: the shape of a first sweep over many short logs."""


def payloads(total: int, *, seed: int = 1) -> list[bytes]:
    """Give so many bytes of payloads, the same for the same seed."""
    dice = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(dice.choices(letters, k=dice.randint(2, 11))) for _ in range(5000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    pool = dice.choices(words, weights, k=200_000)
    out, held = [], 0
    while held < total:
        length = dice.choice((30, 60, 120, 300, 300, 600, 5000))
        at = dice.randrange(len(pool) - length)
        line = " ".join(pool[at : at + length])
        out.append(f"{line} src/{dice.choice(words)}.py:{dice.randrange(900)}".encode())
        held += len(out[-1])
    return out


class Plain:
    """The least one can do: payloads appended to a file per session, and synced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, session: str, batch: list[bytes]) -> None:
        """Append and sync one batch."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        handle = os.open(self.folder / session, flags, 0o600)
        try:
            for payload in batch:
                os.write(handle, payload)
            os.fdatasync(handle)
        finally:
            os.close(handle)


def fresh(folder: Path) -> Iterator[Path]:
    """Give a new folder for every round, so that none finds files of the one before."""
    for number in itertools.count():
        path = folder / str(number)
        path.mkdir()
        yield path


def one_session(data: list[bytes], folders: Iterator[Path]) -> int:
    """One large session: throughput beside bare compression and beside plain appends."""
    total = sum(map(len, data))
    batches = [data[at : at + 400] for at in range(0, len(data), 400)]

    def bare() -> None:
        compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
        joined = b"".join(data)
        for at in range(0, total, FRAME_BYTES):
            compressor.compress(joined[at : at + FRAME_BYTES])

    def plain() -> None:
        file = Plain(next(folders))
        for batch in batches:
            file.append("s", batch)

    def packed() -> Packs:
        packs = Packs(next(folders))
        for batch in batches:
            packs.append("s", batch, sync=False)
        packs.sync()
        return packs

    def synced() -> None:
        packs = Packs(next(folders))
        for batch in batches:
            packs.append("s", batch)

    compress, write, pack, each = (seconds(work) for work in (bare, plain, packed, synced))
    packs = packed()
    print(
        f"packs: {total / 1e6:.0f} MB in {len(data):,} payloads; packed {total / pack / 1e6:.0f} "
        f"MB/s, synced each batch {total / each / 1e6:.0f} MB/s, plain file "
        f"{total / write / 1e6:.0f} MB/s; {total / packs.size('s'):.1f} to 1"
    )
    return (
        verdict("packing / bare compression of the same bytes", pack / compress, 1.3)
        + verdict("100 MB/s / packing", 100e6 / (total / pack), 1)
        + verdict("packing, synced each batch / plain synced appends", each / write, 8)
    )


def many_sessions(data: list[bytes], folders: Iterator[Path]) -> int:
    """Many short sessions: there the wait for the disk is the cost, and it is shared."""
    batches = [data[at : at + 4] for at in range(0, SMALL * 4, 4)]

    def plain() -> None:
        file = Plain(next(folders))
        compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
        for number, batch in enumerate(batches):
            file.append(str(number), [compressor.compress(b"".join(batch))])

    def packed() -> None:
        packs = Packs(next(folders))
        for number, batch in enumerate(batches):
            packs.append(str(number), batch, sync=False)
        packs.sync()

    write, pack = seconds(plain, rounds=3), seconds(packed, rounds=3)
    print(
        f"packs: {len(batches)} sessions of {len(batches[0])} payloads; packed "
        f"{pack / len(batches) * 1e3:.2f} ms each, one by one {write / len(batches) * 1e3:.2f} ms"
    )
    return verdict("packing many sessions / one compressed file each, synced", pack / write, 1)


def reading(data: list[bytes], folders: Iterator[Path]) -> int:
    """A session read in order, and single payloads here and there."""
    folder = next(folders)
    refs = Packs(folder).append("s", data)
    total = sum(map(len, data))
    frames = {ref.split(",", 1)[0] for ref in refs}
    anywhere = random.Random(2).choices(refs, k=300)

    def bare() -> None:
        decompressor = zstandard.ZstdDecompressor()
        for name in plain:
            decompressor.decompress(name.read_bytes())

    def in_order() -> None:
        packs = Packs(folder)
        for ref in refs:
            packs.read(ref)

    def here_and_there() -> None:
        packs = Packs(folder, cached=0)
        for ref in anywhere:
            packs.read(ref)

    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    joined = b"".join(data)
    plain = [folder / f"{at}.zst" for at in range(0, total, FRAME_BYTES)]
    for at, name in zip(range(0, total, FRAME_BYTES), plain, strict=True):
        name.write_bytes(compressor.compress(joined[at : at + FRAME_BYTES]))
    decode, order, single = (seconds(work) for work in (bare, in_order, here_and_there))
    print(
        f"packs: read in order {total / order / 1e6:.0f} MB/s, {order / len(refs) * 1e6:.1f} µs a "
        f"payload; a payload anywhere {single / len(anywhere) * 1e3:.2f} ms"
    )
    return verdict(
        "one payload anywhere / reading a file with one frame",
        single / len(anywhere) / (decode / len(frames)),
        1.5,
    )


def main() -> int:
    """Measure, print, and say how many budgets were missed."""
    data = payloads(40_000_000)
    with tempfile.TemporaryDirectory() as folder:
        folders = fresh(Path(folder))
        return one_session(data, folders) + many_sessions(data, folders) + reading(data, folders)
