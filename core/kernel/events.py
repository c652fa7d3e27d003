"""The one catalogue of what can happen: its name in webhooks and audit logs, its category, and what it is about.

An event whose `audited` is true writes an audit entry of the same name; every event writes an event row, which webhooks deliver.
Sources: organizations.md sections 6.1 and 6.3; the added names are those of decisions, point 226.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from core.applications.api_keys_rules import ApiKey
    from core.applications.cancellations_rules import Cancellation
    from core.applications.services_rules import Plan, Service
    from core.authentication.providers import Provider
    from core.authentication.sessions_rules import Session
    from core.billing.subscriptions_rules import Subscription
    from core.eventing.siem_rules import Configuration as SiemConfiguration
    from core.eventing.webhooks_rules import Webhook
    from core.federation.saml.configuration_rules import Certificate, Configuration
    from core.kernel.principals import Role, ServiceContext
    from core.kernel.values import Domain
    from core.provisioning.tokens_rules import ScimToken
    from core.tenancy.branding_rules import Branding
    from core.tenancy.domains_rules import Claim
    from core.tenancy.invitations_rules import Invitation
    from core.tenancy.mail_server_rules import SmtpSettings
    from core.tenancy.organizations_rules import Organization


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


def signed_up(user_id: UUID, org_id: UUID | None = None, service_id: UUID | None = None) -> Event:
    """An account came to be (organizations.md section 6.1). Told to the organization of the service whose API key made it, or at which the
    person signed up; about one that came by registration no organization hears (decisions, point 112)."""
    if org_id is None or service_id is None:
        return Event(CATALOGUE["user.signup.success"], str(user_id))
    return Event(CATALOGUE["user.signup.success"], str(user_id), org_id=org_id, data={"service_id": str(service_id)})


def user_created(user_id: UUID, service: Service) -> Event:
    """An API key of the service made an account."""
    return Event(CATALOGUE["user.created"], str(user_id), org_id=service.org_id, details={"service_slug": service.slug})


def provisioned(org_id: UUID, user_id: UUID) -> tuple[Event, Event]:
    """The directory of the organization made an account."""
    up = Event(CATALOGUE["user.signup.success"], str(user_id), org_id=org_id, data={"service_id": None})
    return up, Event(CATALOGUE["user.created"], str(user_id), org_id=org_id)


def described(org_id: UUID, user_id: UUID, changed: Sequence[str]) -> Event:
    """The directory of the organization says something else of somebody: of what, and not what it is."""
    return Event(CATALOGUE["user.updated"], str(user_id), org_id=org_id, details={"changed": list(changed)})


def readdressed(org_id: UUID, user_id: UUID) -> Event:
    """The directory of the organization gave somebody another address."""
    return Event(CATALOGUE["user.email_changed"], str(user_id), org_id=org_id)


def deactivated(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """The directory of the organization closed it to somebody, or the whole account where that is nobody else's."""
    return Event(CATALOGUE["user.deactivated"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def reactivated(org_id: UUID, user_id: UUID, *, whole_account: bool) -> Event:
    """And opened it again."""
    return Event(CATALOGUE["user.reactivated"], str(user_id), org_id=org_id, details={"whole_account": whole_account})


def deprovisioned(org_id: UUID, user_id: UUID, role: Role | None, *, permanently: bool) -> Event:
    """The directory of the organization removed somebody: the account for good, or from the organization."""
    details: dict[str, Any] = {"permanently": permanently}
    return Event(CATALOGUE["user.removed"], str(user_id), org_id=org_id, details=details | ({} if role is None else {"role": role.value}))


def email_changed(user_id: UUID, service: Service | None = None) -> Event:
    """The address of an account was changed: by an API key of the service, or by the person. Neither address is told: it is the log of
    others."""
    if service is None:
        return Event(CATALOGUE["user.email_changed"], str(user_id), of_person=user_id)
    return Event(CATALOGUE["user.email_changed"], str(user_id), org_id=service.org_id, details={"service_slug": service.slug})


def signed_in(user_id: UUID, provider: str, service: ServiceContext | None = None) -> Event:
    """Full tokens were issued (decisions, point 61); `provider` is `password` or an identity provider's name. Told to the organization of
    the service, if it was one that the person signed in to (decisions, point 220)."""
    data = {"provider": provider, "service_id": str(service.id) if service else None}
    return Event(CATALOGUE["user.login.success"], str(user_id), org_id=service.org_id if service else None, data=data)


def password_changed(user_id: UUID, method: str) -> Event:
    """`method` is `change`, `set` or `reset` (decisions, point 62)."""
    return Event(CATALOGUE["security.password.changed"], str(user_id), of_person=user_id, details={"method": method})


def identity_linked(user_id: UUID, provider: Provider) -> Event:
    """A person can sign in through this provider from now on."""
    return Event(CATALOGUE["security.identity.linked"], str(user_id), of_person=user_id, details={"provider": provider.value})


def identity_unlinked(user_id: UUID, provider: Provider, service: ServiceContext | None) -> Event:
    """A person has nothing linked at this provider any more: in the service, whose organization alone is told, or in the account."""
    details = {"provider": provider.value}
    if service is None:
        return Event(CATALOGUE["security.identity.unlinked"], str(user_id), of_person=user_id, details=details)
    details["service_slug"] = service.slug
    return Event(CATALOGUE["security.identity.unlinked"], str(user_id), org_id=service.org_id, details=details)


def mfa_enabled(user_id: UUID) -> tuple[Event, ...]:
    """The second factor is asked for from now on: for webhooks, and for the logs."""
    return tuple(Event(CATALOGUE[name], str(user_id), of_person=user_id) for name in ("user.mfa.enabled", "security.mfa.enabled"))


def mfa_disabled(user_id: UUID, *, forced: bool = False) -> tuple[Event, ...]:
    """The second factor is asked for no more, by the person's own doing or by that of a platform owner."""
    names, details = ("user.mfa.disabled", "security.mfa.disabled"), {"forced": forced}
    return tuple(Event(CATALOGUE[name], str(user_id), of_person=user_id, details=details) for name in names)


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


def service_user_removed(org_id: UUID, user_id: UUID, service_slug: str, *, permanently: bool, role: Role | None = None) -> Event:
    """An API key removed somebody: for good, with the membership of this role if there was one, or from its own service only."""
    details: dict[str, Any] = {"service_slug": service_slug, "permanently": permanently}
    return Event(CATALOGUE["user.removed"], str(user_id), org_id=org_id, details=details | ({} if role is None else {"role": role.value}))


def sessions_revoked(org_id: UUID, user_id: UUID, count: int) -> Event:
    """So many sessions of an end user in the organization were ended by its managers."""
    return Event(CATALOGUE["user.sessions_revoked"], str(user_id), org_id=org_id, details={"sessions_revoked": count})


def anonymized(org_id: UUID, user_id: UUID) -> Event:
    """Nobody can say any more who this member was (identity.md section 4.7). Told to each organization that the person belongs to."""
    return Event(CATALOGUE["user.anonymized"], str(user_id), org_id=org_id)


def impersonated(session: Session) -> Event:
    """A platform owner acts as somebody else from now on, in this session. Told to the organization of its context; why, is not."""
    service = session.service
    org_id = service.org_id if service else session.org_id
    details = {
        "session_id": str(session.id),
        "expires_at": rfc3339(session.expires_at),
        "service_slug": service.slug if service else None,
    }
    return Event(
        CATALOGUE["user.impersonated"], str(session.user_id), org_id=org_id, details=details, impersonator_id=session.impersonator_id
    )


def impersonated_for_the_platform(event: Event, entry_id: UUID, reason: str) -> Event:
    """The same for the platform's own log, with the reason and the organization."""
    details = {**event.details, "org_id": None if event.org_id is None else str(event.org_id), "reason": reason}
    return replace(event, id=entry_id, org_id=None, details=details)


def impersonation_request(user_id: UUID, session_id: UUID, method: str, route: str, arguments: Mapping[str, str]) -> Event:
    """Somebody who acts as this person asks for something; whether it is granted is not known yet."""
    details = {"session_id": str(session_id), "method": method, "route": route, "arguments": dict(arguments)}
    return Event(CATALOGUE["impersonation.request"], str(user_id), details=details)


def service_created(service: Service) -> Event:
    """An organization has a new service."""
    details = {**_service(service), "service_type": service.service_type.value, "client_id": str(service.client_id)}
    return Event(CATALOGUE["service.created"], str(service.id), org_id=service.org_id, details=details)


def service_updated(old: Service, new: Service) -> Event:
    """A service was changed: old and new value by the name of the field."""
    scopes = ("codehost_scopes", "websuite_scopes", "officesuite_scopes")
    changes = _changes(old, new, "name", "service_type", *scopes, "redirect_uris", "device_activation_uri", "pkce_without_secret")
    return Event(CATALOGUE["service.updated"], str(new.id), org_id=new.org_id, details={**_service(new), "changes": changes})


def client_secret_rotated(service: Service) -> Event:
    """A service has another client secret."""
    return Event(CATALOGUE["service.client_secret.rotated"], str(service.id), org_id=service.org_id, details=_service(service))


def oauth_credentials_updated(service: Service, provider: Provider, client_id: str | None) -> Event:
    """A service is known to a provider by this name from now on; None is the platform's."""
    details = {"service_slug": service.slug, "provider": provider.value, "client_id": client_id}
    return Event(CATALOGUE["service.oauth_credentials.updated"], str(service.id), org_id=service.org_id, details=details)


def saml_configured(service: Service, old: Configuration, new: Configuration) -> Event:
    """How a service has people signed in with SAML was changed: old and new value by the name of the field."""
    names = ("enabled", "entity_id", "acs_url", "slo_url", "name_id_format", "attribute_mapping", "sign_assertions", "sign_response")
    details = {**_service(service), "changes": _changes(old, new, *names)}
    return Event(CATALOGUE["saml.configured"], str(service.id), org_id=service.org_id, details=details)


def saml_disabled(service: Service) -> Event:
    """A service has nobody signed in with SAML any more, and its certificate is over."""
    return Event(CATALOGUE["saml.disabled"], str(service.id), org_id=service.org_id, details=_service(service))


def saml_certificate_created(service: Service, certificate: Certificate) -> Event:
    """What a service is told is signed with another key from now on."""
    details = {**_service(service), "certificate_id": str(certificate.id), "valid_until": rfc3339(certificate.valid_until)}
    return Event(CATALOGUE["saml.certificate.created"], str(service.id), org_id=service.org_id, details=details)


def service_deleted(service: Service) -> Event:
    """A service is gone."""
    return Event(CATALOGUE["service.deleted"], str(service.id), org_id=service.org_id, details=_service(service))


def _service(service: Service) -> dict[str, str]:
    return {"service_slug": service.slug, "service_name": service.name}


def organization_created(organization: Organization) -> Event:
    """An organization came to be."""
    details = {"slug": organization.slug, "name": organization.name, "status": organization.status.value}
    return Event(CATALOGUE["organization.created"], str(organization.id), org_id=organization.id, details=details)


def organization_updated(old: Organization, new: Organization) -> Event:
    """What members may change of an organization was changed: old and new value by the name of the field."""
    details = _changes(old, new, "name", "device_trust_days")
    return Event(CATALOGUE["organization.updated"], str(new.id), org_id=new.id, details=details)


def owner_changed(org_id: UUID, old_owner_id: UUID, new_owner_id: UUID) -> Event:
    """The ownership went from one member to another."""
    details = {"old_owner_id": str(old_owner_id), "new_owner_id": str(new_owner_id)}
    return Event(CATALOGUE["organization.owner.changed"], str(org_id), org_id=org_id, details=details)


def organization_approved(org_id: UUID, tier: str) -> Event:
    """A pending organization may begin, on the tier of this name."""
    return Event(CATALOGUE["organization.approved"], str(org_id), org_id=org_id, details={"tier": tier})


def organization_rejected(org_id: UUID) -> Event:
    """A pending organization was turned away."""
    return Event(CATALOGUE["organization.rejected"], str(org_id), org_id=org_id)


def organization_suspended(org_id: UUID) -> Event:
    """An active organization was stopped."""
    return Event(CATALOGUE["organization.suspended"], str(org_id), org_id=org_id)


def organization_activated(org_id: UUID) -> Event:
    """A suspended organization goes on."""
    return Event(CATALOGUE["organization.activated"], str(org_id), org_id=org_id)


def organization_tier_updated(org_id: UUID, old: Mapping[str, object], new: Mapping[str, object]) -> Event:
    """The tier of an organization, or its own limits, were set: all of them as they were, and as they are."""
    return Event(CATALOGUE["organization.tier.updated"], str(org_id), org_id=org_id, details={"old": old, "new": new})


def for_the_platform(event: Event, reason: str | None) -> Event:
    """The same for the platform's own log, with the reason: organizations are not told it (decisions, point 207), and it outlives them."""
    return replace(event, org_id=None, of_person=None, details={"reason": reason})


def platform_owner_promoted(user_id: UUID) -> Event:
    """Somebody became a platform owner."""
    return Event(CATALOGUE["platform.owner.promoted"], str(user_id))


def platform_owner_demoted(user_id: UUID) -> Event:
    """Somebody is a platform owner no more."""
    return Event(CATALOGUE["platform.owner.demoted"], str(user_id))


def organization_deleted(organization: Organization) -> Event:
    """An organization is gone, and its log with it: only the platform's own log can tell (decisions, points 226 and 240)."""
    return Event(CATALOGUE["organization.deleted"], str(organization.id), details={"slug": organization.slug, "name": organization.name})


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
    return Event(CATALOGUE["organization.smtp.configured"], str(settings.org_id), org_id=settings.org_id, details=details)


def smtp_removed(settings: SmtpSettings) -> Event:
    """An organization's mails go through the platform's server again."""
    details = {"host": settings.host, "port": settings.port}
    return Event(CATALOGUE["organization.smtp.removed"], str(settings.org_id), org_id=settings.org_id, details=details)


def siem_configured(configuration: SiemConfiguration) -> Event:
    """An organization's log is forwarded there from now on; or it is not, if that is not enabled."""
    details = {**_siem(configuration), "enabled": configuration.enabled}
    return Event(CATALOGUE["siem.configured"], str(configuration.org_id), org_id=configuration.org_id, details=details)


def siem_removed(configuration: SiemConfiguration) -> Event:
    """An organization's log is forwarded nowhere any more."""
    details = _siem(configuration)
    return Event(CATALOGUE["siem.removed"], str(configuration.org_id), org_id=configuration.org_id, details=details)


def _siem(configuration: SiemConfiguration) -> dict[str, Any]:
    return {"provider": configuration.provider.value, "endpoint_url": _host(configuration.endpoint_url)}


def plan_created(plan: Plan, service: Service) -> Event:
    """A service has a new plan."""
    details = {
        **_plan(plan, service),
        "price_cents": plan.price_cents,
        "currency": plan.currency,
        "features": list(plan.features),
        "billing_price_id": plan.billing_price_id,
    }
    return Event(CATALOGUE["plan.created"], str(plan.id), org_id=plan.org_id, details=details)


def plan_updated(old: Plan, new: Plan, service: Service) -> Event:
    """A plan was changed: old and new value by the name of the field."""
    changes = _changes(old, new, "name", "price_cents", "currency", "features", "billing_price_id")
    return Event(CATALOGUE["plan.updated"], str(new.id), org_id=new.org_id, details={**_plan(new, service), "changes": changes})


def plan_deleted(plan: Plan, service: Service) -> Event:
    """A plan is gone."""
    return Event(CATALOGUE["plan.deleted"], str(plan.id), org_id=plan.org_id, details=_plan(plan, service))


def _plan(plan: Plan, service: Service) -> dict[str, str]:
    return {"plan_name": plan.name, "service_id": str(service.id), "service_slug": service.slug}


def subscription_created(subscription: Subscription) -> Event:
    """Somebody was subscribed to a plan."""
    details = _subscriber(subscription) | _subscription(subscription)
    return Event(CATALOGUE["subscription.created"], str(subscription.id), org_id=subscription.org_id, details=details)


def subscription_updated(old: Subscription, new: Subscription) -> Event:
    """A subscription was changed: old and new value by the name of the field."""
    was, is_ = _subscription(old), _subscription(new)
    changes = {name: {"old": was[name], "new": is_[name]} for name in was if was[name] != is_[name]}
    return Event(CATALOGUE["subscription.updated"], str(new.id), org_id=new.org_id, details=_subscriber(new) | changes)


def subscription_expired(subscription: Subscription) -> Event:
    """A subscription was found past its period."""
    changes = {"status": {"old": "active", "new": subscription.status.value}}
    return Event(
        CATALOGUE["subscription.updated"],
        str(subscription.id),
        org_id=subscription.org_id,
        details=_subscriber(subscription) | changes,
        by_time=True,
    )


def subscription_canceled(subscription: Subscription) -> Event:
    """A subscription was ended; it is what it was before."""
    details = _subscriber(subscription) | _subscription(subscription)
    return Event(CATALOGUE["subscription.canceled"], str(subscription.id), org_id=subscription.org_id, details=details)


def subscription_canceled_at_provider(cancellation: Cancellation) -> Event:
    """A subscription that was removed, with its service or its user, or for which it was too late, is over at the payment provider, too."""
    details = {"service_id": str(cancellation.service_id), "at_provider": True}
    return Event(CATALOGUE["subscription.canceled"], str(cancellation.subscription_id), org_id=cancellation.org_id, details=details)


def _subscriber(subscription: Subscription) -> dict[str, Any]:
    return {"service_id": str(subscription.service_id), "user_id": str(subscription.user_id)}


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "plan_id": str(subscription.plan.id),
        "plan_name": subscription.plan.name,
        "status": subscription.status.value,
        "current_period_end": rfc3339(subscription.current_period_end),
    }


def invitation_accepted(invitation: Invitation, user_id: UUID) -> Event:
    """An invitation was accepted, and made this person a member."""
    details = _invitation(invitation) | {"user_id": str(user_id)}
    return Event(CATALOGUE["invitation.accepted"], str(invitation.id), org_id=invitation.org_id, details=details)


def invitation_declined(invitation: Invitation) -> Event:
    """An invitation was declined."""
    return Event(CATALOGUE["invitation.declined"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def invitation_revoked(invitation: Invitation) -> Event:
    """An invitation was cancelled: by a manager, because its inviter may not invite to this role any more (security.md R-4), or because
    whom it is for has come by other means, and has left."""
    return Event(CATALOGUE["invitation.revoked"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation))


def invitation_expired(invitation: Invitation) -> Event:
    """An invitation was found past its time."""
    return Event(
        CATALOGUE["invitation.expired"], str(invitation.id), org_id=invitation.org_id, details=_invitation(invitation), by_time=True
    )


def _invitation(invitation: Invitation) -> dict[str, str]:
    return {"invited_email": invitation.email, "role": invitation.role.value}


def api_key_created(key: ApiKey, service_slug: str) -> Event:
    """A program can use the service interface from now on (organizations.md section 6.3)."""
    details = _api_key(key, service_slug) | {
        "permissions": [permission.value for permission in key.permissions],
        "expires_at": None if key.expires_at is None else rfc3339(key.expires_at),
    }
    return Event(CATALOGUE["api_key.created"], str(key.id), org_id=key.org_id, details=details)


def api_key_deleted(key: ApiKey, service_slug: str) -> Event:
    """A key opens nothing any more."""
    return Event(CATALOGUE["api_key.deleted"], str(key.id), org_id=key.org_id, details=_api_key(key, service_slug))


def _api_key(key: ApiKey, service_slug: str) -> dict[str, Any]:
    return {"api_key_id": str(key.id), "service_id": str(key.service_id), "service_slug": service_slug, "name": key.name}


def scim_token_created(token: ScimToken) -> Event:
    """A directory can provision the people of the organization from now on."""
    details = _scim_token(token) | {"expires_at": None if token.expires_at is None else rfc3339(token.expires_at)}
    return Event(CATALOGUE["scim_token.created"], str(token.org_id), org_id=token.org_id, details=details)


def scim_token_revoked(token: ScimToken) -> Event:
    """A SCIM token opens nothing any more."""
    return Event(CATALOGUE["scim_token.revoked"], str(token.org_id), org_id=token.org_id, details=_scim_token(token))


def _scim_token(token: ScimToken) -> dict[str, Any]:
    return {"scim_token_id": str(token.id), "name": token.name, "prefix": token.prefix}


def domain_set(claim: Claim, replaced: Domain | None) -> Event:
    """An organization said what its domain is, instead of `replaced` if it had said another one before."""
    return Event(CATALOGUE["domain.set"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain, "replaced": replaced})


def domain_verified(claim: Claim) -> Event:
    """An organization proved that its domain is its own."""
    return Event(CATALOGUE["domain.verified"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def domain_deleted(claim: Claim) -> Event:
    """An organization has no domain any more."""
    return Event(CATALOGUE["domain.deleted"], str(claim.org_id), org_id=claim.org_id, details={"domain": claim.domain})


def branding_updated(org_id: UUID, old: Branding, new: Branding) -> Event:
    """Name, logo or colour of an organization was changed: old and new value by the name of the field."""
    details = _changes(old, new, "logo_url", "primary_color", "product_name")
    return Event(CATALOGUE["branding.updated"], str(org_id), org_id=org_id, details=details)


def hrd_updated(org_id: UUID, old: Mapping[Domain, Provider], new: Mapping[Domain, Provider]) -> Event:
    """Where the people of some domains sign in was changed: old and new provider by domain."""
    changed = sorted(domain for domain in {*old, *new} if old.get(domain) != new.get(domain))
    domains = {domain: {"old": old.get(domain), "new": new.get(domain)} for domain in changed}
    return Event(CATALOGUE["hrd.updated"], str(org_id), org_id=org_id, details={"domains": domains})


def webhook_created(webhook: Webhook) -> Event:
    """An organization has what happens told to another address."""
    details = {**_webhook(webhook), "events": list(webhook.events)}
    return Event(CATALOGUE["webhook.created"], str(webhook.id), org_id=webhook.org_id, details=details)


def webhook_updated(old: Webhook, new: Webhook) -> Event:
    """A webhook was changed: old and new value by the name of the field. Of the address the host is told, and whether the rest changed."""
    changes = _changes(old, new, "name", "events", "is_active")
    if _host(old.url) != _host(new.url):
        changes["url"] = {"old": _host(old.url), "new": _host(new.url)}
    if _path(old.url) != _path(new.url):
        changes["url_path"] = {"old": "(hidden)", "new": "(hidden)"}
    return Event(CATALOGUE["webhook.updated"], str(new.id), org_id=new.org_id, details={**_webhook(new), "changes": changes})


def webhook_secret_rotated(webhook: Webhook) -> Event:
    """What a webhook is told is signed with another secret from now on."""
    return Event(CATALOGUE["webhook.secret.rotated"], str(webhook.id), org_id=webhook.org_id, details=_webhook(webhook))


def webhook_deleted(webhook: Webhook) -> Event:
    """A webhook is told nothing any more."""
    return Event(CATALOGUE["webhook.deleted"], str(webhook.id), org_id=webhook.org_id, details=_webhook(webhook))


def _webhook(webhook: Webhook) -> dict[str, Any]:
    return {"webhook_name": webhook.name, "url": _host(webhook.url)}


def _host(url: str) -> str:
    # Of an address that is called no more than this: the rest of it is often what opens the door there (security.md L-3).
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _path(url: str) -> tuple[str, str]:
    # The rest of it, to be compared and never told.
    parts = urlsplit(url)
    return parts.path, parts.query


def _changes(old: object, new: object, *fields: str) -> dict[str, dict[str, object]]:
    # The fields are named, since what comes to be a field later may be a secret.
    return {name: {"old": was, "new": is_} for name in fields if (was := getattr(old, name)) != (is_ := getattr(new, name))}
