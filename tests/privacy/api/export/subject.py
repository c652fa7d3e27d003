"""A user with data to export."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import Answer, Api, run_sql, sign_in
from tests.support.services import add_consent

FIRST_LOGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Subject:
    """A user with stored data."""

    api: Api
    ports: Ports
    pool: Pool
    account: Account

    @property
    def id(self) -> str:
        return str(self.account.id)

    async def token(self) -> str:
        return (await sign_in(self.ports, self.account)).access_token

    async def export(self, token: str | None = None) -> Any:
        answer = await request_export(self.api, self.account.id, token or await self.token())
        assert answer.status == 200, answer.text
        return answer.json

    async def add_login(self, number: int, service: UUID | None = None, **columns: Any) -> str:
        """Add a login on the day with this number, to the given service, if any."""
        id_ = uuid4()
        row: dict[str, Any] = {
            "id": id_,
            "user_id": self.account.id,
            "service_id": service,
            "provider": "password",
            "success": True,
            "address": "203.0.113.9",
            "agent": "a browser",
            "created_at": FIRST_LOGIN + timedelta(days=number),
            **columns,
        }
        names, places = ", ".join(row), ", ".join(["%s"] * len(row))
        statement = f"insert into login_events ({names}, org_id) values ({places}, (select org_id from services where id = %s))"  # noqa: S608
        await run_sql(self.pool, statement, *row.values(), service)
        return str(id_)

    async def add_identity(self, number: int, provider: str, service: UUID | None = None) -> None:
        insert = """
            insert into identities (id, user_id, service_id, provider, provider_user_id, email, access_token, refresh_token, scopes,
                                    linked_at)
            values (gen_random_uuid(), %s, %s, %s, %s, 'secret@example.com', 'access', 'refresh', '{all}', %s)"""
        await run_sql(self.pool, insert, self.account.id, service, provider, f"{provider}-{number}", FIRST_LOGIN + timedelta(days=number))

    async def add_mfa_event(self, number: int, event_type: str = "mfa_verify_success", *, success: bool = True) -> None:
        insert = """
            insert into mfa_events (id, user_id, event_type, success, address, agent, created_at)
            values (gen_random_uuid(), %s, %s, %s, '203.0.113.9', 'a browser', %s)"""
        await run_sql(self.pool, insert, self.account.id, event_type, success, FIRST_LOGIN + timedelta(days=number))

    async def add_passkey(self, number: int, **columns: Any) -> tuple[str, str]:
        """Add a passkey, and return its id and its authenticator's id."""
        id_, aaguid = uuid4(), uuid4()
        insert = """
            insert into passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, backup_eligible, created_at,
                                  last_used_at, rp_id, algorithm)
            values (%s, %s, %s, %s, 'key', 0, %s, true, %s, %s, 'gatehouse.test', -7)"""
        at = FIRST_LOGIN + timedelta(days=number)
        await run_sql(self.pool, insert, id_, self.account.id, f"Key {number}", id_.bytes, aaguid, at, columns.get("last_used_at"))
        return str(id_), str(aaguid)

    async def add_email_change(self, number: int, **columns: Any) -> None:
        row: dict[str, Any] = {
            "id": uuid4(),
            "user_id": self.account.id,
            "session_id": uuid4(),
            "old_email": "old@example.com",
            "new_email": "new@example.com",
            "requested_at": FIRST_LOGIN + timedelta(days=number),
            "expires_at": FIRST_LOGIN + timedelta(days=number + 1),
            **columns,
        }
        statement = f"insert into email_changes ({', '.join(row)}) values ({', '.join(['%s'] * len(row))})"  # noqa: S608
        await run_sql(self.pool, statement, *row.values())

    async def add_security_notice(self, number: int, **columns: Any) -> None:
        row: dict[str, Any] = {
            "id": uuid4(),
            "user_id": self.account.id,
            "kind": "identity_linked",
            "detail": "codehost",
            "address": "old@example.com",
            "created_at": FIRST_LOGIN + timedelta(days=number),
            "undo_until": FIRST_LOGIN + timedelta(days=number + 3),
            **columns,
        }
        statement = f"insert into security_notices ({', '.join(row)}) values ({', '.join(['%s'] * len(row))})"  # noqa: S608
        await run_sql(self.pool, statement, *row.values())

    async def add_consent(self, number: int, service: UUID) -> None:
        await add_consent(self.pool, service, self.account.id, FIRST_LOGIN + timedelta(days=number))

    async def add_application_block(self, number: int, org: UUID) -> None:
        block = "insert into end_user_blocks (org_id, user_id, email, since) values (%s, %s, 'old@example.com', %s)"
        await run_sql(self.pool, block, org, self.account.id, FIRST_LOGIN + timedelta(days=number))

    async def add_former_membership(self, number: int, org: UUID) -> None:
        former = "insert into former_members (org_id, user_id, email, name, left_at) values (%s, %s, 'old@example.com', 'Old', %s)"
        await run_sql(self.pool, former, org, self.account.id, FIRST_LOGIN + timedelta(days=number))

    async def add_group(self, number: int, org: UUID) -> UUID:
        group, day = uuid4(), FIRST_LOGIN + timedelta(days=number)
        groups = """
            insert into groups (id, org_id, name, name_key, created_at, updated_at, members_changed_at)
            values (%s, %s, 'Team', 'team', %s, %s, %s)"""
        await run_sql(self.pool, groups, group, org, day, day, day)
        members = "insert into group_members (org_id, group_id, user_id, added_at) values (%s, %s, %s, %s)"
        await run_sql(self.pool, members, org, group, self.account.id, day)
        values = "insert into group_attribute_values (group_id, org_id, attributes, changed_at) values (%s, %s, %s, %s)"
        await run_sql(self.pool, values, group, org, '{"site": "Delft"}', day)
        return group

    async def add_attributes(self, number: int, org: UUID) -> None:
        values = "insert into attribute_values (org_id, user_id, attributes, changed_at) values (%s, %s, %s, %s)"
        await run_sql(self.pool, values, org, self.account.id, '{"team": "Ops"}', FIRST_LOGIN + timedelta(days=number))

    async def add_personal_token(self, number: int, org: UUID | None = None, **columns: Any) -> str:
        """Add a token that was created on the day with this number, and acts in the organization, or on the user's own account."""
        id_, day, end = uuid4(), FIRST_LOGIN + timedelta(days=number), FIRST_LOGIN + timedelta(days=364)
        session = """
            insert into sessions (id, user_id, org_id, created_at, expires_at, ends_at, ended_at, personal_token)
            values (%s, %s, %s, %s, %s, %s, %s, true)"""
        await run_sql(self.pool, session, id_, self.account.id, org, day, end, end, columns.get("ended_at"))
        token = """
            insert into personal_tokens (session_id, org_id, token_hash, name, prefix, scopes, created_at, expires_at, last_used_at)
            values (%s, %s, %s, %s, 'gatehouse_pat_prefix', '{members:read,members:write}', %s, %s, %s)"""
        token_hash = b"tokenhash" + id_.bytes
        await run_sql(self.pool, token, id_, org, token_hash, f"Token {number}", day, end, columns.get("last_used_at"))
        return str(id_)


async def request_export(api: Api, user_id: object, token: str | None = None) -> Answer:
    return await api.get(f"/api/privacy/export/{user_id}", token=token)


async def add_all_data(subject: Subject, *services: UUID) -> None:
    """Add data of every kind, for the platform and for every service."""
    for number, service in enumerate((None, *services)):
        await subject.add_login(number, service)
        await subject.add_identity(number, "codehost", service)
        if service is not None:
            await subject.add_consent(number, service)
    await subject.add_mfa_event(0)
    await subject.add_passkey(0)
    await subject.add_email_change(0)
    await subject.add_security_notice(0)
    await subject.add_personal_token(0)
