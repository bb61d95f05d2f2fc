"""Boxes and keypoints that stay where they are in the picture, whatever becomes of the picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Follow:
    """The pipeline of a field of boxes or keypoints: they move as the pixels of the field ``image`` do.

    Every crop, resize, flip, padding, rotation and shift of the image's pipeline moves them along. As many come out as
    went in, in the same order, so that labels of boxes stay theirs. ``clip`` cuts boxes to the picture; what lies
    outside altogether becomes an empty box on its edge. Keypoints outside stay where they are, and with ``visibility``
    theirs becomes 0. ``returns`` names a field of the batch: of each box the share of its area that is in the picture,
    of each keypoint whether it is.
    """

    image: str = "image"
    clip: bool = True
    returns: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.image, str) or not self.image:
            raise TypeError(f"image={self.image!r}: the name of a field of images")
        if not isinstance(self.clip, bool):
            raise TypeError(f"clip={self.clip!r}: True or False")
        if self.returns is not None and (not isinstance(self.returns, str) or not self.returns):
            raise TypeError(f"returns={self.returns!r}: a name, or None")
