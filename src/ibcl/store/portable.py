"""A learner as bytes that any worker can open: the files it would be saved as, nothing pickled."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from ibcl.state import State
from ibcl.store.folder import Stored, load, save, storage_at
from ibcl.store.objects import Objects, connect


def packed(state: State) -> dict[str, bytes]:
    """Return the files that a learner's state would be saved as by name, everything exact.

    Examples
    --------
    >>> import ibcl
    >>> contents = packed(ibcl.IBCL(ibcl.networks.linear(2)).state)
    >>> "manifest.json" in contents, unpacked(contents).state.tasks
    (True, ())
    """
    url = f"memory://{uuid.uuid4().hex}"
    save(state, {}, storage_at(url))
    place = connect(url)
    contents = {name: place.read(name) for name in place.names()}
    _clear(place)
    return contents


def unpacked(contents: Mapping[str, bytes]) -> Stored:
    """Return what `packed` made this of."""
    url = f"memory://{uuid.uuid4().hex}"
    place = connect(url)
    for name, data in contents.items():
        place.put(name, data)
    try:
        return load(storage_at(url))
    finally:
        _clear(place)


def _clear(place: Objects) -> None:
    for name in place.names():
        place.remove(name)
