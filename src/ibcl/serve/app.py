"""The web application: the service, its routes, and what protects them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ibcl.serve.errors import ApiError, fault, readable
from ibcl.serve.protection import Protection
from ibcl.serve.routes import explorer, models, predict, status, tokens, users, versions
from ibcl.serve.service import Service
from ibcl.serve.settings import Settings

_ROUTES = (users, status, models, versions, tokens, explorer)


def create_app(settings: Settings) -> FastAPI:
    """Make the application; the knowledge base is loaded at once, so that errors show early.

    Examples
    --------
    >>> import tempfile, torch, ibcl
    >>> from pathlib import Path
    >>> from fastapi.testclient import TestClient
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> learner = ibcl.IBCL(ibcl.networks.linear(2), inference=ibcl.DenseVI(), pooling="evidence")
    >>> _ = learner.learn(x, x[:, 0] > 0, task="sci-fi")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     learner.save(Path(folder) / "movies.ibcl")
    ...     with TestClient(create_app(Settings(Path(folder) / "movies.ibcl"))) as client:
    ...         client.get("/v1/tasks").json()["tasks"]
    ['sci-fi']
    """
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="ibcl",
        summary="A model for every user's preference between the tasks of a knowledge base.",
        version=version("ibcl"),
        # Their pages load scripts from elsewhere; the explorer and the document need nobody.
        docs_url=None,
        redoc_url=None,
        # They would lead to whatever host the caller named, and without encryption behind a proxy.
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    predictions = predict.Predict(service)
    app.router.routes.append(predictions.route)
    for module in _ROUTES:
        app.include_router(module.router)
    app.add_middleware(
        Protection,
        service=service,
        body_limit=settings.body_limit,
        rate=settings.rate,
        direct={("POST", predict.PATH): predictions},
    )
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(RequestValidationError, _not_well_formed)
    app.add_exception_handler(HTTPException, _http_error)
    _complete_document(app)
    return app


def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JSONResponse({"error": readable(error.sentence)}, error.status, headers)


def _not_well_formed(_: Request, error: Exception) -> JSONResponse:
    """Say where and why, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"error": readable(fault(error.errors()))}, 422)


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    sentence, headers = error.detail.rstrip(".") + ".", dict(error.headers or {})
    if error.status_code == 400:
        # The framework says 400 for bodies that are no text, and 422 for those that are no JSON.
        return JSONResponse({"error": sentence}, 422)
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return JSONResponse({"error": readable(sentence)}, error.status_code, headers)


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes with this path; the framework names the first one's."""
    document = request.app.openapi()["paths"]
    parts = request.scope["path"].split("/")
    found: set[str] = set()
    for path, operations in document.items():
        named = path.split("/")
        if len(named) == len(parts) and all(
            name == part or name.startswith("{") for name, part in zip(named, parts, strict=True)
        ):
            found |= {method.upper() for method in operations}
    return sorted(found)


def _complete_document(app: FastAPI) -> None:
    """Add predictions to the document, and that routes may need a token."""
    document = app.openapi

    def complete() -> dict[str, Any]:
        schema = document()
        if predict.PATH in schema["paths"]:
            return schema
        predict.describe(schema)
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        # Either none or one: without any token issued, the service on loopback needs none.
        schema["security"] = [{}, {"token": []}]
        return schema

    app.openapi = complete  # type: ignore[method-assign]
