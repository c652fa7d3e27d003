"""Credentials of service accounts and API resources."""

from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.statements import Repository, Row
from core.programs.credentials_rules import Credential, CredentialKind, PipelineTrust

# In the order in which `to_credential` reads them
COLUMNS: Final = (
    "c.id, c.client_id, c.org_id, c.kind, c.name, c.hint, c.public_key, c.issuer, c.audience, c.subject, c.expires_at, c.created_by, "
    "c.created_at, c.last_used_at"
)
OF_CLIENT: Final = "c.org_id is not distinct from %(org_id)s and c.client_id = %(client_id)s"


def to_credential(row: Row) -> Credential:
    return Credential(
        id=row[0],
        client_id=row[1],
        org_id=row[2],
        kind=CredentialKind(row[3]),
        name=row[4],
        hint=row[5],
        public_key=row[6],
        trust=None if row[7] is None else PipelineTrust(row[7], row[8], row[9]),
        expires_at=row[10],
        created_by=row[11],
        created_at=row[12],
        last_used_at=row[13],
    )


class Credentials(Repository):
    """Implements `ports.storage.programs.Credentials`."""

    async def of_client(self, org_id: UUID | None, client_id: UUID) -> list[Credential]:
        return await self._all(
            to_credential,
            f"select {COLUMNS} from credentials c where {OF_CLIENT} order by c.created_at desc, c.id desc",
            org_id=org_id,
            client_id=client_id,
        )

    async def by_id(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> Credential | None:
        return await self._one(
            to_credential,
            f"select {COLUMNS} from credentials c where {OF_CLIENT} and c.id = %(credential_id)s",
            org_id=org_id,
            client_id=client_id,
            credential_id=credential_id,
        )

    async def add(self, credential: Credential, secret_hash: bytes | None) -> None:
        trust = credential.trust
        await self._run(
            """
            insert into credentials (id, client_id, org_id, kind, name, hint, secret_hash, public_key, issuer, audience, subject,
                                     expires_at, created_by, created_at, last_used_at)
            values (%(id)s, %(client_id)s, %(org_id)s, %(kind)s, %(name)s, %(hint)s, %(secret_hash)s, %(public_key)s, %(issuer)s,
                    %(audience)s, %(subject)s, %(expires_at)s, %(created_by)s, %(created_at)s, %(last_used_at)s)""",
            id=credential.id,
            client_id=credential.client_id,
            org_id=credential.org_id,
            kind=credential.kind,
            name=credential.name,
            hint=credential.hint,
            secret_hash=secret_hash,
            public_key=None if credential.public_key is None else Jsonb(dict(credential.public_key)),
            issuer=None if trust is None else trust.issuer,
            audience=None if trust is None else trust.audience,
            subject=None if trust is None else trust.subject,
            expires_at=credential.expires_at,
            created_by=credential.created_by,
            created_at=credential.created_at,
            last_used_at=credential.last_used_at,
        )

    async def remove(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> None:
        await self._run(
            f"delete from credentials c where {OF_CLIENT} and c.id = %(credential_id)s",
            org_id=org_id,
            client_id=client_id,
            credential_id=credential_id,
        )
