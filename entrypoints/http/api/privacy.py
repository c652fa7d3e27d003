"""Export a user's data, and anonymize a user."""

import json
from base64 import b64encode
from dataclasses import asdict
from typing import Annotated, Any, get_args
from uuid import UUID

from pydantic import BeforeValidator, Field
from quart import Blueprint, Response
from quart_schema import document_response

from core.authentication.model import openid
from core.kernel.api_scopes import ApiScope
from core.kernel.images import CONTENT_TYPE
from core.kernel.values import Batches
from core.privacy import personal_data
from core.privacy.model.personal_data import ExportedItem, ExportedList, PersonalDataExport, closure_message
from entrypoints.http import kit
from entrypoints.http.api.accounts.accounts import ProfileDetailsResponse
from entrypoints.http.api.authentication.connections import ProviderSlug
from entrypoints.http.api.tenancy.roles import Role
from entrypoints.http.edge import streaming

routes = Blueprint("privacy", __name__)


class ExportedMembershipResponse(kit.ResponseModel):
    """An organization's membership."""

    organization_id: UUID = Field(description="The id of the organization.")
    organization_slug: str = Field(description="The slug of the organization.")
    role: Role = Field(description="The user's role.")
    roles: list[Role] = Field(description="All the user's roles in the organization: their own role, then their groups' roles.")
    joined_at: kit.Timestamp = Field(description="When the user joined.")


class ExportedFormerMembershipResponse(kit.ResponseModel):
    """A membership that ended. The organization keeps these names for its audit log."""

    organization_id: UUID = Field(description="The id of the organization.")
    organization_slug: str = Field(description="The slug of the organization.")
    email: str = Field(description="The address when the membership ended.")
    name: str | None = Field(description="The name when the membership ended, or null.")
    left_at: kit.Timestamp = Field(description="When the membership ended.")


class ExportedLoginResponse(kit.ResponseModel):
    """A successful or failed login."""

    id: UUID = Field(description="The id of the login record.")
    timestamp: kit.Timestamp = Field(description="When the login happened.")
    ip_address: str | None = Field(description="The IP address of the client.")
    user_agent: str | None = Field(description="The User-Agent header of the client.")
    provider: str = Field(description="How the user signed in.", examples=["password", "websuite"])
    success: bool = Field(description="Whether the login succeeded.")
    reason: str | None = Field(description="Why the login failed, or null.", examples=["credentials"])
    blocked_seconds: int | None = Field(description="How long the account was still blocked after wrong attempts, or null.")
    attempts: int = Field(description="The number of attempts that the record counts.")
    request_id: str | None = Field(description="The id of the request, or null for attempts that were only counted.")
    risk_score: int = Field(description="The risk of the login, from 0 to 100.")
    risk_factors: Annotated[str, BeforeValidator(json.dumps)] = Field(
        description="The reasons for the risk score, as a JSON array in a string.", examples=['["new_device"]']
    )
    geo_country: str | None = Field(description="The country of the IP address (ISO 3166-1), if known.")
    geo_city: str | None = Field(description="The city of the IP address, if known.")


class ExportedIdentityResponse(kit.ResponseModel):
    """A linked account at an identity provider."""

    provider: ProviderSlug = Field(description="The identity provider.")
    provider_user_id: str = Field(description="The id of the user at the provider.")
    linked_at: kit.Timestamp = Field(description="When the account was linked.")


class ExportedMfaEventResponse(kit.ResponseModel):
    """An entry in the second-factor log."""

    event_type: str = Field(description="The kind of the event.", examples=["mfa_enabled"])
    timestamp: kit.Timestamp = Field(description="When it happened.")
    success: bool = Field(description="Whether the action succeeded.")


class ExportedPasskeyResponse(kit.ResponseModel):
    """A passkey without its key."""

    id: UUID = Field(description="The id of the passkey.")
    name: str = Field(description="The name that the user gave it.")
    aaguid: UUID = Field(description="The model of the authenticator.")
    backup_eligible: bool = Field(description="Whether the authenticator can sync the passkey to other devices.")
    created_at: kit.Timestamp = Field(description="When it was registered.")
    last_used_at: kit.Timestamp | None = Field(description="When it was last used, or null.")


class ExportedEmailChangeResponse(kit.ResponseModel):
    """A change to the email address that the user requested in the last days."""

    old_email: str = Field(description="The address of the account at that time.")
    new_email: str = Field(description="The requested address.")
    requested_at: kit.Timestamp = Field(description="When the user requested it.")
    proved_at: kit.Timestamp | None = Field(description="When the new address was proved and the change took effect, or null.")
    undone_at: kit.Timestamp | None = Field(description="When the old address undid it, or null.")


class ExportedResourceResponse(kit.ResponseModel):
    """An API resource that an application may use on the user's behalf."""

    identifier: str = Field(description="The identifier of the API resource.")
    name: str = Field(description="The name of the API.")
    scopes: list[str] = Field(description="The scopes that the user agreed to.")


class ExportedConsentResponse(kit.ResponseModel):
    """The user's consent to an application."""

    organization_id: UUID = Field(description="The id of the application's organization.")
    organization_slug: str = Field(description="The slug of that organization.")
    service_id: UUID = Field(description="The id of the application.")
    service_slug: str = Field(description="The slug of the application.")
    service_name: str = Field(description="The name of the application. An external client chooses its own.")
    client_uri: str | None = Field(description="An external client's id, or null for the organization's application.")
    scopes: Annotated[list[openid.Scope], BeforeValidator(openid.in_order)] = Field(description="The scopes that the user agreed to.")
    api_resources: list[ExportedResourceResponse] = Field(description="The API resources that the user agreed to.")
    granted_at: kit.Timestamp = Field(description="When the user last agreed to a new scope.")


class ExportedSecurityNoticeResponse(kit.ResponseModel):
    """An email about a change to the account's security."""

    kind: str = Field(description="What the email was about.", examples=["identity_linked"])
    detail: str | None = Field(description="The identity provider of a linked account, or null.", examples=["codehost"])
    address: str = Field(description="The address that the email went to.")
    created_at: kit.Timestamp = Field(description="When the change was made.")
    undone_at: kit.Timestamp | None = Field(description="When its link undid the change, or null.")


class ExportedApplicationBlockResponse(kit.ResponseModel):
    """A block by an organization's admin that keeps the user out of its applications."""

    organization_id: UUID = Field(description="The id of the organization.")
    organization_slug: str = Field(description="The slug of the organization.")
    email: str = Field(description="The user's address at the time of the block.")
    since: kit.Timestamp = Field(description="When an admin blocked the user.")


class ExportedApplicationRoleResponse(kit.ResponseModel):
    """A role that the user has in an application."""

    organization_id: UUID = Field(description="The id of the application's organization.")
    organization_slug: str = Field(description="The slug of that organization.")
    service_id: UUID = Field(description="The id of the application.")
    service_slug: str = Field(description="The slug of the application.")
    role: str = Field(description="The slug of the role.", examples=["editor"])
    name: str = Field(description="The name of the role.")
    permissions: list[str] = Field(description="The permissions that the role gives.")
    assigned_at: kit.Timestamp = Field(description="When the user, or the group, got the role.")
    group: str | None = Field(description="The name of the group that gives the role, or null if the user has it alone.")


class ExportedGroupResponse(kit.ResponseModel):
    """An organization's group that the user is in."""

    organization_id: UUID = Field(description="The id of the organization.")
    organization_slug: str = Field(description="The slug of the organization.")
    group_id: UUID = Field(description="The id of the group.")
    name: str = Field(description="The name of the group.")
    attributes: dict[str, Any] = Field(description="The group's values, by the names of the organization's attributes.")
    added_at: kit.Timestamp = Field(description="When the user was added to the group.")


class ExportedAttributesResponse(kit.ResponseModel):
    """The values in the attributes that an organization declared for its users."""

    organization_id: UUID = Field(description="The id of the organization.")
    organization_slug: str = Field(description="The slug of the organization.")
    values: dict[str, Any] = Field(description="The values by the names of the attributes.")
    changed_at: kit.Timestamp = Field(description="When a value last changed.")


class ExportedServiceAccountResponse(kit.ResponseModel):
    """A service account that the user answers for."""

    id: UUID = Field(description="The id of the service account.")
    name: str = Field(description="The name of the service account.")
    organization_id: UUID | None = Field(description="The id of its organization, or null if it belongs to the platform.")
    organization_slug: str | None = Field(description="The slug of that organization, or null.")
    created_at: kit.Timestamp = Field(description="When it was created.")


class ExportedPersonalTokenResponse(kit.ResponseModel):
    """A personal access token without its secret."""

    id: UUID = Field(description="The id of the token.")
    name: str = Field(description="The name that the user gave it.")
    prefix: str = Field(description="The first characters of the secret.", examples=["gatehouse_pat_live_k2v7qa"])
    scopes: list[ApiScope] = Field(description="The scopes of the token.", examples=[["members:read"]])
    organization_id: UUID | None = Field(description="The id of the only organization that it acts in, or null for the user's account.")
    organization_slug: str | None = Field(description="The slug of that organization, or null.")
    created_at: kit.Timestamp = Field(description="When it was created.")
    expires_at: kit.Timestamp = Field(description="When it expires.")
    last_used_at: kit.Timestamp | None = Field(description="When it was last used, to the minute, or null.")
    ended_at: kit.Timestamp | None = Field(description="When it was ended before it expired, or null.")


class ExportedAccountResponse(kit.ResponseModel):
    """The account in an export, with the basic profile fields."""

    user_id: UUID = Field(description="The id of the account.")
    email: str = Field(description="The email address of the account.")
    created_at: kit.Timestamp = Field(description="When the account was created.")
    name: str | None = Field(description="The user's name, or null. The profile is null in a part of the data.")
    picture: str | None = Field(description="The URL of the user's picture, or null.")
    locale: str | None = Field(description="The language tag of the user, or null.")
    zoneinfo: str | None = Field(description="The time zone of the user, or null.")


class ExportedUserResponse(ProfileDetailsResponse, ExportedAccountResponse):
    """The account in an export."""

    picture_file: str | None = Field(description="The uploaded picture as a data URL with a PNG, or null.")


class LoginCountResponse(kit.ResponseModel):
    """How many logins are stored. The export contains the newest logins."""

    login_events_count: int = Field(description="The number of all stored logins.")


class PersonalDataExportResponse(ExportedUserResponse):
    """A user's stored data. It contains no secrets and no hashes."""

    memberships: list[ExportedMembershipResponse] = Field(description="The memberships, oldest first.")
    login_events_count: int = Field(description="How many logins are stored. `login_events` has the newest logins.")
    login_events: list[ExportedLoginResponse] = Field(description="The newest logins, newest first.")
    oauth_identities: list[ExportedIdentityResponse] = Field(description="The linked accounts at identity providers, oldest first.")
    mfa_events: list[ExportedMfaEventResponse] = Field(description="The second-factor log, newest first.")
    passkeys: list[ExportedPasskeyResponse] = Field(description="The passkeys, oldest first.")
    email_changes: list[ExportedEmailChangeResponse] = Field(description="The recent changes of the email address, newest first.")
    security_notices: list[ExportedSecurityNoticeResponse] = Field(
        description="The recent emails about changes to the security of the account, newest first."
    )
    consents: list[ExportedConsentResponse] = Field(description="The consents to applications, oldest first.")
    application_blocks: list[ExportedApplicationBlockResponse] = Field(description="The blocks at applications, oldest first.")
    former_memberships: list[ExportedFormerMembershipResponse] = Field(description="The memberships that ended, the first to end first.")
    application_roles: list[ExportedApplicationRoleResponse] = Field(description="The roles in applications, oldest first.")
    groups: list[ExportedGroupResponse] = Field(description="The groups of organizations, oldest first.")
    attributes: list[ExportedAttributesResponse] = Field(description="The attributes in organizations, oldest change first.")
    service_accounts: list[ExportedServiceAccountResponse] = Field(
        description="The service accounts that the user answers for, oldest first."
    )
    personal_tokens: list[ExportedPersonalTokenResponse] = Field(description="The personal access tokens, oldest first.")


@routes.get("/api/privacy/export/<user_id>")
@kit.person_anywhere(kit.ACTS_ON_ME, applications=kit.ApplicationTokens.WITHOUT_OPENID)
@kit.refuses(403, 404)
@kit.describes({}, changes_state=True)  # the privacy log gets an entry
@document_response(PersonalDataExportResponse)
async def export(user_id: UUID) -> Response:
    """Export a user's data.

    You get all data in your own account. Platform owners get all data in any account. An organization's owner gets a confirmed member's
    memberships, logins, identities, consents, blocks, roles, groups and attributes that belong to the organization. An application gets the
    same data about its signed-in user, unless its token has the scope `openid`.
    """
    return await export_package(await personal_data.export(kit.ports(), kit.signed_in(), user_id))


async def export_file(data: PersonalDataExport) -> Response:
    """Return the response with an export that a browser stores as a file."""
    response = await export_package(data)
    response.headers["Content-Disposition"] = 'attachment; filename="gatehouse-export.json"'
    response.headers["Cache-Control"] = "no-store"
    return response


async def export_package(data: PersonalDataExport) -> Response:
    """Return the response with an export. Its lists are read while it is sent."""
    file = None if data.picture_file is None else f"data:{CONTENT_TYPE};base64,{b64encode(data.picture_file).decode()}"
    account = ExportedUserResponse(
        user_id=data.user_id, email=data.email, created_at=data.created_at, picture_file=file, **asdict(data.profile)
    )
    memberships, *others = [_to_part(list_, items) for list_, items in data.lists.items()]
    return await streaming.stream_object(account, memberships, LoginCountResponse.of(data), *others)


def _to_part(list_: ExportedList, items: Batches[ExportedItem]) -> streaming.Part[ExportedItem]:
    """Return a list in the response. The response declares the model for its items."""
    (model,) = get_args(PersonalDataExportResponse.model_fields[list_].annotation)
    return streaming.Part(list_, items, lambda item: model.model_validate(item.fields))


class AnonymizationResponse(kit.ResponseModel):
    """An anonymization's result."""

    success: bool = Field(description="Always true.")
    message: str = Field(description="The result in one sentence.")
    user_id: UUID = Field(description="The id of the account, which stays.")


@routes.delete("/api/privacy/forget/<user_id>")
@kit.person_anywhere(kit.OWNS)
@kit.refuses(403, 404, 429)
async def anonymize(user_id: UUID) -> AnonymizationResponse:
    """Anonymize a user permanently.

    Platform owners can do this, and callers who own every organization that has the user as a confirmed member. It
    deletes the email address, the password, the second factor and every other way to sign in. The id, memberships,
    times and log entries stay. A platform owner must lose that role first.

    If you are not a platform owner, the account may be closed first. This happens while a link in an email can undo a
    change to the account, and always if you delete another person's account that has a verified address and that your
    organizations did not create. The link in the email opens it again. It is anonymized when the last link has expired.
    """
    erase_at = await personal_data.anonymize(kit.ports(), kit.signed_in(), user_id)
    message = "The user is anonymized." if erase_at is None else closure_message(erase_at)
    return AnonymizationResponse(success=True, message=message, user_id=user_id)
