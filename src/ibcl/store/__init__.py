"""The knowledge base on disk: atomic, locked, checked, and free of pickle."""

from ibcl.errors import BusyError, ChangedSinceError, ExistsError, OccupiedError, StoreError
from ibcl.store.description import digest, provenance
from ibcl.store.folder import (
    Contents,
    FolderSize,
    Stored,
    check_writable,
    contents,
    exists,
    load,
    save,
    size,
    storage_at,
)
from ibcl.store.models import (
    CalibrationScores,
    ModelFile,
    load_model,
    model_bytes,
    save_model,
    write_file,
)
from ibcl.store.objects import connect
from ibcl.store.portable import packed, unpacked
from ibcl.store.storage import as_url

__all__ = [
    "BusyError",
    "CalibrationScores",
    "ChangedSinceError",
    "Contents",
    "ExistsError",
    "FolderSize",
    "ModelFile",
    "OccupiedError",
    "StoreError",
    "Stored",
    "as_url",
    "check_writable",
    "connect",
    "contents",
    "digest",
    "exists",
    "load",
    "load_model",
    "model_bytes",
    "packed",
    "provenance",
    "save",
    "save_model",
    "size",
    "storage_at",
    "unpacked",
    "write_file",
]
