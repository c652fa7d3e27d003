"""Our keys at the organizations' identity providers, and the providers' certificates. The private keys are encrypted."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Row, SealingRepository
from adapters.postgres.federation.saml.configuration import StoredKey
from core.federation.connections.model.connections import CertificateSource, ProviderCertificate
from core.federation.saml.model.configuration import PREVIOUS_KEPT, CertificateState, SamlCertificate
from ports.crypto import SecretContext, Vault

CERTIFICATE: Final = Record(ProviderCertificate, "x", source=CertificateSource)
OF_CONNECTION: Final = "org_id = %(org_id)s and connection_id = %(connection_id)s"
KEY: Final = "k.state, k.id, k.certificate, k.private_key, k.valid_from, k.valid_until, k.created_at, k.kept_until"
LIVE_KEY: Final = "(k.state <> 'previous' or k.kept_until > %(now)s)"
IN_ORDER: Final = "order by x.added_at, x.fingerprint"


def secret_context(row: UUID) -> SecretContext:
    return SecretContext("connection_keys", str(row), "private_key")


def to_keys(vault: Vault, rows: Iterable[Row]) -> dict[CertificateState, SamlCertificate]:
    """Return the keys in rows with the columns KEY, in the order of `CertificateState`."""
    keys = {}
    for state, id_, certificate, private_key, valid_from, valid_until, created_at, kept_until in rows:
        keys[state] = SamlCertificate(
            id=id_,
            certificate=certificate,
            private_key=StoredKey(vault, private_key, secret_context(id_)),
            valid_from=valid_from,
            valid_until=valid_until,
            created_at=created_at,
            kept_until=kept_until,
        )
    return {state: keys[state] for state in CertificateState if state in keys}


class ConnectionKeys(SealingRepository):
    """Implements `ports.storage.federation.connections.ConnectionKeys`."""

    async def of_connection(self, org_id: UUID, connection_id: UUID, now: datetime) -> dict[CertificateState, SamlCertificate]:
        sql = f"select {KEY} from connection_keys k where {OF_CONNECTION} and {LIVE_KEY}"
        return to_keys(self._vault, await self._rows(sql, org_id=org_id, connection_id=connection_id, now=now))

    async def add(self, org_id: UUID, connection_id: UUID, key: SamlCertificate, state: CertificateState) -> None:
        await self._run(
            """
            insert into connection_keys (id, org_id, connection_id, state, certificate, private_key, valid_from, valid_until, created_at)
            values (%(id)s, %(org_id)s, %(connection_id)s, %(state)s, %(certificate)s, %(private_key)s, %(valid_from)s, %(valid_until)s,
                    %(created_at)s)""",
            id=key.id,
            org_id=org_id,
            connection_id=connection_id,
            state=state,
            certificate=key.certificate,
            private_key=self._vault.seal(key.private_key(), secret_context(key.id)),
            valid_from=key.valid_from,
            valid_until=key.valid_until,
            created_at=key.created_at,
        )

    async def move(self, org_id: UUID, connection_id: UUID, of: CertificateState, to: CertificateState, now: datetime) -> None:
        await self._run(
            f"""
            update connection_keys
            set state = %(to)s, kept_until = case when %(to)s::text = 'previous' then %(kept_until)s::timestamptz end
            where {OF_CONNECTION} and state = %(of)s""",
            org_id=org_id,
            connection_id=connection_id,
            of=of,
            to=to,
            kept_until=now + PREVIOUS_KEPT,
        )

    async def remove(self, org_id: UUID, connection_id: UUID, state: CertificateState) -> bool:
        sql = f"delete from connection_keys where {OF_CONNECTION} and state = %(state)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, state=state) == 1

    async def certificates(self, org_id: UUID, connection_id: UUID) -> Sequence[ProviderCertificate]:
        sql = f"select {CERTIFICATE.columns} from connection_certificates x where {OF_CONNECTION} {IN_ORDER}"
        return await self._all(CERTIFICATE.read, sql, org_id=org_id, connection_id=connection_id)

    async def add_certificate(self, org_id: UUID, connection_id: UUID, certificate: ProviderCertificate) -> bool:
        sql = f"{CERTIFICATE.insert('connection_certificates', 'org_id', 'connection_id')} on conflict do nothing"
        return await self._run(sql, **CERTIFICATE.values(certificate), org_id=org_id, connection_id=connection_id) == 1

    async def activate_certificate(self, org_id: UUID, connection_id: UUID, fingerprint: str) -> bool:
        sql = f"update connection_certificates set is_active = true where {OF_CONNECTION} and fingerprint = %(fingerprint)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, fingerprint=fingerprint) == 1

    async def remove_certificate(self, org_id: UUID, connection_id: UUID, fingerprint: str) -> bool:
        sql = f"delete from connection_certificates where {OF_CONNECTION} and fingerprint = %(fingerprint)s"
        return await self._run(sql, org_id=org_id, connection_id=connection_id, fingerprint=fingerprint) == 1
