"""Shards made by a real cluster of several nodes, some of which are killed in the middle of their work."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_DEDUP_LOGS"] = "0"

import numpy as np
import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

import fastloader as fl
from fastloader.archive.folders import FolderSource
from fastloader.archive.writer import ArchiveWriter
from fastloader.ray import cluster as clusters
from fastloader.ray import converting, creating, nodes, read_fld, write_fld
from fastloader.ray.places import Place
from fastloader.ray.source import FldDatasource, runs_of_pages
from fastloader.stores import open_store
from fastloader.testing.seaweed import S3Server, s3_server

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.filterwarnings("ignore")

FILES, SIZE = 900, 3_000
SHARD = "450KB"
STORE = 100 << 20
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 8}
"""When a node is taken for dead: after seconds, not half a minute, yet not because it is slow."""
PATIENT = {"worker_register_timeout_seconds": 300, "gcs_server_request_timeout_seconds": 300}
"""Workers begin slowly on a busy machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, so that nothing but this process depends on it, and nodes that may be killed."""
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # sockets must have short names
    # Ray notes the cluster's address below /tmp/ray, which need not be there, and where other runs note theirs.
    os.environ["RAY_TMPDIR"] = folder
    os.mkdir(os.path.join(folder, "ray"))
    head = {
        "num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "temp_dir": folder,
        "_system_config": SOON | PATIENT,
    }  # fmt: skip
    made = started(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        grown(made)
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def started(start: Callable[[], Any]) -> Any:
    """What is begun again where Ray gives it up after half a minute, as it does on a busy machine."""
    for _ in range(3):
        with contextlib.suppress(Exception):
            return start()
    return start()


def living(cluster: Cluster) -> list[Any]:
    """The nodes that work and have not been killed."""
    return [one for one in cluster.worker_nodes if "raylet" in {name for name, _ in one.live_processes()}]


def grown(cluster: Cluster) -> None:
    """Have two nodes that work."""
    for node in cluster.worker_nodes - set(living(cluster)):
        node.kill_all_processes(check_alive=False, allow_graceful=False)
        cluster.worker_nodes.discard(node)
    while len(cluster.worker_nodes) < 2:
        started(lambda: cluster.add_node(wait=False, num_cpus=1, object_store_memory=STORE))
    for node in cluster.worker_nodes:
        cluster._wait_for_node(node, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, folders and links."""
    root: Path = tmp_path_factory.mktemp("in") / "files"
    for i in range(FILES):
        path = root / f"{i % 7}" / f"{i:04d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(np.random.default_rng(i).bytes(SIZE + i % 100) if i % 3 else bytes([i % 256]) * SIZE)
    (root / "empty").mkdir()
    (root / "3" / "link").symlink_to("0003.bin")
    os.link(root / "0" / "0000.bin", root / "6" / "second name")
    return root


def files_of(path: Path) -> dict[str, bytes]:
    """All that is in a folder."""
    return {one.name: one.read_bytes() for one in path.iterdir()}


def kill_this_node() -> None:
    """The raylet is the parent of its workers, and they do not outlive it."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_this_worker() -> None:
    """As the system does for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def once(path: str) -> bool:
    """Whether nobody was here before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


# ---- archives


@pytest.fixture(scope="module")
def one_machine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive as it is made without Ray."""
    path: Path = tmp_path_factory.mktemp("one") / "a.fld"
    with ArchiveWriter(path, shard_size=SHARD, compression="zstd", workers=2) as writer:
        writer.add_folder(FolderSource(folder))
    return path


def test_an_archive_is_the_same_though_a_node_is_killed_in_the_middle(
    cluster: Cluster, folder: Path, one_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = str(tmp_path / "killed")

    def task(place: Any, name: str, files: Any, compression: Any) -> Iterator[Any]:
        import fastloader.archive.writer as writing

        writing.CHUNK_FILES = 16  # so that a shard has a middle

        def make(path: Path, advance: Any) -> Any:
            def watch(count: int) -> None:
                advance(count)
                if files.number == 1 and once(killed):
                    assert list(path.parent.glob(f".{path.name}.*"))  # it is being written
                    kill_this_node()

            return creating.write_shard(path, files, compression, 0, watch)

        yield from clusters.delivered(place, name, make)

    monkeypatch.setattr(creating, "_task", task)
    assert len(living(cluster)) == 2
    told: list[int] = []
    made = creating.create_archive(
        tmp_path / "a.fld", FolderSource(folder), shard_size=SHARD, compression="zstd", advance=told.append
    )
    assert os.path.exists(killed)
    assert len(living(cluster)) == 1
    assert files_of(tmp_path / "a.fld") == files_of(one_machine)
    assert (made.num_files, sum(told)) == (FILES, FILES)
    assert sorted(os.listdir(tmp_path)) == ["a.fld", "killed"]
    assert fl.verify(tmp_path / "a.fld").ok
    grown(cluster)


def test_shards_are_sent_back_where_workers_do_not_see_our_disk(
    cluster: Cluster, folder: Path, one_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = str(tmp_path / "killed")
    monkeypatch.setattr(Place, "at", classmethod(lambda cls, place: Place(place, ".not-here")))

    def task(place: Any, name: str, files: Any, compression: Any) -> Iterator[Any]:
        import time

        import fastloader.ray.places as places

        places.PIECE = 100_000
        pieces = 0
        for event in creating_task(place, name, files, compression):
            yield event
            pieces += isinstance(event, bytes)
            if files.number == 2 and pieces == 2 and once(killed):
                time.sleep(2)  # what was sent is on its way
                kill_this_worker()

    creating_task = creating._task
    monkeypatch.setattr(creating, "_task", task)
    told: list[int] = []
    creating.create_archive(
        tmp_path / "a.fld", FolderSource(folder), shard_size=SHARD, compression="zstd", advance=told.append
    )
    assert os.path.exists(killed)
    assert files_of(tmp_path / "a.fld") == files_of(one_machine)
    assert sum(told) == FILES  # what was counted of the lost shard, if it came in time, is taken back


def test_a_shard_that_kills_every_worker_is_told_and_nothing_is_left(
    cluster: Cluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def task(place: Any, name: str, files: Any, compression: Any) -> Iterator[Any]:
        if files.number == 1:
            kill_this_worker()
        yield from creating_task(place, name, files, compression)

    creating_task = creating._task
    monkeypatch.setattr(creating, "_task", task)
    monkeypatch.setattr(clusters, "TRIES", 2)
    with pytest.raises(fl.StoreError, match="shard 1 was begun 2 times, and each time its worker was lost"):
        creating.create_archive(tmp_path / "a.fld", FolderSource(folder), shard_size=SHARD)
    assert os.listdir(tmp_path) == []


def test_what_is_wrong_with_a_file_is_told_as_on_one_machine(cluster: Cluster, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "old.fld").write_bytes(b"what was there")
    gone = FolderSource(folder, names=[b"1/0001.bin"])
    for shard in creating.plan_shards(gone, 1000):
        lost = creating.FilesOfShard(0, shard.root, (b"1/never.bin",), ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creating, "plan_shards", lambda source, limit: iter([lost]))
        with pytest.raises(fl.StoreError, match=r"never\.bin.*; it was looked for on .* a disk that all share"):
            creating.create_archive(tmp_path / "old.fld", gone, shard_size=SHARD)
    assert files_of(tmp_path) == {"old.fld": b"what was there"}


# ---- conversions, into a bucket and by command


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def objects(url: str, options: dict[str, Any]) -> dict[str, bytes]:
    """All that is in a folder of a bucket, by the last part of the names."""
    store, key = open_store(url, options)
    return {one.key.rpartition("/")[2]: bytes(store.read(one.key)) for one in store.list(key)}


def test_a_conversion_into_a_bucket_is_the_same_though_a_worker_is_killed(
    cluster: Cluster, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = str(tmp_path / "killed")
    options = s3.storage_options()
    texts = [{"i": i, "text": f"the {i}th text tells of {i * i} things, as all others do"} for i in range(9000)]
    dataset = fl.Dataset.from_sequence(texts)
    fields: Any = {"text": fl.TextField(dictionary=1024)}

    def task(place: Any, name: str, node: Any, run: Any, recipe: Any, dictionaries: Any) -> Iterator[Any]:
        for event in converting_task(place, name, node, run, recipe, dictionaries):
            if name == "shard-00002.fld" and once(killed):
                kill_this_worker()
            yield event

    converting_task = converting._task
    monkeypatch.setattr(converting, "_task", task)
    dataset.write("s3://ray/one.fld", fields, shard_size="80KB", compression="zstd", storage_options=options)
    converting.convert_dataset(
        dataset, "s3://ray/two.fld", fields, shard_size="80KB", compression="zstd", storage_options=options
    )
    assert os.path.exists(killed)
    one, two = (objects(f"s3://ray/{name}.fld", options) for name in ("one", "two"))
    assert len(two) > 5
    del one["manifest.json"], two["manifest.json"]  # these name folders that nobody else has
    assert one == two
    assert fl.open("s3://ray/two.fld", options)[8999] == texts[8999]
    assert fl.verify("s3://ray/two.fld", options).ok


def test_a_conversion_goes_on_with_the_shards_that_are_there(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = fl.Dataset.from_sequence([{"x": bytes([i % 256]) * 1000} for i in range(600)])
    dataset.write(tmp_path / "one.fld", shard_size="100KB")

    def task(place: Any, name: str, *arguments: Any) -> Iterator[Any]:
        if name == "shard-00003.fld" and os.path.exists(failing):
            yield clusters.Failed(fl.StoreError("the disk is full"))
        yield from converting_task(place, name, *arguments)

    failing = str(tmp_path / "failing")
    Path(failing).touch()
    converting_task = converting._task
    monkeypatch.setattr(converting, "_task", task)
    with pytest.raises(fl.StoreError, match="the disk is full"):
        converting.convert_dataset(dataset, tmp_path / "a.fld", shard_size="100KB")
    aside = tmp_path / ".a.fld.converting" / "data.fld"
    before = {path.name: path.stat().st_ino for path in aside.glob("shard-*")}
    assert before
    assert not (tmp_path / "a.fld").exists()
    Path(failing).unlink()
    dataset.write(tmp_path / "a.fld", shard_size="100KB")  # on one machine, for it is the same plan
    assert {name: (tmp_path / "a.fld" / name).stat().st_ino for name in before} == before
    assert files_of(tmp_path / "a.fld") == files_of(tmp_path / "one.fld")
    stream = fl.Dataset.from_generator(lambda: iter([{"x": 1}]))
    with pytest.raises(fl.FormatError, match="without random access"):
        converting.convert_dataset(stream, tmp_path / "b.fld", shard_size="100KB")


def test_the_commands_give_what_they_give_on_one_machine(
    cluster: Cluster, folder: Path, one_machine: Path, tmp_path: Path
) -> None:
    def command(*words: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fastloader", *map(str, words)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    on = ("--engine", "ray", "--address", cluster.address)
    said = command("create", *on, "-s", SHARD, "--compress", "zstd", tmp_path / "a.fld", folder)
    assert said.startswith(f"{tmp_path / 'a.fld'}: {FILES} files, ")
    assert files_of(tmp_path / "a.fld") == files_of(one_machine)
    command("convert", "-q", *on, "--shard-size", "450KB", folder, tmp_path / "b.fld")
    command("convert", "-q", "--shard-size", "450KB", folder, tmp_path / "c.fld")
    assert files_of(tmp_path / "b.fld") == files_of(tmp_path / "c.fld")


# ---- Ray Data


FIELDS = {
    "n": fl.IntField(), "f": fl.FloatField(), "t": fl.TextField(), "b": fl.BytesField(), "j": fl.JSONField(),
    "fixed": fl.NDArrayField("float32", (2, 3)), "ragged": fl.NDArrayField("int16", (None,)),
    "image": fl.PNGImageField(), "maybe": fl.IntField(),
}  # fmt: skip


def sample(i: int) -> dict[str, Any]:
    """One of each."""
    return {
        "n": i, "f": i / 4, "t": f"text {i}", "b": bytes([i % 256]) * (i % 50), "j": {"a": [i, str(i)]},
        "fixed": np.full((2, 3), i, np.float32), "ragged": np.arange(i % 5, dtype=np.int16),
        "image": np.full((4 + i % 3, 5, 3), i % 256, np.uint8), "maybe": None if i % 4 == 0 else i,
    }  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays too."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return bool(one == other)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several shards of several pages."""
    path: Path = tmp_path_factory.mktemp("data") / "x.fld"
    with fl.DatasetWriter(path, FIELDS, page_size=4096, shard_size=40_000) as writer:
        writer.write_many(map(sample, range(600)))
    return path


def test_read_fld_gives_the_samples_in_order_by_runs_of_pages(cluster: Cluster, dataset: Path) -> None:
    found = read_fld(str(dataset), override_num_blocks=5)
    rows = found.take_all()
    assert [row["n"] for row in rows] == list(range(600))
    for row in (rows[0], rows[7], rows[599]):
        wanted = sample(row["n"])
        assert {name for name in wanted if not same(row[name], wanted[name])} == set(), row
    assert found.count() == 600
    assert found.materialize().num_blocks() == 5
    stored = fl.open(dataset).dataset
    firsts = {int(f) for shard, start in enumerate(stored.starts[:-1].tolist())
              for f in stored.file(shard).pages()["first_sample"] + np.uint64(start)}  # fmt: skip
    runs = runs_of_pages(stored, 5)
    assert [end for _, end in runs[:-1]] == [first for first, _ in runs[1:]]
    assert {first for first, _ in runs} <= firsts
    assert len(runs_of_pages(stored, 10**6)) > 20


def test_read_fld_reads_only_the_fields_that_are_asked_for(cluster: Cluster, dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "y.fld")
    stored = fl.open(tmp_path / "y.fld").dataset
    selected = read_fld(str(tmp_path / "y.fld")).select_columns(["n"])
    for number, shard in enumerate(stored.shards):  # whoever reads an image fails
        file = stored.file(number)
        damaged = bytearray((tmp_path / "y.fld" / shard.path).read_bytes())
        for row in range(file.num_samples):
            at, size, *_ = file.payloads(7).extent(row)
            damaged[at : at + size] = bytes(size)
        (tmp_path / "y.fld" / shard.path).write_bytes(damaged)
    some = read_fld(str(tmp_path / "y.fld"), fields=["t", "n"])
    assert some.schema().names == ["t", "n"]
    assert [row["t"] for row in some.take(3)] == ["text 0", "text 1", "text 2"]
    with pytest.raises(fl.KeyNotFoundError, match="unknown 'no'"):
        read_fld(str(dataset), fields=["no"])
    projected = FldDatasource(fl.open(dataset).dataset, ["n", "image"]).apply_projection({"n": "n"})
    (block,) = projected.get_read_tasks(1)[0]()
    assert block.column_names == ["n"]
    assert selected.take(2) == [{"n": 0}, {"n": 1}]
    with pytest.raises(Exception, match="field 'image'"):
        read_fld(str(tmp_path / "y.fld")).take_all()
    (block,) = projected.apply_projection({}).get_read_tasks(1)[0]()
    assert (block.num_rows, block.num_columns) == (600, 0)


def test_write_fld_makes_shards_of_what_read_fld_reads(
    cluster: Cluster, dataset: Path, s3: S3Server, tmp_path: Path
) -> None:
    fields = {"image": fl.PNGImageField(), "maybe": fl.IntField(), "j": fl.JSONField()}
    for path, options in ((str(tmp_path / "z.fld"), None), ("s3://ray/z.fld", s3.storage_options())):
        for _ in range(2):  # the second replaces the first
            rows = read_fld(str(dataset), override_num_blocks=6)
            write_fld(rows, path, fields, shard_size="20KB", storage_options=options)
        with fl.open(path, options) as reader:
            assert len(reader.dataset.shards) > 2
            assert reader.fields["fixed"] == FIELDS["fixed"]
            assert len(reader) == 600
            for i in range(0, 600, 37):
                wanted, found = sample(i), reader[i]
                assert {name for name in wanted if not same(found[name], wanted[name])} == set()
        assert fl.verify(path, options, decode=True).ok
    assert sorted({name[:5] for name in files_of(tmp_path / "z.fld")}) == ["manif", "shard"]
    assert len(objects("s3://ray/z.fld", s3.storage_options())) == len(reader_shards("s3://ray/z.fld", s3)) + 1
    assert os.listdir(tmp_path) == ["z.fld"]


def reader_shards(url: str, s3: S3Server) -> Any:
    """The shards of a dataset in a bucket."""
    return fl.open(url, s3.storage_options()).dataset.shards


def test_what_write_tasks_leave_that_fail_is_not_seen(cluster: Cluster, s3: S3Server, tmp_path: Path) -> None:
    once_there = str(tmp_path / "once")

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 550:
            raise ValueError("a bad row")
        return row

    def die_once(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 550 and once(once_there):
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    options = s3.storage_options()
    for path, settings in ((str(tmp_path / "a.fld"), None), ("s3://ray/failed.fld", options)):
        with pytest.raises(Exception, match="a bad row"):
            write_fld(
                ray.data.range(1000, override_num_blocks=8).map(fail), path, shard_size=1, storage_options=settings
            )
    assert os.listdir(tmp_path) == []
    assert objects("s3://ray/failed.fld", options) == {}
    write_fld(ray.data.range(1000, override_num_blocks=8).map(die_once), str(tmp_path / "b.fld"), shard_size=1)
    assert os.path.exists(once_there)
    assert fl.open(tmp_path / "b.fld").read_batch(range(1000))["id"].tolist() == list(range(1000))
    assert fl.verify(tmp_path / "b.fld").ok


def test_files_are_read_on_nodes_that_see_them(
    cluster: Cluster, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nodes.nodes_that_see([dataset / "manifest.json"]) is None
    ids = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
    facts = nodes._facts

    def elsewhere(paths: Any) -> Any:
        blind = ray.is_initialized() and ray.get_runtime_context().get_node_id() == ids[1]
        return [None] * len(paths) if blind else facts(paths)

    monkeypatch.setattr(nodes, "_facts", elsewhere)
    assert nodes.nodes_that_see([dataset / "manifest.json"]) == [ids[0]]

    def here(row: dict[str, Any]) -> dict[str, Any]:
        return {"n": row["n"], "node": ray.get_runtime_context().get_node_id()}

    rows = read_fld(str(dataset), fields=["n"], override_num_blocks=6).map(here).take_all()
    assert {row["node"] for row in rows} == {ids[0]}  # the reads, and the map that is fused with them
    monkeypatch.setattr(nodes, "_facts", lambda paths: [object() for _ in paths])
    with pytest.raises(fl.StoreError, match="no node of the cluster sees this file"):
        read_fld(str(dataset))


# ---- Ray Train


def test_a_loader_is_dealt_to_the_workers_of_ray_train(cluster: Cluster, dataset: Path, tmp_path: Path) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def train() -> None:
        with fl.open(dataset) as reader, fl.DataLoader(reader, 16, shuffle=True, seed=3, fields=["n"]) as loader:
            seen = np.concatenate([batch["n"] for batch in loader])
        np.save(tmp_path / f"{ray.train.get_context().get_world_rank()}.npy", seen)

    run = RunConfig(storage_path=str(tmp_path / "runs"))
    DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
    ranks = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    assert sorted(np.concatenate(ranks).tolist()) == list(range(600))
    assert abs(len(ranks[0]) - len(ranks[1])) <= 16
