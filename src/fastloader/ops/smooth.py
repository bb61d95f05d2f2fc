"""Operations that look at a pixel's neighbours: sharper, or blurred."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.ops.base import PixelOp, Pixels, Step, both_sides, check_pixels, likelihood, number, spread

_MOST = 1e6


@dataclass(frozen=True)
class Sharpness(PixelOp):
    """Pillow's sharpness: 0 blurs, 1 changes nothing, 2 sharpens. Two numbers are a range to draw from."""

    factor: float | tuple[float, float]
    p: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.factor, tuple | list):
            object.__setattr__(self, "factor", spread("factor", self.factor, 0, _MOST))
        else:
            object.__setattr__(self, "factor", number("factor", self.factor, 0, _MOST))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self) -> Step:
        """A blend with the smoothed image."""
        least, most = self.factor if isinstance(self.factor, tuple) else (self.factor, self.factor)
        return Step("sharpness", numbers=(self.p, least, most))


@dataclass(frozen=True)
class GaussianBlur(PixelOp):
    """Blurred by ``kernel_size`` weights, one odd number or (across, down), the border reflected, as torchvision does.

    ``sigma`` is one number or a range to draw from. An image too small to be reflected is an error of its sample.
    """

    kernel_size: int | tuple[int, int]
    sigma: float | tuple[float, float] = (0.1, 2.0)
    p: float = 1.0

    def __post_init__(self) -> None:
        across, down = both_sides("kernel_size", self.kernel_size)
        if across % 2 == 0 or down % 2 == 0:
            raise ValueError(f"kernel_size={self.kernel_size!r}: odd numbers")
        object.__setattr__(self, "kernel_size", (across, down))
        given = self.sigma if isinstance(self.sigma, tuple | list) else (self.sigma, self.sigma)
        object.__setattr__(self, "sigma", spread("sigma", given, 1e-3, _MOST))
        object.__setattr__(self, "p", likelihood(self.p))

    def output(self, given: Pixels) -> Pixels:
        """Unchanged in shape."""
        check_pixels(given)
        across, down = both_sides("kernel_size", self.kernel_size)
        for name, have, size in (("width", given.width, across), ("height", given.height, down)):
            if have is not None and size // 2 >= have:
                raise ValueError(f"takes at least {size // 2 + 1} pixels of {name}, and gets {have}")
        return given

    def step(self) -> Step:
        """Across, then down."""
        across, down = both_sides("kernel_size", self.kernel_size)
        least, most = spread("sigma", self.sigma, 0, _MOST)
        return Step("blur", down, across, numbers=(self.p, least, most))
