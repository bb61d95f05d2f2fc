"""Images, sound and labels: written once, then read, then loaded in batches.

Run it: python examples/first_dataset.py --samples 1000
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import fastloader as fl

SIZE, SOUND = 224, 80_000


def samples(count):
    """Pictures and sounds that differ, made from a few by shifting them: making them should cost little."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    waves = [np.sin(x * (5 + i) + np.cos(y * (9 - i)) * 3) for i in range(8)]
    grain = generator.normal(0, 6, (SIZE, SIZE, 3))
    images = [
        np.clip(np.stack([w, -w, w * w], axis=2) * 90 + 128 + grain, 0, 255).astype(np.uint8) for w in waves
    ]  # fmt: skip
    sounds = [generator.normal(0, 0.1, SOUND).astype(np.float32) for _ in range(8)]
    for i in range(count):
        yield {
            "image": np.roll(images[i % 8], i, axis=1),
            "audio": np.roll(sounds[i % 8], i),
            "label": i % 10,
        }


def main(path, count):
    began = time.perf_counter()
    fields = {
        "image": fl.JPEGImageField(quality=90),
        "audio": fl.NDArrayField("float32", (SOUND,)),
        "label": fl.IntField(),
    }
    with fl.DatasetWriter(path, fields) as writer:
        for sample in samples(count):
            writer.write_sample(sample)
    written = time.perf_counter()
    print(f"wrote {count} samples, {path.stat().st_size / 1e6:.0f} MB, in {written - began:.1f} s")

    reader = fl.open(path)
    assert len(reader) == count
    assert reader.field_names == ["image", "audio", "label"]
    first = reader[0]
    assert first["image"].shape == (SIZE, SIZE, 3)
    assert first["image"].dtype == np.uint8
    assert first["audio"].shape == (SOUND,)
    assert first["audio"].dtype == np.float32
    assert np.array_equal(first["audio"], next(samples(1))["audio"])
    assert first["label"] == 0

    def normalise(images):
        return images.astype(np.float32) / 255

    loader = fl.DataLoader(reader, batch_size=32, shuffle=True, seed=7, transforms={"image": normalise})
    labels = []
    for batch in loader:
        rows = len(batch["label"])
        assert batch["image"].shape == (rows, SIZE, SIZE, 3)
        assert batch["image"].dtype == np.float32
        assert 0 <= batch["image"].min() <= batch["image"].max() <= 1
        assert batch["audio"].shape == (rows, SOUND)
        labels.extend(batch["label"].tolist())
    assert len(loader) == -(-count // 32)
    assert sorted(labels) == sorted(i % 10 for i in range(count))
    print(f"read them back in {len(loader)} shuffled batches in {time.perf_counter() - written:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000, help="how many (default: 10000, about 3.5 GB)")
    parser.add_argument("--output", type=Path, help="where to keep the dataset (default: a temporary folder)")
    arguments = parser.parse_args()
    if arguments.output is not None:
        main(arguments.output, arguments.samples)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "first.fld", arguments.samples)
