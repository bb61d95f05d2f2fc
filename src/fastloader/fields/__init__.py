"""Fields: what a column holds and how it is stored."""

from fastloader.fields.base import (
    BatchDecoder,
    Decoder,
    Elements,
    Encoded,
    EncodedColumn,
    Field,
    Lazy,
    PayloadBatch,
    Plan,
)
from fastloader.fields.basic import BytesField, FloatField, IntField, JSONField
from fastloader.fields.flow import OpticalFlowField
from fastloader.fields.image import JPEGImageField, PNGImageField, RawImageField, WebPImageField
from fastloader.fields.image_files import ImageFileField
from fastloader.fields.ndarray import NDArrayField
from fastloader.fields.payloads import MappedPayloads
from fastloader.fields.registry import BY_TYPE_ID, field_class, register_type
from fastloader.fields.shapes import BoxesField, KeypointsField, PointsField
from fastloader.fields.video import Video
from fastloader.fields.video_compressed import CompressedVideo, VideoCompressedField
from fastloader.fields.video_frames import FramesVideo, VideoFramesField

__all__ = [
    "BY_TYPE_ID", "BatchDecoder", "BoxesField", "BytesField", "CompressedVideo", "Decoder", "Elements", "Encoded",
    "EncodedColumn", "Field", "FloatField", "FramesVideo", "ImageFileField", "IntField", "JPEGImageField",
    "JSONField", "KeypointsField", "Lazy", "MappedPayloads", "NDArrayField", "OpticalFlowField", "PNGImageField",
    "PayloadBatch", "Plan", "PointsField", "RawImageField", "Video", "VideoCompressedField", "VideoFramesField",
    "WebPImageField", "field_class", "register_type",
]  # fmt: skip
