"""Contracts for what others may add: subclass one in a test module and pytest runs its tests. Needs pytest."""

from fastloader.testing.compare import identical
from fastloader.testing.fields import FieldContract

__all__ = ["FieldContract", "identical"]
