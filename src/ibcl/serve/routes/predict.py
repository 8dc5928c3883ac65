"""Predictions: for a preference given in the call, or for a user."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ibcl.serve.messages import PredictByPreference, PredictByUser, Prediction, Predictions
from ibcl.serve.routes import RawJSON, check_user, refusals, service_of
from ibcl.serve.service import Done, Job

router = APIRouter(tags=["predictions"])


@router.post(
    "/v1/predict",
    response_class=RawJSON,
    responses={**refusals(404, 409), 200: {"model": Predictions, "description": "Predictions."}},
)
async def predict(request: Request, body: PredictByPreference | PredictByUser) -> Response:
    """Predict rows with the model of a preference, or of a user's stored preference.

    Tasks that the preference does not name get weight zero (or the share chosen for new tasks), and
    `filled` says so.
    """
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


def _answer(done: Done) -> dict[str, Any]:
    served, means = done.served, done.means
    return {
        "predictions": served.decide(means),
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
