"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.arrays import compile_arrays, is_array
from fastloader.pipeline.compiler import Compiled, compile_pipeline
from fastloader.pipeline.decoders import RowPipeline, compile_decoder
from fastloader.pipeline.labels import BatchStep, LabelPipeline, compile_batch_ops, compile_labels
from fastloader.pipeline.pieces import PipelineError

__all__ = [
    "BatchStep", "Compiled", "LabelPipeline", "PipelineError", "RowPipeline", "compile_arrays", "compile_batch_ops",
    "compile_decoder", "compile_labels", "compile_pipeline", "is_array",
]  # fmt: skip
