"""Images turned upright."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastloader.ops.base import Op, Pixels, check_pixels


@dataclass(frozen=True)
class Orient(Op):
    """The image turned and mirrored as its EXIF data says, as Pillow's ``ImageOps.exif_transpose`` does it.

    Comes first in a pipeline. Crops behind it are still decoded without the rest. A field with ``orient=True`` gives
    upright images by itself; there this changes nothing.
    """

    def output(self, given: Pixels) -> Pixels:
        """Height and width may change places."""
        check_pixels(given)
        return replace(given, height=None, width=None)
