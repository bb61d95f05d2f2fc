"""Orders of whole batches, and batches of samples of similar length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.samplers.checks import Integers, checksum, frozen, integers, positions, seed_of, whole
from fastloader.samplers.hashing import Stream, fold
from fastloader.samplers.order import Description

DEFAULT_BUCKETS = 16


@runtime_checkable
class BatchOrder(Protocol):
    """Which samples make up which batch of an epoch, where batches are not runs of a common order."""

    def num_batches(self, epoch: int) -> int:
        """Batches in this epoch, over all ranks."""

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """The samples of one batch."""


@dataclass(frozen=True, slots=True, eq=False)
class LengthBuckets:
    """Batches of samples of similar length, so that little is padded.

    Samples are put into buckets by length: below the first boundary, from the first up to the second, and so on. Give
    ``boundaries``, or ``num_buckets`` (16 when neither is given) to have them chosen so that buckets are about equally
    full. Each epoch shuffles the samples within each bucket, cuts each bucket into batches, and shuffles the batches.

    A batch has ``batch_size`` samples, or with ``max_tokens`` as many as fit when all are padded to the longest of
    their bucket; with both, the smaller of the two. The last batch of each bucket may be short; ``drop_last`` leaves
    these out. The number of batches is the same in every epoch. 16 bytes a sample are kept.
    """

    lengths: NDArray[np.int64]
    batch_size: int | None = None
    max_tokens: int | None = None
    num_buckets: int | None = None
    boundaries: Integers | None = None
    seed: int = 0
    drop_last: bool = False
    _samples: NDArray[np.int64] = field(init=False, repr=False)
    _starts: NDArray[np.int64] = field(init=False, repr=False)
    _sizes: NDArray[np.int64] = field(init=False, repr=False)
    _batches: NDArray[np.int64] = field(init=False, repr=False)
    _checksum: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = integers("lengths", self.lengths)
        edges = self._edges(lengths)
        bucket = np.searchsorted(edges, lengths, "right")
        counts = np.bincount(bucket, minlength=len(edges) + 1)
        longest = np.zeros(len(counts), np.int64)
        np.maximum.at(longest, bucket, lengths)
        sizes = self._batch_sizes(lengths, longest)
        batches = counts // sizes if self.drop_last else -(-counts // sizes)
        zero = np.zeros(1, np.int64)
        for name, value in (
            ("lengths", lengths),
            ("boundaries", tuple(edges.tolist())),
            ("num_buckets", len(counts)),
            ("seed", seed_of(self.seed)),
            ("_samples", frozen(np.argsort(bucket, kind="stable"))),
            ("_starts", frozen(np.concatenate([zero, np.cumsum(counts)]))),
            ("_sizes", frozen(sizes)),
            ("_batches", frozen(np.concatenate([zero, np.cumsum(batches)]))),
            ("_checksum", checksum(lengths, edges, sizes)),
        ):
            object.__setattr__(self, name, value)

    def _edges(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.boundaries is not None:
            if self.num_buckets is not None:
                raise ValueError("give num_buckets or boundaries, not both")
            edges = integers("boundaries", self.boundaries)
            if np.any(edges[1:] <= edges[:-1]):
                raise ValueError(f"boundaries={edges.tolist()}: each above the one before")
            return edges
        wanted = DEFAULT_BUCKETS if self.num_buckets is None else whole("num_buckets", self.num_buckets, 1)
        ranked = np.sort(lengths)
        edges = np.unique(ranked[np.arange(1, wanted) * len(ranked) // wanted] if len(ranked) else ranked)
        return edges[edges > ranked[0]] if len(ranked) else edges  # nothing is below the shortest

    def _batch_sizes(self, lengths: NDArray[np.int64], longest: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.batch_size is None and self.max_tokens is None:
            raise ValueError("give batch_size, max_tokens or both")
        sizes = np.full(len(longest), 2**62)
        if self.batch_size is not None:
            sizes[:] = whole("batch_size", self.batch_size, 1)
        if self.max_tokens is not None:
            limit = whole("max_tokens", self.max_tokens, 1)
            if len(lengths) and longest.max() > limit:
                sample = int(lengths.argmax())
                raise ValueError(
                    f"max_tokens={limit}: sample {sample} alone has {lengths[sample]}; cut it, leave it out, or "
                    "raise the limit"
                )
            sizes = np.minimum(sizes, limit // np.maximum(longest, 1))
        return sizes

    def num_batches(self, epoch: int = 0) -> int:
        """The same in every epoch."""
        return int(self._batches[-1])

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """The samples of one batch, all of one bucket."""
        place = positions(self.num_batches(epoch), number, 1)
        kernels.permute(self.num_batches(epoch), fold(self.seed, Stream.BATCHES), epoch, place, place)
        bucket = int(np.searchsorted(self._batches, place[0], "right")) - 1
        low, high = self._starts[bucket : bucket + 2].tolist()
        size = int(self._sizes[bucket])
        first = (int(place[0]) - int(self._batches[bucket])) * size
        inside = positions(high - low, first, min(size, high - low - first))
        kernels.permute(high - low, fold(self.seed, Stream.BUCKET, bucket), epoch, inside, inside)
        samples: NDArray[np.int64] = self._samples[low + inside]
        return samples

    def describe(self, epoch: int | None = None) -> Description:
        """Options; lengths, boundaries and batch sizes by their checksum."""
        return {
            "kind": "length_buckets", "dataset": len(self.lengths), "seed": self.seed,
            "batch_size": self.batch_size or 0, "max_tokens": self.max_tokens or 0,
            "drop_last": int(self.drop_last), "lengths": self._checksum,
        }  # fmt: skip
