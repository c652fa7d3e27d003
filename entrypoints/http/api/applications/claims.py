"""The API for applications' claims."""

from typing import Annotated, Any, Final

from pydantic import Field
from quart import Blueprint

from core.applications.model.services import StoredClaims
from core.authentication.model import claim_document
from core.authentication.model.claim_document import DIRECTORY_VALUES, LIST_CLAIMS, SOURCES
from core.authentication.model.openid import Scope
from core.federation import claims
from core.federation.model.sign_in import OpenIdPreview
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.api.applications.sign_in_preview import OpenIdPreviewResponse

routes = Blueprint("claims", __name__)

CLAIMS: Final = "/api/organizations/<org_slug>/services/<service_slug>/claims"
SOURCE_TEXT: Final = (
    f"{', '.join(f'`{source}`' for source in SOURCES)}; `attribute:` with the name of an attribute of the organization; `directory:` with "
    f"one of {', '.join(f'`{name}`' for name in DIRECTORY_VALUES)}"
)
NAMES: Final = "Other names of standard claims in the tokens of the application, such as `cognito:groups` for `groups`."
PREFIX: Final = f"A text before each value of {', '.join(f'`{name}`' for name in LIST_CLAIMS)}."
FIXED: Final = "Claims with the same value for all users: a text, a whole number, true or false, or a list of texts."
VALUES: Final = "Own claims, and claims of the scope `profile` that get another value, such as `preferred_username`."
GROUPS: Final = "The groups in the claim `groups`."
WHICH: Final = "`all`, or those that the application is `assigned` to."
GROUP_VALUE: Final = "What stands for a group: its `name`, `id`, or `external_id`."
ACCESS_TOKEN: Final = f"The claims that access tokens have, too: {', '.join(f'`{name}`' for name in LIST_CLAIMS)}, and your own claims."
SOURCES_OF_CLAIM: Final = f"The sources of the value. The first one that has a value counts. They are {SOURCE_TEXT}."
SCOPE_OF_CLAIM: Final = "The scope that gives the claim. The default is `profile`."


class MappedClaimRequest(kit.RequestModel):
    """A claim and the sources for its value."""

    sources: list[kit.Text] = Field(
        max_length=claim_document.MAX_CLAIMS, description=SOURCES_OF_CLAIM, examples=[["preferred_username", "email_local_part"]]
    )
    scope: Annotated[Scope, Field(strict=False)] | None = Field(default=None, description=SCOPE_OF_CLAIM)


class GroupClaimRequest(kit.RequestModel):
    """The groups in tokens, and every group's text."""

    which: Annotated[claim_document.WhichGroups, Field(strict=False)] = Field(default=claim_document.WhichGroups.ALL, description=WHICH)
    value: Annotated[claim_document.GroupValue, Field(strict=False)] = Field(
        default=claim_document.GroupValue.NAME, description=GROUP_VALUE
    )


class ClaimsDocumentRequest(kit.RequestModel):
    """An application's claims. A member that you leave out is empty."""

    names: dict[kit.Text, kit.Text] = Field(
        default_factory=dict, max_length=claim_document.MAX_CLAIMS, description=NAMES, examples=[{"groups": "cognito:groups"}]
    )
    prefix: dict[kit.Text, kit.Text] = Field(
        default_factory=dict, max_length=claim_document.MAX_CLAIMS, description=PREFIX, examples=[{"groups": "oidc:"}]
    )
    fixed: dict[kit.Text, bool | int | kit.Text | list[kit.Text]] = Field(
        default_factory=dict, max_length=claim_document.MAX_CLAIMS, description=FIXED, examples=[{"tenant": "acme"}]
    )
    values: dict[kit.Text, MappedClaimRequest] = Field(default_factory=dict, max_length=claim_document.MAX_CLAIMS, description=VALUES)
    groups: GroupClaimRequest = Field(default_factory=GroupClaimRequest, description=GROUPS)
    access_token: list[kit.Text] = Field(
        default_factory=list, max_length=claim_document.MAX_CLAIMS, description=ACCESS_TOKEN, examples=[["roles"]]
    )

    @property
    def document(self) -> dict[str, Any]:
        """The claims, without the other members in the request."""
        return self.model_dump(mode="json", include=set(ClaimsDocumentRequest.model_fields))


class ClaimsRequest(ClaimsDocumentRequest):
    """An application's claims. They replace the earlier claims."""

    version: int = Field(ge=0, description="The `version` of the claims that you change. 0 if there were none.")


class ClaimsPreviewRequest(ClaimsDocumentRequest):
    """The claims to try, and the scopes that the application would ask for."""

    scope: Annotated[str, Field(max_length=500), kit.PRINTABLE] = Field(
        default=claims.ALL_SCOPES, description="The scopes to ask for, separated by spaces."
    )


class MappedClaimResponse(kit.ResponseModel):
    """A claim and the sources for its value."""

    sources: list[str] = Field(description=SOURCES_OF_CLAIM)
    scope: Scope = Field(description="The scope that gives the claim.")


class GroupClaimResponse(kit.ResponseModel):
    """The groups in tokens, and every group's text."""

    which: claim_document.WhichGroups = Field(description=WHICH)
    value: claim_document.GroupValue = Field(description=GROUP_VALUE)


class ClaimsResponse(kit.ResponseModel):
    """An application's claims."""

    names: dict[str, str] = Field(description=NAMES)
    prefix: dict[str, str] = Field(description=PREFIX)
    fixed: dict[str, bool | int | str | list[str]] = Field(description=FIXED)
    values: dict[str, MappedClaimResponse] = Field(description=VALUES)
    groups: GroupClaimResponse = Field(description=GROUPS)
    access_token: list[str] = Field(description=ACCESS_TOKEN)
    version: int = Field(description="The version, which a change has to name. 0 if nothing was saved.")
    changed_at: kit.Timestamp | None = Field(description="The time of the last change, in UTC, or null if nothing was saved.")


class TestedSignInResponse(OpenIdPreviewResponse):
    """The claims that the application would receive if you signed in."""

    access_token: dict[str, Any] | None = Field(description="The claims about you in access tokens; null like `id_token`.")


class ClaimsPreviewResponse(kit.ResponseModel):
    """The claims that the application would receive if you signed in, before and after the change. null without a redirect URI."""

    before: TestedSignInResponse | None = Field(description="With the claims that are saved now.")
    after: TestedSignInResponse | None = Field(description="With the claims of the request.")


def to_response(stored: StoredClaims) -> ClaimsResponse:
    """Return the response with these claims."""
    document = claim_document.ClaimDocument.read(stored.document).document
    return ClaimsResponse(**document, version=stored.version, changed_at=stored.changed_at)


def _to_tested(preview: OpenIdPreview | None) -> TestedSignInResponse | None:
    return None if preview is None else TestedSignInResponse.of(preview)


@routes.get(CLAIMS)
@kit.member(Capability.SERVICES_VIEW)
async def get(org_slug: str, service_slug: str) -> ClaimsResponse:
    """Get a service's claims.

    Without saved claims, its tokens have the standard claims.
    """
    return to_response(await claims.get(kit.ports(), kit.acting(), service_slug))


@routes.put(CLAIMS)
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@existing_service
@kit.refuses(409)
async def replace(org_slug: str, service_slug: str, data: ClaimsRequest) -> ClaimsResponse:
    """Replace a service's claims.

    New tokens and the userinfo endpoint's answers have them. Sessions continue. 409 if another request changed the claims since you loaded
    them.
    """
    return to_response(await claims.save(kit.ports(), kit.acting(), service_slug, data.document, data.version))


@routes.delete(CLAIMS)
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@existing_service
@kit.describes({204: "The service has the standard claims again."})
async def remove(org_slug: str, service_slug: str) -> None:
    """Remove a service's claims. Its tokens have the standard claims again."""
    await claims.remove(kit.ports(), kit.acting(), service_slug)


@routes.post(f"{CLAIMS}/preview")
@kit.member(Capability.SERVICES_MANAGE, kit.SHOWS_PEOPLE)
@existing_service
async def preview(org_slug: str, service_slug: str, data: ClaimsPreviewRequest) -> ClaimsPreviewResponse:
    """Preview a service's claims.

    The response has the claims that the service would receive if you signed in now. `before` has the saved document's
    claims, and `after` the request's claims. Nothing is stored or signed.
    """
    result = await claims.preview(kit.ports(), kit.app_context().base_url, kit.acting_member(), service_slug, data.document, data.scope)
    return ClaimsPreviewResponse(before=_to_tested(result.before), after=_to_tested(result.after))
