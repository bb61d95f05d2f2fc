"""Where bytes live. Local files today: mapped for reading, written aside and published by rename."""

from fastloader.stores.local import DIRECT_ALIGNMENT, AtomicFile, Directory, MappedFile, exchange, write_atomically
from fastloader.stores.page_cache import forget, resident_bytes

__all__ = [
    "DIRECT_ALIGNMENT", "AtomicFile", "Directory", "MappedFile", "exchange", "forget", "resident_bytes",
    "write_atomically",
]  # fmt: skip
