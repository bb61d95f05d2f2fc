"""Small tokenizers, made on the spot: nothing is downloaded."""

from __future__ import annotations

import tiktoken
import tokenizers

TEXTS = ["a man riding a bicycle", "two dogs in the park", "", "Grüße 世界", "the park, the park!", "x" * 300]


def byte_pair(merges: int = 60, padded: bool = False) -> tokenizers.Tokenizer:
    """One of the library tokenizers, trained on a few sentences, with a template that adds two tokens."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + 4 + merges, special_tokens=["[UNK]", "[BOS]", "[EOS]", "[PAD]"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator([text * 3 for text in TEXTS], trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 1), ("[EOS]", 2)]
    )
    return made


def tiny_encoding(name: str = "tiny", extra: tuple[bytes, ...] = (b"th", b"the", b"pa", b"rk")) -> tiktoken.Encoding:
    """One of tiktoken: all bytes, and a few more."""
    ranks = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(extra)}
    return tiktoken.Encoding(
        name, pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 256 + len(extra)}
    )
