import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokenizing import byte_pair, tiny_encoding

import fastloader as fl
from fastloader import kernels
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind

SEQ = 8


def numbered(count, start=0, dtype=np.uint16):
    return np.arange(start, start + count, dtype=dtype)


@pytest.fixture
def bins(tmp_path):
    """Raw files of 100, 5 and 73 tokens, all different."""
    sizes, start = (100, 5, 73), 0
    for i, size in enumerate(sizes):
        numbered(size, start).tofile(tmp_path / f"part{i}.bin")
        start += 1000
    return tmp_path


def windows_of(counts, seq_len, stride):
    return [
        (number * 1000 + begin)
        for number, count in enumerate(counts)
        for begin in range(0, count - seq_len, stride)
    ]  # fmt: skip


def test_sequential_windows_overlap_by_one_token(bins):
    stream = fl.TokenStream(bins / "*.bin", SEQ, dtype="uint16")
    begins = windows_of((100, 5, 73), SEQ, SEQ)
    assert len(stream) == len(begins)
    assert [sample["tokens"].tolist() for sample in stream] == [list(range(b, b + SEQ + 1)) for b in begins]
    batches = list(fl.DataLoader(stream, 4, shuffle=False))
    found = np.concatenate([batch["tokens"] for batch in batches])
    assert found.dtype == np.uint16
    assert found.tolist() == [list(range(b, b + SEQ + 1)) for b in begins]
    assert np.array_equal(stream.read_batch(range(len(stream)))["tokens"], found)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    seq_len=st.integers(1, 12),
    stride=st.integers(1, 20),
    dtype=st.sampled_from(["uint16", "uint32", "int64"]),
    header=st.sampled_from([0, 3, 1024]),
)
def test_windows_are_slices(tmp_path_factory, sizes, seq_len, stride, dtype, header):
    folder = tmp_path_factory.mktemp("any")
    paths, wanted = [], []
    for number, size in enumerate(sizes):
        tokens = numbered(size, number * 1000, dtype)
        paths.append(folder / f"{number}.bin")
        paths[-1].write_bytes(bytes(header) + tokens.tobytes())
        wanted += [tokens[at : at + seq_len + 1].tolist() for at in range(0, size - seq_len, stride)]
    if not wanted:
        with pytest.raises(fl.FormatError, match="too few for a window"):
            fl.TokenStream(paths, seq_len, dtype=dtype, stride=stride, header_bytes=header)
        return
    stream = fl.TokenStream(paths, seq_len, dtype=dtype, stride=stride, header_bytes=header)
    assert stream.read_batch(range(len(stream)))["tokens"].tolist() == wanted
    (batch,) = fl.DataLoader(stream, len(stream), shuffle=False)
    assert batch["tokens"].tolist() == wanted


def begins_of(loader):
    return [int(row[0]) for batch in loader for row in batch["tokens"]]


def test_a_shuffle_gives_every_window_once(bins):
    stream = fl.TokenStream(bins / "*.bin", SEQ, dtype="uint16")
    loader = fl.DataLoader(stream, 4, seed=3)
    first, second = begins_of(loader), begins_of(loader)
    assert sorted(first) == sorted(second) == windows_of((100, 5, 73), SEQ, SEQ)
    assert first != second


def test_random_windows_begin_anywhere_and_differ_by_epoch(tmp_path):
    numbered(20_000).tofile(tmp_path / "x.bin")
    stream = fl.TokenStream(tmp_path / "x.bin", SEQ, windows="random", dtype="uint16")
    loader = fl.DataLoader(stream, 64, seed=3)
    epochs = [begins_of(loader) for _ in range(3)]
    for begins in epochs:
        assert len(begins) == (20_000 - 1) // SEQ == len(set(begins))
        assert set(begins) <= set(range(20_000 - SEQ))
        shares = np.bincount(np.array(begins) % SEQ, minlength=SEQ) / len(begins)
        assert (abs(shares - 1 / SEQ) < 0.03).all()  # no boundary is preferred
        parts = np.histogram(begins, 10, (0, 20_000))[0] / len(begins)
        assert (abs(parts - 0.1) < 0.03).all()
    assert len(set(epochs[0]) & set(epochs[1])) < 0.25 * len(epochs[0])
    assert epochs == [begins_of(again) for again in [fl.DataLoader(stream, 64, seed=3)] for _ in range(3)]
    assert epochs[0] != begins_of(fl.DataLoader(stream, 64, seed=4))


@pytest.mark.parametrize("windows", ["sequential", "random"])
@pytest.mark.parametrize("ranks", [(1, 1), (2, 3), (3, 1), (1, 4)])
def test_a_run_resumes_anywhere_on_any_number_of_ranks(bins, windows, ranks):
    stream = fl.TokenStream(bins / "*.bin", SEQ, windows=windows, dtype="uint16")
    before, after = ranks

    def loaders(world):
        return [fl.DataLoader(stream, 2, seed=5, rank=r, world_size=world, num_workers=1) for r in range(world)]

    whole = sorted(begins_of(fl.DataLoader(stream, 2, seed=5)))
    for steps in (0, 1, 2):
        seen, states = [], []
        for loader in loaders(before):
            batches = iter(loader)
            seen += [int(row[0]) for _ in range(steps) for row in next(batches)["tokens"]]
            states.append(loader.state_dict())
            batches.close()
        assert all(state == states[0] for state in states)
        assert len(repr(states[0])) < 300
        rest = []
        for loader in loaders(after):
            loader.load_state_dict(states[0])
            rest += begins_of(loader)
        assert sorted(seen + rest) == whole


def test_a_state_of_other_windows_is_refused(bins):
    def make(**options):
        return fl.DataLoader(fl.TokenStream(bins / "*.bin", SEQ, dtype="uint16", **options), 2, seed=5)

    state = make(windows="random").state_dict()
    for other in (make(), make(stride=3)):
        with pytest.raises(fl.StateError, match="another order"):
            other.load_state_dict(state)


def test_batches_do_not_depend_on_how_bytes_are_read(bins):
    stream = fl.TokenStream(bins / "*.bin", SEQ, windows="random", dtype="uint16")
    modes = ["mmap", "pread", "auto", *(["uring"] if kernels.has_uring() else [])]
    found = [begins_of(fl.DataLoader(stream, 3, seed=2, io=io, num_workers=n)) for io in modes for n in (0, 3)]
    assert all(one == found[0] for one in found)
    loader = fl.DataLoader(stream, 3, seed=2, io="pread")
    assert begins_of(loader) == found[0]
    assert loader.stats()["io"]["read_bytes"] > 0


def test_orders_ranks_digests_and_stats_work_as_for_any_reader(bins):
    stream = fl.TokenStream(bins / "*.bin", SEQ, dtype="uint16")
    for order in ("sequential", "random", "quasi_random"):
        loader = fl.DataLoader(stream, 4, order=order, seed=1)
        assert sorted(begins_of(loader)) == windows_of((100, 5, 73), SEQ, SEQ)
        assert loader.digest().count == len(stream)
        stats = loader.stats()
        assert stats["samples"] == len(stream)
        assert stats["fields"]["tokens"]["decoded_bytes"] == len(stream) * (SEQ + 1) * 2
    few = fl.DataLoader(stream, 2, indices=[3, 1], shuffle=False)
    assert begins_of(few) == [24, 8]
    assert "tokens" in fl.DataLoader(stream).explain()


def test_pages_name_each_window_once(tmp_path):
    numbered(3_000_000, dtype=np.uint32).tofile(tmp_path / "x.bin")
    for options in ({}, {"stride": 1}, {"stride": 700_000}, {"header_bytes": 4096}):
        stream = fl.TokenStream(tmp_path / "x.bin", 1000, dtype="uint32", **options)
        pages = stream.dataset.file(0).pages()
        assert pages["first_sample"][0] == 0
        ends = pages["first_sample"] + pages["num_samples"]
        assert ends[:-1].tolist() == pages["first_sample"][1:].tolist()
        assert ends[-1] == len(stream)
        for page in (0, 2, len(pages) - 1):
            first, count = int(pages["first_sample"][page]), int(pages["num_samples"][page])
            for sample in (first, first + count - 1) if count else ():
                pointer = stream.dataset.file(0).payloads(0).extent(sample)[0]
                assert pointer // (2 << 20) == page


def test_it_pickles_and_is_checked_again(bins):
    stream = fl.TokenStream(bins / "*.bin", SEQ, windows="random", dtype="uint16")
    again = pickle.loads(pickle.dumps(stream))
    assert begins_of(fl.DataLoader(again, 4, seed=1)) == begins_of(fl.DataLoader(stream, 4, seed=1))
    assert again.seq_len == SEQ
    packed = pickle.dumps(stream)
    numbered(50).tofile(bins / "part1.bin")
    with pytest.raises(fl.FormatError, match="other files than when the stream was opened"):
        pickle.loads(packed)


def test_files_of_our_own(tmp_path):
    documents = [numbered(n, n * 7) % 900 for n in range(1, 120)]
    with fl.TokenStreamWriter(tmp_path / "x.fld", vocab_size=1000, eos=999) as writer:
        writer.write_many(documents)
    flat = np.concatenate([np.append(document, 999) for document in documents]).astype(np.uint16)
    assert (writer.num_documents, writer.num_tokens) == (len(documents), len(flat))
    stream = fl.TokenStream(tmp_path / "x.fld", 32)
    assert (stream.num_tokens, stream.dtype, stream.source.vocab_size) == (len(flat), np.dtype(np.uint16), 1000)
    wanted = [flat[at : at + 33].tolist() for at in range(0, len(flat) - 32, 32)]
    assert stream.read_batch(range(len(stream)))["tokens"].tolist() == wanted
    assert [row.tolist() for batch in fl.DataLoader(stream, 8, shuffle=False) for row in batch["tokens"]] == wanted
    assert fl.verify(tmp_path / "x.fld").ok
    assert len(fl.open(tmp_path / "x.fld")) == 0


def test_shards_of_our_own(tmp_path):
    documents = [numbered(n, n * 7) % 900 for n in range(1, 120)]
    flat = np.concatenate(documents)
    with fl.TokenStreamWriter(tmp_path / "x.fld", vocab_size=1000, shard_size=3001) as writer:
        writer.write_many(documents)
    shards = sorted((tmp_path / "x.fld").glob("shard-*.fld"))
    assert len(shards) == -(-len(flat) // 1500)
    for source in (tmp_path / "x.fld", shards):
        stream = fl.TokenStream(source, 16)
        assert stream.num_tokens == len(flat)
        joined = np.concatenate([
            flat[begin : begin + 1500][at : at + 17]
            for begin in range(0, len(flat), 1500)
            for at in range(0, len(flat[begin : begin + 1500]) - 16, 16)
        ])  # fmt: skip
        assert np.array_equal(stream.read_batch(range(len(stream)))["tokens"].reshape(-1), joined)
    assert fl.verify(tmp_path / "x.fld").ok


def test_damaged_tokens_of_our_own_are_found(tmp_path):
    path = tmp_path / "x.fld"
    with fl.TokenStreamWriter(path, vocab_size=60_000) as writer:
        writer.write(np.arange(200_000) % 60_000)
    file = Dataset(path).file(0)
    entry = file.directory[Kind.TOKENS, 0]
    data = bytearray(path.read_bytes())
    data[entry.offset + 3 * entry.block_size] ^= 4
    path.write_bytes(data)
    stream = fl.TokenStream(path, 100)
    bad = 3 * entry.block_size // 200
    assert stream[0]["tokens"].tolist() == list(range(101))
    for read in (lambda: stream[bad], lambda: stream.read_batch([0, bad]), lambda: list(fl.DataLoader(stream))):
        with pytest.raises(fl.ChecksumError, match="field 'tokens'"):
            read()
    (problem,) = fl.verify(path).problems
    assert "block 3 of the tokens table is damaged" in problem.message


def test_streams_with_broken_options_or_tables_are_refused(tmp_path):
    path = tmp_path / "x.fld"
    with fl.TokenStreamWriter(path, vocab_size=60_000) as writer:
        writer.write(np.arange(1000))
    good = path.read_bytes()
    fl.TokenStream(path, 8)
    for old, new in ((b'"vocab_size":60000', b'"vocab_size":-6000'), (b'"tokenizer"', b'"tokenixer"')):
        head = good.index(b'{"add_special_tokens"')
        data = bytearray(good.replace(old, new))
        assert len(data) == len(good)
        file = Dataset(path).file(0)
        section = file.directory[Kind.DESCRIPTORS, 0xFFFF]
        assert section.offset < head
        data = _resealed(data, section, path)
        (tmp_path / "bad.fld").write_bytes(data)
        with pytest.raises(fl.FormatError, match=r"options of 'tokens' that can't be read"):
            fl.TokenStream(tmp_path / "bad.fld", 8)


def _resealed(data, section, path):
    """The checksums of the descriptors and of the directory, made right again."""
    crc = kernels.crc32c(bytes(data[section.offset : section.offset + section.size]))
    directory = Dataset(path).file(0).header.metadata
    count, width = struct.unpack_from("<II", data, directory)
    for i in range(count):
        at = directory + 16 + i * width
        if struct.unpack_from("<H", data, at)[0] == Kind.DESCRIPTORS:
            struct.pack_into("<I", data, at + 40, crc)
    rows = bytes(data[directory : directory + 8]), bytes(data[directory + 16 : directory + 16 + count * width])
    struct.pack_into("<I", data, directory + 8, kernels.crc32c(rows[1], kernels.crc32c(rows[0])))
    return data


def test_texts_become_a_stream(tmp_path):
    for tokenizer, eos in ((byte_pair(), 2), (tiny_encoding(), 260)):
        with fl.TokenStreamWriter(tmp_path / "x.fld", tokenizer=tokenizer, eos=eos, embed=True) as writer:
            writer.write_many(["the park, ", "two dogs " * 10])
        stream = fl.TokenStream(tmp_path / "x.fld", 4)
        assert stream.source.decode(stream[0]["tokens"]).startswith("the p")
        with pytest.raises(fl.TokenizerError):
            stream.source.with_tokenizer(byte_pair(3))


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    for shard_size in (None, 100):
        writer = fl.TokenStreamWriter(tmp_path / "x.fld", vocab_size=1000, shard_size=shard_size)
        writer.write([1, 2])
        with pytest.raises(fl.SampleError, match=r"sample 1, field 'tokens': token 1000 at 1 is not in the vocabulary"):
            writer.write([1, 1000])
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ValueError, match="closed"):
            writer.write([1])

    def interrupted():
        with fl.TokenStreamWriter(tmp_path / "x.fld", vocab_size=9) as writer:
            writer.write([1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(fl.SampleError, match="the document is text; give the writer a tokenizer"):
        fl.TokenStreamWriter(tmp_path / "x.fld", vocab_size=9).write("text")


def test_a_writer_says_how_a_stream_comes_into_a_bucket(tmp_path):
    with pytest.raises(ValueError, match=r'"fastloader store put -r FILE s3://bucket/x\.fld" copies one there'):
        fl.TokenStreamWriter("s3://bucket/x.fld", vocab_size=9)
    with fl.TokenStreamWriter(f"file://{tmp_path}/x.fld", vocab_size=9) as writer:
        writer.write([1, 2, 3])
    assert fl.TokenStream(f"file://{tmp_path}/x.fld", 2)[0]["tokens"].tolist() == [1, 2, 3]


def test_a_writer_does_not_replace_foreign_folders(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine.txt").write_text("keep")
    with pytest.raises(fl.StoreError, match=r"holds mine\.txt|no manifest"):
        fl.TokenStreamWriter(tmp_path / "x", vocab_size=9, shard_size=100)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        fl.TokenStreamWriter(tmp_path / "x", vocab_size=9)


def test_raw_files_of_megatron_tell_their_type(tmp_path):
    for code, dtype in ((8, "<u2"), (4, "<i4"), (5, "<i8")):
        numbered(50, dtype=dtype).tofile(tmp_path / "x.bin")
        (tmp_path / "x.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, code) + bytes(20))
        stream = fl.TokenStream(tmp_path / "x.bin", 7)
        assert (stream.dtype, stream[1]["tokens"].tolist()) == (np.dtype(dtype), list(range(7, 15)))
    (tmp_path / "x.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, 7))
    with pytest.raises(fl.FormatError, match="tokens are of type 7"):
        fl.TokenStream(tmp_path / "x.bin", 7)


def test_what_can_not_be_a_stream(tmp_path, bins):
    with pytest.raises(ValueError, match="raw tokens do not say what they are; give dtype='uint16'"):
        fl.TokenStream(bins / "part0.bin", 8)
    with pytest.raises(fl.NotFoundError, match="no such file"):
        fl.TokenStream(bins / "none.bin", 8, dtype="uint16")
    with pytest.raises(fl.NotFoundError, match="no file has such a name"):
        fl.TokenStream(bins / "none*.bin", 8, dtype="uint16")
    with pytest.raises(ValueError, match="a stream of no files"):
        fl.TokenStream([], 8)
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(fl.FormatError, match="has 3 bytes, which are no 0 of a header and whole tokens of uint16"):
        fl.TokenStream(tmp_path / "odd.bin", 8, dtype="uint16")
    with pytest.raises(fl.FormatError, match="header"):
        fl.TokenStream(bins / "part0.bin", 8, dtype="uint16", header_bytes=1 << 20)
    with fl.DatasetWriter(tmp_path / "samples.fld", {"x": fl.IntField()}) as writer:
        writer.write_sample([1])
    with pytest.raises(fl.FormatError, match="holds samples and no stream"):
        fl.TokenStream(tmp_path / "samples.fld", 8)
    with fl.TokenStreamWriter(tmp_path / "wide.fld", vocab_size=100_000) as wide:
        wide.write(range(100))
    with fl.TokenStreamWriter(tmp_path / "narrow.fld", vocab_size=1000) as narrow:
        narrow.write(range(100))
    with pytest.raises(fl.FormatError, match="tokens of uint16 and uint32"):
        fl.TokenStream([tmp_path / "narrow.fld", tmp_path / "wide.fld"], 8)
    with pytest.raises(ValueError, match="its tokens are uint32; leave it out"):
        fl.TokenStream(tmp_path / "wide.fld", 8, dtype="uint16")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 0}, "seq_len=0"), ({"windows": "all"}, "windows='all': one of sequential, random"),
        ({"windows": "random", "stride": 3}, "stride=3: random windows"), ({"stride": 0}, "stride=0"),
        ({"dtype": "float32"}, "dtype='float32': tokens are whole numbers"), ({"header_bytes": -1}, "header_bytes=-1"),
    ],
)  # fmt: skip
def test_options_are_checked(bins, options, message):
    with pytest.raises(ValueError, match=message):
        fl.TokenStream(bins / "*.bin", **{"seq_len": 8, "dtype": "uint16"} | options)


def test_stream_files_take_no_samples(tmp_path):
    from fastloader.fields import TokenStreamField

    with (
        pytest.raises(fl.SampleError, match="a stream has no samples"),
        fl.DatasetWriter(tmp_path / "x.fld", {"tokens": TokenStreamField(vocab_size=10)}) as writer,
    ):
        writer.write_sample([[1, 2]])


@pytest.mark.parametrize(
    ("begin", "end", "size", "step"),
    [(0, 101, 10, 1), (50, 40, 10, 1), (0, 100, 0, 1), (0, 100, 10, 0), (2**63, 2**64 - 1, 10, 1)],
)
def test_windows_outside_the_file_are_refused(begin, end, size, step):
    with pytest.raises(kernels.Failure, match=r"windows|window"):
        kernels.Payloads.windows(bytes(100), begin, end, size, step)


def test_rows_outside_the_windows_are_refused():
    windows = kernels.Payloads.windows(bytes(range(100)), 10, 90, 20, 30)
    assert windows.rows == 3
    assert [windows.extent(row)[:2] for row in range(3)] == [(10, 20), (40, 20), (70, 20)]
    for row in (3, 2**63, 2**64 - 1):
        with pytest.raises(kernels.Failure, match="outside the windows"):
            windows.extent(row)
