"""Each field does all that fields do: it takes what people have in hand, and goes from the writer to every reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from modalities import MODALITIES
from modality import Modality, alone, rows_of, used, value_of

import fastloader as fl
from fastloader import ops
from fastloader.cli import main
from fastloader.pipeline import PipelineError
from fastloader.testing import identical
from fastloader.testing.compare import agree

NAME = "it"
COUNT = 5


@pytest.fixture(params=MODALITIES)
def modality(request: pytest.FixtureRequest) -> Modality:
    return MODALITIES[request.param]


def written(modality: Modality, folder: Path) -> Path:
    """Some samples, one of them missing."""
    path = folder / "x.fld"
    beside = {name: value for name, (_, value) in modality.companions.items()}
    fields = {NAME: modality.field} | {name: one for name, (one, _) in modality.companions.items()}
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            writer.write_sample({NAME: None if i == 3 else value_of(modality, folder), **beside})
    return path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output + done.stderr
    return done.stdout


def test_every_form_of_a_value_is_taken_and_means_the_same(modality: Modality, tmp_path: Path) -> None:
    with fl.DatasetWriter(tmp_path / "x.fld", {NAME: modality.field}) as writer:
        for make in modality.forms.values():
            writer.write_sample([make(tmp_path)])
    reader = fl.open(tmp_path / "x.fld")
    values = [used(sample[NAME]) for sample in reader]
    for form, value in zip(modality.forms, values, strict=True):
        assert identical(value, values[0]), form
    assert len({bytes(reader.read_payload(i, NAME)) for i in range(len(reader))}) == 1 or modality.lossy


def test_options_come_back_from_a_file(modality: Modality, tmp_path: Path) -> None:
    reader = fl.open(written(modality, tmp_path))
    assert reader.fields[NAME] == modality.field
    assert type(reader.fields[NAME]) is type(modality.field)
    assert reader.fields[NAME].to_binary() == modality.field.to_binary()


def test_the_loader_gives_what_the_reader_gives(modality: Modality, tmp_path: Path) -> None:
    reader = fl.open(written(modality, tmp_path))
    single = [reader[i][NAME] for i in range(COUNT)]
    for workers in (0, 2):
        found: list[Any] = []
        for batch in fl.DataLoader(reader, 2, shuffle=False, num_workers=workers, fields=[NAME]):
            found += rows_of(batch[NAME], 2 if len(found) < COUNT - 1 else 1)
        for i, (one, other) in enumerate(zip(single, found, strict=True)):
            assert agree(used(alone(one)), used(other)), i


def test_pipelines_take_it(modality: Modality, tmp_path: Path) -> None:
    reader = fl.open(written(modality, tmp_path))
    options: dict[str, Any] = {"indices": [0, 1, 2, 4], "shuffle": True, "seed": 5, "on_error": "raise"}
    pipelines = {NAME: list(modality.pipeline)} | modality.pipelines
    made = []
    for workers in (0, 2):
        loader = fl.DataLoader(reader, 4, pipelines=pipelines, num_workers=workers, **options)
        assert str(modality.pipeline[-1]) in str(loader.explain())
        made += [used(batch[NAME]) for batch in loader]
    assert len(made) == 2
    assert len(rows_of(made[0], 4)) == 4
    assert identical(made[0], made[1])


def test_pipelines_take_a_function_that_gets_the_value(modality: Modality, tmp_path: Path) -> None:
    reader = fl.open(written(modality, tmp_path))
    before = [ops.Resize((8, 8), "nearest")] if isinstance(modality.field, fl.MaskField) else []

    @ops.custom(jit=False)
    def looked_at(value: Any, random: ops.Random) -> Any:
        seen.append(used(value.copy() if isinstance(value, np.ndarray) else value))
        return None if isinstance(value, np.ndarray) else value

    for policy in ("raise", "skip", "replace"):
        seen: list[Any] = []
        loader = fl.DataLoader(
            reader, 2, shuffle=False, num_workers=0, fields=[NAME], on_error=policy,
            pipelines={NAME: [*before, looked_at]},
        )  # fmt: skip
        batches = [batch[NAME] for batch in loader]
        assert [value is None for part, n in zip(batches, (2, 2, 1), strict=True) for value in rows_of(part, n)] == [
            False, False, False, True, False
        ]  # fmt: skip
        if not before:
            assert all(map(agree, [used(reader[i][NAME]) for i in (0, 1, 2, 4)], seen))


def test_operations_on_something_else_are_refused_with_what_is_taken(modality: Modality, tmp_path: Path) -> None:
    reader = fl.open(written(modality, tmp_path))
    if isinstance(modality.field, fl.MaskField):
        return  # which takes all that images take
    with pytest.raises(PipelineError, match=r"takes |those are|begin with a ClipSampler"):
        fl.DataLoader(reader, 4, fields=[NAME], pipelines={NAME: [ops.Solarize()]})


def test_expressions_take_it(modality: Modality, tmp_path: Path) -> None:
    path = written(modality, tmp_path)
    wanted = [used(sample[NAME]) for sample in fl.open(path)]
    given = fl.open(path).map(lambda sample: used(sample[NAME]), num_parallel_calls=2)
    assert all(identical(one, other) for one, other in zip(wanted, given, strict=True))


def test_the_command_line_shows_it(modality: Modality, tmp_path: Path) -> None:
    path = written(modality, tmp_path)
    kind = type(modality.field).__name__
    assert kind in json.dumps(json.loads(run("info", path, "--json"))) or kind.removesuffix("Field") in run(
        "info", path
    )
    assert NAME in run("info", path)
    listed = run("ls", path).splitlines()
    assert len(listed) == COUNT
    assert modality.listed in listed[0]
    assert f"{NAME}=missing" in listed[3]
    assert modality.shown in run("cat", path, 0)
    facts = json.loads(run("cat", path, 0, "--json"))["fields"]
    assert facts[NAME]
    assert "missing" in run("cat", path, 3)
    assert "all good" in run("verify", path, "--decode")
    stored = CliRunner().invoke(main, ["cat", str(path), "0", NAME])
    assert stored.exit_code == 0
    assert stored.stdout_bytes


def test_samples_are_written_again_as_they_were_read(modality: Modality, tmp_path: Path) -> None:
    """What a reader gives, its field takes."""
    reader = fl.open(written(modality, tmp_path))
    again = tmp_path / "again.fld"
    with fl.DatasetWriter(again, {NAME: modality.field}) as writer:
        writer.write_many({NAME: sample[NAME]} for sample in reader)
    for one, other in zip(reader, fl.open(again), strict=True):
        assert identical(used(one[NAME]), used(other[NAME]))


def test_forms_are_of_more_than_one_kind() -> None:
    assert all(len(one.forms) > 1 for one in MODALITIES.values())
    assert all(one.pipeline for one in MODALITIES.values())
