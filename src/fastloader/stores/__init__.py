"""Where bytes live: local files, memory, object stores. One small protocol, ``Store``, for all of them.

``open_store(url, storage_options)`` gives a store and the key in it. Local files are mapped for reading; what is
written appears whole or not at all.
"""

from fastloader.stores.base import ChangedError, NoConditionsError, RefusedError, Stat, Store, Upload
from fastloader.stores.cache import BlockCache
from fastloader.stores.local import DIRECT_ALIGNMENT, AtomicFile, Directory, MappedFile, exchange, write_atomically
from fastloader.stores.opening import ObjectPath, locate, open_store
from fastloader.stores.page_cache import forget, resident_bytes
from fastloader.stores.plain import LocalStore, MemoryStore
from fastloader.stores.remote import RemoteFile
from fastloader.stores.retrying import RetryPolicy
from fastloader.stores.urls import is_url, parse_url

__all__ = [
    "DIRECT_ALIGNMENT", "AtomicFile", "BlockCache", "ChangedError", "Directory", "LocalStore", "MappedFile",
    "MemoryStore", "NoConditionsError", "ObjectPath", "RefusedError", "RemoteFile", "RetryPolicy", "Stat", "Store",
    "Upload", "exchange", "forget", "is_url", "locate", "open_store", "parse_url", "resident_bytes",
    "write_atomically",
]  # fmt: skip
