"""Train an image classifier with JAX: a jitted step over ``JaxLoader``, resumed where it was killed.

    python examples/train_jax.py RUN_FOLDER

The images are generated: shapes in four classes, with noise. A small network tells 90 % of unseen ones in four epochs.
A checkpoint is written every few steps: after a kill the same command goes on from there, and sees just the batches it
would have seen.
"""

from __future__ import annotations

import argparse
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from pictures import CLASSES, TEST, pipeline, written

from fastloader.jax import JaxLoader

RATE, DECAY = 6e-3, (0.9, 0.999)


def network(key: jax.Array) -> dict[str, Any]:
    """The numbers of three layers of convolutions and a linear one."""
    layers = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        key, drawn = jax.random.split(key)
        kernel = jax.random.normal(drawn, (3, 3, before, after)) * (2 / (9 * before)) ** 0.5
        layers.append({"kernel": kernel, "scale": jnp.ones(after), "shift": jnp.zeros(after)})
    return {"layers": layers, "last": jnp.zeros((64, CLASSES))}


def guesses(model: dict[str, Any], images: jax.Array) -> jax.Array:
    """How likely each class is, before softmax; images are N x H x W x C."""
    for layer in model["layers"]:
        images = jax.lax.conv_general_dilated(
            images, layer["kernel"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        mean, spread = images.mean((0, 1, 2)), images.std((0, 1, 2))  # of the batch at hand
        images = jax.nn.relu((images - mean) / (spread + 1e-3) * layer["scale"] + layer["shift"])
    return images.mean((1, 2)) @ model["last"]


def loss_of(model: dict[str, Any], batch: dict[str, jax.Array]) -> jax.Array:
    """Cross-entropy."""
    likely = jax.nn.log_softmax(guesses(model, batch["image"]))
    return -jnp.take_along_axis(likely, batch["label"][:, None], 1).mean()


@partial(jax.jit, donate_argnums=0)
def train_step(state: dict[str, Any], batch: dict[str, jax.Array]) -> tuple[dict[str, Any], jax.Array]:
    """A step of Adam."""
    loss, slopes = jax.value_and_grad(loss_of)(state["model"], batch)
    step = state["step"] + 1
    first, second = (
        jax.tree.map(lambda old, new, decay=decay, power=power: decay * old + (1 - decay) * new**power, old, slopes)
        for old, decay, power in ((state["first"], DECAY[0], 1), (state["second"], DECAY[1], 2))
    )
    rate = RATE * jnp.sqrt(1 - DECAY[1] ** step) / (1 - DECAY[0] ** step)
    model = jax.tree.map(lambda old, a, b: old - rate * a / (jnp.sqrt(b) + 1e-8), state["model"], first, second)
    return {"model": model, "first": first, "second": second, "step": step}, loss


def loader(path: Path, train: bool, batch: int) -> JaxLoader:
    """Batches of one size to train with, so that the step is compiled once."""
    pipelines = {"image": pipeline(train)}
    return JaxLoader(path, batch, shuffle=train, drop_last=train, num_workers=2, pipelines=pipelines, seed=7)


def accuracy(model: dict[str, Any], path: Path) -> float:
    """The share of test images that are told right."""
    with loader(path, False, 128) as batches:
        right = sum(
            int((jax.jit(guesses)(model, batch["image"]).argmax(1) == batch["label"]).sum()) for batch in batches
        )
    return right / TEST


def main() -> None:
    """Train, with checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
    chosen = parser.parse_args()
    train, test = written(chosen.folder)
    checkpoint = chosen.folder / "checkpoint.pickle"

    model = network(jax.random.key(0))
    nothing = jax.tree.map(jnp.zeros_like, model)
    state = {
        "model": model,
        "first": nothing,
        "second": jax.tree.map(jnp.zeros_like, model),
        "step": jnp.zeros((), int),
    }
    batches = loader(train, True, 64)
    if checkpoint.exists():
        saved = pickle.loads(checkpoint.read_bytes())
        state = jax.tree.map(jnp.asarray, saved["state"])
        batches.load_state_dict(saved["loader"])
        print(f"goes on behind step {int(state['step'])}", flush=True)
    step, steps = int(state["step"]), len(batches)
    while step < chosen.epochs * steps:
        for batch in batches:
            state, loss = train_step(state, batch)
            step += 1
            if step % chosen.save_every == 0:
                saved = {"state": jax.device_get(state), "loader": batches.state_dict()}
                checkpoint.with_suffix(".new").write_bytes(pickle.dumps(saved))
                os.replace(checkpoint.with_suffix(".new"), checkpoint)
                print(f"step {step}: loss {loss:.3f}", flush=True)
    print(f"accuracy on unseen images: {accuracy(state['model'], test):.3f}", flush=True)
    batches.close()


if __name__ == "__main__":
    main()
