"""The explorer: a page, its files, and what it asks for while one drags a slider."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from ibcl.serve import fitting
from ibcl.serve.errors import ApiError
from ibcl.serve.messages import (
    Example,
    Front,
    Measurement,
    MeasurementRequest,
    Name,
    Overview,
    VersionName,
)
from ibcl.serve.page_files import FILES, page_file
from ibcl.serve.routes import errors, service_of

router = APIRouter(tags=["explorer"])

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def _answer(name: str) -> Response:
    kind = _KINDS[name.rsplit(".", 1)[1]]
    return Response(
        page_file(name), media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"}
    )


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the explorer."""
    return _answer("index.html")


@router.get("/page/{name}", include_in_schema=False)
async def file(name: str) -> Response:
    """Return a file of the explorer."""
    if name not in FILES:
        raise ApiError(404, "There is no such file.")
    return _answer(name)


@router.get("/v1/explorer", responses=errors(404, 409))
async def overview(
    request: Request, version: Annotated[VersionName | None, Query()] = None
) -> Overview:
    """Return what the explorer shows at first: tasks, columns, and example rows."""
    service = service_of(request)
    served = await service.version(version)
    return Overview(
        version=served.version,
        tasks=list(served.tasks),
        columns=list(served.columns),
        classes=None if served.classes is None else list(served.classes),
        knowledge_base=str(service.settings.knowledge_base.name),
        sets=await service.work(lambda: served.has_sets),
        validation=await service.work(service.validation.sizes, served),
        examples=[
            Example.model_validate(found)
            for found in await service.work(service.validation.examples, served)
        ],
    )


@router.post("/v1/explorer/measure", responses=errors(404, 409))
async def measure(request: Request, body: MeasurementRequest) -> Measurement:
    """Measure the model of a preference on the validation rows of every task."""
    service = service_of(request)
    served = await service.version(body.version)
    weights = fitting.given(body.preference, served.tasks).weights
    preference = np.array([list(weights.values())])
    scores = await service.work(service.validation.scores, served, preference)
    by_task = {task: values[0] for task, values in scores.items()}
    covered = sum(weights[task] for task in by_task)
    weighted = sum(weights[task] * score for task, score in by_task.items())
    return Measurement(
        version=served.version,
        scores=by_task,
        weighted=weighted / covered if covered > 0 else None,
    )


@router.get("/v1/explorer/front", responses=errors(404, 409))
async def front(
    request: Request,
    first: Annotated[Name, Query()],
    second: Annotated[Name, Query()],
    version: Annotated[VersionName | None, Query()] = None,
) -> Front:
    """Return the trade-off between two tasks: scores of the models between their vertices."""
    service = service_of(request)
    served = await service.version(version)
    found = await service.work(service.validation.front, served, first, second)
    return Front(version=served.version, tasks=list(served.tasks), **found)
