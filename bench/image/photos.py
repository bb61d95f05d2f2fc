"""Makes the benchmark's photos: 1,024 JPEGs cut from the colour photos that scikit-image and scikit-learn ship.

``python photos.py FOLDER`` writes them, and the two variants, once, and prints a checksum of each: two machines with
the same checksums measure the same bytes. They depend on the versions in requirements/tools.txt alone.

- ``photos/``: about 486 x 414 on average, one in fifty 2,000 px wide, JPEG of quality 90 with 4:2:0 chroma
- ``photos512/``: the same, made no larger than 512 px
- ``raw256.npy``: the same as pixels, the middle 256 x 256 after scaling the shorter side to 256
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

COUNT, SEED, QUALITY = 1024, 4, 90
LARGE_EVERY, LARGE = 50, 2000
SOURCES = {
    "skimage/data": "astronaut.png chelsea.png coffee.png hubble_deep_field.jpg ihc.png motorcycle_left.png "
    "motorcycle_right.png retina.jpg rocket.jpg",
    "sklearn/datasets/images": "china.jpg flower.jpg",
}
SIZES = ((500, 375), (500, 333), (375, 500), (500, 500), (400, 400), (333, 500), (480, 360), (320, 400))
SHARES = (0.44, 0.14, 0.10, 0.04, 0.12, 0.06, 0.06, 0.04)


def sources() -> list[Image.Image]:
    """The photos that all others are cut from."""
    found = []
    for folder, names in SOURCES.items():
        package, _, inside = folder.partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"the photos come with {package}; pip install -r requirements/tools.txt")
        root = Path(spec.submodule_search_locations[0]) / inside
        found += [Image.open(root / name).convert("RGB") for name in names.split()]
    return found


def photo(number: int, originals: list[Image.Image]) -> Image.Image:
    """One photo: a cut of an original, scaled, perhaps mirrored, with its own gamma, colour cast and grain."""
    rng = np.random.default_rng([SEED, number])
    original = originals[rng.integers(len(originals))]
    width, height = SIZES[rng.choice(len(SIZES), p=SHARES)]
    if number % LARGE_EVERY == LARGE_EVERY - 1:
        width, height = LARGE, LARGE * height // width if height < width else LARGE * 3 // 4
    aspect = width / height
    widest = min(original.width, original.height * aspect)
    cut_width = widest * rng.uniform(0.75, 1.0)
    left = rng.uniform(0, original.width - cut_width)
    top = rng.uniform(0, original.height - cut_width / aspect)
    box = (left, top, left + cut_width, top + cut_width / aspect)
    image = original.resize((width, height), Image.Resampling.LANCZOS, box)
    if rng.integers(2):
        image = ImageOps.mirror(image)
    gamma, cast = rng.uniform(0.75, 1.3), rng.uniform(0.9, 1.1, 3)
    curves = [255 * ((np.arange(256) / 255) ** gamma) * gain for gain in cast]
    image = image.point([int(min(255.0, level + 0.5)) for curve in curves for level in curve])
    strength = int(rng.integers(5, 16))
    grain = rng.integers(-strength, strength + 1, (2, height, width, 1), dtype=np.int16).sum(0)
    return Image.fromarray(np.clip(np.asarray(image, np.int16) + grain, 0, 255).astype(np.uint8))


def save(image: Image.Image, path: Path) -> None:
    """As cameras and the web have them."""
    image.save(path, "JPEG", quality=QUALITY, subsampling="4:2:0")


def write(folder: Path) -> None:
    """All three sets."""
    originals = sources()
    raw = np.empty((COUNT, 256, 256, 3), np.uint8)
    for name in ("photos", "photos512"):
        (folder / name).mkdir(parents=True)
    for number in range(COUNT):
        image = photo(number, originals)
        save(image, folder / "photos" / f"{number:05d}.jpg")
        small = image.copy()
        small.thumbnail((512, 512), Image.Resampling.LANCZOS)
        save(small, folder / "photos512" / f"{number:05d}.jpg")
        raw[number] = np.asarray(ImageOps.fit(image, (256, 256), Image.Resampling.LANCZOS))
    np.save(folder / "raw256.npy", raw)


def describe(folder: Path) -> list[str]:
    """A line a set: how many, how large, and the checksum."""
    lines = []
    for name in ("photos", "photos512"):
        paths = sorted((folder / name).iterdir())
        digest, sizes = hashlib.sha256(), []
        for path in paths:
            digest.update(path.read_bytes())
            with Image.open(path) as image:
                sizes.append(image.size)
        width, height = np.mean(sizes, axis=0)
        kilobytes = sum(path.stat().st_size for path in paths) / len(paths) / 1e3
        lines.append(
            f"{name}: {len(paths)} JPEGs, on average {width:.0f} x {height:.0f} and {kilobytes:.0f} KB, "
            f"sha256 {digest.hexdigest()[:16]}"
        )
    raw = (folder / "raw256.npy").read_bytes()
    lines.append(f"raw256: {COUNT} images of 256 x 256, sha256 {hashlib.sha256(raw).hexdigest()[:16]}")
    return lines


def main() -> None:
    """Write what is absent, aside first, so that a set is whole or not there."""
    folder = Path(sys.argv[1])
    if not folder.exists():
        aside = folder.with_name(folder.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        write(aside)
        aside.rename(folder)
    print("\n".join(describe(folder)))


if __name__ == "__main__":
    main()
