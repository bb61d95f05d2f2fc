"""Rows planned by Lua scripts: what a script asks for is what comes, in its order, and nothing else is in its reach."""

from __future__ import annotations

import gc
import io
import json
import pickle
import subprocess
import sys
import tarfile
import textwrap
import threading
import time

import msgpack
import numpy as np
import pytest
from forking import forked
from left_behind import files, left, python_threads

import fastloader as fl
from fastloader.lua.reading import Asked, PlanReader

FOLLOW_INDEX = """
return {
    init_ctx = function(rank, world_size)
        return { rank = rank, world = world_size }
    end,
    row_generator = function(ctx)
        local tar = g_loader:open_file(g_config.tar)
        local number = 0
        for row in msgpack_unpacker(g_config.index):iter() do
            if number % ctx.world == ctx.rank then
                for i = 1, #row.keys do
                    g_loader:add_entry(tar, row.keys[i], row.offset + row.offsets[i], row.sizes[i])
                end
                g_loader:finish_row()
            end
            number = number + 1
        end
        g_loader:close_file(tar)
    end,
}
"""

MODULES = """
local loader = require("ultar.loader")
local utix = require("ultar.utix")
local scandir = require("ultar.scandir")
return {
    init_ctx = function(rank, world_size, config)
        local found = {}
        for path in scandir.open(config.folder):iter() do
            if path:match("%.utix$") then found[#found + 1] = path end
        end
        return found
    end,
    row_generator = function(found)
        for _, path in ipairs(found) do
            local tar = loader:open_file((path:gsub("%.utix$", "")))
            for row in utix.open(path):iter() do
                for i = #row.keys, 1, -1 do
                    loader:add_entry(tar, row.keys[i], row.offset + row.offsets[i], row.sizes[i])
                end
                loader:add_entry_bytes("stem", row.str_idx)
                loader:finish_row()
            end
        end
    end,
}
"""


def planning(body, **config):
    """A loader over a script whose ``row_generator`` is just this."""
    return fl.LuaLoader(
        "return {init_ctx = function() end, row_generator = function()\n" + textwrap.dedent(body) + "\nend}", config
    )


def make_tar(path, rows, seed=0):
    """A tar by Python's tarfile, its index as a stream of MessagePack maps, and what is in it."""
    random = np.random.default_rng(seed)
    contents = [
        {".bin": random.bytes(int(random.integers(0, 5000))), ".json": json.dumps({"row": row}).encode()}
        for row in range(rows)
    ]
    with tarfile.open(path, "w") as tar:
        for row, entries in enumerate(contents):
            for key, data in entries.items():
                info = tarfile.TarInfo(f"{row:05d}{key}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    with tarfile.open(path) as tar, open(f"{path}.utix", "wb") as index:
        members = tar.getmembers()
        for row in range(rows):
            mine = members[2 * row : 2 * row + 2]
            offset = mine[0].offset_data
            index.write(
                msgpack.packb({
                    "iidx": row, "offset": offset, "str_idx": f"{row:05d}", "keys": [".bin", ".json"],
                    "offsets": [one.offset_data - offset for one in mine], "sizes": [one.size for one in mine],
                })
            )  # fmt: skip
    return contents


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    path = tmp_path_factory.mktemp("lua") / "data.tar"
    return path, make_tar(path, 700)


def follow(path, **options):
    return fl.LuaLoader(FOLLOW_INDEX, {"tar": str(path), "index": f"{path}.utix"}, **options)


def contents_of(rows):
    return [{key: bytes(value) for key, value in row.items()} for row in rows]


@pytest.mark.parametrize("io_mode", ["auto", "mmap", "uring", "pread"])
def test_rows_are_what_the_script_named(shard, io_mode):
    path, contents = shard
    assert contents_of(follow(path, io=io_mode)) == contents


def test_modules_scan_folders_and_add_bytes_of_their_own(tmp_path):
    first, second = (make_tar(tmp_path / f"{name}.tar", 5, seed) for seed, name in enumerate("ab"))
    rows = list(fl.LuaLoader(MODULES, {"folder": str(tmp_path)}))
    assert [row.keys() for row in rows] == [[".json", ".bin", "stem"]] * 10
    assert [bytes(row["stem"]) for row in rows] == [b"%05d" % i for i in (*range(5), *range(5))]
    assert [bytes(row[".bin"]) for row in rows] == [one[".bin"] for one in first + second]


def test_a_row_is_a_mapping(shard):
    path, contents = shard
    row = next(iter(follow(path)))
    assert len(row) == 2
    assert list(row) == row.keys() == [".bin", ".json"]
    assert ".json" in row
    assert "png" not in row
    assert row[0] == row[".bin"] == contents[0][".bin"]
    assert row[-1] == row[1] == contents[0][".json"]
    assert row.to_dict() == dict(row.items()) == contents[0]
    assert row.get("png") is None
    assert isinstance(row[".bin"], memoryview)
    assert row[".bin"].readonly
    with pytest.raises(KeyError, match=r"no 'png'; it has \.bin, \.json"):
        row["png"]
    with pytest.raises(IndexError, match="entry 2 of a row of 2"):
        row[2]
    assert contents_of([pickle.loads(pickle.dumps(row))]) == contents[:1]
    assert "'.bin': " in repr(row)


@pytest.mark.parametrize("io_mode", ["uring", "pread", "auto"])
def test_any_number_of_rows_may_be_held_and_outlive_the_loader(tmp_path, io_mode):
    path = tmp_path / "large.bin"
    data = np.random.default_rng(1).integers(0, 256, 40 << 20, np.uint8)
    path.write_bytes(data.tobytes())
    script = """
        local file = g_loader:open_file(g_config.path)
        for i = 0, 639 do
            g_loader:add_entry(file, "part", i * 65536, 65536)
            g_loader:finish_row()
        end
    """
    loader = fl.LuaLoader(
        "return {init_ctx = function() end, row_generator = function() " + script + " end}", {"path": str(path)},
        io=io_mode, memory_limit="8MB",
    )  # fmt: skip
    rows = list(loader)  # five times what may be read ahead
    del loader
    gc.collect()
    for number, row in enumerate(rows):
        assert np.array_equal(np.frombuffer(row["part"], np.uint8), data[number * 65536 : (number + 1) * 65536])


def test_views_are_not_copies(shard):
    path, _ = shard
    row = next(iter(follow(path, io="mmap")))
    first, second = (np.frombuffer(row[".bin"], np.uint8) for _ in range(2))
    assert np.shares_memory(first, second)


def test_a_pass_is_resumed_at_every_row_without_reading_what_was_given(tmp_path):
    path = tmp_path / "data.tar"
    contents = make_tar(path, 20)
    for given in range(21):
        rows = iter(follow(path))
        for _ in range(given):
            next(rows)
        state = json.loads(json.dumps(rows.state_dict()))
        rest = iter(follow(path))
        rest.load_state_dict(state)
        assert contents_of(rest) == contents[given:]


def test_resuming_keeps_literals_apart(tmp_path):
    body = 'for i = 1, 10 do g_loader:add_entry_bytes("n", tostring(i)) g_loader:finish_row() end'
    rows = iter(planning(body))
    for _ in range(4):
        next(rows)
    rest = iter(planning(body))
    rest.load_state_dict(rows.state_dict())
    assert [bytes(row["n"]) for row in rest] == [b"%d" % i for i in range(5, 11)]


def test_the_state_of_another_script_is_refused(shard):
    path, _ = shard
    rows = iter(follow(path))
    next(rows)
    other = iter(fl.LuaLoader(FOLLOW_INDEX + "\n", {"tar": str(path), "index": f"{path}.utix"}))
    with pytest.raises(fl.StateError):
        other.load_state_dict(rows.state_dict())


def test_ranks_share_the_rows_as_the_script_says(shard):
    path, contents = shard
    for rank in range(3):
        assert contents_of(follow(path, rank=rank, world_size=3)) == contents[rank::3]


def test_it_is_a_dataset(shard):
    path, contents = shard
    rows = follow(path).map(lambda row: json.loads(bytes(row[".json"]))["row"])
    shuffled = list(rows.shuffle(100, seed=1))
    assert sorted(shuffled) == list(range(len(contents)))
    assert shuffled != sorted(shuffled)
    assert list(rows.shuffle(100, seed=1)) == shuffled
    assert [len(batch) for batch in rows.batch(256)] == [256, 256, 188]


def test_each_pass_is_another_epoch():
    loader = planning('g_loader:add_entry_bytes("epoch", tostring(g_epoch)) g_loader:finish_row()')
    assert [bytes(row["epoch"]) for row in loader.repeat(3)] == [b"0", b"1", b"2"]


def test_config_reaches_the_script():
    body = """
        local c = g_config
        local said = {c.text, tostring(c.number + 1), tostring(c.yes), c.list[2], c.map.a}
        g_loader:add_entry_bytes("said", table.concat(said, " "))
        g_loader:finish_row()
    """
    loader = planning(body, text="x\xe9", number=41, yes=True, list=["a", "b"], map={"a": "c"})
    assert bytes(next(iter(loader))["said"]).decode() == "x\xe9 42 true b c"


def test_what_the_script_prints_is_seen(capsys):
    list(planning('print("hello", 1, nil)'))
    assert capsys.readouterr().out == "hello\t1\tnil\n"


def test_debug_tells_what_is_opened_and_planned(shard, capsys):
    path, _ = shard
    list(follow(path, debug=True))
    said = capsys.readouterr().err
    assert f"open_file({str(path)!r}): {path.stat().st_size} bytes" in said
    assert "lua: rank 0: 700 rows planned" in said


@pytest.mark.parametrize("size", [1, 3, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_messages_of_any_size_are_unpacked(tmp_path, size):
    values = [
        {"a": [1, -1, -33, 127, 128, 255, 256, 65535, 65536, 2**31, -(2**31), 2**40, -(2**40), 1.5]},
        {"text": "x" * size, "bytes": b"\0\xff" * (size // 2), "no": False, "yes": True, "none": None},
        {str(i): i for i in range(min(size, 70_000))},
        list(range(20)), "end",
    ]  # fmt: skip
    path = tmp_path / "values"
    path.write_bytes(b"".join(msgpack.packb(value) for value in values))
    body = """
        local function said(v)
            if type(v) ~= "table" then return type(v) == "string" and #v .. "" or tostring(v) end
            if #v > 0 then local t = {} for i, x in ipairs(v) do t[i] = said(x) end return table.concat(t, ",") end
            local n = 0 for k, x in pairs(v) do n = n + (tonumber(x) or 1) end return "map " .. n
        end
        for value in msgpack_unpacker(g_config.path):iter() do
            g_loader:add_entry_bytes("said", type(value) == "table" and value.a and said(value.a) or said(value))
            g_loader:finish_row()
        end
    """
    rows = [bytes(row["said"]).decode() for row in planning(body, path=str(path))]
    wanted = "1,-1,-33,127,128,255,256,65535,65536,2147483648,-2147483648,1099511627776,-1099511627776,1.5"
    assert rows[0] == wanted
    assert rows[1] == "map 4"  # nil is no value
    assert rows[2] == f"map {sum(range(min(size, 70_000)))}"
    assert rows[3:] == [",".join(map(str, range(20))), "3"]


def test_indexes_with_a_json_value_a_line_are_read_too(tmp_path):
    path = tmp_path / "data.tar"
    contents = make_tar(path, 6)
    index = tmp_path / "data.tar.utix"
    rows = list(msgpack.Unpacker(io.BytesIO(index.read_bytes())))
    index.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert contents_of(follow(path)) == contents
    index.write_text(json.dumps(rows[0]) + "\n{broken\n")
    with pytest.raises(fl.LuaError, match="line 2 is no JSON"):
        list(follow(path))


EACH = """
    for value in msgpack_unpacker(g_config.path):iter() do
        g_loader:add_entry_bytes("said", tostring(value))
        g_loader:finish_row()
    end
"""


@pytest.mark.parametrize("name", ["x.json", "x.JSONL", "x.y.ndjson"])
def test_the_name_says_that_lines_of_numbers_are_json(tmp_path, name):
    (tmp_path / name).write_text('1\n"two"\n\n3')
    rows = [bytes(row["said"]) for row in planning(EACH, path=str(tmp_path / name))]
    assert rows == [b"1", b"two", b"3"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x", msgpack.packb("one") + b"\xc0" + msgpack.packb(2), r"x: byte 4: a nil, which would end the iteration"),
        ("x", b"\xa0" * 1_500_000 + b"\xc0", r"x: byte 1500000: a nil"),
        ("x.jsonl", b"1\nnull\n2\n", r"x\.jsonl: line 2 is null, which would end the iteration"),
    ],
    ids=["MessagePack", "far", "JSON"],
)
def test_what_would_end_an_iteration_silently_is_an_error(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(fl.LuaError, match=said):
        list(planning(EACH, path=str(tmp_path / name)))


def test_handlers_of_errors_get_what_they_should():
    body = """
        local fine, said = xpcall(function(a, b) error({ a + b }) end, function(e) return e[1] end, 2, 3)
        local good, one, two = xpcall(function(...) return ... end, function() end, "x", "y")
        g_loader:add_entry_bytes("said", tostring(fine) .. said .. tostring(good) .. one .. two)
        g_loader:finish_row()
    """
    assert bytes(next(iter(planning(body)))["said"]) == b"false5truexy"
    with pytest.raises(fl.LuaError, match="script:2: xpcall: the handler is a function, not nil"):
        list(planning("xpcall(function() end)"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("error('my own words')", "my own words"),
        ("local x = nil; return x.y", "attempt to index local 'x'"),
        ("g_loader.add_entry(1, 'k', 0, 1)", r"called with a colon: g_loader:add_entry\(\.\.\.\)"),
        ("g_loader:add_entry(1, 'k', 0, 1)", "the handle is what open_file gave, not 1"),
        ("g_loader:open_file('/no/such/file')", "/no/such/file: there is no such file"),
        ("g_loader:open_file(nil)", "the path is a string, not nil"),
        ("g_loader:add_entry_bytes('k', 1)", "the data is a string, not 1"),
        ("g_loader:add_entry_bytes(1, 'x')", "the key is a string, not 1"),
        ("g_loader:add_entry_bytes('k', 'x') g_loader:add_entry_bytes('k', 'x')", 'has an entry "k" already'),
        ("g_loader:add_entry_bytes('k', 'x')", r"1 entries and no finish_row\(\)"),
        ("msgpack_unpacker('/no/such/index')", "no/such/index"),
        ("scan_dir('/no/such/folder')", "no/such/folder"),
        ("g_loader:nothing()", "g_loader has no nothing"),
        ("require('socket')", "scripts have ultar.loader"),
        ("this is no Lua", "script:2: "),
    ],
)  # fmt: skip
def test_errors_say_what_and_where(body, said):
    with pytest.raises(fl.LuaError, match=said) as caught:
        list(planning(body))
    if "no Lua" not in body and "finish_row" not in said:
        assert "stack traceback" in str(caught.value)
        assert "script:2: in function" in str(caught.value)


@pytest.mark.parametrize(
    ("offset", "size", "said"),
    [(100, 1, "bytes 100 to 101 of .*, which has 100"), (0, 101, "bytes 0 to 101"), (-1, 5, "whole number from 0 up"),
     (0.5, 1, "whole number"), (2**60, 1, "whole number")],
)  # fmt: skip
def test_bytes_outside_a_file_are_refused_where_they_are_named(tmp_path, offset, size, said):
    path = tmp_path / "data"
    path.write_bytes(bytes(100))
    body = f"local f = g_loader:open_file(g_config.path) g_loader:add_entry(f, 'k', {offset!r}, {size!r})"
    with pytest.raises(fl.LuaError, match=said):
        list(planning(body, path=str(path)))


@pytest.mark.parametrize("call", ['add_entry(forged, "k", 0, 10)', "close_file(forged)"])
def test_a_forged_handle_is_none(call):
    body = f"""
        local forged = setmetatable({{number = 0, size = 1e9, path = "x"}}, {{__metatable = false}})
        g_loader:{call}
    """
    with pytest.raises(fl.LuaError, match="the handle is what open_file gave"):
        list(planning(body))


def test_what_a_script_writes_into_a_handle_changes_nothing(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(100)))
    body = """
        local f = g_loader:open_file(g_config.path)
        for name, value in pairs({number = 7, size = 1e9, path = "x", closed = true}) do rawset(f, name, value) end
        g_loader:add_entry(f, "k", 10, 5)
        g_loader:finish_row()
        g_loader:add_entry(f, "k", 90, 11)
    """
    rows = iter(planning(body, path=str(path)))
    assert bytes(next(rows)["k"]) == bytes(range(10, 15))
    with pytest.raises(fl.LuaError, match=r"bytes 90 to 101 of .*data, which has 100"):
        next(rows)


def test_rows_that_are_lost_are_told_whatever_the_script_catches(monkeypatch):
    def submit(reader, entries):
        raise OSError("the disk is gone")

    monkeypatch.setattr(PlanReader, "submit", submit)
    body = """
        for i = 1, 5 do
            pcall(function() g_loader:add_entry_bytes("n", tostring(i)) g_loader:finish_row() end)
        end
    """
    with pytest.raises(fl.LuaError, match="rows that were planned can't be read: OSError: the disk is gone"):
        list(planning(body))


def test_a_script_may_look_whether_a_file_is_there():
    body = """
        local ok = pcall(function() return g_loader:open_file("/no/such/file") end)
        g_loader:add_entry_bytes("there", tostring(ok))
        g_loader:finish_row()
    """
    assert [bytes(row["there"]) for row in planning(body)] == [b"false"]


def test_a_closed_file_is_not_read_but_what_was_planned_of_it_is(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(100)))
    good = """
        local f = g_loader:open_file(g_config.path)
        g_loader:add_entry(f, "k", 10, 5)
        g_loader:finish_row()
        g_loader:close_file(f)
    """
    assert contents_of(planning(good, path=str(path))) == [{"k": bytes(range(10, 15))}]
    with pytest.raises(fl.LuaError, match="was closed"):
        list(planning(good + "g_loader:add_entry(f, 'k', 0, 1)", path=str(path)))


@pytest.mark.parametrize("closed", ["own", "another"])
def test_a_file_may_be_closed_before_the_row_is_finished(tmp_path, closed):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(100)))
    body = """
        local kept = g_loader:open_file(g_config.path)
        for i = 1, 50 do
            local f = g_loader:open_file(g_config.path)
            g_loader:add_entry(g_config.closed == "own" and f or kept, "first", i, 3)
            g_loader:close_file(f)
            g_loader:add_entry_bytes("second", tostring(i))
            g_loader:finish_row()
        end
    """
    found = contents_of(planning(body, path=str(path), closed=closed))
    assert found == [{"first": bytes(range(i, i + 3)), "second": b"%d" % i} for i in range(1, 51)]


def test_there_may_be_a_file_a_row(tmp_path):
    for i in range(300):
        (tmp_path / f"{i:03d}").write_bytes(b"%d" % i)
    body = """
        for path in scan_dir(g_config.folder):iter() do
            local f = g_loader:open_file(path)
            g_loader:add_entry(f, "k", 0, path:match("00%d$") and 1 or path:match("0%d%d$") and 2 or 3)
            g_loader:finish_row()
            g_loader:close_file(f)
        end
    """
    assert [int(bytes(row["k"])) for row in planning(body, folder=str(tmp_path))] == list(range(300))


def test_rows_may_have_keys_of_their_own(monkeypatch):
    known = []

    class Counted(Asked):
        def __init__(self, reader, planned):
            known.append(len(planned.keys))
            super().__init__(reader, planned)

    monkeypatch.setattr("fastloader.lua.loader.Asked", Counted)
    body = """
        for i = 1, 30000 do
            g_loader:add_entry_bytes("key " .. i, tostring(i))
            g_loader:add_entry_bytes("same", "")
            g_loader:finish_row()
        end
    """
    rows = [row.keys() for row in planning(body)]
    assert rows == [[f"key {i}", "same"] for i in range(1, 30001)]
    assert max(known) < 15000  # and not all there ever were


@pytest.mark.parametrize("entry", ["", "g_loader:add_entry_bytes('k', '')"])
def test_rows_without_bytes_are_not_planned_without_end(monkeypatch, entry):
    planned_rows = []

    class Counted(Asked):
        def __init__(self, reader, planned):
            planned_rows.append(len(planned.counts))
            super().__init__(reader, planned)

    monkeypatch.setattr("fastloader.lua.loader.Asked", Counted)
    body = f"while true do {entry} g_loader:finish_row() end"
    script = f"return {{ init_ctx = function() end, row_generator = function() {body} end }}"
    rows = iter(fl.LuaLoader(script, memory_limit="4MiB"))
    next(rows)
    before, deadline = -1, time.monotonic() + 20
    while before != len(planned_rows) and time.monotonic() < deadline:
        before = len(planned_rows)
        time.sleep(0.3)
    assert sum(planned_rows) < 100_000
    rows.close()


def test_rows_before_an_error_come_first():
    rows = iter(
        planning("""
        for i = 1, 300 do
            g_loader:add_entry_bytes("n", tostring(i))
            g_loader:finish_row()
        end
        error("enough")
    """)
    )
    assert [int(bytes(next(rows)["n"])) for _ in range(300)] == list(range(1, 301))
    with pytest.raises(fl.LuaError, match="enough"):
        next(rows)


def test_a_broken_index_names_the_byte(tmp_path):
    path = tmp_path / "data.tar"
    make_tar(path, 3)
    index = tmp_path / "data.tar.utix"
    whole = index.read_bytes()
    index.write_bytes(whole[:-3])
    with pytest.raises(fl.LuaError, match=r"byte \d+: the file ends within a value"):
        list(follow(path))
    index.write_bytes(b"\xc1")
    with pytest.raises(fl.LuaError, match="byte 0: byte 0xc1 begins nothing"):
        list(follow(path))
    index.write_bytes(b"\x91" * 100_000)
    with pytest.raises(fl.LuaError, match="more than 64 levels"):
        list(follow(path))


@pytest.mark.parametrize(
    "reach",
    ["io", "os.execute", "os.exit", "os.remove", "os.getenv", "debug", "package", "jit", "ffi", "python", "dofile",
     "loadfile", "collectgarbage", "newproxy", "string.dump", "require('ffi')", "require('io')", "require('jit')"],
)  # fmt: skip
def test_the_sandbox_has_no_way_out(reach):
    body = f"local ok, it = pcall(function() return {reach} end) assert(not ok or it == nil, 'reached')"
    list(planning(body))


@pytest.mark.parametrize("call", ["for _ in msgpack_unpacker(g_config.wide):iter() do end", "print('nobody reads it')"])
def test_no_exception_of_python_reaches_a_script(tmp_path, monkeypatch, call):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError("nobody reads it")

    wide = tmp_path / "wide.jsonl"
    wide.write_text(json.dumps({"a": 10**400}))
    monkeypatch.setattr(sys, "stdout", Closed())
    body = f"""
        local fine, said = pcall(function() {call} end)
        g_loader:add_entry_bytes("kind", tostring(fine) .. type(said))
        g_loader:finish_row()
    """
    assert contents_of(planning(body, wide=str(wide))) == [{"kind": b"falsestring"}]


def test_objects_of_python_have_nothing_for_scripts(monkeypatch):
    monkeypatch.setattr("fastloader.lua.script._lua_value", lambda lua, value: sys)  # lent by some mistake
    body = """
        g_loader:add_entry_bytes("kind", type(g_config))
        g_loader:add_entry_bytes("reached", tostring(pcall(function() return g_config.modules end)))
        g_loader:finish_row()
    """
    assert contents_of(planning(body)) == [{"kind": b"userdata", "reached": b"false"}]


def test_bytecode_is_not_loaded():
    body = "assert(loadstring(('').dump(function() end)) == nil) assert(load(('').dump(function() end)) == nil)"
    list(planning(body))
    with pytest.raises(fl.LuaError):
        list(fl.LuaLoader("\x1bLJ\x02"))


def test_loaded_text_sees_no_more_than_the_script():
    list(planning("assert(loadstring('return io')() == nil) assert(load('return os.execute')() == nil)"))


def test_what_is_allowed_is_there(tmp_path):
    path = tmp_path / "words"
    path.write_text("from a file")
    script = """
    return {init_ctx = function() end, row_generator = function()
        local ffi = require("ffi")
        g_loader:add_entry_bytes("words", io.open(g_config.path):read("*a") .. ffi.sizeof("int64_t"))
        g_loader:finish_row()
    end}
    """
    rows = list(fl.LuaLoader(script, {"path": str(path)}, allow=("io", "ffi")))
    assert bytes(rows[0]["words"]) == b"from a file8"
    with pytest.raises(fl.LuaError, match=r"LuaLoader\(allow="):
        list(fl.LuaLoader(script, {"path": str(path)}))


def lua_threads():
    return [thread for thread in threading.enumerate() if thread.name == "fastloader-lua"]


@pytest.mark.parametrize(
    "endless",
    ["while true do end", "while true do pcall(function() while true do end end) end",
     "local function f() return f() end f()", "coroutine.wrap(function() while true do end end)()",
     "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
     "while true do xpcall(function() error('x') end, function() end) end",
     "while true do xpcall(function() while true do end end, function() while true do end end) end",
     "while true do xpcall(function() error('x') end, function() while true do end end) end"],
)  # fmt: skip
def test_an_endless_script_ends_with_its_pass(endless):
    rows = iter(planning('g_loader:add_entry_bytes("k", "v") g_loader:finish_row() ' + endless))
    assert bytes(next(rows)["k"]) == b"v"
    assert lua_threads()
    began = time.monotonic()
    rows.close()
    assert not lua_threads()
    assert time.monotonic() - began < 30  # not the speed of it: that it ends at all


def test_control_c_ends_an_endless_script(tmp_path):
    program = """
        import os, signal, threading, fastloader as fl
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        endless = "function() while true do end end"
        try:
            next(iter(fl.LuaLoader("return {init_ctx = function() end, row_generator = " + endless + "}")))
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "interrupted\n", done.stderr
    assert done.returncode == 0


def test_a_script_that_takes_all_memory_ends_with_an_error(monkeypatch):
    monkeypatch.setattr("fastloader.lua.script.MEMORY", 64 << 20)
    with pytest.raises(fl.LuaError, match="not enough memory"):
        list(planning('local t = {} for i = 1, 1e9 do t[i] = string.rep("x", 1000) .. i end'))


def test_nothing_is_left_behind(shard):
    path, _ = shard
    list(follow(path))
    gc.collect()
    others, opened = python_threads(), files()
    for _ in range(10):
        rows = iter(follow(path, io="pread"))
        next(rows)
        del rows
        list(follow(path, io="uring"))
    gc.collect()
    assert not lua_threads()
    assert not left(python_threads, others)
    assert not left(files, opened)


def test_a_forked_child_goes_on_from_where_it_stands(shard):
    path, contents = shard
    rows = iter(follow(path, io="pread"))
    for _ in range(3):
        next(rows)

    def rest():
        return contents_of(rows) == contents[3:]

    assert forked(rest)
    assert contents_of(rows) == contents[3:]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"src": b"x"}, TypeError, "the text of a script"),
        ({"src": "", "config": 3}, TypeError, "config: a mapping"),
        ({"src": "", "rank": 2, "world_size": 2}, ValueError, "rank"),
        ({"src": "", "allow": ["everything"]}, ValueError, "unknown 'everything'; there are"),
        ({"src": "", "io": "fast"}, ValueError, "io='fast'"),
        ({"src": "", "memory_limit": 100}, ValueError, "memory_limit=100: at least"),
    ],
)
def test_wrong_arguments_are_refused_when_the_loader_is_made(arguments, error, said):
    with pytest.raises(error, match=said):
        fl.LuaLoader(**arguments)


@pytest.mark.parametrize(
    ("script", "said"),
    [("", "not nil"), ("return 3", "not 3"), ("return {}", "nil as init_ctx"),
     ("return {init_ctx = function() end}", "nil as row_generator")],
)  # fmt: skip
def test_a_script_that_returns_something_else_is_told_so(script, said):
    with pytest.raises(fl.LuaError, match=said):
        list(fl.LuaLoader(script))


def test_scripts_come_from_files_by_name(tmp_path, shard):
    path, contents = shard
    script = tmp_path / "plan.lua"
    script.write_text(FOLLOW_INDEX)
    config = {"tar": str(path), "index": f"{path}.utix"}
    assert contents_of(fl.LuaLoader.from_file(script, config)) == contents
    script.write_text("return {init_ctx = function() error('here') end, row_generator = function() end}")
    with pytest.raises(fl.LuaError, match=r"plan\.lua:1: here"):
        list(fl.LuaLoader.from_file(str(script)))


def test_a_missing_lupa_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "lupa", None)
    with pytest.raises(fl.MissingExtraError, match=r"fastloader\[lua\]"):
        list(planning(""))
