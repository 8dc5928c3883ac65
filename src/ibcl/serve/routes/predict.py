"""Predictions: for a preference given in the call, or for a user.

This is asked for far more often than anything else, so that a body is read by pydantic alone, in
one pass, and not by the framework in several.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ibcl.serve.errors import Refusal
from ibcl.serve.messages import PredictByPreference, PredictByUser, Prediction, Predictions
from ibcl.serve.routes import RawJSON, check_user, refusals, service_of
from ibcl.serve.service import Done, Job

PATH = "/v1/predict"
_BODY: TypeAdapter[PredictByPreference | PredictByUser] = TypeAdapter(
    PredictByPreference | PredictByUser
)
_REFERENCE = "#/components/schemas/{model}"


async def predict(request: Request) -> Response:
    """Predict rows with the model of a preference, or of a user's stored preference.

    Tasks that the preference does not name get weight zero (or the share chosen for new tasks), and
    `filled` says so.
    """
    request.scope["route"] = route
    body = await _read(request)
    service = service_of(request)
    if isinstance(body, PredictByUser):
        check_user(request, body.user)
        job = Job(body.rows, None, body.user, body.version)
    else:
        job = Job(body.rows, body.preference, None, body.version)
    done = await service.predict(job)
    answer = _answer(done)
    if body.bounds or body.uncertainty or body.routing:
        loop = asyncio.get_running_loop()
        answer |= await loop.run_in_executor(service.working, _details, done, body)
    return RawJSON(json.dumps(answer, allow_nan=False))


route = Route(PATH, predict, methods=["POST"])


async def _read(request: Request) -> PredictByPreference | PredictByUser:
    # A web page elsewhere may send other kinds of content without asking first.
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Refusal(422, "body: The content type must be application/json.")
    try:
        return _BODY.validate_json(await request.body())
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**first, "loc": ("body", *first["loc"])} for first in errors[:1]]
        ) from None


def _answer(done: Done) -> dict[str, Any]:
    served, means = done.served, done.means
    return {
        "predictions": done.decisions,
        "probabilities": None if served.classes is None else means.tolist(),
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
    """Add the route to an OpenAPI document, as the framework would have."""
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
            "description": predict.__doc__,
            "requestBody": {
                "required": True,
                "content": content("PredictByPreference", "PredictByUser"),
            },
            "responses": {"200": answered, **refused},
        }
    }
