"""Constructors for events about API resources, service accounts and their credentials."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from core.accounts.model.email_queue import CreatedSecret, NoticedSecret
from core.applications.model.client_settings import client_label
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes
from core.kernel.values import rfc3339
from core.programs.model.api_resources import ApiResource, ResourceClient
from core.programs.model.credentials import Credential
from core.programs.model.registration_tokens import RegistrationToken
from core.programs.model.service_accounts import ServiceAccount, in_declared_order, scopes_in_order
from core.tenancy.model.groups import Group


def api_resource_created(resource: ApiResource) -> Event:
    """An API resource was created."""
    details = {
        **_resource_details(resource),
        "scopes": list(resource.scope_names),
        "token_seconds": resource.token_seconds,
        "policy": resource.policy.value,
    }
    return _resource_event("api_resource.created", resource, details)


def api_resource_updated(old: ApiResource, new: ApiResource) -> Event:
    """An API resource was changed. For every changed field, the event contains the old and new value."""
    changes = field_changes(old, new, "name", "token_seconds")
    for name, describe in (("scopes", _scopes_with_descriptions), ("implied_scopes", _implications)):
        if describe(old) != describe(new):
            changes[name] = {"old": describe(old), "new": describe(new)}
    return _resource_event("api_resource.updated", new, {**_resource_details(new), "changes": changes})


def api_resource_access_updated(old: ApiResource, new: ApiResource) -> Event:
    """An API resource's access policy was changed."""
    changes = {"policy": {"old": old.policy.value, "new": new.policy.value}}
    return _resource_event("api_resource.access.updated", new, {**_resource_details(new), "changes": changes})


def external_client_policy_updated(old: ApiResource, new: ApiResource) -> Event:
    """The external clients that may ask for an API resource were changed. For every changed field, the event has the old and new value."""
    names = "admit", "hosts", "scopes", "accepts_token_endpoint_audience", "registration"
    changes = field_changes(old.external_clients, new.external_clients, *names)
    return _resource_event("api_resource.external_clients.updated", new, {**_resource_details(new), "changes": changes})


def api_resource_deleted(resource: ApiResource) -> Event:
    """An API resource was deleted."""
    return _resource_event("api_resource.deleted", resource, _resource_details(resource))


def external_client_added(resource: ApiResource, client_uri: str, service_id: UUID) -> Event:
    """The first user in an organization gave an external client access to the API resource. `client` names the client."""
    return _resource_event(
        "external_client.added",
        resource,
        {**_resource_details(resource), "client": client_label(client_uri), "service_id": str(service_id)},
    )


def external_client_updated(resource: ApiResource, client_uri: str, service_id: UUID, changes: Mapping[str, object]) -> Event:
    """An external client has new metadata. For every changed field, the event contains the old and new value."""
    details = {"client": client_label(client_uri), "service_id": str(service_id), "changes": changes}
    return _resource_event("external_client.updated", resource, {**_resource_details(resource), **details})


def external_client_removed(org_id: UUID, client_uri: str, service_id: UUID) -> Event:
    """An external client was removed, because no user has used it for a long time. `client` names the external client."""
    return Event(EVENT_KINDS["external_client.removed"], str(service_id), org_id=org_id, details={"client": client_label(client_uri)})


def resource_client_updated(resource: ApiResource, client: ResourceClient) -> Event:
    """An application may ask for an API resource. `scopes` are the scopes that the application gets for itself."""
    details = {**_resource_details(resource), **_client_details(client), "scopes": list(client.scopes)}
    return _resource_event("api_resource.client.updated", resource, details)


def resource_client_removed(resource: ApiResource, client: ResourceClient) -> Event:
    """An application may no longer ask for an API resource."""
    return _resource_event("api_resource.client.removed", resource, {**_resource_details(resource), **_client_details(client)})


def user_assigned_to_resource(resource: ApiResource, user_id: UUID) -> Event:
    """A user was assigned to an API resource."""
    return _resource_user_event("api_resource.user.assigned", resource, user_id)


def user_unassigned_from_resource(resource: ApiResource, user_id: UUID) -> Event:
    """A user's assignment to an API resource ended. If a membership ends, this event is not recorded."""
    return _resource_user_event("api_resource.user.unassigned", resource, user_id)


def group_assigned_to_resource(resource: ApiResource, group: Group) -> Event:
    """A group was assigned to an API resource."""
    return _resource_group_event("api_resource.group.assigned", resource, group)


def group_unassigned_from_resource(resource: ApiResource, group: Group) -> Event:
    """A group's assignment to an API resource ended. If the group is deleted, this event is not recorded."""
    return _resource_group_event("api_resource.group.unassigned", resource, group)


def _resource_group_event(name: str, resource: ApiResource, group: Group) -> Event:
    details = {**_resource_details(resource), "group_name": group.name}
    return Event(EVENT_KINDS[name], str(group.id), org_id=resource.org_id, details=details)


def account_resource_updated(resource: ApiResource, account: ServiceAccount, scopes: Sequence[str]) -> Event:
    """A service account's scopes at an API resource were changed. Without scopes, the account gets no further tokens for it."""
    details = {**_resource_details(resource), "service_account_id": str(account.id), "service_account_name": account.name}
    return _resource_event("api_resource.service_account.updated", resource, {**details, "scopes": list(scopes)})


def resource_credential_created(resource: ApiResource, credential: Credential) -> Event:
    """An API resource's credential was created."""
    details = {**_resource_details(resource), **_credential_details(credential)}
    return _resource_event("api_resource.credential.created", resource, details)


def resource_credential_revoked(resource: ApiResource, credential: Credential) -> Event:
    """An API resource's credential was revoked."""
    details = {**_resource_details(resource), **_credential_details(credential)}
    return _resource_event("api_resource.credential.revoked", resource, details)


def created_secret_ended(org_id: UUID, secret: CreatedSecret) -> Event:
    """The owner ended an API key or a SCIM token that a service account had created."""
    if secret.kind is NoticedSecret.API_KEY:
        details = {"api_key_id": str(secret.id), "name": secret.name, "service_name": secret.holder}
        return Event(EVENT_KINDS["api_key.deleted"], str(secret.id), org_id=org_id, details=details)
    details = {"scim_token_id": str(secret.id), "name": secret.name, "prefix": secret.prefix}
    return Event(EVENT_KINDS["scim_token.revoked"], str(org_id), org_id=org_id, details=details)


def registration_token_created(token: RegistrationToken) -> Event:
    """A registration token was created. `uses` says how many applications can register with it."""
    details = {**_token_details(token), "uses": token.uses_left}
    return Event(EVENT_KINDS["registration_token.created"], str(token.org_id), org_id=token.org_id, details=details)


def registration_token_deleted(token: RegistrationToken) -> Event:
    """A registration token was deleted."""
    return Event(EVENT_KINDS["registration_token.deleted"], str(token.org_id), org_id=token.org_id, details=_token_details(token))


def _token_details(token: RegistrationToken) -> dict[str, Any]:
    return {"registration_token_id": str(token.id), "name": token.name, "prefix": token.prefix}


def _resource_event(name: str, resource: ApiResource, details: dict[str, Any]) -> Event:
    return Event(EVENT_KINDS[name], str(resource.id), org_id=resource.org_id, details=details)


def _resource_user_event(name: str, resource: ApiResource, user_id: UUID) -> Event:
    details = {**_resource_details(resource), "api_resource_id": str(resource.id)}
    return Event(EVENT_KINDS[name], str(user_id), org_id=resource.org_id, details=details)


def _resource_details(resource: ApiResource) -> dict[str, Any]:
    return {"identifier": resource.identifier, "name": resource.name}


def _client_details(client: ResourceClient) -> dict[str, Any]:
    return {"client_id": str(client.client_id), "service_slug": client.slug, "service_name": client.name}


def _scopes_with_descriptions(resource: ApiResource) -> dict[str, str]:
    return {scope.name: scope.description for scope in resource.scopes}


def _implications(resource: ApiResource) -> dict[str, Any]:
    return {name: list(implied) for name, implied in resource.implications.items()}


def service_account_created(account: ServiceAccount) -> Event:
    """A service account was created. If the account belongs to the platform, the event is in the platform's log."""
    return _account_event("service_account.created", account, _account_fields(account))


def service_account_updated(old: ServiceAccount, new: ServiceAccount) -> Event:
    """A service account was changed. For every changed field, the event contains the old and new value."""
    before, after = _account_fields(old), _account_fields(new)
    changes = {name: {"old": before[name], "new": value} for name, value in after.items() if before[name] != value}
    return _account_event("service_account.updated", new, {"name": new.name, "changes": changes})


def service_account_deleted(account: ServiceAccount) -> Event:
    """A service account was deleted with its credentials."""
    return _account_event("service_account.deleted", account, {"name": account.name})


def credential_created(account: ServiceAccount, credential: Credential) -> Event:
    """A service account's credential was created."""
    return _account_event("service_account.credential.created", account, {"name": account.name, **_credential_details(credential)})


def credential_revoked(account: ServiceAccount, credential: Credential) -> Event:
    """A service account's credential was revoked."""
    return _account_event("service_account.credential.revoked", account, {"name": account.name, **_credential_details(credential)})


def _account_event(name: str, account: ServiceAccount, details: dict[str, Any]) -> Event:
    return Event(EVENT_KINDS[name], str(account.id), org_id=account.org_id, details=details)


def _account_fields(account: ServiceAccount) -> dict[str, Any]:
    return {
        "name": account.name,
        "owner_id": str(account.owner_id),
        "role": account.role,
        "scopes": scopes_in_order(account.scopes),
        "granted_capabilities": in_declared_order(account.granted),
    }


def _credential_details(credential: Credential) -> dict[str, Any]:
    details: dict[str, Any] = {
        "credential_id": str(credential.id),
        "credential_name": credential.name,
        "kind": credential.kind.value,
        "expires_at": None if credential.expires_at is None else rfc3339(credential.expires_at),
    }
    if credential.trust is None:
        return details | {"hint": credential.hint}
    return details | {"issuer": credential.trust.issuer, "audience": credential.trust.audience, "subject": credential.trust.subject}
