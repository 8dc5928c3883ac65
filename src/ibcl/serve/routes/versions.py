"""Versions of the knowledge base: listed, activated, removed."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from ibcl.serve.messages import Ready, Version, VersionList, VersionName
from ibcl.serve.routes import check_administrator, errors, service_of

router = APIRouter(tags=["versions"])
Wanted = Annotated[Literal["newest"] | VersionName, Path(description="A version, or 'newest'.")]


@router.get("/v1/versions", responses=errors())
async def list_versions(request: Request) -> VersionList:
    """Return the versions kept; any of them can be asked for by a call's `version`."""
    service = service_of(request)
    found = await service.work(service.versions.facts)
    return VersionList(
        versions=[
            Version(version=v.version, tasks=list(v.tasks), active=v.active, newest=v.newest)
            for v in found
        ],
        following=service.versions.pinned is None,
    )


@router.post("/v1/versions/{version}/activate", responses=errors(404))
async def activate(request: Request, version: Wanted) -> Ready:
    """Pin this version; 'newest' follows new versions again."""
    check_administrator(request)
    service = service_of(request)
    wanted = None if version == "newest" else version
    await service.version(wanted)
    served = await service.work(service.activate, wanted)
    return Ready(version=served.version)


@router.delete("/v1/versions/{version}", status_code=204, responses=errors(404, 409))
async def remove(request: Request, version: VersionName) -> Response:
    """Remove a version for good, such as one that knows what was to be forgotten."""
    check_administrator(request)
    service = service_of(request)
    await service.work(service.versions.remove, version)
    return Response(status_code=204)
