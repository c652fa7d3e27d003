"""The events of the area applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from uuid import UUID

    from core.applications.api_keys_rules import ApiKey
    from core.applications.cancellations_rules import Cancellation
    from core.applications.services_rules import Plan, Service
    from core.kernel.principals import Role
from core.kernel.event_catalogue import CATALOGUE, Event, field_changes


def user_created(user_id: UUID, service: Service) -> Event:
    """An API key of the service made an account."""
    return Event(CATALOGUE["user.created"], str(user_id), org_id=service.org_id, details={"service_slug": service.slug})


def service_user_removed(org_id: UUID, user_id: UUID, service_slug: str, *, permanently: bool, role: Role | None = None) -> Event:
    """An API key removed somebody: for good, with the membership of this role if there was one, or from its own service only."""
    details: dict[str, Any] = {"service_slug": service_slug, "permanently": permanently}
    return Event(CATALOGUE["user.removed"], str(user_id), org_id=org_id, details=details | ({} if role is None else {"role": role.value}))


def sessions_revoked(org_id: UUID, user_id: UUID, count: int) -> Event:
    """So many sessions of an end user in the organization were ended by its managers."""
    return Event(CATALOGUE["user.sessions_revoked"], str(user_id), org_id=org_id, details={"sessions_revoked": count})


def email_changed(user_id: UUID, service: Service) -> Event:
    """An API key of the service changed the email address of a user. Neither address is in the event."""
    return Event(CATALOGUE["user.email_changed"], str(user_id), org_id=service.org_id, details={"service_slug": service.slug})


def service_created(service: Service) -> Event:
    """An organization has a new service."""
    details = {**service_details(service), "service_type": service.service_type.value, "client_id": str(service.client_id)}
    return Event(CATALOGUE["service.created"], str(service.id), org_id=service.org_id, details=details)


def service_updated(old: Service, new: Service) -> Event:
    """A service was changed: old and new value by the name of the field."""
    scopes = ("codehost_scopes", "websuite_scopes", "officesuite_scopes")
    changes = field_changes(old, new, "name", "service_type", *scopes, "redirect_uris", "device_activation_uri", "pkce_without_secret")
    return Event(CATALOGUE["service.updated"], str(new.id), org_id=new.org_id, details={**service_details(new), "changes": changes})


def client_secret_rotated(service: Service) -> Event:
    """A service has another client secret."""
    return Event(CATALOGUE["service.client_secret.rotated"], str(service.id), org_id=service.org_id, details=service_details(service))


def service_deleted(service: Service) -> Event:
    """A service is gone."""
    return Event(CATALOGUE["service.deleted"], str(service.id), org_id=service.org_id, details=service_details(service))


def service_details(service: Service) -> dict[str, str]:
    return {"service_slug": service.slug, "service_name": service.name}


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
    changes = field_changes(old, new, "name", "price_cents", "currency", "features", "billing_price_id")
    return Event(CATALOGUE["plan.updated"], str(new.id), org_id=new.org_id, details={**_plan(new, service), "changes": changes})


def plan_deleted(plan: Plan, service: Service) -> Event:
    """A plan is gone."""
    return Event(CATALOGUE["plan.deleted"], str(plan.id), org_id=plan.org_id, details=_plan(plan, service))


def _plan(plan: Plan, service: Service) -> dict[str, str]:
    return {"plan_name": plan.name, "service_id": str(service.id), "service_slug": service.slug}


def subscription_canceled_at_provider(cancellation: Cancellation) -> Event:
    """A subscription that was removed, with its service or its user, or for which it was too late, is over at the payment provider, too."""
    details = {"service_id": str(cancellation.service_id), "at_provider": True}
    return Event(CATALOGUE["subscription.canceled"], str(cancellation.subscription_id), org_id=cancellation.org_id, details=details)


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
