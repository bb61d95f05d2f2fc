"""Datasets as expressions: the steps as methods, and where a dataset comes from."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast, overload

from fastloader.dataset.ahead import IterPrefetch, MapPrefetch
from fastloader.dataset.base import MapNode, Node, Parallel, Skipped, callable_of, is_number, parallel
from fastloader.dataset.batching import Collate, IterBatch, MapBatch, padding_of, split
from fastloader.dataset.caching import MemoryCache, WholeCache
from fastloader.dataset.choosing import Concat, MapOptions, Repeat, Shuffle, Slice
from fastloader.dataset.filtering import filtered
from fastloader.dataset.iterator import DatasetIterator
from fastloader.dataset.joining import Datasets, Interleave, IterConcat, IterZip, MapZip, itself
from fastloader.dataset.mapping import (
    Call,
    FlatMap,
    IterEnumerate,
    IterMap,
    MapEnumerate,
    MapMap,
    node_within,
)
from fastloader.dataset.mixing import Mix, Stop, weights_of
from fastloader.dataset.rows import Chosen, chosen_samples
from fastloader.dataset.running import explained, may_be_native, new_run, without_effect
from fastloader.dataset.settings import OnError, Settings, checked, one_of
from fastloader.dataset.sources import FromIterable, FromRange, FromReader, FromSequence, Restart, Restarted
from fastloader.dataset.streaming import IterOptions, IterRepeat, IterShard, IterShuffle, IterSkip, IterTake
from fastloader.dataset.writing import Options, write
from fastloader.fields import Field
from fastloader.loader import ThreadingOptions
from fastloader.loader.padding import PadSpec
from fastloader.loader.reading import Io
from fastloader.reader import DatasetReader
from fastloader.samplers.checks import seed_of, whole
from fastloader.stores import locate
from fastloader.types import parse_size
from fastloader.writer.schema import Compression

S = TypeVar("S")
Remainder = Literal["uneven", "drop"]


def as_node(value: Any) -> Node:
    """The expression of a dataset or reader."""
    node = node_within(value)
    if node is None and isinstance(value, DatasetReader):
        return FromReader(value)
    if node is None:
        raise TypeError(
            f"a dataset or a reader is needed, not a {type(value).__name__}; Dataset.from_sequence and "
            "Dataset.from_iterable make one"
        )
    return node


def _nodes(first: Any, others: Sequence[Any]) -> tuple[Node, ...]:
    return tuple(as_node(one) for one in (first, *others))


def _all_map(nodes: tuple[Node, ...]) -> tuple[MapNode, ...] | None:
    return cast("tuple[MapNode, ...]", nodes) if all(isinstance(node, MapNode) for node in nodes) else None


class Steps(Generic[S]):
    """What can be done with a dataset. Each method gives a new description and runs nothing.

    ``S`` is the style of the result where a step keeps the style: map-style (a length, random access) or iterable.
    Methods that take several datasets can also be written ``Dataset.zip(a, b)``.
    """

    @property
    def node(self) -> Node:
        """The expression."""
        raise NotImplementedError

    def map(self, function: Callable[..., Any], num_parallel_calls: Parallel = None, *, seed: int | None = None) -> S:
        """``function`` of each element, in ``num_parallel_calls`` threads: a number, "auto", or ``None`` for none.

        The order is kept. With ``seed``, the function is also given a ``numpy.random.Generator`` that is a matter of
        seed, epoch and element number alone.
        """
        calls = parallel("num_parallel_calls", num_parallel_calls)
        call = Call(callable_of("map", function), None if seed is None else seed_of(seed), calls)
        node = self.node
        return cast(S, wrap(MapMap(node, call) if isinstance(node, MapNode) else IterMap(node, call)))

    def filter(
        self,
        function: Callable[[Any], Any],
        *,
        ahead: bool | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> Any:
        """The elements for which ``function`` says yes.

        With ``ahead``, which is the default where passes do not differ, they are found once, when first needed, and
        the result is map-style: it has a length and can be dealt equally. Otherwise elements are asked as they come.
        ``columns`` names stored fields: the function is then given dictionaries of columns, many rows at once, and
        gives an array of truth values.
        """
        return wrap(filtered(self.node, new_run(), callable_of("filter", function), ahead, columns))

    def flat_map(self, function: Callable[[Any], Any]) -> Any:
        """All elements of what ``function`` makes of each: a dataset, or anything to iterate over."""
        return wrap(FlatMap(self.node, callable_of("flat_map", function)))

    def shuffle(self, buffer_size: int | None = None, seed: int = 0) -> S:
        """Another order in each pass, keyed by ``seed``.

        Without ``buffer_size``, map-style datasets are permuted whole, without keeping anything. With it, elements are
        mixed within blocks of that many, as iterables must be.
        """
        node, seed = self.node, seed_of(seed)
        window = None if buffer_size is None else whole("buffer_size", buffer_size, 1, 2**62)
        if isinstance(node, MapNode):
            if window is None and node.endless():
                raise ValueError("shuffle(): the dataset is endless; give a buffer_size, or shuffle before repeat")
            return cast(S, wrap(Shuffle(node, window, seed)))
        if window is None:
            raise ValueError("shuffle(): an iterable can't be permuted whole; give a buffer_size")
        return cast(S, wrap(IterShuffle(node, window, seed)))

    def batch(
        self,
        batch_size: int,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        *,
        pad: PadSpec | Mapping[str, PadSpec] = None,
    ) -> S:
        """Batches of ``batch_size`` elements. ``collate_fn`` is given a list of elements and makes the batch.

        Without it, dictionaries and tuples are put together by their parts: numbers and arrays of one shape become an
        array with one more dimension, anything else a list. ``pad`` says how parts of different lengths come, as in
        ``DataLoader``; where elements come through Python, it names them: ``pad={"tokens": "longest"}``.
        """
        node, size = self.node, whole("batch_size", batch_size, 1, 2**32)
        make = None if collate_fn is None else callable_of("batch", collate_fn)
        padding = padding_of(node, new_run(), make, pad)
        kind = MapBatch if isinstance(node, MapNode) else IterBatch
        return cast(S, wrap(kind(node, size, bool(drop_last), make, padding)))  # type: ignore[arg-type]

    def unbatch(self) -> Any:
        """The rows of batches, one by one."""
        return wrap(FlatMap(self.node, split, "unbatch"))

    def prefetch(self, buffer_size: int | Literal["auto"] = "auto") -> S:
        """Elements made ahead, ``buffer_size`` at most, in a thread of its own; best as the last step."""
        if buffer_size != "auto" and (not is_number(buffer_size) or not 1 <= buffer_size <= 2**20):
            raise ValueError(f"buffer_size={buffer_size!r}: a whole number from 1 to {2**20}, or 'auto'")
        node = self.node
        kind = MapPrefetch if isinstance(node, MapNode) else IterPrefetch
        return cast(S, wrap(kind(node, buffer_size)))  # type: ignore[arg-type]

    def repeat(self, count: int | None = None) -> S:
        """Pass after pass, ``count`` times or without end. Each is the next epoch for the steps before it."""
        count = None if count is None else whole("count", count)
        node = self.node
        return cast(S, wrap(Repeat(node, count) if isinstance(node, MapNode) else IterRepeat(node, count)))

    def take(self, count: int) -> S:
        """The first ``count`` elements."""
        node, count = self.node, whole("count", count)
        if isinstance(node, MapNode):
            return cast(S, wrap(Slice(node, None, count, None, f"take({count})")))
        return cast(S, wrap(IterTake(node, count)))

    def skip(self, count: int) -> S:
        """All but the first ``count`` elements."""
        node, count = self.node, whole("count", count)
        if isinstance(node, MapNode):
            return cast(S, wrap(Slice(node, count, None, None, f"skip({count})")))
        return cast(S, wrap(IterSkip(node, count)))

    def shard(self, num_shards: int, index: int, remainder: Remainder = "uneven") -> S:
        """Every ``num_shards``-th element, from ``index`` on.

        ``remainder="drop"`` leaves out a last round that does not give one to each shard, so that all have as many. The
        state of an iterable that is dealt so can be loaded with another number of shards, where all keep in step.
        """
        count = whole("num_shards", num_shards, 1)
        index = whole("index", index)
        if index >= count:
            raise ValueError(f"index={index}: below num_shards={count}")
        even = one_of("remainder", remainder, Remainder) == "drop"
        node = self.node
        if isinstance(node, MapNode):
            name = f"shard({count}, {index}{', drop' if even else ''})"
            return cast(S, wrap(Slice(node, index, None, count, name, even)))
        return cast(S, wrap(IterShard(node, count, index, even)))

    def enumerate(self, start: int = 0) -> S:
        """Pairs of a number, from ``start`` on, and the element."""
        first = operator.index(start)
        node = self.node
        kind = MapEnumerate if isinstance(node, MapNode) else IterEnumerate
        return cast(S, wrap(kind(node, first)))  # type: ignore[arg-type]

    def zip(self, *others: Any, strict: bool = False) -> Any:
        """Tuples of an element of each. It ends with the shortest; ``strict`` makes that an error."""
        nodes = _nodes(self, others)
        maps = _all_map(nodes)
        return wrap(MapZip(maps, bool(strict)) if maps else IterZip(nodes, bool(strict)))

    def concat(self, *others: Any) -> Any:
        """One dataset behind the other."""
        nodes = _nodes(self, others)
        maps = _all_map(nodes)
        return wrap(Concat(maps) if maps else IterConcat(nodes))

    def interleave(self, *others: Any, cycle_length: int | None = None, block_length: int = 1) -> Any:
        """``block_length`` elements in turn from each of ``cycle_length`` datasets that are open at a time.

        They are this one and the others, or, with a function instead of others, what it makes of each element. Where
        one ends, the next takes its place. The default is all, or with a function 4.
        """
        block = whole("block_length", block_length, 1, 2**32)
        cycle = None if cycle_length is None else whole("cycle_length", cycle_length, 1, 2**16)
        if len(others) == 1 and callable(others[0]) and not isinstance(others[0], Steps):
            return wrap(Interleave(as_node(self), others[0], cycle or 4, block))
        nodes = _nodes(self, others)
        return wrap(Interleave(Datasets(nodes), itself, min(cycle or len(nodes), len(nodes)), block))

    def mix(self, *others: Any, weights: Sequence[float] | None = None, seed: int = 0, stop: Stop = "first") -> Any:
        """Each element from one of the datasets, drawn with chances in the proportion of ``weights``.

        ``stop``: "first", with the first that has nothing more; "all", the others go on; "restart", never, and one
        that ends begins its next pass. A state can be loaded with other weights.
        """
        nodes = _nodes(self, others)
        given = weights_of(weights, len(nodes))
        return wrap(Mix(nodes, given, seed_of(seed), one_of("stop", stop, Stop)))

    def cache(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Elements kept once they were made, in memory or in a file; the result is map-style.

        In memory, elements of a map-style dataset are kept as they are asked for. An iterable, or anything that goes
        to a file, is gone through once when it is first needed; the file appears when it is whole. What stands before
        ``cache`` is always pass 0: shuffle behind it.
        """
        node = self.node
        if path is None and isinstance(node, MapNode):
            return wrap(MemoryCache(node))
        return wrap(WholeCache(node, None if path is None else Path(path).absolute()))

    def options(
        self,
        *,
        on_error: OnError | None = None,
        threads: int | None = None,
        io: Io | None = None,
        memory_limit: int | str | None = None,
        auto_tune: bool | None = None,
        threading: ThreadingOptions | None = None,
    ) -> S:
        """Settings for all steps before this one, unless they have their own.

        ``on_error="skip"`` leaves out elements that can't be made; an iterator's ``stats()`` counts them. ``threads``
        bounds "auto", and is the number of the native engine's threads. ``io``, ``memory_limit``, ``auto_tune`` and
        ``threading`` are for native engines alone, as in ``DataLoader``: each engine has them for itself. ``explain``
        says where they have no effect, and iterating warns.
        """
        settings = checked(Settings(on_error, threads, io, memory_limit, auto_tune, threading))
        node = self.node
        if settings.native() and not may_be_native(node):
            raise ValueError(f"{settings.label()}: no samples of a reader come before it, so no native engine runs")
        kind = MapOptions if isinstance(node, MapNode) else IterOptions
        return cast(S, wrap(kind(node, settings)))  # type: ignore[arg-type]

    def iterate(self, *, epoch: int | None = None, state: Mapping[str, Any] | None = None) -> DatasetIterator:
        """A pass: of this epoch, 0 if none is given, or from where ``state`` was saved."""
        if epoch is not None and state is not None:
            raise ValueError(f"iterate: a state knows its epoch; leave out epoch={epoch}")
        for idle in without_effect(self.node):
            warnings.warn(f"{idle} has no effect: no native engine runs there, as explain() shows", stacklevel=3)
        return DatasetIterator(self.node, epoch or 0, state)

    def write(
        self,
        path: str | os.PathLike[str],
        fields: Mapping[str, Field] | None = None,
        *,
        shard_size: int | str | None = None,
        shard_samples: int | None = None,
        compression: Compression = None,
        threads: int | None = None,
        show_progress: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Field]:
        """Write all elements, which are dictionaries, to a file; how its name ends says what it will be.

        ``.fld``: a dataset, or with ``shard_size`` a folder of shards. ``.tar``, ``.tar.gz``, ``.tar.zst``:
        WebDataset's layout; with a place for a number in the name, as ``"train-%06d.tar"``, and ``shard_size`` or
        ``shard_samples`` several. ``.parquet``: a table. ``path`` may be a URL, ``storage_options`` are for its client.

        Fields are told from some of the elements, but for those that ``fields`` names; they are returned. JPEG and PNG
        files move as they are. A folder of shards that was interrupted goes on where it was when it is written again.
        ``compression`` is that of ``DatasetWriter``; ``threads`` encode, and read where each file is a sample.
        """
        size = None if shard_size is None else parse_size(shard_size, "shard_size")
        if size is not None and size < 1:
            raise ValueError(f"shard_size={shard_size!r}: at least one byte")
        workers = None if threads is None else whole("threads", threads)
        samples = None if shard_samples is None else whole("shard_samples", shard_samples, 1)
        options = Options(fields, size, samples, compression, workers, show_progress, storage_options)
        return write(self.node, locate(path, storage_options), options)

    def chosen_samples(self) -> Chosen:
        """The reader, its samples and their fields, where nothing else is done to them: a ``DataLoader`` asks."""
        return chosen_samples(self.node, new_run())

    def explain(self) -> str:
        """What runs where, a line a step, the last step first."""
        return explained(self.node, new_run())


@dataclass(frozen=True)
class Dataset(Steps[S]):
    """A dataset as an expression: a frozen description of where elements come from and what becomes of them.

    Iterating over it runs it, each time from the start. ``iter(ds).state_dict()`` says where a pass is.
    """

    expression: Node

    @property
    def node(self) -> Node:
        """The expression."""
        return self.expression

    def __iter__(self) -> DatasetIterator:
        return self.iterate()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {written(self.node)}>"

    @staticmethod
    def from_sequence(source: Any) -> MapDataset:
        """The elements of a list, an array, or any object with ``__len__`` and ``__getitem__``."""
        if isinstance(source, Mapping) or not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            raise TypeError(
                f"from_sequence: a {type(source).__name__} has no length and random access; from_iterable takes what "
                "can be iterated over"
            )
        return MapDataset(FromSequence(source))

    @staticmethod
    def from_iterable(source: Iterable[Any]) -> IterDataset:
        """What an object gives whose ``__iter__`` begins anew each time."""
        if not hasattr(source, "__iter__"):
            raise TypeError(f"from_iterable: a {type(source).__name__} can't be iterated over")
        if hasattr(source, "__next__"):
            raise TypeError(
                f"from_iterable: a {type(source).__name__} can be gone through once, and every pass does so anew; give "
                "a list, or to from_generator the function that makes it"
            )
        return IterDataset(FromIterable(Restart(source), "from_iterable"))

    @staticmethod
    def from_generator(function: Callable[..., Iterable[Any]], *arguments: Any) -> IterDataset:
        """What ``function(*arguments)`` gives, called anew for each pass."""
        callable_of("from_generator", function)
        return IterDataset(FromIterable(Restarted(function, arguments), "from_generator"))

    @staticmethod
    def from_reader(reader: DatasetReader, fields: str | Sequence[str] | None = None) -> MapDataset:
        """The samples of a reader; ``fields`` says which of their values to read."""
        if not isinstance(reader, DatasetReader):
            raise TypeError(f"from_reader: a reader is needed, not a {type(reader).__name__}; fl.open(path) gives one")
        chosen = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
        unknown = [name for name in chosen or () if name not in reader.field_names]
        if unknown or chosen == ():
            given = f"unknown {', '.join(unknown)}" if unknown else "none chosen"
            raise ValueError(f"from_reader: fields: {given}; there are {', '.join(reader.field_names)}")
        return MapDataset(FromReader(reader, chosen))

    @staticmethod
    def range(*bounds: int) -> MapDataset:
        """Whole numbers, as the builtin ``range`` gives them."""
        return MapDataset(FromRange(range(*bounds)))


class MapDataset(Dataset["MapDataset"]):
    """A dataset with a length and random access."""

    node: MapNode

    def __len__(self) -> int:
        length = self.node.length(new_run())
        if length is None:
            raise TypeError("the dataset is endless and has no length; take(n) bounds it")
        return length

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> MapDataset: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = (
                None if b is None else operator.index(b) for b in (index.start, index.stop, index.step)
            )
            name = f"[{':'.join('' if bound is None else str(bound) for bound in (start, stop, step))}]"
            if step == 0:
                raise ValueError(f"{name}: the step is not 0")
            return MapDataset(Slice(self.node, start, stop, step, name))
        return self.at(index)

    def at(self, index: int, epoch: int = 0) -> Any:
        """The element at a position of a pass."""
        run, number, epoch = new_run(), operator.index(index), whole("epoch", epoch)
        length = self.node.length(run)
        if length is not None and not -length <= number < length:
            raise IndexError(f"element {number} of a dataset of {length}")
        if length is None and number < 0:
            raise IndexError(f"element {number} of an endless dataset")
        try:
            return self.node.get(run, epoch, number % length if length else number)
        except Skipped as skipped:
            raise skipped.error from None


class IterDataset(Dataset["IterDataset"]):
    """A dataset whose elements come one after the other."""


def wrap(node: Node) -> Any:
    """A dataset of the style that its last step has."""
    return MapDataset(node) if isinstance(node, MapNode) else IterDataset(node)


def written(node: Node) -> str:
    """An expression as one would write it."""
    parts = [written(part) for part in node.parts()]
    source = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]" if parts else ""
    return f"{source}.{node.label()}" if source else node.label()
