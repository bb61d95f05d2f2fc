"""Every field of sound, video, text and structure: what it takes, what it refuses, how it can be broken."""

from __future__ import annotations

import io
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import videos
from modality import USUAL, Form, Modality, emptied, file, given, noise, opened, payload, row, truncated
from PIL import Image
from tests.tokenizing import byte_pair

import fastloader as fl
from fastloader import ops
from fastloader.fields import Encoded

RATE = 8000
NAN = float("nan")


@cache
def tone(frames: int = 400, channels: int = 1) -> np.ndarray:
    time = np.arange(frames) / RATE
    made = np.stack([0.5 * np.sin(2 * np.pi * (440 + 110 * c) * time) for c in range(channels)], axis=1)
    made = (np.rint(made * 2**15) / 2**15).astype(np.float32)
    return made[:, 0] if channels == 1 else made


def sound_file(kind: str = "WAV", frames: int = 400, rate: int = RATE, channels: int = 1) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, tone(frames, channels), rate, format=kind, subtype="PCM_16")
    return out.getvalue()


BAD_SOUNDS: dict[str, tuple[Form, str]] = {
    "empty bytes": (given(b""), "the file is empty"),
    "no sound": (given(b"no sound at all"), "is no sound that can be decoded"),
    "a header alone": (given(sound_file("FLAC")[:60]), "is no sound that can be decoded|ends after|without samples"),
    "no such file": (given("no such.wav"), "FileNotFoundError: .*no such.wav"),
    "a text file": (given(io.StringIO("text")), "binary mode"),
    "an AIFF file": (given(sound_file("AIFF")), "none of WAV, FLAC, Ogg Vorbis, Ogg Opus and MP3"),
    "NaN": (given((np.array([0.5, NAN], np.float32), RATE)), "NaN or infinite"),
    "infinite": (given((np.array([np.inf, 0.5]), RATE)), "NaN or infinite"),
    "no samples": (given((np.zeros(0, np.float32), RATE)), "a sound without samples"),
    "a file without samples": (given(sound_file("WAV", 0)), "a sound without samples"),
    "a rate of 0": (given((tone(), 0)), "rate=0: a number of samples a second"),
    "a rate of text": (given((tone(), "16k")), "rate='16k': a whole number of samples a second"),
    "complex numbers": (given((tone().astype(np.complex64), RATE)), "complex64; convert it first"),
    "three dimensions": (given((np.zeros((2, 2, 2), np.float32), RATE)), r"got the shape \(2, 2, 2\)"),
    "a dictionary": (given({"a": 1}), "expected"),
    "an object": (given(object()), "expected"),
}


def without(*names: str) -> dict[str, tuple[Form, str]]:
    return {name: one for name, one in BAD_SOUNDS.items() if name not in names}


# Pictures and videos.


@cache
def frames() -> np.ndarray:
    y, x = np.mgrid[:24, :32]
    return np.stack([np.stack([x * 8 - i, y * 10, (x + y) * 4 + i], axis=2) for i in range(6)]).astype(np.uint8)


def picture_file(kind: str, array: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **options)
    return out.getvalue()


def flow() -> np.ndarray:
    return (np.arange(3 * 4 * 2).reshape(3, 4, 2) - 9).astype(np.float32) / 8


def flo_file() -> bytes:
    return b"PIEH" + struct.pack("<ii", 4, 3) + flow().astype("<f4").tobytes()


def kitti_file() -> bytes:
    pixels = np.ones((3, 4, 3), np.uint16)
    pixels[..., :2] = flow() * 64 + 32768
    return fl.PNGImageField().encode(pixels).payload


@cache
def mp4() -> bytes:
    return videos.video("h264.mp4").read_bytes()


def spoiled_mp4(one: Encoded) -> Encoded:
    """Packets in the middle of the video overwritten, the index as it was."""
    data = bytearray(one.payload)
    size = len(mp4())
    data[200 : size * 3 // 4] = np.random.default_rng(1).bytes(size * 3 // 4 - 200)
    return Encoded(one.metadata, bytes(data))


def mask() -> np.ndarray:
    return np.kron(np.arange(12).reshape(3, 4) % 5, np.ones((4, 5), int)).astype(np.uint8)


def coco(labels: np.ndarray) -> dict[str, Any]:
    """A mask of 0 and 1 as COCO writes it."""
    flat = labels.T.reshape(-1)
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff([0, *edges.tolist(), len(flat)]).tolist()
    return {"size": list(labels.shape), "counts": runs if flat[0] == 0 else [0, *runs]}


# Functions of the user's.


@ops.custom
def in_capitals(text: str, random: ops.Random) -> str:
    return f"{text.upper()} {random.below(1000)}"


@ops.custom
def one_hidden(tokens: np.ndarray, random: ops.Random) -> None:
    tokens[random.below(len(tokens))] = 0


@ops.custom
def first_hidden(sequence: dict[str, Any], random: ops.Random) -> None:
    sequence["tokens"][0] = random.below(300)


@ops.custom
def captioned(sample: dict[str, Any], random: ops.Random) -> dict[str, Any]:
    return sample | {"caption": f"{sample['caption']}, {random.below(1000)}"}


PICTURE = (fl.RawImageField(24, 32), np.zeros((24, 32, 3), np.uint8))
BOXES = [[1, 2, 11, 12], [0, 0, 32, 24]]
POINTS = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
ARRAY_DAMAGE = USUAL | {"another length": row(0, 7)}


MODALITIES: dict[str, Modality] = {
    "waveform": Modality(
        fl.AudioWaveformField(RATE, max_duration=0.5, dtype="int16"),
        {
            "array": given(tone()), "list": given(tone().tolist()),
            "integers": given((tone() * 2**15).astype(np.int16)),
            "array and rate": given((tone(), RATE)), "WAV bytes": given(sound_file()),
            "FLAC file": file("x.flac", lambda: sound_file("FLAC")), "open file": opened("x.wav", sound_file),
        },
        BAD_SOUNDS | {
            "too long": (given(tone(4001)), "max_duration is 0.5"),
            "too loud": (given(tone() * 4), "int16 takes floats from -1 to 1"),
            "channels first": (given(np.zeros((2, 400), np.float32)), "say so by layout='first'"),
        },
        ARRAY_DAMAGE, "0.050 s int16 8000 Hz mono  min -16384, max 16384", "0.050 s int16 8000 Hz mono",
        [ops.RandomSegment(frames=100), ops.Gain(3)],
    ),
    "encoded sound": Modality(
        fl.AudioCompressedField(sample_rate=RATE, channels=1, max_duration=0.5, check=True),
        {
            "WAV bytes": given(sound_file()), "WAV file": file("x.wav", sound_file),
            "open file": opened("x.wav", sound_file), "bytearray": given(bytearray(sound_file())),
        },
        without("a rate of 0") | {
            "another rate": (given(sound_file(rate=16000)), "the file has 16000 Hz, and sample_rate is 8000"),
            "stereo": (given(sound_file(channels=2)), "expected 1 channels, got 2"),
            "too long": (given(sound_file(frames=4001)), "max_duration is 0.5"),
            "a cut file": (given(sound_file("FLAC", 4000)[:-300]), "ends after|is no sound"),
        },
        {
            "empty": emptied, "truncated": truncated, "noise": noise, "another length": row(0, 399),
            "another rate": row(1, 16000), "another number of channels": row(2, 2), "an unknown codec": row(3, 9),
            "no rate": row(1, 0),
        },
        "0.050 s wav 8000 Hz mono", "0.050 s wav 8000 Hz mono", [ops.RandomSegment(frames=100)],
    ),
    "spectrogram": Modality(
        fl.SpectrogramField(n_mels=8, n_fft=64, hop_length=32, sample_rate=RATE, max_frames=20, dtype="float16"),
        {
            "array and rate": given((tone(), RATE)), "array": given(tone()), "WAV bytes": given(sound_file()),
            "FLAC file": file("x.flac", lambda: sound_file("FLAC")), "open file": opened("x.wav", sound_file),
        },
        without("three dimensions") | {
            "bands first": (given(np.zeros((8, 13), np.float32)), "librosa's has bands first: give its .T"),
            "NaN in a ready one": (given(np.full((3, 8), NAN, np.float32)), "NaN, infinite, or too large for float16"),
            "too large for its type": (given(np.full((3, 8), 1e30, np.float32)), "too large for float16"),
            "whole numbers": (given(np.zeros((3, 8), np.int64)), "expected a spectrogram of floats"),
            "no frames": (given(np.zeros((0, 8), np.float32)), r"expected a spectrogram \(frames, 8\)"),
            "too long": (given(np.zeros((21, 8), np.float32)), "max_frames is 20"),
        },
        ARRAY_DAMAGE, "float16[13,8]", "float16[13,8]", [ops.RandomSegment(frames=5), ops.SpecAugment(1, 2, 1, 2)],
    ),
    "sound tokens": Modality(
        fl.AudioTokensField(3, 600, max_frames=50),
        {
            "array": given(np.arange(60).reshape(3, 20) * 9),
            "list": given((np.arange(60).reshape(3, 20) * 9).tolist()),
            "small integers": given((np.arange(60).reshape(3, 20) * 9).astype(np.uint16)),
        },
        {
            "floats": (given(np.zeros((3, 4))), "expected whole numbers, got float64"),
            "NaN": (given(np.full((3, 4), NAN)), "expected whole numbers"),
            "a token too large": (given(np.full((3, 4), 600)), "the token 600 is none of a codebook of 600"),
            "a token below 0": (given(np.full((3, 4), -1)), "the token -1 is none"),
            "another number of codebooks": (given(np.zeros((2, 4), int)), r"expected tokens \(3, frames\), got"),
            "too long": (given(np.zeros((3, 51), int)), "max_frames is 50"),
            "text": (given("abc"), "expected tokens"),
            "bytes": (given(b"abc"), "expected tokens"),
        },
        ARRAY_DAMAGE, "uint16[3,20]", "uint16[3,20]", [ops.PadOrTrim(frames=15)],
    ),
    "frames": Modality(
        fl.VideoFramesField("png", fps=10, check=True),
        {
            "array": given(frames()), "list of arrays": given(list(frames())),
            "PIL images": given([Image.fromarray(one) for one in frames()]),
            "PNG bytes": given([fl.PNGImageField().encode(one).payload for one in frames()]),
            "PNG files": lambda folder: [
                file(f"{i}.png", lambda one=one: fl.PNGImageField().encode(one).payload)(folder)
                for i, one in enumerate(frames())
            ],
        },
        {
            "no frames": (given([]), "a video without frames"),
            "an array without frames": (given(np.zeros((0, 4, 4, 3), np.uint8)), "a video without frames"),
            "frames without pixels": (given(np.zeros((2, 0, 4, 3), np.uint8)), "frame 0: "),
            "floats": (given(np.zeros((2, 4, 4, 3))), "frame 0: .*float64"),
            "NaN": (given(np.full((2, 4, 4, 3), NAN, np.float32)), "frame 0: "),
            "two dimensions": (given(np.zeros((4, 4), np.uint8)), r"got \(4, 4\)"),
            "frames of two sizes": (given([frames()[0], frames()[1][:5]]), "frames 0 and 1 differ in size"),
            "bytes": (given(b"abc"), "expected an array or a list of frames, got bytes"),
            "a frame that is no picture": (given([frames()[0], b"nothing"]), "frame 1: "),
            "a frame cut short": (given([picture_file("PNG", frames()[0])[:70]]), "frame 0: "),
            "a frame of another kind": (given([picture_file("GIF", frames()[0])]), "frame 0: "),
            "a missing file": (given([frames()[0], "no such.png"]), "frame 1: FileNotFoundError: .*no such.png"),
            "16 bits": (given([np.zeros((4, 4), np.uint16)]), "frame 0: .*(16 bits|uint16)"),
        },
        USUAL | {"noise": noise, "another number of frames": row(3, 5), "another height": row(0, 23)},
        "6 frames of 24x32x3, 0.60 s, png", "6 frames of 24x32x3, 0.60 s, png",
        [ops.ClipSampler(3, stride=2), ops.RandomCrop(16)], lossy=True,
    ),
    "video": Modality(
        fl.VideoCompressedField(check=True),
        {
            "bytes": lambda folder: mp4(), "file": file("x.mp4", mp4),
            "name": lambda folder: str(file("y.mp4", mp4)(folder)),
            "bytearray": lambda folder: bytearray(mp4()), "open file": opened("x.mp4", mp4),
        },
        {
            "empty bytes": (given(b""), "FFmpeg can't read these bytes as a video|empty"),
            "an empty file": (file("empty.mp4", bytes), "FFmpeg can't read these bytes as a video|empty"),
            "no video": (given(b"no video at all" * 20), "FFmpeg can't read these bytes as a video"),
            "truncated": (lambda folder: mp4()[:300], "FFmpeg can't read|damaged|no frames"),
            "a sound": (lambda folder: videos.video(videos.SOUND), "there is no video in this file"),
            "no such file": (given("no such.mp4"), "FileNotFoundError: .*no such.mp4"),
            "an array": (lambda folder: frames(), "expected a video file or its bytes, got ndarray"),
            "a number": (given(5), "expected a video file or its bytes, got int"),
        },
        {
            "empty": emptied, "truncated": truncated, "noise": noise, "spoiled": spoiled_mp4,
            "another number of frames": row(2, 39), "another height": row(0, 62),
        },
        "40 frames of 64x80x3, 2.00 s, h264", "40 frames of 64x80x3, 2.00 s, h264",
        [ops.ClipSampler(4, stride=2), ops.CenterCrop(32)],
    ),
    "flow": Modality(
        fl.OpticalFlowField("int16", step=1 / 64),
        {
            "array": given(flow()), "double precision": given(flow().astype(np.float64)),
            ".flo bytes": given(flo_file()), ".flo file": file("x.flo", flo_file),
            "KITTI bytes": given(kitti_file()), "KITTI file": file("x.png", kitti_file),
            "open file": opened("x.flo", flo_file),
        },
        {
            "empty bytes": (given(b""), "neither a .flo file nor a PNG"),
            "no flow": (given(b"nothing at all"), "neither a .flo file nor a PNG"),
            "a cut .flo file": (given(flo_file()[:-1]), "a .flo file of 107 bytes that says it is 3x4"),
            "a header alone": (given(flo_file()[:9]), "fewer than 12 bytes"),
            "a cut PNG": (given(kitti_file()[:50]), "the PNG does not decode"),
            "an 8-bit PNG": (given(picture_file("PNG", frames()[0])), "KITTI's flow has 3 of 16"),
            "whole numbers": (given(np.zeros((3, 4, 2), int)), "expected flow as floats, got int64"),
            "infinite": (given(np.full((3, 4, 2), np.inf)), "infinite; NaN says that it is not known"),
            "too far": (given(np.full((3, 4, 2), 600.0)), "600|largest|beyond"),
            "no pixels": (given(np.zeros((0, 4, 2))), r"got \(0, 4, 2\)"),
            "three numbers a pixel": (given(np.zeros((3, 4, 3))), r"got \(3, 4, 3\)"),
            "an empty list": (given([]), "a list of flows has some"),
            "a missing file": (given("no such.flo"), "FileNotFoundError: .*no such.flo"),
        },
        USUAL | {"another height": row(1, 4), "another number of dimensions": row(3, 2)},
        "float32[3,4,2]", "float32[3,4,2]",
        [ops.RandomResizedCrop(5), ops.HorizontalFlip(), ops.Normalize(0, 2), ops.Layout("CHW")],
    ),
    "text": Modality(
        fl.TextField(dictionary=256),
        {
            "text": given("Grüße, 世界"), "bytes": given("Grüße, 世界".encode()),
            "bytearray": given(bytearray("Grüße, 世界".encode())),
        },
        {
            "no UTF-8": (given(b"gr\xfc\xdfe"), "the bytes are no UTF-8: invalid start byte at byte 2"),
            "cut UTF-8": (given("世界".encode()[:-1]), "the bytes are no UTF-8: unexpected end of data at byte 3"),
            "half a surrogate pair": (given("ab\ud800"), "half of a surrogate pair at character 2"),
            "a number": (given(5), "expected text, got int"),
            "NaN": (given(NAN), "expected text, got float"),
            "a list": (given(["a"]), "expected text, got list"),
        },
        {"no UTF-8": payload(b"ab\xff"), "cut UTF-8": payload("世".encode()[:2])},
        "Grüße, 世界", "15 B", [in_capitals],
    ),
    "tokenized text": Modality(
        fl.TokenizedTextField(byte_pair(), embed=True),
        {
            "text": given("two dogs"), "list": given(byte_pair().encode("two dogs", add_special_tokens=False).ids),
            "array": given(np.array(byte_pair().encode("two dogs", add_special_tokens=False).ids, np.uint32)),
        },
        {
            "a token too large": (given([1, 9999]), "token 9999 at 1 is not in the vocabulary"),
            "a token below 0": (given([-1]), "token -1 at 0 is not in the vocabulary"),
            "floats": (given([0.5]), "expected text or a list of tokens"),
            "NaN": (given([NAN]), "expected text or a list of tokens"),
            "half a surrogate pair": (given("ab\ud800"), "half of a surrogate pair at character 2"),
            "bytes": (given(b"ab"), "expected text or a list of tokens, got bytes"),
            "two dimensions": (given([[1], [2]]), "expected text or a list of tokens"),
            "a number": (given(5), "expected text or a list of tokens"),
        },
        {"half a token": payload(b"\1\0\1")},
        "two dogs", "B", [one_hidden],
    ),
    "packed text": Modality(
        fl.PackedTextField(16, 300, pad_id=299),
        {
            "documents": given([[1, 2, 3], [4]]), "arrays": given([np.array([1, 2, 3]), np.array([4], np.uint8)]),
            "packed": given(next(fl.pack([[1, 2, 3], [4]], 16))),
            "a mapping": given({"tokens": [1, 2, 3, 4], "lengths": [3, 1]}),
        },
        {
            "no documents": (given([]), "a sequence has at least one document"),
            "an empty document": (given([[1], []]), "a document at least one token"),
            "too many tokens": (given([[1] * 17]), "17 tokens do not fit a sequence of 16"),
            "a token too large": (given([[300]]), "token 300 at 0 is not in the vocabulary of 300"),
            "floats": (given([[0.5]]), "expected text or a list of tokens"),
            "NaN": (given([[NAN]]), "expected text or a list of tokens"),
            "text": (given("abc"), "expected a list of documents"),
            "lengths that do not fit": (given({"tokens": [1, 2], "lengths": [3]}), "documents of 3 tokens in all"),
            "lengths of text": (given({"tokens": [1, 2], "lengths": ["a"]}), "lengths"),
        },
        USUAL | {
            "another number of tokens": row(1, 5),
            "no documents": lambda one: Encoded((0, 4), bytes(one.payload)[8:]),
        },
        "2 documents, 4 of 16 tokens", "2 documents, 4 of 16 tokens", [first_hidden],
    ),
    "embedding": Modality(
        fl.EmbeddingField(4),
        {
            "array": given(np.array([1, -2, 0.5, 3], np.float32)), "list": given([1, -2, 0.5, 3]),
            "tuple": given((1.0, -2.0, 0.5, 3.0)), "half precision": given(np.array([1, -2, 0.5, 3], np.float16)),
        },
        {
            "NaN": (given([1, 2, 3, NAN]), "finite"),
            "infinite": (given([1, 2, 3, np.inf]), "finite"),
            "too large": (given([1, 2, 3, 1e39]), "finite|float32"),
            "another length": (given([1, 2, 3]), r"\(3,\)"),
            "no numbers": (given([]), r"\(0,\)"),
            "text": (given("abcd"), "expected"),
            "complex numbers": (given([1j, 2, 3, 4]), "complex"),
            "bytes": (given(b"abcd"), "expected"),
        },
        USUAL, "float32[4]", "float32[4]", [ops.Normalize(1.0, 2.0), ops.Cast("float32")],
    ),
    "embedding of float16": Modality(
        fl.EmbeddingField(4, "float16"),
        {"array": given(np.array([1, -2, 0.5, 3], np.float32)), "list": given([1, -2, 0.5, 3])},
        {
            "NaN": (given([1, 2, 3, NAN]), "finite"),
            "too large": (given([1, 2, 3, 1e39]), "finite|float16"),
            "another length": (given([1, 2, 3]), r"\(3,\)"),
        },
        USUAL, "float16[4]", "float16[4]",
        [ops.Normalize(1.0, 2.0), ops.Cast("float16")],
    ),
    "embedding of bfloat16": Modality(
        fl.EmbeddingField(4, "bfloat16"),
        {"array": given(np.array([1, -2, 0.5, 3], np.float32)), "list": given([1, -2, 0.5, 3])},
        {
            "NaN": (given([1, 2, 3, NAN]), "finite"),
            "too large": (given([1, 2, 3, 1e39]), "finite|bfloat16"),
            "another length": (given([1, 2, 3]), r"\(3,\)"),
        },
        USUAL, "bfloat16[4]", "bfloat16[4]",
        [ops.Normalize(1.0, 2.0), ops.Cast("float16")],
    ),
    "embedding of int8": Modality(
        fl.EmbeddingField(4, "int8"),
        {"array": given(np.array([1, -2, 0.5, 3], np.float32)), "list": given([1, -2, 0.5, 3])},
        {
            "NaN": (given([1, 2, 3, NAN]), "finite"),
            "too large": (given([1, 2, 3, 1e39]), "finite|int8"),
            "another length": (given([1, 2, 3]), r"\(3,\)"),
        },
        USUAL, "float32[4]", "int8[4]",
        [ops.Normalize(1.0, 2.0), ops.Cast("float16")],
    ),
    "boxes": Modality(
        fl.BoxesField("xyxy"),
        {"list": given(BOXES), "array": given(np.array(BOXES, np.float64)), "whole numbers": given(np.array(BOXES))},
        {
            "NaN": (given([[0, 0, 1, NAN]]), "row 0 is .* every number must be finite"),
            "inside out": (given([*BOXES, [5, 5, 4, 9]]), "box 2 is .* would be negative"),
            "five numbers": (given(np.zeros((2, 5))), r"\(2, 5\)"),
            "one dimension": (given([1, 2, 3, 4]), r"\(4,\)"),
            "text": (given("abcd"), "got str"),
            "complex numbers": (given(np.zeros((1, 4), complex)), "expected numbers, got an array of complex128"),
            "objects": (given([[None, 0, 1, 1]]), "."),
        },
        ARRAY_DAMAGE, "2 boxes, xyxy", "float32[2,4]", [ops.Follow("picture")],
        companions={"picture": PICTURE}, pipelines={"picture": [ops.RandomCrop((16, 16))]},
    ),
    "keypoints": Modality(
        fl.KeypointsField(3),
        {"list": given(POINTS), "array": given(np.array(POINTS, np.float64)), "whole numbers": given(np.array(POINTS))},
        {
            "NaN": (given([[[0, NAN], [0, 0], [1, 1]]]), "row 0 is .* every number must be finite"),
            "two points": (given(np.zeros((1, 2, 2))), r"\(1, 2, 2\)"),
            "text": (given("abcd"), "got str"),
            "bytes": (given(b"abcd"), "got bytes"),
        },
        ARRAY_DAMAGE, "float32[2,3,2]", "float32[2,3,2]", [ops.Follow("picture")],
        companions={"picture": PICTURE}, pipelines={"picture": [ops.RandomCrop((16, 16))]},
    ),
    "mask": Modality(
        fl.MaskField(),
        {
            "array": given((mask() > 0).astype(np.uint8)), "bool": given(mask() > 0),
            "int64": given((mask() > 0).astype(int)),
            "PIL image": given(Image.fromarray((mask() > 0).astype(np.uint8))),
            "PNG bytes": given(picture_file("PNG", (mask() > 0).astype(np.uint8))),
            "PNG file": file("x.png", lambda: picture_file("PNG", (mask() > 0).astype(np.uint8))),
            "COCO": given(coco((mask() > 0).astype(np.uint8))),
        },
        {
            "floats": (given(np.zeros((3, 4))), "labels are integers from 0 to 255 or bool, not float64"),
            "NaN": (given(np.full((3, 4), NAN)), "labels are integers"),
            "a label too large": (given(np.full((3, 4), 256)), "labels from 256 to 256"),
            "no pixels": (given(np.zeros((0, 4), np.uint8)), "a mask without pixels"),
            "colours": (given(np.zeros((3, 4, 3), np.uint8)), r"got \(3, 4, 3\)"),
            "empty bytes": (given(b""), "these bytes are no PNG"),
            "a JPEG": (given(picture_file("JPEG", frames()[0])), "these bytes are no PNG"),
            "a cut PNG": (given(picture_file("PNG", mask())[:60]), "."),
            "a PIL image of colours": (given(Image.new("RGB", (3, 4))), "mode RGB has no labels"),
            "COCO without counts": (given({"size": [3, 4]}), "a COCO mask has 'size' and 'counts'"),
            "COCO that does not add up": (given({"size": [3, 4], "counts": [5]}), "sum to 5"),
            "a missing file": (given(Path("no such.png")), "FileNotFoundError: .*no such.png"),
        },
        USUAL | {"noise": noise, "another height": row(0, 11)}, "12x20x1", "12x20x1",
        [ops.RandomCrop(8), ops.HorizontalFlip()], unseen=frozenset({"longer"}),
    ),
    "captions": Modality(
        fl.ListField(fl.TextField()),
        {"list": given(["a dog", "ein Hund"]), "tuple": given(("a dog", "ein Hund")),
         "bytes": given([b"a dog", b"ein Hund"]),
         "iterator's array": given(np.array(["a dog", "ein Hund"], object))},
        {
            "one text": (given("a dog"), "expected a list of values, got str"),
            "no UTF-8": (given(["a", b"\xff"]), "element 1: the bytes are no UTF-8"),
            "None": (given(["a", None]), "element 1 is None; leave out what is missing"),
            "a number": (given(5), "expected a list of values, got int"),
            "a number inside": (given(["a", 5]), "element 1: expected text, got int"),
            "a dictionary": (given({"a": 1}), "expected a list of values, got dict"),
        },
        USUAL | {"no UTF-8": payload(struct.pack("<II", 1, 1) + b"a\xff"), "too many elements": row(0, 1 << 40)},
        "ein Hund", "2 elements", [ops.Choose()],
    ),
    "dictionary": Modality(
        fl.DictField({"caption": fl.TextField(), "score": fl.FloatField(), "sound": fl.AudioTokensField(2, 9)}),
        {"dict": given({"caption": "a dog", "score": 0.5, "sound": [[1, 2], [3, 4]]}),
         "another order": given({"sound": np.array([[1, 2], [3, 4]]), "score": 0.5, "caption": b"a dog"})},
        {
            "a list": (given(["a dog", 0.5]), "expected a dictionary, got list"),
            "a key is missing": (given({"caption": "a"}), "expected the keys caption, score, sound, got caption"),
            "None": (given({"caption": None, "score": 1, "sound": [[1], [1]]}), "'caption' is None"),
            "no UTF-8": (given({"caption": b"\xff", "score": 1, "sound": [[1], [1]]}), "'caption': .* no UTF-8"),
            "a token too large": (given({"caption": "a", "score": 1, "sound": [[9], [1]]}), "'sound': the token 9"),
            "a score of text": (given({"caption": "a", "score": "x", "sound": [[1], [1]]}), "'score': "),
        },
        USUAL | {"no UTF-8": lambda one: Encoded(one.metadata, b"\xff" + bytes(one.payload)[1:])},
        "a dog", "B", [captioned],
    ),
    "videos": Modality(
        fl.ListField(fl.VideoCompressedField()),
        {"files": lambda folder: [file("x.mp4", mp4)(folder)], "bytes": lambda folder: [mp4()]},
        {
            "no video": (given([b"nothing"]), "element 0: FFmpeg can't read these bytes as a video"),
            "a missing file": (lambda folder: [mp4(), "no such.mp4"], "element 1: FileNotFoundError: .*no such.mp4"),
        },
        USUAL | {"spoiled": spoiled_mp4},
        "40 frames", "1 element", [ops.Choose()],
    ),
}  # fmt: skip
