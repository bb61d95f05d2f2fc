"""Contracts for what others may add: subclass one in a test module and pytest runs its tests. Needs pytest."""

from fastloader.testing.compare import identical
from fastloader.testing.fields import FieldContract
from fastloader.testing.formats import FormatContract
from fastloader.testing.stores import ReadableStoreContract, StoreContract

__all__ = ["FieldContract", "FormatContract", "ReadableStoreContract", "StoreContract", "identical"]
