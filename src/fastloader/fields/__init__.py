"""Fields: what a column holds and how it is stored."""

from fastloader.fields.base import BatchDecoder, Decoder, Elements, Encoded, EncodedColumn, Field, PayloadBatch, Plan
from fastloader.fields.basic import BytesField, FloatField, IntField, JSONField
from fastloader.fields.image import JPEGImageField, PNGImageField, RawImageField, WebPImageField
from fastloader.fields.image_files import ImageFileField, decode_image
from fastloader.fields.ndarray import NDArrayField
from fastloader.fields.payloads import MappedPayloads
from fastloader.fields.registry import BY_TYPE_ID, field_class, register_type
from fastloader.fields.shapes import BoxesField, KeypointsField, PointsField

__all__ = [
    "BY_TYPE_ID", "BatchDecoder", "BoxesField", "BytesField", "Decoder", "Elements", "Encoded", "EncodedColumn",
    "Field", "FloatField", "ImageFileField", "IntField", "JPEGImageField", "JSONField", "KeypointsField",
    "MappedPayloads", "NDArrayField", "PNGImageField", "PayloadBatch", "Plan", "PointsField", "RawImageField",
    "WebPImageField", "decode_image", "field_class", "register_type",
]  # fmt: skip
