"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.clips import ClipPipeline, compile_clips, is_clip
from fastloader.pipeline.compiler import Compiled, PipelineError, compile_pipeline
from fastloader.pipeline.labels import BatchStep, LabelPipeline, compile_batch_ops, compile_labels

__all__ = [
    "BatchStep", "ClipPipeline", "Compiled", "LabelPipeline", "PipelineError", "compile_batch_ops", "compile_clips",
    "compile_labels", "compile_pipeline", "is_clip",
]  # fmt: skip
