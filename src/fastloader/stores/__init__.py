"""Where bytes live. Local files today: mapped for reading, written aside and published by rename."""

from fastloader.stores.local import DIRECT_ALIGNMENT, AtomicFile, Directory, MappedFile, exchange, write_atomically

__all__ = ["DIRECT_ALIGNMENT", "AtomicFile", "Directory", "MappedFile", "exchange", "write_atomically"]
