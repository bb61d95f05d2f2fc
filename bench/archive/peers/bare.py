"""The least that a file costs in Python: its bytes from where they are known to lie, by a copy or a read of the disk.

Nothing is looked up and nothing is checked. Places are those of the .fld archive.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from task import HOT, READ, READ_COLD, drop, forget_names, picked, told

sys.path.pop(0)  # a file beside this one has the library's name
import numpy as np

from fastloader.archive import Archive

mode, place = sys.argv[1], Path(sys.argv[3])
picks = picked(json.loads(Path(sys.argv[4]).read_text()), READ if mode == HOT else READ_COLD)
archive = Archive(place)
views = [archive.view(path) for path in picks]
if mode == HOT:
    told(lambda: sum(len(bytes(view)) for view in views))
else:
    base = archive.dataset.file(0).bytes.ctypes.data
    spans = [(len(view), np.frombuffer(view, np.uint8).ctypes.data - base) for view in views]
    del views, archive  # what is mapped stays in memory
    gc.collect()
    file = os.open(place, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    drop([place])
    forgotten = forget_names()
    told(lambda: sum(len(os.pread(file, *span)) for span in spans), forgotten)
