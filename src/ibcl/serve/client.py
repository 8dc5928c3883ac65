"""The other end: a typed client of the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import numpy as np

from ibcl.serve import messages

Answer = TypeVar("Answer", bound=messages.Message)


class ServiceError(Exception):
    """The service did not do what it was asked for; `status` is HTTP's."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Client:
    """Ask a service.

    Parameters
    ----------
    url
        Such as ``"http://127.0.0.1:8000"``.
    token
        Made by ``ibcl token``, where the service needs one.
    timeout
        Seconds to wait for an answer.
    transport
        An `httpx` transport to use instead of the network.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     client.set_preference("ann", {"sci-fi": 0.8, "documentary": 0.2})
    ...     client.predict([{"year": 1982, "minutes": 117}], user="ann").predictions
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ready(self) -> bool:
        """Tell whether the service can answer."""
        try:
            return self._http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def tasks(self) -> messages.Tasks:
        """Return the tasks learnt so far, and what rows must look like."""
        return self._ask(messages.Tasks, "GET", "/v1/tasks")

    def predict(
        self,
        rows: Any,
        preference: Mapping[str, float] | None = None,
        user: str | None = None,
        *,
        version: str | None = None,
        bounds: bool = False,
        uncertainty: bool = False,
        routing: bool = False,
    ) -> messages.Predictions:
        """Predict rows with a preference, or with a user's.

        Parameters
        ----------
        rows
            Mappings from columns to values; or, for a knowledge base that reads no table, an array
            with one entry per row, or token ids as a tokenizer returns them.
        """
        if (preference is None) == (user is None):
            raise ValueError("Give either a preference or a user to predict with.")
        whose = {"user": user} if preference is None else {"preference": dict(preference)}
        body = {
            **_given(rows),
            **whose,
            "version": version,
            "bounds": bounds,
            "uncertainty": uncertainty,
            "routing": routing,
        }
        return self._ask(messages.Predictions, "POST", "/v1/predict", body)

    def preference(self, user: str) -> messages.StoredPreference:
        """Read a user's preference."""
        return self._ask(messages.StoredPreference, "GET", f"{_user(user)}/preference")

    def set_preference(
        self, user: str, preference: Mapping[str, float], share_of_new_tasks: float | None = None
    ) -> messages.StoredPreference:
        """Store or change a user's preference; when this returns, it is on the service's disk."""
        body = {"preference": dict(preference), "share_of_new_tasks": share_of_new_tasks}
        return self._ask(messages.StoredPreference, "PUT", f"{_user(user)}/preference", body)

    def delete_preference(self, user: str, history: bool = False) -> None:
        """Delete a user's preference, and the history as well if wanted."""
        self._send("DELETE", f"{_user(user)}/preference?history={str(history).lower()}")

    def history(self, user: str, limit: int = 100) -> list[messages.HistoryEntry]:
        """Return the preferences that a user had, the newest first."""
        return self._ask(messages.History, "GET", f"{_user(user)}/history?limit={limit}").entries

    def infer(
        self,
        user: str,
        rows: Any,
        labels: Sequence[Any] | None = None,
        *,
        clicked: Sequence[bool] | None = None,
        store: bool = True,
        forgetting: float | None = None,
        restart: bool = False,
    ) -> messages.InferredPreference:
        """Update a user's preference with what they did."""
        body = {
            **_given(rows),
            "labels": None if labels is None else list(labels),
            "clicked": None if clicked is None else list(clicked),
            "store": store,
            "forgetting": forgetting,
            "restart": restart,
        }
        return self._ask(messages.InferredPreference, "POST", f"{_user(user)}/infer", body)

    def model(
        self, preference: Mapping[str, float], form: str = "safetensors", version: str | None = None
    ) -> bytes:
        """Return the model of a preference as the contents of a file."""
        body = {"preference": dict(preference), "format": form, "version": version}
        return self._send("POST", "/v1/model", body).content

    def versions(self) -> messages.VersionList:
        """Return the versions of the knowledge base that are kept."""
        return self._ask(messages.VersionList, "GET", "/v1/versions")

    def activate(self, version: str = "newest") -> str:
        """Have the service answer from a version; the newest one and those to come without one."""
        path = f"/v1/versions/{quote(version, safe='')}/activate"
        return self._ask(messages.Ready, "POST", path).version

    def _ask(self, kind: type[Answer], method: str, path: str, body: Any = None) -> Answer:
        return kind.model_validate_json(self._send(method, path, body).content)

    def _send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        # Also where there is no body: it shows that no web page elsewhere is asking.
        headers = {"Content-Type": "application/json"}
        response = self._http.request(method, path, json=body, headers=headers)
        if response.is_success:
            return response
        try:
            sentence = response.json()["error"]
        except (ValueError, KeyError, TypeError):
            sentence = f"The service answered with status {response.status_code}."
        raise ServiceError(response.status_code, sentence)


def _given(rows: Any) -> dict[str, Any]:
    """Rows by name, or arrays, as they go over the wire."""
    if isinstance(rows, Mapping):
        return {"inputs": {name: np.asarray(each).tolist() for name, each in rows.items()}}
    listed = [*rows]
    if all(isinstance(row, Mapping) for row in listed):
        return {"rows": [dict(row) for row in listed]}
    return {"inputs": np.asarray(rows).tolist()}


def _user(user: str) -> str:
    return f"/v1/users/{quote(user, safe='')}"
