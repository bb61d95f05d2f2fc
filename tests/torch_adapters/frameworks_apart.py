"""Batches for TensorFlow and JAX: the loader's own, typed by their fields."""

from __future__ import annotations

import json
import os
import pickle

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import numpy as np
import pytest
import tensorflow as tf

import fastloader as fl
from fastloader.jax import JaxLoader, JaxSource, to_jax
from fastloader.tensorflow import to_tf_dataset

COUNT = 50


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("frameworks") / "x.fld"
    fields = {
        "image": fl.NDArrayField("uint8", (4, 5, 3)), "label": fl.IntField(), "x": fl.NDArrayField("float32", (6,)),
        "words": fl.TextField(), "tokens": fl.NDArrayField("int32", (None,)),
    }  # fmt: skip
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            writer.write_sample({
                "image": np.full((4, 5, 3), i, np.uint8), "label": i, "x": np.full(6, i, np.float32),
                "words": f"word {i}", "tokens": np.arange(i, dtype=np.int32),
            })  # fmt: skip
    return path


@pytest.fixture
def loader(path):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, seed=1, pad={"tokens": "ragged"}) as loader:
        yield loader


def test_tensorflow_gets_the_loaders_batches(path, loader):
    dataset = to_tf_dataset(loader)
    spec = dataset.element_spec
    assert spec["image"] == tf.TensorSpec([None, 4, 5, 3], tf.uint8)
    assert spec["label"] == tf.TensorSpec([None], tf.int64)
    assert spec["words"] == tf.TensorSpec([None], tf.string)
    assert isinstance(spec["tokens"], tf.RaggedTensorSpec)
    assert int(dataset.cardinality()) == len(loader) == 7
    with fl.open(path) as reader:
        plain = fl.DataLoader(reader, 8, seed=1)
        for epoch in range(2):
            plain.set_epoch(epoch)
            for ours, theirs in zip(dataset, plain, strict=True):
                assert ours["label"].numpy().tolist() == theirs["label"].tolist()
                assert np.array_equal(ours["x"].numpy(), theirs["x"])
                assert [word.decode() for word in ours["words"].numpy()] == list(theirs["words"])
                assert ours["tokens"].to_list() == [one.tolist() for one in theirs["tokens"]]


def test_tensorflow_knows_the_shape_where_the_last_batch_is_dropped(path):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, drop_last=True, fields=["x"]) as loader:
        assert to_tf_dataset(loader).element_spec["x"] == tf.TensorSpec([8, 6], tf.float32)
        assert int(to_tf_dataset(loader, epochs=3).cardinality()) == 18
        assert len(list(to_tf_dataset(loader, epochs=None).take(20))) == 20


def test_padded_fields_may_differ_from_batch_to_batch(path):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, pad="longest", fields=["tokens"]) as loader:
        widths = {int(batch["tokens"].shape[1]) for batch in to_tf_dataset(loader)}
    assert len(widths) > 1


def test_a_model_is_fitted(path):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, fields=["x", "label"]) as loader:
        dataset = to_tf_dataset(loader, select=lambda batch: (batch["x"] / 50, batch["label"] / 50), epochs=None)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit(dataset, steps_per_epoch=7, epochs=2, verbose=0, shuffle=False)
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_input_pipelines_of_a_strategy_share_the_samples(path):
    reader = fl.open(path)

    def make(rank, world_size):
        return fl.DataLoader(reader, 8, fields=["label"], rank=rank, world_size=world_size)

    given = []
    for number in range(2):
        context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=number)
        given += [n for batch in to_tf_dataset(make, input_context=context) for n in batch["label"].numpy().tolist()]
    assert sorted(given) == list(range(COUNT))
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    spread = strategy.distribute_datasets_from_function(lambda context: to_tf_dataset(make, input_context=context))
    assert sorted(n for batch in spread for n in batch["label"].numpy().tolist()) == list(range(COUNT))


def test_what_no_dataset_can_hold_is_refused(path, loader):
    with fl.open(path) as reader:
        with pytest.raises(TypeError, match="leave out collate_fn"):
            to_tf_dataset(fl.DataLoader(reader, 8, collate_fn=lambda batch: batch["label"]))
        with pytest.raises(TypeError, match="give a function of rank"):
            to_tf_dataset(loader, input_context=object())
        with pytest.raises(ValueError, match="epochs=0"):
            to_tf_dataset(loader, epochs=0)


def test_jax_gets_the_loaders_batches_without_a_copy(path):
    with JaxLoader(path, 8, seed=1, device=jax.devices("cpu")[0]) as ours, fl.open(path) as reader:
        theirs = fl.DataLoader(reader, 8, seed=1)
        for mine, plain in zip(ours, theirs, strict=True):
            assert isinstance(mine["x"], jax.Array)
            assert np.array_equal(mine["x"], plain["x"])
            assert np.array_equal(mine["label"], plain["label"])
            assert mine["words"] == plain["words"]
        assert len(ours) == 7
    array = np.frombuffer(bytearray(4096 + 64), np.uint8)
    aligned = array[-array.__array_interface__["data"][0] % 64 :][:4096].view(np.float32)
    assert to_jax(aligned).unsafe_buffer_pointer() == aligned.__array_interface__["data"][0]


def test_jax_batches_stay_what_they_are(path):
    with JaxLoader(path, 8, seed=1, fields=["x"]) as loader:
        held = [(np.array(batch["x"]), batch["x"]) for batch in loader]
        list(loader)
    assert all(np.array_equal(was, now) for was, now in held)


def test_jax_arrays_are_sharded(path):
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    with JaxLoader(path, 10, sharding=sharding, fields=["x", "label"]) as loader:
        batch = next(iter(loader))
    assert batch["x"].sharding == sharding
    assert batch["x"].shape == (10, 6)
    with pytest.raises(ValueError, match="the sharding names devices itself"):
        JaxLoader(path, 8, sharding=sharding, device=jax.devices()[0])


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_state_at_every_step_gives_the_rest(path, ahead):
    options = {"seed": 1, "ahead": ahead, "fields": ["label"]}
    with JaxLoader(path, 8, **options) as loader:
        whole = [batch["label"].tolist() for batch in loader]
    for step in range(len(whole)):
        with JaxLoader(path, 8, **options) as loader:
            running = iter(loader)
            for _ in range(step):
                next(running)
            state = json.loads(json.dumps(loader.state_dict()))
        with JaxLoader(path, 8, **options) as loader:
            loader.load_state_dict(state)
            assert [batch["label"].tolist() for batch in loader] == whole[step:]


def test_a_source_for_grain(path):
    source = pickle.loads(pickle.dumps(JaxSource(path, ["label", "x"])))
    assert len(source) == COUNT
    assert source[7]["label"] == 7
    assert set(source[np.int64(3)]) == {"label", "x"}
    assert "x.fld" in repr(source)
    with pytest.raises(TypeError, match=r"takes a \.fld dataset"):
        JaxSource(3)


def test_every_batch_array_speaks_dlpack(path):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, fields=["x", "label", "image"]) as loader:
        for value in next(iter(loader)).values():
            assert np.from_dlpack(value).tobytes() == value.tobytes()
