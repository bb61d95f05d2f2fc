"""What tables say of a value, as a word or two."""

from __future__ import annotations

from fastloader.cli.output import count, printable
from fastloader.glance import ColumnView, Facts, columns_of
from fastloader.types import format_size

__all__ = ["ColumnView", "Facts", "columns_of", "phrase"]


def phrase(facts: Facts | None) -> str:
    """The facts as a word or two."""
    if facts is None:
        return "missing"
    if "value" in facts:
        return str(facts["value"])
    if "sample_rate" in facts:
        channels = facts.get("channels", facts["shape"][1] if len(facts.get("shape", ())) == 2 else 1)
        sound = "mono" if channels == 1 else "stereo" if channels == 2 else f"{channels} channels"
        return f"{facts['seconds']:.3f} s {facts.get('codec', facts.get('dtype'))} {facts['sample_rate']} Hz {sound}"
    if "height" in facts:
        pixels = f"{facts['height']}x{facts['width']}x{facts['channels']}"
        if "frames" in facts:
            return printable(f"{facts['frames']} frames of {pixels}, {facts['seconds']:.2f} s, {facts['codec']}")
        return pixels if facts["dtype"] == "uint8" else f"{pixels} {facts['dtype']}"
    if "shape" in facts:
        return printable(f"{facts['dtype']}[{','.join(map(str, facts['shape']))}]")
    if "documents" in facts:
        return f"{count(facts['documents'], 'document')}, {facts['tokens']} of {facts['seq_len']} tokens"
    if "elements" in facts:
        return count(facts["elements"], "element")
    said = [f"{name}={value!r}" for name, value in facts.get("metadata", {}).items()]
    said += [format_size(facts["bytes"])] if "bytes" in facts else []
    return printable(" ".join(said)) or "?"
