"""Several views of one image: each as a pipeline of its own would make it, from bytes that are read once."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import fastloader as fl
from fastloader import ops
from fastloader.pipeline import PipelineError
from fastloader.pipeline.compiler import compile_pipeline
from fastloader.pipeline.draws import first_number_of_view

COUNT, SEED = 20, 6
CROP = [ops.RandomResizedCrop(24), ops.HorizontalFlip(), ops.ColorJitter(0.4, 0.4, 0.4, 0.1), ops.RandomErasing()]
SMALL = [ops.RandomResizedCrop(10, scale=(0.05, 0.3)), ops.GaussianBlur(3), ops.Normalize(100, 50), ops.Layout("CHW")]


def photo(i, size=None):
    rng = np.random.default_rng(i)
    height, width = size or (int(rng.integers(40, 99)), int(rng.integers(40, 99)))
    small = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture(scope="module", params=["jpeg", "png", "shards"])
def dataset(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("views") / "x.fld"
    field = fl.PNGImageField() if request.param == "png" else fl.JPEGImageField()
    options = {"shard_size": 20_000} if request.param == "shards" else {}
    with fl.DatasetWriter(path, {"image": field, "i": fl.IntField()}, **options) as writer:
        writer.write_many({"image": photo(i), "i": i} for i in range(COUNT))
    return path


def load(path, pipeline, **options):
    options = {"shuffle": False, "seed": SEED, **options}
    batches = list(fl.DataLoader(fl.open(path), 8, pipelines={"image": pipeline}, **options))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def alone(path, pipeline, number):
    """The images of a pipeline whose operations draw as those of a view do."""
    reader = fl.open(path)
    compiled = compile_pipeline("image", reader.fields["image"], pipeline, SEED, first_number_of_view(number))
    dataset = reader.dataset
    made = []
    for i in range(COUNT):
        shard, row = dataset.where(i)
        column = reader.field_names.index("image")
        payload = bytes(dataset.file(shard).payload(column, row))
        out = np.empty([side or 0 for side in compiled.result.shape], compiled.result.dtype)
        shape = np.array([*photo(i).shape, 8], np.uint32)
        compiled.program.run(payload, shape, 0, i, out)
        made.append(out)
    return np.stack(made)


def test_views_of_one_shape_come_side_by_side(dataset):
    found = load(dataset, ops.Views(3, CROP))
    assert found["image"].shape == (COUNT, 3, 24, 24, 3)
    assert (found["image"][:, 0] == load(dataset, CROP)["image"]).all()
    for number in range(3):
        assert (found["image"][:, number] == alone(dataset, CROP, number)).all()
    assert (found["image"][:, 0] != found["image"][:, 1]).any(axis=(1, 2, 3)).all()


def test_views_may_have_lists_of_their_own(dataset):
    flipped = [ops.Resize((24, 24)), ops.HorizontalFlip(1)]
    found = load(dataset, ops.Views(CROP, flipped))["image"]
    assert (found[:, 0] == load(dataset, CROP)["image"]).all()
    assert (found[:, 1] == load(dataset, flipped)["image"]).all()


def test_views_of_different_shapes_come_as_fields_of_their_own(dataset):
    found = load(dataset, ops.Views(CROP, SMALL))
    assert list(found) == ["image_0", "image_1", "i"]
    assert found["image_1"].shape == (COUNT, 3, 10, 10)
    assert found["image_1"].dtype == np.float32
    assert (found["image_0"] == load(dataset, CROP)["image"]).all()
    assert (found["image_1"] == alone(dataset, SMALL, 1)).all()


def test_named_groups_of_views(dataset):
    """Multi-crop: some large views, many small ones, each group one array."""
    found = load(dataset, ops.Views(large=ops.Views(2, CROP), small=ops.Views(6, SMALL), middle=[ops.CenterCrop(33)]))
    assert list(found) == ["image_large", "image_small", "image_middle", "i"]
    assert found["image_large"].shape == (COUNT, 2, 24, 24, 3)
    assert found["image_small"].shape == (COUNT, 6, 3, 10, 10)
    assert found["image_middle"].shape == (COUNT, 33, 33, 3)
    assert (found["image_large"][:, 1] == alone(dataset, CROP, 1)).all()
    assert (found["image_small"][:, 5] == alone(dataset, SMALL, 7)).all()
    assert (found["image_middle"] == load(dataset, [ops.CenterCrop(33)])["image"]).all()


def test_arrays_are_laid_out_for_the_device(dataset):
    pipeline = ops.Views(odd=ops.Views(3, [ops.CenterCrop(9)]), floats=SMALL, again=ops.Views(2, SMALL))
    for batch in fl.DataLoader(fl.open(dataset), 7, pipelines={"image": pipeline}):
        for value in batch.values():
            assert value.flags.c_contiguous
            assert value.flags.aligned
            assert value.ctypes.data % value.itemsize == 0


def test_stored_bytes_are_read_once(dataset):
    def read(pipeline, **options):
        loader = fl.DataLoader(fl.open(dataset), 8, pipelines={"image": pipeline}, **options)
        assert sum(1 for _ in loader) == 3
        return loader.stats()

    one, many = (read(pipeline, io="mmap") for pipeline in (CROP, ops.Views(8, CROP)))
    assert many["fields"]["image"]["stored_bytes"] == one["fields"]["image"]["stored_bytes"] > 0
    one, many = (read(pipeline, io="pread") for pipeline in (CROP, ops.Views(8, CROP)))
    assert many["io"]["payload_bytes"] == one["io"]["payload_bytes"] > 0


def test_views_depend_on_seed_epoch_and_sample_alone(dataset):
    pipeline = ops.Views(large=ops.Views(2, CROP), small=SMALL)

    def run(**options):
        found = load(dataset, pipeline, **options)
        back = np.argsort(found["i"])
        return found["image_large"][back], found["image_small"][back]

    wanted = run(num_workers=1)
    for options in ({"num_workers": 7}, {"shuffle": True}, {"io": "pread"}):
        assert all((a == b).all() for a, b in zip(run(**options), wanted, strict=True))
    assert (run(seed=9)[0] != wanted[0]).any()


def test_a_restart_in_the_middle_gives_the_same_rest(dataset):
    pipelines = {"image": ops.Views(2, CROP)}
    loader = fl.DataLoader(fl.open(dataset), 4, pipelines=pipelines, seed=3)
    passing = iter(loader)
    next(passing)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [batch["image"].copy() for batch in passing]
    resumed = fl.DataLoader(fl.open(dataset), 4, pipelines=pipelines, seed=3)
    resumed.load_state_dict(state)
    assert all((a["image"] == b).all() for a, b in zip(resumed, rest, strict=True))


def test_views_survive_a_trip_to_another_process(dataset):
    loader = fl.DataLoader(fl.open(dataset), 8, shuffle=False, pipelines={"image": ops.Views(a=CROP, b=SMALL)})
    for one, other in zip(loader, pickle.loads(pickle.dumps(loader)), strict=True):
        assert all((one[name] == other[name]).all() for name in one)


# With other things


def test_views_return_what_they_draw(dataset):
    crop = [ops.RandomResizedCrop(24).returning("box"), ops.Geometry("map")]
    found = load(dataset, ops.Views(2, crop))
    assert found["box"].shape == (COUNT, 2, 4)
    assert found["map"].shape == (COUNT, 2, 2, 3)
    assert (found["box"][:, 0] == load(dataset, crop)["box"]).all()
    assert (found["box"][:, 0] != found["box"][:, 1]).any()
    named = load(dataset, ops.Views(large=ops.Views(2, crop), small=crop))
    assert list(named) == ["image_large", "box_large", "map_large", "image_small", "box_small", "map_small", "i"]
    assert (named["box_large"] == found["box"]).all()
    assert named["box_small"].shape == (COUNT, 4)
    apart = load(dataset, ops.Views(crop, [ops.RandomResizedCrop(9).returning("box")]))
    assert (apart["box_0"] == found["box"][:, 0]).all()
    assert (apart["box_1"] == found["box"][:, 1]).all()


def test_views_can_share_their_draws(dataset):
    crop = ops.RandomResizedCrop(24).shared("crop")
    found = load(dataset, ops.Views([crop], [crop, ops.Invert()]))["image"]
    assert (found[:, 0] == 255 - found[:, 1]).all()


@ops.custom
def mark(image, random):
    image[0, 0, 0] = random.below(200)


@pytest.mark.parametrize("jit", [False, True])
def test_functions_of_the_users_in_some_views(jit, dataset):
    one = replace(mark, jit=jit)
    crop = ops.RandomCrop(20).returning("box")
    behind = [crop, one, ops.HorizontalFlip().returning("flipped"), ops.Normalize(0, 1)]
    found = load(dataset, ops.Views(plain=[crop], own=ops.Views(2, behind)))
    assert found["image_own"].shape == (COUNT, 2, 20, 20, 3)
    assert found["image_own"].dtype == np.float32
    wanted = load(dataset, ops.Views([ops.RandomCrop(20)], *[[ops.RandomCrop(20), mark, ops.HorizontalFlip()]] * 2))
    assert (found["image_plain"] == wanted["image"][:, 0]).all()
    assert (found["image_own"] == wanted["image"][:, 1:]).all()
    assert found["flipped_own"].shape == (COUNT, 2)


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_view_that_can_not_be_made_follows_on_error(policy, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.JPEGImageField(), "i": fl.IntField()}) as writer:
        writer.write_many({"image": photo(i, (20, 20) if i == 1 else (40, 40)), "i": i} for i in range(4))
    pipeline = ops.Views(small=[ops.CenterCrop(10)], large=ops.Views(2, [ops.RandomCrop(30).returning("box")]))
    loader = fl.DataLoader(
        fl.open(tmp_path / "x.fld"), 4, shuffle=False, pipelines={"image": pipeline}, on_error=policy
    )
    if policy == "raise":
        with pytest.raises(fl.FormatError, match="smaller than the crop") as caught:
            list(loader)
        assert (caught.value.sample, caught.value.field) == (1, "image")
        return
    (batch,) = loader
    assert loader.stats()["bad_values"] == 1
    if policy == "skip":
        assert batch["i"].tolist() == [0, 2, 2, 3]
        for name in ("image_small", "image_large", "box_large"):
            assert (batch[name][1] == batch[name][2]).all()
    else:
        for name in ("image_small", "image_large", "box_large"):
            assert batch[name].mask.reshape(4, -1).all(axis=1).tolist() == [False, True, False, False]
            assert not batch[name].data[1].any()


def test_transforms_get_a_view(dataset):
    pipeline = ops.Views(large=CROP, small=SMALL)
    found = load(dataset, pipeline, transforms={"image_small": lambda small: -small})
    assert (found["image_small"] == -load(dataset, pipeline)["image_small"]).all()
    with pytest.raises(ValueError, match="transforms for unknown fields image; there are image_large, image_small, i"):
        load(dataset, pipeline, transforms={"image": abs})


def test_explain_tells_each_group(dataset):
    pipeline = ops.Views(large=ops.Views(2, CROP), small=SMALL)
    told = fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline}).explain()
    assert "'image': 3 views\n    'image_large': 2 views, side by side\n        RandomResizedCrop" in told
    assert "'image_small': a view\n" in told
    assert told.count("RandomErasing(") == 1
    assert "(3, 10, 10) float32 CHW" in told


# What goes wrong


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        (ops.Views(a=ops.Views(CROP, SMALL)), "the views 'a' are \\(24, 24, 3\\) uint8 HWC, \\(3, 10, 10\\) float32"),
        (
            ops.Views([ops.CenterCrop(9)], [ops.Resize((4, 4)), ops.CenterCrop(9)]),
            "view 1: .*\n.*Resize.*\n--> .*takes 9 pixels of height",
        ),
        (
            ops.Views([ops.RandomCrop(9).returning("box")], [ops.RandomCrop(9)]),
            "some views side by side return what others do not",
        ),
        (ops.Views([ops.CenterCrop(9)], ["flip"]), "is no operation but a str"),
    ],
)
def test_views_that_do_not_fit(pipeline, why, dataset):
    with pytest.raises(PipelineError, match=why):
        fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline})


def test_a_view_can_not_have_the_name_of_another_field(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"a": fl.RawImageField(9, 9), "a_0": fl.IntField()}) as writer:
        writer.write_sample({"a": photo(1, (9, 9)), "a_0": 1})
    with pytest.raises(PipelineError, match="two fields of the batch would be 'a_0'"):
        fl.DataLoader(fl.open(tmp_path / "x.fld"), pipelines={"a": ops.Views([ops.CenterCrop(3)], [ops.CenterCrop(4)])})


def test_batch_operations_take_no_views(dataset):
    with pytest.raises(PipelineError, match=r"Mixup.* mixes images, and 'image' has several views of each"):
        fl.DataLoader(
            fl.open(dataset), pipelines={"image": ops.Views(2, CROP), "i": [ops.OneHot(COUNT)]},
            batch_ops=[ops.Mixup(label="i")],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "kind", "why"),
    [
        (lambda: ops.Views(), ValueError, "lists of operations, a number and a list, or names"),
        (lambda: ops.Views(CROP, a=CROP), ValueError, "lists of operations, a number and a list, or names"),
        (lambda: ops.Views(0, CROP), ValueError, "views=0: from 1 to 1000"),
        (lambda: ops.Views(2), ValueError, "a number of views, and the list of operations"),
        (lambda: ops.Views(ops.Invert()), TypeError, "is no list of operations"),
        (lambda: ops.Views(a=ops.Views(b=CROP)), ValueError, "views with names can't be views of others"),
        (lambda: ops.Views(a=ops.Views(600, CROP), b=ops.Views(401, CROP)), ValueError, "from 1 to 1000 views"),
    ],
)
def test_wrong_options(make, kind, why):
    with pytest.raises(kind, match=why):
        make()
