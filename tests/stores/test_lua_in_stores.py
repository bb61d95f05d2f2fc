"""Lua scripts over objects of a real S3 server: what they open, the indexes they read, the folders they list."""

from __future__ import annotations

import tarfile

import pytest

import fastloader as fl
from fastloader.stores import open_store

SCRIPT = """
return {
    init_ctx = function(_, _, config)
        local found = {}
        for path in scan_dir(config.folder):iter() do
            if path:match("%.jsonl$") then found[#found + 1] = path end
        end
        return found
    end,
    row_generator = function(found)
        for _, index in ipairs(found) do
            local tar = g_loader:open_file((index:gsub("%.jsonl$", "")))
            for row in msgpack_unpacker(index):iter() do
                g_loader:add_entry(tar, "data", row.offset, row.size)
                g_loader:finish_row()
            end
            g_loader:close_file(tar)
        end
    end,
}
"""


@pytest.fixture
def rows(tmp_path, s3):
    """A tar and its index in a bucket, and what is in it."""
    contents = [bytes([number]) * (1000 + 37 * number) for number in range(60)]
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number, data in enumerate(contents):
            file = tmp_path / f"{number}.bin"
            file.write_bytes(data)
            tar.add(file, f"{number:03d}.bin")
    with tarfile.open(path) as tar:
        lines = [f'{{"offset": {one.offset_data}, "size": {one.size}}}\n' for one in tar.getmembers()]
    store, _ = open_store("s3://lua-rows/shards", s3.storage_options())
    store.put("shards/a.tar", path.read_bytes())
    store.put("shards/a.tar.jsonl", "".join(lines).encode())
    return contents


def test_options_reach_all_that_a_script_asks_of_a_store(rows, s3):
    loader = fl.LuaLoader(SCRIPT, {"folder": "s3://lua-rows/shards"}, storage_options=s3.storage_options())
    held = list(loader)
    assert [bytes(row["data"]) for row in held] == rows
    first = iter(loader)
    for _ in range(7):
        next(first)
    rest = iter(loader)
    rest.load_state_dict(first.state_dict())
    assert [bytes(row["data"]) for row in rest] == rows[7:]


def test_an_object_that_is_not_there_is_told_with_its_name(rows, s3):
    script = 'return {init_ctx = function() end, row_generator = function() g_loader:open_file("s3://lua-rows/no") end}'
    with pytest.raises(fl.LuaError, match="s3://lua-rows/no"):
        list(fl.LuaLoader(script, storage_options=s3.storage_options()))
