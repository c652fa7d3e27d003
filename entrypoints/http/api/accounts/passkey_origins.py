"""The files that name the pages and native applications that may use this installation's passkeys."""

import json
from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.accounts.model.passkeys import NoNativeApps
from core.accounts.relying_party import RELATED_ORIGINS_PATH, web_origins
from core.kernel.errors import refuse
from core.kernel.policy import AndroidApp, IosApp
from entrypoints.http.base.context import app_context, ports
from entrypoints.http.edge.access import operations
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.signatures import JSON

routes = Blueprint("passkey_origins", __name__)

CACHED: Final = {"Cache-Control": "public, max-age=300"}
# Android accepts a host's passkeys in an application only with these two relations.
RELATIONS: Final = ("delegate_permission/common.get_login_creds", "delegate_permission/common.handle_all_urls")
ASSET_LINKS: Final = {"type": "array", "items": {"type": "object"}}


class RelatedOriginsResponse(ResponseModel):
    """The pages that may use passkeys for this file's host (WebAuthn section 5.11)."""

    origins: list[str] = Field(description="The origins of this installation and its frontend.", examples=[["https://id.example.com"]])


class WebCredentialsResponse(ResponseModel):
    """The applications that may use this host's credentials."""

    apps: list[str] = Field(description="The team and the bundle of every application.", examples=[["ABCDE12345.com.example.app"]])


class AppSiteAssociationResponse(ResponseModel):
    """The native applications on Apple's systems that belong to this host."""

    webcredentials: WebCredentialsResponse = Field(description="The applications that may use passkeys.")


@routes.get(RELATED_ORIGINS_PATH)
@operations
async def list_related_origins() -> tuple[RelatedOriginsResponse, int, dict[str, str]]:
    """Show the origins that may use this host's passkeys.

    Browsers read it if a page on another host uses them.
    """
    return RelatedOriginsResponse(origins=list(web_origins(ports().policy, app_context().base_url))), 200, CACHED


@routes.get("/.well-known/apple-app-site-association")
@operations
@refuses(404)
async def list_ios_apps() -> tuple[AppSiteAssociationResponse, int, dict[str, str]]:
    """Show the operator's applications on Apple's systems that may use passkeys.

    Without such applications in the settings, there is no such file.
    """
    apps = [app.id for app in ports().policy.native_apps if isinstance(app, IosApp)]
    return AppSiteAssociationResponse(webcredentials=WebCredentialsResponse(apps=apps or refuse(NoNativeApps))), 200, CACHED


@routes.get("/.well-known/assetlinks.json")
@operations
@describes({200: "A list of statements of Digital Asset Links."}, content_type=JSON, response_schema=ASSET_LINKS)
@refuses(404)
async def list_android_apps() -> Response:
    """Show the operator's Android applications that may use passkeys.

    Without such applications in the settings, there is no such file.
    """
    apps = [app for app in ports().policy.native_apps if isinstance(app, AndroidApp)]
    statements = [{"relation": RELATIONS, "target": _to_target(app)} for app in apps]
    return Response(json.dumps(statements or refuse(NoNativeApps)), 200, CACHED, content_type=JSON)


def _to_target(app: AndroidApp) -> dict[str, Any]:
    digests = [digest.hex(":").upper() for digest in app.digests]
    return {"namespace": "android_app", "package_name": app.package, "sha256_cert_fingerprints": digests}
