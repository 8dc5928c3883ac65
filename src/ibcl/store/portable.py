"""A learner as bytes that any worker can open: the files it would be saved as, nothing pickled."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from ibcl.learner import IBCL
from ibcl.store.folder import load
from ibcl.store.objects import Objects, connect


def packed(learner: IBCL) -> dict[str, bytes]:
    """Return a learner's files by name, everything exact.

    Examples
    --------
    >>> import ibcl
    >>> contents = packed(ibcl.IBCL(ibcl.networks.linear(2)))
    >>> "manifest.json" in contents, unpacked(contents).tasks
    (True, ())
    """
    url = f"memory://{uuid.uuid4().hex}"
    before = learner.storage
    learner.save(url, storage="exact")
    learner.storage = before
    place = connect(url)
    contents = {name: place.read(name) for name in place.names()}
    _clear(place)
    return contents


def unpacked(contents: Mapping[str, bytes]) -> IBCL:
    """Return the learner that `packed` made this of."""
    url = f"memory://{uuid.uuid4().hex}"
    place = connect(url)
    for name, data in contents.items():
        place.put(name, data)
    try:
        return load(url)
    finally:
        _clear(place)


def _clear(place: Objects) -> None:
    for name in place.names():
        place.remove(name)
