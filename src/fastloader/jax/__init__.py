"""For JAX: batches as arrays on devices, and samples for grain."""

from fastloader.jax.loader import JaxLoader, JaxSource, to_jax

__all__ = ["JaxLoader", "JaxSource", "to_jax"]
