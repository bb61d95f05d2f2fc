"""What is wrong with a value is told when it is written, and when it is read, with its sample and its field."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from modalities import MODALITIES
from modality import rows_of, used, value_of, write_broken
from tests.tokenizing import byte_pair

import fastloader as fl
from fastloader.cli import main
from fastloader.errors import FastLoaderError, FormatError, OperationError, SampleError
from fastloader.testing import identical

NAME = "it"
BAD = [(name, what) for name, one in MODALITIES.items() for what in one.bad]
DAMAGED = [(name, what) for name, one in MODALITIES.items() for what in one.damage]


@pytest.mark.parametrize(("name", "what"), BAD, ids=lambda text: text.replace(" ", "-"))
def test_a_bad_value_is_refused_where_it_is_written(name: str, what: str, tmp_path: Path) -> None:
    modality = MODALITIES[name]
    make, said = modality.bad[what]
    path = tmp_path / "x.fld"
    samples = [{NAME: value_of(modality, tmp_path)}, {NAME: make(tmp_path)}]
    with pytest.raises(SampleError) as caught, fl.DatasetWriter(path, {NAME: modality.field}, num_workers=0) as writer:
        writer.write_many(samples)
    assert (caught.value.sample, caught.value.field) == (1, NAME)
    assert str(caught.value).startswith(f"sample 1, field {NAME!r}: ")
    assert re.search(said, caught.value.message), str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize(("name", "what"), DAMAGED, ids=lambda text: text.replace(" ", "-"))
def test_a_stored_value_that_is_broken_is_told_where_it_is_read(name: str, what: str, tmp_path: Path) -> None:
    modality = MODALITIES[name]
    path = tmp_path / "x.fld"
    reader = write_broken(path, NAME, modality, what)

    def told(error: FastLoaderError) -> None:
        assert (error.path, error.sample, error.field) == (str(path), 1, NAME), str(error)
        assert isinstance(error, FormatError | OperationError), str(error)
        assert error.message
        assert error.hint

    with pytest.raises(FastLoaderError) as caught:
        used(reader[1][NAME])
    told(caught.value)
    with pytest.raises(FastLoaderError) as caught:
        used(reader.read_batch([2, 1, 0])[NAME])
    told(caught.value)
    loaders = [fl.DataLoader(reader, 3, shuffle=False, fields=[NAME])]
    if modality.pipeline and what not in modality.unseen:
        pipelines = {NAME: list(modality.pipeline)} | modality.pipelines
        loaders.append(fl.DataLoader(reader, 3, shuffle=False, pipelines=pipelines))
    for loader in loaders:
        with pytest.raises(FastLoaderError) as caught:
            used([batch[NAME] for batch in loader])
        told(caught.value)
    assert used(reader[2][NAME]) is not None  # nothing else is the worse for it
    report = fl.verify(path, decode=True, show_progress=False)
    assert [(one.sample, one.field) for one in report.problems] == [(1, NAME)], report.problems
    shown = CliRunner().invoke(main, ["verify", "--decode", str(path)])
    assert shown.exit_code != 0
    assert f"sample 1, field '{NAME}'" in shown.output + shown.stderr


@pytest.mark.parametrize("name", [name for name, one in MODALITIES.items() if one.pipeline])
def test_a_broken_value_can_be_left_out_of_a_pipeline(name: str, tmp_path: Path) -> None:
    modality = MODALITIES[name]
    reader = write_broken(tmp_path / "x.fld", NAME, modality, next(iter(modality.damage)))
    pipelines = {NAME: list(modality.pipeline)} | modality.pipelines
    loader = fl.DataLoader(reader, 3, shuffle=False, on_error="skip", pipelines=pipelines)
    (batch,) = loader
    rows = rows_of(used(batch[NAME]), 3)
    assert len(rows) == 3
    assert rows[1] is not None
    assert identical(rows[1], rows[2])


@pytest.mark.parametrize("what", MODALITIES["tokenized text"].bad)
def test_a_bad_document_of_a_stream_is_refused_where_it_is_written(what: str, tmp_path: Path) -> None:
    make, said = MODALITIES["tokenized text"].bad[what]
    with (
        pytest.raises(SampleError) as caught,
        fl.TokenStreamWriter(tmp_path / "x.fld", tokenizer=byte_pair()) as writer,
    ):
        writer.write_many(["two dogs", make(tmp_path)])
    assert str(caught.value).startswith("sample 1, field 'tokens': ")
    assert re.search(said, caught.value.message), str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["empty", "truncated", "a flipped bit", "half a token", "another type"])
def test_a_stream_that_is_broken_is_told_where_it_is_read(what: str, tmp_path: Path) -> None:
    path, raw = tmp_path / "x.fld", tmp_path / "x.bin"
    with fl.TokenStreamWriter(path, vocab_size=60_000) as writer:
        writer.write(range(50_000))
    data = bytearray(path.read_bytes())
    if what in ("half a token", "another type"):
        raw.write_bytes(bytes(99 if what == "half a token" else 100))
        with pytest.raises(ValueError, match=r"x\.bin: .*(whole tokens of uint16|dtype='uint16')"):
            fl.TokenStream(raw, 8, dtype="uint16" if what == "half a token" else None)
        return
    if what == "a flipped bit":
        data[data.index(np.arange(20_000, 20_032, dtype="<u2").tobytes())] ^= 1
        path.write_bytes(data)
        for read in (lambda: fl.TokenStream(path, 8)[2500], lambda: list(fl.DataLoader(fl.TokenStream(path, 8), 16))):
            with pytest.raises(
                fl.ChecksumError, match=r"x\.fld: sample \d+, field 'tokens': .*crc32c stored"
            ) as caught:
                read()
            assert caught.value.sample is not None
    else:
        path.write_bytes(b"" if what == "empty" else data[: len(data) // 2])
        with pytest.raises(ValueError, match=r"x\.fld: (raw tokens do not say|truncated)"):
            fl.TokenStream(path, 8)
