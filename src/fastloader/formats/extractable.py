"""What a folder can hold: the rules by which entries of an archive are extracted, and asked for beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fastloader.formats.entries import EntryKind, is_plain
from fastloader.types import key_text

LINKS = 40
"""Links that are followed for one path, as many as Linux follows."""

Link = tuple[int, bytes]
"""Of a link, its kind and its target."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an entry can't be extracted; a note is of one that can be, by who asks for it."""

    message: str
    is_note: bool = False


def leads_out(path: bytes, target: bytes) -> bool:
    """Whether a link at ``path`` may lead out of the folder that holds all.

    Behind a name ``..`` may be anywhere, since the name may be that of another link.

    >>> leads_out(b"a/link", b"../b"), leads_out(b"link", b"../b"), leads_out(b"link", b"a/../b")
    (False, True, True)
    """
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    up = 0
    while up < len(names) and names[up] == b"..":
        up += 1
    return target.startswith(b"/") or up > path.count(b"/") or b".." in names[up:]


def troubles_of(paths: Iterable[bytes], links: Mapping[bytes, Link]) -> Iterator[Trouble]:
    """What is wrong with a tree as a whole. ``paths`` are all there are, ascending, folders with a slash behind."""
    ends = {path: _end(target, links) for path, (kind, target) in links.items() if kind == EntryKind.HARDLINK}
    files = set(ends.values()) - {None}
    missing = set(files)
    above: list[bytes] = []  # what is no folder, each a beginning of the next: only they can have this path below
    for path in paths:
        while above and not path.startswith(above[-1]):
            above.pop()
        for one in above:
            if path[len(one) : len(one) + 1] == b"/":
                yield Trouble(f"the path {key_text(path)!r} lies below {key_text(one)!r}, which is no folder")
                break
        if not path.endswith(b"/"):
            above.append(path)
            if path not in links:
                missing.discard(path)
    for path, (kind, target) in links.items():
        shown = f"{key_text(path)!r} is a hard link to {key_text(target)!r}, which"
        if kind == EntryKind.SYMLINK:
            if not target or b"\0" in target:
                yield Trouble(f"the link {key_text(path)!r} has no target that a link can have")
            elif leads_out(path, target):
                yield Trouble(f"the link {key_text(path)!r} leads out of the folder, to {key_text(target)!r}", True)
        elif not is_plain(target):
            yield Trouble(f"{shown} leads out of the folder")
        elif ends[path] is None:
            yield Trouble(f"{shown} leads back to itself")
        elif ends[path] in missing:
            yield Trouble(f"{shown} is no file in the archive")


def _end(target: bytes, links: Mapping[bytes, Link]) -> bytes | None:
    """What a hard link leads to by way of others; ``None`` where that never ends."""
    for _ in range(LINKS):
        kind, further = links.get(target, (EntryKind.FILE, b""))
        if kind != EntryKind.HARDLINK:
            return target
        target = further
    return None
