"""For PyTorch: datasets for its own DataLoader, and a loader of tensors on any device."""

from fastloader.torch.datasets import TorchIterableDataset, TorchMapDataset
from fastloader.torch.loader import TorchLoader
from fastloader.torch.tensors import to_tensor, to_tensors

__all__ = ["TorchIterableDataset", "TorchLoader", "TorchMapDataset", "to_tensor", "to_tensors"]
