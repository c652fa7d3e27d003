"""Programs' service accounts and credentials, inserted as the use cases leave them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.kernel.scannable_secrets import CREDENTIAL_PREFIX, generate
from core.kernel.values import digest, new_id
from tests.support.builders import Answer, Api, run_sql

TOKEN = "/auth/token"


@dataclass(frozen=True, slots=True)
class Program:
    """A service account or an API resource with a secret."""

    api: Api
    client_id: UUID
    secret: str = field(repr=False)
    credential_id: UUID

    async def ask(self, headers: Mapping[str, str] | None = None, path: str = TOKEN, /, **fields: str | None) -> Answer:
        """Ask for its own token, or send the fields to another path. A field with None is left out."""
        sent = {"grant_type": "client_credentials", "client_id": str(self.client_id), "client_secret": self.secret, **fields}
        form = {name: value for name, value in sent.items() if value is not None}
        return await self.api.call(
            "POST",
            path,
            headers={"Content-Type": "application/x-www-form-urlencoded", **(headers or {})},
            raw=urlencode(form).encode(),
        )

    async def token(self, **fields: str | None) -> str:
        answer = await self.ask(**fields)
        assert answer.status == 200, answer.text
        token: str = answer.json["access_token"]
        return token


async def add_service_account(
    pool: Pool,
    org: UUID | None,
    owner: UUID,
    role: str | None = "admin",
    *,
    scopes: Iterable[str] | None = None,
    granted: Iterable[str] = (),
    name: str = "Robot",
) -> UUID:
    """Add a service account to the organization, or to the platform if there is no organization. It has no credential yet."""
    account = new_id()
    await run_sql(
        pool,
        """
        insert into service_accounts (id, org_id, name, owner_id, role, scopes, granted, created_by, created_at, updated_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, now(), now())""",
        account,
        org,
        name,
        owner,
        None if org is None else role,
        None if scopes is None else list(scopes),
        list(granted),
        owner,
    )
    return account


async def add_credential(
    pool: Pool,
    api: Api,
    client_id: UUID,
    org: UUID | None,
    *,
    public_key: Mapping[str, Any] | None = None,
    expires_at: datetime | None = None,
) -> Program:
    """Add a credential: a secret, or a public key in its place."""
    secret, credential = generate(CREDENTIAL_PREFIX), new_id()
    await run_sql(
        pool,
        """
        insert into credentials (id, client_id, org_id, kind, name, secret_hash, public_key, expires_at, created_by, created_at)
        values (%s, %s, %s, %s, 'Main', %s, %s, %s, %s, now())""",
        credential,
        client_id,
        org,
        "secret" if public_key is None else "key",
        digest(secret) if public_key is None else None,
        None if public_key is None else json.dumps(public_key),
        expires_at,
        new_id(),
    )
    return Program(api, client_id, secret, credential)
