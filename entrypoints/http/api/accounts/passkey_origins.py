"""The files that name the pages and native applications that may use this installation's passkeys."""

import json
from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.accounts import relying_party
from core.accounts.model.passkeys import NoNativeApps
from core.kernel import policy
from core.kernel.errors import refuse
from entrypoints.http import kit
from entrypoints.http.edge.signatures import JSON

routes = Blueprint("passkey_origins", __name__)

CACHED: Final = {"Cache-Control": "public, max-age=300"}
# Android accepts a host's passkeys in an application only with these two relations.
RELATIONS: Final = ("delegate_permission/common.get_login_creds", "delegate_permission/common.handle_all_urls")
ASSET_LINKS: Final = {"type": "array", "items": {"type": "object"}}


class RelatedOriginsResponse(kit.ResponseModel):
    """The pages that may use passkeys for this file's host (WebAuthn section 5.11)."""

    origins: list[str] = Field(description="The origins of this installation and its frontend.", examples=[["https://id.example.com"]])


class WebCredentialsResponse(kit.ResponseModel):
    """The applications that may use this host's credentials."""

    apps: list[str] = Field(description="The team and the bundle of every application.", examples=[["ABCDE12345.com.example.app"]])


class AppSiteAssociationResponse(kit.ResponseModel):
    """The native applications on Apple's systems that belong to this host."""

    webcredentials: WebCredentialsResponse = Field(description="The applications that may use passkeys.")


@routes.get(relying_party.RELATED_ORIGINS_PATH)
@kit.operations
async def list_related_origins() -> tuple[RelatedOriginsResponse, int, dict[str, str]]:
    """Show the origins that may use this host's passkeys.

    Browsers read it if a page on another host uses them.
    """
    return RelatedOriginsResponse(origins=list(relying_party.web_origins(kit.ports().policy, kit.app_context().base_url))), 200, CACHED


@routes.get("/.well-known/apple-app-site-association")
@kit.operations
@kit.refuses(404)
async def list_ios_apps() -> tuple[AppSiteAssociationResponse, int, dict[str, str]]:
    """Show the operator's applications on Apple's systems that may use passkeys.

    Without such applications in the settings, there is no such file.
    """
    apps = [app.id for app in kit.ports().policy.native_apps if isinstance(app, policy.IosApp)]
    return AppSiteAssociationResponse(webcredentials=WebCredentialsResponse(apps=apps or refuse(NoNativeApps))), 200, CACHED


@routes.get("/.well-known/assetlinks.json")
@kit.operations
@kit.describes({200: "A list of statements of Digital Asset Links."}, content_type=JSON, response_schema=ASSET_LINKS)
@kit.refuses(404)
async def list_android_apps() -> Response:
    """Show the operator's Android applications that may use passkeys.

    Without such applications in the settings, there is no such file.
    """
    apps = [app for app in kit.ports().policy.native_apps if isinstance(app, policy.AndroidApp)]
    statements = [{"relation": RELATIONS, "target": _to_target(app)} for app in apps]
    return Response(json.dumps(statements or refuse(NoNativeApps)), 200, CACHED, content_type=JSON)


def _to_target(app: policy.AndroidApp) -> dict[str, Any]:
    digests = [digest.hex(":").upper() for digest in app.digests]
    return {"namespace": "android_app", "package_name": app.package, "sha256_cert_fingerprints": digests}
