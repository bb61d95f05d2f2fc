"""Fields: what a column holds and how it is stored."""

from fastloader.fields.audio import AudioWaveformField
from fastloader.fields.audio_compressed import AudioCompressedField, EncodedAudio
from fastloader.fields.audio_spectrogram import SpectrogramField
from fastloader.fields.audio_tokens import AudioTokensField
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
from fastloader.fields.rows import RowDecoder, RowFunction
from fastloader.fields.shapes import BoxesField, KeypointsField, PointsField
from fastloader.fields.video import Video
from fastloader.fields.video_compressed import CompressedVideo, VideoCompressedField
from fastloader.fields.video_frames import FramesVideo, VideoFramesField

__all__ = [
    "BY_TYPE_ID", "AudioCompressedField", "AudioTokensField", "AudioWaveformField", "BatchDecoder", "BoxesField",
    "BytesField", "CompressedVideo", "Decoder", "Elements", "Encoded", "EncodedAudio", "EncodedColumn", "Field",
    "FloatField", "FramesVideo", "ImageFileField", "IntField", "JPEGImageField", "JSONField", "KeypointsField", "Lazy",
    "MappedPayloads", "NDArrayField", "OpticalFlowField", "PNGImageField", "PayloadBatch", "Plan", "PointsField",
    "RawImageField", "RowDecoder", "RowFunction", "SpectrogramField", "Video", "VideoCompressedField",
    "VideoFramesField", "WebPImageField", "field_class", "register_type",
]  # fmt: skip
