"""A tenant's connection, with everything that belongs to it."""

from collections.abc import Mapping
from dataclasses import asdict

from core.accounts.model.accounts import Account
from core.federation.connections.model.connections import CertificateSource, ConnectionIdentity, ProviderCertificate
from core.federation.connections.model.settings import OidcSettings
from core.federation.saml.model.configuration import CertificateState
from core.kernel.causes import SYSTEM
from core.tenancy.model.organizations import Organization
from ports import Ports
from tests.support.connections import add_connection
from tests.support.saml import new_certificate


async def add_connection_of_tenant(ports: Ports, organization: Organization, user: Account) -> Mapping[str, str]:
    """Add a connection with a next key and a certificate, at which a user is known. Return what requests name."""
    slug, now = organization.slug, ports.clock.now()
    # At an address that the guard refuses, so that checks need no resolver.
    settings = OidcSettings(issuer=f"https://192.0.2.1/{slug}", client_id=f"{slug}-client")
    connection = await add_connection(
        ports.storage, organization.id, f"{slug}-okta", name=f"{slug} Okta", settings=settings, created_at=now
    )
    keys = {state: await new_certificate(now, slug) for state in (CertificateState.ACTIVE, CertificateState.NEXT)}
    facts = await ports.certificates.facts((await new_certificate(now, slug)).certificate)
    certificate = ProviderCertificate(**asdict(facts), source=CertificateSource.ADMIN, is_active=True, added_at=now)
    identity = ConnectionIdentity(
        org_id=organization.id,
        connection_id=connection.id,
        user_id=user.id,
        subject=f"{slug}-subject",
        email=user.email,
        linked_at=now,
        last_used_at=now,
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(organization.id, connection.id, f"{slug}-client-secret", now)
        for state, key in keys.items():
            await tx.connection_keys.add(organization.id, connection.id, key, state)
        await tx.connection_keys.add_certificate(organization.id, connection.id, certificate)
        await tx.connection_identities.add(identity)
    return {
        "connection_id": str(connection.id),
        "connection_slug": connection.slug,
        "fingerprint": certificate.fingerprint,
        "another_certificate": (await new_certificate(now, "another")).certificate,
    }
