"""The service interface: its users (identity.md section 4.5)."""

from functools import wraps
from typing import Any
from uuid import UUID

from quart import Blueprint, Response
from quart_schema import validate_querystring, validate_request, validate_response

from core.applications import service_users
from core.applications.service_users_rules import ServiceUser
from core.kernel.principals import Permission
from core.kernel.values import KEEP, Email
from entrypoints.http.edge.access import View, service_key
from entrypoints.http.edge.bodies import EmailAddress, RequestModel, ResponseModel, Timestamp, maybe
from entrypoints.http.edge.context import acting_key, no_content, ports
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PartQuery, path_id

routes = Blueprint("service_users", __name__)


class ServiceUserShown(ResponseModel):
    """A person as your service knows them."""

    id: UUID
    email: str
    created_at: Timestamp


def _show(user: ServiceUser) -> ServiceUserShown:
    return ServiceUserShown(id=user.id, email=user.email, created_at=user.created_at)


class ServiceUsersPage(ResponseModel):
    """People who use your service, for the longest time first, and how many they are."""

    users: list[ServiceUserShown]
    total: int


@routes.get("/api/service/users")
@service_key(Permission.READ_USERS)
@refuses(400)
@validate_querystring(PartQuery)
@validate_response(ServiceUsersPage)
async def page(query_args: PartQuery) -> ServiceUsersPage:
    """List those who use your service: they have signed in to it, or its API key made them."""
    found = await service_users.listed(ports(), acting_key(), query_args.limit, query_args.offset)
    return ServiceUsersPage(users=[_show(user) for user in found.items], total=found.total)


class NewServiceUser(RequestModel):
    """The address of the person."""

    email: EmailAddress


@routes.post("/api/service/users")
@service_key(Permission.WRITE_USERS)
@validate_request(NewServiceUser)
@validate_response(ServiceUserShown)
async def create(data: NewServiceUser) -> ServiceUserShown:
    """Make an account for this address, which uses your service from now on; where there is one, it is returned, and nothing changes.

    No mail is sent, and the account has no password: the person chooses one with POST /api/auth/forgot-password."""
    return _show(await service_users.create(ports(), acting_key(), Email(data.email)))


def of_a_service_user(view: View) -> View:
    """For routes of `<user_id>`: that somebody does not use the service is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(user_id: str, **arguments: Any) -> Any:
        user = await service_users.find(ports(), acting_key(), path_id(user_id))
        return await view(user_id=user.id, **arguments)

    return found


@routes.get("/api/service/users/<user_id>")
@service_key(Permission.READ_USERS)
@validate_response(ServiceUserShown)
async def service_user(user_id: str) -> ServiceUserShown:
    """One of those who use your service."""
    return _show(await service_users.find(ports(), acting_key(), path_id(user_id)))


class ServiceUserChange(RequestModel):
    """The new address, if it is to be another one."""

    email: EmailAddress = maybe()


@routes.patch("/api/service/users/<user_id>")
@service_key(Permission.WRITE_USERS)
@of_a_service_user
@validate_request(ServiceUserChange)
@validate_response(ServiceUserShown)
async def change(user_id: UUID, data: ServiceUserChange) -> ServiceUserShown:
    """Change the address of an account that is your organization's alone. It is unverified then, and all its sessions end."""
    given: object = data.email
    email = Email(given) if isinstance(given, str) else KEEP
    return _show(await service_users.change_email(ports(), acting_key(), user_id, email))


@routes.delete("/api/service/users/<user_id>")
@service_key(Permission.DELETE_USERS)
@describes({204: "The account is gone, or, where others share it, uses your service no more."})
async def delete(user_id: str) -> Response:
    """Delete somebody: the account, for good, if your organization made it and nobody else knows it; else what your service has of it."""
    await service_users.delete(ports(), acting_key(), path_id(user_id))
    return no_content()
