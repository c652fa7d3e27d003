"""Health, metrics, published keys, and the description of the interface (organizations.md section 4.11; RFC 7517)."""

import hmac
import json
from typing import Literal

import trio
from quart import Blueprint, Response
from quart_schema import validate_response

from core.kernel.errors import NotFound, StorageDown, Unauthenticated
from core.kernel.values import digest
from entrypoints.http.edge.access import bearer_token, operations
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.context import app_context, page_response, ports
from entrypoints.http.edge.openapi import describes, describes_page, refuses
from entrypoints.http.pages import asset, docs, render
from entrypoints.version import VERSION

routes = Blueprint("operations", __name__)


class Health(ResponseModel):
    """The service is up."""

    status: Literal["healthy"]
    version: str


@routes.get("/health")
@operations
@validate_response(Health)
async def health() -> Health:
    """Whether the service is up, and its version."""
    return Health(status="healthy", version=VERSION)


@routes.get("/health/live")
@operations
@describes({200: "Alive."})
async def live() -> Response:
    """Whether the process answers at all."""
    return Response(b"", 200)


class Readiness(ResponseModel):
    """Whether the database answers."""

    status: Literal["ready", "unhealthy"]
    version: str
    database: Literal["connected", "disconnected"]


@routes.get("/health/ready")
@operations
@validate_response(Readiness, 200)
@validate_response(Readiness, 503)
async def ready() -> tuple[Readiness, int]:
    """Whether requests can be served: asks the database something trivial."""
    try:
        await ports().storage.ping()
    except StorageDown:
        return Readiness(status="unhealthy", version=VERSION, database="disconnected"), 503
    return Readiness(status="ready", version=VERSION, database="connected"), 200


@routes.get("/metrics")
@operations
@refuses(401)
@describes({200: "Metrics in the text exposition format 0.0.4."}, content_type="text/plain")
async def metrics() -> Response:
    """Metrics for Prometheus; closed to others where the operator has set a token for it."""
    here = app_context()
    token = here.metrics_token
    if token is not None and not hmac.compare_digest(digest(bearer_token()), digest(token)):
        raise Unauthenticated
    return Response(await trio.to_thread.run_sync(here.exposition), 200, content_type=here.exposition_type)


@routes.get("/.well-known/jwks.json")
@operations
@describes({200: "A JWK set (RFC 7517)."}, content_type="application/jwk-set+json")
async def jwks() -> Response:
    """The public keys that access tokens are checked with."""
    headers = {"Cache-Control": "public, max-age=300"}
    return Response(json.dumps(ports().tokens.jwks()), 200, headers, content_type="application/jwk-set+json")


@routes.get("/openapi.json")
@operations
@describes({200: "An OpenAPI 3.1 document."}, content_type="application/json")
async def openapi() -> Response:
    """This description of the interface."""
    return Response(app_context().description, 200, content_type="application/json")


@routes.get("/docs")
@operations
@describes_page({200: "The interactive page."})
async def interactive_docs() -> Response:
    """This description, to read and to try out."""
    return page_response(docs())


@routes.get("/assets/<name>")
@operations
@describes({200: "The asset.", 404: "There is no such asset."}, content_type="*/*")
async def assets(name: str) -> Response:
    """Styles, scripts and icons of our pages."""
    found = asset(name)
    if found is None:
        raise NotFound
    return Response(found.body(), 200, dict(found.headers))


@routes.get("/")
@operations
@describes_page({200: "The page."})
async def home() -> Response:
    """What this is, for whoever opens the address in a browser."""
    return page_response(render("home.html"))
