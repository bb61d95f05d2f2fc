"""Operations on labels, on images of chosen samples, and on whole batches."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels, ops
from fastloader.ops.random import log_of
from fastloader.pipeline import PipelineError
from fastloader.pipeline.compiler import MAX_OPS

COUNT, SIDE, CLASSES = 30, 12, 7


def image_of(i):
    return np.random.default_rng(i).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)


def write(path, label=lambda i: i % CLASSES, **options):
    fields = {"image": fl.RawImageField(SIDE, SIDE), "label": fl.IntField(), "i": fl.IntField(), "x": fl.FloatField()}
    with fl.DatasetWriter(path, fields, **options) as writer:
        writer.write_many({"image": image_of(i), "label": label(i), "i": i, "x": i / 2} for i in range(COUNT))
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write(tmp_path_factory.mktemp("labels") / "x.fld")


def load(path, pipelines, size=COUNT, **options):
    return list(fl.DataLoader(fl.open(path), size, **{"shuffle": False, **options}, pipelines=pipelines))


# Labels


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_hot_rows_have_a_one_at_their_class(dtype, dataset):
    (batch,) = load(dataset, {"label": [ops.OneHot(CLASSES, dtype)]})
    assert batch["label"].dtype == dtype
    assert (batch["label"] == np.eye(CLASSES, dtype=dtype)[np.arange(COUNT) % CLASSES]).all()
    assert batch["i"].tolist() == list(range(COUNT))


def test_smoothing_deals_a_share_to_all_classes(dataset):
    (batch,) = load(dataset, {"label": [ops.OneHot(CLASSES), ops.LabelSmoothing(0.1)]})
    one = np.float32(0.9) + np.float32(0.1 / CLASSES)
    assert set(batch["label"].ravel()) == {one, np.float32(0.1 / CLASSES)}
    assert (batch["label"].argmax(axis=1) == np.arange(COUNT) % CLASSES).all()
    assert np.allclose(batch["label"].sum(axis=1), 1)


@pytest.mark.parametrize("shards", [False, True])
def test_labels_are_replaced_by_the_number_of_the_sample(shards, tmp_path):
    path = write(tmp_path / "x", **({"shard_size": 3000} if shards else {}))
    batches = load(path, {"label": [ops.ReplaceLabel([20, 3, 3, 11], 99)]}, 4, shuffle=True)
    found = {int(i): int(y) for batch in batches for i, y in zip(batch["i"], batch["label"], strict=True)}
    assert found == {i: 99 if i in (3, 11, 20) else i % CLASSES for i in range(COUNT)}


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_a_label_that_is_no_class_follows_on_error(policy, tmp_path):
    path = write(tmp_path / "x.fld", lambda i: {4: CLASSES, 9: -1}.get(i, i % CLASSES))
    loader = fl.DataLoader(
        fl.open(path), COUNT, shuffle=False, pipelines={"label": [ops.OneHot(CLASSES)]}, on_error=policy
    )
    if policy == "raise":
        with pytest.raises(fl.OperationError, match=r"sample 4, field 'label'.* can't take the label 7"):
            list(loader)
        return
    (batch,) = loader
    assert [bad["sample"] for bad in loader.stats()["bad"]] == [4, 9]
    if policy == "skip":
        assert batch["i"][[4, 9]].tolist() == [5, 10]
        assert (batch["label"].argmax(axis=1) == batch["i"] % CLASSES).all()
    else:
        assert np.flatnonzero(batch["label"].mask.all(axis=1)).tolist() == [4, 9]


def test_a_missing_label_stays_missing(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"label": fl.IntField()}) as writer:
        for value in (1, None, 2):
            writer.write_sample({"label": value})
    (batch,) = load(tmp_path / "x.fld", {"label": [ops.OneHot(3)]}, 3)
    assert batch["label"].mask.all(axis=1).tolist() == [False, True, False]
    assert batch["label"][2].tolist() == [0, 0, 1]


# Poison


@pytest.mark.parametrize("compiled", [True, False])
def test_poison_is_laid_over_the_samples_named_and_no_others(compiled, dataset):
    @ops.custom(jit=compiled)
    def nothing(image, random):
        pass

    mask = np.random.default_rng(5).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
    poison = ops.Poison(mask, 0.3, [2, 17])
    (batch,) = load(dataset, {"image": [nothing, poison, ops.Normalize(0, 1)]})
    for i, got in enumerate(batch["image"]):
        image = image_of(i)
        wanted = np.round(image * 0.7 + mask * 0.3) if i in (2, 17) else image
        assert np.abs(got - wanted).max() <= (1 if i in (2, 17) else 0)
        assert (got == poison.lay_over(image, i)).all()
    assert (batch["image"][2] != image_of(2)).any()
    whole = load(dataset, {"image": [ops.Poison(mask, 1, [4])]})[0]["image"]
    assert (whole[4] == mask).all()


# Mixup and CutMix


def portable_exp(x):
    return math.exp(max(-700.0, min(700.0, x)))


def log_gamma_variate(random, shape):
    raised = shape + 1 if shape < 1 else shape
    d = raised - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = float(random.normal())
        root = 1 + c * x
        if root <= 0:
            continue
        v = root**3
        if log_of(1 - float(random.uniform())) < x * x / 2 + d - d * v + 3 * d * log_of(root):
            value = log_of(d) + 3 * log_of(root)
            return value + log_of(1 - float(random.uniform())) / shape if shape < 1 else value


def drawn(seed, epoch, samples, op, alpha):
    """The slow twin of the native draws."""
    rows = []
    for sample in samples:
        random = ops.Random(seed, epoch, int(sample), op)
        rank = int(random.bits()) | int(random.bits()) << 32
        chance, x, y = (float(random.uniform()) for _ in range(3))
        one, other = log_gamma_variate(random, alpha), log_gamma_variate(random, alpha)
        rows.append((rank, chance, 1 / (1 + portable_exp(other - one)), x, y))
    return rows


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**40), op=st.integers(0, 2**32 - 1),
    samples=st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True), alpha=st.floats(0.01, 50),
    p=st.floats(0, 1),
)  # fmt: skip
def test_draws_are_those_of_each_samples_own_stream(seed, epoch, op, samples, alpha, p):
    got = ops.Mixup(alpha, p).draw(seed, epoch, np.array(samples), op)
    wanted = drawn(seed, epoch, samples, op, alpha)
    assert np.allclose(got.shares, [row[2] if row[1] < p else 1 for row in wanted], rtol=1e-9, atol=1e-300)
    assert got.x.tolist() == [row[3] for row in wanted]
    assert got.y.tolist() == [row[4] for row in wanted]
    order = sorted(range(len(samples)), key=lambda i: wanted[i][0])
    assert {order[k - 1]: order[k] for k in range(len(order))} == dict(enumerate(got.partners.tolist()))
    assert len(samples) == 1 or (got.partners != np.arange(len(samples))).all()


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 4.0])
def test_shares_are_distributed_as_beta(alpha):
    shares = ops.Mixup(alpha).draw(3, 0, np.arange(20_000), 0).shares
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(shares.mean() - 0.5) < 5 * math.sqrt(variance / 20_000)
    assert abs(shares.var() / variance - 1) < 0.05
    if alpha == 1:  # uniform
        assert np.abs(np.histogram(shares, 10, (0, 1))[0] - 2000).max() < 300


LABELS = [ops.OneHot(CLASSES)]
IMAGES = {
    "uint8": [],
    "float32 planes": [ops.Normalize(120, 60), ops.Layout("CHW")],
    "float16": [ops.Normalize(120, 60), ops.Cast("float16")],
}


def both(path, op, images, **options):
    """Batches as they are, and as the operation makes them."""
    pipelines = {"image": images, "label": LABELS}
    return zip(load(path, pipelines, 8, **options), load(path, pipelines, 8, batch_ops=[op], **options), strict=True)


@pytest.mark.parametrize("name", IMAGES)
def test_mixup_is_a_sum_of_two_samples_and_their_labels(name, dataset):
    op = ops.Mixup(0.8, 0.7)
    for before, after in both(dataset, op, IMAGES[name], seed=4, shuffle=True):
        draws = op.draw(4, 0, before["i"], MAX_OPS)
        shares = draws.shares.astype(np.float32)
        for i, (partner, share) in enumerate(zip(draws.partners, shares, strict=True)):
            a, b = (before["image"][k].astype(np.float32) for k in (i, partner))
            wanted = a * share + b * (1 - share)
            tolerance = {"uint8": 0.51, "float32 planes": 0, "float16": 2e-3}[name]
            assert np.abs(after["image"][i] - wanted).max() <= tolerance
            assert (after["label"][i] == before["label"][i] * share + before["label"][partner] * (1 - share)).all()
        assert after["image"].dtype == before["image"].dtype
        assert (after["i"] == before["i"]).all()


@pytest.mark.parametrize("name", IMAGES)
def test_cutmix_puts_a_box_of_the_partner_and_its_part_of_the_label(name, dataset):
    op = ops.CutMix(1.0)
    areas = []
    for before, after in both(dataset, op, IMAGES[name], seed=4, shuffle=True):
        draws = op.draw(4, 0, before["i"], MAX_OPS)
        axis = 0 if name == "float32 planes" else 2
        for i, partner in enumerate(draws.partners):
            mine = (after["image"][i] == before["image"][i]).all(axis=axis)
            theirs = (after["image"][i] == before["image"][partner]).all(axis=axis)
            assert (mine | theirs).all()
            rows, columns = np.nonzero(~mine)
            area = 0
            if len(rows):  # all of it, edge to edge
                box = np.s_[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
                assert theirs[box].all()
                area = theirs[box].size
                part = math.sqrt(1 - draws.shares[i]) * SIDE
                assert rows.max() - rows.min() + 1 <= part
                assert columns.max() - columns.min() + 1 <= part
            own = np.float32(1 - area / SIDE**2)
            assert np.allclose(after["label"][i], before["label"][i] * own + before["label"][partner] * (1 - own))
            areas.append(area)
    assert len(set(areas)) > 8


def test_batches_are_the_same_for_any_number_of_workers_and_after_a_restart(dataset):
    def loader(**options):
        pipelines = {"image": [ops.HorizontalFlip()], "label": LABELS}
        mixes = [ops.Mixup(0.4, 0.5), ops.CutMix(p=0.5)]
        return fl.DataLoader(fl.open(dataset), 6, seed=2, pipelines=pipelines, batch_ops=mixes, **options)

    wanted = list(loader())
    for other in (loader(num_workers=0), loader(num_workers=5), pickle.loads(pickle.dumps(loader()))):
        for a, b in zip(other, wanted, strict=True):
            assert all((a[name] == b[name]).all() for name in ("image", "label"))
    first = loader()
    passing = iter(first)
    next(passing)
    resumed = loader()
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    passing.close()
    assert all((a["image"] == b["image"]).all() for a, b in zip(resumed, wanted[1:], strict=True))
    assert any((a["image"] != b["image"]).any() for a, b in zip(resumed, wanted, strict=True))  # the next epoch


def test_each_operation_on_a_batch_draws_by_its_own_number_and_the_epoch(dataset):
    mixes = [ops.CutMix(p=0), ops.Mixup(0.7)]
    loader = fl.DataLoader(
        fl.open(dataset), COUNT, shuffle=False, seed=6, pipelines={"image": [], "label": LABELS}, batch_ops=mixes
    )
    for epoch in range(2):
        (batch,) = loader
        draws = mixes[1].draw(6, epoch, np.arange(COUNT), MAX_OPS + 1)
        shares = draws.shares.astype(np.float32)[:, None]
        rows = np.eye(CLASSES, dtype=np.float32)[np.arange(COUNT) % CLASSES]
        assert (batch["label"] == rows * shares + rows[draws.partners] * (1 - shares)).all()


# Told, and what goes wrong


def test_explain_tells_labels_and_batches(dataset):
    mask = np.zeros((SIDE, SIDE, 3), np.uint8)
    pipelines = {"image": [ops.Poison(mask, 0.5, [1, 2])], "label": [ops.ReplaceLabel([1], 2), ops.OneHot(CLASSES)]}
    told = fl.DataLoader(fl.open(dataset), pipelines=pipelines, batch_ops=[ops.Mixup(0.2)]).explain()
    assert "native, from memory to memory: Poison(alpha=0.5, 2 samples)" in told
    assert "ReplaceLabel(1 samples, label=2): int64" in told
    assert "OneHot(classes=7, dtype='float32'): (7,) float32\n    by numpy, the whole batch at once" in told
    assert "all: Mixup(alpha=0.2, p=1.0, image='image', label='label'): 'image' and 'label', native" in told


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"pipelines": {"x": LABELS}}, "takes a whole number, and gets float64"),
        (
            {"pipelines": {"label": [ops.LabelSmoothing(0.1)]}},
            "takes a row of floats, and gets int64: put OneHot before",
        ),
        ({"pipelines": {"label": [*LABELS, ops.ReplaceLabel([1], 1)]}}, "takes a number, and gets .7,. float32"),
        ({"pipelines": {"label": [*LABELS, ops.HorizontalFlip()]}}, "is no operation on labels"),
        ({"pipelines": {"image": LABELS}}, "has no numbers"),
        ({"pipelines": {"image": [ops.Poison(np.zeros((3, 3, 3), np.uint8), 1, [])]}}, "has a mask of .3, 3, 3."),
        ({"batch_ops": [ops.Mixup()]}, "'image' has no pipeline that makes them of one size"),
        ({"batch_ops": [ops.CutMix()], "pipelines": {"image": []}}, "'label' has no pipeline"),
        ({"batch_ops": [ops.OneHot(3)]}, "is no operation on batches"),
    ],
)
def test_a_mistake_is_told_before_anything_is_read(options, why, dataset):
    with pytest.raises(PipelineError, match=why):
        fl.DataLoader(fl.open(dataset), **options)


def test_a_missing_value_is_not_mixed(tmp_path):
    path = write(tmp_path / "x.fld", lambda i: None if i == 4 else 1)
    with pytest.raises(fl.OperationError, match=r"sample 4, field 'label': .* mixes samples, and the value is missing"):
        load(path, {"image": [], "label": LABELS}, batch_ops=[ops.Mixup()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.OneHot(0), "classes=0: from 1 to"),
        (lambda: ops.OneHot(3, "int64"), "'float16' or 'float32'"),
        (lambda: ops.LabelSmoothing(2), "amount=2: from 0 to 1"),
        (lambda: ops.ReplaceLabel([-1], 3), "sample numbers start at 0"),
        (lambda: ops.Poison(np.zeros((2, 2, 3), np.uint8), 1.5, []), "alpha=1.5: from 0 to 1"),
        (lambda: ops.Mixup(0), "alpha=0: above 0"),
        (lambda: ops.CutMix(p=2), "p=2: from 0 to 1"),
    ],
)
def test_wrong_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_draws_need_a_sound_alpha_and_room():
    with pytest.raises(kernels.Failure):
        kernels.draw_mix(0, 0, np.arange(2), 0, 0.0, np.zeros(2 * 40, np.uint8))
    with pytest.raises(kernels.Failure):
        kernels.draw_mix(0, 0, np.arange(2), 0, 1.0, np.zeros(40, np.uint8))
