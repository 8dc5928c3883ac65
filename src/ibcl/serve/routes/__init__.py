"""What the service answers, one file a subject."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from ibcl.serve.errors import ApiError
from ibcl.serve.messages import Error
from ibcl.serve.service import Service
from ibcl.serve.tokens import Caller

_SENTENCES = {
    401: "No valid token.",
    403: "The token is another user's.",
    404: "There is no such thing.",
    409: "The request does not fit the knowledge base.",
    413: "The body is too large.",
    422: "The request is not well formed.",
    429: "Too many requests.",
    503: "The service is busy or not ready.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a route for the OpenAPI document; every route has some."""
    return {
        status: {"model": Error, "description": _SENTENCES[status]}
        for status in sorted({401, 403, 413, 422, 429, 503, *statuses})
    }


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    service: Service = request.app.state.service
    return service


def caller_of(request: Request) -> Caller:
    """Return who makes a request."""
    caller: Caller = request.scope["caller"]
    return caller


def check_user(request: Request, user: str) -> None:
    """Refuse callers that may not ask for a user."""
    if not caller_of(request).may_ask_for(user):
        raise ApiError(403, "This token belongs to another user.")


def check_administrator(request: Request) -> None:
    """Refuse callers that are not administrators."""
    if not caller_of(request).administrator:
        raise ApiError(403, "This needs the token of an administrator.")
