"""What takes a GPU to show of TorchLoader: its batches are the CPU's, the slots are pinned, nothing waits.

``python bench/gpu/check.py`` on a machine with CUDA; it raises where something does not hold.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchLoader
from fastloader.torch.resampling import headers, resample, resample_plainly

PIPELINE = [ops.RandomResizedCrop(32), ops.HorizontalFlip()]
TAIL = [ops.Normalize((120.0, 110.0, 100.0), (58.0, 57.0, 56.0)), ops.Cast("bfloat16"), ops.Layout("CHW")]


def write(path: Path, samples: int = 200, height: int = 50, width: int = 60) -> None:
    """Pictures and numbers."""
    rng = np.random.default_rng(0)

    def picture() -> np.ndarray[Any, Any]:
        small = torch.from_numpy(rng.integers(0, 256, (1, 3, height // 8, width // 8)).astype("f4"))
        large = torch.nn.functional.interpolate(small, (height, width), mode="bilinear")[0]
        return large.permute(1, 2, 0).round().to(torch.uint8).numpy()

    with fl.DatasetWriter(
        path, {"image": fl.JPEGImageField(), "n": fl.IntField(), "x": fl.NDArrayField("float32", (300,))}
    ) as writer:
        for i in range(samples):
            writer.write_sample({"image": picture(), "n": i, "x": np.full(300, i, "f4")})


def check_decoding(path: Path, cpu: list[dict[str, Any]], options: dict[str, Any]) -> None:
    """What nvJPEG decodes is close to what the engine does, and the same every time, also resumed."""
    for decode, given in (("gpu", None), ("hybrid", 0.5), ("hybrid", None)):
        made, states, share = [], [], given
        for _ in range(2):
            loader = TorchLoader(path, 16, device="cuda", decode=decode, gpu_share=share, **options)
            # Who measures waits for the GPU; nobody else does.
            torch.cuda.set_sync_debug_mode("default" if decode == "hybrid" and share is None else "error")
            batches, states = [], []
            for batch in loader:
                batches.append(batch)
                states.append(loader.state_dict())
            torch.cuda.set_sync_debug_mode("default")
            made.append(batches)
            share = loader.gpu_share if decode == "hybrid" else None
        print(f"decode={decode!r} left {loader.gpu_share} to the GPU")
        apart = []
        for one, other, theirs in zip(*made, cpu, strict=True):
            assert torch.equal(one["image"], other["image"]), decode
            assert torch.equal(one["n"], other["n"])
            apart.append((one["image"].cpu().float() - theirs["image"].cpu().float()).abs().mean().item())
        assert max(apart) < 0.05, apart  # of a standard deviation
        for step in (0, 5, len(made[0]) - 1):
            rest = TorchLoader(path, 16, device="cuda", decode=decode, gpu_share=given, **options)
            rest.load_state_dict(json.loads(json.dumps(states[step])))
            for one, other in zip(rest, made[0][step + 1 :], strict=True):
                assert torch.equal(one["image"], other["image"])


def check_resampling(path: Path) -> None:
    """The kernel's bits are those of the plain way, and of the CPU."""
    for ops_ in (
        PIPELINE,
        [ops.Resize((37, 45), filter="lanczos")],
        [ops.RandomCrop(20)],
        [ops.Resize(40), ops.CenterCrop(30)],
    ):
        with fl.open(path) as reader, fl.DataLoader(reader, 16, pipelines={"image": ops_}) as loader:
            size = loader.image_size("image")
            loader.parts = {"image": 0.8}
            for batch in loader:
                rows = batch["image"]
                parts = headers(rows)
                there = [(i, part["at"], part["at"] + part["bytes"]) for i, part in enumerate(parts) if part["bytes"]]
                files = [torch.from_numpy(rows[i, begin:end]) for i, begin, end in there]
                images = [torchvision.io.decode_jpeg(file, torchvision.io.ImageReadMode.RGB) for file in files]
                made = [
                    torch.zeros((len(rows), *size, 3), dtype=torch.uint8, device=device) for device in ("cpu", "cuda")
                ]
                resample_plainly(torch.from_numpy(rows), parts, images, made[0])
                resample(torch.from_numpy(rows).cuda(), parts, [image.cuda() for image in images], made[1])
                assert torch.equal(made[0], made[1].cpu()), ops_


def check_under_load(path: Path) -> None:
    """While the GPU is busy with something else, batches are what they are while it is idle."""
    options: dict[str, Any] = {"pipelines": {"image": [ops.RandomResizedCrop(160), *PIPELINE[1:]]}, "num_workers": 8}
    for decode in ("gpu", "hybrid"):
        sums = []
        for busy in (False, True):
            loader = TorchLoader(path, 64, device="cuda", decode=decode, gpu_share=0.7 if decode == "hybrid" else None,
                                 **options)  # fmt: skip
            matrix = torch.randn(4096, 4096, device="cuda")
            found = []
            for epoch in range(4):
                loader.set_epoch(epoch)
                for batch in loader:
                    if busy:
                        for _ in range(3):
                            matrix = torch.nn.functional.normalize(matrix @ matrix)
                    weights = torch.arange(batch["image"][0].numel(), device="cuda").view(batch["image"][0].shape) % 251
                    found.append((batch["image"].long() * weights).sum((1, 2, 3)))
            sums.append(torch.cat(found).cpu())
        assert torch.equal(*sums), f"decode={decode!r}: other pixels while the GPU is busy"


def main() -> None:
    """Every promise."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.fld"
        write(path)
        options = {"pipelines": {"image": PIPELINE + TAIL}, "seed": 1, "num_workers": 4}
        for channels_last in (False, True):
            cpu = list(TorchLoader(path, 16, channels_last=channels_last, **options))
            for finish in (True, False):
                gpu = TorchLoader(path, 16, device="cuda", channels_last=channels_last, finish_on_gpu=finish, **options)
                for _ in range(3):
                    gpu.set_epoch(0)
                    for ours, theirs in zip(gpu, cpu, strict=True):
                        assert ours["image"].is_cuda
                        assert ours["image"].dtype == theirs["image"].dtype == torch.bfloat16
                        assert torch.equal(ours["n"].cpu(), theirs["n"])
                        assert torch.equal(ours["x"].cpu(), theirs["x"])
                        assert torch.allclose(
                            ours["image"].cpu().float(), theirs["image"].float(), rtol=0.01, atol=0.02
                        )
                        form = torch.channels_last if channels_last else torch.contiguous_format
                        assert ours["image"].is_contiguous(memory_format=form)
                pins = gpu.loader.pinning
                assert pins is not None
                assert pins.pinned > 0, "nothing was pinned"
                assert pins.refused == 0
                gpu.close()
        # A batch in a slot is pinned, and goes back to the ring when its copy is over.
        loader = TorchLoader(path, 16, device="cuda", **options)
        host = next(iter(loader.loader))
        assert torch.from_numpy(host["x"]).is_pinned()
        del host
        for _ in range(5):
            for _batch in loader:
                pass
        made = loader.loader.stats()["slots"]
        assert made < 20, f"{made} slots"
        # States are behind what was given, whatever is under way.
        loader.set_epoch(0)
        whole = [batch["n"].tolist() for batch in loader]
        for step in range(len(whole)):
            running = TorchLoader(path, 16, device="cuda", ahead=3, **options)
            batches = iter(running)
            for _ in range(step):
                next(batches)
            state = json.loads(json.dumps(running.state_dict()))
            rest = TorchLoader(path, 16, device="cuda", **options)
            rest.load_state_dict(state)
            assert [batch["n"].tolist() for batch in rest] == whole[step:]
        # Nothing in the consumer's thread waits for the GPU.
        torch.cuda.set_sync_debug_mode("error")
        loader.set_epoch(0)
        for batch in loader:
            batch["image"].float().mean()
        torch.cuda.set_sync_debug_mode("default")
        # Two loaders in one process.
        both = zip(
            TorchLoader(path, 16, device="cuda", **options),
            TorchLoader(path, 8, device="cuda", **options),
            strict=False,
        )
        for one, other in both:
            assert one["n"].is_cuda
            assert other["n"].is_cuda
        # Used on another stream at once: the values are there.
        side = torch.cuda.Stream()
        for batch, theirs in zip(TorchLoader(path, 16, device="cuda", **options), cpu, strict=True):
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.current_stream())
                assert torch.equal(batch["n"].cpu(), theirs["n"])
        check_resampling(path)
        check_decoding(path, cpu, options)
        write(Path(folder) / "large.fld", 600, 300, 400)
        check_under_load(Path(folder) / "large.fld")
    print("all holds on", torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
