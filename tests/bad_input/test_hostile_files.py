"""Files made to mislead, one idea each: a claim is held against what is there before anything is done for it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader import kernels
from fastloader.formats.fld import MANIFEST
from fastloader.formats.fld.layout import DESCRIPTOR, NO_FIELD, Kind

from .anatomy import reseal
from .datasets import Base
from .internals import png_chunks, png_join
from .manifests import seal_manifest
from .operations import Edit


def publish(edit: Edit, path: Path) -> Path:
    reseal(edit.data)
    path.write_bytes(edit.data)
    return path


def test_samples_that_no_table_holds_are_refused(bases: dict[str, Base], tmp_path: Path) -> None:
    """Without a field there is nothing that bounds the number of samples."""
    edit = Edit(bases["scalars"], "")
    for name, value in (("num_samples", 2**62), ("num_fields", 0)):
        edit.anatomy.header[name].put(edit.data, value)
    for (_, field), entry in edit.anatomy.entries.items():
        if field != NO_FIELD:
            entry["kind"].put(edit.data, 600)
    with pytest.raises(fl.FormatError, match="claims 4611686018427387904 samples"):
        fl.open(publish(edit, tmp_path / "many.fld"))


def test_arguments_laid_over_each_other_are_refused(bases: dict[str, Base], tmp_path: Path) -> None:
    """Thousands of fields that each claim the whole section would take its square in memory."""
    edit = Edit(bases["scalars"], "")
    entry = edit.anatomy.entries[Kind.DESCRIPTORS, NO_FIELD]
    offset, size = entry["offset"].get(edit.before), entry["size"].get(edit.before)
    for i in range(2):
        struct.pack_into("<QQ", edit.data, offset + DESCRIPTOR.size * i + 80, offset, size)
    with pytest.raises(fl.FormatError, match="arguments of field 1"):
        fl.open(publish(edit, tmp_path / "over.fld"))


def test_a_table_of_a_field_that_is_not_there_is_refused(bases: dict[str, Base], tmp_path: Path) -> None:
    edit = Edit(bases["scalars"], "")
    edit.anatomy.number(Kind.VALIDITY, 1, "field").put(edit.data, 77)
    with pytest.raises(fl.FormatError, match="table of field 77"):
        fl.open(publish(edit, tmp_path / "field.fld"))


@pytest.mark.parametrize("shape", [[2**20, 2**20], [2**40, 2**40], [2**62, 4]])
def test_a_batch_is_no_larger_than_its_payloads(bases: dict[str, Base], tmp_path: Path, shape: list[int]) -> None:
    """The field's options claim a huge shape; the payloads are small."""
    edit = Edit(bases["arrays"], "")
    edit.replace_arguments(0, json.dumps({"dtype": "<f4", "shape": shape}).encode())
    with fl.open(publish(edit, tmp_path / "huge.fld")) as reader:
        with pytest.raises(fl.FormatError, match="sample 0, field 'fixed'"):
            reader.read_batch([0, 1, 2], ["fixed"])
        with pytest.raises(fl.FormatError, match="sample 2, field 'fixed'"):
            reader.read_batch([1, 2], ["fixed"])  # sample 1 is missing


def test_a_batch_of_missing_values_takes_no_memory_for_what_they_could_be(tmp_path: Path) -> None:
    path = tmp_path / "missing.fld"
    with fl.DatasetWriter(path, {"a": fl.NDArrayField("float32", (2**20, 2**10)), "n": fl.IntField()}) as writer:
        writer.write_many({"a": None, "n": i} for i in range(4))
    with fl.open(path) as reader:
        column = reader.read_batch([0, 1, 2, 3])["a"]
    assert column.shape == (4, 2**20, 2**10)
    assert column.mask[3, 5, 7]
    assert column.data.strides[1:] == (0, 0)


def test_json_that_does_not_parse_names_its_sample_in_a_batch_too(bases: dict[str, Base], tmp_path: Path) -> None:
    edit = Edit(bases["blobs"], "")
    payload = next(p for p in edit.anatomy.payloads if p.field == 1 and p.row == 2)
    edit.replace_payload(payload, b"[" * 100_000, 100_000, 0)
    path = publish(edit, tmp_path / "deep.fld")
    with fl.open(path) as reader, pytest.raises(fl.DecodeError) as caught:
        reader.read_batch([0, 1, 2], ["tag"])
    assert (caught.value.path, caught.value.sample, caught.value.field) == (str(path), 2, "tag")
    assert "fastloader verify" in str(caught.value)


def test_a_damaged_key_index_is_a_format_error_that_names_the_shard(bases: dict[str, Base], tmp_path: Path) -> None:
    base, name = bases["shards"], "shard-00001.fld"
    files = dict(base.files)
    data = bytearray(files[name])
    data[base.anatomies[name].number(Kind.KEY_SLOTS, NO_FIELD, "offset").get(data)] ^= 1
    base.write(tmp_path / "keys.fld", {**files, name: bytes(data)})
    with fl.open(tmp_path / "keys.fld") as reader, pytest.raises(fl.ChecksumError, match=f"{name}: the key index"):
        reader.index_of("nowhere")


def test_a_damaged_validity_bit_names_its_sample_among_shards(bases: dict[str, Base], tmp_path: Path) -> None:
    base = bases["shards"]
    name = next(name for name, anatomy in base.anatomies.items() if (Kind.VALIDITY, 1) in anatomy.entries)
    data = bytearray(base.files[name])
    data[base.anatomies[name].number(Kind.VALIDITY, 1, "offset").get(data)] ^= 1
    base.write(tmp_path / "bits.fld", {**base.files, name: bytes(data)})
    with fl.open(tmp_path / "bits.fld") as reader:
        sample = next(i for i, values in enumerate(base.samples) if values["n"] is None)
        with pytest.raises(fl.ChecksumError, match=f"{name}: sample {sample}, field 'n'"):
            reader.read_batch([0, 1, sample], ["n"])


def manifest(base: Base, path: Path, **changes: object) -> Path:
    content = json.loads(base.files[MANIFEST]) | changes
    base.write(path, {**base.files, MANIFEST: seal_manifest(content)})
    return path


@pytest.mark.parametrize("counts", [[2**62, 2**62], [2**63 - 1, 1], [7]])
def test_a_manifest_that_miscounts_is_refused(bases: dict[str, Base], tmp_path: Path, counts: list[int]) -> None:
    """Sums beyond 63 bits would turn negative."""
    shards = [[f"shard-0000{i}.fld", count, 1, 1] for i, count in enumerate(counts)]
    with pytest.raises(fl.FormatError, match=r"manifest\.json: is damaged"):
        fl.open(manifest(bases["shards"], tmp_path / "sum.fld", shards=shards, num_samples=sum(counts) % 2**63 + 1))


@pytest.mark.parametrize("path", ["a\0b", "\ud800", 7, None, ["x"]])
def test_a_manifest_with_a_path_that_no_file_can_have_is_refused(
    bases: dict[str, Base], tmp_path: Path, path: object
) -> None:
    with pytest.raises(fl.FormatError, match=r"manifest\.json: is damaged"):
        fl.open(manifest(bases["shards"], tmp_path / "path.fld", shards=[[path, 1, 1, 1]], num_samples=1))


def test_a_shard_that_is_a_pipe_does_not_make_the_reader_wait(bases: dict[str, Base], tmp_path: Path) -> None:
    path = manifest(bases["shards"], tmp_path / "pipe.fld", shards=[["pipe", 1, 1, 1]], num_samples=1)
    os.mkfifo(path / "pipe")
    with fl.open(path) as reader, pytest.raises(fl.StoreError, match="pipe: is no regular file"):
        reader.read_sample(0)


def test_the_text_in_a_picture_is_not_unpacked(bases: dict[str, Base], tmp_path: Path) -> None:
    """Each of these chunks has a few KB and holds 4 MB; 200 of them would take 800 MB."""
    payload = next(p for p in bases["pictures"].anatomies[""].payloads if p.type_id == fl.TypeId.IMAGE_PNG)
    picture = Edit(bases["pictures"], "").raw_payload(payload)
    chunks = png_chunks(picture)
    text = (b"zTXt", b"k\0\0" + zlib.compress(b"x" * (4 << 20), 9))
    path = tmp_path / "text.png"
    path.write_bytes(png_join([chunks[0], *[text] * 200, *chunks[1:]]))
    program = f"""
from pathlib import Path
import numpy as np
from fastloader import kernels
def peak():  # getrusage may tell that of the process which started this one
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
data = Path({str(path)!r}).read_bytes()
before = peak()
pixels = kernels.decode_image(kernels.PNG, data, kernels.image_info(kernels.PNG, data))
print(peak() - before, pixels.shape)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    grown, shape = done.stdout.split(" ", 1)
    assert int(grown) < 100_000, "KB"
    assert shape.strip() == str(kernels.image_info(kernels.PNG, picture)[:3])


def test_pixels_of_a_shape_whose_size_overflows_are_refused() -> None:
    """2**31 x 2**31 x 4 bytes are none at all, modulo 2**64."""
    for encode in (
        lambda: kernels.png_encode(b"", 2**31, 2**31, 4, 8, 1),
        lambda: kernels.jpeg_encode(b"", 2**31, 2**31, 4, 90, 420),
    ):
        with pytest.raises(kernels.Failure, match="do not have the stated shape"):
            encode()


def test_slots_and_placement_refuse_arrays_that_do_not_fit_each_other() -> None:
    one, two = np.zeros(1, np.uint64), np.zeros(2, np.uint64)
    with pytest.raises(kernels.Failure, match="hashes and samples differ"):
        kernels.lay_slots(two, one, 8, 0, 0, np.zeros(9, np.uint64))
    empty = np.zeros(0, np.uint64)
    with pytest.raises(kernels.Failure, match="sizes, offsets and starts differ"):
        kernels.place(empty, 2**63, 4096, 2**63, (0, 0, 0), empty, two)


def test_verify_looks_into_an_empty_file_too(bases: dict[str, Base], tmp_path: Path) -> None:
    edit = Edit(bases["empty"], "")
    edit.replace_arguments(0, b'{"unknown": 1}')
    report = fl.verify(publish(edit, tmp_path / "options.fld"), decode=True, show_progress=False)
    assert [problem.field for problem in report.problems] == ["n"]
    edit = Edit(bases["empty"], "")
    edit.anatomy.number(Kind.KEY_BYTES, NO_FIELD, "kind").put(edit.data, 600)
    report = fl.verify(publish(edit, tmp_path / "keys.fld"), show_progress=False)
    assert ["incomplete key index" in str(problem) for problem in report.problems] == [True]
