"""fastloader stores multimodal training data in one file and feeds it to models, checked and the same every time."""

from fastloader.errors import (
    ChecksumError,
    DecodeError,
    FastLoaderError,
    FormatError,
    KeyNotFoundError,
    NotFoundError,
    SampleError,
    StoreError,
    UnknownTypeError,
)
from fastloader.fields import (
    BatchDecoder,
    BytesField,
    Decoder,
    Encoded,
    EncodedColumn,
    Field,
    FloatField,
    IntField,
    JPEGImageField,
    JSONField,
    NDArrayField,
    PayloadBatch,
    PNGImageField,
    RawImageField,
    register_type,
)
from fastloader.loader import DataLoader
from fastloader.reader import DatasetReader
from fastloader.reader import open_dataset as open
from fastloader.samplers import EpochDigest, StateError
from fastloader.types import TypeId
from fastloader.verify import verify
from fastloader.writer import DatasetWriter, concatenate

__version__ = "0.1.0"

__all__ = [
    "BatchDecoder", "BytesField", "ChecksumError", "DataLoader", "DatasetReader", "DatasetWriter", "DecodeError",
    "Decoder", "Encoded", "EncodedColumn", "EpochDigest", "FastLoaderError", "Field", "FloatField", "FormatError",
    "IntField", "JPEGImageField", "JSONField", "KeyNotFoundError", "NDArrayField", "NotFoundError", "PNGImageField",
    "PayloadBatch", "RawImageField", "SampleError", "StateError", "StoreError", "TypeId", "UnknownTypeError",
    "concatenate", "open", "register_type", "verify",
]  # fmt: skip
