"""Windows of a long run of tokens, as a reader that a loader takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields import TokenStreamField
from fastloader.fields.packed import check_length
from fastloader.formats.fld import Dataset
from fastloader.formats.objects import Places
from fastloader.formats.tokens import files_of
from fastloader.formats.windows import WindowDataset
from fastloader.reader import DatasetReader
from fastloader.samplers.checks import positions, seed_of, whole
from fastloader.samplers.order import Description
from fastloader.stores import locate
from fastloader.stores.cache import cache_at

Windows = Literal["sequential", "random"]


@dataclass(frozen=True, slots=True)
class RandomWindows:
    """``length`` windows an epoch that begin anywhere, no two at the same token: a part of a shuffle of all starts."""

    starts: int
    length: int
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", whole("starts", self.starts, 0, 2**62))
        object.__setattr__(self, "length", whole("length", self.length, 0, self.starts + 1))
        object.__setattr__(self, "seed", seed_of(self.seed))

    def __len__(self) -> int:
        return self.length

    def samples(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The starts at these positions."""
        places = positions(self.length, first, count)
        kernels.permute(self.starts, self.seed, epoch, places, places)
        return places

    def describe(self, epoch: int | None = None) -> Description:
        """All that decides the order."""
        return {"kind": "random_windows", "dataset": self.starts, "length": self.length, "seed": self.seed}


class TokenStream(DatasetReader):
    """Windows of ``seq_len + 1`` tokens, from one or many files of tokens; a ``DataLoader`` takes it as any reader.

    A batch has ``tokens`` (batch, seq_len + 1): all but the last are the input, all but the first what is to be
    predicted. No window spans two files.

    - ``paths``: a file, a list of files, or a pattern like "data/*.bin"; or URLs of objects ("s3://bucket/corpus.fld").
      Files of ``TokenStreamWriter``, whose bytes are checked when they are first read; and raw ones, as GPT-style
      programs write them, used as they are: ``dtype`` says what their tokens are ("uint16", "uint32"; an .idx of
      Megatron-LM beside the file tells), and ``header_bytes`` what to skip.
    - ``windows``: "sequential" cuts files into windows ``stride`` tokens apart (``seq_len`` unless given: every token
      is predicted once an epoch), which the loader shuffles or not. "random" lets them begin at any token: an epoch has
      as many windows as the files have room for, and another choice each epoch.
    - ``storage_options``, ``cache_dir`` and ``cache_size`` are for URLs, as in ``DatasetReader``.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        seq_len: int,
        *,
        windows: Windows = "sequential",
        stride: int | None = None,
        dtype: DTypeLike | None = None,
        header_bytes: int = 0,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
    ) -> None:
        length = check_length(seq_len)
        if windows not in get_args(Windows):
            raise ValueError(f"windows={windows!r}: one of {', '.join(get_args(Windows))}")
        if stride is not None and windows == "random":
            raise ValueError(f"stride={stride}: random windows begin anywhere; leave it out")
        step = 1 if windows == "random" else length if stride is None else whole("stride", stride, 1, 2**48)
        kind = None if dtype is None else np.dtype(dtype)
        if kind is not None and (kind.kind not in "iu" or kind.itemsize > 8):
            raise ValueError(f"dtype={dtype!r}: tokens are whole numbers, as 'uint16' or 'uint32'")
        skipped = whole("header_bytes", header_bytes)
        cache = cache_at(cache_dir, cache_size)
        files = files_of(paths, Places(storage_options, cache))
        if isinstance(files[0], Path):
            locate(files[0], storage_options)  # which says what is wrong with options
            if cache is not None:
                raise ValueError(f"{files[0]}: cache_dir is for URLs; this is a local path")
        dataset = WindowDataset(files, length + 1, step, kind, skipped)
        if not dataset.num_samples:
            raise FormatError(
                f"has {sum(dataset.counts)} tokens, too few for a window of {length + 1}", path=dataset.path,
                hint="give a smaller seq_len",
            )  # fmt: skip
        self._dataset = cast("Dataset", dataset)  # it has all that is asked of one
        self._columns = {}
        self._seq_len, self._windows = length, windows

    @property
    def _files(self) -> WindowDataset:
        return cast("WindowDataset", self.dataset)

    @property
    def seq_len(self) -> int:
        """Tokens of a window, less one."""
        return self._seq_len

    @property
    def num_tokens(self) -> int:
        """Tokens of all files."""
        return sum(self._files.counts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What a token is, in files and batches."""
        return self._files.dtype

    @property
    def source(self) -> TokenStreamField | None:
        """What the first file says of its tokens: vocabulary and tokenizer. Raw files say nothing."""
        return self._files.tokens[0].field

    def own_order(self, seed: int) -> RandomWindows | None:
        """Random windows: as many as lie side by side in the files."""
        if self._windows != "random":
            return None
        each = ((count - 1) // self._seq_len for count in self._files.counts)
        return RandomWindows(len(self), sum(max(0, one) for one in each), seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_seq_len": self._seq_len, "_windows": self._windows}

    def __repr__(self) -> str:
        if self._dataset is None:
            return "TokenStream(closed)"
        return (
            f"TokenStream({str(self.path)!r}{', ...' if len(self._files.tokens) > 1 else ''}, seq_len={self.seq_len}, "
            f"windows={self._windows!r}): {self.num_tokens:,} tokens of {self.dtype}"
        )
