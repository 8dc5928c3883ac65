"""Tokens: issued, listed and revoked by administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from ibcl.serve.errors import ApiError
from ibcl.serve.messages import NewToken, Token, TokenList, TokenRequest
from ibcl.serve.routes import check_administrator, errors, service_of

router = APIRouter(tags=["tokens"])


@router.post("/v1/tokens", status_code=201, responses=errors(409))
async def issue(request: Request, body: TokenRequest) -> NewToken:
    """Make a token for a user, or for an administrator."""
    check_administrator(request)
    service = service_of(request)
    if not service.tokens.required():
        raise ApiError(
            409,
            "The first token is made by 'ibcl token', since from then on every caller needs one.",
        )
    token = await service.work(service.tokens.issue, body.user)
    return NewToken(token=token)


@router.get("/v1/tokens", responses=errors())
async def list_tokens(request: Request) -> TokenList:
    """Return all tokens by their ids."""
    check_administrator(request)
    service = service_of(request)
    found = await service.work(service.tokens.facts)
    return TokenList(tokens=[Token(**token._asdict()) for token in found])


@router.delete("/v1/tokens/{token}", status_code=204, responses=errors(404))
async def revoke(
    request: Request, token: Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")]
) -> Response:
    """Revoke a token by its id."""
    check_administrator(request)
    service = service_of(request)
    if not await service.work(service.tokens.revoke, token):
        raise ApiError(404, "There is no such token.")
    return Response(status_code=204)
