"""Users' preferences: stored, read, changed, deleted, inferred, with their history."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from ibcl.preference import FollowedPreference, from_counts
from ibcl.serve import fitting
from ibcl.serve.errors import ApiError
from ibcl.serve.messages import (
    Examples,
    Feedback,
    History,
    HistoryEntry,
    InferredPreference,
    PreferenceChange,
    StoredPreference,
    User,
    Weights,
)
from ibcl.serve.preferences import Change, Stored
from ibcl.serve.routes import check_user, errors, service_of
from ibcl.serve.service import Service, log_densities_of

router = APIRouter(tags=["users"])


@router.put("/v1/users/{user}/preference", responses=errors(409))
async def put_preference(
    request: Request, user: User, body: PreferenceChange | Weights
) -> StoredPreference:
    """Store or change a user's preference: weights by task, alone or with more to say.

    What was inferred of the user so far is forgotten: they have said what they want. Examples that
    arrive later move the preference on from there.
    """
    check_user(request, user)
    service = service_of(request)
    weights, share = body, None
    if isinstance(body, PreferenceChange):
        weights, share = body.preference, body.share_of_new_tasks
    assert isinstance(weights, dict)
    served = service.versions.active
    fitted = fitting.given(weights, served.tasks)
    made = Stored(fitted.weights, share, identities=service.identities(served))
    stored = await service.change(Change(user, lambda _: made, source="set"))
    assert stored is not None
    return _shown(service, user, stored, filled=fitted.filled)


@router.get("/v1/users/{user}/preference", responses=errors(404, 409))
async def get_preference(request: Request, user: User) -> StoredPreference:
    """Read a user's preference, over all tasks there are now."""
    check_user(request, user)
    service = service_of(request)
    stored = await service.read(user)
    if stored is None:
        raise ApiError(404, "This user has no stored preference.")
    return _shown(service, user, stored)


@router.delete("/v1/users/{user}/preference", status_code=204, responses=errors(404))
async def delete_preference(
    request: Request,
    user: User,
    history: Annotated[bool, Query(description="Remove the history as well.")] = False,
) -> Response:
    """Delete a user's preference; the history says so, unless it is to be removed as well."""
    check_user(request, user)

    def make(stored: Stored | None) -> None:
        if stored is None and not history:
            raise ApiError(404, "This user has no stored preference.")

    await service_of(request).change(Change(user, make, source="deleted", erase=history))
    return Response(status_code=204)


@router.get("/v1/users/{user}/history", responses=errors())
async def get_history(
    request: Request, user: User, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> History:
    """Return the preferences that a user had, the newest first."""
    check_user(request, user)
    service = service_of(request)
    past = await service.work(service.preferences.history, user, limit)
    return History(
        user=user,
        entries=[
            HistoryEntry(preference=entry.weights, source=entry.source, changed=entry.changed)
            for entry in past
        ],
    )


@router.post("/v1/users/{user}/infer", responses=errors(409))
async def infer_of_user(request: Request, user: User, body: Feedback) -> InferredPreference:
    """Update a user's preference with what they did, and store it.

    From labelled rows, from rows alone, or from the rows they clicked among those shown. Earlier
    examples count less with every new one.
    """
    check_user(request, user)
    service = service_of(request)
    served = service.versions.active
    rows = served.rows(body)
    service.check_size(len(rows), served)
    evidence = await service.work(log_densities_of, served, rows, body.labels, body.clicked)
    found: list[FollowedPreference] = []

    def make(stored: Stored | None) -> Stored | None:
        before = None
        if stored is not None and not body.restart:
            before = service.counts(stored, served)
        found.append(service.infer(before, served, evidence, body.forgetting))
        share = None if stored is None else stored.share_of_new_tasks
        identities = service.identities(served)
        return Stored(found[-1].weights, share, found[-1].counts, identities)

    if body.store:
        await service.change(Change(user, make, source="inferred"))
    else:
        await service.work(make, await service.read(user))
    return InferredPreference(
        preference=found[-1].weights,
        std=found[-1].std,
        examples=len(evidence),
        version=served.version,
    )


@router.post("/v1/infer", responses=errors(409))
async def infer(request: Request, body: Examples) -> InferredPreference:
    """Infer a preference from examples without a user; nothing is stored."""
    service = service_of(request)
    served = service.versions.active
    rows = served.rows(body)
    service.check_size(len(rows), served)
    evidence = await service.work(log_densities_of, served, rows, body.labels, body.clicked)
    found = await service.work(service.infer, None, served, evidence, 1.0)
    return InferredPreference(
        preference=found.weights, std=found.std, examples=len(evidence), version=served.version
    )


def _shown(
    service: Service, user: str, stored: Stored, filled: dict[str, float] | None = None
) -> StoredPreference:
    served = service.versions.active
    fitted = service.fit(stored, served)
    assert stored.changed is not None
    return StoredPreference(
        user=user,
        preference=fitted.weights,
        filled=fitted.filled if filled is None else filled,
        dropped=fitted.dropped,
        share_of_new_tasks=stored.share_of_new_tasks,
        std=None if stored.counts is None else from_counts(stored.counts).std,
        version=served.version,
        changed=stored.changed,
    )
