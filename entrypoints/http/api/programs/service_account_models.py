"""The requests and responses for service accounts. An organization's service accounts have a role, too."""

from collections.abc import Sequence
from uuid import UUID

from pydantic import Field

from core.kernel.api_scopes import ApiScope, parse_scopes
from core.kernel.roles import Capability
from core.kernel.values import KEEP, Keep
from core.programs.model.service_accounts import ListedServiceAccount, in_declared_order, scopes_in_order
from core.programs.service_accounts import NewServiceAccount, ServiceAccountChanges
from entrypoints.http.api.tenancy.role_choices import Role
from entrypoints.http.edge.bodies import AT_LEAST_ONE_FIELD, Id, Name, RequestModel, ResponseModel, Text, Texts, Timestamp, optional
from entrypoints.http.edge.queries import Pagination

ROLE = "`owner`, `admin`, `member`, or a role of the organization. You need every right that it gives."
OWNER = "The id of the user who answers for it: a member of the organization, or a platform owner."
NEW_OWNER = f"{OWNER} Name yourself, or leave the owner as it is. Only the owner of an organization can name another user."
SCOPES = (
    "The scopes that its tokens can have, such as `members:read`, or `platform_users:read` on the platform. "
    "Null: all that its role allows, or all scopes of the platform."
)
GRANTED = (
    "Capabilities for routes that need a user, or have an effect that outlives the service account, such as `api_keys.manage`, "
    "or `platform_users.manage` on the platform. Only owners grant them."
)


class PlatformServiceAccountRequest(RequestModel):
    """A new service account for the platform."""

    name: Name = Field(description="The name of the service account, which the audit log shows.", examples=["Nightly export"])
    owner_id: Id | None = Field(
        default=None, description=f"{OWNER} By default you. Only the owner of an organization can name another user."
    )
    scopes: Texts | None = Field(default=None, description=SCOPES)
    granted_capabilities: Texts = Field(default=[], description=GRANTED)


class ServiceAccountRequest(PlatformServiceAccountRequest):
    """A new service account for an organization."""

    role: Text = Field(description=ROLE, examples=["member"])


class PlatformServiceAccountUpdateRequest(RequestModel):
    """The platform service account's fields to change."""

    model_config = AT_LEAST_ONE_FIELD

    name: Name | Keep = optional(description="The name of the service account.")
    owner_id: Id | Keep = optional(description=NEW_OWNER)
    scopes: Texts | Keep | None = optional(description=SCOPES)
    granted_capabilities: Texts | Keep = optional(description=GRANTED)


class ServiceAccountUpdateRequest(PlatformServiceAccountUpdateRequest):
    """The fields to change in an organization's service account."""

    role: Text | Keep = optional(description=ROLE)


class PlatformServiceAccountResponse(ResponseModel):
    """A service account of the platform."""

    id: UUID = Field(description="The id of the service account, which is also its client id.")
    name: str = Field(description="The name of the service account.")
    owner_id: UUID = Field(description=OWNER)
    owner_email: str | None = Field(
        description="The email address of that user. Null if they have left the organization or the platform owners."
    )
    is_active: bool = Field(description="False if its owner could not create it now. Then all its requests are refused.")
    scopes: list[ApiScope] | None = Field(description=SCOPES)
    granted_capabilities: list[Capability] = Field(description="The capabilities that an owner granted by name.")
    created_by: UUID = Field(description="The id of the user who created it.")
    created_at: Timestamp = Field(description="The time at which it was created, in UTC.")


class ServiceAccountResponse(PlatformServiceAccountResponse):
    """An organization's service account."""

    role: Role = Field(description="The role of the service account.")
    ends_at: Timestamp | None = Field(
        description="The time at which the service account ends, because its owner has left or deleted their account. A new owner keeps it."
    )


class PlatformServiceAccountListResponse(ResponseModel):
    """A page of the platform's service accounts."""

    service_accounts: list[PlatformServiceAccountResponse] = Field(description="The service accounts, newest first.")
    pagination: Pagination = Field(description="The position of this page in the list.")


class ServiceAccountListResponse(ResponseModel):
    """A page of an organization's service accounts."""

    service_accounts: list[ServiceAccountResponse] = Field(description="The service accounts, newest first.")
    pagination: Pagination = Field(description="The position of this page in the list.")


def to_new_account(data: PlatformServiceAccountRequest) -> NewServiceAccount:
    """Return the service account that a request asks for."""
    return NewServiceAccount(
        name=data.name,
        role=data.role if isinstance(data, ServiceAccountRequest) else None,
        owner_id=data.owner_id,
        scopes=_to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )


def to_changes(data: PlatformServiceAccountUpdateRequest) -> ServiceAccountChanges:
    """Return the changes that a request asks for."""
    return ServiceAccountChanges(
        name=data.name,
        role=data.role if isinstance(data, ServiceAccountUpdateRequest) else KEEP,
        owner_id=data.owner_id,
        scopes=KEEP if isinstance(data.scopes, Keep) else _to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )


def to_response(listed: ListedServiceAccount) -> ServiceAccountResponse:
    """Return the response for an organization's service account."""
    assert listed.account.role is not None, "the account is one of an organization"
    return ServiceAccountResponse.of(listed.account, **_differing_fields(listed))


def to_platform_response(listed: ListedServiceAccount) -> PlatformServiceAccountResponse:
    """Return the response for a platform service account."""
    return PlatformServiceAccountResponse.of(listed.account, **_differing_fields(listed))


def _differing_fields(listed: ListedServiceAccount) -> dict[str, object]:
    return {
        "owner_email": listed.owner_email,
        "is_active": listed.is_active,
        "scopes": scopes_in_order(listed.account.scopes),
        "granted_capabilities": in_declared_order(listed.account.granted),
    }


def _to_scopes(names: Sequence[str] | None) -> frozenset[ApiScope] | None:
    return None if names is None else parse_scopes(names)
