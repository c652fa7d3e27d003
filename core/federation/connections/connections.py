"""The connections of an organization: its members set up the identity providers through which its users sign in.

A new connection is a draft, which signs no user in until it is activated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.federation.connections import access, events, mapped_groups
from core.federation.connections.model import connections, presets
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.health import ConnectionHealth
from core.federation.connections.model.settings import ClaimMapping, OidcSettings, SamlSettings
from core.federation.saml.model import configuration
from core.kernel import values
from core.kernel.callers import OrganizationCaller
from core.kernel.connections import TEST_PROVIDER, ConnectionProtocol
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import imposed_rules, organizations, sign_in_policies
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDraft:
    """The values of a new connection. Without a mapping, it gets that of its preset."""

    slug: values.Slug
    name: str
    preset: str | None
    settings: OidcSettings | SamlSettings
    mapping: ClaimMapping | None = None


async def list_own(ports: Ports, caller: OrganizationCaller) -> list[connections.OrganizationConnection]:
    """Return the connections of the caller's organization, by slug. There are at most MAX_CONNECTIONS."""
    async with ports.storage.reading() as read:
        return await read.connections.of_org(caller.acts_in.id)


async def list_health(ports: Ports, caller: OrganizationCaller) -> Mapping[UUID, ConnectionHealth]:
    """Return the health of the caller's active connections that were refreshed, by the id of the connection."""
    async with ports.storage.reading() as read:
        return await read.connection_healths.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: OrganizationCaller, slug: str) -> ConnectionDetails:
    """Return a connection of the caller's organization."""
    async with ports.storage.reading() as read:
        connection = await read.connections.by_slug(caller.acts_in.id, slug) or refuse(connections.OrganizationConnectionNotFound)
        health = (await read.connection_healths.of_org(connection.org_id)).get(connection.id)
        return replace(await access.load_details(read, connection, ports.clock.now()), health=health)


async def create(ports: Ports, caller: OrganizationCaller, draft: ConnectionDraft) -> connections.OrganizationConnection:
    """Add a connection, as a draft."""
    if draft.preset not in (None, TEST_PROVIDER, *presets.PRESETS):
        raise presets.PresetUnknown
    connection = new_draft(caller.acts_in.id, draft, ports.clock.now(), values.new_id())
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        await add(tx, caller, connection)
    return connection


def new_draft(org_id: UUID, draft: ConnectionDraft, now: datetime, id_: UUID) -> connections.OrganizationConnection:
    """Return a new connection with the values of a draft."""
    settings = draft.settings.check()
    return connections.OrganizationConnection(
        id=id_,
        org_id=org_id,
        slug=draft.slug,
        name=draft.name,
        preset=draft.preset,
        state=connections.ConnectionState.DRAFT,
        mapping=(draft.mapping or presets.default_mapping(draft.preset, settings.protocol)).check(),
        created_at=now,
        settings=settings,
    )


async def add(tx: Transaction, caller: OrganizationCaller, connection: connections.OrganizationConnection) -> None:
    """Store a new connection. The caller has locked the organization."""
    if len(await tx.connections.of_org(connection.org_id)) >= connections.MAX_CONNECTIONS:
        raise connections.TooManyConnections
    await tx.connections.add(replace(connection, changed_by=(caller.actor_id,)))
    tx.record(events.created(connection))


async def change(
    ports: Ports,
    caller: OrganizationCaller,
    slug: str,
    *,
    name: str | values.Keep = values.KEEP,
    settings: OidcSettings | SamlSettings | values.Keep = values.KEEP,
    mapping: ClaimMapping | values.Keep = values.KEEP,
) -> connections.OrganizationConnection:
    """Change a connection. The protocol is fixed, and from the first activation on the values by which users are known.

    Raises: OrganizationConnectionNotFound, ConnectionSettingInvalid, ConnectionFieldFixed, ConnectionIncomplete, ConnectionAboveOwn;
    the errors of `require_power_over_users`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        old = await access.lock_to_change(tx, caller, slug)
        new = replace(old, **values.provided(name=name, settings=settings, mapping=mapping))
        if new.settings != old.settings:
            await require_power_over_trust(tx, caller, old)
        if new.mapping != old.mapping and old.is_active:  # another claim could name another user's address
            await access.require_power_over_users(tx, caller)
        if mapping is not values.KEEP and new.mapping.groups != old.mapping.groups:
            await mapped_groups.require_power(tx, caller, old)
        if (new.settings, new.mapping) != (old.settings, old.mapping):
            await imposed_rules.impose_connection(tx, caller, old.as_required, ports.clock.now())
        return await save_change(tx, old, new)


async def save_change(
    tx: Transaction, old: connections.OrganizationConnection, new: connections.OrganizationConnection
) -> connections.OrganizationConnection:
    """Check and save a locked connection."""
    new = replace(new, settings=new.settings.check(), mapping=new.mapping.check())
    if new.protocol is not old.protocol or (old.first_activated_at is not None and new.settings.identity != old.settings.identity):
        raise connections.ConnectionFieldFixed
    # The secret was entered for the earlier issuer. The new issuer must not get it (security #stored-secrets).
    if old.client_secret_set_at is not None and new.settings.identity != old.settings.identity:
        new = replace(new, client_secret_set_at=None)
        await tx.connections.save_client_secret(new.org_id, new.id, None, None)
    if new != old:
        await tx.connections.save(new)
        tx.record(events.updated(old, new))
    if new.settings != old.settings:
        await _require_complete(tx, new)
    return new


async def _require_complete(tx: Transaction, changed: connections.OrganizationConnection) -> None:
    """Check that users can still sign in through a connection if it is active."""
    if changed.is_active:
        (await access.load_details(tx, changed, changed.created_at)).require_complete()


async def activate(ports: Ports, caller: OrganizationCaller, slug: str, version: str | None = None) -> None:
    """Let users sign in through a connection. From the first time on, the values by which users are known are fixed.

    `version` is from the details that the caller read. Otherwise a member with `integrations.manage` alone could change who comes in just
    before the caller activates the connection (security S-12). None: the present version, if only the caller has changed the connection
    since its last activation.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        old = await access.lock_to_refresh(tx, caller, slug)
        if old.uses_test_provider:
            raise connections.ConnectionForTestsOnly
        details = await access.load_details(tx, old, now)
        if version not in (None, details.version):
            raise connections.ConnectionChanged
        if old.is_active:
            return
        await access.require_power_over_users(tx, caller)
        details.require_complete()
        if version is None and old.is_changed_by_others(caller.actor_id):
            raise connections.ConnectionChangedByOthers
        new = replace(old, state=connections.ConnectionState.ACTIVE, first_activated_at=old.first_activated_at or now, changed_by=())
        await tx.connections.save(new)
        tx.record(events.activated(new))


async def deactivate(ports: Ports, caller: OrganizationCaller, slug: str) -> None:
    """Let no user sign in through a connection, and end the sign-ins that came through it."""
    async with ports.storage.transaction(by=caller) as tx:
        old = await access.lock_to_refresh(tx, caller, slug)
        if not old.is_active:
            return
        await sign_in_policies.require_not_required(tx, old.org_id, old.id)
        await tx.connections.save(replace(old, state=connections.ConnectionState.INACTIVE))
        await tx.session_sign_ins.end_of_connection(old.org_id, old.id, None, ports.clock.now())
        tx.record(events.deactivated(old))


async def remove(ports: Ports, caller: OrganizationCaller, slug: str) -> None:
    """Remove a connection with its keys, and end the sign-ins that came through it."""
    async with ports.storage.transaction(by=caller) as tx:
        connection = await access.lock(tx, caller, slug)
        await sign_in_policies.require_not_required(tx, connection.org_id, connection.id)
        if any(route.slug == connection.slug for route in await tx.home_realm.routes(connection.org_id)):
            raise connections.ConnectionRouted
        await tx.session_sign_ins.end_of_connection(connection.org_id, connection.id, None, ports.clock.now())
        await tx.connections.remove(connection.org_id, connection.id)
        tx.record(events.deleted(connection))


async def put_client_secret(
    ports: Ports, caller: OrganizationCaller, slug: str, secret: str, issuer: str | None
) -> connections.OrganizationConnection:
    """Store the secret with which we authenticate at the identity provider. It replaces the earlier secret, and is never returned.

    `issuer` is the issuer that the caller enters the secret for. None: the present issuer, unless another caller could have changed it.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        connection = await _lock_to_replace(tx, caller, slug, now)
        if connection.protocol is not ConnectionProtocol.OIDC:
            raise connections.ClientSecretNotUsed
        if issuer is not None and (issuer,) != connection.settings.identity:
            raise connections.ConnectionChanged
        if issuer is None and connection.first_activated_at is None and connection.is_changed_by_others(caller.actor_id):
            raise connections.ConnectionChangedByOthers
        await tx.connections.save_client_secret(connection.org_id, connection.id, secret, now)
        tx.record(events.client_secret_set(connection))
    return replace(connection, client_secret_set_at=now)


async def create_key(
    ports: Ports, caller: OrganizationCaller, slug: str
) -> tuple[configuration.SamlCertificate, configuration.CertificateState]:
    """Create a key of ours for a connection. The first key is active at once. A later key waits for its activation."""
    await find(ports, caller, slug)  # before generating a key, which takes long
    key = await ports.certificates.create(caller.acts_in.slug, slug, ports.clock.now(), configuration.CERTIFICATE_YEARS)
    async with ports.storage.transaction(by=caller) as tx:
        connection = await access.lock_to_change(tx, caller, slug)
        keys = await tx.connection_keys.of_connection(connection.org_id, connection.id, ports.clock.now())
        if configuration.CertificateState.NEXT in keys:
            raise connections.NextKeyExists
        state = (
            configuration.CertificateState.NEXT if configuration.CertificateState.ACTIVE in keys else configuration.CertificateState.ACTIVE
        )
        await tx.connection_keys.add(connection.org_id, connection.id, key, state)
        tx.record(events.key_created(connection, key))
    return key, state


async def activate_key(ports: Ports, caller: OrganizationCaller, slug: str) -> configuration.SamlCertificate:
    """Use the next key from now on, and return it. The previous key stays published, and decrypts, for PREVIOUS_KEPT."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        connection = await _lock_to_replace(tx, caller, slug, now)
        org_id, id_ = connection.org_id, connection.id
        key = (await tx.connection_keys.of_connection(org_id, id_, now)).get(configuration.CertificateState.NEXT) or refuse(
            connections.ConnectionKeyNotFound
        )
        await tx.connection_keys.remove(org_id, id_, configuration.CertificateState.PREVIOUS)
        await tx.connection_keys.move(org_id, id_, configuration.CertificateState.ACTIVE, configuration.CertificateState.PREVIOUS, now)
        await tx.connection_keys.move(org_id, id_, configuration.CertificateState.NEXT, configuration.CertificateState.ACTIVE, now)
        tx.record(events.key_activated(connection, key))
    return key


async def add_certificate(ports: Ports, caller: OrganizationCaller, slug: str, pem: str) -> connections.ProviderCertificate:
    """Trust a further certificate of the identity provider, and return it."""
    facts = await ports.certificates.facts(pem)
    certificate = connections.ProviderCertificate(
        fingerprint=facts.fingerprint,
        certificate=facts.certificate,
        valid_from=facts.valid_from,
        valid_until=facts.valid_until,
        source=connections.CertificateSource.ADMIN,
        is_active=True,
        added_at=ports.clock.now(),
    )
    async with ports.storage.transaction(by=caller) as tx:
        await trust(tx, caller, slug, certificate)
    return certificate


async def trust(tx: Transaction, caller: OrganizationCaller, slug: str, certificate: connections.ProviderCertificate) -> None:
    """Lock a connection, and let it trust a further certificate."""
    connection = await access.lock_to_change(tx, caller, slug)
    await require_power_over_trust(tx, caller, connection)
    if len(await tx.connection_keys.certificates(connection.org_id, connection.id)) >= connections.MAX_CERTIFICATES:
        raise connections.TooManyProviderCertificates
    if not await tx.connection_keys.add_certificate(connection.org_id, connection.id, certificate):
        raise connections.ProviderCertificateExists
    tx.record(events.certificate_added(connection, certificate))


async def remove_certificate(ports: Ports, caller: OrganizationCaller, slug: str, fingerprint: str) -> None:
    """Stop trusting an identity provider's certificate. An active connection keeps its last certificate."""
    async with ports.storage.transaction(by=caller) as tx:
        connection = await _lock_to_replace(tx, caller, slug, ports.clock.now())
        present = {each.fingerprint: each for each in await tx.connection_keys.certificates(connection.org_id, connection.id)}
        certificate = present.get(fingerprint) or refuse(connections.ProviderCertificateNotFound)
        await tx.connection_keys.remove_certificate(connection.org_id, connection.id, fingerprint)
        tx.record(events.certificate_removed(connection, certificate))
        await _require_complete(tx, connection)


async def _lock_to_replace(tx: Transaction, caller: OrganizationCaller, slug: str, now: datetime) -> connections.OrganizationConnection:
    """Lock a connection before its secret, key or certificate is replaced.

    A wrong key stops the sign-ins through the connection. If a sign-in policy requires the connection, this can lock the owner out. So the
    caller needs the same power as for changes of its settings, and the owner can remove the requirement.
    """
    connection = await access.lock_to_change(tx, caller, slug)
    if await imposed_rules.impose_connection(tx, caller, connection.as_required, now):
        await access.require_power_over_users(tx, caller)
    return connection


async def require_power_over_trust(tx: Transaction, caller: OrganizationCaller, connection: connections.OrganizationConnection) -> None:
    """Check that the caller may change what a connection trusts.

    The caller of an active one has power over its users. With SAML, the caller has all rights of each member that the connection knows,
    too. Else the caller could sign in as a member with more rights, such as the owner. With OpenID Connect, the issuer is fixed, and
    publishes its keys itself.
    """
    if connection.is_active:
        await access.require_power_over_users(tx, caller)
    if connection.protocol is ConnectionProtocol.OIDC:
        return
    await access.require_rights_of_people(tx, caller, connection, connections.ConnectionAboveOwn)
