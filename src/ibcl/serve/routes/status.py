"""Whether the service is there and can answer, what it knows, and how it is doing."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ibcl.serve.messages import Health, Ready, Tasks
from ibcl.serve.routes import check_administrator, errors, service_of
from ibcl.serve.served import Served

router = APIRouter(tags=["status"])


@router.get("/health", responses=errors())
async def health() -> Health:
    """Tell that the process is there."""
    return Health()


@router.get("/ready", responses=errors())
async def ready(request: Request) -> Ready:
    """Tell that requests can be answered, the database included, and from which version."""
    service = service_of(request)
    await service.check_database()
    return Ready(version=service.versions.active.version)


@router.get("/v1/tasks", responses=errors())
async def tasks(request: Request) -> Tasks:
    """Return the tasks learnt so far, and what rows must look like."""
    served = service_of(request).versions.active
    return Tasks(
        tasks=list(served.tasks),
        version=served.version,
        columns=list(served.columns),
        inputs=_inputs(served),
        classes=None if served.classes is None else list(served.classes),
        pooling=str(getattr(served.learner.pooling, "name", served.learner.pooling)),
        samples={record.name: record.samples for record in served.learner.knowledge.records},
    )


def _inputs(served: Served) -> list[int] | Literal["token ids"] | None:
    arrays = served.reads_arrays
    if arrays is None:
        return None
    return "token ids" if arrays.shape is None else list(arrays.shape)


@router.get(
    "/metrics",
    response_class=Response,
    responses={**errors(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Return what Prometheus collects."""
    check_administrator(request)
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4")
