import numpy as np
import pytest

import fastloader as fl
from fastloader import ops
from fastloader.errors import OperationError
from fastloader.pipeline.compiler import PipelineError
from fastloader.testing.fields import write

LISTS = [[f"{i}.{j}" for j in range(1 + i % 5)] for i in range(200)]


@pytest.fixture
def reader(tmp_path):
    return write(tmp_path / "x.fld", fl.ListField(fl.TextField()), LISTS)


def chosen(reader, epochs=1, **options):
    loader = fl.DataLoader(reader, 16, shuffle=False, pipelines={"it": [ops.Choose()]}, **options)
    return [[text for batch in loader for text in batch["it"]] for _ in range(epochs)]


def test_one_caption_of_each_sample_another_by_epoch(reader):
    first, second = chosen(reader, 2, seed=3)
    assert all(text in some for text, some in zip(first, LISTS, strict=True))
    assert first != second
    places = [
        int(text.split(".")[1]) for text, some in zip(first + second, LISTS + LISTS, strict=True) if len(some) == 5
    ]
    assert (np.bincount(places, minlength=5) > 5).all()


def test_the_draw_depends_on_seed_epoch_and_sample_alone(reader):
    first = chosen(reader, 2, seed=3)
    assert chosen(reader, 2, seed=3, num_workers=0) == first
    assert chosen(reader, 1, seed=4) != first[:1]
    shuffled = fl.DataLoader(reader, 7, seed=3, pipelines={"it": [ops.Choose()]})
    assert sorted(text for batch in shuffled for text in batch["it"]) == sorted(first[0])
    parts = [fl.DataLoader(reader, 9, seed=3, rank=r, world_size=3, pipelines={"it": [ops.Choose()]}) for r in range(3)]
    assert sorted(text for part in parts for batch in part for text in batch["it"]) == sorted(first[0])


@pytest.mark.parametrize(("index", "place"), [(0, 0), (-1, -1)])
def test_a_place_can_be_named(reader, index, place):
    loader = fl.DataLoader(reader, 16, shuffle=False, pipelines={"it": [ops.Choose(index)]})
    assert [text for batch in loader for text in batch["it"]] == [some[place] for some in LISTS]


def test_of_numbers_it_is_an_array_and_of_arrays_too(tmp_path):
    numbers = write(tmp_path / "a.fld", fl.ListField(fl.IntField()), [[1, 2], [3], [4, 5, 6]])
    (batch,) = fl.DataLoader(numbers, 3, shuffle=False, pipelines={"it": [ops.Choose(0)]})
    assert batch["it"].tolist() == [1, 3, 4]
    points = write(tmp_path / "b.fld", fl.ListField(fl.NDArrayField("int8", (2,))), [[[1, 2], [3, 4]], [[5, 6]]])
    (batch,) = fl.DataLoader(points, 2, shuffle=False, pipelines={"it": [ops.Choose(-1)]})
    assert batch["it"].tolist() == [[3, 4], [5, 6]]


def test_empty_lists_and_missing_ones(tmp_path):
    reader = write(tmp_path / "x.fld", fl.ListField(fl.TextField()), [["a"], [], None, ["b"]])
    pipelines = {"it": [ops.Choose()]}
    with pytest.raises(OperationError, match=r"sample 1, field 'it': the operation Choose\(.*\) finds 0 elements"):
        list(fl.DataLoader(reader, 4, shuffle=False, pipelines=pipelines))
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, pipelines=pipelines, on_error="replace")
    assert batch["it"] == ["a", None, None, "b"]
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, pipelines=pipelines, on_error="skip")
    assert batch["it"] == ["a", None, None, "b"]
    (batch,) = fl.DataLoader(reader, 2, shuffle=False, indices=[0, 3], pipelines=pipelines)
    assert batch["it"] == ["a", "b"]
    with pytest.raises(OperationError, match="finds 1 elements"):
        list(fl.DataLoader(reader, 1, indices=[0], pipelines={"it": [ops.Choose(1)]}))


def test_what_does_not_fit_is_told_at_once(tmp_path, reader):
    plain = write(tmp_path / "y.fld", fl.TextField(), ["a"])
    with pytest.raises(PipelineError, match=r"Choose.*is no operation on texts: TextField takes functions of yours"):
        fl.DataLoader(plain, pipelines={"it": [ops.Choose()]})
    for wrong in ([ops.Choose(), ops.Choose()], [ops.Choose(), ops.Resize((2, 2))], [ops.Resize((2, 2)), ops.Choose()]):
        with pytest.raises(
            PipelineError, match=r"is no operation on lists of .*: ListField takes Choose first, functions"
        ):
            fl.DataLoader(reader, pipelines={"it": wrong})
    for index in (1.5, "a", True):
        with pytest.raises(TypeError, match="index="):
            ops.Choose(index)
    numbers = write(tmp_path / "z.fld", fl.ListField(fl.IntField()), [[1]])
    with pytest.raises(ValueError, match="pad for 'it': what its pipeline makes has no length"):
        fl.DataLoader(numbers, pipelines={"it": [ops.Choose()]}, pad={"it": "ragged"})
    assert "Choose(index=None): one of TextField" in fl.DataLoader(reader, pipelines={"it": [ops.Choose()]}).explain()
