"""Health, metrics, signing keys (RFC 7517), the API description, and assets."""

import hmac
import json
from typing import Literal

import trio
from pydantic import Field
from quart import Blueprint, Response

from core.kernel import errors
from core.kernel.page_paths import HOME_PATH
from core.kernel.values import digest
from entrypoints.http import kit
from entrypoints.http.base.rendering.assets import asset
from entrypoints.http.base.rendering.templates import docs
from entrypoints.http.edge.access.callers import bearer_token
from entrypoints.version import REVISION, VERSION

routes = Blueprint("operations", __name__)


class Health(kit.ResponseModel):
    """The service is up."""

    status: Literal["healthy"] = Field(description="Always `healthy`.")
    version: str = Field(description="The version of Gatehouse.")
    revision: str | None = Field(description="The commit of this build, or null if it is unknown.")


@routes.get("/health")
@kit.operations
async def health() -> Health:
    """Check that the service is up.

    Returns the version and the commit. Needs no credentials and has no rate limit.
    """
    return Health(status="healthy", version=VERSION, revision=REVISION)


@routes.get("/health/live")
@kit.operations
@kit.describes({200: "Alive."})
async def live() -> Response:
    """Check that the process responds.

    For liveness probes. Does not touch the database.
    """
    return Response(b"", 200)


class Readiness(kit.ResponseModel):
    """The database connection's state."""

    status: Literal["ready", "unhealthy"] = Field(description="`ready` if requests can be served.")
    version: str = Field(description="The version of Gatehouse.")
    database: Literal["connected", "disconnected"] = Field(description="Whether the database responds.")


@routes.get("/health/ready")
@kit.operations
@kit.returns(200, 503)
async def ready() -> tuple[Readiness, int]:
    """Check that requests can be served.

    For readiness probes. Runs a trivial query, and responds with 503 if the database is down.
    """
    try:
        await kit.ports().storage.ping()
    except errors.StorageDown:
        return Readiness(status="unhealthy", version=VERSION, database="disconnected"), 503
    return Readiness(status="ready", version=VERSION, database="connected"), 200


@routes.get("/metrics")
@kit.operations
@kit.refuses(401)
@kit.describes({200: "Metrics in the text exposition format 0.0.4."}, content_type="text/plain")
async def metrics() -> Response:
    """Return metrics for Prometheus.

    If the operator has set a metrics token, it is required as a bearer token.
    """
    context = kit.app_context()
    token = context.metrics_token
    if token is not None and not hmac.compare_digest(digest(bearer_token()), digest(token)):
        raise errors.Unauthenticated
    return Response(await trio.to_thread.run_sync(context.exposition), 200, content_type=context.exposition_type)


@routes.get("/.well-known/jwks.json")
@kit.operations
@kit.any_origin
@kit.describes({200: "A JWK set (RFC 7517)."}, content_type="application/jwk-set+json")
async def jwks() -> Response:
    """Return the public signing keys.

    Applications verify access tokens with these keys. Cache them, and load them again for an unknown `kid`.
    """
    headers = {"Cache-Control": "public, max-age=300"}
    return Response(json.dumps(kit.ports().tokens.jwks()), 200, headers, content_type="application/jwk-set+json")


@routes.get("/openapi.json")
@kit.operations
@kit.describes({200: "An OpenAPI 3.1 document."}, content_type="application/json")
async def openapi() -> Response:
    """Return this API description.

    The document is the same for all installations of a version.
    """
    return Response(await trio.to_thread.run_sync(kit.app_context().describe), 200, content_type="application/json")


@routes.get("/docs/api")
@kit.operations
@kit.describes_page({200: "The interactive page."})
async def interactive_docs() -> Response:
    """Show the interactive API page.

    The page renders this description and can call the API.
    """
    return kit.page_response(docs())


@routes.get("/assets/<name>")
@kit.operations
@kit.describes({200: "The file."}, content_type="*/*")
async def assets(name: str) -> Response:
    """Return a static file for the pages.

    File names contain a fingerprint, so responses can be cached forever.
    """
    file = asset(name)
    if file is None:
        raise errors.NotFound
    return Response(file.body(), 200, dict(file.headers))


@routes.get("/")
@kit.operations
@kit.describes_page({303: "Redirect to the start page of the user."})
async def home() -> Response:
    """Go to the start page.

    A user who is not signed in is asked to sign in first.
    """
    return kit.redirect(HOME_PATH)
