"""Models of preferences used before, shared by any number of threads."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any, NamedTuple

from ibcl.learner import IBCL
from ibcl.model import Model
from ibcl.preference import Preference
from ibcl.view import View

CACHED_MODELS = 32


class _Entry(NamedTuple):
    view: View
    model: Model


class ModelCache:
    """The last models made, each as long as its learner knows the same.

    Models are made outside the lock, so that nobody waits for another one's.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Preference, _Entry] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def model(self, learner: IBCL, preference: Preference) -> Model:
        """Return the model of a preference, the same one as before where nothing has changed."""
        view = learner.view
        with self._lock:
            entry = self._entries.get(preference)
            if entry is not None and entry.view is view:
                self._entries.move_to_end(preference)
                return entry.model
        model = learner.model(preference)
        with self._lock:
            self._entries[preference] = _Entry(view, model)
            if len(self._entries) > CACHED_MODELS:
                self._entries.popitem(last=False)
        return model

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._entries = OrderedDict()
        self._lock = Lock()
