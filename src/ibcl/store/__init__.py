"""The knowledge base on disk: atomic, locked, checked, and free of pickle."""

from ibcl.errors import BusyError, ChangedSinceError, ExistsError, OccupiedError, StoreError
from ibcl.store.description import digest
from ibcl.store.folder import FolderSize, State, check_writable, exists, load, save, size, state
from ibcl.store.models import load_model, save_model
from ibcl.store.portable import packed, unpacked

__all__ = [
    "BusyError",
    "ChangedSinceError",
    "ExistsError",
    "FolderSize",
    "OccupiedError",
    "State",
    "StoreError",
    "check_writable",
    "digest",
    "exists",
    "load",
    "load_model",
    "packed",
    "save",
    "save_model",
    "size",
    "state",
    "unpacked",
]
