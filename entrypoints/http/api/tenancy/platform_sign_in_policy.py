"""The API for the platform's sign-in policy."""

from typing import Any

from pydantic import Field
from quart import Blueprint

from core.kernel.rate_limits import POLICY_PREVIEW
from core.kernel.roles import Capability
from core.kernel.sign_in_policy import rules
from core.tenancy import platform_sign_in_policy
from entrypoints.http import kit
from entrypoints.http.api.tenancy import sign_in_policy

routes = Blueprint("platform_sign_in_policy", __name__)


class PlatformPolicyPreviewRequest(kit.RequestModel):
    """The platform's sign-in policy."""

    second_factor: list[kit.Text] = Field(max_length=10, description=sign_in_policy.DESCRIPTIONS_OF_PLATFORM[rules.Rule.SECOND_FACTOR])
    phishing_resistant: list[kit.Text] | None = sign_in_policy.texts(rules.Rule.PHISHING_RESISTANT, sign_in_policy.DESCRIPTIONS_OF_PLATFORM)
    session_lifetime_minutes: int | None = sign_in_policy.number(rules.Rule.SESSION_LIFETIME)
    session_idle_minutes: int | None = sign_in_policy.number(rules.Rule.SESSION_IDLE)
    admin_networks: list[kit.Text] | None = sign_in_policy.texts(rules.Rule.ADMIN_NETWORKS, sign_in_policy.DESCRIPTIONS_OF_PLATFORM)
    grace_days: int | None = sign_in_policy.number(rules.GRACE_DAYS)

    @property
    def document(self) -> dict[str, Any]:
        """The rules without the version."""
        return self.model_dump(exclude={"version"})


class PlatformPolicyRequest(PlatformPolicyPreviewRequest):
    """The platform's sign-in policy. It replaces the earlier policy: a rule that you leave out asks for nothing."""

    version: int = sign_in_policy.version_field()


class PlatformRulesResponse(kit.ResponseModel):
    """The rules for platform owners. null means that there is no such rule."""

    second_factor: list[str] | None = sign_in_policy.shown(rules.Rule.SECOND_FACTOR, sign_in_policy.DESCRIPTIONS_OF_PLATFORM)
    phishing_resistant: list[str] | None = sign_in_policy.shown(rules.Rule.PHISHING_RESISTANT, sign_in_policy.DESCRIPTIONS_OF_PLATFORM)
    session_lifetime_minutes: int | None = sign_in_policy.shown(rules.Rule.SESSION_LIFETIME)
    session_idle_minutes: int | None = sign_in_policy.shown(rules.Rule.SESSION_IDLE)
    admin_networks: list[str] | None = sign_in_policy.shown(rules.Rule.ADMIN_NETWORKS, sign_in_policy.DESCRIPTIONS_OF_PLATFORM)


class PlatformPolicyResponse(sign_in_policy.StoredPolicyResponse, PlatformRulesResponse):
    """The platform's sign-in policy. It is stored at a platform owner's first sign-in."""

    in_force: PlatformRulesResponse = Field(description="The rules that count now.")


class PlatformPolicyPreviewResponse(kit.ResponseModel):
    """The effect that the policy would have on platform owners if it was saved now."""

    due_at: sign_in_policy.PolicyStartsResponse = Field(description="When the rules would start that become stricter.")
    owners: sign_in_policy.PeopleCountResponse | None = Field(
        description="The platform owners, or null if there are too many to count them."
    )
    people: list[sign_in_policy.StoppedUserResponse] = Field(description="The first 100 platform owners who do not meet the policy.")


@routes.get("/api/platform/sign-in-policy")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.SHOWS_PEOPLE)
async def get() -> PlatformPolicyResponse:
    """Get the platform's sign-in policy.

    It counts for platform owners on the platform's pages and in its API. They need a second factor, seven days after the first platform
    owner has signed in.
    """
    return PlatformPolicyResponse(**sign_in_policy.fields_of_policy(await platform_sign_in_policy.get(kit.ports())))


@routes.put("/api/platform/sign-in-policy")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@kit.refuses(409)
async def replace(data: PlatformPolicyRequest) -> PlatformPolicyResponse:
    """Replace the platform's sign-in policy.

    Rules that you could not meet yourself are refused. 409 if another request changed the policy since you loaded it.
    """
    details = await platform_sign_in_policy.save(kit.ports(), kit.signed_in(), data.document, data.version)
    return PlatformPolicyResponse(**sign_in_policy.fields_of_policy(details))


@routes.post("/api/platform/sign-in-policy/preview")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.PREVIEWS, limit=POLICY_PREVIEW)
async def preview(data: PlatformPolicyPreviewRequest) -> PlatformPolicyPreviewResponse:
    """Preview the effect of the platform's sign-in policy.

    The response says which platform owners could not use the platform without a new factor. Nothing is changed.
    """
    effect = await platform_sign_in_policy.preview(kit.ports(), data.document)
    return PlatformPolicyPreviewResponse.of(effect, due_at=sign_in_policy.starts_of(effect.rules), owners=effect.members)
