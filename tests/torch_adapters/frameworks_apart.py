"""Batches for TensorFlow and JAX: the loader's own, typed by their fields."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import absl.flags
import grain
import jax
import numpy as np
import pytest
import tensorflow as tf
import torch

import fastloader as fl
from fastloader.jax import JaxLoader, JaxSource, prefetch_to_device, to_jax
from fastloader.tensorflow import to_tf_dataset

COUNT = 50
(CPU,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)


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


def test_the_state_between_two_epochs_of_fit_begins_the_next(path):
    states, model = [], tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    noting = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: states.append(loader.state_dict()))
    with fl.open(path) as reader, fl.DataLoader(reader, 8, fields=["x", "label"], seed=1) as loader:
        dataset = to_tf_dataset(loader, select=lambda batch: (batch["x"] / 50, batch["label"] / 50))
        model.fit(dataset, epochs=3, verbose=0, shuffle=False, callbacks=[noting])
    assert [(state["epoch"], state["done"]) for state in states] == [(1, 0), (2, 0), (3, 0)]


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


def test_a_strategy_of_two_devices_gives_each_its_batches_and_fits_a_model(path):
    reader, asked = fl.open(path), []

    def make(rank, world_size):
        asked.append((rank, world_size))
        return fl.DataLoader(reader, 5, fields=["x", "label"], rank=rank, world_size=world_size, seed=2)

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    spread = strategy.distribute_datasets_from_function(lambda context: to_tf_dataset(make, input_context=context))
    given = [[part.numpy().tolist() for part in strategy.experimental_local_results(one["label"])] for one in spread]
    assert [len(parts) for parts in given] == [2] * 5
    with fl.open(path) as plain:
        batches = fl.DataLoader(plain, 5, fields=["label"], seed=2)
        assert [labels for parts in given for labels in parts] == [batch["label"].tolist() for batch in batches]
    assert asked == [(0, 1)]
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    fitted = strategy.distribute_datasets_from_function(
        lambda context: to_tf_dataset(
            make, input_context=context, select=lambda batch: (batch["x"] / 50, batch["label"] / 50), epochs=None
        )
    )
    history = model.fit(fitted, steps_per_epoch=5, epochs=2, verbose=0, shuffle=False)
    assert history.history["loss"][-1] < history.history["loss"][0]


TWO_WORKERS = """
import json, os, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf
import fastloader as fl
from fastloader.tensorflow import to_tf_dataset

path = sys.argv[1]
strategy = tf.distribute.MultiWorkerMirroredStrategy()

def make(rank, world_size):
    assert world_size == 2
    return fl.DataLoader(fl.open(path), 5, fields=["x", "label"], rank=rank, world_size=world_size, remainder="drop")

def datasets(context):
    return to_tf_dataset(make, input_context=context)

given = []
for batch in strategy.distribute_datasets_from_function(datasets):
    given += [part.numpy().tolist() for part in strategy.experimental_local_results(batch["label"])]
print(json.dumps(given))
"""


def test_workers_of_a_strategy_get_their_share(path):
    """Two processes, as on two machines: the context tells each which part of the samples is its own."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        hosts = [f"127.0.0.1:{free.getsockname()[1]}" for free in (one, other)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_WORKERS, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TF_CONFIG": json.dumps({"cluster": {"worker": hosts}, "task": task})},
        )
        for task in ({"type": "worker", "index": number} for number in range(2))
    ]  # fmt: skip
    told = [process.communicate(timeout=500) for process in running]
    assert [process.returncode for process in running] == [0, 0], told
    given = [n for out, _ in told for labels in json.loads(out.splitlines()[-1]) for n in labels]
    assert sorted(given) == list(range(COUNT))


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


def sharded(*spec):
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")).reshape(2, 2), ("data", "model"))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


def test_jax_arrays_are_sharded_over_devices(path):
    everywhere, rows, both = sharded(), sharded(("data", "model")), sharded("data", "model")
    chosen = {"x": both, "label": rows, "image": everywhere}
    with fl.open(path) as reader, JaxLoader(path, 8, sharding=chosen, fields=list(chosen), drop_last=True) as loader:
        plain = fl.DataLoader(reader, 8, fields=list(chosen), drop_last=True)
        for ours, theirs in zip(loader, plain, strict=True):
            for name, sharding in chosen.items():
                assert ours[name].sharding == sharding
                assert np.array_equal(ours[name], theirs[name])
                for shard in ours[name].addressable_shards:
                    assert np.array_equal(shard.data, theirs[name][shard.index])
            assert {shard.data.shape for shard in ours["x"].addressable_shards} == {(4, 3)}
            assert {shard.data.shape for shard in ours["label"].addressable_shards} == {(2,)}
            assert len({shard.device for shard in ours["image"].addressable_shards}) == 4
    with pytest.raises(ValueError, match="the sharding names devices itself"):
        JaxLoader(path, 8, sharding=rows, device=jax.devices()[0])


def test_a_batch_that_no_sharding_fits_is_told(path):
    loader = JaxLoader(path, 8, sharding=sharded(("data", "model")), fields=["x"])
    with loader, pytest.raises(ValueError, match=r"field 'x', \(2, 6\).*drop_last=True"):
        list(loader)


def test_jitted_steps_are_compiled_once_and_run_where_the_batch_is(path):
    compiled = []

    @jax.jit
    def step(batch):
        compiled.append(batch["x"].shape)
        return batch["x"].sum() + batch["label"].sum()

    rows = sharded(("data", "model"))
    with JaxLoader(path, 8, sharding=rows, fields=["x", "label"], drop_last=True, seed=1) as loader:
        sums = [float(step(batch)) for _ in range(2) for batch in loader]
    with fl.open(path) as reader:
        plain = fl.DataLoader(reader, 8, fields=["x", "label"], drop_last=True, seed=1)
        assert sums == [float(batch["x"].sum() + batch["label"].sum()) for _ in range(2) for batch in plain]
    assert compiled == [(8, 6)]


def test_other_devices_get_a_copy(path):
    device = jax.devices("cpu")[2]
    with JaxLoader(path, 8, device=device, fields=["x"]) as loader:
        assert all(batch["x"].devices() == {device} for batch in loader)


@pytest.mark.parametrize("ahead", [0, 2, 20])
def test_any_batches_go_to_devices_ahead(path, ahead):
    """Of an expression, for one; no more are taken before they are needed than was asked for."""
    rows = sharded(("data", "model"))
    expression = fl.open(path).shuffle(seed=2).batch(8, drop_last=True, pad="ragged").map(without_tokens)
    got = list(prefetch_to_device(expression, sharding=rows, ahead=ahead))
    for ours, theirs in zip(got, expression, strict=True):
        assert ours["x"].sharding == rows
        assert ours["label"].tolist() == theirs["label"].tolist()
        assert ours["words"] == theirs["words"]
    numbers = iter(range(100))
    placed = prefetch_to_device((np.full(4, n) for n in numbers), ahead=ahead)
    assert next(placed).tolist() == [0] * 4
    assert next(numbers) == ahead + 1
    with pytest.raises(ValueError, match="ahead=-1"):
        prefetch_to_device([], ahead=-1)


def without_tokens(batch):
    return {name: value for name, value in batch.items() if not name.startswith("tokens")}


TWO_PROCESSES = """
import sys, json
import jax, numpy as np
from fastloader.jax import JaxLoader

path, port, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
with JaxLoader(path, 4, sharding=rows, fields=["label"], remainder="drop", drop_last=True, seed=1) as loader:
    given = []
    for batch in loader:
        assert batch["label"].shape == (8,), batch["label"].shape
        given.append([shard.data.tolist() for shard in batch["label"].addressable_shards])
print(json.dumps(given))
"""


def test_two_processes_make_one_global_array(path):
    """Each loads its part; the array has both, and each process holds the shards of its own devices."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_PROCESSES, path, str(port), str(number)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables,
        )
        for number in range(2)
    ]  # fmt: skip
    told = [process.communicate(timeout=500) for process in running]
    assert [process.returncode for process in running] == [0, 0], told
    given = [json.loads(out.splitlines()[-1]) for out, _ in told]
    with fl.open(path) as reader:
        for rank in range(2):
            options = {"rank": rank, "world_size": 2, "remainder": "drop", "drop_last": True, "seed": 1}
            plain = fl.DataLoader(reader, 4, fields=["label"], **options)
            assert [[n for shard in shards for n in shard] for shards in given[rank]] == [
                batch["label"].tolist() for batch in plain
            ]
    everything = [n for rank in given for shards in rank for shard in shards for n in shard]
    assert len(set(everything)) == len(everything) == 48


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


@pytest.mark.parametrize("ahead", [0, 2])
def test_behind_an_epoch_is_the_next_one(path, ahead):
    with JaxLoader(path, 8, seed=1, ahead=ahead, fields=["label"]) as loader:
        list(loader)
        state = loader.state_dict()
        following = [batch["label"].tolist() for batch in loader]
        loader.load_state_dict(state)
        iter(loader)  # asking for an iterator takes nothing
        assert [batch["label"].tolist() for batch in loader] == following


def test_a_source_for_grain(path):
    source = pickle.loads(pickle.dumps(JaxSource(path, ["label", "x"])))
    assert len(source) == COUNT
    assert source[7]["label"] == 7
    assert set(source[np.int64(3)]) == {"label", "x"}
    assert "x.fld" in repr(source)
    with pytest.raises(TypeError, match=r"takes a \.fld dataset"):
        JaxSource(3)


def test_an_archive_is_a_source_too(tmp_path):
    with fl.ArchiveWriter(tmp_path / "x.fld") as writer:
        fl.DecodedView(writer)["a/b.txt"] = "text"
    source = pickle.loads(pickle.dumps(JaxSource(fl.Archive(tmp_path / "x.fld"), ["data"])))
    assert [source[i] for i in range(len(source))] == [{"data": b"text"}]


def test_grain_shuffles_batches_and_resumes(path):
    made = grain.MapDataset.source(JaxSource(path, ["label", "x"])).seed(3).shuffle().batch(8)
    assert sorted(n for batch in made for n in batch["label"].tolist()) == list(range(COUNT))
    assert all(np.array_equal(batch["x"][:, 0], batch["label"]) for batch in made)
    passing = iter(made.to_iter_dataset())
    next(passing), next(passing)
    state = passing.get_state()
    rest = [batch["label"].tolist() for batch in passing]
    again = iter(made.to_iter_dataset())
    again.set_state(state)
    assert [batch["label"].tolist() for batch in again] == rest == [made[i]["label"].tolist() for i in range(2, 7)]


@pytest.mark.parametrize("workers", [0, 1])
def test_grains_own_loader_takes_it(path, workers):
    absl.flags.FLAGS.mark_as_parsed()  # grain asks for its own in worker processes
    loader = grain.DataLoader(
        data_source=JaxSource(path, ["label"]),
        sampler=grain.samplers.IndexSampler(COUNT, shuffle=True, num_epochs=1, seed=1),
        operations=[grain.transforms.Batch(8)],
        worker_count=workers,
    )
    assert sorted(n for batch in loader for n in batch["label"].tolist()) == list(range(COUNT))


def test_jax_arrays_speak_dlpack(path):
    options = {"fields": ["x", "label", "image", "tokens"], "pad": "ragged"}
    with JaxLoader(path, 8, **options) as loader:
        for batch in loader:
            for name in ("x", "label", "image", "tokens", "tokens_offsets", "tokens_lengths"):
                value, address = batch[name], batch[name].unsafe_buffer_pointer()
                for taken in (np.from_dlpack(value), torch.from_dlpack(value).numpy()):
                    assert np.array_equal(taken, value), name
                    assert not value.size or taken.__array_interface__["data"][0] == address, name


def test_tensors_of_tensorflow_speak_dlpack(path, loader):
    for batch in to_tf_dataset(loader):
        tokens = batch["tokens"]
        for tensor in (batch["x"], batch["label"], batch["image"], tokens.flat_values, tokens.row_splits):
            assert np.array_equal(np.from_dlpack(tensor), tensor.numpy())
            assert np.array_equal(torch.from_dlpack(tensor).numpy(), tensor.numpy())


def test_every_batch_array_speaks_dlpack(path):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, fields=["x", "label", "image"]) as loader:
        for value in next(iter(loader)).values():
            assert np.from_dlpack(value).tobytes() == value.tobytes()
