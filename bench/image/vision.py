"""torchvision, also where torch is a CPU build.

torchvision's wheels are built for CUDA and refuse to load beside a torch without it, although the JPEG decoder and the
transforms need nothing of CUDA. Where torch has no CUDA, the two libraries that are missed are made, empty but for the
names that are asked for; the code for the CPU runs as it was shipped. Import this before what imports torchvision.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path

import torch


def _stand_in() -> None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not in this environment")
    decoder = Path(spec.submodule_search_locations[0]) / "image.so"
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", decoder], capture_output=True, text=True, check=True
    ).stdout
    names = [line.split()[-1] for line in listed.splitlines() if "4cuda" in line]
    stubs = "#include <stdlib.h>\n" + "\n".join(f"void {name}(void) {{ abort(); }}" for name in names)
    for library, source in (("libc10_cuda.so", stubs), ("libtorch_cuda.so", "")):
        path = Path(sys.prefix) / library
        if not path.exists():
            command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", path, f"-Wl,-soname,{library}"]
            subprocess.run(command, input=source, text=True, check=True)
        ctypes.CDLL(str(path))
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


if torch.version.cuda is None:
    _library = torch.library.Library("torchvision", "DEF")  # its definitions last as long as it does
    _stand_in()

import torchvision  # noqa: E402
from torchvision.io import ImageReadMode, decode_jpeg  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

__all__ = ["ImageReadMode", "decode_jpeg", "functional", "torchvision", "v2"]
