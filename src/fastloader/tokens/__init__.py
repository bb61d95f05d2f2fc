"""Streams of tokens for pre-training: written, and read as windows."""

from fastloader.tokens.stream import TokenStream
from fastloader.tokens.writer import TokenStreamWriter

__all__ = ["TokenStream", "TokenStreamWriter"]
