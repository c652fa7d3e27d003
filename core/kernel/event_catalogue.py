"""The one catalogue of what can happen: its name in webhooks and audit logs, its category, and what it is about.

An event whose `audited` is true writes an audit entry of the same name; every event writes an event row, which webhooks deliver.
Sources: organizations.md sections 6.1 and 6.3; the added names are those of decisions, point 226.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


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
            *_kinds("User management", Target.USER, "user.created", "user.email_changed"),
            *_kinds("User management", Target.USER, "user.updated", "user.deactivated", "user.reactivated"),
            *_kinds("User management", Target.USER, "platform.owner.promoted", "platform.owner.demoted", platform_only=True),
            *_kinds("User management", Target.USER, "impersonation.request", platform_only=True),
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
            *_kinds("Security", Target.USER, "security.identity.linked", "security.identity.unlinked"),
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
    the payload of webhooks, where None is the details again; neither ever holds a secret (security.md L-3). What happened `by_time` was
    nobody's doing, whoever came by and noticed. `impersonator_id` is who is behind it, where that is not said by who did it; `id` is the
    one of its audit entry, where somebody must know it, and then it is told to one log.
    """

    kind: Kind
    target_id: str
    org_id: UUID | None = None
    of_person: UUID | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None
    by_time: bool = False
    impersonator_id: UUID | None = None
    id: UUID | None = None

    @property
    def payload(self) -> Mapping[str, Any]:
        """`data` as webhooks are told it, who have nothing else to say what it was about. A login is about who did it."""
        told = self.details if self.data is None else self.data
        if self.kind.name == "user.login.success":
            return told
        return {"target_type": self.kind.target.value, "target_id": self.target_id, **told}


def field_changes(old: object, new: object, *fields: str) -> dict[str, dict[str, object]]:
    # The fields are named, since what comes to be a field later may be a secret.
    return {name: {"old": was, "new": is_} for name in fields if (was := getattr(old, name)) != (is_ := getattr(new, name))}


def for_the_platform(event: Event, reason: str | None) -> Event:
    """The same for the platform's own log, with the reason: organizations are not told it (decisions, point 207), and it outlives them."""
    return replace(event, org_id=None, of_person=None, details={"reason": reason})
