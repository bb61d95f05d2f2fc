"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.choices import ChoicePipeline, compile_choice
from fastloader.pipeline.compiler import Compiled, PipelineError, compile_pipeline
from fastloader.pipeline.labels import BatchStep, LabelPipeline, compile_batch_ops, compile_labels

__all__ = [
    "BatchStep", "ChoicePipeline", "Compiled", "LabelPipeline", "PipelineError", "compile_batch_ops",
    "compile_choice", "compile_labels", "compile_pipeline",
]  # fmt: skip
