"""The organizations' connections, our keys there, and the providers' certificates. Client secrets and private keys are encrypted."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.authentication.oauth_credentials import connection_context
from adapters.postgres.engine import records, statements
from adapters.postgres.federation.saml.configuration import CERTIFICATE as KEY
from adapters.postgres.federation.saml.configuration import certificate_parameters, to_certificate
from core.federation.connections.model import connections
from core.federation.connections.model.settings import ClaimMapping, OidcSettings, SamlSettings, read_settings, to_document
from core.federation.saml.model import configuration
from core.kernel.values import Slug
from ports import crypto

CERTIFICATE: Final = records.Record(connections.ProviderCertificate, "x", source=connections.CertificateSource)
OF_CONNECTION: Final = "org_id = %(org_id)s and connection_id = %(connection_id)s"
LIVE_KEY: Final = "(k.state <> 'previous' or k.kept_until > %(now)s)"
IN_ORDER: Final = "order by x.added_at, x.fingerprint"


def key_secret_context(row: UUID) -> crypto.SecretContext:
    return crypto.SecretContext("connection_keys", str(row), "private_key")


def to_keys(vault: crypto.Vault, rows: Iterable[statements.Row]) -> dict[configuration.CertificateState, configuration.SamlCertificate]:
    """Return the keys in rows with the columns KEY and the state, in the order of `CertificateState`."""
    keys = {row[-1]: to_certificate(vault, row[:-1], key_secret_context) for row in rows}
    return {state: keys[state] for state in configuration.CertificateState if state in keys}


class ConnectionKeys(statements.SealingRepository):
    """Implements `ports.storage.federation.connections.ConnectionKeys`."""

    async def of_connection(
        self, org_id: UUID, connection_id: UUID, now: datetime
    ) -> dict[configuration.CertificateState, configuration.SamlCertificate]:
        sql = f"select {KEY.columns}, k.state from connection_keys k where {OF_CONNECTION} and {LIVE_KEY}"
        return to_keys(self._vault, await self._rows(sql, org_id=org_id, connection_id=connection_id, now=now))

    async def add(
        self, org_id: UUID, connection_id: UUID, key: configuration.SamlCertificate, state: configuration.CertificateState
    ) -> None:
        sql = KEY.insert("connection_keys", "org_id", "connection_id", "state")
        values = certificate_parameters(self._vault, key, key_secret_context)
        await self._run(sql, **values, org_id=org_id, connection_id=connection_id, state=state)

    async def move(
        self, org_id: UUID, connection_id: UUID, of: configuration.CertificateState, to: configuration.CertificateState, now: datetime
    ) -> None:
        sql = f"""
            update connection_keys
            set state = %(to)s, kept_until = case when %(to)s::text = 'previous' then %(kept_until)s::timestamptz end
            where {OF_CONNECTION} and state = %(of)s"""
        await self._run(sql, org_id=org_id, connection_id=connection_id, of=of, to=to, kept_until=now + configuration.PREVIOUS_KEPT)

    async def remove(self, org_id: UUID, connection_id: UUID, state: configuration.CertificateState) -> bool:
        sql = f"delete from connection_keys where {OF_CONNECTION} and state = %(state)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, state=state) == 1

    async def certificates(self, org_id: UUID, connection_id: UUID) -> Sequence[connections.ProviderCertificate]:
        sql = f"select {CERTIFICATE.columns} from connection_certificates x where {OF_CONNECTION} {IN_ORDER}"
        return await self._all(CERTIFICATE.read, sql, org_id=org_id, connection_id=connection_id)

    async def add_certificate(self, org_id: UUID, connection_id: UUID, certificate: connections.ProviderCertificate) -> bool:
        sql = f"{CERTIFICATE.insert('connection_certificates', 'org_id', 'connection_id')} on conflict do nothing"
        return await self._run(sql, **CERTIFICATE.values(certificate), org_id=org_id, connection_id=connection_id) == 1

    async def activate_certificate(self, org_id: UUID, connection_id: UUID, fingerprint: str) -> bool:
        sql = f"update connection_certificates set is_active = true where {OF_CONNECTION} and fingerprint = %(fingerprint)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, fingerprint=fingerprint) == 1

    async def remove_certificate(self, org_id: UUID, connection_id: UUID, fingerprint: str) -> bool:
        sql = f"delete from connection_certificates where {OF_CONNECTION} and fingerprint = %(fingerprint)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, fingerprint=fingerprint) == 1


def _settings_values(settings: OidcSettings | SamlSettings) -> dict[str, Any]:
    return {"protocol": settings.protocol, "settings": Jsonb(to_document(settings))}


CONNECTION: Final = records.Record(
    connections.OrganizationConnection,
    "c",
    slug=Slug,
    state=connections.ConnectionState,
    mapping=records.Column(read=ClaimMapping.read, write=lambda mapping: Jsonb(mapping.document)),
    changed_by=tuple,
    settings=records.Columns("c.protocol, c.settings", 2, lambda row: read_settings(*row), _settings_values),
)
GROUP: Final = records.Record(connections.ConnectionGroup, "g")
FIXED: Final = ("id", "org_id", "slug", "created_at", "protocol", "client_secret_set_at")
OF_ACTIVE_ORG: Final = """
    from connections c join organizations o on o.id = c.org_id and o.status = 'active' where c.id = %(connection_id)s"""
CREDENTIALS: Final = f"""
    select {CONNECTION.columns}, c.client_secret,
        array(select row({KEY.columns}, k.state) from connection_keys k
              where k.org_id = c.org_id and k.connection_id = c.id and {LIVE_KEY}),
        array(select row({CERTIFICATE.columns}) from connection_certificates x
              where x.org_id = c.org_id and x.connection_id = c.id {IN_ORDER})
    {OF_ACTIVE_ORG}"""


USE_MESSAGE: Final = """
    insert into used_provider_messages (org_id, connection_id, message_hash, expires_at)
    values (%(org_id)s, %(connection_id)s, %(message_hash)s, %(expires_at)s) on conflict do nothing returning 1"""


def _message(org_id: UUID, connection_id: UUID, message_hash: bytes, expires_at: datetime) -> dict[str, object]:
    return {"org_id": org_id, "connection_id": connection_id, "message_hash": message_hash, "expires_at": expires_at}


class OrganizationConnections(statements.SealingRepository):
    """Implements `ports.storage.federation.connections.OrganizationConnections`."""

    constraints: ClassVar = {"connections_of_organizations_key": connections.ConnectionSlugTaken}

    async def of_org(self, org_id: UUID) -> list[connections.OrganizationConnection]:
        sql = f'select {CONNECTION.columns} from connections c where c.org_id = %(org_id)s order by c.slug collate "C"'
        return await self._all(CONNECTION.read, sql, org_id=org_id)

    async def by_slug(self, org_id: UUID, slug: str) -> connections.OrganizationConnection | None:
        sql = f"select {CONNECTION.columns} from connections c where c.org_id = %(org_id)s and c.slug = %(slug)s"
        return await self._one(CONNECTION.read, sql, org_id=org_id, slug=slug)

    async def of_active_org(self, connection_id: UUID) -> connections.OrganizationConnection | None:
        return await self._one(CONNECTION.read, f"select {CONNECTION.columns} {OF_ACTIVE_ORG}", connection_id=connection_id)

    def _open(self, connection_id: UUID, sealed: bytes) -> str:
        return self._vault.open(sealed, connection_context(connection_id)).decode()

    def _to_credentials(self, row: statements.Row) -> connections.ConnectionCredentials:
        connection, (secret, keys, certificates) = CONNECTION.read(row), row[CONNECTION.width :]
        return connections.ConnectionCredentials(
            connection,
            None if secret is None else self._open(connection.id, secret),
            to_keys(self._vault, keys),
            [CERTIFICATE.read(certificate) for certificate in certificates],
        )

    def credentials(self, connection_id: UUID, now: datetime) -> statements.Answer[connections.ConnectionCredentials | None]:
        return self._one(self._to_credentials, CREDENTIALS, connection_id=connection_id, now=now)

    async def client_secret(self, org_id: UUID, connection_id: UUID, issuer: str) -> str | None:
        sql = """
            select client_secret from connections
            where org_id = %(org_id)s and id = %(connection_id)s and client_secret is not null and settings->>'issuer' = %(issuer)s"""
        return await self._one(
            lambda row: self._open(connection_id, row[0]), sql, org_id=org_id, connection_id=connection_id, issuer=issuer
        )

    async def mapped_groups(self, org_id: UUID, connection_id: UUID) -> list[connections.MappedGroup]:
        sql = f"""
            select {GROUP.columns}, n.name from connection_groups g join groups n on n.id = g.group_id and n.org_id = g.org_id
            where g.org_id = %(org_id)s and g.connection_id = %(connection_id)s order by g.value nulls first, g.mapped_at, g.id"""
        return await self._all(
            lambda row: connections.MappedGroup(GROUP.read(row), row[GROUP.width]), sql, org_id=org_id, connection_id=connection_id
        )

    async def add(self, connection: connections.OrganizationConnection) -> None:
        await self._run(CONNECTION.insert("connections"), **CONNECTION.values(connection))

    async def save(self, connection: connections.OrganizationConnection) -> None:
        assignments = CONNECTION.assignments(without=FIXED)
        sql = f"update connections set {assignments} where org_id = %(org_id)s and id = %(id)s"
        await self._run(sql, **CONNECTION.values(connection))

    async def save_client_secret(self, org_id: UUID, connection_id: UUID, secret: str | None, set_at: datetime | None) -> None:
        await self._run(
            """
            update connections set client_secret = %(secret)s, client_secret_set_at = %(set_at)s
            where org_id = %(org_id)s and id = %(connection_id)s""",
            secret=None if secret is None else self._vault.seal(secret.encode(), connection_context(connection_id)),
            set_at=set_at,
            org_id=org_id,
            connection_id=connection_id,
        )

    async def remove(self, org_id: UUID, connection_id: UUID) -> None:
        await self._run(
            "delete from connections where org_id = %(org_id)s and id = %(connection_id)s", org_id=org_id, connection_id=connection_id
        )

    def use_message(self, org_id: UUID, connection_id: UUID, message_hash: bytes, expires_at: datetime) -> statements.Answer[bool]:
        return self._exists(USE_MESSAGE, **_message(org_id, connection_id, message_hash, expires_at))

    async def add_group(self, group: connections.ConnectionGroup) -> None:
        await self._run(GROUP.insert("connection_groups"), **GROUP.values(group))

    async def remove_group(self, org_id: UUID, connection_id: UUID, id_: UUID) -> bool:
        sql = "delete from connection_groups where org_id = %(org_id)s and connection_id = %(connection_id)s and id = %(id)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, id=id_) == 1
