"""The knowledge base on disk: atomic, locked, checked, and free of pickle."""

from ibcl.store.description import digest
from ibcl.store.files import StoreError
from ibcl.store.folder import FolderSize, check_writable, load, save, size
from ibcl.store.models import load_model, save_model

__all__ = [
    "FolderSize",
    "StoreError",
    "check_writable",
    "digest",
    "load",
    "load_model",
    "save",
    "save_model",
    "size",
]
