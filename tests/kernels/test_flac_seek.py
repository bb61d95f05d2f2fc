"""Where a sample lies in a FLAC file, told from the headers of frames: against a walk through files made by hand."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader import kernels
from fastloader.fields import sound_files

RATE = 8000


def crc(data: bytes, bits: int, polynomial: int) -> int:
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = (value << 1 ^ (polynomial if value >> (bits - 1) else 0)) & (1 << bits) - 1
    return value


def coded(number: int) -> bytes:
    """A number as UTF-8 would write it, of up to 36 bits."""
    if number < 0x80:
        return bytes([number])
    length = next(n for n in range(2, 8) if number < 1 << (5 * n + 1))
    tail = [0x80 | number >> (6 * i) & 0x3F for i in range(length - 1)]
    return bytes([0x100 - (1 << (8 - length)) & 0xFF | number >> (6 * (length - 1)), *reversed(tail)])


def frame(samples: np.ndarray, number: int, varying: bool) -> bytes:
    """One channel of 16 bits, its samples as they are."""
    head = bytes([0xFF, 0xF8 | varying, 0x74, 0x08]) + coded(number) + struct.pack(">H", len(samples) - 1)
    body = head + bytes([crc(head, 8, 0x07)]) + b"\x02" + samples.astype(">i2").tobytes()
    return body + struct.pack(">H", crc(body, 16, 0x8005))


def flac(
    samples: np.ndarray, sizes: list[int], varying: bool, extra: bytes = b""
) -> tuple[bytes, list[tuple[int, int]]]:
    """A file, and where each frame begins with which sample."""
    largest = max(sizes)
    info = struct.pack(">HH", min(sizes) if varying else largest, largest) + bytes(6)
    info += struct.pack(">Q", RATE << 44 | 15 << 36 | len(samples)) + bytes(16)
    more = bytes([0x81]) + struct.pack(">I", len(extra))[1:] + extra
    data = b"fLaC" + bytes([0]) + struct.pack(">I", len(info))[1:] + info + more
    places, at = [], 0
    for number, size in enumerate(sizes):
        places.append((len(data), at))
        data += frame(samples[at : at + size], at if varying else number, varying)
        at += size
    assert at == len(samples)
    return data, places


def fixed_sizes(total: int, size: int) -> list[int]:
    return [size] * (total // size) + ([total % size] if total % size else [])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_frame_of_any_sample_is_found(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    varying = data.draw(st.booleans())
    sizes = data.draw(st.lists(st.integers(16, 90), min_size=1, max_size=40)) if varying else None
    total = sum(sizes) if sizes else data.draw(st.integers(16, 2000))
    sizes = sizes or fixed_sizes(total, data.draw(st.integers(16, 80)))
    samples = rng.integers(-(2**15), 2**15, total).astype(np.int16)
    file, places = flac(samples, sizes, varying, extra=rng.bytes(30))
    wanted = data.draw(st.integers(0, total - 1))
    head, at, first = kernels.flac_start(file, wanted)
    assert (at, first) == max((place for place in places if place[1] <= wanted), key=lambda place: place[1])
    assert head == places[0][0]
    facts = sound_files.facts_of(file)
    found = sound_files.decode(file, facts, wanted, total)[:, 0]
    assert np.array_equal(found * 2**15, samples[wanted:])
    assert kernels.flac_start(file, total) is None


def test_bytes_that_look_like_headers_are_not_taken_for_frames():
    """Samples that are, byte for byte, headers of other frames and of their own, with right checksums."""
    sizes = fixed_sizes(4000, 100)
    plain = np.zeros(4000, np.int16)
    headers = [frame(plain[:100], number, False)[:9] for number in range(40)]
    for k in range(40):
        fakes = b"".join(
            header + b"\0" * (len(header) % 2) for header in (headers[k], headers[(k + 1) % 40], headers[20])
        )
        plain[k * 100 + 30 : k * 100 + 30 + len(fakes) // 2] = np.frombuffer(fakes, ">i2")
    file, places = flac(plain, sizes, False)
    assert sum(file.count(header[:7]) for header in headers) > 100
    facts = sound_files.facts_of(file)
    for wanted in range(0, 4000, 37):
        found = kernels.flac_start(file, wanted)
        assert found is None or (found[1], found[2]) == places[wanted // 100]
        decoded = sound_files.decode(file, facts, wanted, min(wanted + 150, 4000))[:, 0]
        assert np.array_equal(decoded * 2**15, plain[wanted : wanted + 150])


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("bits", [16, 24])
def test_files_of_libflac_are_searched_without_decoding(channels, bits):
    rng = np.random.default_rng(0)
    sound = rng.normal(0, 0.1, (60_000, channels)) * np.linspace(0, 1, 60_000)[:, None] ** 3  # ever more bytes a frame
    out = io.BytesIO()
    soundfile.write(out, sound, RATE, format="FLAC", subtype=f"PCM_{bits}")
    file = out.getvalue()
    for wanted in (1, 4095, 4096, 30_000, 59_999):
        _, at, first = kernels.flac_start(file, wanted)
        assert first == wanted // 4096 * 4096
        assert file[at : at + 2] == b"\xff\xf8"


def test_what_is_no_plain_flac_file_is_left_to_the_library(sounds):
    rng = np.random.default_rng(1)
    file, places = flac(rng.integers(-99, 99, 900).astype(np.int16), fixed_sizes(900, 100), False)
    assert kernels.flac_start(file, 450)[2] == 400
    damaged = bytearray(file)
    damaged[places[4][0] + 40] ^= 1
    for other in (
        b"",
        file[:41],
        b"ID3" + file,
        sounds["speech.ogg"].read_bytes(),
        bytes(damaged),
        file[: places[4][0] + 9],
    ):
        assert kernels.flac_start(other, 450) is None
    unknown = bytearray(file)
    unknown[21:26] = bytes([unknown[21] & 0xF0]) + bytes(4)  # a stream that does not say how long it is
    assert kernels.flac_start(bytes(unknown), 450) is None
