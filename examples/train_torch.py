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

import torch
from pictures import CLASSES, TEST, pipeline, written

from fastloader import ops
from fastloader.torch import TorchLoader

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def loader(path: Path, train: bool, batch: int, **options: object) -> TorchLoader:
    """Batches of images as a network of torch takes them."""
    pipelines = {"image": [*pipeline(train), ops.Layout("CHW")]}
    return TorchLoader(path, batch, device=DEVICE, pipelines=pipelines, shuffle=train, num_workers=2, **options)


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
        torch.distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    if rank == 0:
        written(chosen.folder)
    if world > 1:
        torch.distributed.barrier()
    train, test = written(chosen.folder)
    checkpoint = chosen.folder / "checkpoint.pt"

    torch.manual_seed(0)
    model = network().to(DEVICE)
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
        torch.distributed.barrier()  # torch may abort a rank that ends while another still talks to it
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
