"""The server: a page, and what it asks for. All work is done in threads; decoding does not hold the GIL."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fastloader import kernels
from fastloader.errors import FastLoaderError, KeyNotFoundError
from fastloader.loader.resources import usable_cpus
from fastloader.viewer import answers, pictures, plots, sounds
from fastloader.viewer.checking import check_sample
from fastloader.viewer.choosing import Choice, Searches, parse_choice
from fastloader.viewer.histograms import histogram
from fastloader.viewer.items import Item
from fastloader.viewer.samples import ReaderSamples, Samples
from fastloader.viewer.telling import explained, tell
from fastloader.viewer.variants import Variants

CARDS = 256
CARD_FIELDS = 24
LARGEST_SIDE = 4096
PICTURE_BYTES = 256 << 20
FILES = 4
"""Stored files that are kept in memory between two ranges of one."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


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


class _Asked:
    """A request's parameters, checked."""

    def __init__(self, viewer: Viewer, request: Request) -> None:
        self._viewer = viewer
        self._request = request

    def whole(self, name: str, default: int | None = None, low: int = 0, high: int = 2**53) -> int:
        text = self._request.path_params.get(name, self._request.query_params.get(name))
        if text is None and default is not None:
            return default
        try:
            number = int(text or "")
        except ValueError:
            raise ValueError(f"{name}={text!r}: a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"{name}={number}: from {low} to {high}")
        return number

    def flag(self, name: str) -> bool:
        return self._request.query_params.get(name) == "1"

    def text(self, name: str) -> str:
        return self._request.query_params.get(name, "")

    def room(self) -> pictures.Size | None:
        if "height" not in self._request.query_params:
            return None
        return self.whole("height", low=1, high=LARGEST_SIDE), self.whole("width", low=1, high=LARGEST_SIDE)

    def choice(self) -> Choice:
        query = self._request.query_params
        return parse_choice(self._viewer.samples, query.get("key", ""), query.getlist("where"))


def make_app(viewer: Viewer) -> Starlette:
    """The routes, without the guard before them."""
    quick = anyio.CapacityLimiter(usable_cpus() + 2)
    long = anyio.CapacityLimiter(4)

    def route(path: str, work: Callable[[_Asked, Request], Response], limiter: anyio.CapacityLimiter = quick) -> Route:
        async def endpoint(request: Request) -> Response:
            asked = _Asked(viewer, request)
            return await anyio.to_thread.run_sync(partial(_safely, work, asked, request), limiter=limiter)

        return Route(path, endpoint)

    def at(asked: _Asked) -> tuple[int, int]:
        return asked.whole("index"), asked.whole("field")

    def variant(asked: _Asked) -> tuple[Variants, int, int]:
        if viewer.variants is None:
            raise KeyNotFoundError("no pipelines were given; --pipeline FILE names them")
        index = asked.whole("index", high=len(viewer.samples) - 1)
        return viewer.variants, index, asked.whole("epoch", 0, high=2**31)

    def variant_field(asked: _Asked) -> tuple[Variants, int, int, str]:
        variants, index, epoch = variant(asked)
        name = asked.text("name")
        if name not in variants.get(index, epoch):
            raise KeyNotFoundError(f"the pipelines make no {name!r}")
        return variants, index, epoch, name

    def varied_picture(asked: _Asked, request: Request) -> Response:
        variants, index, epoch, name = variant_field(asked)
        return answers.picture(variants.picture(index, epoch, name))

    def varied_plot(asked: _Asked, request: Request) -> Response:
        variants, index, epoch, name = variant_field(asked)
        return answers.answer(variants.plot(index, epoch, name))

    def varied(asked: _Asked, request: Request) -> Response:
        variants, index, _ = variant(asked)
        return answers.answer(variants.tell(index, asked.whole("epochs", 8, low=1, high=32)))

    def hero(asked: _Asked) -> int | None:
        return asked.whole("hero", high=len(viewer.samples.shown) - 1) if asked.text("hero") else None

    return Starlette(
        routes=[
            Route("/", lambda request: _page("index.html")),
            Route("/static/{name}", lambda request: _page(request.path_params["name"])),
            route("/api/dataset", lambda asked, request: answers.answer(viewer.about())),
            route("/api/cards", lambda asked, request: answers.answer(viewer.cards(
                asked.choice(), asked.whole("start"), asked.whole("count", low=1, high=CARDS), hero(asked)))),
            route("/api/sample/{index}", lambda asked, request: answers.answer(
                viewer.sample(asked.whole("index"), asked.choice()))),
            route("/api/check/{index}", lambda asked, request: answers.answer(
                check_sample(viewer.samples, asked.whole("index", high=len(viewer.samples) - 1)))),
            route("/api/search", lambda asked, request: answers.answer(viewer.search(asked.choice())), long),
            route("/api/histogram", lambda asked, request: answers.answer(
                viewer.histogram(asked.text("column"), asked.choice())), long),
            route("/api/picture/{index}/{field}", lambda asked, request: answers.picture(
                viewer.picture(*at(asked), asked.room(), asked.flag("crop"), asked.flag("overlay")))),
            route("/api/strip/{index}/{field}", lambda asked, request: answers.picture(viewer.strip(
                *at(asked), asked.room() or (160, 240), asked.whole("frames", 8, low=1, high=pictures.STRIP)))),
            route("/api/peaks/{index}/{field}", lambda asked, request: answers.answer(
                sounds.peaks(viewer.item(*at(asked)), asked.whole("count", 200, low=1, high=4000)), keep=True)),
            route("/api/plot/{index}/{field}", lambda asked, request: answers.answer(
                plots.plot(viewer.item(*at(asked))), keep=True)),
            route("/api/file/{index}/{field}", lambda asked, request: answers.stored(
                request, viewer.file(*at(asked)), viewer.file_name(*at(asked)))),
            route("/api/variants/{index}", varied, long),
            route("/api/variant-picture/{index}/{epoch}", varied_picture, long),
            route("/api/variant-plot/{index}/{epoch}", varied_plot, long),
        ]
    )  # fmt: skip


def _safely(work: Callable[[_Asked, Request], Response], asked: _Asked, request: Request) -> Response:
    """What goes wrong, as an answer."""
    try:
        return work(asked, request)
    except KeyNotFoundError as error:
        return answers.answer({"error": explained(error)}, 404)
    except FastLoaderError as error:
        return answers.answer({"error": explained(error)}, 422)
    except kernels.Failure as failure:
        return answers.answer({"error": str(failure.args[1])}, 422)
    except ValueError as error:
        return answers.answer({"error": str(error)}, 400)
    except Exception as error:  # a decoder of the user's, a library that is missing
        return answers.answer({"error": explained(error)}, 500)


_PAGE = files("fastloader.viewer") / "page"
_NAMES = frozenset(entry.name for entry in _PAGE.iterdir())


def _page(name: str) -> Response:
    """A file of the page."""
    kind = _TYPES.get(name.rpartition(".")[2])
    if name not in _NAMES or kind is None:
        return PlainTextResponse("There is no such file.", 404)
    return Response((_PAGE / name).read_bytes(), headers={"cache-control": "no-cache"}, media_type=kind)
