"""The process of an archive that is mounted in the background: told what by JSON on standard input; says ``ready``."""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
from typing import Any

from fastloader.errors import FastLoaderError
from fastloader.mount.mounting import mount


def main() -> None:
    """Mount, tell, and let go of the terminal."""
    told: dict[str, Any] = json.load(sys.stdin)

    def ready(_: object) -> None:
        print("ready", flush=True)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)

    try:
        mount(told["path"], told["folder"], told["settings"], allow_other=told["allow_other"], ready=ready)
    except (FastLoaderError, OSError) as error:
        print(base64.b64encode(pickle.dumps(error)).decode(), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
