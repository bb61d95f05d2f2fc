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
    MissingLibraryError,
    NotFoundError,
    OperationError,
    SampleError,
    ShapeError,
    StoreError,
    UnknownTypeError,
)
from fastloader.fields import (
    BatchDecoder,
    BoxesField,
    BytesField,
    Decoder,
    Elements,
    Encoded,
    EncodedColumn,
    Field,
    FloatField,
    IntField,
    JPEGImageField,
    JSONField,
    KeypointsField,
    NDArrayField,
    PayloadBatch,
    PNGImageField,
    RawImageField,
    WebPImageField,
    decode_image,
    register_type,
)
from fastloader.loader import DataLoader, Pad, ThreadingOptions
from fastloader.reader import DatasetReader
from fastloader.samplers import EpochDigest, StateError
from fastloader.types import TypeId
from fastloader.verify import verify
from fastloader.writer import DatasetWriter, concatenate

__version__ = "0.1.0"

__all__ = [
    "BatchDecoder", "BoxesField", "BytesField", "ChecksumError", "DataLoader", "Dataset", "DatasetIterator",
    "DatasetReader", "DatasetWriter", "DecodeError", "Decoder", "ElementError", "Elements", "Encoded", "EncodedColumn",
    "EpochDigest", "FastLoaderError", "Field", "FloatField", "FormatError", "IntField", "IterDataset", "JPEGImageField",
    "JSONField", "KeyNotFoundError", "KeypointsField", "MapDataset", "MissingLibraryError", "NDArrayField",
    "NotFoundError", "OperationError", "PNGImageField", "Pad", "PayloadBatch", "RawImageField", "SampleError",
    "ShapeError", "StateError", "StoreError", "ThreadingOptions", "TypeId", "UnknownTypeError", "WebPImageField",
    "concatenate", "decode_image", "open", "ops", "register_type", "verify",
]  # fmt: skip
