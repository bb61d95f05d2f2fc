"""What people wrap around torch, in the real packages: torchdata, Lightning, Accelerate, torch.compile."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from itertools import chain

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchIterableDataset, TorchLoader, TorchMapDataset

COUNT = 53


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("companions") / "x.fld"
    fields = {
        "n": fl.IntField(), "x": fl.NDArrayField("float32", (3,)), "tokens": fl.NDArrayField("int32", (None,)),
        "image": fl.PNGImageField(),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            writer.write_sample({
                "n": i, "x": rng.standard_normal(3, np.float32), "tokens": np.arange(i % 9, dtype=np.int32),
                "image": rng.integers(0, 256, (10 + i % 3, 12, 3), np.uint8),
            })  # fmt: skip
    return path


def numbers(batches):
    return [batch["n"].tolist() for batch in batches]


def by_number(path):
    return {"dataset": TorchMapDataset(path, ["n", "x"]), "batch_size": 8, "shuffle": True}


def in_samples(path):
    return {"dataset": TorchIterableDataset(path, seed=5, fields=["n", "x"]), "batch_size": 8}


def in_batches(path):
    return {"dataset": TorchIterableDataset(path, 8, seed=5, fields=["n", "x"]), "batch_size": None}


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("given", [by_number, in_samples, in_batches])
def test_torchdata_goes_on_at_every_step_with_the_identical_rest(path, given, workers):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make():
        options = {"num_workers": workers, "generator": torch.Generator().manual_seed(3), **given(path)}
        return StatefulDataLoader(**options, multiprocessing_context="fork" if workers else None)

    loader = make()
    epochs = [numbers(loader) for _ in range(3)]
    assert sorted(chain.from_iterable(epochs[0])) == list(range(COUNT))
    assert epochs[0] != epochs[1]
    for stop in range(len(epochs[0]) + 2):
        loader = make()
        running = iter(loader)
        for _ in zip(range(stop), running, strict=False):
            pass
        over = stop > len(epochs[0])
        if over:
            assert next(running, None) is None
        resumed = make()
        resumed.load_state_dict(loader.state_dict())
        rest, behind = numbers(resumed), numbers(resumed)
        if given is by_number:  # a shuffle of torch's own goes on from its generator, which torchdata does not restore
            assert over or rest == epochs[0][stop:]
        else:
            assert [rest, behind] == ([epochs[1], epochs[2]] if over else [epochs[0][stop:], epochs[1]])


def test_torch_loader_obeys_torchdatas_protocol(path):
    from torchdata.stateful_dataloader import Stateful

    def make():
        return TorchLoader(path, 8, seed=5, num_workers=1, fields=["n"])

    loader = make()
    assert isinstance(loader, Stateful)
    epochs = [numbers(loader) for _ in range(3)]
    for stop in range(len(epochs[0]) + 2):
        loader = make()
        running = iter(loader)
        for _ in range(min(stop, len(epochs[0]))):
            next(running)
        over = stop > len(epochs[0])
        if over:
            assert next(running, None) is None
        resumed = make()
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        iter(resumed)  # asking for an iterator takes nothing
        assert numbers(resumed) == (epochs[1] if over else epochs[0][stop:])
        assert numbers(resumed) == (epochs[2] if over else epochs[1])


@pytest.fixture(scope="module")
def lightning():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTNING_DISABLE_TIPS", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import lightning
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        yield lightning


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_lightning_resumes_from_the_checkpoint_of_any_step(path, tmp_path, lightning):
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(3, 1)
            self.seen, self.validated = [], []

        def training_step(self, batch, number):
            self.seen.append((self.current_epoch, number, batch["n"].tolist()))
            return (self.layer(batch["x"])[:, 0] - batch["n"]).square().mean()

        def validation_step(self, batch, number):
            self.validated += batch["n"].tolist()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    def fitted(checkpoint=None, **options):
        model = Model()
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path, num_sanity_val_steps=0, **options,
        )  # fmt: skip
        with (
            TorchLoader(path, 8, seed=5, num_workers=1, fields=["n", "x"]) as train,
            TorchLoader(path, 16, shuffle=False, num_workers=1, fields=["n"]) as test,
        ):
            trainer.fit(model, train, test, ckpt_path=checkpoint)
        return model

    kept = [
        ModelCheckpoint(tmp_path / "steps", save_top_k=-1, every_n_train_steps=1, filename="{step}"),
        ModelCheckpoint(tmp_path / "epochs", save_top_k=-1, every_n_epochs=1, filename="{epoch}"),
    ]
    whole = fitted(callbacks=kept)
    with TorchLoader(path, 8, seed=5, num_workers=1, fields=["n"]) as loader:
        assert [n for _, _, n in whole.seen] == [n for _ in range(3) for n in numbers(loader)]
    assert whole.validated == 3 * list(range(COUNT))
    steps = len(whole.seen) // 3
    for step in (1, steps - 1, steps, steps + 1, 2 * steps, 3 * steps - 1):
        rest = fitted(tmp_path / "steps" / f"step={step}.ckpt", enable_checkpointing=False)
        assert rest.seen == whole.seen[step:]
        assert torch.equal(rest.layer.weight, whole.layer.weight)
    for epoch in range(3):
        rest = fitted(tmp_path / "epochs" / f"epoch={epoch}.ckpt", enable_checkpointing=False)
        assert rest.seen == whole.seen[(epoch + 1) * steps :]
        assert torch.equal(rest.layer.weight, whole.layer.weight)


ON_TWO = """
import json, pathlib, sys
import lightning, torch
from fastloader.torch import TorchLoader

path, folder = sys.argv[1], pathlib.Path(sys.argv[2])

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(3, 1), []

    def train_dataloader(self):
        ranks = {"rank": self.global_rank, "world_size": self.trainer.world_size}
        return TorchLoader(path, 8, seed=5, num_workers=1, fields=["n", "x"], remainder="pad", **ranks)

    def training_step(self, batch, number):
        self.seen += batch["n"].tolist()
        return self.layer(batch["x"]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

    def on_train_end(self):
        (folder / f"{self.global_rank}.json").write_text(json.dumps(self.seen))

options = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
lightning.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", **options).fit(Model())
"""


def test_lightning_on_two_ranks_deals_each_sample_once(path, tmp_path):
    (tmp_path / "fit.py").write_text(ON_TWO)
    command = [sys.executable, tmp_path / "fit.py", path, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert len(seen[0]) == len(seen[1]) == -(-COUNT // 2)
    assert set(seen[0]) | set(seen[1]) == set(range(COUNT))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_accelerate_takes_it_as_a_plain_loader(path):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 1)
    with TorchLoader(path, 8, seed=5, num_workers=1, fields=["n", "x"]) as loader:
        model, optimizer, prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3), loader)
        assert prepared is loader  # nothing wraps it, so that its state and its shares of ranks are its own
        accelerator.register_for_checkpointing(prepared)
        before = model.weight.detach().clone()
        seen = []
        for batch in prepared:
            seen += batch["n"].tolist()
            with accelerator.accumulate(model):
                accelerator.backward((model(batch["x"])[:, 0] - batch["n"]).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        assert sorted(seen) == list(range(COUNT))
        assert not torch.equal(before, model.weight)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_accelerate_keeps_the_loaders_state_with_its_own(path, tmp_path):
    from accelerate import Accelerator

    whole = numbers(TorchLoader(path, 8, seed=5, num_workers=1, fields=["n"]))
    for step in (1, 3):
        states = []
        for rest in (False, True):
            accelerator = Accelerator(cpu=True)
            with TorchLoader(path, 8, seed=5, num_workers=1, fields=["n"]) as loader:
                accelerator.register_for_checkpointing(accelerator.prepare(loader))
                if rest:
                    accelerator.load_state(tmp_path / f"{step}")
                    states.append(numbers(loader))
                else:
                    states.append([batch["n"].tolist() for _, batch in zip(range(step), loader, strict=False)])
                    accelerator.save_state(tmp_path / f"{step}")
        assert states[1] == whole[step:]


PIPELINE = [ops.RandomResizedCrop(8), ops.Normalize(110.0, 60.0), ops.Layout("CHW")]


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ({"drop_last": True, "pad": {"tokens": 16}}, 1),
        ({"drop_last": True, "pad": {"tokens": fl.Pad(multiple_of=8)}}, 1),
        ({"pad": {"tokens": 16}}, 2),  # the last batch is smaller
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_compiled_steps_see_stable_shapes(path, options, graphs, channels_last):
    torch._dynamo.reset()
    counter = CompileCounter()

    @torch.compile(backend=counter, dynamic=False)
    def step(image, tokens, lengths):
        return image.float().mean() + tokens.float().mean() + lengths.float().mean()

    with TorchLoader(
        path, 8, pipelines={"image": PIPELINE}, channels_last=channels_last, num_workers=1, **options
    ) as loader:
        for _ in range(2):
            for batch in loader:
                step(batch["image"], batch["tokens"], batch["tokens_lengths"])
    assert counter.frame_count == graphs
