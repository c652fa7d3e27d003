"""Constructors for the events of SAML configurations and certificates."""

from dataclasses import asdict

from core.applications.events import service_details
from core.applications.model.services import Service
from core.federation.saml.model.configuration import SamlCertificate, SamlConfiguration
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes
from core.kernel.values import rfc3339


def saml_configured(service: Service, old: SamlConfiguration, new: SamlConfiguration) -> Event:
    """The SAML configuration of a service changed.

    The details have the old and the new value of each changed field.
    """
    names = (
        *("enabled", "entity_id", "acs_url", "slo_url", "slo_response_url", "slo_certificate_sha256"),
        *("name_id_format", "attribute_mapping", "sign_assertions", "sign_response"),
    )
    formats = {"attribute_formats": {"old": _formats(old), "new": _formats(new)}} if old.attribute_formats != new.attribute_formats else {}
    details = {**service_details(service), "changes": field_changes(old, new, *names) | formats}
    return Event(EVENT_KINDS["saml.configured"], str(service.id), org_id=service.org_id, details=details)


def _formats(configuration: SamlConfiguration) -> dict[str, object] | None:
    formats = configuration.attribute_formats
    return None if formats is None else {name: asdict(each) for name, each in formats.items()}


def saml_disabled(service: Service) -> Event:
    """SAML was disabled for a service, and its certificate deactivated."""
    return Event(EVENT_KINDS["saml.disabled"], str(service.id), org_id=service.org_id, details=service_details(service))


def saml_certificate_created(service: Service, certificate: SamlCertificate) -> Event:
    """A service got a new signing certificate, which replaces all its others at once."""
    return _certificate_event("saml.certificate.created", service, certificate)


def saml_next_certificate_created(service: Service, certificate: SamlCertificate) -> Event:
    """A service got a next certificate, which is in its metadata but does not sign yet."""
    return _certificate_event("saml.certificate.next_created", service, certificate)


def saml_next_certificate_deleted(service: Service, certificate: SamlCertificate) -> Event:
    """The next certificate of a service was deleted."""
    return _certificate_event("saml.certificate.next_deleted", service, certificate)


def saml_certificate_activated(service: Service, certificate: SamlCertificate) -> Event:
    """The next certificate of a service became the active one."""
    return _certificate_event("saml.certificate.activated", service, certificate)


def saml_activation_undone(service: Service, certificate: SamlCertificate) -> Event:
    """The previous certificate of a service became the active one again."""
    return _certificate_event("saml.certificate.activation_undone", service, certificate)


def _certificate_event(name: str, service: Service, certificate: SamlCertificate) -> Event:
    details = {**service_details(service), "certificate_id": str(certificate.id), "valid_until": rfc3339(certificate.valid_until)}
    return Event(EVENT_KINDS[name], str(service.id), org_id=service.org_id, details=details)
