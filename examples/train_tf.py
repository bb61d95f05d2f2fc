"""Train an image classifier with TensorFlow: ``model.fit`` over a ``tf.data.Dataset`` of the loader's batches.

    python examples/train_tf.py RUN_FOLDER

The images are generated: shapes in four classes, with noise. A small network tells 90 % of unseen ones in four epochs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from pictures import CLASSES, SIDE, pipeline, written

import fastloader as fl
from fastloader.tensorflow import to_tf_dataset

layers = tf.keras.layers


def loader(path: Path, train: bool, batch: int) -> fl.DataLoader:
    """Batches of one size: the rest of an epoch is left out of training, so that the graph knows all shapes."""
    pipelines = {"image": pipeline(train)}
    return fl.DataLoader(
        fl.open(path), batch, shuffle=train, drop_last=train, num_workers=2, pipelines=pipelines, seed=7
    )


def images_and_labels(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """What ``model.fit`` takes."""
    return batch["image"], batch["label"]


def network() -> tf.keras.Model:
    """Three layers of convolutions."""
    model = tf.keras.Sequential([tf.keras.Input((SIDE, SIDE, 3))])
    for width in (16, 32, 64):
        for layer in (layers.Conv2D(width, 3, padding="same"), layers.BatchNormalization(momentum=0.9)):
            model.add(layer)
        model.add(layers.ReLU())
        model.add(layers.MaxPool2D())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(CLASSES))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.AdamW(2e-3), loss, metrics=["accuracy"])
    return model


def main() -> None:
    """Train, then look at images that were not trained with."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    chosen = parser.parse_args()
    train, test = written(chosen.folder)
    tf.keras.utils.set_random_seed(0)
    model = network()
    with loader(train, True, 64) as batches, loader(test, False, 128) as unseen:
        # Passes follow each other without an end; fit counts the steps, and the loader the epochs.
        dataset = to_tf_dataset(batches, select=images_and_labels, epochs=None)
        model.fit(dataset, steps_per_epoch=len(batches), epochs=chosen.epochs, verbose=2)
        _, accuracy = model.evaluate(to_tf_dataset(unseen, select=images_and_labels), verbose=0)
    print(f"accuracy on unseen images: {accuracy:.3f}")


if __name__ == "__main__":
    main()
