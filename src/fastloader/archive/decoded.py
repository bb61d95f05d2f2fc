"""Values in place of bytes: what files hold, told by how their names end."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, FastLoaderError
from fastloader.fields import JPEGImageField, PNGImageField, WebPImageField, decode_image, sound_files
from fastloader.formats.entries import Entry, EntrySink
from fastloader.formats.extras import required
from fastloader.types import key_bytes

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]

MOST_UNPACKED = 16 << 30
"""Bytes that a compressed file may become: archives come from anywhere."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How files whose names end alike are read and written; ``encode`` may be missing."""

    decode: Decode
    encode: Encode | None = None


def _image(kind: type[JPEGImageField | PNGImageField | WebPImageField], **options: Any) -> Codec:
    return Codec(decode_image, partial(_save_image, kind, options))


def _save_image(kind: type[JPEGImageField | PNGImageField | WebPImageField], options: Any, value: Any) -> bytes:
    return bytes(kind(**options).encode(value).payload)


def _load_npy(data: bytes, allow_pickle: bool = False) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=allow_pickle)


def _save_npy(value: Any, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=allow_pickle)
    return file.getvalue()


def _load_npz(data: bytes, allow_pickle: bool = False) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(data), allow_pickle=allow_pickle) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _save_npz(value: Mapping[str, Any], allow_pickle: bool = False) -> bytes:
    for name, one in value.items():
        if not allow_pickle and np.asarray(one).dtype.hasobject:
            raise ValueError(f"{name!r} holds Python objects, which npz keeps only by pickle")
    file = io.BytesIO()
    np.savez(file, **value)
    return file.getvalue()


def _load_msgpack(data: bytes) -> Any:
    return required("msgpack", "MessagePack", "").unpackb(data, strict_map_key=False)


def _save_msgpack(value: Any) -> bytes:
    packed: bytes = required("msgpack", "MessagePack", "").packb(value)
    return packed


def _load_sound(data: bytes) -> tuple[NDArray[np.float32], int]:
    facts = sound_files.facts_of(data)
    return sound_files.decode(data, facts, 0, facts.frames), facts.sample_rate


def _save_sound(codec: str, value: tuple[Any, int]) -> bytes:
    samples, rate = value
    array = np.asarray(samples, np.float32)
    return sound_files.encode(array.reshape(len(array), -1), rate, codec, 16)


def _save_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _save_wav(value: tuple[Any, int]) -> bytes:
    import wave

    samples = np.asarray(value[0], np.float64)
    samples = samples.reshape(len(samples), -1)
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(samples.shape[1])
        made.setsampwidth(2)
        made.setframerate(value[1])
        made.writeframes(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes())
    return file.getvalue()


def _gunzip(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        return _bounded(file.read)


def _unzstd(data: bytes) -> bytes:
    library = required("zstandard", "zstd", "")
    with library.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as file:
        return _bounded(file.read)


def _zstd(data: bytes) -> bytes:
    packed: bytes = required("zstandard", "zstd", "").ZstdCompressor().compress(data)
    return packed


def _bounded(read: Callable[[int], bytes]) -> bytes:
    data = read(MOST_UNPACKED + 1)
    if len(data) > MOST_UNPACKED:
        raise ValueError(f"unpacked, it has more than {MOST_UNPACKED >> 30} GiB")
    return data


_JPEG = _image(JPEGImageField, seekable=False)
CODECS: dict[str, Codec] = {
    "jpg": _JPEG, "jpeg": _JPEG, "png": _image(PNGImageField), "webp": _image(WebPImageField),
    "npy": Codec(_load_npy, _save_npy), "npz": Codec(_load_npz, _save_npz),
    "json": Codec(json.loads, _save_json),
    "msgpack": Codec(_load_msgpack, _save_msgpack),
    "txt": Codec(bytes.decode, str.encode),
    "wav": Codec(_load_sound, _save_wav), "flac": Codec(_load_sound, partial(_save_sound, "flac")),
    "opus": Codec(_load_sound, partial(_save_sound, "opus")), "ogg": Codec(_load_sound), "mp3": Codec(_load_sound),
}  # fmt: skip
"""By how a name ends. JPEG, PNG and WebP are (height, width, channels) arrays; sounds are pairs of a (frames, channels)
array and the sample rate; an npz is a dictionary of arrays."""

WRAPPERS: dict[str, Codec] = {
    "gz": Codec(_gunzip, lambda data: gzip.compress(data, mtime=0)),
    "zst": Codec(_unzstd, _zstd),
}
"""Compressions that may come behind: ``.npy.gz`` is an array."""

_PICKLE = Codec(pickle.loads, pickle.dumps)
_TRUSTED = {
    "pkl": _PICKLE, "pickle": _PICKLE,
    "npy": Codec(partial(_load_npy, allow_pickle=True), partial(_save_npy, allow_pickle=True)),
    "npz": Codec(partial(_load_npz, allow_pickle=True), partial(_save_npz, allow_pickle=True)),
}  # fmt: skip
"""What takes the place of those above where pickles are allowed."""


@dataclass(frozen=True)
class DecodedView(Mapping[str, Any]):
    """An archive whose values are decoded: ``DecodedView(archive)["a/b.npy"]`` is an array.

    How a path ends says what it holds; a path that ends otherwise gives bytes. ``register`` adds endings of your own,
    or puts another codec in place of one. Files ending with .pkl and .pickle, and arrays of objects in .npy and .npz,
    are unpickled only with ``allow_pickle``: a pickle can run any program. A view can be pickled itself, as long as
    what was registered can.

    Made of an ``ArchiveWriter``, or another sink of entries, it writes: ``view["a/b.npy"] = array``.
    """

    archive: Any
    allow_pickle: bool = False
    codecs: dict[str, Codec] = field(default_factory=lambda: dict(CODECS))

    def __post_init__(self) -> None:
        # Its own: what is trusted here, or registered, must not be in another view that was given the same.
        object.__setattr__(self, "codecs", dict(self.codecs))
        for ending, codec in _TRUSTED.items() if self.allow_pickle else ():
            if self.codecs.get(ending) is CODECS.get(ending):  # and no codec of the caller's own
                self.codecs[ending] = codec

    def register(self, ending: str, decode: Decode, encode: Encode | None = None) -> None:
        """Read, and write, paths that end with ``.ending`` by these functions."""
        if not ending.strip(".") or "/" in ending:
            raise ValueError(f"{ending!r}: an ending is like 'npy' or 'tar.xz'")
        self.codecs[ending.strip(".").lower()] = Codec(decode, encode)

    def _chain(self, path: str) -> list[Codec]:
        """What a path's endings call for, the outermost first."""
        name = path.rpartition("/")[2].lower()
        found: list[Codec] = []
        while "." in name:
            for at in (i for i, char in enumerate(name) if char == "."):  # the longest ending that is known
                if name[at + 1 :] in self.codecs:
                    return [*found, self.codecs[name[at + 1 :]]]
            name, _, ending = name.rpartition(".")
            if ending in ("pkl", "pickle"):
                raise DecodeError(
                    f"{path!r} is a pickle, which can run any program", path=getattr(self.archive, "path", None),
                    hint="where you trust it, DecodedView(archive, allow_pickle=True)",
                )  # fmt: skip
            if ending not in WRAPPERS:
                return found
            found.append(WRAPPERS[ending])
        return found

    def __getitem__(self, path: str) -> Any:
        chain = self._chain(path)
        value = self.archive[path]
        try:
            for codec in chain:
                value = codec.decode(value)
        except FastLoaderError:
            raise
        except MemoryError:
            raise
        except Exception as error:
            raise DecodeError(
                f"{path!r} does not decode: {type(error).__name__}: {error}", path=getattr(self.archive, "path", None)
            ) from error
        return value

    def encode(self, path: str, value: Any) -> bytes:
        """A value as the bytes of a file with this path."""
        for codec in reversed(self._chain(path)):
            if codec.encode is None:
                raise ValueError(f"{path!r}: such files are read here, not written; register an encoder")
            value = codec.encode(value)
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"{path!r}: no codec is registered for it, so it takes bytes, not {type(value).__name__}")
        return bytes(value)

    def __setitem__(self, path: str, value: Any) -> None:
        sink: EntrySink = self.archive
        if not hasattr(sink, "add"):
            raise TypeError("an archive open for reading can't be changed; DecodedView(ArchiveWriter(path)) writes one")
        sink.add(Entry.of(key_bytes(path), self.encode(path, value)))

    def __contains__(self, path: object) -> bool:
        return path in self.archive

    def __iter__(self) -> Iterator[str]:
        return iter(self.archive)

    def __len__(self) -> int:
        return len(self.archive)

    __eq__ = object.__eq__
    __hash__ = object.__hash__
