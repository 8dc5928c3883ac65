"""Predictions: for a preference given in the call, or for a user.

This is asked for far more often than anything else, so that a body is read by pydantic alone, in
one pass, and neither framework nor router stands in between (see `ibcl.serve.protection`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from ibcl.serve.errors import ApiError, fault
from ibcl.serve.messages import (
    PredictByPreference,
    PredictByUser,
    Prediction,
    PredictionRequest,
    Predictions,
)
from ibcl.serve.protection import Receive, Scope, Send
from ibcl.serve.routes import errors
from ibcl.serve.served import Row
from ibcl.serve.service import Done, Job, Service, blocks
from ibcl.serve.tokens import Caller

PATH = "/v1/predict"
_BODY = TypeAdapter(PredictionRequest)
_REFERENCE = "#/components/schemas/{model}"


class Predict:
    """Predict rows with the model of a preference, or of a user's stored preference.

    Tasks that the preference does not name get weight zero (or the share chosen for new tasks), and
    `filled` says so.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.route = Route(PATH, self, methods=["POST"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["route"] = self.route
        body = _read(scope, await _received(receive))
        user, preference = _whose(body, scope["caller"])
        served = await self._service.version(body.version)
        rows = served.rows(body)
        done = await self._service.predict(Job(rows, preference, user, served))
        answer = _answer(done)
        if body.bounds or body.uncertainty or body.routing or body.set is not None:
            answer |= await self._service.work(_details, done, body, rows)
        content = to_json(answer)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def _received(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _read(scope: Scope, content: bytes) -> PredictionRequest:
    # A web page elsewhere may send other kinds of content without asking first.
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if not kind.lower().startswith(b"application/json"):
        raise ApiError(422, "body: The content type must be application/json.")
    try:
        return _BODY.validate_json(content)
    except ValidationError as error:
        said = error.errors(include_url=False, include_context=False, include_input=False)
        inside = [{**each, "loc": ("body", *each["loc"])} for each in said]
        raise ApiError(422, fault(inside)) from None


def _whose(body: PredictionRequest, caller: Caller) -> tuple[str | None, dict[str, float] | None]:
    """Return either the user or the preference to predict with."""
    by_user, by_preference = (name in body.model_fields_set for name in ("user", "preference"))
    if by_user == by_preference:
        raise ApiError(422, "body: Give either a preference or a user.")
    if by_preference:
        return None, body.preference
    if not caller.may_ask_for(body.user):
        raise ApiError(403, "This token belongs to another user.")
    return body.user, None


def _answer(done: Done) -> dict[str, Any]:
    served = done.served
    return {
        "predictions": done.decisions,
        "probabilities": None if served.classes is None else done.means,
        "classes": served.classes,
        "version": served.version,
        "preference": done.fitted.weights,
        "filled": done.fitted.filled,
        "dropped": done.fitted.dropped,
        "ignored": done.ignored,
        "unknown": done.unknown,
    }


def _details(done: Done, wanted: Prediction, given: Sequence[Row]) -> dict[str, Any]:
    """Return what is computed on request only."""
    served = done.served
    model = served.model(done.preference)
    result: dict[str, Any] = {}

    def add(name: str, **values: list[Any]) -> None:
        found = result.setdefault(name, {part: [] for part in values})
        for part, more in values.items():
            found[part] += more

    for block in blocks(len(given), served):
        rows = served.features(given[block])
        if wanted.bounds:
            lower, upper = served.bounds(model, rows)
            add("bounds", lower=lower.tolist(), upper=upper.tolist())
        if wanted.uncertainty:
            parts = served.uncertainty(model, rows)
            add("uncertainty", **{name: values.tolist() for name, values in parts.items()})
        if wanted.routing:
            shares, novelty = served.routing(model, rows)
            named = [dict(zip(served.tasks, row, strict=True)) for row in shares.tolist()]
            add("routing", shares=named, novelty=novelty.tolist())
        if wanted.set is not None:
            result.setdefault("sets", []).extend(served.sets(model, rows, wanted.set))
    return result


def describe(document: dict[str, Any]) -> None:
    """Add predictions to an OpenAPI document, as the framework would have."""
    models: list[Any] = [
        (PredictByPreference, "validation"),
        (PredictByUser, "validation"),
        (Predictions, "serialization"),
    ]
    _, schemas = models_json_schema(models, ref_template=_REFERENCE)
    document["components"]["schemas"] |= schemas["$defs"]

    def content(*names: str) -> dict[str, Any]:
        references = [{"$ref": _REFERENCE.format(model=name)} for name in names]
        schema = references[0] if len(references) == 1 else {"anyOf": references}
        return {"application/json": {"schema": schema}}

    refused = {
        str(status): {"description": facts["description"], "content": content("Error")}
        for status, facts in errors(404, 409).items()
    }
    answered = {"description": "Predictions.", "content": content("Predictions")}
    document["paths"][PATH] = {
        "post": {
            "tags": ["predictions"],
            "summary": "Predict",
            "operationId": "predict",
            "description": inspect.getdoc(Predict),
            "requestBody": {
                "required": True,
                "content": content("PredictByPreference", "PredictByUser"),
            },
            "responses": {"200": answered, **refused},
        }
    }
