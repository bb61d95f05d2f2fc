"""For JAX: batches as arrays on devices, and samples for grain."""

from fastloader.jax.loader import JaxLoader, JaxSource, prefetch_to_device, to_jax

__all__ = ["JaxLoader", "JaxSource", "prefetch_to_device", "to_jax"]
