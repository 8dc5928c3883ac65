"""Models to take away."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from ibcl.serve import fitting
from ibcl.serve.errors import ApiError
from ibcl.serve.messages import ModelRequest
from ibcl.serve.routes import errors, service_of
from ibcl.serve.served import Served

router = APIRouter(tags=["models"])
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.post(
    "/v1/model",
    response_class=Response,
    responses={**errors(404, 409), 200: {"content": _BINARY, "description": "A file."}},
)
async def download(request: Request, body: ModelRequest) -> Response:
    """Return the model of a preference as one file, for `ibcl.load_model` or another runtime."""
    service = service_of(request)
    served = await service.version(body.version)
    fitted = fitting.given(body.preference, served.tasks)
    preference = np.array(list(fitted.weights.values()))
    make = partial(_file, served, preference, body.format)
    if body.format == "onnx":
        contents = await service.exports.get((served.version, preference.tobytes()), make)
    else:
        contents = await service.work(make)
    return Response(
        contents,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="model.{body.format}"'},
    )


def _file(served: Served, preference: np.ndarray, form: str) -> bytes:
    model = served.model(preference)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{form}"
        try:
            if form == "onnx":
                model.export(path)
            else:
                model.save(path)
        except (ImportError, ValueError) as error:
            raise ApiError(409, str(error)) from None
        return path.read_bytes()
