"""Constructors for events about services, plans, API keys and their users."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from core.applications.model.api_keys import ApiKey
from core.applications.model.authorization import AuthorizationChanges, AuthorizationDocument, RoleDefinition, RoleRemoval
from core.applications.model.client_settings import thumbprint
from core.applications.model.plans import Cancellation, Plan
from core.applications.model.services import CLAIM_MEMBERS, SETTINGS, Service
from core.applications.model.users import AccessPolicy, EnrollmentOrigin
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes
from core.kernel.proofs import FactorKind
from core.kernel.roles import RoleName
from core.kernel.values import rfc3339
from core.tenancy.model.groups import Group


def user_created(user_id: UUID, service: Service) -> Event:
    """The service's API key created an account."""
    return Event(EVENT_KINDS["user.created"], str(user_id), org_id=service.org_id, details={"service_slug": service.slug})


def service_user_removed(org_id: UUID, user_id: UUID, service_slug: str, *, permanently: bool, role: RoleName | None = None) -> Event:
    """An API key deleted an account, or only removed a user from its service.

    `permanently` says whether the account was deleted. `role` is the role in the membership that ended with the
    account, if any.
    """
    details: dict[str, Any] = {"service_slug": service_slug, "permanently": permanently}
    return Event(EVENT_KINDS["user.removed"], str(user_id), org_id=org_id, details=details | ({} if role is None else {"role": role}))


def end_user_blocked(org_id: UUID, user_id: UUID) -> Event:
    """An admin blocked a user at the organization's applications."""
    return Event(EVENT_KINDS["user.blocked"], str(user_id), org_id=org_id)


def end_user_unblocked(org_id: UUID, user_id: UUID) -> Event:
    """An admin admitted a blocked user to the organization's applications again."""
    return Event(EVENT_KINDS["user.unblocked"], str(user_id), org_id=org_id, details={"whole_account": False})


def second_factor_removed(org_id: UUID, user_id: UUID, factor: FactorKind) -> tuple[Event, ...]:
    """An admin removed the second factor from an account that only the organization uses.

    There is an event for webhooks, and an event for the audit log.
    """
    names, details = ("user.mfa.disabled", "security.mfa.disabled"), {"forced": True, "factor": factor.value}
    return tuple(Event(EVENT_KINDS[name], str(user_id), org_id=org_id, details=details) for name in names)


def email_changed(user_id: UUID, service: Service) -> Event:
    """The service's API key changed a user's email address. The event contains neither address."""
    return Event(EVENT_KINDS["user.email_changed"], str(user_id), org_id=service.org_id, details={"service_slug": service.slug})


def service_created(service: Service) -> Event:
    """A service was created. `registered_with` names the registration token with which a client created it.

    `access_policy` is left out for the policy `anyone`.
    """
    details = {**service_details(service), "service_type": service.service_type.value, "client_id": service.client_name}
    if service.access.policy is not AccessPolicy.ANYONE:
        details["access_policy"] = service.access.policy.value
    if service.registered_with is not None:
        details["registered_with"] = service.registered_with
    return Event(EVENT_KINDS["service.created"], str(service.id), org_id=service.org_id, details=details)


def service_updated(old: Service, new: Service) -> Event:
    """A service was changed. For every changed field, the event contains the old and new value."""
    changes = setting_changes(old, new) | field_changes(old, new, "logo_url")
    return Event(EVENT_KINDS["service.updated"], str(new.id), org_id=new.org_id, details={**service_details(new), "changes": changes})


def setting_changes(old: Service, new: Service) -> dict[str, dict[str, object]]:
    """Return the old and new value for every setting that differs. For keys, the values are thumbprints."""
    changes: dict[str, dict[str, object]] = {
        name: {"old": was, "new": is_} for name in SETTINGS if (was := old.setting(name)) != (is_ := new.setting(name))
    }
    if "jwks" in changes:  # the keys themselves would make long entries
        changes["jwks"] = {"old": _thumbprints(old), "new": _thumbprints(new)}
    return changes


def _thumbprints(service: Service) -> list[str] | None:
    return None if service.jwks is None else [thumbprint(key) for key in service.jwks]


def external_id_changed(service: Service, old: str | None, new: str | None) -> Event:
    """The directory gave the service's group another external id."""
    details = {**service_details(service), "changes": {"scim_external_id": {"old": old, "new": new}}}
    return Event(EVENT_KINDS["service.updated"], str(service.id), org_id=service.org_id, details=details)


def claims_updated(service: Service, old: Mapping[str, Any], new: Mapping[str, Any]) -> Event:
    """A service's claims were changed. For every changed part of the document, the event contains the old and new value."""
    changes = {name: {"old": was, "new": is_} for name in CLAIM_MEMBERS if (was := old.get(name)) != (is_ := new.get(name))}
    details = {**service_details(service), "changes": changes}
    return Event(EVENT_KINDS["service.claims.updated"], str(service.id), org_id=service.org_id, details=details)


def access_updated(old: Service, new: Service) -> Event:
    """A service's access settings were changed. For every changed setting, the event contains the old and new value."""
    changes = field_changes(old.access, new.access, "policy", "saml_self_enrolled", "launch_url")
    details = {**service_details(new), "changes": changes}
    return Event(EVENT_KINDS["service.access.updated"], str(new.id), org_id=new.org_id, details=details)


def user_assigned(service: Service, user_id: UUID, origin: EnrollmentOrigin) -> Event:
    """A user was assigned to a service."""
    details = {**service_details(service), "assigned_by": origin.value}
    return Event(EVENT_KINDS["service.user.assigned"], str(user_id), org_id=service.org_id, details=details)


def group_assigned(service: Service, group: Group) -> Event:
    """A group was assigned to a service."""
    return _group_event("service.group.assigned", service, group)


def group_unassigned(service: Service, group: Group) -> Event:
    """A group's assignment to a service ended. If the group is deleted, this event is not recorded."""
    return _group_event("service.group.unassigned", service, group)


def _group_event(name: str, service: Service, group: Group) -> Event:
    return Event(EVENT_KINDS[name], str(group.id), org_id=service.org_id, details={**service_details(service), "group_name": group.name})


def user_unassigned(service: Service, user_id: UUID, origin: EnrollmentOrigin) -> Event:
    """A user's assignment to a service ended. `assigned_by` says how it began. If a membership ends, this event is not recorded."""
    details = {**service_details(service), "assigned_by": origin.value}
    return Event(EVENT_KINDS["service.user.unassigned"], str(user_id), org_id=service.org_id, details=details)


def authorization_changed(
    service: Service, version: int, old: AuthorizationDocument, new: AuthorizationDocument, changes: AuthorizationChanges
) -> Iterator[Event]:
    """Yield the events for a change: one for all permissions, and one per role."""
    if changes.of_permissions:
        yield permissions_updated(service, version, changes)
    for role in new.roles:
        before = old.role(role.slug)
        if before is None:
            yield role_created(service, role)
        elif before != role:
            yield role_updated(service, before, role)
    for removal in changes.roles_removed:
        if (gone := old.role(removal.slug)) is not None:
            yield role_deleted(service, gone, removal)


def permissions_updated(service: Service, version: int, changes: AuthorizationChanges) -> Event:
    """The permissions that a service declares were changed. The event contains the names, and the document's version."""
    details = {
        **service_details(service),
        "version": version,
        "permissions_added": list(changes.permissions_added),
        "permissions_updated": list(changes.permissions_updated),
        "permissions_removed": list(changes.permissions_removed),
    }
    return Event(EVENT_KINDS["service.authorization.updated"], str(service.id), org_id=service.org_id, details=details)


def role_created(service: Service, role: RoleDefinition) -> Event:
    """A service's role was created."""
    details = {**service_details(service), "role": role.slug, "role_name": role.name, "permissions": list(role.permissions)}
    return Event(EVENT_KINDS["service.role.created"], str(service.id), org_id=service.org_id, details=details)


def role_updated(service: Service, old: RoleDefinition, new: RoleDefinition) -> Event:
    """A service's role was changed. The role's users got and lost the permissions."""
    details = {
        **service_details(service),
        "role": new.slug,
        "role_name": new.name,
        "changes": field_changes(old, new, "name", "description"),
        "permissions_added": [name for name in new.permissions if name not in old.permissions],
        "permissions_removed": [name for name in old.permissions if name not in new.permissions],
    }
    return Event(EVENT_KINDS["service.role.updated"], str(service.id), org_id=service.org_id, details=details)


def role_deleted(service: Service, role: RoleDefinition, removal: RoleRemoval) -> Event:
    """A service's role was deleted. The event says how many users and groups lost the role."""
    details = {**_role_details(service, role), "user_count": removal.user_count, "group_count": removal.group_count}
    return Event(EVENT_KINDS["service.role.deleted"], str(service.id), org_id=service.org_id, details=details)


def role_assigned(service: Service, user_id: UUID, role: RoleDefinition) -> Event:
    """A user got a service's role."""
    return Event(EVENT_KINDS["service.role.assigned"], str(user_id), org_id=service.org_id, details=_role_details(service, role))


def role_unassigned(service: Service, user_id: UUID, role: RoleDefinition) -> Event:
    """A service's role was taken from a user. If the role is deleted or a membership ends, this event is not recorded."""
    return Event(EVENT_KINDS["service.role.unassigned"], str(user_id), org_id=service.org_id, details=_role_details(service, role))


def role_given_to_group(service: Service, group: Group, role: RoleDefinition) -> Event:
    """A group got a service's role: its users have the role."""
    return _group_role_event("service.role.group_assigned", service, group, role)


def role_taken_from_group(service: Service, group: Group, role: RoleDefinition) -> Event:
    """A service's role was taken from a group. If the role or the group is deleted, this event is not recorded."""
    return _group_role_event("service.role.group_unassigned", service, group, role)


def _group_role_event(name: str, service: Service, group: Group, role: RoleDefinition) -> Event:
    details = {**_role_details(service, role), "group_name": group.name}
    return Event(EVENT_KINDS[name], str(group.id), org_id=service.org_id, details=details)


def _role_details(service: Service, role: RoleDefinition) -> dict[str, Any]:
    return {**service_details(service), "role": role.slug, "role_name": role.name}


def client_secret_rotated(service: Service) -> Event:
    """A service's client secret was replaced."""
    return Event(EVENT_KINDS["service.client_secret.rotated"], str(service.id), org_id=service.org_id, details=service_details(service))


def service_deleted(service: Service) -> Event:
    """A service was deleted."""
    return Event(EVENT_KINDS["service.deleted"], str(service.id), org_id=service.org_id, details=service_details(service))


def service_details(service: Service) -> dict[str, str]:
    """Return the details that identify a service in an event."""
    return {"service_slug": service.slug, "service_name": service.name}


def plan_created(plan: Plan, service: Service) -> Event:
    """A plan was created."""
    details = {
        **_plan_details(plan, service),
        "price_cents": plan.price_cents,
        "currency": plan.currency,
        "features": list(plan.features),
        "billing_price_id": plan.billing_price_id,
    }
    return Event(EVENT_KINDS["plan.created"], str(plan.id), org_id=plan.org_id, details=details)


def plan_updated(old: Plan, new: Plan, service: Service) -> Event:
    """A plan was changed. For every changed field, the event contains the old and new value."""
    changes = field_changes(old, new, "name", "price_cents", "currency", "features", "billing_price_id")
    return Event(EVENT_KINDS["plan.updated"], str(new.id), org_id=new.org_id, details={**_plan_details(new, service), "changes": changes})


def plan_deleted(plan: Plan, service: Service) -> Event:
    """A plan was deleted."""
    return Event(EVENT_KINDS["plan.deleted"], str(plan.id), org_id=plan.org_id, details=_plan_details(plan, service))


def _plan_details(plan: Plan, service: Service) -> dict[str, str]:
    return {"plan_name": plan.name, "service_id": str(service.id), "service_slug": service.slug}


def subscription_canceled_at_provider(cancellation: Cancellation) -> Event:
    """A subscription was canceled at the payment provider because it was removed here, or bought too late.

    The subscription was removed with its service or its user, or its service was already deleted when the user bought
    it.
    """
    details = {"service_id": str(cancellation.service_id), "at_provider": True}
    return Event(EVENT_KINDS["subscription.canceled"], str(cancellation.subscription_id), org_id=cancellation.org_id, details=details)


def api_key_created(key: ApiKey, service_slug: str) -> Event:
    """An API key was created."""
    details = _api_key_details(key, service_slug) | {
        "permissions": [permission.value for permission in key.permissions],
        "expires_at": None if key.expires_at is None else rfc3339(key.expires_at),
    }
    return Event(EVENT_KINDS["api_key.created"], str(key.id), org_id=key.org_id, details=details)


def api_key_deleted(key: ApiKey, service_slug: str) -> Event:
    """An API key was deleted."""
    return Event(EVENT_KINDS["api_key.deleted"], str(key.id), org_id=key.org_id, details=_api_key_details(key, service_slug))


def _api_key_details(key: ApiKey, service_slug: str) -> dict[str, Any]:
    return {"api_key_id": str(key.id), "service_id": str(key.service_id), "service_slug": service_slug, "name": key.name}
