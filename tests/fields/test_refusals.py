"""What is wrong with a value is told when it is written, and when it is read, with its sample and its field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from modalities import MODALITIES
from modality import used, value_of, write_broken

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
    assert len(batch[NAME]) == 3
    assert identical(used(batch[NAME])[1], used(batch[NAME])[2])
