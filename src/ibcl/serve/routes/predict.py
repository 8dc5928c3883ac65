"""Predictions: for a preference given in the call, or for a user.

This is asked for far more often than anything else, so that a body is read by pydantic alone, in
one pass, and neither framework nor router stands in between (see `ibcl.serve.protection`).
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from ibcl.serve.errors import Refusal
from ibcl.serve.messages import (
    PredictByPreference,
    PredictByUser,
    Prediction,
    PredictionRequest,
    Predictions,
)
from ibcl.serve.protection import Receive, Scope, Send
from ibcl.serve.routes import refusals
from ibcl.serve.service import Done, Job, Service
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
        done = await self._service.predict(_job(body, scope["caller"]))
        answer = _answer(done)
        if body.bounds or body.uncertainty or body.routing:
            loop = asyncio.get_running_loop()
            answer |= await loop.run_in_executor(self._service.working, _details, done, body)
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
        raise Refusal(422, "body: The content type must be application/json.")
    try:
        return _BODY.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in ("body", *first["loc"]))
        raise Refusal(422, f"{where}: {first['msg']}.") from None


def _job(body: PredictionRequest, caller: Caller) -> Job:
    by_user, by_preference = (name in body.model_fields_set for name in ("user", "preference"))
    if by_user == by_preference:
        raise Refusal(422, "body: Give either a preference or a user.")
    if by_preference:
        return Job(body.rows, body.preference, None, body.version)
    if not caller.may_ask_for(body.user):
        raise Refusal(403, "This token belongs to another user.")
    return Job(body.rows, None, body.user, body.version)


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
    }


def _details(done: Done, wanted: Prediction) -> dict[str, Any]:
    """Return what is computed on request only."""
    served, rows = done.served, wanted.rows
    model = served.model(done.preference)
    result: dict[str, Any] = {}
    if wanted.bounds:
        lower, upper = served.bounds(model, rows)
        result["bounds"] = {"lower": lower.tolist(), "upper": upper.tolist()}
    if wanted.uncertainty:
        parts = served.uncertainty(model, rows)
        result["uncertainty"] = {name: values.tolist() for name, values in parts.items()}
    if wanted.routing:
        shares, novelty = served.routing(model, rows)
        result["routing"] = {
            "shares": [dict(zip(served.tasks, row, strict=True)) for row in shares.tolist()],
            "novelty": novelty.tolist(),
        }
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
        for status, facts in refusals(404, 409).items()
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
