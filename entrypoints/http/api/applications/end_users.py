"""People who use the services of an organization (organizations.md section 4.5)."""

from uuid import UUID

from quart import Blueprint
from quart_schema import validate_querystring, validate_response

from core.applications import end_users
from core.applications.end_users_rules import EndUserDetails, EndUserSummary
from core.kernel.principals import Capability
from core.kernel.providers import Provider
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import PageQuery, Pagination, pagination, path_id

routes = Blueprint("end_users", __name__)


class EndUsersQuery(PageQuery):
    """Which page of the end users; of those who use one service, and whose address has `search` in it, where these are given."""

    search: Text | None = None
    service_id: Text | None = None


class EndUserListed(ResponseModel):
    """A person who uses services of the organization: those of the slugs in `services`, to one of which was the last login."""

    id: UUID
    email: str
    created_at: Timestamp
    last_login_at: Timestamp | None
    mfa_enabled: bool
    services: list[str]


class EndUsersPage(ResponseModel):
    """End users. Who began to use the organization's services last comes first; with `service_id`, that service."""

    users: list[EndUserListed]
    pagination: Pagination


@routes.get("/api/organizations/<org_slug>/users")
@member(Capability.END_USERS_VIEW)
@refuses(400)
@validate_querystring(EndUsersQuery)
@validate_response(EndUsersPage)
async def users(org_slug: str, query_args: EndUsersQuery) -> EndUsersPage:
    """List the people who use the organization's services."""
    wanted = query_args.wanted()
    # What is not an id is one that no service has, as in paths: it matches nothing (decisions, point 13).
    service_id = None if query_args.service_id is None else path_id(query_args.service_id)
    found = await end_users.listed(ports(), acting_member(), wanted, search=query_args.search, service_id=service_id)
    return EndUsersPage(users=[_listed(one) for one in found.items], pagination=pagination(wanted, found.total))


def _listed(listed: EndUserSummary) -> EndUserListed:
    return EndUserListed(
        id=listed.id,
        email=listed.email,
        created_at=listed.created_at,
        last_login_at=listed.last_login_at,
        mfa_enabled=listed.mfa_enabled,
        services=list(listed.services),
    )


class LinkedIdentityShown(ResponseModel):
    """An account at an external provider, linked for a service of the organization."""

    provider: Provider
    provider_user_id: str
    email: str | None
    linked_at: Timestamp


class ServiceUsed(ResponseModel):
    """A service of the organization that the person uses."""

    id: UUID
    slug: str
    name: str
    first_login_at: Timestamp | None
    last_login_at: Timestamp | None


class SessionsShown(ResponseModel):
    """The person's live sessions in the organization."""

    active_count: int
    last_created_at: Timestamp | None


class EndUserDetails(ResponseModel):
    """What the organization may know of one of its end users: the account, and what happened in its own services."""

    id: UUID
    email: str
    created_at: Timestamp
    last_login_at: Timestamp | None
    mfa_enabled: bool
    email_verified: bool
    updated_at: Timestamp
    linked_identities: list[LinkedIdentityShown]
    services: list[ServiceUsed]
    sessions: SessionsShown


@routes.get("/api/organizations/<org_slug>/users/<user_id>")
@member(Capability.END_USERS_VIEW)
@validate_response(EndUserDetails)
async def user(org_slug: str, user_id: str) -> EndUserDetails:
    """One of the people who use the organization's services."""
    return _details(await end_users.find(ports(), acting_member(), path_id(user_id)))


def _details(found: EndUserDetails) -> EndUserDetails:
    person = found.person
    return EndUserDetails(
        id=person.id,
        email=person.email,
        created_at=person.created_at,
        last_login_at=found.last_login_at,
        mfa_enabled=person.mfa_enabled,
        email_verified=person.email_verified,
        updated_at=person.updated_at,
        linked_identities=[
            LinkedIdentityShown(
                provider=identity.provider,
                provider_user_id=identity.provider_user_id,
                email=identity.email,
                linked_at=identity.linked_at,
            )
            for identity in found.identities
        ],
        services=[
            ServiceUsed(
                id=service.id,
                slug=service.slug,
                name=service.name,
                first_login_at=service.first_login_at,
                last_login_at=service.last_login_at,
            )
            for service in found.services
        ],
        sessions=SessionsShown(active_count=found.sessions.count, last_created_at=found.sessions.last_created_at),
    )


class SessionsRevoked(ResponseModel):
    """How many sessions were ended."""

    message: str
    sessions_revoked: int


@routes.delete("/api/organizations/<org_slug>/users/<user_id>/sessions")
@member(Capability.END_USERS_MANAGE)
@validate_response(SessionsRevoked)
async def revoke_sessions(org_slug: str, user_id: str) -> SessionsRevoked:
    """End a person's sessions in the organization and its services. Sessions elsewhere go on."""
    revoked = await end_users.revoke_sessions(ports(), acting_member(), path_id(user_id))
    return SessionsRevoked(message="The person's sessions in the organization were ended.", sessions_revoked=revoked)
