"""Exports an organization's members as files: CSV, and JSON lines."""

import json
from typing import Any, Final
from uuid import UUID

from pydantic import Field
from quart import Response

from core.kernel.values import Batches
from core.tenancy.model.members import ExportedMember
from entrypoints.http.api.eventing.audit_files import ExportFormat, stream_file
from entrypoints.http.api.tenancy.role_choices import Role
from entrypoints.http.edge.bodies import ResponseModel, Timestamp

FILE: Final = {200: "The members, in the order in which they joined."}


class ExportedMemberRoleResponse(ResponseModel):
    """A role that a member has in an application."""

    service_slug: str = Field(description="The slug of the application.")
    role: str = Field(description="The slug of the role.", examples=["editor"])


class ExportedMemberResponse(ResponseModel):
    """A line in the export."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address.")
    name: str | None = Field(description="The user's name, or null. It is null until the user has confirmed the membership.")
    role: Role = Field(description="The member's role.")
    joined_at: Timestamp = Field(description="When the user became a member.")
    confirmed_at: Timestamp | None = Field(description="When the membership was confirmed, or null if it is not confirmed yet.")
    email_verified: bool | None = Field(description="Whether the address is verified. Null until the membership is confirmed.")
    mfa_enabled: bool | None = Field(description="Whether the account has a second factor. Null until the membership is confirmed.")
    last_login_at: Timestamp | None = Field(
        description="When the user last signed in to a service of the organization or, since they joined, to the platform. Null if never."
    )
    roles: list[Role] = Field(description="All the member's roles in the organization: their own role, then their groups' roles.")
    groups: list[str] = Field(description="The names of the groups that the member is in. Empty for callers without `end_users.view`.")
    application_roles: list[ExportedMemberRoleResponse] = Field(
        description="The member's roles in applications, also roles by groups. Empty for callers without `end_users.view`."
    )
    attributes: dict[str, Any] = Field(description="The member's own values of the organization's attributes, by name.")


async def stream_members(batches: Batches[ExportedMember], format_: ExportFormat, name: str) -> Response:
    """Return all members as a streamed file with this name. The format's extension is added. In CSV, lists and objects are JSON."""
    return await stream_file(batches, format_, name, tuple(ExportedMemberResponse.model_fields), _cells, _to_response)


def _cells(exported: ExportedMember) -> list[str]:
    return [_cell(value) for value in _to_response(exported).model_dump(mode="json").values()]


def _cell(value: object) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _to_response(exported: ExportedMember) -> ExportedMemberResponse:
    account, holdings = exported.account, exported.holdings
    listed, membership = account.member, account.member.membership
    return ExportedMemberResponse(
        user_id=listed.user_id,
        email=listed.email,
        name=listed.name,
        role=membership.role,
        joined_at=membership.created_at,
        confirmed_at=membership.confirmed_at,
        email_verified=account.email_verified,
        mfa_enabled=account.mfa_enabled,
        last_login_at=account.last_login_at,
        roles=list(membership.roles),
        groups=list(holdings.groups),
        application_roles=[ExportedMemberRoleResponse(service_slug=service, role=role) for service, role in holdings.application_roles],
        attributes=dict(holdings.attributes),
    )
