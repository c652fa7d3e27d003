"""The API for the sign-in policies of organizations and their applications."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import sign_in_policies as of_applications
from core.kernel import roles
from core.kernel.rate_limits import POLICY_PREVIEW
from core.kernel.sign_in_policy.rules import GRACE_DAYS, MAX_ITEMS, MEMBERS, RULES_WITH_GRACE, Rule, Rules
from core.tenancy import break_glass, imposed_rules, sign_in_policies
from core.tenancy.model.sign_in_policies import MAX_BREAK_GLASS, BreakGlassUser, PolicyPreview
from core.tenancy.sign_in_policies import PolicyDetails
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service

routes = Blueprint("sign_in_policy", __name__)

OF_ORGANIZATION: Final = "/api/organizations/<org_slug>/sign-in-policy"
OF_BREAK_GLASS: Final = f"{OF_ORGANIZATION}/break-glass"
OF_IMPOSED_RULES: Final = f"{OF_ORGANIZATION}/imposed-rules"
OF_APPLICATION: Final = "/api/organizations/<org_slug>/services/<service_slug>/sign-in-policy"
DESCRIPTIONS: Final[Mapping[str, str]] = {name: member.meaning for name, member in MEMBERS.items()}
# The same for the platform's policy. It is about platform owners only.
DESCRIPTIONS_OF_PLATFORM: Final[Mapping[str, str]] = {
    **DESCRIPTIONS,
    Rule.SECOND_FACTOR: "It has `everyone`: platform owners always need a second factor.",
    Rule.PHISHING_RESISTANT: "It has `everyone` if platform owners need a passkey.",
    Rule.ADMIN_NETWORKS: "The networks from which platform owners may act, such as `203.0.113.0/24`. null allows all.",
}


def number(name: str) -> Any:
    least, most = MEMBERS[name].limits or (None, None)
    return Field(default=None, ge=least, le=most, description=DESCRIPTIONS[name])


def texts(rule: Rule, descriptions: Mapping[str, str] = DESCRIPTIONS) -> Any:
    return Field(default=None, max_length=MAX_ITEMS, description=descriptions[rule])


class _RulesRequest(kit.RequestModel):
    methods: list[kit.Text] | None = texts(Rule.METHODS)
    second_factor: list[kit.Text] | None = texts(Rule.SECOND_FACTOR)
    phishing_resistant: list[kit.Text] | None = texts(Rule.PHISHING_RESISTANT)
    session_lifetime_minutes: int | None = number(Rule.SESSION_LIFETIME)
    session_idle_minutes: int | None = number(Rule.SESSION_IDLE)
    device_trust_days: int | None = number(Rule.DEVICE_TRUST)
    grace_days: int | None = number(GRACE_DAYS)

    @property
    def document(self) -> dict[str, Any]:
        """The rules without the version."""
        return self.model_dump(exclude={"version"})


class ApplicationPolicyPreviewRequest(_RulesRequest):
    """An application's sign-in policy. It adds to the organization's policy: the stricter rule counts."""

    required_connection: kit.Text | None = Field(default=None, description=DESCRIPTIONS[Rule.CONNECTION])


class PolicyPreviewRequest(_RulesRequest):
    """An organization's sign-in policy."""

    min_password_length: int | None = number(Rule.MIN_PASSWORD_LENGTH)
    admin_networks: list[kit.Text] | None = texts(Rule.ADMIN_NETWORKS)
    invited_domains: list[kit.Text] | None = texts(Rule.INVITED_DOMAINS)
    required_connections: dict[kit.Text, kit.Text] | None = texts(Rule.CONNECTIONS)


def version_field() -> Any:
    return Field(ge=0, description="The `version` of the policy that you change. 0 if there was none.")


class ApplicationPolicyRequest(ApplicationPolicyPreviewRequest):
    """An application's sign-in policy. It replaces the earlier policy: a rule that you leave out asks for nothing."""

    version: int = version_field()


class SignInPolicyRequest(PolicyPreviewRequest):
    """An organization's sign-in policy. It replaces the earlier policy: a rule that you leave out asks for nothing."""

    version: int = version_field()


def shown(name: str, descriptions: Mapping[str, str] = DESCRIPTIONS) -> Any:
    return Field(description=descriptions[name])


class _RulesResponse(kit.ResponseModel):
    methods: list[str] | None = shown(Rule.METHODS)
    second_factor: list[str] | None = shown(Rule.SECOND_FACTOR)
    phishing_resistant: list[str] | None = shown(Rule.PHISHING_RESISTANT)
    session_lifetime_minutes: int | None = shown(Rule.SESSION_LIFETIME)
    session_idle_minutes: int | None = shown(Rule.SESSION_IDLE)
    device_trust_days: int | None = shown(Rule.DEVICE_TRUST)


class ApplicationRulesResponse(_RulesResponse):
    """The rules for an application's sign-ins. null means that there is no such rule."""

    required_connection: str | None = shown(Rule.CONNECTION)


class PolicyRulesResponse(_RulesResponse):
    """The rules for an organization's sign-ins. null means that there is no such rule."""

    min_password_length: int | None = shown(Rule.MIN_PASSWORD_LENGTH)
    admin_networks: list[str] | None = shown(Rule.ADMIN_NETWORKS)
    invited_domains: list[str] | None = shown(Rule.INVITED_DOMAINS)
    required_connections: dict[str, str] | None = shown(Rule.CONNECTIONS)


class PolicyStartsResponse(kit.ResponseModel):
    """When the rules with a grace period start, in UTC. null means that the rule is in force, or that there is none."""

    methods: kit.Timestamp | None = Field(description="The start of `methods`.")
    second_factor: kit.Timestamp | None = Field(description="The start of `second_factor`.")
    phishing_resistant: kit.Timestamp | None = Field(description="The start of `phishing_resistant`.")


IMPOSED: Final[Any] = Field(
    description="Rules that members with fewer rights than the owner made, which the owner can remove. `break_glass_users` is the list of "
    "break glass."
)


class StoredPolicyResponse(kit.ResponseModel):
    """What every sign-in policy has beside its rules."""

    grace_days: int = shown(GRACE_DAYS)
    due_at: PolicyStartsResponse = Field(description="When rules start that became stricter. Until then, their earlier value counts.")
    version: int = Field(description="The version, which a change has to name. 0 if nothing was saved yet.")
    changed_at: kit.Timestamp | None = Field(description="The time of the last change, in UTC, or null if nothing was saved yet.")


class ApplicationPolicyResponse(StoredPolicyResponse, ApplicationRulesResponse):
    """An application's sign-in policy."""

    imposed: list[str] = IMPOSED
    in_force: ApplicationRulesResponse = Field(description="The rules that count now, together with the organization's rules.")


class SignInPolicyResponse(StoredPolicyResponse, PolicyRulesResponse):
    """An organization's sign-in policy."""

    imposed: list[str] = IMPOSED
    in_force: PolicyRulesResponse = Field(description="The rules that count now.")


class PeopleCountResponse(kit.ResponseModel):
    """How many members or end users the policy concerns."""

    concerned: int = Field(description="How many users a rule can concern.")
    meets: int = Field(description="The number of them that meet all rules, now and later.")
    stopped_now: int = Field(
        description="The number of them that need a new factor at their next sign-in, another network, or a connection that does not know "
        "them yet."
    )
    stopped_later: int = Field(description="The number of them that need a new factor when a rule starts.")
    is_exact: bool = Field(description="Whether all users were counted. Otherwise there are more than 10,000.")


class StoppedUserResponse(kit.ResponseModel):
    """A user who does not meet the policy."""

    user_id: UUID = Field(description="The id of the user.")
    name: str | None = Field(description="The name in the profile, or null.")
    email: str = Field(description="The email address of the user.")
    missing: Rule = Field(description="The first rule that the user does not meet.")
    is_stopped_now: bool = Field(description="Whether the rule is in force at once. Otherwise it starts later.")


class StoppedPersonResponse(StoppedUserResponse):
    """A member who does not meet the policy."""

    role: roles.RoleName = Field(description="The role of the member.", json_schema_extra={"type": "string"})


class PolicyPreviewResponse(kit.ResponseModel):
    """The effect that the policy would have if it was saved now."""

    due_at: PolicyStartsResponse = Field(description="When the rules would start that become stricter.")
    members: PeopleCountResponse | None = Field(description="The confirmed members, or null if there are too many to count them.")
    end_users: PeopleCountResponse | None = Field(description="The other end users, or null if there are too many to count them.")
    people: list[StoppedPersonResponse] = Field(description="The first 100 members who do not meet the policy, with `members.view` only.")
    lacks_break_glass: bool = Field(description="Whether a connection is required, and no owner or admin is listed for break glass.")
    unusable_methods: list[str] = Field(description="The methods that stay in the policy, but are no longer set up: no user has them.")


def _values(rules: Rules) -> dict[str, Any]:
    shown = rules.shown
    return {rule.value: shown.get(rule) for rule in Rule}


def starts_of(rules: Rules) -> PolicyStartsResponse:
    return PolicyStartsResponse(**{rule.value: rules.due_at.get(rule) for rule in RULES_WITH_GRACE})


def fields_of_policy(details: PolicyDetails) -> dict[str, Any]:
    """Return a response's fields for a policy. A model takes the fields that it has."""
    policy = details.policy
    return {
        **_values(policy.rules),
        "grace_days": policy.rules.grace.days,
        "due_at": starts_of(policy.rules),
        "version": policy.version,
        "changed_at": policy.changed_at if policy.version else None,
        "imposed": policy.imposed_names,
        "in_force": _values(details.in_force),
    }


def _to_preview(preview: PolicyPreview) -> PolicyPreviewResponse:
    return PolicyPreviewResponse.of(preview, due_at=starts_of(preview.rules))


@routes.get(OF_ORGANIZATION)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.SHOWS_PEOPLE)
async def get(org_slug: str) -> SignInPolicyResponse:
    """Get the organization's sign-in policy.

    It says how the organization's users sign in, and counts when they open it or its applications.
    """
    return SignInPolicyResponse(**fields_of_policy(await sign_in_policies.get(kit.ports(), kit.acting_member())))


@routes.put(OF_ORGANIZATION)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@kit.refuses(409)
async def replace(org_slug: str, data: SignInPolicyRequest) -> SignInPolicyResponse:
    """Replace the organization's sign-in policy.

    Rules that you could not meet yourself are refused. Sessions continue: the new rules count at their next use. 409 if another request
    changed the policy since you loaded it.
    """
    return SignInPolicyResponse(
        **fields_of_policy(await sign_in_policies.save(kit.ports(), kit.acting_member(), data.document, data.version))
    )


@routes.post(f"{OF_ORGANIZATION}/preview")
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.PREVIEWS, limit=POLICY_PREVIEW)
async def preview(org_slug: str, data: PolicyPreviewRequest) -> PolicyPreviewResponse:
    """Preview the effect of the organization's sign-in policy.

    The response says how many people it concerns, and who could not sign in without a new factor. Nothing is changed.
    """
    return _to_preview(await sign_in_policies.preview(kit.ports(), kit.acting_member(), data.document))


@routes.get(OF_APPLICATION)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.SHOWS_PEOPLE)
async def get_of_service(org_slug: str, service_slug: str) -> ApplicationPolicyResponse:
    """Get a service's sign-in policy.

    It adds to the organization's policy: the stricter rule counts.
    """
    return ApplicationPolicyResponse(**fields_of_policy(await of_applications.get(kit.ports(), kit.acting_member(), service_slug)))


@routes.put(OF_APPLICATION)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@existing_service
@kit.refuses(409)
async def replace_of_service(org_slug: str, service_slug: str, data: ApplicationPolicyRequest) -> ApplicationPolicyResponse:
    """Replace a service's sign-in policy.

    Rules that you could not meet yourself are refused. 409 if another request changed the policy since you loaded it.
    """
    details = await of_applications.save(kit.ports(), kit.acting_member(), service_slug, data.document, data.version)
    return ApplicationPolicyResponse(**fields_of_policy(details))


@routes.delete(OF_APPLICATION)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@kit.describes({204: "The service has no sign-in policy of its own."})
async def remove_of_service(org_slug: str, service_slug: str) -> None:
    """Remove a service's sign-in policy.

    The organization's policy stays.
    """
    await of_applications.remove(kit.ports(), kit.acting_member(), service_slug)


@routes.post(f"{OF_APPLICATION}/preview")
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.PREVIEWS, limit=POLICY_PREVIEW)
@existing_service
async def preview_of_service(org_slug: str, service_slug: str, data: ApplicationPolicyPreviewRequest) -> PolicyPreviewResponse:
    """Preview the effect of a service's sign-in policy.

    It counts the service's users.
    """
    return _to_preview(await of_applications.preview(kit.ports(), kit.acting_member(), service_slug, data.document))


class BreakGlassUserResponse(kit.ResponseModel):
    """A member who may come without the required connection."""

    user_id: UUID = Field(description="The id of the user.")
    name: str | None = Field(description="The name in the profile, or null.")
    email: str = Field(description="The email address of the user.")
    is_admin: bool = Field(description="Whether the user is still an owner or admin. Break glass counts for no other members.")


class BreakGlassUserListResponse(kit.ResponseModel):
    """The members who may come without the required connection."""

    user_ids: list[UUID] = Field(description="Their ids, as in the request that replaces them.")
    users: list[BreakGlassUserResponse] = Field(description="They are ordered by email address.")


class BreakGlassUsersRequest(kit.RequestModel):
    """The members who may come without the required connection. They replace the earlier members."""

    user_ids: list[kit.Id] = Field(
        max_length=MAX_BREAK_GLASS,
        description="The ids of up to three owners and admins.",
        examples=[["0c1c6d7a-2a3b-4c5d-8e6f-7a8b9c0d1e2f"]],
    )


def to_break_glass_users(users: Sequence[BreakGlassUser]) -> BreakGlassUserListResponse:
    return BreakGlassUserListResponse(user_ids=[user.user_id for user in users], users=[BreakGlassUserResponse.of(user) for user in users])


@routes.get(OF_BREAK_GLASS)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.SHOWS_PEOPLE)
async def list_break_glass_users(org_slug: str) -> BreakGlassUserListResponse:
    """List the break-glass users.

    They are up to three owners and admins who may sign in without the connection that the policy requires, for example when the identity
    provider fails. They need a factor on their own account, and meet the policy's other rules.
    """
    return to_break_glass_users(await break_glass.list_users(kit.ports(), kit.acting_member()))


@routes.put(OF_BREAK_GLASS)
@kit.member(roles.Capability.SIGN_IN_POLICY_MANAGE, kit.OWNS)
@kit.refuses(409)
async def replace_break_glass_users(org_slug: str, data: BreakGlassUsersRequest) -> BreakGlassUserListResponse:
    """Replace the break-glass users.

    Every use is emailed to all the organization's owners and admins and to the platform owners, once in a session.
    """
    return to_break_glass_users(await break_glass.replace_users(kit.ports(), kit.acting_member(), data.user_ids))


class ImposedRulesResponse(kit.ResponseModel):
    """The imposed rules in the organization's sign-in policy."""

    service_slug: str | None = Field(description="The service's slug, or null for the organization's sign-in policy.")
    rules: list[str] = Field(description="The rules' names, as in the policy. `break_glass_users` is the break-glass list.")


@routes.get(OF_IMPOSED_RULES)
@kit.member(roles.Capability.ORGANIZATION_OWN, kit.SHOWS_IMPOSED)
async def list_imposed_rules(org_slug: str) -> list[ImposedRulesResponse]:
    """List the rules that members with fewer rights than the owner made.

    The members added these rules to sign-in policies, or tightened the owner's rules. No sign-in policy counts here.
    """
    return [ImposedRulesResponse.of(rules) for rules in await imposed_rules.list_all(kit.ports(), kit.acting_member())]


@routes.delete(OF_IMPOSED_RULES)
@kit.member(roles.Capability.ORGANIZATION_OWN, kit.UNLOCKS)
@kit.refuses(400)
@kit.describes({204: "The owner's rules and list of break glass are in force again."})
async def remove_imposed_rules(org_slug: str) -> None:
    """Remove the rules that members with fewer rights than the owner made.

    The owner's rules and break-glass list are in force again. You need a passkey or a second factor on your account, used in the last 10
    minutes. No sign-in policy counts here, so the rules cannot keep the owner out. If users could then not sign in to a service, the
    organization's and the service's policies also accept passkeys.
    """
    await imposed_rules.remove(kit.ports(), kit.acting_member())
