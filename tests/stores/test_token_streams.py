"""Streams of tokens in a bucket: the windows of the local copy, each byte of ours checked, in few requests."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from http_server import web_server
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import in_order
from tests.forking import forked
from tests.stores.fault_proxy import QUICK, Fault, Proxy, fault_proxy, hurry

import fastloader as fl
from fastloader.cli import main
from fastloader.errors import NotFoundError, StoreError
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind
from fastloader.stores import MemoryStore, open_store
from fastloader.testing.seaweed import ACCESS, SECRET, S3Server

BUCKET = "s3://tokens"
SEQ = 500
COUNT = 1_400_000
"""Tokens of two bytes each: two pages, and 43 blocks of checksums."""
KINDS: dict[str, dict[str, Any]] = {
    "one.fld": {}, "shards.fld": {}, "raw.bin": {"dtype": "uint16", "header_bytes": 1000}, "part*.bin": {}, "list": {},
}  # fmt: skip


def upload(file: Path, url: str, s3: S3Server) -> None:
    """A file, or all of a folder."""
    store, key = open_store(url, s3.storage_options())
    for one in sorted(file.iterdir()) if file.is_dir() else [file]:
        store.put(f"{key}/{one.name}" if file.is_dir() else key, one.read_bytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Path:
    """The same streams on disk and in a bucket."""
    folder = tmp_path_factory.mktemp("tokens")
    tokens = np.random.default_rng(0).integers(0, 50_000, COUNT).astype(np.uint16)
    for name, size in (("one.fld", None), ("shards.fld", "700KB")):
        with fl.TokenStreamWriter(folder / name, vocab_size=50_000, shard_size=size) as writer:
            writer.write(tokens)
    (folder / "raw.bin").write_bytes(bytes(1000) + tokens.tobytes())
    index = b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, 8)
    for number, part in enumerate(np.array_split(tokens, 3)):
        part.tofile(folder / f"part{number}.bin")
        (folder / f"part{number}.idx").write_bytes(index)
    for one in folder.iterdir():
        upload(one, f"{BUCKET}/{one.name}", s3)
    return folder


def paths_of(kind: str, root: Any) -> Any:
    return [f"{root}/part2.bin", f"{root}/part*1.bin"] if kind == "list" else f"{root}/{kind}"


def both(folder: Path, s3: S3Server, kind: str, seq_len: int = SEQ, **options: Any) -> tuple[fl.TokenStream, ...]:
    """The stream on disk and in the bucket."""
    far = {name: options.pop(name) for name in ("cache_dir", "cache_size", "storage_options") if name in options}
    far = {"storage_options": s3.storage_options()} | far
    options = KINDS[kind] | options
    local = fl.TokenStream(paths_of(kind, folder), seq_len, **options)
    return local, fl.TokenStream(paths_of(kind, BUCKET), seq_len, **options, **far)


def epoch(stream: fl.TokenStream, order: Any = "random", **options: Any) -> np.ndarray[Any, Any]:
    loader = fl.DataLoader(stream, 64, **in_order(order, 2), seed=5, **{"num_workers": 2, **options})
    return np.concatenate([batch["tokens"] for batch in loader])


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_those_of_the_local_copy(folder: Path, s3: S3Server, kind: str) -> None:
    local, remote = both(folder, s3, kind)
    assert (len(remote), remote.num_tokens, remote.dtype) == (len(local), local.num_tokens, local.dtype)
    assert (remote.source is None) == kind.endswith((".bin", "list"))
    for index in (0, 5, 131, len(local) - 1, -1):
        assert np.array_equal(remote[index]["tokens"], local[index]["tokens"])
    some = np.random.default_rng(1).integers(0, len(local), 200)
    assert np.array_equal(remote.read_batch(some)["tokens"], local.read_batch(some)["tokens"])


@pytest.mark.parametrize("order", ["sequential", "random", "quasi_random"])
@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_those_of_the_local_copy(folder: Path, s3: S3Server, kind: str, order: str) -> None:
    local, remote = both(folder, s3, kind)
    assert np.array_equal(epoch(remote, order), epoch(local, order))


@pytest.mark.parametrize("kind", ["one.fld", "raw.bin"])
@pytest.mark.parametrize("options", [{"windows": "random"}, {"stride": 1700}, {"stride": 90_000}, {"seq_len": 100_000}])
def test_so_are_windows_anywhere_and_of_any_size(folder: Path, s3: S3Server, kind: str, options: Any) -> None:
    local, remote = both(folder, s3, kind, **options)
    orders = ["random"] if "windows" in options else ["random", "quasi_random"]
    for order in orders:
        assert np.array_equal(epoch(remote, order), epoch(local, order))
    assert np.array_equal(remote[3]["tokens"], local[3]["tokens"])


@pytest.mark.parametrize("order", ["random", "quasi_random", "sequential"])
@pytest.mark.parametrize("kind", ["one.fld", "part*.bin"])
def test_a_cache_gives_the_same_and_a_second_epoch_asks_for_nothing(
    folder: Path, s3: S3Server, tmp_path: Path, kind: str, order: str
) -> None:
    with fault_proxy(s3.endpoint) as proxy:
        options = s3.storage_options(proxy.url, hedge_after=60.0)
        local, remote = both(folder, s3, kind, storage_options=options, cache_dir=tmp_path, cache_size="50MB")
        wanted = epoch(local, order)
        assert np.array_equal(epoch(remote, order), wanted)
        before = len(proxy.requests)
        assert np.array_equal(epoch(remote, order), wanted)
        assert np.array_equal(remote.read_batch([1, 2000])["tokens"], local.read_batch([1, 2000])["tokens"])
        assert len(proxy.requests) == before


@pytest.mark.parametrize(("order", "most"), [("sequential", 2), ("quasi_random", 2)])
@pytest.mark.parametrize("kind", ["one.fld", "raw.bin"])
def test_an_epoch_asks_for_each_byte_once_in_few_requests(
    folder: Path, s3: S3Server, kind: str, order: str, most: int
) -> None:
    _, remote = both(folder, s3, kind)
    loader = fl.DataLoader(remote, 16, **in_order(order, 2), num_workers=2)
    assert sum(len(batch["tokens"]) for batch in loader) == len(remote)
    io = loader.stats()["io"]
    assert io["requests"] <= most
    assert io["fetched_bytes"] <= COUNT * 2
    assert io["payload_bytes"] == len(remote) * (SEQ + 1) * 2


def test_opening_asks_once_for_an_object_and_for_no_tokens(folder: Path, s3: S3Server) -> None:
    with fault_proxy(s3.endpoint) as proxy:
        for kind, requests in (("raw.bin", 1), ("one.fld", 2), ("part*.bin", 10)):
            proxy.requests.clear()
            stream = both(folder, s3, kind, storage_options=s3.storage_options(proxy.url, hedge_after=60.0))[1]
            assert len(proxy.requests) <= requests
            spans = [span.removeprefix("bytes=").split("-") for _, _, span in proxy.requests if span]
            assert sum(int(end) - int(begin) + 1 for begin, end in spans) < 40_000
            proxy.requests.clear()
            stream.read_batch([7, 8, 9])  # neighbours, in one block
            assert len(proxy.requests) == 1


@pytest.mark.parametrize("windows", ["sequential", "random"])
@pytest.mark.parametrize("kind", ["shards.fld", "raw.bin"])
def test_a_run_resumes_at_every_step_on_any_number_of_ranks(
    folder: Path, s3: S3Server, kind: str, windows: str
) -> None:
    local, remote = both(folder, s3, kind, 50_000, windows=windows)

    def loader(stream: fl.TokenStream, rank: int = 0, world: int = 1) -> fl.DataLoader:
        return fl.DataLoader(stream, 3, seed=5, rank=rank, world_size=world, num_workers=1)

    whole = [batch["tokens"] for batch in loader(local)]
    for step in range(len(whole)):
        passing = loader(remote)
        batches = iter(passing)
        for wanted in whole[:step]:
            assert np.array_equal(next(batches)["tokens"], wanted)
        state = passing.state_dict()
        batches.close()
        for source in (local, remote):  # a state is for either
            again = loader(source)
            again.load_state_dict(state)
            assert np.array_equal(next(iter(again))["tokens"], whole[step])
        rest = []
        for rank in range(2):
            other = loader(remote, rank, 2)
            other.load_state_dict(state)
            rest += [row.tobytes() for batch in other for row in batch["tokens"]]
        assert sorted(rest) == sorted(row.tobytes() for batch in whole[step:] for row in batch)


def test_it_pickles_forks_and_is_known_again(folder: Path, s3: S3Server) -> None:
    local, remote = both(folder, s3, "shards.fld")
    wanted = epoch(local)
    again = pickle.loads(pickle.dumps(remote))
    assert np.array_equal(epoch(again), wanted)
    loader = fl.DataLoader(remote, 64, seed=5, num_workers=2)
    passing = iter(loader)
    next(passing)
    assert forked(lambda: np.array_equal(epoch(remote), wanted))
    assert sum(len(batch["tokens"]) for batch in passing) == len(remote) - 64


@pytest.fixture
def replaced(s3: S3Server) -> Callable[[bytes], str]:
    """A raw object of its own, and what puts another in its place."""
    store, key = open_store(f"{BUCKET}/replaced.bin", s3.storage_options())

    def put(data: bytes) -> str:
        store.put(key, data)
        return f"{BUCKET}/replaced.bin"

    return put


def test_an_object_that_is_replaced_is_an_error(replaced: Callable[[bytes], str], s3: S3Server) -> None:
    data = np.arange(30_000, dtype=np.uint16).tobytes()
    url = replaced(data)
    stream = fl.TokenStream(url, 100, dtype="uint16", storage_options=s3.storage_options())
    packed = pickle.dumps(stream)
    passing = iter(fl.DataLoader(stream, 2, num_workers=1))
    next(passing)
    replaced(data[::-1])
    for read in (lambda: list(passing), lambda: epoch(stream), lambda: stream[3], lambda: stream.read_batch([1, 200])):
        with pytest.raises(StoreError, match=f"{url}: .*is not the object it was"):
            read()
    with pytest.raises(fl.FormatError, match="other files than when the stream was opened"):
        pickle.loads(packed)


@pytest.fixture(scope="module")
def damaged(folder: Path, s3: S3Server) -> str:
    """A stream of ours with a flipped bit in its block 3."""
    entry = Dataset(folder / "one.fld").file(0).directory[Kind.TOKENS, 0]
    data = bytearray((folder / "one.fld").read_bytes())
    data[entry.offset + 3 * entry.block_size + 70] ^= 4
    store, key = open_store(f"{BUCKET}/damaged.fld", s3.storage_options())
    store.put(key, data)
    return f"{BUCKET}/damaged.fld"


def test_a_flipped_bit_is_found_and_named(damaged: str, folder: Path, s3: S3Server, tmp_path: Path) -> None:
    local = fl.TokenStream(folder / "one.fld", SEQ)
    size = 65536 // 2
    bad = [row for row in range(len(local)) if row * SEQ < 4 * size and row * SEQ + SEQ >= 3 * size]
    good = np.setdiff1d(np.arange(len(local)), bad)
    told = rf"{damaged}: sample \d+, field 'tokens': table block 3 is damaged: crc32c stored"
    store, key = open_store(damaged, s3.storage_options())
    (tmp_path / "x.fld").write_bytes(store.read(key))
    other = fl.TokenStream(tmp_path / "x.fld", SEQ)
    for options in ({}, {"cache_dir": tmp_path}):
        stream = fl.TokenStream(damaged, SEQ, storage_options=s3.storage_options(), **options)  # type: ignore[arg-type]
        with pytest.raises(fl.ChecksumError, match=told):
            stream[bad[1]]
        with pytest.raises(fl.ChecksumError, match=told):
            stream.read_batch([0, bad[-1]])
        assert np.array_equal(stream.read_batch(good)["tokens"], local.read_batch(good)["tokens"])
        for order in ("sequential", "random", "quasi_random"):
            with pytest.raises(fl.ChecksumError, match=told):
                epoch(stream, order)
        assert np.array_equal(epoch(stream, on_error="skip"), epoch(other, on_error="skip"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A stream of several blocks, and its tokens."""
    path, tokens = tmp_path_factory.mktemp("small") / "x.fld", np.random.default_rng(2).integers(0, 250, 150_000)
    with fl.TokenStreamWriter(path, vocab_size=250) as writer:
        writer.write(tokens)
    return path.read_bytes(), tokens.astype(np.uint8).tobytes()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_changed_of_an_object_its_tokens_are_right_or_refused(small: tuple[bytes, bytes], data: Any) -> None:
    content, tokens = small
    changed = bytearray(content)
    tables = content.rindex(tokens[-9:])  # what lies behind is changed as often as all the tokens
    for _ in range(data.draw(st.integers(1, 2))):
        places = st.integers(0, len(content) - 1), st.integers(tables, len(content) - 1), st.integers(0, 300)
        changed[data.draw(st.one_of(*places))] ^= 1 << data.draw(st.integers(0, 7))
    MemoryStore("changed").put("x.fld", bytes(changed))
    try:
        stream = fl.TokenStream("memory://changed/x.fld", 999)
    except (fl.FormatError, ValueError):
        return
    for read in (lambda: stream.read_batch(range(len(stream)))["tokens"], lambda: epoch(stream, "sequential")):
        try:
            found = read()
        except fl.FormatError:
            continue
        assert found.tobytes() == b"".join(tokens[at : at + 1000] for at in range(0, len(tokens) - 999, 999))


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """Between us and the server."""
    with fault_proxy(s3.endpoint) as one:
        yield one


@pytest.mark.parametrize("fault", ["503", "reset", "short_length"])
def test_one_request_in_four_fails_and_the_epoch_is_whole(
    folder: Path, s3: S3Server, proxy: Proxy, fault: Fault
) -> None:
    for kind in ("shards.fld", "part*.bin"):
        local, remote = both(folder, s3, kind, 5000, storage_options=s3.storage_options(proxy.url, **QUICK))
        proxy.fault, proxy.every, proxy.spoilt = fault, 4, 0
        assert np.array_equal(epoch(remote), epoch(local))
        assert np.array_equal(remote.read_batch([5, 200])["tokens"], local.read_batch([5, 200])["tokens"])
        assert proxy.spoilt >= 2


@pytest.mark.parametrize("kind", ["shards.fld", "raw.bin"])
def test_what_never_comes_and_what_is_another_object_are_errors_that_name_it(
    folder: Path, s3: S3Server, proxy: Proxy, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = both(folder, s3, kind, storage_options=s3.storage_options(proxy.url, **QUICK))[1]
    names = {"shards.fld": r"shards\.fld/shard-\d+\.fld", "raw.bin": r"raw\.bin"}[kind]
    for fault, what in (("etag", "is not the object it was"), ("503", "")):
        proxy.fault = fault  # type: ignore[assignment]
        if fault == "503":
            hurry(monkeypatch)
        for read in (lambda: epoch(stream, on_error="skip"), lambda: stream[1]):
            with pytest.raises(StoreError, match=rf"{BUCKET}/{names}: .*{what}"):
                read()


@pytest.mark.parametrize("order", ["random", "quasi_random"])
def test_a_bit_that_flips_on_its_way_is_noticed(folder: Path, s3: S3Server, proxy: Proxy, order: str) -> None:
    stream = both(folder, s3, "shards.fld", storage_options=s3.storage_options(proxy.url, **QUICK))[1]
    proxy.fault, proxy.every = "flip", 2
    with pytest.raises(fl.ChecksumError, match=rf"{BUCKET}/shards\.fld/shard-\d+\.fld: .*block \d+ is damaged"):
        epoch(stream, order)


def test_a_web_server_and_memory_hold_streams_too(folder: Path) -> None:
    wanted = epoch(fl.TokenStream(folder / "shards.fld", SEQ))
    raw = KINDS["raw.bin"]
    with web_server(folder) as url:
        assert np.array_equal(epoch(fl.TokenStream(f"{url}/shards.fld", SEQ)), wanted)
        assert fl.TokenStream(f"{url}/part0.bin", SEQ).dtype == np.uint16
        remote, local = (fl.TokenStream(f"{place}/raw.bin", SEQ, **raw) for place in (url, folder))
        assert np.array_equal(remote[7]["tokens"], local[7]["tokens"])
    store = MemoryStore("streams")
    for shard in (folder / "shards.fld").iterdir():
        store.put(f"x.fld/{shard.name}", shard.read_bytes())
    assert np.array_equal(epoch(fl.TokenStream("memory://streams/x.fld", SEQ)), wanted)
    assert np.array_equal(epoch(fl.TokenStream(f"file://{folder}/shards.fld", SEQ)), wanted)


def test_what_can_not_be_a_stream(folder: Path, s3: S3Server, tmp_path: Path) -> None:
    options = s3.storage_options()
    store, _ = open_store(BUCKET, options)
    store.put("odd/odd.bin", b"123")
    store.put("odd/odd.idx", b"no index")
    store.put("odd/none.bin", b"")
    with fl.DatasetWriter(f"{BUCKET}/odd/samples.fld", {"x": fl.IntField()}, storage_options=options) as writer:
        writer.write_sample([1])

    def stream(*paths: Any, **more: Any) -> fl.TokenStream:
        return fl.TokenStream(paths if len(paths) > 1 else paths[0], 8, **{"storage_options": options} | more)

    with pytest.raises(NotFoundError, match=f"{BUCKET}/nowhere.fld"):
        stream(f"{BUCKET}/nowhere.fld")
    with pytest.raises(NotFoundError, match="no file has such a name"):
        stream(f"{BUCKET}/none*.bin")
    with pytest.raises(ValueError, match=rf"{BUCKET}/odd/odd\.bin: raw tokens do not say what they are"):
        stream(f"{BUCKET}/odd/odd.bin")
    with pytest.raises(fl.FormatError, match=rf"{BUCKET}/odd/odd\.bin: has 3 bytes"):
        stream(f"{BUCKET}/odd/odd.bin", dtype="uint16")
    with pytest.raises(fl.FormatError, match=rf"{BUCKET}/odd/samples\.fld: holds samples"):
        stream(f"{BUCKET}/odd/samples.fld")
    with pytest.raises(ValueError, match="local files and objects in a store; make a stream of each"):
        stream(f"{BUCKET}/part0.bin", folder / "part1.bin")
    with pytest.raises(fl.FormatError, match="has 0 tokens, too few"):
        stream(f"{BUCKET}/odd/none.bin", dtype="uint16")
    assert len(stream(f"{BUCKET}/odd/none.bin", f"{BUCKET}/part0.bin", dtype="uint16")) == COUNT // 3 // 8
    with pytest.raises(ValueError, match="storage_options are for URLs"):
        stream(folder / "one.fld")
    with pytest.raises(ValueError, match="cache_dir is for URLs"):
        stream(folder / "one.fld", storage_options=None, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="cache_size without cache_dir"):
        stream(f"{BUCKET}/one.fld", cache_size="1GB")
    with pytest.raises(ValueError, match="io='pread' is for local files"):
        list(fl.DataLoader(stream(f"{BUCKET}/one.fld"), io="pread"))
    twice = stream(f"{BUCKET}/one.fld", f"{BUCKET}/shards.fld", cache_dir=tmp_path, cache_size="5MB")
    with pytest.raises(ValueError, match=r"cache_size: .* needs"):
        list(fl.DataLoader(twice, order="random"))


def test_commands_show_streams_at_urls(folder: Path, s3: S3Server, damaged: str) -> None:
    keys = ["--endpoint", s3.endpoint, "-o", f"access_key_id={ACCESS}", "-o", f"secret_access_key={SECRET}"]

    def run(command: str, path: str, *arguments: Any, fails: int = 0) -> Any:
        far = keys if path.startswith("s3://") else []
        result = CliRunner().invoke(main, [command, *far, path, *map(str, arguments)])
        assert result.exit_code == fails, result.output
        return result

    for name in ("one.fld", "shards.fld"):
        url, path = f"{BUCKET}/{name}", str(folder / name)
        for arguments in (("0",), ("-5",), (700_000, "--json"), (COUNT - 9, "tokens"), (COUNT - 9, "tokens", "--npy")):
            assert run("cat", url, *arguments).stdout_bytes == run("cat", path, *arguments).stdout_bytes
        assert f"{url}: a stream of {COUNT:,} tokens" in run("ls", url).stderr
        assert f"tokens {COUNT:,}" in run("info", url).stdout
        told, here = (json.loads(run("info", one, "--json").stdout) for one in (url, path))
        assert told == here | {"path": url}
        assert f"{COUNT:,} tokens" in run("verify", url).stdout
        assert f"{url}: no token has the number {COUNT}" in run("cat", url, COUNT, fails=2).stderr
    assert f"{damaged}: field 'tokens': table block 3 is damaged" in run("cat", damaged, 100_000, fails=1).stderr
    run("cat", damaged, 0)
    assert "block 3 of the tokens table is damaged" in run("verify", damaged, fails=1).stdout
