"""A page that shows a dataset: ``fastloader view``. Everything in it is served from this package."""

from fastloader.viewer.samples import Samples, open_samples

__all__ = ["Samples", "open_samples"]
