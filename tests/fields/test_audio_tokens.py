"""Tokens of a codec: packed to the bits they need, any run of them unpacked alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.errors import FormatError, SampleError
from fastloader.testing import FieldContract


def slow_pack(tokens, bits):
    """Frame after frame, in it codebook after codebook, least significant bit first."""
    stream = [(int(token) >> bit) & 1 for frame in np.asarray(tokens).T for token in frame for bit in range(bits)]
    stream += [0] * (-len(stream) % 8)
    return bytes(sum(stream[i + k] << k for k in range(8)) for i in range(0, len(stream), 8))


class TestTokensContract(FieldContract):
    def fields(self):
        return [
            fl.AudioTokensField(4, 1024), fl.AudioTokensField(1, 2, max_frames=9), fl.AudioTokensField(3, 2**32),
            fl.AudioTokensField(2, 1), fl.AudioTokensField(8, 256),
        ]  # fmt: skip

    def values(self, field):
        rng = np.random.default_rng(field.codebooks)
        return [
            rng.integers(0, field.codebook_size, (field.codebooks, n)).astype(field.dtype) for n in (7, 0, 9, 1)
        ]  # fmt: skip

    def bad_values(self, field):
        shape = (field.codebooks, 3)
        bad = [
            np.zeros((field.codebooks + 1, 3), int),
            np.zeros(3, int),
            np.zeros(shape),
            np.full(shape, -1),
            "tokens",
            b"tokens",
            np.full(shape, field.codebook_size),
        ]
        return bad + ([np.zeros((1, 10), int)] if field.max_frames else [])


@settings(max_examples=150, deadline=None)
@given(data=st.data(), codebooks=st.integers(1, 9), bits=st.integers(1, 32), frames=st.integers(0, 40))
def test_packing_is_that_of_the_slow_twin_and_any_run_comes_back(data, codebooks, bits, frames):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    size = data.draw(st.integers(2 ** (bits - 1) + 1, 2**bits)) if bits > 1 else 2
    field = fl.AudioTokensField(codebooks, size)
    assert field.bits == bits
    tokens = rng.integers(0, size, (codebooks, frames))
    packed = bytes(field.encode(tokens).payload)
    assert packed == slow_pack(tokens, bits)
    assert np.array_equal(field.unpack(packed, frames), tokens)
    start = data.draw(st.integers(0, frames))
    stop = data.draw(st.integers(start, frames))
    part = field.segment(packed, start, stop)
    assert part.dtype == field.dtype
    assert np.array_equal(part, tokens[:, start:stop])


def test_tokens_take_the_bits_they_need(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 1024, (8, 750))
    with fl.DatasetWriter(tmp_path / "x.fld", {"t": fl.AudioTokensField(8, 1024)}) as writer:
        writer.write_sample({"t": tokens})
    reader = fl.DatasetReader(tmp_path / "x.fld")
    payload = reader.read_payload(0, "t")
    assert len(payload) == 8 * 750 * 10 // 8
    assert np.array_equal(reader.fields["t"].segment(payload, 300, 450), tokens[:, 300:450])


def test_what_lies_outside_is_told():
    field = fl.AudioTokensField(2, 16)
    packed = field.encode(np.zeros((2, 5), int)).payload
    with pytest.raises(ValueError, match="frames 3 to 6: the payload has fewer"):
        field.segment(packed, 3, 6)
    with pytest.raises(ValueError, match="from 0 up"):
        field.segment(packed, -1, 2)
    with pytest.raises(FormatError, match="7 frames of 2 tokens of 4 bits"):
        field.unpack(packed, 7)
    with pytest.raises(kernels.Failure):
        kernels.unpack_tokens(packed, 2, 4, 2**63, 2**63, 1, np.empty(0, np.uint8))
    with pytest.raises(kernels.Failure):
        kernels.pack_tokens(np.full(2, 16, np.uint32), 2, 4, np.empty(1, np.uint8))


def test_a_bad_token_is_named(tmp_path):
    said = "sample 0, field 't': the token 1024 is none of a codebook of 1024"
    with (
        pytest.raises(SampleError, match=said),
        fl.DatasetWriter(tmp_path / "x.fld", {"t": fl.AudioTokensField(1, 1024)}) as writer,
    ):
        writer.write_sample({"t": [[3, 1024]]})


@pytest.mark.parametrize("options", [(0, 5), (1, 0), (1, 2**32 + 1), (70000, 2), (1, 2, -1)])
def test_wrong_options_are_told(options):
    with pytest.raises(ValueError, match=r"(codebooks|codebook_size|max_frames)="):
        fl.AudioTokensField(*options)
