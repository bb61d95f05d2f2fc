"""Where bytes live. Local files today: mapped for reading, written aside and published by rename."""

from fastloader.stores.local import AtomicFile, Directory, MappedFile, exchange, write_atomically

__all__ = ["AtomicFile", "Directory", "MappedFile", "exchange", "write_atomically"]
