"""Pictures in files and datasets, and what a pipeline makes of them."""

import io

import numpy as np
from PIL import Image

import fastloader as fl


def picture(height, width, channels=3, seed=0):
    """Smooth with some grain."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (9, 11, 4)).astype(np.uint8))
    smooth = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return np.clip(smooth + rng.integers(-6, 7, smooth.shape), 0, 255).astype(np.uint8)[..., :channels]


def written(folder, field, images):
    path = folder / "x.fld"
    with fl.DatasetWriter(path, {"image": field}) as writer:
        writer.write_many({"image": image} for image in images)
    return path


def load(path, pipeline, **options):
    loader = fl.DataLoader(fl.open(path), 4, shuffle=False, pipelines={"image": pipeline}, **options)
    return np.concatenate([batch["image"] for batch in loader])


def saved(image, form, **options):
    out = io.BytesIO()
    Image.fromarray(image).save(out, form, **options)
    return out.getvalue()
