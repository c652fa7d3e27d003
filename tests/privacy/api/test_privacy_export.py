"""Tests of the export of a user's data, complete or one organization's part (decisions 48, 53, 56,
84, 145, 146; security B-5, I-4, J-9, R-5, Y-1).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.privacy import Privacy
from core import privacy, privacy_rules
from core.accounts.accounts_rules import Account
from core.kernel.errors import StorageDown
from core.kernel.principals import Role
from ports import Ports
from tests.proof.wire.wire import Reply, serving
from tests.support.builders import Answer, Api, add_account, add_member, impersonate, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.platform import NOWHERE, Platform
from tests.support.refusals import FORBIDDEN, MISSING, refused
from tests.support.services import add_service, sign_in_to
from tests.support.tenants import Tenant, Tenants

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


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

    async def exported(self, token: str | None = None) -> Any:
        answer = await export(self.api, self.account.id, token or await self.token())
        assert answer.status == 200, answer.text
        return answer.json

    async def add_login(self, number: int, service: UUID | None = None, **columns: Any) -> str:
        """Add a login on the day with this number, to the service if one is given."""
        id_ = uuid4()
        row: dict[str, Any] = {
            "id": id_,
            "user_id": self.account.id,
            "service_id": service,
            "provider": "password",
            "success": True,
            "address": "203.0.113.9",
            "agent": "a browser",
            "created_at": BEGINNING + timedelta(days=number),
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
        await run_sql(self.pool, insert, self.account.id, service, provider, f"{provider}-{number}", BEGINNING + timedelta(days=number))

    async def add_mfa_event(self, number: int, event_type: str = "mfa_verify_success", *, success: bool = True) -> None:
        insert = """
            insert into mfa_events (id, user_id, event_type, success, address, agent, created_at)
            values (gen_random_uuid(), %s, %s, %s, '203.0.113.9', 'a browser', %s)"""
        await run_sql(self.pool, insert, self.account.id, event_type, success, BEGINNING + timedelta(days=number))

    async def add_passkey(self, number: int, **columns: Any) -> tuple[str, str]:
        """Add a passkey, and return its id and the id of its authenticator."""
        id_, aaguid = uuid4(), uuid4()
        insert = """
            insert into passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, backup_eligible, created_at,
                                  last_used_at)
            values (%s, %s, %s, %s, 'key', 0, %s, true, %s, %s)"""
        at = BEGINNING + timedelta(days=number)
        await run_sql(self.pool, insert, id_, self.account.id, f"Key {number}", id_.bytes, aaguid, at, columns.get("last_used_at"))
        return str(id_), str(aaguid)


async def export(api: Api, user_id: object, token: str | None = None) -> Answer:
    return await api.get(f"/api/privacy/export/{user_id}", token=token)


async def on_a_socket(app: QuartTrio, subject: Subject) -> Reply:
    """Request the export over a socket, which receives the response in many pieces."""
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        return await client.get(f"/api/privacy/export/{subject.id}", f"Authorization: Bearer {await subject.token()}")


def ids(package: Any) -> list[str]:
    return [event["id"] for event in package["login_events"]]


@pytest.fixture
async def user(api: Api, ports: Ports, pool: Pool) -> Subject:
    return Subject(api, ports, pool, await add_account(ports, "ada@example.com"))


@pytest.fixture
async def shop(acme: Tenant) -> UUID:
    return await add_service(acme.pool, acme.org)


async def live(subject: Subject, *services: UUID) -> None:
    """Add data of every kind, for the platform and for each service."""
    for number, service in enumerate((None, *services)):
        await subject.add_login(number, service)
        await subject.add_identity(number, "codehost", service)
    await subject.add_mfa_event(0)
    await subject.add_passkey(0)


# Contents


async def test_an_export_has_every_field_in_the_documented_order(user: Subject, acme: Tenant, shop: UUID) -> None:
    await acme.join("ada", user.account, Role.ADMIN)
    await run_sql(user.pool, "update memberships set created_at = %s where user_id = %s", BEGINNING, user.account.id)
    factors = {"risk_score": 50, "risk_factors": ["new_device", "unknown_location"], "city": "London", "country": "GB"}
    old = await user.add_login(0, success=False, address=None, agent=None)
    new = await user.add_login(1, shop, provider="codehost", **factors)
    await user.add_identity(2, "codehost")
    await user.add_identity(1, "websuite", shop)
    await user.add_mfa_event(0, "mfa_setup_initiated")
    await user.add_mfa_event(1, "mfa_verify_failed", success=False)
    (first, made_first), (second, made_second) = await user.add_passkey(0), await user.add_passkey(1, last_used_at=BEGINNING)
    day = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]
    package = await user.exported()
    assert package == {
        "user_id": user.id,
        "email": "ada@example.com",
        "created_at": user.account.created_at.isoformat().replace("+00:00", "Z"),
        "memberships": [{"organization_id": str(acme.org), "organization_slug": "acme", "role": "admin", "joined_at": day[0]}],
        "login_events_count": 2,
        "login_events": [
            {
                "id": new,
                "timestamp": day[1],
                "ip_address": "203.0.113.9",
                "user_agent": "a browser",
                "provider": "codehost",
                "success": True,
                "risk_score": 50,
                "risk_factors": '["new_device", "unknown_location"]',
                "geo_country": "GB",
                "geo_city": "London",
            },
            {
                "id": old,
                "timestamp": day[0],
                "ip_address": None,
                "user_agent": None,
                "provider": "password",
                "success": False,
                "risk_score": 0,
                "risk_factors": "[]",
                "geo_country": None,
                "geo_city": None,
            },
        ],
        "oauth_identities": [
            {"provider": "websuite", "provider_user_id": "websuite-1", "linked_at": day[1]},
            {"provider": "codehost", "provider_user_id": "codehost-2", "linked_at": day[2]},
        ],
        "mfa_events": [
            {"event_type": "mfa_verify_failed", "timestamp": day[1], "success": False},
            {"event_type": "mfa_setup_initiated", "timestamp": day[0], "success": True},
        ],
        "passkeys": [
            {"id": first, "name": "Key 0", "aaguid": made_first, "backup_eligible": True, "created_at": day[0], "last_used_at": None},
            {"id": second, "name": "Key 1", "aaguid": made_second, "backup_eligible": True, "created_at": day[1], "last_used_at": day[0]},
        ],
    }
    assert list(package) == [
        *(
            "user_id",
            "email",
            "created_at",
            "memberships",
            "login_events_count",
            "login_events",
            "oauth_identities",
            "mfa_events",
            "passkeys",
        )
    ]


async def test_the_export_of_a_new_user_has_empty_lists(user: Subject) -> None:
    package = await user.exported()
    lists = ("memberships", "login_events", "oauth_identities", "mfa_events", "passkeys")
    assert [package[name] for name in lists] == [[]] * 5
    assert package["login_events_count"] == 0


async def test_an_export_has_no_data_of_other_users(user: Subject, acme: Tenant, shop: UUID) -> None:
    owner = Subject(user.api, user.ports, user.pool, acme.people["owner"])
    await live(owner, shop)
    package = await user.exported()
    assert [package[name] for name in ("memberships", "login_events", "oauth_identities", "mfa_events", "passkeys")] == [[]] * 5


async def test_an_export_has_no_secrets(user: Subject, shop: UUID) -> None:
    await live(user, shop)
    await run_sql(
        user.pool, "insert into mfa (user_id, secret, setup_at, codes_salt) values (%s, 'mfasecret', now(), 'salt')", user.account.id
    )
    answer = await export(user.api, user.id, await user.token())
    assert user.account.password_hash is not None
    for secret in (user.account.password_hash, "mfasecret", "access", "refresh", "secret@example.com", "public_key", "credential"):
        assert secret not in answer.text


async def test_an_export_has_the_newest_logins_up_to_the_setting(app: QuartTrio, user: Subject) -> None:
    logins = [await user.add_login(number) for number in (2, 0, 4, 1, 3)]
    change_ports(app, policy=replace(user.ports.policy, export_login_events=3))
    package = await user.exported()
    assert ids(package) == [logins[2], logins[4], logins[0]]
    assert package["login_events_count"] == 5


@pytest.mark.slow
async def test_an_export_has_a_thousand_logins_by_default(user: Subject) -> None:
    many = """
        insert into login_events (id, user_id, provider, success, created_at)
        select gen_random_uuid(), %s, 'password', true, now() from generate_series(1, 1001)"""
    await run_sql(user.pool, many, user.account.id)
    package = await user.exported()
    assert (len(set(ids(package))), package["login_events_count"]) == (1000, 1001)


async def test_lists_of_several_batches_are_complete(
    app: QuartTrio, user: Subject, acme: Tenant, other_tenant: Tenant, shop: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with the same time are complete too."""
    monkeypatch.setattr(privacy, "BATCH", 1)
    await live(user, shop)
    for tenant in (acme, other_tenant):
        await add_member(user.pool, tenant.org, user.account.id)
    await run_sql(user.pool, "update memberships set created_at = %s", BEGINNING)
    for number in (0, 1):
        await user.add_login(number)
        await user.add_identity(number, "websuite", await add_service(user.pool, acme.org, f"s{number}"))
        await user.add_mfa_event(0, f"event {number}")
        await user.add_passkey(0)
    package = json.loads((await on_a_socket(app, user)).body)
    assert {name: len(found) for name, found in package.items() if isinstance(found, list)} == {
        **{"memberships": 2, "login_events": 4, "oauth_identities": 4, "mfa_events": 3, "passkeys": 3},
    }
    for found in (found for found in package.values() if isinstance(found, list)):
        assert len({json.dumps(item) for item in found}) == len(found)


# Access


async def test_platform_owners_get_everything(user: Subject, shop: UUID, acme: Tenant, platform: Platform) -> None:
    await acme.join("ada", user.account)
    await live(user, shop)
    assert await user.exported(platform.token) == await user.exported()


async def test_an_owner_gets_the_data_of_their_organization(user: Subject, acme: Tenant, other_tenant: Tenant, shop: UUID) -> None:
    other = await add_service(user.pool, other_tenant.org, "other")
    for tenant in (acme, other_tenant):
        await tenant.join("ada", user.account)
    await live(user, shop, other)
    package = await user.exported(acme.token("owner"))
    assert [membership["organization_slug"] for membership in package["memberships"]] == ["acme"]
    assert [event["timestamp"] for event in package["login_events"]] == ["2026-01-02T00:00:00Z"]
    assert package["login_events_count"] == 1
    assert [identity["provider_user_id"] for identity in package["oauth_identities"]] == ["codehost-1"]
    # These belong to the account.
    assert (package["mfa_events"], package["passkeys"]) == ([], [])


async def test_an_owner_of_several_organizations_gets_those_with_confirmed_memberships(
    user: Subject, acme: Tenant, other_tenant: Tenant, tenants: Tenants
) -> None:
    third = await tenants.add("third", cast={"member": Role.MEMBER})
    for tenant in (other_tenant, third):
        await run_sql(user.pool, "delete from memberships where org_id = %s and role = 'owner'", tenant.org)
        await tenant.join("owner", acme.people["owner"], Role.OWNER)
    for tenant in (acme, other_tenant):
        await tenant.join("ada", user.account)
    await add_member(user.pool, third.org, user.account.id)  # not confirmed
    await live(user, *[await add_service(user.pool, tenant.org, tenant.slug) for tenant in (acme, other_tenant, third)])
    package = await user.exported(acme.token("owner"))
    assert {membership["organization_slug"] for membership in package["memberships"]} == {"acme", "twin"}
    assert (len(package["login_events"]), len(package["oauth_identities"]), package["login_events_count"]) == (2, 2, 2)


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_status_of_the_organization_does_not_matter(user: Subject, acme: Tenant, status: str) -> None:
    await acme.join("ada", user.account)
    await acme.set_status(status)
    assert (await user.exported(acme.token("owner")))["user_id"] == user.id
    assert (await user.exported(acme.token("ada")))["user_id"] == user.id


@pytest.mark.parametrize("whose", ["stranger", "member", "admin", "foreign owner", "owner of somebody who takes no part"])
@pytest.mark.parametrize("target", ["known", "unknown", "no id"])
async def test_others_are_refused_without_learning_if_the_user_exists(
    user: Subject, acme: Tenant, other_tenant: Tenant, whose: str, target: str
) -> None:
    await acme.join("ada", user.account)
    if whose.startswith("owner"):
        await run_sql(user.pool, "update memberships set confirmed_at = null where user_id = %s", user.account.id)
    match whose:
        case "stranger":
            token = (await sign_in(user.ports, await add_account(user.ports, "stranger@example.com", None))).access_token
        case "member" | "admin":
            token = acme.token(whose)
        case "foreign owner":
            token = other_tenant.token("owner")
        case _:
            token = acme.token("owner")
    answer = await export(user.api, {"known": user.id, "unknown": NOWHERE, "no id": "ada"}[target], token)
    assert refused(answer) == FORBIDDEN
    assert answer.json["error"] == privacy_rules.ExportNotAllowed.__doc__


@pytest.mark.parametrize("target", [str(UUID(int=7)), "ada", "%F0%9F%A6%8A"])
async def test_only_platform_owners_learn_that_a_user_does_not_exist(platform: Platform, target: str) -> None:
    assert refused(await export(platform.api, target, platform.token)) == MISSING


async def test_without_a_token_it_is_refused(user: Subject) -> None:
    assert refused(await export(user.api, user.id)) == (401, "UNAUTHORIZED")


async def test_an_impersonator_is_refused(user: Subject, platform: Platform) -> None:
    token = await impersonate(user.ports, platform.account, user.account)
    assert refused(await export(user.api, user.id, token)) == FORBIDDEN


async def test_an_application_gets_its_users_data_of_its_organization(
    user: Subject, acme: Tenant, other_tenant: Tenant, shop: UUID
) -> None:
    second, other = await add_service(user.pool, acme.org, "second"), await add_service(user.pool, other_tenant.org, "other")
    for tenant in (acme, other_tenant):
        await tenant.join("ada", user.account)
    await live(user, shop, second, other)
    token = (await sign_in_to(user.ports, user.pool, shop, user.account)).access_token
    package = await user.exported(token)
    assert [membership["organization_slug"] for membership in package["memberships"]] == ["acme"]
    assert [event["timestamp"] for event in package["login_events"]] == ["2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z"]
    assert package["login_events_count"] == 2
    assert [identity["provider_user_id"] for identity in package["oauth_identities"]] == ["codehost-1", "codehost-2"]
    assert (package["mfa_events"], package["passkeys"]) == ([], [])
    await acme.set_status("suspended")
    assert (await user.exported(token))["login_events_count"] == 2


@pytest.mark.parametrize("holder", ["owner", "platform"])
async def test_an_application_cannot_export_other_users(user: Subject, acme: Tenant, shop: UUID, platform: Platform, holder: str) -> None:
    await acme.join("ada", user.account)
    token = (await sign_in_to(user.ports, user.pool, shop, platform.account if holder == "platform" else acme.people["owner"])).access_token
    for target in (user.id, NOWHERE):
        assert refused(await export(user.api, target, token)) == FORBIDDEN


async def test_an_export_changes_nothing(user: Subject, acme: Tenant, tenants: Tenants) -> None:
    await acme.join("ada", user.account)
    before = await tenants.everything()
    await user.exported(acme.token("owner"))
    assert await tenants.everything() == before


# Streaming


async def test_an_outage_before_the_last_list_is_an_error_response(user: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    await live(user)

    async def down(*_: Any) -> Any:
        raise StorageDown

    monkeypatch.setattr(Privacy, "passkeys", down)
    assert refused(await export(user.api, user.id, await user.token())) == (500, "DATABASE_ERROR")


async def test_an_outage_during_the_last_list_cuts_the_response_off(app: QuartTrio, user: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "BATCH", 2)
    for number in range(5):
        await user.add_login(number)
    read = Privacy.logins

    async def logins(self: Privacy, user_id: UUID, within: Any, before: Any, limit: int) -> Any:
        if before is not None:
            raise StorageDown
        return await read(self, user_id, within, before, limit)

    monkeypatch.setattr(Privacy, "logins", logins)
    token = await user.token()
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        await client.send(f"GET /api/privacy/export/{user.id} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b'"risk_score"') == 2
    assert b"passkeys" not in answer
    assert not answer.endswith(b"\r\n0\r\n\r\n")


async def test_an_export_is_not_cached(user: Subject) -> None:
    answer = await export(user.api, user.id, await user.token())
    assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == ("application/json", "no-store")
