from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokenizing import tiny_encoding

import fastloader as fl
from fastloader import kernels
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write


def laid_out(sequences, seq_len, pad, dtype):
    """The slow twin of the native layout; ``None`` is a row of padding."""
    tokens = np.full((len(sequences), seq_len), pad, dtype)
    positions = np.zeros((len(sequences), seq_len), np.int32)
    documents = np.full((len(sequences), seq_len), -1, np.int32)
    ends = [0]
    for row, sequence in enumerate(sequences):
        at = 0
        for number, document in enumerate(sequence or []):
            part = slice(at, at + len(document))
            tokens[row, part], documents[row, part] = document, number
            positions[row, part] = np.arange(len(document))
            at = part.stop
            ends.append(row * seq_len + at)
        positions[row, at:] = np.arange(seq_len - at)
        if at < seq_len:
            ends.append((row + 1) * seq_len)
    return {
        "tokens": tokens, "position_ids": positions, "document_ids": documents,
        "cu_seqlens": np.array(ends, np.int32), "max_seqlen": int(np.diff(ends).max(initial=0)),
    }  # fmt: skip


class TestPackedTextField(FieldContract):
    def fields(self):
        return [fl.PackedTextField(16, 200), fl.PackedTextField(16, 50_000, pad_id=7), fl.PackedTextField(40, 100_000)]

    def values(self, field):
        return [
            [[1, 2, 3], [4], [5, 6]],
            [list(range(16))],
            [[9]],
            [[1]] * 16,
            fl.Packed(np.arange(5), np.array([2, 3])),
            {"tokens": [1, 2], "lengths": [1, 1]},
        ]

    def bad_values(self, field):
        return [
            [], [[]], [[1], []], [[1] * 41], [[-1]], [[field.vocab_size]], [1, 2], "text", 5, [["a"]], [[1.5]],
            fl.Packed(np.arange(5), np.array([2, 2])), fl.Packed(np.arange(2), np.array([3, -1])),
            {"tokens": [1]}, {"tokens": [1], "lengths": []},
        ]  # fmt: skip

    def equal(self, given, got):
        if isinstance(given, dict | fl.Packed):
            tokens, lengths = given if isinstance(given, fl.Packed) else (given["tokens"], given["lengths"])
            given = np.split(np.asarray(tokens), np.cumsum(lengths)[:-1])
        seq_len, pad = len(got["tokens"]), got["tokens"][-1]
        wanted = laid_out([given], seq_len, pad, got["tokens"].dtype)
        return identical({**wanted, **{n: wanted[n][0] for n in ("tokens", "position_ids", "document_ids")}}, got)

    def row(self, batch, position):
        rows = {name: batch[name][position] for name in ("tokens", "position_ids", "document_ids")}
        if (rows["document_ids"] == -1).all():
            return None
        ends = np.append(np.flatnonzero(rows["position_ids"] == 0), len(rows["tokens"])).astype(np.int32)
        return rows | {"cu_seqlens": ends, "max_seqlen": int(np.diff(ends).max())}


documents = st.lists(st.lists(st.integers(0, 999), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(sequences=st.lists(st.none() | documents, min_size=1, max_size=5))
def test_a_batch_is_what_the_slow_way_makes_of_it(tmp_path_factory, sequences):
    field = fl.PackedTextField(24, 1000, pad_id=999)
    reader = write(tmp_path_factory.mktemp("any") / "x.fld", field, sequences)
    (batch,) = fl.DataLoader(reader, len(sequences), shuffle=False)
    wanted = laid_out(sequences, 24, 999, np.uint16)
    assert identical(batch["it"], wanted)
    assert identical(reader.read_batch(range(len(sequences)))["it"], wanted)


def test_the_ends_are_those_of_varlen_attention(tmp_path):
    reader = write(tmp_path / "x.fld", fl.PackedTextField(8, 100), [[[1, 2, 3], [4, 5]], [[6] * 8]])
    (batch,) = fl.DataLoader(reader, 2, shuffle=False)
    flat, ends = batch["it"]["tokens"].reshape(-1), batch["it"]["cu_seqlens"].tolist()
    assert ends == [0, 3, 5, 8, 16]
    assert [flat[a:b].tolist() for a, b in pairwise(ends)] == [[1, 2, 3], [4, 5], [0] * 3, [6] * 8]
    assert batch["it"]["max_seqlen"] == 8


def damaged(path):
    field = fl.PackedTextField(8, 1000)
    reader = write(path, field, [[[1, 2]], [[3], [4, 5]], [[6]]])
    pointer = reader.dataset.file(0).payloads(0).extent(1)[0]
    data = bytearray(path.read_bytes())
    data[pointer] ^= 1
    path.write_bytes(data)
    return fl.DatasetReader(path)


def test_bad_sequences_are_told_replaced_or_skipped(tmp_path):
    reader = damaged(tmp_path / "x.fld")
    with pytest.raises(fl.ChecksumError, match="sample 1, field 'it'"):
        list(fl.DataLoader(reader, 3, shuffle=False))
    (batch,) = fl.DataLoader(reader, 3, shuffle=False, on_error="replace")
    assert identical(batch["it"], laid_out([[[1, 2]], None, [[6]]], 8, 0, np.uint16))
    (batch,) = fl.DataLoader(reader, 3, shuffle=False, on_error="skip")
    assert identical(batch["it"], laid_out([[[1, 2]], [[6]], [[6]]], 8, 0, np.uint16))


@pytest.mark.parametrize(
    ("counts", "payload"),
    [([2, 3], [1, 1]), ([1, 3], [2, 9]), ([0, 3], []), ([1, 9], [9]), ([2, 3], [3, 0]), ([2**31, 3], [3])],
)
def test_counts_that_lie_are_refused(counts, payload):
    data = np.array(payload, "<u4").tobytes() + np.arange(counts[1], dtype=np.uint16).tobytes()
    decoder = fl.PackedTextField(8, 1000).get_decoder_class()(fl.PackedTextField(8, 1000))
    with pytest.raises((fl.FormatError, kernels.Failure), match=r"do not|outside"):
        decoder(np.array([tuple(counts)], "u4,u4")[0], lambda: memoryview(data))


@pytest.mark.parametrize("options", [(0, 5), (-1, 5), (2**25, 5), (True, 5), (8, 0), (8, 5, -1), (8, 5, 256)])
def test_options_have_bounds(options):
    with pytest.raises(ValueError, match=r"seq_len=|vocab_size=|pad_id="):
        fl.PackedTextField(*options)


lengths = st.lists(st.integers(1, 40), max_size=60)


@settings(max_examples=80, deadline=None)
@given(sizes=lengths, strategy=st.sampled_from(["greedy", "best_fit"]), buffer=st.integers(1, 70))
def test_packing_keeps_every_token_and_every_document_whole(sizes, strategy, buffer):
    documents = [np.arange(n) + 1000 * i for i, n in enumerate(sizes)]
    packing = fl.pack(documents, 40, strategy, buffer=buffer)
    sequences = list(packing)
    parts = [part for s in sequences for part in np.split(s.tokens, np.cumsum(s.lengths)[:-1])]
    assert sorted(part.tolist() for part in parts) == sorted(document.tolist() for document in documents)
    assert all(1 <= len(s.tokens) <= 40 for s in sequences)
    if strategy == "greedy":
        assert [part[0] // 1000 for part in parts] == list(range(len(documents)))
    again = [tuple(map(np.ndarray.tolist, s)) for s in fl.pack(iter(documents), 40, strategy, buffer=buffer)]
    assert again == [tuple(map(np.ndarray.tolist, s)) for s in sequences]
    report = packing.report
    assert (report.documents, report.tokens, report.sequences) == (len(sizes), sum(sizes), len(sequences))
    assert report.efficiency == (sum(sizes) / (40 * len(sequences)) if sequences else 1.0)


def best_fit(sizes, room):
    """The slow twin: the longest first, each where it leaves the least room, the first such."""
    left, where = [], [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fits = [(have - sizes[i], number) for number, have in enumerate(left) if have >= sizes[i]]
        rest, number = min(fits, default=(room - sizes[i], len(left)))
        left[number:] = [rest, *left[number + 1 :]]
        where[i] = number
    return where


@settings(max_examples=80, deadline=None)
@given(sizes=lengths)
def test_best_fit_is_the_slow_one(sizes):
    out = np.empty(len(sizes), np.int64)
    found = kernels.best_fit(np.array(sizes, np.int64), 40, out)
    assert out.tolist() == best_fit(sizes, 40)
    assert found == len(set(out.tolist()))


def test_best_fit_wastes_less_than_greedy():
    rng = np.random.default_rng(0)
    documents = [np.zeros(n, np.int64) for n in np.minimum(rng.lognormal(5.5, 1, 5000).astype(int) + 1, 2048)]
    reports = {}
    for strategy in ("greedy", "best_fit"):
        packing = fl.pack(documents, 2048, strategy)
        assert sum(1 for _ in packing) == packing.report.sequences
        reports[strategy] = packing.report.efficiency
    assert reports["greedy"] < 0.92
    assert reports["best_fit"] > 0.99


def test_long_documents_are_split_cut_or_refused():
    documents = [[1, 2], list(range(10)), [3]]
    split = fl.pack(documents, 4)
    assert [s.tokens.tolist() for s in split] == [[1, 2], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 3]]
    assert (split.report.split, split.report.truncated) == (1, 0)
    cut = fl.pack(documents, 4, long="truncate")
    assert [s.tokens.tolist() for s in cut] == [[1, 2], [0, 1, 2, 3], [3]]
    assert cut.report.truncated == 1
    with pytest.raises(fl.SampleError, match="sample 1: the document has 10 tokens, and a sequence 4; long='split'"):
        list(fl.pack(documents, 4, long="refuse"))


def test_an_end_of_text_and_texts():
    assert [s.tokens.tolist() for s in fl.pack([[1, 2], [], [3]], 8, eos=9)] == [[1, 2, 9, 3, 9]]
    encoding = tiny_encoding()
    (sequence,) = fl.pack(["the park", "rk"], 64, tokenizer=encoding)
    assert encoding.decode(sequence.tokens[: sequence.lengths[0]].tolist()) == "the park"
    packing = fl.pack([[], []], 8)
    assert list(packing) == []
    assert packing.report.empty == 2
    with pytest.raises(fl.SampleError, match="sample 1: the document is text; give tokenizer="):
        list(fl.pack([[1], "text"], 8))
    with pytest.raises(fl.SampleError, match="sample 1: the text is no UTF-8: half of a surrogate pair at character 2"):
        list(fl.pack(["two dogs", "ab\ud800"], 4, tokenizer=tiny_encoding()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 0}, "seq_len=0"), ({"strategy": "worst"}, "strategy='worst': one of greedy, best_fit"),
        ({"long": "forget"}, "long='forget': one of split"), ({"buffer": 0}, "buffer=0"), ({"eos": -1}, "eos=-1"),
    ],
)  # fmt: skip
def test_options_of_packing_are_checked_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        fl.pack([[1]], **{"seq_len": 8} | options)
    with pytest.raises(TypeError, match="documents is one str"):
        fl.pack("text", 8)


def test_documents_that_are_none_are_told():
    for bad in ([[1, 2]], [1.5], 5, {"a": 1}):
        with pytest.raises(fl.SampleError, match="sample 0: a document is text or a list of tokens"):
            list(fl.pack([bad], 8))


def test_from_documents_to_batches(tmp_path):
    documents = [np.arange(n) % 500 for n in range(1, 200)]
    packing = fl.pack(documents, 256, "best_fit", eos=511)
    with fl.DatasetWriter(tmp_path / "x.fld", {"text": fl.PackedTextField(256, 512)}) as writer:
        writer.write_many([sequence] for sequence in packing)
    assert packing.report.efficiency > 0.95
    total = 0
    for batch in fl.DataLoader(fl.open(tmp_path / "x.fld"), 8, seed=1):
        total += int((batch["text"]["document_ids"] >= 0).sum())
    assert total == sum(map(len, documents)) + len(documents)
