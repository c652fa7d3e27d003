"""Test sign-in: the claims and attributes that an application would receive for the caller."""

from typing import Any

from pydantic import Field
from quart import Blueprint

from core.federation import sign_in_preview
from core.federation.model import sign_in
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.roles import Capability
from entrypoints.http import kit

routes = Blueprint("sign_in_preview", __name__)

OUTCOME = (
    "`signed_in`: the user is signed in at once. `consent`: the user is asked to agree first. `sign_in`: the user must sign in again, for "
    "example with the second factor. `enroll`: the user must first set up a factor that a sign-in policy requires. "
    "`refused`: the sign-in fails with `error`."
)


class SignInPreviewQuery(kit.Query):
    """The authorization request to test."""

    scope: str = Field(default=sign_in_preview.DEFAULT_SCOPE, max_length=500, description="The scopes to ask for, separated by spaces.")
    redirect_uri: str | None = Field(
        default=None, max_length=2000, description="The redirect URI to use. The default is the first registered URI."
    )


class OpenIdPreviewResponse(kit.ResponseModel):
    """The result of a sign-in with OAuth and OpenID Connect."""

    outcome: sign_in.PreviewOutcome = Field(description=OUTCOME)
    redirect_uri: str = Field(description="The redirect URI that would receive the answer.")
    error: str | None = Field(description="The `error` that the application would receive; null without an error.")
    message: str | None = Field(description="The `error_description`, or the rule of a sign-in policy; null without either.")
    scope: list[str] = Field(description="The granted scopes, after the user agreed where that is needed.")
    id_token: dict[str, Any] | None = Field(
        description="The claims of the ID token, without `at_hash` and `nonce`; null without the scope `openid`, and if the user could not "
        "be signed in now."
    )
    userinfo: dict[str, Any] | None = Field(description="The claims of the userinfo endpoint; null like `id_token`.")


class SamlPreviewResponse(kit.ResponseModel):
    """The result of a sign-in with SAML."""

    outcome: sign_in.PreviewOutcome = Field(description=OUTCOME)
    entity_id: str = Field(description="The entity id of the application.")
    name_id_format: NameIdFormat = Field(description="The format of the user's name.")
    error: str | None = Field(description="The refusal's error code; null without a refusal.")
    message: str | None = Field(description="The refusal's reason, or the rule of a sign-in policy; null without either.")
    name_id: str | None = Field(description="The name of the user; null if the sign-in would create it.")
    attributes: dict[str, str] = Field(description="The attributes of the assertion. Several values are joined by `, `.")
    attribute_values: dict[str, list[str]] = Field(description="The attributes of the assertion with all their values.")


class SignInPreviewResponse(kit.ResponseModel):
    """What the application would receive for the caller."""

    openid: OpenIdPreviewResponse | None = Field(description="The result with OpenID Connect; null without a redirect URI.")
    saml: SamlPreviewResponse | None = Field(description="The result with SAML; null if SAML is not active.")


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/sign-in-preview")
@kit.member(Capability.SERVICES_MANAGE, kit.SHOWS_PEOPLE)
async def get(org_slug: str, service_slug: str, query_args: SignInPreviewQuery) -> SignInPreviewResponse:
    """Test the sign-in to a service.

    Returns what the service would receive if you signed in to it now, by the same rules as a real sign-in: access
    policy, second factor and consent. Nothing is signed or stored, and no session starts.
    """
    result = await sign_in_preview.preview(
        kit.ports(), kit.app_context().base_url, kit.acting_member(), service_slug, query_args.scope, query_args.redirect_uri
    )
    return SignInPreviewResponse(
        openid=None if result.openid is None else OpenIdPreviewResponse.of(result.openid), saml=_to_saml(result.saml)
    )


def _to_saml(preview: sign_in.SamlPreview | None) -> SamlPreviewResponse | None:
    if preview is None:
        return None
    values = {each.name: list(each.values) for each in preview.attributes}
    joined = {name: ", ".join(texts) for name, texts in values.items()}
    return SamlPreviewResponse.of(preview, attributes=joined, attribute_values=values)
