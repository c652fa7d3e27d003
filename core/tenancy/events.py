"""The events of the area tenancy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from core.kernel.principals import Role
    from core.kernel.providers import Provider
    from core.kernel.values import Domain
    from core.tenancy.branding_rules import BrandingSettings
    from core.tenancy.domains_rules import DomainClaim
    from core.tenancy.invitations_rules import Invitation
    from core.tenancy.mail_server_rules import SmtpSettings
    from core.tenancy.organizations_rules import Organization
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes


def invited(invitation: Invitation) -> Event:
    """Somebody was invited. The target is a user, named by the invitation's id: whether the address has an account, and which, is
    nothing that an organization learns by inviting it."""
    return Event(EVENT_KINDS["user.invited"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def joined(org_id: UUID, user_id: UUID, role: Role, *, invitation_id: UUID | None = None) -> Event:
    """Somebody became a member; through which invitation, if it was one."""
    details = {"role": role.value} | ({} if invitation_id is None else {"invitation_id": str(invitation_id)})
    return Event(EVENT_KINDS["user.joined"], str(user_id), org_id=org_id, details=details)


def role_updated(org_id: UUID, user_id: UUID, old: Role, new: Role) -> Event:
    """A member's role changed."""
    details = {"old_role": old.value, "new_role": new.value}
    return Event(EVENT_KINDS["user.role_updated"], str(user_id), org_id=org_id, details=details)


def removed(org_id: UUID, user_id: UUID, role: Role) -> Event:
    """Somebody who had this role is a member no more."""
    return Event(EVENT_KINDS["user.removed"], str(user_id), org_id=org_id, details={"role": role.value})


def organization_created(organization: Organization) -> Event:
    """An organization came to be."""
    details = {"slug": organization.slug, "name": organization.name, "status": organization.status.value}
    return Event(EVENT_KINDS["organization.created"], str(organization.id), org_id=organization.id, details=details)


def organization_updated(old: Organization, new: Organization) -> Event:
    """What members may change of an organization was changed: old and new value by the name of the field."""
    details = field_changes(old, new, "name", "device_trust_days")
    return Event(EVENT_KINDS["organization.updated"], str(new.id), org_id=new.id, details=details)


def owner_changed(org_id: UUID, old_owner_id: UUID, new_owner_id: UUID) -> Event:
    """The ownership went from one member to another."""
    details = {"old_owner_id": str(old_owner_id), "new_owner_id": str(new_owner_id)}
    return Event(EVENT_KINDS["organization.owner.changed"], str(org_id), org_id=org_id, details=details)


def organization_approved(org_id: UUID, tier: str) -> Event:
    """A pending organization may begin, on the tier of this name."""
    return Event(EVENT_KINDS["organization.approved"], str(org_id), org_id=org_id, details={"tier": tier})


def organization_rejected(org_id: UUID) -> Event:
    """A pending organization was turned away."""
    return Event(EVENT_KINDS["organization.rejected"], str(org_id), org_id=org_id)


def organization_suspended(org_id: UUID) -> Event:
    """An active organization was stopped."""
    return Event(EVENT_KINDS["organization.suspended"], str(org_id), org_id=org_id)


def organization_activated(org_id: UUID) -> Event:
    """A suspended organization goes on."""
    return Event(EVENT_KINDS["organization.activated"], str(org_id), org_id=org_id)


def organization_tier_updated(org_id: UUID, old: Mapping[str, object], new: Mapping[str, object]) -> Event:
    """The tier of an organization, or its own limits, were set: all of them as they were, and as they are."""
    return Event(EVENT_KINDS["organization.tier.updated"], str(org_id), org_id=org_id, details={"old": old, "new": new})


def organization_deleted(organization: Organization) -> Event:
    """An organization is gone, and its log with it: only the platform's own log can tell (decisions, points 226 and 240)."""
    return Event(EVENT_KINDS["organization.deleted"], str(organization.id), details={"slug": organization.slug, "name": organization.name})


def smtp_configured(settings: SmtpSettings) -> Event:
    """An organization's mails go through a server of its own from now on. Neither user name nor password is told."""
    details = {
        "host": settings.host,
        "port": settings.port,
        "from_email": settings.from_email,
        "from_name": settings.from_name,
        "tls": settings.tls,
        "has_password": settings.has_password,
    }
    return Event(EVENT_KINDS["organization.smtp.configured"], str(settings.org_id), org_id=settings.org_id, details=details)


def smtp_removed(settings: SmtpSettings) -> Event:
    """An organization's mails go through the platform's server again."""
    details = {"host": settings.host, "port": settings.port}
    return Event(EVENT_KINDS["organization.smtp.removed"], str(settings.org_id), org_id=settings.org_id, details=details)


def invitation_accepted(invitation: Invitation, user_id: UUID) -> Event:
    """An invitation was accepted, and made this person a member."""
    details = _invitation(invitation) | {"user_id": str(user_id)}
    return Event(EVENT_KINDS["invitation.accepted"], str(invitation.id), org_id=invitation.org_id, details=details)


def invitation_declined(invitation: Invitation) -> Event:
    """An invitation was declined."""
    return Event(EVENT_KINDS["invitation.declined"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def invitation_revoked(invitation: Invitation) -> Event:
    """An invitation was cancelled: by a manager, because its inviter may not invite to this role any more (security.md R-4), or because
    whom it is for has come by other means, and has left."""
    return Event(EVENT_KINDS["invitation.revoked"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def invitation_expired(invitation: Invitation) -> Event:
    """An invitation was found past its time."""
    return Event(
        EVENT_KINDS["invitation.expired"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation), by_time=True
    )


def _invitation(invitation: Invitation) -> dict[str, str]:
    return {"invited_email": invitation.email, "role": invitation.role.value}


def domain_set(claim: DomainClaim, replaced: Domain | None) -> Event:
    """An organization said what its domain is, instead of `replaced` if it had said another one before."""
    return Event(EVENT_KINDS["domain.set"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain, "replaced": replaced})


def domain_verified(claim: DomainClaim) -> Event:
    """An organization proved that its domain is its own."""
    return Event(EVENT_KINDS["domain.verified"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def domain_deleted(claim: DomainClaim) -> Event:
    """An organization has no domain any more."""
    return Event(EVENT_KINDS["domain.deleted"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def branding_updated(org_id: UUID, old: BrandingSettings, new: BrandingSettings) -> Event:
    """Name, logo or colour of an organization was changed: old and new value by the name of the field."""
    details = field_changes(old, new, "logo_url", "primary_color", "product_name")
    return Event(EVENT_KINDS["branding.updated"], str(org_id), org_id=org_id, details=details)


def hrd_updated(org_id: UUID, old: Mapping[Domain, Provider], new: Mapping[Domain, Provider]) -> Event:
    """Where the people of some domains sign in was changed: old and new provider by domain."""
    changed = sorted(domain for domain in {*old, *new} if old.get(domain) != new.get(domain))
    domains = {domain: {"old": old.get(domain), "new": new.get(domain)} for domain in changed}
    return Event(EVENT_KINDS["hrd.updated"], str(org_id), org_id=org_id, details={"domains": domains})
