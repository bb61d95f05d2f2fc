"""Rows of a tar planned by a Lua script, against a bare io_uring loop over the same file and against memory.

The tar has entries of about 100 KB, a JSON beside each. The kernel forgets it before each run that reads it cold. The
bare loop reads the file from front to back in pieces of 1 MiB, O_DIRECT, 16 at a time. TMPDIR says on which disk.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path

import msgpack
import numpy as np
from bare_reads import bare, compiled
from common import Result, forget, interleave

import fastloader as fl

ROWS, LARGE = 16_000, 100_000
PIECE, DEPTH = 1 << 20, 16

SCRIPT = """
return {
    init_ctx = function() end,
    row_generator = function()
        local tar = g_loader:open_file(g_config.tar)
        for row in msgpack_unpacker(g_config.index):iter() do
            for i = 1, #row.keys do
                g_loader:add_entry(tar, row.keys[i], row.offset + row.offsets[i], row.sizes[i])
            end
            g_loader:finish_row()
        end
    end,
}
"""


def write(path: Path) -> None:
    """A tar of noise, and its index."""
    noise = np.random.default_rng(0).integers(0, 256, 8 << 20, np.uint8).tobytes()
    rng = np.random.default_rng(1)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar, open(f"{path}.utix", "wb") as index:
        at = 0
        for row in range(ROWS):
            begin, size = int(rng.integers(0, 7 << 20)), int(rng.integers(LARGE * 3 // 4, LARGE * 5 // 4))
            places, sizes = [], []
            for key, data in ((".jpg", noise[begin : begin + size]), (".json", b'{"row": %d}' % row)):
                info = tarfile.TarInfo(f"{row:08d}{key}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
                places.append(at + 512)
                sizes.append(len(data))
                at += 512 + -(-len(data) // 512) * 512
            index.write(
                msgpack.packb({
                    "iidx": row, "offset": places[0], "str_idx": f"{row:08d}", "keys": [".jpg", ".json"],
                    "offsets": [place - places[0] for place in places], "sizes": sizes,
                })
            )  # fmt: skip


def planned(path: Path, how: str, cold: bool) -> float:
    """Seconds for all rows, each of which is looked at."""
    if cold:
        forget(path)
    loader = fl.LuaLoader(SCRIPT, {"tar": str(path), "index": f"{path}.utix"}, io=how)  # type: ignore[arg-type]
    began = time.perf_counter()
    for row in loader:
        row[".jpg"][0], row[".json"][0]
    return time.perf_counter() - began


def main() -> list[Result]:
    """Cold by io_uring, and from memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "rows.tar"
        write(path)
        program = compiled(folder)
        actions = {"lua cold": partial(planned, path, "uring", True)}
        if program is not None:
            offsets = np.arange(0, path.stat().st_size // PIECE, dtype=np.int64) * PIECE
            actions["bare"] = lambda: bare(program, path, PIECE, offsets, DEPTH) * len(offsets)
        times = interleave(5, **actions)
        hot = interleave(5, lua=partial(planned, path, "auto", False))
        size = path.stat().st_size
        rate = f"{ROWS / times['lua cold']:,.0f} rows/s, {size / times['lua cold'] / 1e9:.2f} GB/s"
        results = []
        if "bare" in times:
            share = times["bare"] / times["lua cold"]
            results.append(
                Result("cold tar rows planned by Lua, share of the bare read's speed", "a bare io_uring loop", share,
                       ">= 0.85", f"{rate} against {size / times['bare'] / 1e9:.2f} GB/s")
            )  # fmt: skip
        results.append(
            Result(
                "the same from memory", "cold", times["lua cold"] / hot["lua"], "", f"{ROWS / hot['lua']:,.0f} rows/s"
            )
        )
        return results
