"""What there is to see of a dataset, as the server asks for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from fastloader import kernels
from fastloader.errors import FastLoaderError, KeyNotFoundError
from fastloader.viewer import pictures, sounds
from fastloader.viewer.choosing import Choice, Searches
from fastloader.viewer.histograms import histogram
from fastloader.viewer.items import Item
from fastloader.viewer.samples import ReaderSamples, Samples
from fastloader.viewer.telling import tell
from fastloader.viewer.variants import Variants

CARD_FIELDS = 24
"""Fields of which cards tell, besides the one that stands for the sample."""
PICTURE_BYTES = 256 << 20
FILES = 4
"""Stored files that are kept in memory between two ranges of one."""


class Kept:
    """Pictures that were made, the latest used, up to some bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._made: OrderedDict[Any, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """What ``make`` gives; two threads may both make it."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = make()
        with self._lock:
            if key not in self._made:
                self._made[key] = made
                self._bytes += len(made)
            while self._bytes > self._most:
                self._bytes -= len(self._made.popitem(last=False)[1])
        return made


class Viewer:
    """What there is to see of a dataset."""

    def __init__(self, samples: Samples, title: str, pipelines: Mapping[str, Any] | None = None) -> None:
        self.samples = samples
        self.title = title
        self.searches = Searches(samples)
        self._pictures = Kept(PICTURE_BYTES)
        self._files: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._lock = threading.Lock()
        self.variants = None
        if pipelines is not None:
            if not isinstance(samples, ReaderSamples):
                raise KeyNotFoundError(
                    f"is {samples.format}, to which no pipeline can be applied", path=samples.path,
                    hint="write it as .fld first, with fastloader convert",
                )  # fmt: skip
            self.variants = Variants(samples.reader, pipelines)

    def about(self) -> dict[str, Any]:
        """The dataset."""
        samples = self.samples
        return {
            "title": self.title, "path": samples.path, "format": samples.format, "total": len(samples),
            "identity": samples.identity, "keys": samples.has_keys, "classes": samples.classes,
            "fields": [
                {"number": one.number, "name": one.name, "kind": one.kind, "type": one.type} for one in samples.shown
            ],
            "columns": [
                {"id": one.id, "label": one.label, "kind": one.kind, "unit": one.unit, "quick": one.quick}
                for one in samples.columns
            ],
            "variants": self.variants is not None,
        }  # fmt: skip

    def cards(self, choice: Choice, start: int, count: int, hero: int | None) -> dict[str, Any]:
        """Some samples in a row, as they lie in the choice."""
        if choice.is_all:
            indices = range(start, min(start + count, len(self.samples)))
        else:
            indices = self.searches.get(choice).rows()[start : start + count].tolist()
        numbers = [one.number for one in self.samples.shown[:CARD_FIELDS]]
        if hero is not None and hero not in numbers:
            numbers.append(hero)
        columns = {number: self.samples.items(indices, number) for number in numbers}
        return {
            "start": start,
            "cards": [
                {
                    "index": index, "key": self._key(index),
                    "fields": {number: tell(columns[number][at], False, self.samples.tokenizer) for number in numbers},
                }
                for at, index in enumerate(indices)
            ],
        }  # fmt: skip

    def _key(self, index: int) -> str | None:
        try:
            return self.samples.key(index)
        except (FastLoaderError, OSError):
            return None

    def sample(self, index: int, choice: Choice) -> dict[str, Any]:
        """All of a sample, and its neighbours in the choice."""
        self._known(index)
        fields = {}
        for shown in self.samples.shown:
            (item,) = self.samples.items([index], shown.number)
            told = tell(item, True, self.samples.tokenizer)
            try:
                told["place"] = self.samples.place(index, shown.number)
            except (FastLoaderError, kernels.Failure, OSError):
                told["place"] = {}
            fields[shown.number] = told
        return {"index": index, "key": self._key(index), "fields": fields, **self._neighbours(index, choice)}

    def _neighbours(self, index: int, choice: Choice) -> dict[str, Any]:
        if choice.is_all:
            total = len(self.samples)
            return {
                "position": index, "found": total, "before": index - 1 if index else None,
                "after": index + 1 if index + 1 < total else None,
            }  # fmt: skip
        rows = self.searches.get(choice).rows()
        place = int(rows.searchsorted(index))
        there = place < len(rows) and rows[place] == index
        after = place + 1 if there else place
        return {
            "position": place, "found": len(rows), "before": int(rows[place - 1]) if place else None,
            "after": int(rows[after]) if after < len(rows) else None,
        }  # fmt: skip

    def _known(self, index: int) -> None:
        if not 0 <= index < len(self.samples):
            raise KeyNotFoundError(f"no sample has the number {index}; there are {len(self.samples)}")

    def item(self, index: int, number: int) -> Item:
        """A value that is there."""
        self._known(index)
        if not 0 <= number < len(self.samples.shown):
            raise KeyNotFoundError(f"there is no field {number}")
        found = self.samples.item(index, number)
        if found is None:
            raise KeyNotFoundError("the value is missing")
        return found

    def picture(self, index: int, number: int, room: pictures.Size | None, crop: bool, overlay: bool) -> bytes:
        """A thumbnail, or the whole picture."""
        key = (index, number, room, crop, overlay)
        return self._pictures.get(key, lambda: pictures.picture(self.item(index, number), room, crop, overlay))

    def strip(self, index: int, number: int, room: pictures.Size, count: int) -> bytes:
        """Frames side by side."""
        key = (index, number, room, count)
        return self._pictures.get(key, lambda: pictures.strip(self.item(index, number), room, count)[0])

    def file(self, index: int, number: int) -> Any:
        """Stored bytes; of a sound that is no file, one made of it."""
        with self._lock:
            if (index, number) in self._files:
                self._files.move_to_end((index, number))
                return self._files[index, number]
        item = self.item(index, number)
        made = sounds.wav(item) if item.kind == "sound" and "codec" not in item.facts and not item.media else item.data
        with self._lock:
            self._files[index, number] = made
            while len(self._files) > FILES:
                self._files.popitem(last=False)
        return made

    def file_name(self, index: int, number: int) -> str:
        """What a stored value is called when it is saved."""
        return f"{self._key(index) or index}-{self.samples.shown[number].name}"

    def search(self, choice: Choice) -> dict[str, Any]:
        """How far the search for a choice is."""
        search = self.searches.get(choice)
        search.wait(0.15)
        return {
            "found": search.found, "done": search.done, "total": search.total, "finished": search.finished,
            "error": search.error,
        }  # fmt: skip

    def histogram(self, name: str, choice: Choice) -> dict[str, Any]:
        """The histogram of a column over the choice."""
        column = self.samples.numbers.column(name)
        if column is None:
            raise KeyNotFoundError(f"there is no column {name!r}")
        rows = None if choice.is_all else self.searches.get(choice).rows().copy()
        remote = isinstance(self.samples, ReaderSamples) and self.samples.reader.dataset.is_remote
        return histogram(self.samples, column, rows, remote)

    def close(self) -> None:
        """End what is still running."""
        self.searches.stop()
