"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.choices import ChoicePipeline, compile_choice
from fastloader.pipeline.clips import ClipPipeline, compile_clips, is_clip
from fastloader.pipeline.compiler import Compiled, compile_pipeline
from fastloader.pipeline.decoders import RowPipeline, compile_decoder
from fastloader.pipeline.following import HIDDEN, Following, compile_following, watched
from fastloader.pipeline.images import Images, Sizes, check_sharing, compile_images
from fastloader.pipeline.labels import BatchStep, LabelPipeline, Pipeline, Pipelines, compile_batch_ops, compile_labels
from fastloader.pipeline.pieces import PipelineError
from fastloader.pipeline.sound import SoundPipeline, compile_sound, takes_sounds

__all__ = [
    "HIDDEN", "BatchStep", "ChoicePipeline", "ClipPipeline", "Compiled", "Following", "Images", "LabelPipeline",
    "Pipeline", "PipelineError", "Pipelines", "RowPipeline", "Sizes", "SoundPipeline", "check_sharing",
    "compile_batch_ops", "compile_choice", "compile_clips", "compile_decoder", "compile_following", "compile_images",
    "compile_labels", "compile_pipeline", "compile_sound", "is_clip", "takes_sounds", "watched",
]  # fmt: skip
