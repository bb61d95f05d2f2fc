"""Train an image classifier with PyTorch: on one process or several, resumed where it was killed.

    python examples/train_torch.py RUN_FOLDER
    torchrun --nproc-per-node 2 examples/train_torch.py RUN_FOLDER

The images are generated: shapes in four classes, with noise. A small network reaches 90 % of unseen ones in four
epochs. A checkpoint is written every few steps: after a kill the same command goes on from there, and sees just the
batches it would have seen.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchLoader

CLASSES, SIDE = 4, 32
TRAIN, TEST = 2048, 512


def picture(rng: np.random.Generator, label: int) -> np.ndarray:
    """A disc, a square, a cross or a ring, somewhere, in some colour, under noise."""
    y, x = np.mgrid[: SIDE + 8, : SIDE + 8]
    at, size = rng.uniform(14, 26, 2), rng.uniform(6, 10)
    far = np.hypot(y - at[0], x - at[1])
    wide = np.maximum(abs(y - at[0]), abs(x - at[1]))
    near = np.minimum(abs(y - at[0]), abs(x - at[1]))
    shape = [far < size, wide < size * 0.85, (near < size / 4) & (wide < size), (far < size) & (far > size * 0.6)][
        label
    ]
    image = rng.integers(0, 90, 3) + shape[..., None] * rng.integers(90, 160, 3) + rng.normal(0, 12, (*far.shape, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


def write(path: Path, samples: int, seed: int) -> None:
    """A dataset of such pictures."""
    rng = np.random.default_rng(seed)
    with fl.DatasetWriter(path, {"image": fl.JPEGImageField(quality=95), "label": fl.IntField()}) as writer:
        for number in range(samples):
            writer.write_sample({"image": picture(rng, number % CLASSES), "label": number % CLASSES})


def loader(path: Path, train: bool, batch: int, **options: object) -> TorchLoader:
    """Crops and flips for training, the middle for testing."""
    crop = [ops.RandomCrop(SIDE), ops.HorizontalFlip()] if train else [ops.CenterCrop(SIDE)]
    pipeline = [*crop, ops.Normalize(110.0, 60.0), ops.Layout("CHW")]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return TorchLoader(
        path, batch, device=device, pipelines={"image": pipeline}, shuffle=train, num_workers=2, **options
    )


def network() -> torch.nn.Module:
    """Three layers of convolutions."""
    layers: list[torch.nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [
            torch.nn.Conv2d(before, after, 3, padding=1),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
        ]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, CLASSES))


def accuracy(model: torch.nn.Module, path: Path) -> float:
    """The share of test images that are told right, by one process."""
    model.eval()
    right = 0
    with torch.no_grad(), loader(path, False, 128, rank=0, world_size=1) as batches:
        for batch in batches:
            right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
    model.train()
    return right / TEST


def main() -> None:
    """Train, with checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
    chosen = parser.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    train, test, checkpoint = (chosen.folder / name for name in ("train.fld", "test.fld", "checkpoint.pt"))
    if rank == 0:
        for path, samples, seed in ((train, TRAIN, 0), (test, TEST, 1)):
            if not path.exists():
                write(path, samples, seed)
    if world > 1:
        torch.distributed.barrier()

    torch.manual_seed(0)
    model = network().to("cuda" if torch.cuda.is_available() else "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    batches = loader(train, True, 64 // world, seed=7, remainder="drop")
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.load_state_dict(saved["loader"])
        step = saved["step"]
        print(f"rank {rank}: goes on behind step {step}", flush=True)
    parallel = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    steps = len(batches)
    while step < chosen.epochs * steps:
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(parallel(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0 and step % chosen.save_every == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": batches.state_dict(),
                }
                torch.save({**state, "step": step}, checkpoint.with_suffix(".new"))
                os.replace(checkpoint.with_suffix(".new"), checkpoint)
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
    if rank == 0:
        print(f"accuracy on unseen images: {accuracy(model, test):.3f}", flush=True)
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
