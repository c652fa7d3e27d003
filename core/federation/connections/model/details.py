"""A connection with its keys and certificates, and the values that it lacks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from core.federation.connections.model import connections
from core.federation.connections.model.health import ConnectionHealth
from core.federation.connections.model.settings import OidcSettings, ProviderAuthentication, to_document
from core.federation.saml.model import configuration


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """A connection with our keys at the identity provider, its certificates, and the groups that it gives."""

    connection: connections.OrganizationConnection
    keys: Mapping[configuration.CertificateState, configuration.SamlCertificate]
    certificates: Sequence[connections.ProviderCertificate]
    groups: Sequence[connections.MappedGroup] = ()  # empty for a sign-in
    health: ConnectionHealth | None = None  # of `find`, if it is active and was refreshed

    @property
    def version(self) -> str:
        """A digest of what decides who comes in, and with which groups: settings, mapping, mapped groups and provider certificates."""
        parts = (
            str(self.connection.id),  # another connection can get the slug of one that was removed
            to_document(self.connection.settings),
            self.connection.mapping.document,
            sorted(each.fingerprint for each in self.certificates if each.is_active),
            sorted(str(each.mapping.id) for each in self.groups),
        )
        return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def missing(self) -> Sequence[connections.MissingPart]:
        """What the connection still needs before users can sign in through it. A test at the test provider needs nothing."""
        settings = self.connection.settings
        if self.connection.uses_test_provider:
            return []
        if isinstance(settings, OidcSettings):
            has_key = settings.client_authentication is ProviderAuthentication.PRIVATE_KEY_JWT
            needed = {
                connections.MissingPart.ISSUER: not settings.issuer,
                connections.MissingPart.CLIENT_ID: not settings.client_id,
                connections.MissingPart.CLIENT_SECRET: not has_key and self.connection.client_secret_set_at is None,
                connections.MissingPart.KEY: has_key and configuration.CertificateState.ACTIVE not in self.keys,
            }
        else:
            needed = {
                connections.MissingPart.ENTITY_ID: not settings.entity_id,
                connections.MissingPart.SSO_URL: not settings.sso_url,
                connections.MissingPart.CERTIFICATE: not any(each.is_active for each in self.certificates),
                connections.MissingPart.KEY: settings.signs_requests and configuration.CertificateState.ACTIVE not in self.keys,
            }
        return [part for part, is_missing in needed.items() if is_missing]

    def require_complete(self) -> None:
        """Check that nothing is missing. Raises: ConnectionIncomplete, with the names of the missing values."""
        if self.missing:
            names = ", ".join(part.label for part in self.missing)
            raise connections.ConnectionIncomplete(f"An active connection needs more values than this one has. Set these first: {names}.")
