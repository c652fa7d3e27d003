"""The events of the area federation.saml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from core.applications.services_rules import Service
    from core.federation.saml.configuration_rules import SamlCertificate, SamlConfiguration
from core.applications.events import service_details
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes


def saml_configured(service: Service, old: SamlConfiguration, new: SamlConfiguration) -> Event:
    """How a service has people signed in with SAML was changed: old and new value by the name of the field."""
    names = ("enabled", "entity_id", "acs_url", "slo_url", "name_id_format", "attribute_mapping", "sign_assertions", "sign_response")
    details = {**service_details(service), "changes": field_changes(old, new, *names)}
    return Event(EVENT_KINDS["saml.configured"], str(service.id), org_id=service.org_id, details=details)


def saml_disabled(service: Service) -> Event:
    """A service has nobody signed in with SAML any more, and its certificate is over."""
    return Event(EVENT_KINDS["saml.disabled"], str(service.id), org_id=service.org_id, details=service_details(service))


def saml_certificate_created(service: Service, certificate: SamlCertificate) -> Event:
    """What a service is told is signed with another key from now on."""
    details = {**service_details(service), "certificate_id": str(certificate.id), "valid_until": rfc3339(certificate.valid_until)}
    return Event(EVENT_KINDS["saml.certificate.created"], str(service.id), org_id=service.org_id, details=details)
