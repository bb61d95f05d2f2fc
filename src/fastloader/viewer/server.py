"""The server: a page, and what it asks for. All work is done in threads; decoding does not hold the GIL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files

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
from fastloader.viewer.choosing import Choice, parse_choice
from fastloader.viewer.showing import Viewer
from fastloader.viewer.telling import explained
from fastloader.viewer.variants import Variants

CARDS = 256
LARGEST_SIDE = 4096
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True)
class Asked:
    """A request's parameters, checked."""

    viewer: Viewer
    request: Request

    def whole(self, name: str, default: int | None = None, low: int = 0, high: int = 2**53) -> int:
        """A whole number of the path or the query."""
        text = self.request.path_params.get(name, self.request.query_params.get(name))
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
        """Whether something is switched on."""
        return self.request.query_params.get(name) == "1"

    def text(self, name: str) -> str:
        """A text, empty where there is none."""
        return self.request.query_params.get(name, "")

    @property
    def place(self) -> tuple[int, int]:
        """The numbers of a sample and of a field."""
        return self.whole("index"), self.whole("field")

    @property
    def room(self) -> pictures.Size | None:
        """Height and width that a picture may have."""
        if "height" not in self.request.query_params:
            return None
        return self.whole("height", low=1, high=LARGEST_SIDE), self.whole("width", low=1, high=LARGEST_SIDE)

    @property
    def choice(self) -> Choice:
        """Which samples are meant."""
        return parse_choice(self.viewer.samples, self.text("key"), self.request.query_params.getlist("where"))

    @property
    def variant(self) -> tuple[Variants, int, int]:
        """Those who make variants, and the numbers of a sample and an epoch."""
        if self.viewer.variants is None:
            raise KeyNotFoundError("no pipelines were given; --pipeline FILE names them")
        index = self.whole("index", high=len(self.viewer.samples) - 1)
        return self.viewer.variants, index, self.whole("epoch", 0, high=2**31)


def _dataset(asked: Asked) -> Response:
    return answers.answer(asked.viewer.about())


def _cards(asked: Asked) -> Response:
    fields = len(asked.viewer.samples.shown)
    hero = asked.whole("hero", high=fields - 1) if asked.text("hero") else None
    start, count = asked.whole("start"), asked.whole("count", low=1, high=CARDS)
    return answers.answer(asked.viewer.cards(asked.choice, start, count, hero))


def _sample(asked: Asked) -> Response:
    return answers.answer(asked.viewer.sample(asked.whole("index"), asked.choice))


def _check(asked: Asked) -> Response:
    samples = asked.viewer.samples
    return answers.answer(check_sample(samples, asked.whole("index", high=len(samples) - 1)))


def _search(asked: Asked) -> Response:
    return answers.answer(asked.viewer.search(asked.choice))


def _histogram(asked: Asked) -> Response:
    return answers.answer(asked.viewer.histogram(asked.text("column"), asked.choice))


def _picture(asked: Asked) -> Response:
    made = asked.viewer.picture(*asked.place, asked.room, asked.flag("crop"), asked.flag("overlay"))
    return answers.picture(made)


def _strip(asked: Asked) -> Response:
    frames = asked.whole("frames", 8, low=1, high=pictures.STRIP)
    return answers.picture(asked.viewer.strip(*asked.place, asked.room or (160, 240), frames))


def _peaks(asked: Asked) -> Response:
    count = asked.whole("count", 200, low=1, high=4000)
    return answers.answer(sounds.peaks(asked.viewer.item(*asked.place), count), keep=True)


def _plot(asked: Asked) -> Response:
    return answers.answer(plots.plot(asked.viewer.item(*asked.place)), keep=True)


def _file(asked: Asked) -> Response:
    return answers.stored(asked.request, asked.viewer.file(*asked.place), asked.viewer.file_name(*asked.place))


def _variants(asked: Asked) -> Response:
    variants, index, _ = asked.variant
    return answers.answer(variants.tell(index, asked.whole("epochs", 8, low=1, high=32)))


def _variant_picture(asked: Asked) -> Response:
    variants, index, epoch = asked.variant
    return answers.picture(variants.picture(index, epoch, asked.text("name")))


def _variant_plot(asked: Asked) -> Response:
    variants, index, epoch = asked.variant
    return answers.answer(variants.plot(index, epoch, asked.text("name")))


_QUICK: dict[str, Callable[[Asked], Response]] = {
    "dataset": _dataset, "cards": _cards, "sample/{index}": _sample, "check/{index}": _check,
    "picture/{index}/{field}": _picture, "strip/{index}/{field}": _strip, "peaks/{index}/{field}": _peaks,
    "plot/{index}/{field}": _plot, "file/{index}/{field}": _file,
}  # fmt: skip
_LONG: dict[str, Callable[[Asked], Response]] = {
    "search": _search, "histogram": _histogram, "variants/{index}": _variants,
    "variant-picture/{index}/{epoch}": _variant_picture, "variant-plot/{index}/{epoch}": _variant_plot,
}  # fmt: skip
"""What may take a while has threads of its own, so that pictures do not wait for it."""


def make_app(viewer: Viewer) -> Starlette:
    """The routes, without the guard before them."""
    routes = [
        Route("/", lambda request: _page("index.html")),
        Route("/static/{name}", lambda request: _page(request.path_params["name"])),
    ]
    for table, threads in ((_QUICK, usable_cpus() + 2), (_LONG, 4)):
        limiter = anyio.CapacityLimiter(threads)
        routes += [_route(viewer, path, work, limiter) for path, work in table.items()]
    return Starlette(routes=routes)


def _route(
    viewer: Viewer, path: str, work: Callable[[Asked], Response], limiter: anyio.CapacityLimiter
) -> Route:  # fmt: skip
    async def endpoint(request: Request) -> Response:
        return await anyio.to_thread.run_sync(partial(_safely, work, Asked(viewer, request)), limiter=limiter)

    return Route(f"/api/{path}", endpoint)


def _safely(work: Callable[[Asked], Response], asked: Asked) -> Response:
    """What goes wrong, as an answer."""
    try:
        return work(asked)
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
