"""Values by how paths end."""

from __future__ import annotations

import gzip
import io
import json
import pickle

import numpy as np
import pytest
import zstandard
from PIL import Image

import fastloader as fl
from fastloader.archive import Archive, ArchiveWriter, DecodedView
from fastloader.archive.decoded import CODECS, Codec
from fastloader.formats.entries import Entry

ARRAY = np.arange(12, dtype="<f4").reshape(3, 4)
PIXELS = np.add.outer(np.arange(20) * 5, np.arange(30) * 3)[:, :, None].repeat(3, 2).astype(np.uint8)
SOUND = np.sin(np.arange(800, dtype=np.float32) / 20)[:, None] * 0.5

VALUES = {
    "a.npy": ARRAY, "a.NPY": ARRAY, "b.npz": {"x": ARRAY, "y": ARRAY[0]}, "c.json": {"a": [1, None, "ä"]},
    "d.txt": "grüße",
    "e.msgpack": {"a": [1, b"x"], 3: 1.5}, "f.png": PIXELS, "g.webp": PIXELS, "h.jpg": PIXELS, "i.wav": (SOUND, 8000),
    "j.flac": (SOUND, 16000), "k.opus": (SOUND, 16000), "l.npy.gz": ARRAY, "m.json.zst": [1, 2],
    "n.txt.gz.zst": "twice",    "o.unknown": b"bytes", "p": b"bytes", "dir.npy/q": b"bytes", "r.gz": b"only packed",
}  # fmt: skip


def same(one: object, other: object) -> bool:
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, tuple):
        return one[1] == other[1] and np.abs(np.asarray(one[0]) - other[0][: len(one[0])]).max() < 0.2
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and np.abs(one.astype(float) - other.astype(float)).mean() < 6
    return type(one) is type(other) and one == other


@pytest.fixture
def view(tmp_path) -> DecodedView:
    with ArchiveWriter(tmp_path / "x.fld", workers=0) as writer:
        made = DecodedView(writer)
        for path, value in VALUES.items():
            made[path] = value
    return DecodedView(Archive(tmp_path / "x.fld"))


@pytest.mark.parametrize("path", list(VALUES))
def test_what_is_written_comes_back(view, path):
    assert same(VALUES[path], view[path])


def test_other_libraries_read_what_was_written(view):
    data = view.archive
    assert np.array_equal(np.load(io.BytesIO(gzip.decompress(data["l.npy.gz"]))), ARRAY)
    assert json.loads(zstandard.decompress(data["m.json.zst"])) == [1, 2]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data["f.png"]))), PIXELS)
    assert Image.open(io.BytesIO(data["h.jpg"])).size == (30, 20)


def test_it_is_a_mapping(view):
    assert set(view) == set(VALUES)
    assert len(view) == len(VALUES)
    assert "a.npy" in view
    assert "nothing.npy" not in view
    with pytest.raises(KeyError):
        view["nothing.npy"]
    with pytest.raises(TypeError, match="can't be changed"):
        view["new.npy"] = ARRAY


def test_pickles_are_read_only_when_that_is_allowed(tmp_path):
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        for path in ("a.pkl", "b.pickle"):
            writer.add(Entry.of(path, pickle.dumps({1, 2})))
        writer.add(Entry.of("c.pkl.gz", gzip.compress(pickle.dumps({1, 2}))))
        writer.add(Entry.of("objects.npy", _objects()))
    archive = Archive(tmp_path / "x.fld")
    for path in ("a.pkl", "b.pickle", "c.pkl.gz"):
        with pytest.raises(fl.DecodeError, match="allow_pickle=True"):
            DecodedView(archive)[path]
        assert DecodedView(archive, allow_pickle=True)[path] == {1, 2}
    with pytest.raises(fl.DecodeError, match="allow_pickle=False"):
        DecodedView(archive)["objects.npy"]
    assert DecodedView(archive, allow_pickle=True)["objects.npy"].tolist() == [{}, None]


def test_arrays_of_objects_are_written_only_when_that_is_allowed(tmp_path):
    objects = np.array([{}, None], object)
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        for path, value in (("a.npy", objects), ("b.npz", {"x": objects})):
            with pytest.raises(ValueError, match=r"pickle|Object arrays"):
                DecodedView(writer)[path] = value
            DecodedView(writer, allow_pickle=True)[path] = value
    view = DecodedView(Archive(tmp_path / "x.fld"), allow_pickle=True)
    assert view["a.npy"].tolist() == view["b.npz"]["x"].tolist() == [{}, None]
    with pytest.raises(fl.DecodeError, match="allow_pickle=False"):
        DecodedView(view.archive)["b.npz"]


def test_a_codec_of_ones_own_is_kept_where_pickles_are_allowed(view):
    own = DecodedView(view.archive, True, {"npy": Codec(len)})
    assert own["a.npy"] == len(view.archive["a.npy"])


def upper(data: bytes) -> str:
    return data.decode().upper()


@pytest.mark.parametrize("allow_pickle", [False, True])
def test_a_view_travels_to_other_processes(view, allow_pickle):
    sent = DecodedView(view.archive, allow_pickle)
    sent.register("unknown", upper)
    came = pickle.loads(pickle.dumps(sent))
    assert came["o.unknown"] == "BYTES"
    for path in VALUES.keys() - {"o.unknown"}:
        assert same(VALUES[path], came[path])
        came.encode(path, VALUES[path])


def _objects() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}, None], object), allow_pickle=True)
    return file.getvalue()


def test_endings_of_ones_own(view, tmp_path):
    view.register("unknown", lambda data: data.decode().upper(), lambda text: text.lower().encode())
    view.register(".tar.foo", len)
    assert view["o.unknown"] == "BYTES"
    assert view.encode("x/y.unknown", "ABC") == b"abc"
    assert DecodedView(view.archive)["o.unknown"] == b"bytes"  # another view knows nothing of it
    with pytest.raises(ValueError, match="register an encoder"):
        view.encode("x.tar.foo", 3)
    with pytest.raises(TypeError, match="takes bytes"):
        view.encode("x.other", 3)


def test_what_does_not_decode_names_the_path(tmp_path):
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        for path in ("a.npy", "b.json", "c.jpg", "d.gz", "e.zst", "f.wav", "g.msgpack", "h.npz"):
            writer.add(Entry.of(path, b"nonsense \xff"))
    view = DecodedView(Archive(tmp_path / "x.fld"))
    for path in view:
        with pytest.raises(fl.DecodeError):
            view[path]


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fastloader.archive.decoded.MOST_UNPACKED", 1000)
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        writer.add(Entry.of("a.gz", gzip.compress(bytes(1001))))
        writer.add(Entry.of("b.zst", zstandard.compress(bytes(1001))))
    view = DecodedView(Archive(tmp_path / "x.fld"))
    for path in view:
        with pytest.raises(fl.DecodeError, match="unpacked"):
            view[path]


def test_views_of_the_same_codecs_do_not_share_what_is_trusted(tmp_path):
    codecs = dict(CODECS)
    with ArchiveWriter(tmp_path / "x.fld") as writer:
        trusting = DecodedView(writer, allow_pickle=True, codecs=codecs)
        trusting.register("mine", bytes, bytes)
        trusting["a.pkl"] = {"a": 1}
    other = DecodedView(Archive(tmp_path / "x.fld"), codecs=codecs)
    with pytest.raises(fl.DecodeError, match="is a pickle"):
        other["a.pkl"]
    assert "mine" not in other.codecs
    assert codecs == CODECS
