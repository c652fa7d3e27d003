"""Constructors for the events of an organization's connections. They have no secrets, and no values of claims."""

from datetime import datetime
from typing import Any

from core.federation.connections.model.connections import ConnectionGroup, ConnectionIdentity, OrganizationConnection, ProviderCertificate
from core.federation.connections.model.health import ConnectionHealth
from core.federation.connections.model.settings import to_document
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import rfc3339


def created(connection: OrganizationConnection) -> Event:
    """A connection was created, as a draft."""
    details = {"protocol": connection.protocol.value, "settings": to_document(connection.settings)}
    return _event("connection.created", connection, details if connection.preset is None else {**details, "preset": connection.preset})


def updated(old: OrganizationConnection, new: OrganizationConnection) -> Event:
    """A connection was changed. The event has the old and new value of each changed field."""
    changes: dict[str, dict[str, object]] = {}
    if old.name != new.name:
        changes["name"] = {"old": old.name, "new": new.name}
    if old.client_secret_set_at is not None and new.client_secret_set_at is None:
        changes["client_secret"] = {"old": "set", "new": None}
    for before, after in ((to_document(old.settings), to_document(new.settings)), (old.mapping.document, new.mapping.document)):
        changes |= {field: {"old": before[field], "new": value} for field, value in after.items() if before[field] != value}
    return _event("connection.updated", new, {"changes": changes})


def deleted(connection: OrganizationConnection) -> Event:
    """A connection was deleted."""
    return _event("connection.deleted", connection)


def activated(connection: OrganizationConnection) -> Event:
    """A connection was activated: users sign in through it."""
    return _event("connection.activated", connection)


def deactivated(connection: OrganizationConnection) -> Event:
    """A connection was deactivated: no user signs in through it, and the sign-ins that came through it have ended."""
    return _event("connection.deactivated", connection)


def person_linked(identity: ConnectionIdentity) -> Event:
    """A connection knows an account from now on."""
    details = {"connection_id": str(identity.connection_id)}
    return Event(EVENT_KINDS["connection.person.linked"], str(identity.user_id), org_id=identity.org_id, details=details)


def group_mapped(connection: OrganizationConnection, mapping: ConnectionGroup) -> Event:
    """A connection gives a group from now on."""
    return _event("connection.group.mapped", connection, {"group_id": str(mapping.group_id), "value": mapping.value})


def group_unmapped(connection: OrganizationConnection, mapping: ConnectionGroup) -> Event:
    """A connection no longer gives a group."""
    return _event("connection.group.unmapped", connection, {"group_id": str(mapping.group_id), "value": mapping.value})


def client_secret_set(connection: OrganizationConnection) -> Event:
    """The client secret for the identity provider was set, or replaced."""
    return _event("connection.client_secret.set", connection)


def key_created(connection: OrganizationConnection, key: SamlCertificate) -> Event:
    """A connection got a key of ours: its first one, or the next one."""
    return _event("connection.key.created", connection, {"valid_until": rfc3339(key.valid_until)})


def key_activated(connection: OrganizationConnection, key: SamlCertificate) -> Event:
    """The next key of a connection became the active one."""
    return _event("connection.key.activated", connection, {"valid_until": rfc3339(key.valid_until)})


def certificate_added(connection: OrganizationConnection, certificate: ProviderCertificate) -> Event:
    """A connection trusts one more certificate of its identity provider."""
    return _event("connection.certificate.added", connection, _certificate(certificate))


def certificate_removed(connection: OrganizationConnection, certificate: ProviderCertificate) -> Event:
    """A connection trusts a certificate of its identity provider no longer."""
    return _event("connection.certificate.removed", connection, _certificate(certificate))


def certificate_expires(connection: OrganizationConnection, at: datetime, days: int) -> Event:
    """A certificate that the connection needs expires in at most this many days."""
    return _event("connection.certificate.expires", connection, {"valid_until": rfc3339(at), "days": days})


def failing(connection: OrganizationConnection, health: ConnectionHealth) -> Event:
    """Users cannot sign in through a connection."""
    return _event("connection.failing", connection, {"problem": health.problem})


def recovered(connection: OrganizationConnection) -> Event:
    """Users can sign in through a connection again."""
    return _event("connection.recovered", connection)


def _certificate(certificate: ProviderCertificate) -> dict[str, Any]:
    return {"fingerprint": certificate.fingerprint, "valid_until": rfc3339(certificate.valid_until)}


def _event(name: str, connection: OrganizationConnection, details: dict[str, Any] | None = None) -> Event:
    named = {"name": connection.name, "slug": connection.slug, **(details or {})}
    return Event(EVENT_KINDS[name], str(connection.id), org_id=connection.org_id, details=named)
