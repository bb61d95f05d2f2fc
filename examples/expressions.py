"""Two datasets as one expression: filtered, shuffled, mixed, batched, interrupted and resumed.

Run it: python examples/expressions.py
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import fastloader as fl

PAGE = 64


def write(path, count, topic):
    """Pages of text as tokens, with a quality score and a topic."""
    generator = np.random.default_rng(topic)
    fields = {"tokens": fl.NDArrayField("uint16", (PAGE,)), "quality": fl.FloatField(), "topic": fl.IntField()}
    with fl.DatasetWriter(path, fields) as writer:
        for _ in range(count):
            tokens = generator.integers(0, 50_000, PAGE, dtype=np.uint16)
            writer.write_sample({"tokens": tokens, "quality": generator.random(), "topic": topic})
    return fl.open(path)


def mask_some(page, generator):
    """Hide a tenth of the tokens; which ones is a matter of seed, epoch and position alone."""
    return {**page, "hidden": generator.random(PAGE) < 0.1}


def training_set(books, code, weights):
    """Good pages of both, in an order of their own for each pass, without end."""

    def pages(reader):
        return reader.filter(lambda columns: columns["quality"] > 0.3, columns="quality").shuffle(seed=1).repeat()

    mixture = fl.Dataset.mix(pages(books), pages(code), weights=weights, seed=5)
    return mixture.map(mask_some, num_parallel_calls=2, seed=9).batch(16).prefetch("auto")


def main(folder):
    books, code = write(folder / "books.fld", 600, 0), write(folder / "code.fld", 400, 1)
    dataset = training_set(books, code, weights=[3, 1])
    print(dataset.explain())

    with iter(dataset) as steps:
        begun = [next(steps) for _ in range(100)]
        saved = json.dumps(steps.state_dict())
        ahead = [next(steps) for _ in range(20)]
    share = np.mean([batch["topic"].mean() for batch in begun])
    print(f"100 batches, {share:.0%} of them code; the state has {len(saved)} bytes")

    with dataset.iterate(state=json.loads(saved)) as resumed:
        for batch in ahead:
            again = next(resumed)
            assert all(np.array_equal(batch[name], again[name]) for name in batch)
    print("resumed: the same 20 batches")

    with training_set(books, code, weights=[1, 9]).iterate(state=json.loads(saved)) as later:
        share = np.mean([next(later)["topic"].mean() for _ in range(100)])
    print(f"with other weights from there on: {share:.0%} code")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
