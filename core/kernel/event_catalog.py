"""The event catalog: names in webhooks and audit logs, categories and targets.

Every event writes a row that webhooks deliver. If an event's kind is `audited`, an audit entry with the same name is
written, too. The functions that create events are in every area's `events.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID


class Target(StrEnum):
    """What an event is about. `domain` and `branding` occur only in filters."""

    USER = "user"
    SERVICE = "service"
    ORGANIZATION = "organization"
    PLAN = "plan"
    SUBSCRIPTION = "subscription"
    INVITATION = "invitation"
    API_KEY = "api_key"
    API_RESOURCE = "api_resource"
    SERVICE_ACCOUNT = "service_account"
    PERSONAL_TOKEN = "personal_token"  # noqa: S105
    GROUP = "group"
    SIGNING_KEY = "signing_key"
    CONNECTION = "connection"
    PLATFORM = "platform"
    ROLE = "role"
    DOMAIN = "domain"
    BRANDING = "branding"


@dataclass(frozen=True, slots=True)
class EventKind:
    """An event kind. The event's `name` never changes, because receivers and stored entries contain it."""

    name: str
    label: str
    category: str
    target: Target
    audited: bool = True
    platform_only: bool = False  # recorded in the platform's log, never in an organization's
    # Recorded only for organizations that a platform owner has approved once. Anyone can create an
    # organization, and could fill the log with a frequent event.
    approved_only: bool = False
    # A frequent event has a row only for organizations that chose it for a webhook. A webhook for a whole category does
    # not choose such an event.
    by_choice: bool = False


def _kinds(
    category: str,
    target: Target,
    *names: str,
    audited: bool = True,
    platform_only: bool = False,
    approved_only: bool = False,
    by_choice: bool = False,
) -> list[EventKind]:
    return [EventKind(name, _label(name), category, target, audited, platform_only, approved_only, by_choice) for name in names]


# Labels say what the pages say; names are older.
_LABELS: Final = MappingProxyType(
    {
        "user.login.success": "User signed in",
        "user.login.failed": "Sign-in failed",
        "user.signup.success": "User signed up",
        "user.released": "Account no longer managed here",
        "user.taken_over": "Account taken over by the directory",
        "saml.certificate.next_created": "Next SAML certificate created",
        "saml.certificate.next_deleted": "Next SAML certificate deleted",
        "hrd.updated": "Sign-in routing updated",
        "service.authorization.updated": "Application permissions updated",
        "connection.client_secret.set": "Client secret of a connection set",
        "connection.key.created": "Key of a connection created",
        "connection.key.activated": "Key of a connection activated",
        "connection.certificate.added": "Certificate of a connection added",
        "connection.certificate.expires": "Certificate of a connection expires soon",
        "connection.certificate.removed": "Certificate of a connection removed",
        "connection.group.mapped": "Group given by a connection",
        "connection.group.unmapped": "Group no longer given by a connection",
        "setup_link.created": "Set-up link created",
        "setup_link.opened": "Set-up link opened",
        "setup_link.part.changed": "Part of a set-up link changed",
        "setup_link.part.applied": "Part of a set-up link applied",
        "setup_link.ended": "Set-up link ended",
        "connection.person.linked": "User linked with a connection",
        "connection.person.unlinked": "User unlinked from a connection",
        "connection.failing": "Connection failing",
        "connection.recovered": "Connection working again",
        "group.member_added": "Users added to a group",
        "group.member_removed": "Users removed from a group",
        "group.role_mapped": "Role given to a group",
        "group.role_unmapped": "Role taken from a group",
        "group.mapping_stopped": "Role of a group stopped",
    }
)
_WORDS: Final = MappingProxyType(
    {word.lower(): word for word in ("API", "SAML", "SCIM", "SIEM", "OAuth")}
    | {"mfa": "two-factor authentication", "smtp": "mail server", "backchannel": "back-channel"}
)


def _label(name: str) -> str:
    if name.startswith("service."):
        name = "application" + name.removeprefix("service")
    words = _LABELS.get(name) or " ".join(_WORDS.get(word, word) for word in re.split("[._]", name.removeprefix("security.")))
    return words[0].upper() + words[1:]


SIGN_IN_FAILED: Final = "user.login.failed"  # the storage writes it
SIGNED_UP: Final = "user.signup.success"  # the internal event UserSignupSuccess; the transaction also sends it as a message
EVENT_KINDS: Mapping[str, EventKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in [
            # Members' sign-ins to the platform are audited, but not sign-ins to a service
            # (core.authentication.events).
            *_kinds("Authentication", Target.USER, "user.login.success", "user.reauthenticated", approved_only=True),
            # Webhook-only events.
            *_kinds("Authentication", Target.USER, SIGN_IN_FAILED, audited=False, by_choice=True),
            *_kinds("Authentication", Target.USER, SIGNED_UP, audited=False),
            *_kinds("Authentication", Target.USER, "user.mfa.enabled", "user.mfa.disabled", audited=False),
            # Audit actions, which webhooks deliver too.
            *_kinds("User management", Target.INVITATION, "user.invited"),
            *_kinds("User management", Target.USER, "user.joined", "user.removed", "user.role_updated"),
            *_kinds("User management", Target.USER, "user.anonymized", "user.sessions_revoked", "user.impersonated"),
            *_kinds("User management", Target.USER, "user.created", "user.email_changed"),
            *_kinds("User management", Target.USER, "user.updated", "user.deactivated", "user.reactivated"),
            *_kinds("User management", Target.USER, "user.blocked", "user.unblocked", "user.attributes_updated"),
            *_kinds("User management", Target.USER, "user.released", "user.taken_over"),
            *_kinds("User management", Target.USER, "platform.owner.promoted", "platform.owner.demoted", platform_only=True),
            *_kinds("User management", Target.USER, "platform.owner.recovery_created", "platform.owner.recovered", platform_only=True),
            *_kinds("User management", Target.USER, "impersonation.request", platform_only=True),
            *_kinds("Groups", Target.GROUP, "group.created", "group.updated", "group.deleted"),
            *_kinds("Groups", Target.GROUP, "group.member_added", "group.member_removed", "group.attributes_updated"),
            *_kinds("Groups", Target.GROUP, "group.role_mapped", "group.role_unmapped", "group.mapping_stopped"),
            *_kinds("Service management", Target.SERVICE, "service.created", "service.updated", "service.deleted"),
            *_kinds("Service management", Target.SERVICE, "service.access.updated", "service.claims.updated"),
            *_kinds(
                "Service management",
                Target.SERVICE,
                "service.authorization.updated",
                "service.role.created",
                "service.role.updated",
                "service.role.deleted",
            ),
            *_kinds("Service management", Target.USER, "service.role.assigned", "service.role.unassigned"),
            *_kinds("Service management", Target.GROUP, "service.role.group_assigned", "service.role.group_unassigned"),
            *_kinds("Service management", Target.SERVICE, "service.backchannel_logout.failed"),
            *_kinds("Service management", Target.USER, "service.user.assigned", "service.user.unassigned"),
            *_kinds("Service management", Target.GROUP, "service.group.assigned", "service.group.unassigned"),
            *_kinds("Service management", Target.SERVICE, "service.oauth_credentials.updated", "service.client_secret.rotated"),
            *_kinds("Service management", Target.USER, "consent.granted", "consent.withdrawn"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.created", "organization.updated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.deleted", platform_only=True),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.owner.changed"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.approved", "organization.rejected"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.suspended", "organization.activated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.tier.updated"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.attribute.created"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.attribute.updated", "organization.attribute.deleted"),
            *_kinds("Organization management", Target.ORGANIZATION, "organization.smtp.configured", "organization.smtp.removed"),
            *_kinds("Plans", Target.PLAN, "plan.created", "plan.updated", "plan.deleted"),
            *_kinds("Subscriptions", Target.SUBSCRIPTION, "subscription.created", "subscription.updated", "subscription.canceled"),
            *_kinds("Invitations", Target.INVITATION, "invitation.accepted", "invitation.declined"),
            *_kinds("Invitations", Target.INVITATION, "invitation.expired", "invitation.revoked"),
            *_kinds("Security", Target.USER, "break_glass.used"),
            *_kinds("Security", Target.USER, "security.mfa.enabled", "security.mfa.disabled", "security.password.changed"),
            *_kinds("Security", Target.USER, "security.password.reset_sent"),
            *_kinds("Security", Target.USER, "security.identity.linked", "security.identity.unlinked"),
            *_kinds("Security", Target.USER, "security.passkey.added", "security.passkey.removed"),
            *_kinds("Security", Target.USER, "security.passkey.refused"),
            *_kinds("Security", Target.USER, "security.passkey_wait.started", "security.passkey_wait.over", "security.passkey_wait.ended"),
            *_kinds("Security", Target.USER, "security.email_change.requested", "security.email_change.undone"),
            *_kinds("Security", Target.USER, "security.changes.undone"),
            *_kinds("Security", Target.USER, "security.recovery.issued", "security.recovery.canceled"),
            *_kinds("Security", Target.USER, "security.recovery.used", "security.recovery.failed"),
            *_kinds("Security", Target.USER, "security.mfa.failed", approved_only=True),
            *_kinds("Security", Target.ORGANIZATION, "access.refused", "organization.sign_in_policy.updated"),
            *_kinds("Security", Target.SERVICE, "service.sign_in_policy.updated"),
            *_kinds("Security", Target.PLATFORM, "platform.sign_in_policy.updated", platform_only=True),
            *_kinds("Security", Target.SIGNING_KEY, "signing_key.rotated", "signing_key.compromised", platform_only=True),
            *_kinds("Integrations", Target.CONNECTION, "connection.created", "connection.updated", "connection.deleted"),
            *_kinds("Integrations", Target.CONNECTION, "connection.activated", "connection.deactivated"),
            *_kinds("Integrations", Target.CONNECTION, "connection.client_secret.set"),
            *_kinds("Integrations", Target.CONNECTION, "connection.group.mapped", "connection.group.unmapped"),
            *_kinds("Integrations", Target.USER, "connection.person.linked", "connection.person.unlinked"),
            *_kinds("Integrations", Target.CONNECTION, "connection.key.created", "connection.key.activated"),
            *_kinds("Integrations", Target.CONNECTION, "connection.certificate.added", "connection.certificate.removed"),
            *_kinds("Integrations", Target.CONNECTION, "connection.certificate.expires", "connection.failing", "connection.recovered"),
            *_kinds("Roles", Target.ROLE, "role.created", "role.updated", "role.deleted"),
            *_kinds("API resources", Target.API_RESOURCE, "api_resource.created", "api_resource.updated", "api_resource.deleted"),
            *_kinds("API resources", Target.API_RESOURCE, "api_resource.access.updated", "api_resource.external_clients.updated"),
            *_kinds("API resources", Target.API_RESOURCE, "external_client.added", "external_client.updated"),
            *_kinds("API resources", Target.SERVICE, "external_client.removed"),
            *_kinds("API resources", Target.API_RESOURCE, "api_resource.client.updated", "api_resource.client.removed"),
            *_kinds("API resources", Target.API_RESOURCE, "api_resource.service_account.updated"),
            *_kinds("API resources", Target.API_RESOURCE, "api_resource.credential.created", "api_resource.credential.revoked"),
            *_kinds("API resources", Target.USER, "api_resource.user.assigned", "api_resource.user.unassigned"),
            *_kinds("API resources", Target.USER, "api_resource.grant.ended"),
            *_kinds("API resources", Target.GROUP, "api_resource.group.assigned", "api_resource.group.unassigned"),
            *_kinds(
                "Service accounts",
                Target.SERVICE_ACCOUNT,
                "service_account.created",
                "service_account.updated",
                "service_account.deleted",
                "service_account.ending",
                "service_account.ended",
                "service_account.credential.created",
                "service_account.credential.revoked",
            ),
            *_kinds("Service management", Target.ORGANIZATION, "registration_token.created", "registration_token.deleted"),
            *_kinds("API keys", Target.API_KEY, "api_key.created", "api_key.deleted"),
            *_kinds("Personal tokens", Target.PERSONAL_TOKEN, "personal_token.created", "personal_token.revoked"),
            *_kinds("Domains and branding", Target.ORGANIZATION, "domain.set", "domain.verified", "domain.deleted", "branding.updated"),
            *_kinds("Integrations", Target.SERVICE, "saml.configured", "saml.disabled", "saml.certificate.created"),
            *_kinds("Integrations", Target.SERVICE, "saml.certificate.next_created", "saml.certificate.next_deleted"),
            *_kinds("Integrations", Target.SERVICE, "saml.certificate.activated", "saml.certificate.activation_undone"),
            *_kinds("Integrations", Target.ORGANIZATION, "webhook.created", "webhook.updated", "webhook.deleted"),
            *_kinds("Integrations", Target.ORGANIZATION, "webhook.secret.rotated", "scim_token.created", "scim_token.revoked"),
            *_kinds("Integrations", Target.ORGANIZATION, "scim_token.updated"),
            *_kinds("Integrations", Target.ORGANIZATION, "setup_link.created", "setup_link.opened", "setup_link.part.changed"),
            *_kinds("Integrations", Target.ORGANIZATION, "setup_link.part.applied", "setup_link.ended"),
            *_kinds("Integrations", Target.ORGANIZATION, "siem.configured", "siem.removed", "hrd.updated"),
        ]
    }
)
# The actions that an organization's audit log can contain.
AUDIT_ACTIONS: Mapping[str, EventKind] = MappingProxyType(
    {name: kind for name, kind in EVENT_KINDS.items() if kind.audited and not kind.platform_only}
)
# The actions that the platform's log can contain.
PLATFORM_ACTIONS: Mapping[str, EventKind] = MappingProxyType({name: kind for name, kind in EVENT_KINDS.items() if kind.audited})


@dataclass(frozen=True, slots=True)
class Event:
    """An event, to be recorded in the transaction that caused it.

    The event goes to the log of the organization `org_id`. Without `org_id`, the event has an entry in every organization that has a
    confirmed membership for the user `of_person`. If there is no such organization, or with `on_platform`, the event has an entry in the
    platform's log.

    `success` is false if the action was refused. `details` are stored in the audit entry. `data` is the webhook
    payload; None means `details`. Neither contains a secret (security L-3). `by_time` marks an event without an actor,
    such as an expiry. `impersonator_id` is the impersonator, if it is not the impersonator of the transaction's caller.
    `id` is the audit entry's id, if the use case returns it; such an event goes to one log only.
    """

    kind: EventKind
    target_id: str
    org_id: UUID | None = None
    of_person: UUID | None = None
    on_platform: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None
    by_time: bool = False
    success: bool = True
    impersonator_id: UUID | None = None
    id: UUID | None = None

    @property
    def has_log(self) -> bool:
        """Whether the event may go to a log.

        Without an organization and a person, an event goes to no log if only approved organizations record it.
        """
        is_addressed = self.org_id is not None or self.of_person is not None or self.on_platform
        return is_addressed or (self.kind.audited and not self.kind.approved_only)

    @property
    def may_have_entry(self) -> bool:
        """Whether the event may have an entry in an audit log. An event for one organization alone has no entry if it is not audited."""
        return self.kind.audited or self.org_id is None or self.on_platform

    @property
    def payload(self) -> Mapping[str, Any]:
        """Return the webhook payload, with the event's target. A login's target is its actor, so it is left out."""
        payload = self.details if self.data is None else self.data
        if self.kind.name == "user.login.success":
            return payload
        return {"target_type": self.kind.target.value, "target_id": self.target_id, **payload}


def field_changes(old: object, new: object, *fields: str) -> dict[str, dict[str, object]]:
    """Return the old and the new value for the given fields that changed, by field name."""
    # The fields are listed explicitly, because a field added later may be a secret.
    return {name: {"old": was, "new": is_} for name in fields if (was := getattr(old, name)) != (is_ := getattr(new, name))}


def to_platform_log(event: Event, reason: str | None) -> Event:
    """Return a copy of the event for the platform's log, with the reason.

    Organizations do not see the reason, and the copy outlives the organization.
    """
    return replace(event, org_id=None, of_person=None, details={"reason": reason})
