"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.compiler import Compiled, PipelineError, compile_pipeline

__all__ = ["Compiled", "PipelineError", "compile_pipeline"]
