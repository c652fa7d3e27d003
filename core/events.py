"""The one catalogue of what can happen: its name in webhooks and audit logs, its category, and what it is about.

An event whose `audited` is true writes an audit entry of the same name; every event writes an event row, which webhooks deliver.
Sources: organizations.md sections 6.1 and 6.3; the added names are those of decisions, point 226.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from core.access import Role
    from core.invitations import Invitation
    from core.organizations import Organization


class Target(StrEnum):
    """What an entry is about; `domain` and `branding` are filters only (decisions, point 227)."""

    USER = "user"
    SERVICE = "service"
    ORGANIZATION = "organization"
    PLAN = "plan"
    SUBSCRIPTION = "subscription"
    INVITATION = "invitation"
    API_KEY = "api_key"
    DOMAIN = "domain"
    BRANDING = "branding"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event. `name` never changes: receivers and old entries know it."""

    name: str
    label: str
    category: str
    target: Target
    audited: bool = True
    platform_only: bool = False  # no organization hears of it


def _kinds(category: str, target: Target, *names: str, audited: bool = True, platform_only: bool = False) -> list[Kind]:
    return [Kind(name, _label(name), category, target, audited, platform_only) for name in names]


def _label(name: str) -> str:
    words = name.replace(".", " ").replace("_", " ")
    for shown in ("API", "MFA", "SAML", "SCIM", "SIEM", "SMTP", "OAuth", "HRD"):
        words = " ".join(shown if word == shown.lower() else word for word in words.split())
    return words[0].upper() + words[1:]


CATALOGUE: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in [
            # organizations.md section 6.1: what webhooks knew first, where no audit action has the name
            *_kinds("Authentication", Target.USER, "user.login.success", "user.signup.success", audited=False),
            *_kinds("Authentication", Target.USER, "user.mfa.enabled", "user.mfa.disabled", audited=False),
            # section 6.3
            *_kinds("User management", Target.USER, "user.invited", "user.joined", "user.removed", "user.role_updated"),
            *_kinds("User management", Target.USER, "user.anonymized", "user.sessions_revoked", "user.impersonated"),
            *_kinds("Service management", Target.SERVICE, "service.created", "service.updated", "service.deleted"),
            *_kinds("Service management", Target.SERVICE, "service.oauth_credentials.updated", "service.client_secret.rotated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.created", "organization.updated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.deleted", platform_only=True),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.owner.changed"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.approved", "organization.rejected"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.suspended", "organization.activated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.tier.updated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.smtp.configured", "organization.smtp.removed"),
            *_kinds("Plans", Target.PLAN, "plan.created", "plan.updated", "plan.deleted"),
            *_kinds("Subscriptions", Target.SUBSCRIPTION, "subscription.created", "subscription.updated", "subscription.canceled"),
            *_kinds("Invitations", Target.INVITATION, "invitation.accepted", "invitation.declined"),
            *_kinds("Invitations", Target.INVITATION, "invitation.expired", "invitation.revoked"),
            *_kinds("Security", Target.USER, "security.mfa.enabled", "security.mfa.disabled", "security.password.changed"),
            *_kinds("API keys", Target.API_KEY, "api_key.created", "api_key.deleted"),
            *_kinds("Domains and branding", Target.ORGANIZATION, "domain.set", "domain.verified", "domain.deleted", "branding.updated"),
            *_kinds("Integrations", Target.SERVICE, "saml.configured", "saml.disabled", "saml.certificate.created"),
            *_kinds("Integrations", Target.ORGANIZATION, "webhook.created", "webhook.updated", "webhook.deleted"),
            *_kinds("Integrations", Target.ORGANIZATION, "webhook.secret.rotated", "scim_token.created", "scim_token.revoked"),
            *_kinds("Integrations", Target.ORGANIZATION, "siem.configured", "siem.removed", "hrd.updated"),
        ]
    }
)
# What the log of an organization can hold: the actions of section 6.3 and those of decisions, point 226.
AUDIT_ACTIONS: Mapping[str, Kind] = MappingProxyType(
    {name: kind for name, kind in CATALOGUE.items() if kind.audited and not kind.platform_only}
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, ready to be recorded in the transaction that made it happen.

    It is told to the organization `org_id`; or else to every organization in which the person `of_person` has confirmed the membership; or
    else, and where there is none, to the platform's own log (an entry without organization). `details` go into the audit entry, `data` into
    the payload of webhooks, where None is the details again; neither ever holds a secret (security.md L-3).
    """

    kind: Kind
    target_id: str
    org_id: UUID | None = None
    of_person: UUID | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None


def signed_up(user_id: UUID) -> Event:
    """An account came to be through registration (organizations.md section 6.1; without organization, decisions, point 112)."""
    return Event(CATALOGUE["user.signup.success"], str(user_id))


def signed_in(user_id: UUID, provider: str) -> Event:
    """Full tokens were issued (decisions, point 61); `provider` is `password` or an identity provider's name."""
    return Event(CATALOGUE["user.login.success"], str(user_id), data={"provider": provider, "service_id": None})


def password_changed(user_id: UUID, method: str) -> Event:
    """`method` is `change`, `set` or `reset` (decisions, point 62)."""
    return Event(CATALOGUE["security.password.changed"], str(user_id), of_person=user_id, details={"method": method})


def invited(invitation: Invitation) -> Event:
    """Somebody was invited. The target is a user, named by the invitation's id: whether the address has an account, and which, is
    nothing that an organization learns by inviting it."""
    return Event(CATALOGUE["user.invited"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def joined(org_id: UUID, user_id: UUID, role: Role, *, invitation_id: UUID | None = None) -> Event:
    """Somebody became a member; through which invitation, if it was one."""
    details = {"role": role.value} | ({} if invitation_id is None else {"invitation_id": str(invitation_id)})
    return Event(CATALOGUE["user.joined"], str(user_id), org_id=org_id, details=details)


def role_updated(org_id: UUID, user_id: UUID, old: Role, new: Role) -> Event:
    """A member's role changed."""
    details = {"old_role": old.value, "new_role": new.value}
    return Event(CATALOGUE["user.role_updated"], str(user_id), org_id=org_id, details=details)


def removed(org_id: UUID, user_id: UUID, role: Role) -> Event:
    """Somebody who had this role is a member no more."""
    return Event(CATALOGUE["user.removed"], str(user_id), org_id=org_id, details={"role": role.value})


def owner_changed(org_id: UUID, old_owner_id: UUID, new_owner_id: UUID) -> Event:
    """The ownership went from one member to another."""
    details = {"old_owner_id": str(old_owner_id), "new_owner_id": str(new_owner_id)}
    return Event(CATALOGUE["organization.owner.changed"], str(org_id), org_id=org_id, details=details)


def invitation_accepted(invitation: Invitation, user_id: UUID) -> Event:
    """An invitation was accepted, and made this person a member."""
    details = _invitation(invitation) | {"user_id": str(user_id)}
    return Event(CATALOGUE["invitation.accepted"], str(invitation.id), org_id=invitation.org_id, details=details)


def invitation_declined(invitation: Invitation) -> Event:
    """An invitation was declined."""
    return Event(CATALOGUE["invitation.declined"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def invitation_revoked(invitation: Invitation) -> Event:
    """An invitation was cancelled: by a manager, or because its inviter may not invite to this role any more (security.md R-4)."""
    return Event(CATALOGUE["invitation.revoked"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def invitation_expired(invitation: Invitation) -> Event:
    """An invitation was found past its time."""
    return Event(CATALOGUE["invitation.expired"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def organization_created(organization: Organization) -> Event:
    """An organization came to be."""
    details = {"slug": organization.slug, "name": organization.name, "status": organization.status.value}
    return Event(CATALOGUE["organization.created"], str(organization.id), org_id=organization.id, details=details)


def organization_updated(org_id: UUID, changes: Mapping[str, tuple[object, object]]) -> Event:
    """What members may change of an organization was changed: old and new value by the name of the field."""
    details = {name: {"old": old, "new": new} for name, (old, new) in changes.items()}
    return Event(CATALOGUE["organization.updated"], str(org_id), org_id=org_id, details=details)


def organization_deleted(organization: Organization) -> Event:
    """An organization is gone, and its log with it: only the platform's own log can tell (decisions, points 226 and 240)."""
    return Event(CATALOGUE["organization.deleted"], str(organization.id), details={"slug": organization.slug, "name": organization.name})


def organization_approved(org_id: UUID, tier: str) -> Event:
    """A pending organization may begin, on the tier of this name."""
    return Event(CATALOGUE["organization.approved"], str(org_id), org_id=org_id, details={"tier": tier})


def organization_rejected(org_id: UUID) -> Event:
    """A pending organization was turned away."""
    return Event(CATALOGUE["organization.rejected"], str(org_id), org_id=org_id)


def organization_suspended(org_id: UUID) -> Event:
    """An active organization was stopped."""
    return Event(CATALOGUE["organization.suspended"], str(org_id), org_id=org_id)


def for_the_platform(event: Event, reason: str | None) -> Event:
    """The same for the platform's own log, with the reason: organizations are not told it (decisions, point 207), and it outlives them."""
    return replace(event, org_id=None, details={"reason": reason})


def organization_activated(org_id: UUID) -> Event:
    """A suspended organization goes on."""
    return Event(CATALOGUE["organization.activated"], str(org_id), org_id=org_id)


def organization_tier_updated(org_id: UUID, old: Mapping[str, object], new: Mapping[str, object]) -> Event:
    """The tier of an organization, or its own limits, were set: all of them as they were, and as they are."""
    return Event(CATALOGUE["organization.tier.updated"], str(org_id), org_id=org_id, details={"old": old, "new": new})


def _invitation(invitation: Invitation) -> dict[str, str]:
    return {"invited_email": invitation.email, "role": invitation.role.value}
