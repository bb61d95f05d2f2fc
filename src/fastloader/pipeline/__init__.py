"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.clips import ClipPipeline, compile_clips
from fastloader.pipeline.compiler import Compiled, compile_pipeline
from fastloader.pipeline.decoders import RowPipeline, compile_decoder
from fastloader.pipeline.dispatch import compile_pipelines, kind_of
from fastloader.pipeline.following import HIDDEN, FlowFollowing, Following
from fastloader.pipeline.images import Images, Sizes, compile_images
from fastloader.pipeline.labels import BatchStep, LabelPipeline, Pipeline, Pipelines, compile_batch_ops, compile_labels
from fastloader.pipeline.pieces import PipelineError
from fastloader.pipeline.sound import SoundPipeline, compile_sound
from fastloader.pipeline.values import Values, compile_values

__all__ = [
    "HIDDEN", "BatchStep", "ClipPipeline", "Compiled", "FlowFollowing", "Following", "Images", "LabelPipeline",
    "Pipeline", "PipelineError", "Pipelines", "RowPipeline", "Sizes", "SoundPipeline", "Values", "compile_batch_ops",
    "compile_clips", "compile_decoder", "compile_images", "compile_labels", "compile_pipeline", "compile_pipelines",
    "compile_sound", "compile_values", "kind_of",
]  # fmt: skip
