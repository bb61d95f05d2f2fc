"""Values as JSON for the page: what a card shows of them, or all of it, cut to a size that can be shown."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import numpy as np

from fastloader.errors import FastLoaderError
from fastloader.fields import (
    BoxesField,
    EncodedAudio,
    ImageFileField,
    KeypointsField,
    PackedTextField,
    TokenizedTextField,
    VideoFramesField,
)
from fastloader.fields.tokenizers import Tokenizer
from fastloader.types import format_size
from fastloader.viewer.items import Item
from fastloader.viewer.media import sniff

Told = dict[str, Any]

CARD_TEXT, PAGE_TEXT = 280, 50_000
CARD_TOKENS, PAGE_TOKENS = 48, 1024
SHOWN_BOXES = 500
SHOWN_NUMBERS = 16
SHOWN_BYTES = 256
NODES, DEPTH = 5000, 24
EXACT = 2**53
"""Whole numbers from here on are more than JavaScript can hold."""


def tell(item: Item | Exception | None, page: bool = False, tokenizer: Tokenizer | None = None) -> Told:
    """What is shown of a value: a ``kind``, and what the page needs to draw it."""
    if item is None:
        return {"kind": "missing"}
    if isinstance(item, Exception):
        return {"kind": "error", "text": explained(item)}
    try:
        return _tell(item, page, tokenizer)
    except Exception as error:  # whatever a damaged value or a user's decoder does
        return {"kind": "error", "text": explained(error)}


def explained(error: Exception) -> str:
    """The error without the place, which the page shows anyway."""
    if isinstance(error, FastLoaderError):
        return error.message + (f"; {error.hint}" if error.hint else "")
    return f"{type(error).__name__}: {error}"


def _tell(item: Item, page: bool, tokenizer: Tokenizer | None) -> Told:
    kind = item.kind
    told: Told = {"kind": kind} | plain({name: one for name, one in item.facts.items() if name != "value"})
    if kind == "number":
        return told | number(item.value)
    if kind == "text":
        return told | _text(item.value, PAGE_TEXT if page else CARD_TEXT)
    if kind == "json":
        return told | (_tree(item.value) if page else _preview(item.value))
    if kind in ("image", "mask", "animation"):
        return told | _image(item)
    if kind == "sound":
        return told | _sound(item)
    if kind == "video":
        return told | ({"type": sniff(item.data).type} if page else {})
    if kind == "frames" and isinstance(item.field, VideoFramesField):
        return told | {"fps": item.field.fps}
    if kind == "boxes" and isinstance(item.field, BoxesField):
        edges = item.field.edges(item.value)[:SHOWN_BOXES]
        return told | {"boxes": plain(edges.tolist()), "count": len(item.value), "normalized": item.field.normalized}
    if kind == "points" and isinstance(item.field, KeypointsField):
        points = item.value[:SHOWN_BOXES]
        return told | {"points": plain(points.tolist()), "count": len(item.value), "normalized": item.field.normalized}
    if kind in ("tokens", "packed"):
        return told | _tokens(item, page, tokenizer)
    if kind == "bytes":
        data = item.data
        return told | {"bytes": len(data), "hex": bytes(data[:SHOWN_BYTES] if page else data[:16]).hex(" ")}
    return told | (_array(item.value) if page or not item.facts else {})


def number(value: Any) -> Told:
    """A number, exactly as text."""
    value = value.item() if isinstance(value, np.generic) else value
    told: Told = {"kind": "number", "text": str(value)}
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) < EXACT:
        told["value"] = value
    return told


def _text(text: str, most: int) -> Told:
    return {"text": text[:most], "length": len(text), "more": max(0, len(text) - most)}


def _preview(value: Any) -> Told:
    with contextlib.suppress(RecursionError):
        return _text(json.dumps(plain(value, 200), ensure_ascii=False), CARD_TEXT)
    return {"text": "nested too deeply to be shown", "length": 0, "more": 0}


def _tree(value: Any) -> Told:
    budget = [NODES]
    made = _plain(value, budget, DEPTH)
    return {"value": made, "more": budget[0] <= 0}


def _image(item: Item) -> Told:
    told: Told = {}
    if "height" not in item.facts and item.kind != "animation":
        height, width, channels = _shape(item)
        told = {"height": height, "width": width, "channels": channels}
    field = item.field
    if isinstance(field, ImageFileField):
        told |= {"file": True, "orient": field.orient}
    if item.kind == "animation":
        told |= {"file": True, "orient": True}
    return told


def _shape(item: Item) -> tuple[int, int, int]:
    from fastloader.viewer.pictures import shape_of

    return shape_of(item)[:3]


def _sound(item: Item) -> Told:
    if "sample_rate" in item.facts:
        return {}
    try:
        value = item.value
    except ImportError:  # what would tell more is not installed; browsers play it all the same
        return {}
    if not isinstance(value, EncodedAudio):
        return {}
    return {
        "seconds": value.duration, "sample_rate": value.sample_rate, "channels": value.channels, "codec": value.codec
    }  # fmt: skip


def _tokens(item: Item, page: bool, tokenizer: Tokenizer | None) -> Told:
    value, field = item.value, item.field
    most = PAGE_TOKENS if page else CARD_TOKENS
    told: Told = {}
    if isinstance(field, PackedTextField):
        documents = value["document_ids"]
        value = value["tokens"][documents >= 0]
        told = {"documents": int(documents.max(initial=-1)) + 1, "starts": _starts(documents[documents >= 0], most)}
    ids = np.asarray(value).reshape(-1)
    told |= {"tokens": ids[:most].tolist(), "count": len(ids), "more": max(0, len(ids) - most)}
    known = tokenizer
    if isinstance(field, TokenizedTextField) and (field.embedded or field._tokenizer is not None):
        try:
            known = field.tokenizer
        except ImportError as error:
            return told | {"note": str(error)}
    if known is None:
        return told | ({"note": "the tokenizer is not stored; --tokenizer names it"} if page else {})
    try:
        if page:
            told["pieces"] = [known.decode([token])[:200] for token in told["tokens"]]
        return told | _text(known.decode(ids[: 16 * most].tolist()), PAGE_TEXT if page else CARD_TEXT) | {
            "more": told["more"]
        }  # fmt: skip
    except Exception as error:  # of the user's tokenizer
        return told | {"note": f"the tokenizer fails: {error}"}


def _starts(documents: Any, most: int) -> list[int]:
    return [0, *(np.flatnonzero(np.diff(documents[:most])) + 1).tolist()] if len(documents) else []


def _array(value: Any) -> Told:
    array = np.asarray(value)
    told: Told = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size <= SHOWN_NUMBERS and array.dtype.kind in "biuf":
        told["values"] = plain(array.tolist())
    return told


def plain(value: Any, nodes: int = NODES) -> Any:
    """What JSON and JavaScript can hold: no more than ``nodes`` values, nested no deeper than ``DEPTH``."""
    return _plain(value, [nodes], DEPTH)


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return value if abs(value) < EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= PAGE_TEXT else f"{value[:PAGE_TEXT]}… ({len(value):,} characters)"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{format_size(len(value))}: {bytes(value[:16]).hex(' ')}{' …' if len(value) > 16 else ''}"
    if isinstance(value, np.ndarray):
        if value.size > SHOWN_NUMBERS or value.dtype.kind not in "biuf":
            return f"{value.dtype}{list(value.shape)}"
        return _plain(value.tolist(), budget, depth)
    if depth <= 0:
        return "…"
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        for name, one in value.items():
            if budget[0] <= 0:
                break
            made[str(name)] = _plain(one, budget, depth - 1)
        return made
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for one in value:
            if budget[0] <= 0:
                break
            items.append(_plain(one, budget, depth - 1))
        return items
    return repr(value)[:PAGE_TEXT]
