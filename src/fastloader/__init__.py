"""fastloader stores multimodal training data in one file and feeds it to models, checked and the same every time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastloader import ops
    from fastloader.archive import Archive, ArchiveWriter, DecodedView
    from fastloader.dataset import Dataset, DatasetIterator, IterDataset, MapDataset
    from fastloader.dataset import open_dataset as open
    from fastloader.editing import DatasetEditor, Snapshot, edit
    from fastloader.errors import (
        ChecksumError,
        DecodeError,
        ElementError,
        FastLoaderError,
        FormatError,
        KeyNotFoundError,
        MissingExtraError,
        MissingLibraryError,
        NotFoundError,
        OperationError,
        PassError,
        SampleError,
        ShapeError,
        StoreError,
        UnknownTypeError,
        UnreadableError,
    )
    from fastloader.fields import (
        AudioCompressedField,
        AudioTokensField,
        AudioWaveformField,
        BatchDecoder,
        BoxesField,
        BytesField,
        Decoder,
        DictField,
        Elements,
        EmbeddingField,
        Encoded,
        EncodedAudio,
        EncodedColumn,
        Field,
        FloatField,
        IntField,
        JPEGImageField,
        JSONField,
        KeypointsField,
        ListField,
        MaskField,
        NDArrayField,
        OpticalFlowField,
        Packed,
        PackedTextField,
        PayloadBatch,
        PNGImageField,
        RawImageField,
        RowDecoder,
        RowFunction,
        SpectrogramField,
        TextField,
        TokenizedTextField,
        TokenizerError,
        Video,
        VideoCompressedField,
        VideoFramesField,
        WebPImageField,
        decode_image,
        register_type,
    )
    from fastloader.loader import DataLoader, Pad, ThreadingOptions
    from fastloader.lua import LuaError, LuaLoader
    from fastloader.packing import pack
    from fastloader.reader import DatasetReader
    from fastloader.samplers import EpochDigest, StateError
    from fastloader.tokens import TokenStream, TokenStreamWriter
    from fastloader.types import TypeId
    from fastloader.verification import verify
    from fastloader.writer import DatasetWriter, concatenate

__version__ = "0.1.0"

__all__ = [
    "Archive", "ArchiveWriter", "AudioCompressedField", "AudioTokensField", "AudioWaveformField", "BatchDecoder",
    "BoxesField", "BytesField", "ChecksumError", "DataLoader", "Dataset", "DatasetEditor", "DatasetIterator",
    "DatasetReader", "DatasetWriter", "DecodeError", "DecodedView", "Decoder", "DictField", "ElementError",
    "Elements", "EmbeddingField", "Encoded", "EncodedAudio", "EncodedColumn", "EpochDigest", "FastLoaderError",
    "Field", "FloatField", "FormatError", "IntField", "IterDataset", "JPEGImageField", "JSONField",
    "KeyNotFoundError", "KeypointsField", "ListField", "LuaError", "LuaLoader", "MapDataset", "MaskField",
    "MissingExtraError", "MissingLibraryError", "NDArrayField", "NotFoundError", "OperationError", "OpticalFlowField",
    "PNGImageField", "Packed", "PackedTextField", "Pad", "PassError", "PayloadBatch", "RawImageField", "RowDecoder",
    "RowFunction", "SampleError", "ShapeError", "Snapshot", "SpectrogramField", "StateError", "StoreError",
    "TextField", "ThreadingOptions", "TokenStream", "TokenStreamWriter", "TokenizedTextField", "TokenizerError",
    "TypeId", "UnknownTypeError", "UnreadableError", "Video", "VideoCompressedField", "VideoFramesField",
    "WebPImageField", "concatenate", "decode_image", "edit", "open", "ops", "pack", "register_type", "verify",
]  # fmt: skip

_MODULES = {
    "archive": "Archive ArchiveWriter DecodedView",
    "dataset": "Dataset DatasetIterator IterDataset MapDataset",
    "editing": "DatasetEditor Snapshot edit",
    "errors": (
        "ChecksumError DecodeError ElementError FastLoaderError FormatError KeyNotFoundError MissingExtraError "
        "MissingLibraryError NotFoundError OperationError PassError SampleError ShapeError StoreError UnknownTypeError "
        "UnreadableError"
    ),
    "fields": (
        "AudioCompressedField AudioTokensField AudioWaveformField BatchDecoder BoxesField BytesField Decoder "
        "DictField Elements EmbeddingField Encoded EncodedAudio EncodedColumn Field FloatField IntField "
        "JPEGImageField JSONField KeypointsField ListField MaskField NDArrayField OpticalFlowField Packed "
        "PackedTextField PayloadBatch PNGImageField RawImageField RowDecoder RowFunction SpectrogramField "
        "TextField TokenizedTextField TokenizerError Video VideoCompressedField VideoFramesField WebPImageField "
        "decode_image register_type"
    ),
    "loader": "DataLoader Pad ThreadingOptions",
    "lua": "LuaError LuaLoader",
    "packing": "pack",
    "reader": "DatasetReader",
    "samplers": "EpochDigest StateError",
    "tokens": "TokenStream TokenStreamWriter",
    "types": "TypeId",
    "verification": "verify",
    "writer": "DatasetWriter concatenate",
}
"""Where names come from. A module is loaded when one of its names is first used, so importing costs next to nothing."""
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("fastloader.ops")
    if name == "open":
        found = import_module("fastloader.dataset").open_dataset
    elif name in _WHERE:
        found = getattr(import_module(f"fastloader.{_WHERE[name]}"), name)
    else:
        raise AttributeError(f"module 'fastloader' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
