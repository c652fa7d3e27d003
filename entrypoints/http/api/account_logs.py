"""The logs about second factors and privacy, for the user and platform owners (security M-6)."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.privacy import personal_data
from core.privacy.model.personal_data import MfaLogEntry, PrivacyLogEntry
from entrypoints.http import kit
from entrypoints.http.api.eventing.audit import AuditActorResponse

routes = Blueprint("account_logs", __name__)

EVENTS = Field(description="The entries, newest first.")
PAGE = Field(description="The position of this page. The newest 10,000 entries have pages, and `total` counts no more.")
MFA_EVENT_TYPE = Field(description="The kind of the event.", examples=["mfa_verify_success"])
PRIVACY_EVENT_TYPE = Field(description="`user_exported` or `user_anonymized`.", examples=["user_exported"])
ADDRESS = Field(description="The IP address of the request, or null.")
AGENT = Field(description="The user agent of the request, or null.")
BY_USER = Field(description="Whether it was done with your own sign-in. If not, `ip_address` and `user_agent` are null.")


class OwnMfaEventResponse(kit.ResponseModel):
    """An entry in your second-factor log."""

    id: UUID = Field(description="The id of the entry.")
    event_type: str = MFA_EVENT_TYPE
    success: bool = Field(description="Whether the action succeeded.")
    by_user: bool = BY_USER
    ip_address: str | None = ADDRESS
    user_agent: str | None = AGENT
    created_at: kit.Timestamp = Field(description="When it happened.")


class OwnMfaEventListResponse(kit.ResponseModel):
    """A page of your second-factor log."""

    events: list[OwnMfaEventResponse] = EVENTS
    pagination: kit.Pagination = PAGE


@routes.get("/api/user/mfa/events")
@kit.person
@kit.refuses(404)
async def list_own_mfa_events(query_args: kit.PageQuery) -> OwnMfaEventListResponse:
    """List your second factor's log.

    It has the codes that were entered, right and wrong, and the changes to your two-factor authentication.
    """
    entries = await personal_data.list_mfa_log(kit.ports(), kit.signed_in().user_id, query_args.page_request())
    return OwnMfaEventListResponse(
        events=[to_own_mfa_event(entry) for entry in entries.items], pagination=query_args.pagination(entries.total)
    )


def to_own_mfa_event(entry: MfaLogEntry) -> OwnMfaEventResponse:
    # The user must not learn a platform owner's address.
    by_user = entry.actor is None and entry.impersonator is None
    return OwnMfaEventResponse.of(
        entry,
        by_user=by_user,
        ip_address=entry.address if by_user else None,
        user_agent=entry.agent if by_user else None,
        created_at=entry.at,
    )


class OwnPrivacyEventResponse(kit.ResponseModel):
    """An export of your data, or its anonymization."""

    id: UUID = Field(description="The id of the entry.")
    event_type: str = PRIVACY_EVENT_TYPE
    by_user: bool = BY_USER
    ip_address: str | None = ADDRESS
    user_agent: str | None = AGENT
    created_at: kit.Timestamp = Field(description="When it happened.")


class OwnPrivacyEventListResponse(kit.ResponseModel):
    """A page of the privacy log about you."""

    events: list[OwnPrivacyEventResponse] = EVENTS
    pagination: kit.Pagination = PAGE


@routes.get("/api/user/privacy-log")
@kit.person
@kit.refuses(404)
async def list_own_privacy_events(query_args: kit.PageQuery) -> OwnPrivacyEventListResponse:
    """List the exports of your data.

    If `by_user` is false, an organization's owner or a platform owner exported it.
    """
    user = kit.signed_in()
    entries = await personal_data.list_privacy_log(kit.ports(), user.user_id, query_args.page_request())
    events = [to_own_privacy_event(entry, user.user_id) for entry in entries.items]
    return OwnPrivacyEventListResponse(events=events, pagination=query_args.pagination(entries.total))


def to_own_privacy_event(entry: PrivacyLogEntry, user_id: UUID) -> OwnPrivacyEventResponse:
    by_user = entry.actor.id == str(user_id)
    return OwnPrivacyEventResponse.of(
        entry,
        by_user=by_user,
        ip_address=entry.address if by_user else None,
        user_agent=entry.agent if by_user else None,
        created_at=entry.at,
    )


class MfaEventResponse(kit.ResponseModel):
    """An entry in a user's second-factor log, as platform owners see it."""

    id: UUID = Field(description="The id of the entry.")
    event_type: str = MFA_EVENT_TYPE
    success: bool = Field(description="Whether the action succeeded.")
    actor: AuditActorResponse | None = Field(description="The platform owner who did it, or null if it was done with the user's sign-in.")
    impersonator: AuditActorResponse | None = Field(description="The platform owner who acted as the user, or null.")
    reason: str | None = Field(description="The reason that the platform owner gave, or null.")
    ip_address: str | None = ADDRESS
    user_agent: str | None = AGENT
    created_at: kit.Timestamp = Field(description="When it happened.")


class MfaEventListResponse(kit.ResponseModel):
    """A page of a user's second-factor log."""

    events: list[MfaEventResponse] = EVENTS
    pagination: kit.Pagination = PAGE


@routes.get("/api/platform/users/<user_id>/mfa/events")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
async def list_mfa_events(user_id: UUID, query_args: kit.PageQuery) -> MfaEventListResponse:
    """List the log of a user's second factor.

    It has the codes that were entered, right and wrong, and the changes to two-factor authentication.
    """
    entries = await personal_data.list_mfa_log(kit.ports(), user_id, query_args.page_request())
    events = [MfaEventResponse.of(each, ip_address=each.address, user_agent=each.agent, created_at=each.at) for each in entries.items]
    return MfaEventListResponse(events=events, pagination=query_args.pagination(entries.total))


class PrivacyEventResponse(kit.ResponseModel):
    """An export of a user's data, or its anonymization, as platform owners see it."""

    id: UUID = Field(description="The id of the entry.")
    event_type: str = PRIVACY_EVENT_TYPE
    actor: AuditActorResponse = Field(description="The user who did it.")
    ip_address: str | None = ADDRESS
    user_agent: str | None = AGENT
    created_at: kit.Timestamp = Field(description="When it happened.")


class PrivacyEventListResponse(kit.ResponseModel):
    """A page of the privacy log about a user."""

    events: list[PrivacyEventResponse] = EVENTS
    pagination: kit.Pagination = PAGE


@routes.get("/api/platform/users/<user_id>/privacy-log")
@kit.platform_owner(Capability.PLATFORM_USERS_VIEW)
async def list_privacy_events(user_id: UUID, query_args: kit.PageQuery) -> PrivacyEventListResponse:
    """List the exports and the anonymization of a user's data.

    The newest entry comes first. Every entry has the user who asked for it.
    """
    entries = await personal_data.list_privacy_log(kit.ports(), user_id, query_args.page_request())
    events = [PrivacyEventResponse.of(each, ip_address=each.address, user_agent=each.agent, created_at=each.at) for each in entries.items]
    return PrivacyEventListResponse(events=events, pagination=query_args.pagination(entries.total))
