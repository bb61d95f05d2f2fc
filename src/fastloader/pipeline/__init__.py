"""From a list of operations to one native program that makes finished rows of a batch."""

from fastloader.pipeline.compiler import Compiled, PipelineError, compile_pipeline
from fastloader.pipeline.following import HIDDEN, Following, compile_following, watched
from fastloader.pipeline.images import Images, Sizes, check_sharing, compile_images
from fastloader.pipeline.labels import BatchStep, LabelPipeline, Pipelines, compile_batch_ops, compile_labels

__all__ = [
    "HIDDEN", "BatchStep", "Compiled", "Following", "Images", "LabelPipeline", "PipelineError", "Pipelines", "Sizes",
    "check_sharing", "compile_batch_ops", "compile_following", "compile_images", "compile_labels", "compile_pipeline",
    "watched",
]  # fmt: skip
