from dataclasses import dataclass, make_dataclass

import pytest

import fastloader as fl
from fastloader.fields import BY_TYPE_ID
from fastloader.types import TypeId


@pytest.fixture
def registry():
    """What a test registers is forgotten after it."""
    before = dict(BY_TYPE_ID)
    yield BY_TYPE_ID
    BY_TYPE_ID.clear()
    BY_TYPE_ID.update(before)


@dataclass(frozen=True)
class Text(fl.Field):
    """The smallest field there is."""

    def encode(self, value):
        return fl.Encoded(payload=value.encode())

    def get_decoder_class(self):
        class TextDecoder(fl.Decoder):
            def __call__(self, metadata, read):
                return bytes(read()).decode()

        return TextDecoder


def test_the_type_ids_of_the_format():
    assert {cls.__name__: cls.type_id for cls in BY_TYPE_ID.values() if cls.type_id < 1000} == {
        "IntField": 1, "FloatField": 2, "BytesField": 3, "NDArrayField": 4, "JSONField": 5, "RawImageField": 10,
        "JPEGImageField": 11, "PNGImageField": 12, "TextField": 40, "TokenizedTextField": 41, "PackedTextField": 42,
        "TokenStreamField": 43, "EmbeddingField": 50, "ListField": 60, "DictField": 61,
        "BoxesField": 51, "KeypointsField": 52, "MaskField": 53, "WebPImageField": 13,
        "AudioWaveformField": 20, "AudioCompressedField": 21, "SpectrogramField": 22, "AudioTokensField": 23,
        "VideoFramesField": 30, "VideoCompressedField": 31, "OpticalFlowField": 32,
    }  # fmt: skip
    assert {t.name: t.value for t in TypeId if t >= 20} == {
        "AUDIO_WAVEFORM": 20, "AUDIO_COMPRESSED": 21, "AUDIO_SPECTROGRAM": 22, "AUDIO_TOKENS": 23, "VIDEO_FRAMES": 30,
        "VIDEO_COMPRESSED": 31, "VIDEO_OPTICAL_FLOW": 32, "TEXT_RAW": 40, "TEXT_TOKENIZED": 41, "TEXT_PACKED": 42,
        "TOKEN_STREAM": 43, "EMBEDDING": 50, "LIST": 60, "DICT": 61,
        "BOXES": 51, "KEYPOINTS": 52, "MASK": 53,
    }  # fmt: skip


@pytest.mark.parametrize("type_id", [-1, 0, 1, 11, 999, 2**32])
def test_your_own_types_are_numbered_from_1000_up(type_id):
    with pytest.raises(ValueError, match="numbered from 1000 up"):
        fl.register_type(type_id)


def test_a_type_id_is_taken_once(registry):
    fl.register_type(4_000_000)(Text)

    with pytest.raises(ValueError, match="type id 4000000 is taken by Text"):

        @fl.register_type(4_000_000)
        class Other(Text):
            pass


def test_a_class_may_be_registered_again_when_its_module_is_run_again(registry):
    fl.register_type(4_000_000)(Text)
    again = type("Text", (Text,), {"__qualname__": Text.__qualname__, "__module__": Text.__module__})
    fl.register_type(4_000_000)(again)
    assert registry[4_000_000] is again


def test_an_unregistered_type_says_what_to_import_and_leaves_the_others_readable(registry, tmp_path):
    fl.register_type(4_000_001)(Text)
    with fl.DatasetWriter(
        tmp_path / "x.fld", {"before": fl.IntField(), "t": Text(), "after": fl.BytesField()}
    ) as writer:
        writer.write_sample((1, "two", b"three"))
    del registry[4_000_001]
    reader = fl.open(tmp_path / "x.fld")
    assert reader.field_names == ["before", "t", "after"]
    assert reader.read_sample(0, ["after", "before"]) == {"after": b"three", "before": 1}
    assert reader.read_payload(0, "t") == b"two"
    with pytest.raises(
        fl.UnknownTypeError, match="type id 4000001; import the module that calls register_type"
    ) as caught:
        reader[0]
    assert caught.value.field == "t"
    assert str(tmp_path / "x.fld") in str(caught.value)


@pytest.mark.parametrize("style", ["types", "text"])
def test_tuples_and_lists_among_the_options_come_back_as_they_were(registry, tmp_path, style):
    annotations = (tuple, list, object) if style == "types" else ("tuple[int, ...]", "list[int] | None", "Any")
    Sized = make_dataclass(
        "Sized", list(zip(("size", "names", "free"), annotations, strict=True)), bases=(Text,), frozen=True
    )
    fl.register_type(4_000_009)(Sized)
    field = Sized((3, (4, 5)), [1, [2]], ("x",))
    with fl.DatasetWriter(tmp_path / "x.fld", {"t": field}) as writer:
        writer.write_sample(["a"])
    got = fl.open(tmp_path / "x.fld").fields["t"]
    assert got == field
    assert (got.size, got.names, got.free) == ((3, (4, 5)), [1, [2]], ("x",))


def test_a_class_that_would_not_be_read_back_as_itself_is_refused(tmp_path):
    class Counter(fl.IntField):
        pass

    with pytest.raises(TypeError, match="type id 1 is not registered for Counter"):
        fl.DatasetWriter(tmp_path / "x.fld", {"n": Counter()})
    assert list(tmp_path.iterdir()) == []


def test_a_field_without_a_type_id_is_refused(tmp_path):
    class Unregistered(Text):
        type_id = 0

    with pytest.raises(ValueError, match=r"Unregistered has no type id; use @register_type\(id\)"):
        fl.DatasetWriter(tmp_path / "x.fld", {"n": Unregistered()})


def test_a_field_whose_metadata_changed_since_is_told(registry, tmp_path):
    import numpy as np

    fl.register_type(4_000_002)(Text)
    with fl.DatasetWriter(tmp_path / "x.fld", {"t": Text()}) as writer:
        writer.write_sample(["a"])

    class Wider(Text):
        metadata_type = np.dtype("<u4")

    registry[4_000_002] = Wider
    with pytest.raises(fl.FormatError, match="keeps 4 bytes of metadata a sample, the file 0"):
        fl.open(tmp_path / "x.fld")[0]


def test_a_decoder_without_call_says_so(registry, tmp_path):
    @fl.register_type(4_000_003)
    @dataclass(frozen=True)
    class Mute(Text):
        def get_decoder_class(self):
            return fl.Decoder

    with fl.DatasetWriter(tmp_path / "x.fld", {"m": Mute()}) as writer:
        writer.write_sample(["a"])
    with pytest.raises(
        fl.DecodeError, match="sample 0, field 'm': does not decode: TypeError: Decoder does not say how"
    ):
        fl.open(tmp_path / "x.fld")[0]
