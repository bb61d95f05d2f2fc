"""fastloader stores multimodal training data in one file and feeds it to models, checked and the same every time."""

from fastloader import ops
from fastloader.dataset import Dataset, DatasetIterator, IterDataset, MapDataset
from fastloader.dataset import open_dataset as open
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
    SampleError,
    ShapeError,
    StoreError,
    UnknownTypeError,
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
from fastloader.verify import verify
from fastloader.writer import DatasetWriter, concatenate

__version__ = "0.1.0"

__all__ = [
    "AudioCompressedField", "AudioTokensField", "AudioWaveformField", "BatchDecoder", "BoxesField", "BytesField",
    "ChecksumError", "DataLoader", "Dataset", "DatasetIterator", "DatasetReader", "DatasetWriter", "DecodeError",
    "Decoder", "DictField", "ElementError", "Elements", "EmbeddingField", "Encoded", "EncodedAudio", "EncodedColumn",
    "EpochDigest", "FastLoaderError", "Field", "FloatField", "FormatError", "IntField", "IterDataset", "JPEGImageField",
    "JSONField", "KeyNotFoundError", "KeypointsField", "ListField", "LuaError", "LuaLoader", "MapDataset", "MaskField",
    "MissingExtraError", "MissingLibraryError", "NDArrayField", "NotFoundError", "OperationError", "OpticalFlowField",
    "PNGImageField", "Packed", "PackedTextField", "Pad", "PayloadBatch", "RawImageField", "RowDecoder", "RowFunction",
    "SampleError", "ShapeError", "SpectrogramField", "StateError", "StoreError", "TextField", "ThreadingOptions",
    "TokenStream", "TokenStreamWriter", "TokenizedTextField", "TokenizerError", "TypeId", "UnknownTypeError", "Video",
    "VideoCompressedField", "VideoFramesField", "WebPImageField", "concatenate", "decode_image", "open", "ops", "pack",
    "register_type", "verify",
]  # fmt: skip
