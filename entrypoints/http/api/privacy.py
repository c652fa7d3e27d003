"""What is kept about a person, and making a person unknown (identity.md sections 2.8 and 4.7)."""

import json
from uuid import UUID

from quart import Blueprint, Response
from quart_schema import document_response, validate_response

from core import privacy
from core.kernel.principals import Role
from core.kernel.providers import Provider
from core.privacy_rules import PersonalDataExport, ExportedIdentity, ExportedLogin, ExportedMembership, ExportedMfaEvent, ExportedPasskey
from entrypoints.http.edge.access import person_anywhere
from entrypoints.http.edge.bodies import ResponseModel, Timestamp
from entrypoints.http.edge.context import ports, signed_in
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import path_id
from entrypoints.http.edge.streaming import Part, streamed_object

routes = Blueprint("privacy", __name__)


class ExportedMembershipResponse(ResponseModel):
    """An organization that the person belongs to."""

    organization_id: UUID
    organization_slug: str
    role: Role
    joined_at: Timestamp


class ExportedLoginResponse(ResponseModel):
    """A login, or an attempt that failed. `risk_score` goes from 0 to 100, and `risk_factors` is a JSON array in a string."""

    id: UUID
    timestamp: Timestamp
    ip_address: str | None
    user_agent: str | None
    provider: str
    success: bool
    risk_score: int
    risk_factors: str
    geo_country: str | None
    geo_city: str | None


class ExportedIdentityResponse(ResponseModel):
    """An account at an external provider."""

    provider: Provider
    provider_user_id: str
    linked_at: Timestamp


class ExportedMfaEventResponse(ResponseModel):
    """What happened with the second factor."""

    event_type: str
    timestamp: Timestamp
    success: bool


class ExportedPasskeyResponse(ResponseModel):
    """A passkey, without its key."""

    id: UUID
    name: str
    aaguid: UUID
    backup_eligible: bool
    created_at: Timestamp
    last_used_at: Timestamp | None


class ExportedPerson(ResponseModel):
    """Whose data these are."""

    user_id: UUID
    email: str
    created_at: Timestamp


class ExportedCount(ResponseModel):
    """How many logins are kept, of which the newest follow."""

    login_events_count: int


class ExportPackage(ResponseModel):
    """What is kept about a person; of the logins the newest. Secrets and hashes are not in it."""

    user_id: UUID
    email: str
    created_at: Timestamp
    memberships: list[ExportedMembershipResponse]
    login_events_count: int
    login_events: list[ExportedLoginResponse]
    oauth_identities: list[ExportedIdentityResponse]
    mfa_events: list[ExportedMfaEventResponse]
    passkeys: list[ExportedPasskeyResponse]


@routes.get("/api/privacy/export/<user_id>")
@person_anywhere(impersonated=False, applications=True)
@refuses(403, 404)
@document_response(ExportPackage)
async def export(user_id: str) -> Response:
    """PersonalDataExport what is kept about a person.

    For oneself and for platform owners that is everything. An organization's owner gets, of those who take part in it, memberships,
    logins and identities there. An application gets, of the person who is signed in to it, what belongs to its organization.
    """
    return await export_package(await privacy.export(ports(), signed_in(), path_id(user_id)))


async def export_package(found: PersonalDataExport) -> Response:
    """The answer that hands an export out; it is read while it goes."""
    return await streamed_object(
        ExportedPerson(user_id=found.user_id, email=found.email, created_at=found.created_at),
        Part("memberships", found.memberships, _membership),
        ExportedCount(login_events_count=found.login_events_count),
        Part("login_events", found.login_events, _login),
        Part("oauth_identities", found.oauth_identities, _identity),
        Part("mfa_events", found.mfa_events, _mfa_event),
        Part("passkeys", found.passkeys, _passkey),
    )


def _membership(kept: ExportedMembership) -> ExportedMembershipResponse:
    return ExportedMembershipResponse(organization_id=kept.org_id, organization_slug=kept.org_slug, role=kept.role, joined_at=kept.joined_at)


def _login(kept: ExportedLogin) -> ExportedLoginResponse:
    return ExportedLoginResponse(
        id=kept.id,
        timestamp=kept.at,
        ip_address=kept.address,
        user_agent=kept.agent,
        provider=kept.provider,
        success=kept.success,
        risk_score=kept.risk_score,
        risk_factors=json.dumps(kept.risk_factors),
        geo_country=kept.country,
        geo_city=kept.city,
    )


def _identity(kept: ExportedIdentity) -> ExportedIdentityResponse:
    return ExportedIdentityResponse(provider=kept.provider, provider_user_id=kept.provider_user_id, linked_at=kept.linked_at)


def _mfa_event(kept: ExportedMfaEvent) -> ExportedMfaEventResponse:
    return ExportedMfaEventResponse(event_type=kept.event_type, timestamp=kept.at, success=kept.success)


def _passkey(kept: ExportedPasskey) -> ExportedPasskeyResponse:
    return ExportedPasskeyResponse(
        id=kept.id,
        name=kept.name,
        aaguid=kept.aaguid,
        backup_eligible=kept.backup_eligible,
        created_at=kept.created_at,
        last_used_at=kept.last_used_at,
    )


class Forgotten(ResponseModel):
    """The person is unknown from now on; `user_id` stays."""

    success: bool
    message: str
    user_id: UUID


@routes.delete("/api/privacy/forget/<user_id>")
@person_anywhere(impersonated=False)
@refuses(403, 404)
@validate_response(Forgotten)
async def forget(user_id: str) -> Forgotten:
    """Make a person unknown, for good.

    For platform owners, and for who owns all organizations that the person belongs to, if the person takes part in them. The address, the
    password, the second factor and whatever else lets the person in are gone; memberships, times and the entries of logs stay. Platform
    owners must be demoted first.
    """
    id_ = path_id(user_id)
    await privacy.anonymize(ports(), signed_in(), id_)
    return Forgotten(success=True, message="The person is anonymized.", user_id=id_)
