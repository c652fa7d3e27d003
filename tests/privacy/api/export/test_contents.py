"""What a user's export contains, complete or an organization's part (security Y-1)."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.personal_data import PersonalData
from core.kernel.errors import StorageDown
from core.kernel.roles import ADMIN
from core.privacy.model import personal_data as model_personal_data
from core.privacy.model.personal_data import ExportedList
from tests.accounts.profiles import ALL_FIELDS, set_profile
from tests.privacy.api.export.subject import FIRST_LOGIN, Subject, add_all_data, request_export
from tests.proof.wire.wire import Reply, serving
from tests.support.builders import add_member, run_sql
from tests.support.direct import change_ports
from tests.support.programs import add_service_account
from tests.support.refusals import refused
from tests.support.services import add_api_resource, add_service, add_service_role
from tests.support.tenants import Tenant

LISTS = (
    *("memberships", "login_events", "oauth_identities", "mfa_events", "passkeys", "email_changes", "security_notices", "consents"),
    *("application_blocks", "former_memberships", "application_roles", "groups", "attributes", "service_accounts", "personal_tokens"),
)


async def on_a_socket(app: QuartTrio, subject: Subject) -> Reply:
    """Request the export over a socket, which receives the response in many pieces."""
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        return await client.get(f"/api/privacy/export/{subject.id}", f"Authorization: Bearer {await subject.token()}")


def ids(package: Any) -> list[str]:
    return [event["id"] for event in package["login_events"]]


# Contents


async def test_an_export_has_every_field_in_the_documented_order(user: Subject, acme: Tenant, shop: UUID) -> None:
    await acme.join("ada", user.account, ADMIN)
    await run_sql(user.pool, "update memberships set created_at = %s where user_id = %s", FIRST_LOGIN, user.account.id)
    factors = {"risk_score": 50, "risk_factors": ["new_device", "unknown_location"], "city": "London", "country": "GB"}
    old = await user.add_login(0, success=False, address=None, agent=None)
    new = await user.add_login(1, shop, provider="codehost", **factors)
    await user.add_identity(2, "codehost")
    await user.add_identity(1, "websuite", shop)
    await user.add_mfa_event(0, "mfa_setup_initiated")
    await user.add_mfa_event(1, "mfa_verify_failed", success=False)
    (first, made_first), (second, made_second) = await user.add_passkey(0), await user.add_passkey(1, last_used_at=FIRST_LOGIN)
    await set_profile(user.ports, user.account.id)
    day = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]
    await user.add_email_change(0, proved_at=FIRST_LOGIN + timedelta(days=1), undone_at=FIRST_LOGIN + timedelta(days=2))
    await user.add_email_change(1)
    addresses = {"old_email": "old@example.com", "new_email": "new@example.com"}
    await user.add_consent(0, shop)
    await user.add_application_block(1, acme.org)
    await user.add_former_membership(1, acme.org)
    await add_service_role(user.pool, shop, user.account.id, at=FIRST_LOGIN + timedelta(days=1))
    group = await user.add_group(1, acme.org)
    await run_sql(user.pool, "update groups set role = 'member', mapped_by = %s, mapped_at = created_at", user.account.id)
    await run_sql(user.pool, "update organizations set maps_groups = true where id = %s", acme.org)
    by_group = "insert into service_role_groups select org_id, service_id, id, %s, %s from service_roles"
    await run_sql(user.pool, by_group, group, FIRST_LOGIN + timedelta(days=2))
    await user.add_attributes(1, acme.org)
    resource = await add_api_resource(user.pool, acme.org, services=(shop,))
    agree = "insert into api_consents select %s, org_id, %s, id, '{orders:read,unknown}', created_at from api_resources where id = %s"
    await run_sql(user.pool, agree, user.account.id, shop, resource)
    robot = await add_service_account(user.pool, acme.org, user.account.id)
    await run_sql(user.pool, "update service_accounts set created_at = %s", FIRST_LOGIN)
    await add_service_account(user.pool, acme.org, acme.people["owner"].id)
    await user.add_security_notice(0)
    await user.add_security_notice(1, kind="mfa_enabled", detail=None, undone_at=FIRST_LOGIN + timedelta(days=2))
    used = await user.add_personal_token(0, acme.org, last_used_at=FIRST_LOGIN + timedelta(days=1))
    ended = await user.add_personal_token(1, ended_at=FIRST_LOGIN + timedelta(days=2))
    package = await user.export()
    assert package == {
        "user_id": user.id,
        "email": "ada@example.com",
        "created_at": user.account.created_at.isoformat().replace("+00:00", "Z"),
        **ALL_FIELDS,
        "picture_file": None,
        "memberships": [
            {
                "organization_id": str(acme.org),
                "organization_slug": "acme",
                "role": "admin",
                "roles": ["admin", "member"],
                "joined_at": day[0],
            }
        ],
        "login_events_count": 2,
        "login_events": [
            {
                "id": new,
                "timestamp": day[1],
                "ip_address": "203.0.113.9",
                "user_agent": "a browser",
                "provider": "codehost",
                "success": True,
                "reason": None,
                "blocked_seconds": None,
                "attempts": 1,
                "request_id": None,
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
                "reason": None,
                "blocked_seconds": None,
                "attempts": 1,
                "request_id": None,
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
        "email_changes": [
            {**addresses, "requested_at": day[1], "proved_at": None, "undone_at": None},
            {**addresses, "requested_at": day[0], "proved_at": day[1], "undone_at": day[2]},
        ],
        "security_notices": [
            {"kind": "mfa_enabled", "detail": None, "address": "old@example.com", "created_at": day[1], "undone_at": day[2]},
            {"kind": "identity_linked", "detail": "codehost", "address": "old@example.com", "created_at": day[0], "undone_at": None},
        ],
        "consents": [
            {
                "organization_id": str(acme.org),
                "organization_slug": "acme",
                "service_id": str(shop),
                "service_slug": "shop",
                "service_name": "Shop",
                "client_uri": None,
                "scopes": ["openid", "profile"],
                "api_resources": [{"identifier": "https://api.example.com/", "name": "Orders API", "scopes": ["orders:read"]}],
                "granted_at": day[0],
            }
        ],
        "application_blocks": [
            {"organization_id": str(acme.org), "organization_slug": "acme", "email": "old@example.com", "since": day[1]}
        ],
        "former_memberships": [
            {"organization_id": str(acme.org), "organization_slug": "acme", "email": "old@example.com", "name": "Old", "left_at": day[1]}
        ],
        "application_roles": [
            {
                "organization_id": str(acme.org),
                "organization_slug": "acme",
                "service_id": str(shop),
                "service_slug": "shop",
                "role": "editor",
                "name": "Editor",
                "permissions": ["editor:all"],
                "assigned_at": day[number],
                "group": name,
            }
            for number, name in ((1, None), (2, "Team"))
        ],
        "groups": [
            {
                "organization_id": str(acme.org),
                "organization_slug": "acme",
                "group_id": str(group),
                "name": "Team",
                "attributes": {"site": "Delft"},
                "added_at": day[1],
            }
        ],
        "attributes": [{"organization_id": str(acme.org), "organization_slug": "acme", "values": {"team": "Ops"}, "changed_at": day[1]}],
        "service_accounts": [
            {
                "id": str(robot),
                "name": "Robot",
                "organization_id": str(acme.org),
                "organization_slug": "acme",
                "created_at": day[0],
            }
        ],
        "personal_tokens": [
            {
                "id": used,
                "name": "Token 0",
                "prefix": "gatehouse_pat_prefix",
                "scopes": ["members:read", "members:write"],
                "organization_id": str(acme.org),
                "organization_slug": "acme",
                "created_at": day[0],
                "expires_at": "2026-12-31T00:00:00Z",
                "last_used_at": day[1],
                "ended_at": None,
            },
            {
                "id": ended,
                "name": "Token 1",
                "prefix": "gatehouse_pat_prefix",
                "scopes": ["members:read", "members:write"],
                "organization_id": None,
                "organization_slug": None,
                "created_at": day[1],
                "expires_at": "2026-12-31T00:00:00Z",
                "last_used_at": None,
                "ended_at": day[2],
            },
        ],
    }
    assert list(package) == [
        *(
            "user_id",
            "email",
            "created_at",
            *ALL_FIELDS,
            "picture_file",
            "memberships",
            "login_events_count",
            "login_events",
            "oauth_identities",
            "mfa_events",
            "passkeys",
            "email_changes",
            "security_notices",
            "consents",
            "application_blocks",
            "former_memberships",
            "application_roles",
            "groups",
            "attributes",
            "service_accounts",
            "personal_tokens",
        )
    ]


async def test_each_change_of_the_address_has_the_address_before_it(user: Subject) -> None:
    """An undo returns to a chain's first address, so every change has the first address in the database."""
    hours = [FIRST_LOGIN + timedelta(hours=number) for number in range(5)]
    undoable = {"undo_until": FIRST_LOGIN + timedelta(days=3)}
    chain = [("b", True, None), ("c", True, hours[3]), ("d", False, hours[3]), ("e", True, None)]
    for at, (letter, is_proved, undone_at) in zip(hours, chain, strict=False):
        old = "b@example.com" if letter == "e" else "a@example.com"
        row = {"old_email": old, "new_email": f"{letter}@example.com", "requested_at": at, "undone_at": undone_at, **undoable}
        await user.add_email_change(0, **row, proved_at=at if is_proved else None)
    changes = (await user.export())["email_changes"]
    assert [f"{change['old_email'][0]}{change['new_email'][0]}" for change in changes] == ["be", "cd", "bc", "ab"]


async def test_the_export_of_a_new_user_has_empty_lists(user: Subject) -> None:
    package = await user.export()
    assert [package[name] for name in LISTS] == [[]] * len(LISTS)
    assert package["login_events_count"] == 0


async def test_an_export_has_no_data_of_other_users(user: Subject, acme: Tenant, shop: UUID) -> None:
    owner = Subject(user.api, user.ports, user.pool, acme.people["owner"])
    await add_all_data(owner, shop)
    package = await user.export()
    assert [package[name] for name in LISTS] == [[]] * len(LISTS)


async def test_an_export_has_no_secrets(user: Subject, shop: UUID) -> None:
    await add_all_data(user, shop)
    await run_sql(user.pool, "insert into mfa (user_id, secret, setup_at) values (%s, 'mfasecret', now())", user.account.id)
    answer = await request_export(user.api, user.id, await user.token())
    assert user.account.password_hash is not None
    for secret in (
        user.account.password_hash,
        "mfasecret",
        "access",
        "refresh",
        "secret@example.com",
        "public_key",
        "credential",
        "tokenhash",
    ):
        assert secret not in answer.text


async def test_an_export_has_the_newest_logins_up_to_the_setting(app: QuartTrio, user: Subject) -> None:
    logins = [await user.add_login(number) for number in (2, 0, 4, 1, 3)]
    change_ports(app, policy=replace(user.ports.policy, export_login_events=3))
    package = await user.export()
    assert ids(package) == [logins[2], logins[4], logins[0]]
    assert package["login_events_count"] == 5


@pytest.mark.slow
async def test_an_export_has_a_thousand_logins_by_default(user: Subject) -> None:
    statement = """
        insert into login_events (id, user_id, provider, success, created_at)
        select gen_random_uuid(), %s, 'password', true, now() from generate_series(1, 1001)"""
    await run_sql(user.pool, statement, user.account.id)
    package = await user.export()
    assert (len(set(ids(package))), package["login_events_count"]) == (1000, 1001)


async def test_lists_of_several_batches_are_complete(
    app: QuartTrio, user: Subject, acme: Tenant, other_tenant: Tenant, shop: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with the same time are complete too."""
    monkeypatch.setattr(model_personal_data, "BATCH", 1)
    await add_all_data(user, shop)
    for tenant in (acme, other_tenant):
        await add_member(user.pool, tenant.org, user.account.id)
        await add_service_account(user.pool, tenant.org, user.account.id)
        await user.add_application_block(0, tenant.org)
        await user.add_former_membership(0, tenant.org)
        await user.add_group(0, tenant.org)
        await user.add_attributes(0, tenant.org)
    await add_service_account(user.pool, acme.org, user.account.id)
    await run_sql(user.pool, "update service_accounts set created_at = %s", FIRST_LOGIN)
    await run_sql(user.pool, "update memberships set created_at = %s", FIRST_LOGIN)
    for number in (0, 1):
        await user.add_login(number)
        service = await add_service(user.pool, acme.org, f"s{number}")
        await user.add_identity(number, "websuite", service)
        await user.add_consent(1, service)
        await add_service_role(user.pool, service, user.account.id)
        await user.add_mfa_event(0, f"event {number}")
        await user.add_passkey(0)
        await user.add_email_change(0, new_email=f"n{number}@example.com")
        await user.add_security_notice(0, address=f"n{number}@example.com")
        await user.add_personal_token(0)
    package = json.loads((await on_a_socket(app, user)).body)
    assert {name: len(entries) for name, entries in package.items() if isinstance(entries, list)} == {
        **{"memberships": 2, "login_events": 4, "oauth_identities": 4, "mfa_events": 3, "passkeys": 3, "email_changes": 3, "consents": 3},
        **{
            "security_notices": 3,
            "application_blocks": 2,
            "former_memberships": 2,
            "application_roles": 2,
            "groups": 2,
            "attributes": 2,
            "service_accounts": 3,
            "personal_tokens": 3,
        },
    }
    for entries in (entries for entries in package.values() if isinstance(entries, list)):
        assert len({json.dumps(item) for item in entries}) == len(entries)


# Streaming


async def test_an_outage_before_the_last_list_is_an_error_response(user: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    await add_all_data(user)
    read = PersonalData.items

    async def items(self: PersonalData, list_: ExportedList, *parameters: Any) -> Any:
        if list_ is ExportedList.PERSONAL_TOKENS:
            raise StorageDown
        return await read(self, list_, *parameters)

    monkeypatch.setattr(PersonalData, "items", items)
    assert refused(await request_export(user.api, user.id, await user.token())) == (500, "DATABASE_ERROR")


async def test_an_outage_during_the_last_list_cuts_the_response_off(app: QuartTrio, user: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_personal_data, "BATCH", 2)
    for number in range(5):
        await user.add_login(number)
    read = PersonalData.items

    async def items(self: PersonalData, list_: ExportedList, user_id: UUID, within: Any, last: Any, limit: int) -> Any:
        if last is not None:
            raise StorageDown
        return await read(self, list_, user_id, within, last, limit)

    monkeypatch.setattr(PersonalData, "items", items)
    token = await user.token()
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        await client.send(f"GET /api/privacy/export/{user.id} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b'"risk_score"') == 2
    assert b"passkeys" not in answer
    assert not answer.endswith(b"\r\n0\r\n\r\n")


async def test_an_export_is_not_cached(user: Subject) -> None:
    answer = await request_export(user.api, user.id, await user.token())
    assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == ("application/json", "no-store")
