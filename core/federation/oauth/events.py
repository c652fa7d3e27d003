"""Constructors for the events of consents."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from core.applications.events import service_details
from core.applications.model.client_settings import client_label
from core.applications.model.services import Service
from core.authentication.model.openid import OpenIdGrant, Scope
from core.federation.oauth.model.consents import Consent, ExternalGrant
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.programs.model.api_resources import ApiResource


def consent_granted(service: Service, user_id: UUID, scope: Iterable[Scope], grant: OpenIdGrant) -> Event:
    """A user consented to these scopes of an application, and to its access to the API resource of the grant, if it has one.

    It is sent only for a new scope, redirect URI or authentication. `client` is the address of an external client.
    """
    details: dict[str, Any] = {**service_details(service), "service_id": str(service.id), "scopes": [name.value for name in scope]}
    if service.client_uri is not None:
        details["client"] = client_label(service.client_uri)
    if grant.api is not None:
        details["api_resources"] = [{"identifier": grant.resource, "scopes": list(grant.api.scope)}]
    return Event(EVENT_KINDS["consent.granted"], str(user_id), org_id=service.org_id, details=details)


def consent_withdrawn(consent: Consent, user_id: UUID) -> Event:
    """A user withdrew their consent to an application. `scopes` are the scopes that the user had agreed to.

    `client` is the address of an external client.
    """
    details: dict[str, Any] = {
        "service_slug": consent.service_slug,
        "service_name": consent.service,
        "service_id": str(consent.service_id),
        "scopes": [name.value for name in consent.scope],
    }
    if consent.client_uri is not None:
        details["client"] = client_label(consent.client_uri)
    if consent.apis:
        details["api_resources"] = [{"identifier": api.identifier, "scopes": [scope.name for scope in api.scopes]} for api in consent.apis]
    return Event(EVENT_KINDS["consent.withdrawn"], str(user_id), org_id=consent.org_id, details=details)


def external_grant_ended(resource: ApiResource, grant: ExternalGrant) -> Event:
    """An admin ended the access of an external client to an API resource for a user. `client` is the address of the client."""
    details: dict[str, Any] = {
        "identifier": resource.identifier,
        "name": resource.name,
        "api_resource_id": str(resource.id),
        "client": client_label(grant.client_uri),
        "client_name": grant.client_name,
        "scopes": list(grant.scopes),
    }
    return Event(EVENT_KINDS["api_resource.grant.ended"], str(grant.user_id), org_id=resource.org_id, details=details)
