"""What becomes of images or arrays: one view or several, as fields of the batch, with what their pipelines tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.fields import Field
from fastloader.ops import Op, Views
from fastloader.pipeline.arrays import compile_arrays, is_array
from fastloader.pipeline.compiler import Compiled, compile_pipeline
from fastloader.pipeline.draws import Sharer, first_number_of_view
from fastloader.pipeline.pieces import PipelineError, element_type

Behind = Callable[[Compiled, NDArray[Any], NDArray[np.float64]], NDArray[Any]]
"""Finishes the images of a view in Python; its numbers go into the array given."""


class Area(NamedTuple):
    """Views that come as one field of the batch: one alone, or several of one shape side by side."""

    field: str
    views: tuple[Compiled, ...]
    several: bool = False
    suffix: str = ""
    """What the fields that its pipelines return have behind their names."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as the engine makes it."""
        return sum(view.row_bytes for view in self.views)

    @property
    def returned(self) -> tuple[str, ...]:
        """Fields of the batch that its pipelines return."""
        told = self.views[0].told
        return tuple(f"{one.returns}{self.suffix}" for one in told if one.returns is not None)


class Sizes(NamedTuple):
    """The sizes of images where they came to an operation that shares its draws: (batch, 2), 0 where none came."""

    share: str
    field: str
    sizes: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Images:
    """The views of a field, ready for the engine, and how they are told."""

    field: str
    areas: tuple[Area, ...]
    lines: tuple[str, ...]

    @property
    def views(self) -> tuple[Compiled, ...]:
        """All views, in order."""
        return tuple(view for area in self.areas for view in area.views)

    @property
    def single(self) -> Compiled | None:
        """The pipeline of a field that has one, and no views."""
        area = self.areas[0]
        return area.views[0] if len(self.areas) == 1 and not area.several else None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the batch that it makes."""
        return tuple(name for area in self.areas for name in (area.field, *area.returned))

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        return any(view.tail is not None for view in self.views)

    @property
    def sharers(self) -> tuple[Sharer, ...]:
        """Operations that share their draws."""
        return tuple(one for view in self.views for one in view.sharers)

    def with_parts(self, share: float) -> Images:
        """The same, of one view, with parts of JPEGs for a decoder elsewhere in place of pixels."""
        assert self.single is not None
        view = self.single.with_parts(share)
        return replace(self, areas=(self.areas[0]._replace(views=(view,)),), lines=view.lines)

    def programs(self) -> list[tuple[kernels.Program, bool]]:
        """As the engine takes them: each view's, and whether it lies beside the one before."""
        return [(view.program, i > 0) for area in self.areas for i, view in enumerate(area.views)]

    def values(
        self, data: NDArray[np.uint8], places: NDArray[np.int64], samples: int, behind: Behind
    ) -> tuple[dict[str, NDArray[Any]], list[Sizes]]:
        """The engine's bytes as fields of the batch, and sizes that are to be compared.

        ``places`` says where areas begin; the last is that of the numbers told, where there are any.
        """
        there = len(data) > 0  # where nothing was, nothing was allocated
        told = np.zeros((samples, sum(view.program.told for view in self.views)))
        if there and told.size:
            told = data[places[-2] : places[-1]].view(np.float64).reshape(told.shape)
        made: dict[str, NDArray[Any]] = {}
        sizes: list[Sizes] = []
        for area, place in zip(self.areas, places.tolist(), strict=False):
            numbers = []
            for view in area.views:
                mine, told = told[:, : view.program.told], told[:, view.program.told :]
                numbers.append(np.hstack([mine, np.zeros((samples, view.tail.told))]) if view.tail else mine)
            if there:
                rows = data[place : place + samples * area.row_bytes].reshape(samples, area.row_bytes)
                made[area.field] = _pixels(area, rows, numbers, behind)
            else:
                made[area.field] = _nothing(area, samples)
            made |= returned(area, numbers)
            sizes += sizes_of(area, numbers)
        return made, sizes


def _pixels(
    area: Area, rows: NDArray[np.uint8], numbers: Sequence[NDArray[np.float64]], behind: Behind
) -> NDArray[Any]:
    if not any(view.tail is not None for view in area.views):
        if not area.several:
            return area.views[0].values(rows)
        # Rows of one view each, as views of one area have one shape: no copy.
        view = area.views[0]
        pixels = view.values(rows.reshape(-1, view.row_bytes))
        return pixels.reshape(len(rows), len(area.views), *pixels.shape[1:])
    finished, at = [], 0
    for view, mine in zip(area.views, numbers, strict=True):
        images = view.values(np.ascontiguousarray(rows[:, at : at + view.row_bytes]))
        at += view.row_bytes
        told = mine[:, view.program.told :]
        finished.append(images if view.tail is None else behind(view, images, told))
    return np.stack(finished, axis=1) if area.several else finished[0]


def _nothing(area: Area, samples: int) -> NDArray[Any]:
    """Images that take no memory."""
    result = area.views[0].result
    side_by_side = (len(area.views),) if area.several else ()
    shape = (samples, *side_by_side, *(side or 0 for side in result.shape))
    return np.broadcast_to(np.zeros((), element_type(result.dtype)), shape)


def sizes_of(area: Area, numbers: Sequence[NDArray[np.float64]]) -> list[Sizes]:
    """What the pipelines of an area tell of the sizes of images, for draws that are shared."""
    return [
        Sizes(one.share, area.field, mine[:, one.at : one.at + 2])
        for view, mine in zip(area.views, numbers, strict=True)
        for one in view.told
        if one.share is not None
    ]


def returned(area: Area, numbers: Sequence[NDArray[np.float64]]) -> dict[str, NDArray[Any]]:
    """What the pipelines of an area return, by field; of several views side by side."""
    made = {}
    for one in area.views[0].told:
        if one.returns is None:
            continue
        parts = []
        for view, mine in zip(area.views, numbers, strict=True):
            at = next(other.at for other in view.told if other.returns == one.returns)
            flat = mine[:, at : at + one.drawn.numbers]
            parts.append(flat.reshape(len(flat), *one.drawn.shape).astype(one.drawn.dtype))
        made[f"{one.returns}{area.suffix}"] = np.stack(parts, axis=1) if area.several else parts[0]
    return made


def compile_images(name: str, field: Field, ops: Sequence[Op] | Views, seed: int) -> Images:
    """The program of a field's pipeline, or those of its views."""
    compile_view = compile_arrays if is_array(field) else compile_pipeline
    if not isinstance(ops, Views):
        compiled = compile_view(name, field, ops, seed)
        return _checked(Images(name, (Area(name, (compiled,)),), compiled.lines))
    number = 0

    def compiled_views(pipelines: Iterable[Sequence[Op]], key: str | None = None) -> tuple[Compiled, ...]:
        nonlocal number
        made = []
        for one in pipelines:
            view = str(number) if key is None else repr(key)
            made.append(compile_view(name, field, one, seed, first_number_of_view(number), view))
            number += 1
        return tuple(made)

    areas: list[Area] = []
    if ops.views:
        views = compiled_views(ops.views)
        if len({view.result for view in views}) == 1:
            areas.append(Area(name, views, several=True))
        else:
            areas += [Area(f"{name}_{i}", (view,), suffix=f"_{i}") for i, view in enumerate(views)]
    for key, one in ops.named.items():
        several = isinstance(one, Views)
        views = compiled_views(one.views if isinstance(one, Views) else [one], key)
        if len({view.result for view in views}) > 1:
            raise PipelineError(
                f"pipelines for {name!r}: the views {key!r} are {', '.join(str(view.result) for view in views)}",
                hint="views of one name have one shape and type; give others names of their own",
            )
        areas.append(Area(f"{name}_{key}", views, several, f"_{key}"))
    lines = [f"{type(field).__name__} {name!r}: {number} views"]
    for area in areas:
        count = f"{len(area.views)} views, side by side" if area.several else "a view"
        lines.append(f"{area.field!r}: {count}")
        for view in area.views if len({view.lines[1:] for view in area.views}) > 1 else area.views[:1]:
            lines += [f"    {line}" for line in view.lines[1:]]
    return _checked(Images(name, tuple(areas), tuple(lines)))


def _checked(images: Images) -> Images:
    """What views return side by side is returned by each of them; no two fields of the batch have one name."""
    for area in images.areas:
        returned = [sorted(str((one.returns, one.drawn)) for one in view.told if one.returns) for view in area.views]
        if any(other != returned[0] for other in returned):
            raise PipelineError(
                f"pipelines for {images.field!r}: some views side by side return what others do not",
                hint="let all of them return it, or give views names of their own",
            )
    names = images.fields
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"pipelines for {images.field!r}: two fields of the batch would be {name!r}")
    return images


def check_sharing(sharers: Iterable[Sequence[Sharer]]) -> None:
    """Operations of one name must draw the same."""
    known: dict[str, Sharer] = {}
    for several in sharers:
        for sharer in several:
            other = known.setdefault(sharer.name, sharer)
            if other.key != sharer.key:
                raise PipelineError(
                    f"pipelines: what is shared as {sharer.name!r} is drawn in two ways: {other.op} for "
                    f"{other.field!r}, and {sharer.op} for {sharer.field!r}",
                    hint="give both the same options; filter, fill and the size of a resize may differ",
                )
