"""Fields: what a column holds and how it is stored."""

from fastloader.fields.base import (
    BatchDecoder,
    BatchParts,
    Decoder,
    Elements,
    Encoded,
    EncodedColumn,
    Field,
    PayloadBatch,
    Plan,
)
from fastloader.fields.basic import BytesField, FloatField, IntField, JSONField
from fastloader.fields.embedding import EmbeddingField
from fastloader.fields.image import JPEGImageField, PNGImageField, RawImageField, WebPImageField
from fastloader.fields.image_files import ImageFileField
from fastloader.fields.ndarray import NDArrayField
from fastloader.fields.nested import DictField, ListField
from fastloader.fields.packed import Packed, PackedTextField
from fastloader.fields.payloads import MappedPayloads
from fastloader.fields.registry import BY_TYPE_ID, field_class, register_type
from fastloader.fields.shapes import BoxesField, KeypointsField, PointsField
from fastloader.fields.text import TextField
from fastloader.fields.tokenized import TokenizedTextField, TokenStreamField
from fastloader.fields.tokenizers import TokenizerError

__all__ = [
    "BY_TYPE_ID", "BatchDecoder", "BatchParts", "BoxesField", "BytesField", "Decoder", "DictField", "Elements",
    "EmbeddingField", "Encoded", "EncodedColumn", "Field", "FloatField", "ImageFileField", "IntField",
    "JPEGImageField", "JSONField", "KeypointsField", "ListField", "MappedPayloads", "NDArrayField", "PNGImageField",
    "Packed", "PackedTextField", "PayloadBatch", "Plan", "PointsField", "RawImageField", "TextField",
    "TokenStreamField", "TokenizedTextField", "TokenizerError", "WebPImageField", "field_class", "register_type",
]  # fmt: skip
