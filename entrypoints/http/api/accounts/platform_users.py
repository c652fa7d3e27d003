"""People, their second factor, and who is a platform owner, for platform owners (organizations.md section 4.6; decisions, points 241 to
244)."""

from functools import wraps
from typing import Any
from uuid import UUID

from pydantic import ConfigDict
from quart import Blueprint
from quart_schema import validate_querystring, validate_request, validate_response

from core.accounts import platform, platform_users
from core.accounts.platform_users_rules import MfaAlert, MfaAlertType, FoundUser
from core.kernel.errors import Invalid
from core.kernel.principals import Role
from entrypoints.http.edge.access import View, platform_owner
from entrypoints.http.edge.bodies import Id, Reason, RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import ports, signed_in
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import Query, SearchLimit, path_id

routes = Blueprint("platform_users", __name__)


class ReasonMissing(Invalid):
    """Say why, as "reason" in the body or in the query."""


def of_a_person(view: View) -> View:
    """For routes of `<user_id>`: an account that does not exist is told of before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(user_id: str, **arguments: Any) -> Any:
        account = await platform_users.find(ports(), path_id(user_id))
        return await view(user_id=account.id, **arguments)

    return found


class UsersQuery(Query):
    """Which people: part of their address, and the id of one. An id that nobody has matches nothing."""

    email: Text | None = None
    user_id: Text | None = None
    limit: SearchLimit = 20


class OrganizationOfUser(ResponseModel):
    """An organization that the person is a member of, and as what."""

    id: UUID
    slug: str
    name: str
    role: Role


class UserFound(ResponseModel):
    """An account, and the organizations that the person is a member of."""

    id: UUID
    email: str
    is_platform_owner: bool
    mfa_enabled: bool
    created_at: Timestamp
    organizations: list[OrganizationOfUser]


class UsersFound(ResponseModel):
    """The newest accounts that were looked for."""

    users: list[UserFound]


@routes.get("/api/platform/users/search")
@platform_owner
@refuses(400, 404)
@validate_querystring(UsersQuery)
@validate_response(UsersFound)
async def search(query_args: UsersQuery) -> UsersFound:
    """Look people up, the newest first; where nothing is looked for, everybody is found."""
    # What is not an id is one that nobody has, as in paths: it matches nothing (decisions, point 13).
    user_id = None if query_args.user_id is None else path_id(query_args.user_id)
    found = await platform_users.search(ports(), query_args.limit, email=query_args.email, user_id=user_id)
    return UsersFound(users=[_found(one) for one in found])


def _found(person: FoundUser) -> UserFound:
    return UserFound(
        id=person.id,
        email=person.email,
        is_platform_owner=person.is_platform_owner,
        mfa_enabled=person.mfa_enabled,
        created_at=person.created_at,
        organizations=[OrganizationOfUser(id=one.id, slug=one.slug, name=one.name, role=one.role) for one in person.organizations],
    )


class UserMfaStatus(ResponseModel):
    """How somebody's second factor stands; `last_mfa_challenge` is when a code was last asked for and given, right or wrong."""

    user_id: UUID
    email: str
    mfa_enabled: bool
    mfa_enabled_at: Timestamp | None
    backup_codes_remaining: int
    last_mfa_challenge: Timestamp | None


@routes.get("/api/platform/users/<user_id>/mfa/status")
@platform_owner
@refuses(400)
@validate_response(UserMfaStatus)
async def user_mfa_status(user_id: str) -> UserMfaStatus:
    """How the second factor of an account stands."""
    status = await platform_users.get_mfa_status(ports(), path_id(user_id))
    return UserMfaStatus(
        user_id=status.user_id,
        email=status.email,
        mfa_enabled=status.enabled_at is not None,
        mfa_enabled_at=status.enabled_at,
        backup_codes_remaining=status.backup_codes,
        last_mfa_challenge=status.last_challenge_at,
    )


class Removal(RequestModel):
    """Why the second factor is taken away. Clients that send no body with DELETE say it in the query."""

    # The document requires it, and says nothing of the query.
    model_config = ConfigDict(strict=True, frozen=True, json_schema_extra={"required": ["reason"]})

    reason: Reason | None = None


class RemovalQuery(Query):
    """Why, where the body does not say it."""

    reason: Reason | None = None


class Removed(ResponseModel):
    """What became of it."""

    success: bool
    message: str


@routes.delete("/api/platform/users/<user_id>/mfa")
@platform_owner
@of_a_person
@validate_request(Removal)
@validate_querystring(RemovalQuery)
@validate_response(Removed)
async def remove_mfa(user_id: UUID, data: Removal, query_args: RemovalQuery) -> Removed:
    """Take the second factor of somebody else away, and end all their sessions. They are told by mail."""
    reason = data.reason or query_args.reason
    if reason is None:
        raise ReasonMissing
    if await platform_users.remove_mfa(ports(), signed_in(), user_id, reason):
        return Removed(success=True, message="Two-factor authentication was switched off for this account, and its sessions were ended.")
    return Removed(success=True, message="This account had no two-factor authentication to switch off.")


class MfaFiguresShown(ResponseModel):
    """The second factor on the platform. Users are accounts that are not deactivated, `mfa_adoption_rate` is in percent."""

    total_users: int
    mfa_enabled_users: int
    mfa_adoption_rate: float
    backup_codes_used_7d: int
    mfa_failures_7d: int


@routes.get("/api/platform/mfa/metrics")
@platform_owner
@refuses(400, 404)
@validate_response(MfaFiguresShown)
async def mfa_metrics() -> MfaFiguresShown:
    """How many people have a second factor, and what happened to it in the last seven days."""
    figures = await platform_users.get_mfa_metrics(ports())
    return MfaFiguresShown(
        total_users=figures.total_users,
        mfa_enabled_users=figures.mfa_enabled_users,
        mfa_adoption_rate=figures.adoption_rate,
        backup_codes_used_7d=figures.backup_codes_used,
        mfa_failures_7d=figures.failures,
    )


class AlertShown(ResponseModel):
    """Something that may be the doing of somebody else. `details` depend on the type: `count` and `first_at`, or `login_at` and
    `ip_address`."""

    user_id: UUID
    email: str
    alert_type: MfaAlertType
    details: dict[str, Any]
    detected_at: Timestamp


class Alerts(ResponseModel):
    """What was suspicious, the newest first."""

    alerts: list[AlertShown]


@routes.get("/api/platform/mfa/suspicious")
@platform_owner
@refuses(400, 404)
@validate_response(Alerts)
async def mfa_suspicious() -> Alerts:
    """List what happened to second factors in the last day that somebody should look at.

    Many wrong codes, many backup codes used, or the second factor switched off right after a login.
    """
    return Alerts(alerts=[_alert(one) for one in await platform_users.list_alerts(ports())])


def _alert(alert: MfaAlert) -> AlertShown:
    return AlertShown(
        user_id=alert.user_id,
        email=alert.email,
        alert_type=alert.type,
        details=dict(alert.details),
        detected_at=alert.detected_at,
    )


class OwnersChange(ResponseModel):
    """Who became a platform owner, or is one no more."""

    message: str
    user_id: UUID


class NewOwner(RequestModel):
    """Who is to be a platform owner: an account with a verified address that is in use."""

    user_id: Id


@routes.post("/api/platform/owners")
@platform_owner
@refuses(404)
@validate_request(NewOwner)
@validate_response(OwnersChange)
async def promote(data: NewOwner) -> OwnersChange:
    """Make somebody a platform owner. For one who is that already, nothing happens."""
    await platform.promote(ports(), signed_in(), data.user_id)
    return OwnersChange(message="This person is a platform owner.", user_id=data.user_id)


@routes.delete("/api/platform/owners/<user_id>")
@platform_owner
@refuses(400)
@validate_response(OwnersChange)
async def demote(user_id: str) -> OwnersChange:
    """End somebody's rights as a platform owner. Not one's own, and not those of the last one."""
    wanted = path_id(user_id)
    await platform.demote(ports(), signed_in(), wanted)
    return OwnersChange(message="This person is a platform owner no more.", user_id=wanted)
