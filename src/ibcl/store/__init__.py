"""The knowledge base on disk: atomic, locked, checked, and free of pickle."""

from ibcl.errors import BusyError, ChangedSinceError, ExistsError, OccupiedError, StoreError
from ibcl.store.description import digest
from ibcl.store.folder import FolderSize, State, check_writable, exists, load, save, size, state
from ibcl.store.models import load_model, model_bytes, save_model
from ibcl.store.objects import connect
from ibcl.store.portable import packed, unpacked
from ibcl.store.storage import as_url

__all__ = [
    "BusyError",
    "ChangedSinceError",
    "ExistsError",
    "FolderSize",
    "OccupiedError",
    "State",
    "StoreError",
    "as_url",
    "check_writable",
    "connect",
    "digest",
    "exists",
    "load",
    "load_model",
    "model_bytes",
    "packed",
    "save",
    "save_model",
    "size",
    "state",
    "unpacked",
]
