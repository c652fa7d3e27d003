"""Events: sign-ins, linked identities, impersonation, and credentials at identity providers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from core.applications.model.services import Service
from core.authentication.model.recovery import AccountRecovery
from core.authentication.model.sessions import Session
from core.authentication.model.sign_in_log import FailedLogin
from core.authentication.model.tokens import PersonalToken, SigningKey
from core.kernel.callers import Member, ServiceContext
from core.kernel.connections import ConnectionSlug
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.proofs import FactorKind
from core.kernel.values import rfc3339

# Sign-ins to a service have no entry in the audit log: a service can have any number of end users,
# and the log is kept forever.
_SERVICE_SIGN_IN: Final = replace(EVENT_KINDS["user.login.success"], audited=False)


def signed_in(
    user_id: UUID,
    methods: Sequence[str],
    service: ServiceContext | None = None,
    *,
    is_member: bool = True,
    restricted_to: UUID | None = None,
) -> Event:
    """A user signed in with all required factors. The audit log has only the sign-ins of members to Gatehouse itself.

    `methods`, from `proofs.methods_of`: the first factor, and then perhaps the second factor. The organization of the service receives the
    event. Without a service, the organizations of the user's confirmed memberships receive it. `is_member`: whether the user may have a
    membership. `restricted_to`: the only organization in which the session is good, which receives the event then.
    """
    second = {"second_method": methods[1]} if len(methods) > 1 else {}
    details = {"provider": methods[0], "service_id": str(service.id) if service else None} | second
    if service is None and restricted_to is not None:
        return Event(EVENT_KINDS["user.login.success"], str(user_id), org_id=restricted_to, details=details)
    if service is None:
        return Event(EVENT_KINDS["user.login.success"], str(user_id), of_person=user_id if is_member else None, details=details)
    return Event(_SERVICE_SIGN_IN, str(user_id), org_id=service.org_id, details=details)


def sign_in_failed(failure: FailedLogin) -> Event:
    """A sign-in failed, and the sign-in log has a new row for it. Only webhooks that have chosen this event get it.

    This function is for the reference of events. `FailedLogins.record_failure` writes the event, with these facts as the
    log of the organization shows them: at an unknown account, no user, method, wait and request.
    """
    details = {
        "sign_in_id": str(failure.id),
        "user_id": None if failure.user_id is None else str(failure.user_id),
        "service_id": None if failure.service_id is None else str(failure.service_id),
        "provider": failure.provider,
        "reason": failure.reason,
        "blocked_seconds": failure.blocked_seconds,
        "request_id": failure.request_id,
    }
    return Event(EVENT_KINDS["user.login.failed"], str(failure.user_id), details=details)


def reauthenticated(user_id: UUID, provider: str | None) -> Event:
    """A user confirmed in their session that it is them.

    `provider` is as in `signed_in`, or None if only the second factor was needed.
    """
    return Event(EVENT_KINDS["user.reauthenticated"], str(user_id), of_person=user_id, details={"provider": provider})


def all_sessions_revoked(user_id: UUID) -> Event:
    """A platform owner ended all sessions of a user."""
    details = {"whole_account": True, "by_platform": True}
    return Event(EVENT_KINDS["user.sessions_revoked"], str(user_id), of_person=user_id, details=details)


def password_reset_sent_by_platform(user_id: UUID) -> Event:
    """A platform owner sent a user an email with a link to set a new password."""
    return Event(EVENT_KINDS["security.password.reset_sent"], str(user_id), of_person=user_id, details={"by_platform": True})


def recovery_issued(recovery: AccountRecovery, reason: str | None = None) -> Event:
    """An admin or a platform owner started the recovery of an account. The reason of a platform owner is only in the platform's log."""
    details = {"expires_at": rfc3339(recovery.expires_at)} | ({} if reason is None else {"reason": reason})
    return replace(_about_recovery("security.recovery.issued", recovery, details), on_platform=False)  # its copy there has the reason


def recovery_canceled(recovery: AccountRecovery, *, by_platform: bool = False) -> Event:
    """An admin of the organization, a platform owner, or the user by a sign-in with all factors ended a recovery."""
    event = _about_recovery("security.recovery.canceled", recovery, {})
    return replace(event, on_platform=event.on_platform or by_platform)


def recovery_failed(recovery: AccountRecovery) -> Event:
    """A wrong code was sent with the link of a recovery."""
    return replace(_about_recovery("security.recovery.failed", recovery, {}), success=False)


def recovery_used(recovery: AccountRecovery, factor: FactorKind) -> Event:
    """A user finished a recovery with this new factor. All earlier factors are gone."""
    return _about_recovery("security.recovery.used", recovery, {"factor": factor.value})


def _about_recovery(name: str, recovery: AccountRecovery, details: Mapping[str, str]) -> Event:
    """Return the event for the issuer's log: in its organization, or in the platform and the user's organizations."""
    of_person = recovery.user_id if recovery.org_id is None else None
    return Event(
        EVENT_KINDS[name],
        str(recovery.user_id),
        org_id=recovery.org_id,
        of_person=of_person,
        on_platform=of_person is not None,
        details=details,
    )


def impersonated(session: Session) -> Event:
    """A platform owner started to act as a user. The organization of the session, if any, receives the event, without the reason."""
    service = session.service
    org_id = service.org_id if service else session.org_id
    event = _impersonated(session.user_id, org_id, session.id, session.expires_at, service)
    return replace(event, impersonator_id=session.impersonator_id)


def impersonated_in(member: Member, expires_at: datetime) -> Event:
    """An impersonation that began without an organization acts for the first time in the member's organization."""
    return _impersonated(member.user_id, member.acts_in.id, member.session_id, expires_at, None)


def _impersonated(user_id: UUID, org_id: UUID | None, session_id: UUID, expires_at: datetime, service: ServiceContext | None) -> Event:
    """A platform owner acts as a user. The organization, if any, receives the event, without the reason."""
    details = {"session_id": str(session_id), "expires_at": rfc3339(expires_at), "service_slug": service.slug if service else None}
    return Event(EVENT_KINDS["user.impersonated"], str(user_id), org_id=org_id, details=details)


def impersonated_for_the_platform(event: Event, entry_id: UUID, reason: str) -> Event:
    """Return the event for the platform's audit log, with the reason and the organization."""
    details = {**event.details, "org_id": None if event.org_id is None else str(event.org_id), "reason": reason}
    return replace(event, id=entry_id, org_id=None, details=details)


def impersonation_request(user_id: UUID, session_id: UUID, entry_id: UUID, method: str, route: str, arguments: Mapping[str, str]) -> Event:
    """An impersonator of this user sent a request. If it is refused or fails, `success` becomes false."""
    details = {"session_id": str(session_id), "method": method, "route": route, "arguments": dict(arguments)}
    return Event(EVENT_KINDS["impersonation.request"], str(user_id), details=details, id=entry_id)


def oauth_credentials_updated(service: Service, provider: ConnectionSlug, client_id: str | None) -> Event:
    """A service got its own OAuth client at an identity provider. Without a `client_id`, it uses the platform's credentials again."""
    details = {"service_slug": service.slug, "provider": provider, "client_id": client_id}
    return Event(EVENT_KINDS["service.oauth_credentials.updated"], str(service.id), org_id=service.org_id, details=details)


def personal_token_created(token: PersonalToken) -> Event:
    """A user created a personal access token.

    The organization that the token acts in receives the event. If it acts on the user's own account,
    the organizations of the user's confirmed memberships receive it.
    """
    return _about_token("personal_token.created", token, {"scopes": list(token.scopes), "expires_at": rfc3339(token.expires_at)})


def personal_token_revoked(token: PersonalToken) -> Event:
    """The user or an admin revoked a personal access token. A token that ends with all sessions of its user has no event."""
    return _about_token("personal_token.revoked", token, {})


def _about_token(name: str, token: PersonalToken, facts: Mapping[str, Any]) -> Event:
    # Without the name, which the user chose: entries and events outlive an anonymization (security Y-2).
    details = {"user_id": str(token.user_id), "prefix": token.prefix, **facts}
    of_person = token.user_id if token.org_id is None else None
    return Event(EVENT_KINDS[name], str(token.id), org_id=token.org_id, of_person=of_person, details=details)


def owner_recovery_created(user_id: UUID, operator: str, *, resets_factors: bool = False) -> Event:
    """The operator of the machine created a sign-in link for a platform owner. `operator` is their name in the operating system."""
    return Event(
        EVENT_KINDS["platform.owner.recovery_created"], str(user_id), details={"operator": operator, "factors_reset": resets_factors}
    )


def signing_key_rotated(key: SigningKey, operator: str | None) -> Event:
    """A new signing key was published, which signs from `signs_at`. Without `operator`, the old key had reached its maximum age."""
    details = {"signs_at": rfc3339(key.starts_at)} | ({} if operator is None else {"operator": operator})
    return Event(EVENT_KINDS["signing_key.rotated"], key.kid, details=details)


def signing_key_compromised(key: SigningKey, operator: str) -> Event:
    """The machine's operator replaced all signing keys at once by this key. Tokens that the old keys signed became invalid."""
    return Event(EVENT_KINDS["signing_key.compromised"], key.kid, details={"operator": operator})


def owner_recovered(user_id: UUID) -> Event:
    """A platform owner used such a link. The second factor, if any, may still be required."""
    return Event(EVENT_KINDS["platform.owner.recovered"], str(user_id))


def connection_updated(slug: ConnectionSlug, logo: str) -> Event:
    """A platform owner changed the logo of an identity provider. `logo` is `set` or `removed`."""
    return Event(EVENT_KINDS["connection.updated"], slug, details={"logo": logo})
