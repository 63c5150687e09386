"""The cost of packs, which are compressed, checked and durable, compared with plain files.

Payloads are synthetic but shaped like real ones: mostly a few hundred bytes to a few kilobytes of
words, paths and numbers, and a few long tool results. Everything runs on one core.
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

SHORT_SESSIONS = 500
"""Sessions with one batch each, as in a first sweep over many short logs."""


def make_payloads(total: int, *, seed: int = 1) -> list[bytes]:
    """Return payloads of so many bytes in total, the same for the same seed."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 11))) for _ in range(5000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    pool = rng.choices(words, weights, k=200_000)
    payloads, total_bytes = [], 0
    while total_bytes < total:
        length = rng.choice((30, 60, 120, 300, 300, 600, 5000))
        at = rng.randrange(len(pool) - length)
        line = " ".join(pool[at : at + length])
        payloads.append(f"{line} src/{rng.choice(words)}.py:{rng.randrange(900)}".encode())
        total_bytes += len(payloads[-1])
    return payloads


class PlainFiles:
    """The minimum: payloads are appended to one file per session, and synced."""

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


def new_folders(folder: Path) -> Iterator[Path]:
    """Yield a new folder for every round, so that no round sees files of another."""
    for number in itertools.count():
        path = folder / str(number)
        path.mkdir()
        yield path


def measure_one_session(data: list[bytes], folders: Iterator[Path]) -> int:
    """Compare the throughput for a large session with compression alone and plain appends."""
    total = sum(map(len, data))
    batches = [data[at : at + 400] for at in range(0, len(data), 400)]

    def compress_only() -> None:
        compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
        joined = b"".join(data)
        for at in range(0, total, FRAME_BYTES):
            compressor.compress(joined[at : at + FRAME_BYTES])

    def write_plain() -> None:
        file = PlainFiles(next(folders))
        for batch in batches:
            file.append("s", batch)

    def pack_once() -> Packs:
        packs = Packs(next(folders))
        for batch in batches:
            packs.append("s", batch, sync=False)
        packs.sync()
        return packs

    def pack_synced() -> None:
        packs = Packs(next(folders))
        for batch in batches:
            packs.append("s", batch)

    compress_s, plain_s, pack_s, synced_s = (
        seconds(work) for work in (compress_only, write_plain, pack_once, pack_synced)
    )
    packs = pack_once()
    print(
        f"packs: {total / 1e6:.0f} MB in {len(data):,} payloads; packed {total / pack_s / 1e6:.0f} "
        f"MB/s, synced each batch {total / synced_s / 1e6:.0f} MB/s, plain file "
        f"{total / plain_s / 1e6:.0f} MB/s; {total / packs.size('s'):.1f} to 1"
    )
    return (
        verdict("packing / bare compression of the same bytes", pack_s / compress_s, 1.3)
        + verdict("100 MB/s / packing", 100e6 / (total / pack_s), 1)
        + verdict("packing, synced each batch / plain synced appends", synced_s / plain_s, 8)
    )


def measure_many_sessions(data: list[bytes], folders: Iterator[Path]) -> int:
    """Measure many short sessions, where the cost is waiting for the disk, which batches share."""
    batches = [data[at : at + 4] for at in range(0, SHORT_SESSIONS * 4, 4)]

    def write_plain() -> None:
        file = PlainFiles(next(folders))
        compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
        for number, batch in enumerate(batches):
            file.append(str(number), [compressor.compress(b"".join(batch))])

    def pack_all() -> None:
        packs = Packs(next(folders))
        for number, batch in enumerate(batches):
            packs.append(str(number), batch, sync=False)
        packs.sync()

    plain_s, pack_s = seconds(write_plain, rounds=3), seconds(pack_all, rounds=3)
    print(
        f"packs: {len(batches)} sessions of {len(batches[0])} payloads; packed "
        f"{pack_s / len(batches) * 1e3:.2f} ms each, "
        f"as single files {plain_s / len(batches) * 1e3:.2f} ms"
    )
    return verdict("packing many sessions / one compressed file each, synced", pack_s / plain_s, 1)


def measure_reading(data: list[bytes], folders: Iterator[Path]) -> int:
    """Measure reading a session in order, and single payloads at random."""
    folder = next(folders)
    refs = Packs(folder).append("s", data)
    total = sum(map(len, data))
    frames = {ref.split(",", 1)[0] for ref in refs}
    random_refs = random.Random(2).choices(refs, k=300)

    def decompress() -> None:
        decompressor = zstandard.ZstdDecompressor()
        for name in frame_files:
            decompressor.decompress(name.read_bytes())

    def read_in_order() -> None:
        packs = Packs(folder)
        for ref in refs:
            packs.read(ref)

    def read_random() -> None:
        packs = Packs(folder, cached=0)
        for ref in random_refs:
            packs.read(ref)

    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    joined = b"".join(data)
    frame_files = [folder / f"{at}.zst" for at in range(0, total, FRAME_BYTES)]
    for at, name in zip(range(0, total, FRAME_BYTES), frame_files, strict=True):
        name.write_bytes(compressor.compress(joined[at : at + FRAME_BYTES]))
    decompress_s, in_order_s, random_s = (
        seconds(work) for work in (decompress, read_in_order, read_random)
    )
    print(
        f"packs: read in order {total / in_order_s / 1e6:.0f} MB/s, "
        f"{in_order_s / len(refs) * 1e6:.1f} µs "
        f"per payload; a random payload {random_s / len(random_refs) * 1e3:.2f} ms"
    )
    return verdict(
        "random payload / reading a file with one frame",
        random_s / len(random_refs) / (decompress_s / len(frames)),
        1.5,
    )


def main() -> int:
    """Measure and print; return how many budgets were missed."""
    data = make_payloads(40_000_000)
    with tempfile.TemporaryDirectory() as folder:
        folders = new_folders(Path(folder))
        return (
            measure_one_session(data, folders)
            + measure_many_sessions(data, folders)
            + measure_reading(data, folders)
        )
