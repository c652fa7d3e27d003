"""The API for the platform's sign-in policy."""

from typing import Any

from pydantic import Field
from quart import Blueprint

from core.kernel.rate_limits import POLICY_PREVIEW
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.rules import GRACE_DAYS, Rule
from core.tenancy import platform_sign_in_policy
from entrypoints.http.api.tenancy.sign_in_policy import (
    DESCRIPTIONS_OF_PLATFORM,
    PeopleCountResponse,
    PolicyStartsResponse,
    StoppedUserResponse,
    StoredPolicyResponse,
    fields_of_policy,
    number,
    shown,
    starts_of,
    texts,
    version_field,
)
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.access import OWNS, PREVIEWS, SHOWS_PEOPLE, platform_owner
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Text
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("platform_sign_in_policy", __name__)


class PlatformPolicyPreviewRequest(RequestModel):
    """The platform's sign-in policy."""

    second_factor: list[Text] = Field(max_length=10, description=DESCRIPTIONS_OF_PLATFORM[Rule.SECOND_FACTOR])
    phishing_resistant: list[Text] | None = texts(Rule.PHISHING_RESISTANT, DESCRIPTIONS_OF_PLATFORM)
    session_lifetime_minutes: int | None = number(Rule.SESSION_LIFETIME)
    session_idle_minutes: int | None = number(Rule.SESSION_IDLE)
    admin_networks: list[Text] | None = texts(Rule.ADMIN_NETWORKS, DESCRIPTIONS_OF_PLATFORM)
    grace_days: int | None = number(GRACE_DAYS)

    @property
    def document(self) -> dict[str, Any]:
        """The rules without the version."""
        return self.model_dump(exclude={"version"})


class PlatformPolicyRequest(PlatformPolicyPreviewRequest):
    """The platform's sign-in policy. It replaces the earlier policy: a rule that you leave out asks for nothing."""

    version: int = version_field()


class PlatformRulesResponse(ResponseModel):
    """The rules for platform owners. null means that there is no such rule."""

    second_factor: list[str] | None = shown(Rule.SECOND_FACTOR, DESCRIPTIONS_OF_PLATFORM)
    phishing_resistant: list[str] | None = shown(Rule.PHISHING_RESISTANT, DESCRIPTIONS_OF_PLATFORM)
    session_lifetime_minutes: int | None = shown(Rule.SESSION_LIFETIME)
    session_idle_minutes: int | None = shown(Rule.SESSION_IDLE)
    admin_networks: list[str] | None = shown(Rule.ADMIN_NETWORKS, DESCRIPTIONS_OF_PLATFORM)


class PlatformPolicyResponse(StoredPolicyResponse, PlatformRulesResponse):
    """The platform's sign-in policy. It is stored at a platform owner's first sign-in."""

    in_force: PlatformRulesResponse = Field(description="The rules that count now.")


class PlatformPolicyPreviewResponse(ResponseModel):
    """The effect that the policy would have on platform owners if it was saved now."""

    due_at: PolicyStartsResponse = Field(description="When the rules would start that become stricter.")
    owners: PeopleCountResponse | None = Field(description="The platform owners, or null if there are too many to count them.")
    people: list[StoppedUserResponse] = Field(description="The first 100 platform owners who do not meet the policy.")


@routes.get("/api/platform/sign-in-policy")
@platform_owner(Capability.PLATFORM_OWN, SHOWS_PEOPLE)
async def get() -> PlatformPolicyResponse:
    """Get the platform's sign-in policy.

    It counts for platform owners on the platform's pages and in its API. They need a second factor, seven days after the first platform
    owner has signed in.
    """
    return PlatformPolicyResponse(**fields_of_policy(await platform_sign_in_policy.get(ports())))


@routes.put("/api/platform/sign-in-policy")
@platform_owner(Capability.PLATFORM_OWN, OWNS)
@refuses(409)
async def replace(data: PlatformPolicyRequest) -> PlatformPolicyResponse:
    """Replace the platform's sign-in policy.

    Rules that you could not meet yourself are refused. 409 if another request changed the policy since you loaded it.
    """
    details = await platform_sign_in_policy.save(ports(), signed_in(), data.document, data.version)
    return PlatformPolicyResponse(**fields_of_policy(details))


@routes.post("/api/platform/sign-in-policy/preview")
@platform_owner(Capability.PLATFORM_OWN, PREVIEWS, limit=POLICY_PREVIEW)
async def preview(data: PlatformPolicyPreviewRequest) -> PlatformPolicyPreviewResponse:
    """Preview the effect of the platform's sign-in policy.

    The response says which platform owners could not use the platform without a new factor. Nothing is changed.
    """
    effect = await platform_sign_in_policy.preview(ports(), data.document)
    return PlatformPolicyPreviewResponse.of(effect, due_at=starts_of(effect.rules), owners=effect.members)
