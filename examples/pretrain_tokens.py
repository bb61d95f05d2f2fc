"""Pre-train a small language model on windows of a token file, with PyTorch.

    python examples/pretrain_tokens.py RUN_FOLDER

The text is generated: sums such as 17+25=42. The file of tokens is flat, as nanoGPT's `.bin` is; windows of it come in
an order that is the same each time, each once an epoch, and a resumed run goes on with the next.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import fastloader as fl
from fastloader.torch import to_tensors

LETTERS = "0123456789+=\n"
WINDOW = 64


def write(path: Path, sums: int = 20_000) -> None:
    """Sums, a letter a token."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 50, (sums, 2)).tolist()
    text = "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)
    with fl.TokenStreamWriter(path, vocab_size=len(LETTERS)) as writer:
        writer.write(np.array([LETTERS.index(letter) for letter in text], np.uint16))


class Model(torch.nn.Module):
    """Two layers of a transformer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(len(LETTERS), width), torch.nn.Embedding(WINDOW, width)
        layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, len(LETTERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """What comes next, at each place."""
        length = tokens.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length, tokens.device)
        hidden = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
        return self.head(self.layers(hidden, mask, is_causal=True))


def main() -> None:
    """Some hundred steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / "sums.tokens"
    if not path.exists():
        write(path)
    stream = fl.TokenStream(path, WINDOW)
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    step, first = 0, None
    with fl.DataLoader(stream, 32, seed=1, num_workers=1, drop_last=True) as loader:
        while step < chosen.steps:
            for batch in loader:
                tokens = to_tensors(batch)["tokens"].long()
                guesses = model(tokens[:, :-1])
                loss = torch.nn.functional.cross_entropy(guesses.flatten(0, 1), tokens[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                first = loss.item() if first is None else first
                step += 1
                if step % 50 == 0:
                    print(f"step {step}: loss {loss.item():.3f}", flush=True)
                if step == chosen.steps:
                    break
    print(f"loss {first:.3f} before, {loss.item():.3f} after {step} steps")


if __name__ == "__main__":
    main()
