"""Fields: what a column holds and how it is stored."""

from fastloader.fields.audio import AudioWaveformField
from fastloader.fields.audio_compressed import AudioCompressedField, EncodedAudio
from fastloader.fields.audio_spectrogram import SpectrogramField
from fastloader.fields.audio_tokens import AudioTokensField
from fastloader.fields.base import (
    BatchDecoder,
    BatchParts,
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
from fastloader.fields.embedding import EmbeddingField
from fastloader.fields.flow import OpticalFlowField
from fastloader.fields.image import JPEGImageField, PNGImageField, RawImageField, WebPImageField
from fastloader.fields.image_files import ImageFileField, decode_image
from fastloader.fields.locating import check_value, locate_batch, locate_value
from fastloader.fields.mask import MaskField
from fastloader.fields.ndarray import NDArrayField
from fastloader.fields.nested_dict import DictField
from fastloader.fields.nested_list import ListField
from fastloader.fields.packed import Packed, PackedTextField
from fastloader.fields.payloads import MappedPayloads
from fastloader.fields.registry import BY_TYPE_ID, field_class, register_type
from fastloader.fields.rows import RowDecoder, RowFunction
from fastloader.fields.shapes import BoxesField, KeypointsField, PointsField
from fastloader.fields.text import TextField
from fastloader.fields.tokenized import TokenizedTextField, TokenStreamField
from fastloader.fields.tokenizers import TokenizerError
from fastloader.fields.video import Video
from fastloader.fields.video_compressed import CompressedVideo, VideoCompressedField
from fastloader.fields.video_frames import FramesVideo, VideoFramesField

__all__ = [
    "BY_TYPE_ID", "AudioCompressedField", "AudioTokensField", "AudioWaveformField", "BatchDecoder", "BatchParts",
    "BoxesField", "BytesField", "CompressedVideo", "Decoder", "DictField", "Elements", "EmbeddingField", "Encoded",
    "EncodedAudio", "EncodedColumn", "Field", "FloatField", "FramesVideo", "ImageFileField", "IntField",
    "JPEGImageField", "JSONField", "KeypointsField", "Lazy", "ListField", "MappedPayloads", "MaskField", "NDArrayField",
    "OpticalFlowField", "PNGImageField", "Packed", "PackedTextField", "PayloadBatch", "Plan", "PointsField",
    "RawImageField", "RowDecoder", "RowFunction", "SpectrogramField", "TextField", "TokenStreamField",
    "TokenizedTextField", "TokenizerError", "Video", "VideoCompressedField", "VideoFramesField", "WebPImageField",
    "check_value", "decode_image", "field_class", "locate_batch", "locate_value", "register_type",
]  # fmt: skip
