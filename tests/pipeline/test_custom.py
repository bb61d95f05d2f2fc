"""Custom operations: compiled or not, the same images, the same draws, and errors with a name and a line."""

import json
import math
import os
import pickle
import random as random_module
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels, ops
from fastloader.pipeline import PipelineError, compiler, jit_random

COUNT, SIDE = 12, 20
PLACES = st.tuples(*[st.integers(0, 2**64 - 1)] * 3, st.integers(0, 2**32 - 1))


@ops.custom
def sprinkle(image, random):
    for _ in range(30):
        image[random.below(image.shape[0]), random.below(image.shape[1])] = random.below(256)


@ops.custom(output=lambda height, width, channels: (height // 2, width, channels), dtype="float32")
def fold(image, out, random):
    share = random.uniform()
    middle = out.shape[0]
    for y in range(middle):
        for x in range(out.shape[1]):
            for c in range(out.shape[2]):
                out[y, x, c] = float(image[y, x, c]) * share + float(image[y + middle, x, c]) * (1 - share)


@ops.custom
def shift(image, random):
    image += np.float32(random.normal())


@ops.custom(output=(5, 7, 4))
def four_channels(image, out, random):
    out[:] = random.bits() % 256


@ops.custom
def stumbles(image, random):
    if image[0, 0, 0] >= 200:
        raise ValueError("too bright")
    image[0, 0, 0] = 1


@ops.custom
def past_the_end(image, random):
    image[image.shape[0] + random.below(1), 0, 0] = 1


def write(path, **options):
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(path, {"image": fl.RawImageField(SIDE, SIDE), "i": fl.IntField()}, **options) as writer:
        for i in range(COUNT):
            image = rng.integers(0, 200, (SIDE, SIDE, 3)).astype(np.uint8)
            if i in (5, 10):
                image[0, 0, 0] = 200 + i
            writer.write_sample({"image": image, "i": i})
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write(tmp_path_factory.mktemp("custom") / "x.fld")


def plain(pipeline):
    return [replace(op, jit=False) if isinstance(op, ops.CustomOp) else op for op in pipeline]


def load(path, pipeline, **options):
    loader = fl.DataLoader(fl.open(path), 4, **{"shuffle": False, **options}, pipelines={"image": pipeline})
    return np.concatenate([batch["image"] for batch in loader])


PIPELINES = {
    "alone": [sprinkle],
    "in the middle": [ops.RandomCrop(12), sprinkle, ops.HorizontalFlip(), ops.RandomResizedCrop(8), ops.Layout("CHW")],
    "at the end": [ops.CenterCrop(10), ops.Normalize(100, 50), shift],
    "another shape": [ops.Resize((10, 14)), fold],
    "behind each other": [ops.HorizontalFlip(), sprinkle, fold, shift],
    "planes first": [ops.CenterCrop(10), ops.Layout("CHW"), sprinkle],
    "between resizes": [sprinkle, ops.Resize((9, 9)), sprinkle, ops.VerticalFlip(), ops.Normalize(3, 4), shift],
    "more channels": [four_channels],
}


# The same either way


@pytest.mark.parametrize("name", PIPELINES)
def test_compiled_and_plain_give_the_same(name, dataset):
    pipeline = PIPELINES[name]
    found, wanted = load(dataset, pipeline, seed=9), load(dataset, plain(pipeline), seed=9)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert (found == wanted).all()


def test_an_operation_does_what_its_function_does(dataset):
    found = load(dataset, [sprinkle], seed=3)
    for i, sample in enumerate(fl.open(dataset)):
        image = sample["image"].copy()
        sprinkle.function(image, ops.Random(3, 0, i, 0))
        assert (image != sample["image"]).any()
        assert (image == found[i]).all()


def test_native_operations_behind_a_custom_one_draw_as_if_it_were_not_there(dataset):
    @ops.custom
    def nothing(image, random):
        pass

    around = [ops.RandomCrop(12), nothing, ops.HorizontalFlip(), nothing, ops.Normalize(7, 9)]
    bare = [ops.RandomCrop(12), ops.CenterCrop(12), ops.HorizontalFlip(), ops.CenterCrop(12), ops.Normalize(7, 9)]
    assert (load(dataset, around, seed=4) == load(dataset, bare, seed=4)).all()


@pytest.mark.parametrize("way", [list, plain])
def test_batches_depend_on_seed_epoch_and_sample_alone(way, dataset, tmp_path):
    shards = write(tmp_path / "shards", shard_size=4 * SIDE * SIDE * 3)

    def run(path=dataset, **options):
        pipelines = {"image": way([sprinkle, ops.HorizontalFlip(), fold])}
        loader = fl.DataLoader(fl.open(path), 5, pipelines=pipelines, **{"seed": 7, **options})
        return {int(i): image for batch in loader for i, image in zip(batch["i"], batch["image"], strict=True)}

    wanted = run(num_workers=1)
    for options in ({"num_workers": 5}, {"num_workers": 0}, {"order": "sequential"}, {"io": "pread"}, {"path": shards}):
        got = run(**options)
        assert all((got[i] == wanted[i]).all() for i in range(COUNT))
    assert any((run(seed=8)[i] != wanted[i]).any() for i in range(COUNT))


def test_without_numba_the_same_comes_from_python(dataset, monkeypatch):
    pipeline = PIPELINES["in the middle"]
    wanted = load(dataset, pipeline)
    monkeypatch.delitem(sys.modules, "fastloader.pipeline.jit")
    monkeypatch.setitem(sys.modules, "numba", None)
    loader = fl.DataLoader(fl.open(dataset), 4, shuffle=False, pipelines={"image": pipeline})
    told = loader.explain()
    assert 'sprinkle (numba is not installed; pip install "fastloader[jit]" brings it)' in told
    assert "compiled by numba" not in told
    assert (np.concatenate([batch["image"] for batch in loader]) == wanted).all()


# Random numbers


@jit_random.numba.njit
def compiled_draws(place, bound, whole, uniform, normal, words):
    random = jit_random.seeded(place, words)
    for i in range(len(whole)):
        whole[i] = random.below(bound)
    random = jit_random.seeded(place, words)
    for i in range(len(uniform)):
        uniform[i] = random.uniform()
    random = jit_random.seeded(place, words)
    for i in range(len(normal)):
        normal[i] = random.normal()


@settings(max_examples=60, deadline=None)
@given(place=PLACES, bound=st.integers(1, 2**63 - 1))
def test_compiled_plain_and_native_draws_are_the_same(place, bound):
    wanted = np.empty(50, np.uint64), np.empty(50), np.empty(50)
    kernels.random_below(*place, wanted[0], bound)
    kernels.random_uniform(*place, wanted[1])
    kernels.random_normal(*place, wanted[2])
    streams = [ops.Random(*place) for _ in wanted]
    drawn = [[s.below(bound) for _ in range(50)] for s in streams[:1]]
    drawn += [[streams[1].uniform() for _ in range(50)], [streams[2].normal() for _ in range(50)]]
    compiled = np.empty(50, np.int64), np.empty(50), np.empty(50)
    compiled_draws(np.array(place, np.uint64), bound, *compiled, np.zeros(16, np.uint32))
    for want, one, other in zip(wanted, drawn, compiled, strict=True):
        assert want.tolist() == [x.item() for x in one] == other.tolist()


def test_numbers_below_zero_are_refused():
    with pytest.raises(ValueError, match="no number lies below that"):
        ops.Random(0, 0, 0, 0).below(0)
    with pytest.raises(ValueError, match="no number lies below that"):
        compiled_draws(
            np.zeros(4, np.uint64), 0, np.zeros(1, np.int64), np.zeros(1), np.zeros(1), np.zeros(16, np.uint32)
        )


def test_normal_numbers_are_normal():
    stream = ops.Random(1, 2, 3, 4)
    drawn = np.array([stream.normal() for _ in range(4000)])
    assert abs(drawn.mean()) < 4 / math.sqrt(4000)
    assert abs(drawn.std() - 1) < 0.05


# What goes wrong


@pytest.mark.parametrize("way", [list, plain])
@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_failure_names_operation_and_sample_and_follows_on_error(policy, way, dataset):
    pipelines = {"image": way([stumbles])}
    loader = fl.DataLoader(fl.open(dataset), COUNT, shuffle=False, pipelines=pipelines, on_error=policy)
    if policy == "raise":
        with pytest.raises(fl.OperationError, match="the operation stumbles failed") as caught:
            list(loader)
        assert (caught.value.sample, caught.value.field) == (5, "image")
        line = stumbles.function.__code__.co_firstlineno + 3
        assert f"the operation stumbles failed in line {line} of test_custom.py: ValueError: too bright" in str(
            caught.value
        )
        return
    (batch,) = loader
    assert [bad["sample"] for bad in loader.stats()["bad"]] == [5, 10]
    if policy == "skip":
        assert batch["i"].tolist() == [0, 1, 2, 3, 4, 6, 6, 7, 8, 9, 11, 11]
        assert (batch["image"][:, 0, 0, 0] == 1).all()
    else:
        assert [i for i in range(COUNT) if batch["image"].mask[i].all()] == [5, 10]


@pytest.mark.parametrize("way", [list, plain])
def test_an_index_past_the_end_is_a_failure(way, dataset):
    with pytest.raises(fl.OperationError, match="the operation past_the_end failed"):
        load(dataset, way([past_the_end]))


def test_what_wraps_round_in_python_but_not_in_compiled_code_is_a_failure(dataset):
    @ops.custom(jit=False)
    def brighter(image, random):
        image[0, 0, 0] = max(image[0, 0, 0] + np.uint8(250), 0)

    with pytest.raises(fl.OperationError, match="overflow"):
        load(dataset, [brighter])


def opens(image, random):
    image[0] = 1
    open("x")  # noqa: SIM115


def undefined(image, random):
    image[0] = unknown  # noqa: F821


def attribute(image, random):
    image[0] = random.choice()


def changing(image, random):
    x = 1
    if image[0, 0, 0] > 3:
        x = "one"
    image[0] = len(x)


def sorts(image, random):
    image[0] = 1
    image[1] = sorted([1, 2], key=str)[0]


NUMBERS = [1, 2, 3]


def listed(image, random):
    image[0] = NUMBERS[1]


def imports(image, random):
    from PIL import Image

    Image.fromarray(image)


def generator(image, random):
    image[0] = sum(x for x in range(3))


def unset(image, random):
    image[0] = later  # noqa: F821
    later = 3  # noqa: F841


def four_indices(image, random):
    image[0, 0, 0, 0] = 1


def by_axis(image, random):
    image[0] = np.mean(image, axis=0)


def text(image, random):
    image[0] = "a"


def formats(image, random):
    image[0] = len(f"{image.shape[0]:03d}")


def named_exception(image, random):
    try:
        image[0] = 1
    except Exception as error:
        image[0] = len(error.args)


def sets_global(image, random):
    global NUMBERS
    NUMBERS = 3


def counter():
    count = 0

    def counts(image, random):
        nonlocal count
        count += 1

    return counts


counts = counter()


def listed_outside():
    numbers = [1, 2]

    def holds_a_list(image, random):
        image[0] = numbers[0]

    return holds_a_list


holds_a_list = listed_outside()


def manager(image, random):
    image[0] = 1
    with np.errstate(over="raise"):
        image[1] = 2


@pytest.mark.parametrize(
    ("function", "line", "why"),
    [
        (opens, 2, "open is nothing that compiled code can use"),
        (undefined, 1, "unknown is not defined"),
        (attribute, 1, "there is no attribute choice"),
        (changing, 4, ""),
        (sorts, 2, ""),
        (manager, 2, ""),
        (listed, 1, "NUMBERS comes from outside: give it as a tuple or an array"),
        (holds_a_list, 1, "numbers comes from outside: give it as a tuple or an array"),
        (imports, 1, "nothing can be imported here"),
        (generator, 1, "a generator can't be used: put a list in [ ] in its place"),
        (unset, 1, "later has no value here"),
        (four_indices, 1, "4 indices for an array of 3 dimensions"),
        (by_axis, 1, "mean takes no axis="),
        (text, 1, "what is to be put there is of another type"),
        (formats, 1, "text can't be formatted"),
        (named_exception, 3, "an exception can be caught, but has no name"),
        (sets_global, 2, "a global name can't be set"),
        (counts, 2, "count belongs to the function around it and can't be set"),
    ],
)
def test_what_cant_be_compiled_is_shown_with_its_line(function, line, why, dataset):
    with pytest.raises(PipelineError) as caught:
        fl.DataLoader(fl.open(dataset), pipelines={"image": [ops.Resize((8, 8)), ops.custom(function)]})
    told = str(caught.value)
    number = function.__code__.co_firstlineno + line
    assert f"--> {function.__name__}: line {number} of test_custom.py can't be compiled: {why}" in told
    assert "@custom(jit=False) keeps the operation in Python" in told
    assert "numba" not in told.lower()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        (
            [ops.Resize((8, 8)), ops.Cast("float16"), sprinkle],
            "a function of bool, int8, .*, and gets float16",
        ),
        ([ops.Resize((8, 8)), fold, ops.HorizontalFlip()], "behind a custom operation takes uint8 pixels"),
        ([ops.Resize((8, 8)), fold, ops.Cast("float16"), ops.Normalize(1, 2)], "gets float16: put it before Cast"),
        ([four_channels, ops.Normalize((1, 2, 3), 4)], "has 3 numbers for 4 channels"),
        ([four_channels, ops.Layout("CHW"), ops.Layout("HWC"), ops.Invert()], "behind a custom operation takes uint8"),
        (
            [ops.Resize((8, 8)), ops.Layout("CHW"), sprinkle, ops.HorizontalFlip()],
            "behind a custom operation takes uint8",
        ),
        ([four_channels, ops.HorizontalFlip()], "behind a custom operation takes uint8"),
        ([ops.custom(output=(1, 2))(fold.function)], "an output of three sides, not \\(1, 2\\)"),
        ([ops.custom(output=(0, 2, 3))(fold.function)], "output=0: from 1 to"),
    ],
)
def test_a_mistake_is_shown_in_its_place(pipeline, why, dataset):
    with pytest.raises(PipelineError, match=why) as caught:
        fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline})
    assert "\n--> " in str(caught.value)


def test_images_of_many_sizes_need_a_crop_first(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.PNGImageField()}) as writer:
        writer.write_sample({"image": np.zeros((4, 5, 3), np.uint8)})
    with pytest.raises(PipelineError, match="images of one size: put a crop"):
        fl.DataLoader(fl.open(tmp_path / "x.fld"), pipelines={"image": [sprinkle]})


def returns(image, random):
    image[0] = 1
    return image + 1


def numpys(image, random):
    image[0] = np.random.randint(3)


def pythons(image, random):
    image[0] = random_module.randrange(3)


@pytest.mark.parametrize(
    ("function", "line", "why"),
    [
        (returns, 2, "returns a value, which nobody takes: change the array that is given, or fill out"),
        (numpys, 1, "draws numbers that differ from run to run"),
        (pythons, 1, "draws numbers that differ from run to run"),
    ],
)
def test_what_compiles_and_is_wrong_is_shown_with_its_line(function, line, why, dataset):
    with pytest.raises(PipelineError) as caught:
        fl.DataLoader(fl.open(dataset), pipelines={"image": [ops.custom(function)]})
    number = function.__code__.co_firstlineno + line
    assert f"--> {function.__name__}: line {number} of test_custom.py {why}" in str(caught.value)


def test_a_value_that_is_returned_is_a_failure_in_python_too(dataset):
    with pytest.raises(fl.OperationError, match="the operation returns returns a value, which nobody takes"):
        load(dataset, [ops.custom(jit=False)(returns)])


def lighter(value, by):
    return min(value + by, 255)


@ops.custom
def calls_another(image, random):
    image[0, 0, 0] = lighter(int(image[0, 0, 0]), 100)


def test_plain_functions_can_be_called(dataset):
    found = load(dataset, [calls_another])
    assert (found == load(dataset, plain([calls_another]))).all()
    assert found[:, 0, 0, 0].min() >= 100
    assert lighter(200, 100) == 255


def test_what_an_operation_leaves_out_is_zero(dataset):
    @ops.custom(output=(4, 4, 3))
    def hardly(image, out, random):
        out[0, 0, 0] = 9

    for jit in (True, False):
        found = load(dataset, [replace(hardly, jit=jit)], num_workers=3)
        assert found.sum() == 9 * COUNT


def test_a_type_may_be_told_as_numpy_takes_it():
    assert ops.custom(dtype=np.float32)(fold.function).dtype == "float32"
    assert ops.custom(dtype="double")(fold.function).dtype == "float64"
    assert ops.custom(output=[1, 2, 3])(fold.function).shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda image, random, more=3: None, "and may have no other parameters"),
        (lambda *both: None, "and may have no other parameters"),
        (partial(lambda image, random: None), "a plain function can be compiled, not a partial; write one of image"),
        (np.add, "not a ufunc"),
        (jit_random.numba.njit(lambda image, random: None), "leave out its decorator"),
        (sprinkle, "custom operation sprinkle: is one already"),
        (7, "a function of image, random is needed, not a int"),
    ],
)
def test_what_is_no_plain_function(function, why):
    with pytest.raises(TypeError, match=why):
        ops.custom(jit=True)(function)


def test_generators_and_coroutines_are_no_operations():
    def generates(image, random):
        yield image

    async def awaits(image, random):
        pass

    for function in (generates, awaits):
        with pytest.raises(TypeError, match="is async or has a yield in it"):
            ops.custom(function)


def test_wrong_declarations():
    with pytest.raises(TypeError, match="called as fold\\(image, random\\), which it can't be"):
        ops.custom(fold.function)
    with pytest.raises(TypeError, match="called as sprinkle\\(image, out, random\\)"):
        ops.custom(output=(1, 1, 1))(sprinkle.function)
    with pytest.raises(ValueError, match="dtype='float16': one of bool, int8"):
        ops.custom(dtype="float16")


# Told, kept, sent


def test_explain_says_what_runs_where(dataset):
    pipeline = [
        ops.RandomCrop(12),
        sprinkle,
        ops.HorizontalFlip(),
        replace(sprinkle, jit=False),
        ops.VerticalFlip(),
        fold,
    ]
    told = fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline}).explain()
    assert "to memory: 1 steps, 0 folded into the cast; 432 bytes a sample" in told
    assert "compiled by numba, in the engine's threads without the GIL: sprinkle" in told
    assert "native, from memory to memory: HorizontalFlip(p=0.5)" in told
    assert "in Python threads, behind the engine: sprinkle (jit=False)" in told
    assert "native, called from Python threads: VerticalFlip(p=0.5)" in told
    assert "in Python threads, behind the engine: fold (behind an operation in Python)" in told


def test_without_custom_operations_numba_is_not_imported(dataset):
    code = (
        "import sys, fastloader as fl\n"
        f"fl.DataLoader(fl.open({str(dataset)!r}), pipelines={{'image': [fl.ops.Resize((4, 4))]}})\n"
        "print('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


SCRIPT = """
import json, sys
import numba
import fastloader as fl
from fastloader.pipeline import jit

@fl.ops.custom
def mark(image, random):
    image[0, 0, 0] = 7

made, cached = [], jit._cached
jit._cached = lambda op: made.append(cached(op)) or made[-1]
loader = fl.DataLoader(fl.open(sys.argv[1]), 4, pipelines={"image": [mark]})
assert all((batch["image"][:, 0, 0, 0] == 7).all() for batch in loader)
print(json.dumps([sum(made[0].stats.cache_hits.values()), sum(made[0].stats.cache_misses.values())]))
"""


def test_compiled_code_is_kept_on_disk_between_runs(dataset, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}

    def run():
        command = [sys.executable, tmp_path / "train.py", dataset]
        return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    assert run() == [0, 1]
    assert run() == [1, 0]
    for index in tmp_path.rglob("*.nbi"):  # as another version left it: it names what is no longer there
        version = pickle.dumps(numba.__version__, -1)
        index.write_bytes(version + b"cfastloader.pipeline.jit\nGone\n.")
    assert run() == [0, 1]
    assert run() == [1, 0]


def test_code_that_lives_in_no_file_is_compiled_all_the_same(dataset):
    names = {}
    exec("def typed_in(image, random):\n    image[:] = 9\n", names)
    compiled = compiler.compile_pipeline("image", fl.RawImageField(SIDE, SIDE), [ops.custom(names["typed_in"])], 0)
    assert compiled.tail is None
    assert (load(dataset, [ops.custom(names["typed_in"])]) == 9).all()


def test_code_of_a_file_that_is_no_module_is_not_kept(dataset, tmp_path):
    page = tmp_path / "page.py"
    page.write_text("def of_no_module(image, random):\n    image[:] = 9\n")
    for _ in range(2):  # what was kept could not be loaded again
        names = {}
        exec(compile(page.read_text(), page, "exec"), names)
        assert (load(dataset, [ops.custom(names["of_no_module"])]) == 9).all()
    assert [path.name for path in tmp_path.iterdir()] == ["page.py"]


def test_parameters_come_from_a_function_around_it(dataset):
    def paint(value):
        @ops.custom
        def paint(image, random):
            image[:] = value

        return paint

    assert (load(dataset, [paint(3)]) == 3).all()
    assert (load(dataset, [paint(4)]) == 4).all()


def test_an_operation_is_pickled_by_its_name():
    for op in (sprinkle, fold, replace(fold, jit=False), ops.custom(opens)):
        assert pickle.loads(pickle.dumps(op)) == op


def test_a_loader_with_pipelines_can_be_sent_to_another_process(dataset):
    pipelines = {"image": [sprinkle, ops.HorizontalFlip(), replace(fold, jit=False)]}
    loader = fl.DataLoader(fl.open(dataset), 4, seed=5, pipelines=pipelines)
    sent = pickle.loads(pickle.dumps(loader))
    assert all((a["image"] == b["image"]).all() for a, b in zip(loader, sent, strict=True))
