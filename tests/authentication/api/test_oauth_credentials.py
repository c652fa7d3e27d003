"""Services' OAuth credentials at identity providers (security W-7, T-1, L-1)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.authentication.oauth_credentials import name_of, secret_context
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, make_vault, run_concurrently, run_during, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOW

CREDENTIALS = {"client_id": "0oa1b2c3", "client_secret": "the provider's own secret"}
RESPONSE = {"provider": "codehost", "client_id": "0oa1b2c3", "has_secret": True, "updated_at": NOW}


def path(team: Tenant, provider: str = "codehost", service: str = "shop") -> str:
    return f"{team.path}/services/{service}/oauth-credentials/{provider}"


async def put(team: Tenant, body: Any = CREDENTIALS, by: str = "owner", **path_values: str) -> Answer:
    return await team.api.call("PUT", path(team, **path_values), body, token=team.token(by))


async def get(team: Tenant, by: str = "owner", **path_values: str) -> Answer:
    return await team.api.get(path(team, **path_values), token=team.token(by))


async def remove(team: Tenant, by: str = "owner", **path_values: str) -> Answer:
    return await team.api.delete(path(team, **path_values), token=team.token(by))


async def stored_credentials(team: Tenant) -> dict[tuple[UUID, str], tuple[str, str]]:
    """Return the client id and the decrypted secret by service and provider."""
    rows = await run_sql(
        team.pool,
        """
        select x.service_id, c.slug, x.client_id, x.client_secret from service_connections x join connections c on c.id = x.connection_id
        where x.client_id is not null""",
    )
    return {
        (service, provider): (client_id, make_vault().open(secret, secret_context(name_of(service, ConnectionSlug(provider)))).decode())
        for service, provider, client_id, secret in rows
    }


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_admins_can_set_the_credentials_of_a_service(acme: Tenant, by: str) -> None:
    service = await add_service(acme.pool, acme.org)
    assert (await get(acme, by)).status == 404
    answer = await put(acme, by=by)
    assert (answer.status, answer.json) == (200, RESPONSE)
    assert (await get(acme, by)).json == RESPONSE
    assert await stored_credentials(acme) == {(service, "codehost"): ("0oa1b2c3", "the provider's own secret")}
    details = {"service_slug": "shop", "provider": "codehost", "client_id": "0oa1b2c3"}
    assert await acme.recorded() == [("service.oauth_credentials.updated", "service", str(service), acme.people[by].id, details)]
    assert await acme.webhook_events() == [("service.oauth_credentials.updated", str(service), details)]


async def test_new_credentials_replace_the_old_ones(acme: Tenant, clock: FakeClock) -> None:
    service = await add_service(acme.pool, acme.org)
    await put(acme)
    clock.advance(timedelta(minutes=1))
    answer = await put(acme, {"client_id": "another id", "client_secret": "another secret"})
    assert answer.json == {**RESPONSE, "client_id": "another id", "updated_at": "2026-03-14T15:10:26.535897Z"} == (await get(acme)).json
    assert await stored_credentials(acme) == {(service, "codehost"): ("another id", "another secret")}
    assert [entry["details"]["client_id"] for entry in await acme.log()] == ["0oa1b2c3", "another id"]


async def test_no_response_contains_the_secret(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    answers = [await put(acme), await get(acme), await put(acme, {**CREDENTIALS, "client_id": 5}), await remove(acme)]
    assert all("secret" not in answer.text.replace("has_secret", "") for answer in answers)
    written = [*await acme.recorded(), *await acme.webhook_events(), *await run_sql(acme.pool, "select * from service_connections")]
    assert "own secret" not in str(written)


async def test_each_provider_has_separate_credentials(acme: Tenant) -> None:
    service = await add_service(acme.pool, acme.org)
    for provider in PLATFORM_CONNECTIONS:
        assert (await put(acme, {"client_id": f"at {provider}", "client_secret": "s"}, provider=provider)).json["provider"] == provider
    assert (await remove(acme, provider="websuite")).status == 204
    assert [(await get(acme, provider=provider)).status for provider in PLATFORM_CONNECTIONS] == [200, 404, 200]
    assert await stored_credentials(acme) == {(service, name): (f"at {name}", "s") for name in ("codehost", "officesuite")}


async def test_removed_credentials_are_deleted_and_the_removal_is_logged(acme: Tenant, clock: FakeClock) -> None:
    service = await add_service(acme.pool, acme.org)
    await put(acme)
    clock.advance(timedelta(seconds=1))
    assert (await remove(acme)).status == 204
    assert [(await get(acme)).status, (await remove(acme)).status] == [404, 404]
    details = {"service_slug": "shop", "provider": "codehost", "client_id": None}
    entry = ("service.oauth_credentials.updated", "service", str(service), acme.people["owner"].id, details)
    assert (await acme.recorded())[1:] == [entry]


async def test_services_of_other_organizations_are_not_found(acme: Tenant, other_tenant: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    await put(acme)
    foreign_service = await add_service(other_tenant.pool, other_tenant.org, "theirs")
    await put(other_tenant, service="theirs")
    before = await stored_credentials(acme)
    for team, service in ((other_tenant, "shop"), (acme, "theirs"), (acme, str(foreign_service)), (acme, "SHOP"), (acme, "nothing")):
        answers = [await act(team, service=service) for act in (put, get, remove)]
        assert {(answer.status, answer.code) for answer in answers} == {(404, "NOT_FOUND")}, service
    assert await stored_credentials(acme) == before
    # Two services with the same slug have separate credentials.
    await add_service(other_tenant.pool, other_tenant.org)
    assert (await get(other_tenant)).status == 404
    await put(other_tenant, {**CREDENTIALS, "client_id": "twin's"})
    assert ((await get(acme)).json["client_id"], (await get(other_tenant)).json["client_id"]) == ("0oa1b2c3", "twin's")
    assert (await remove(other_tenant)).status == 204
    assert (await get(acme)).json == RESPONSE


async def test_an_unknown_service_or_provider_is_refused_before_the_body_is_validated(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    for path_values in (
        {"service": "nothing"},
        {"provider": "Codehost"},
        {"provider": "other"},
        {"service": "nothing", "provider": "other"},
    ):
        answers = [
            await acme.api.call("PUT", path(acme, **path_values), raw=raw, token=acme.token("owner"), headers=headers)
            for raw, headers in ((b"{", {}), (b'{"client_id": 5}', {}), (b"x", {"Content-Type": "text/plain"}), (None, {}))
        ]
        answers += [await get(acme, **path_values), await remove(acme, **path_values)]
        assert {(answer.status, answer.code) for answer in answers} == {(404, "NOT_FOUND")}, path_values
        assert len({answer.json["error"] for answer in answers}) == 1


async def test_malformed_credentials_are_refused(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    texts = ["", " ", " x", "x ", "x\n", "x\0", "x\ty", "schlüssel", "\u202ex", "x" * 2049, None, 5, ["x"]]
    for body in (*({**CREDENTIALS, name: text} for name in CREDENTIALS for text in texts), *({name: "x"} for name in CREDENTIALS), {}):
        answer = await put(acme, body)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), body
    assert await stored_credentials(acme) == {}
    longest = dict.fromkeys(CREDENTIALS, "x" * 2048)
    assert (await put(acme, longest)).json["client_id"] == "x" * 2048


async def test_only_admins_can_use_the_credentials(acme: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    await put(acme)
    assert {(await act(acme, by="member")).status for act in (put, get, remove)} == {403}
    assert (await get(acme)).json == RESPONSE


async def test_credentials_are_deleted_with_their_service(acme: Tenant) -> None:
    service = await add_service(acme.pool, acme.org)
    await put(acme)
    await run_sql(acme.pool, "delete from services where id = %s", service)
    assert await stored_credentials(acme) == {}


@pytest.mark.parametrize(
    ("change", "status"),
    [("update memberships set role = 'member' where role = 'admin'", 403), ("delete from services", 404)],
)
async def test_the_second_of_two_concurrent_changes_sees_the_first(acme: Tenant, change: str, status: int) -> None:
    await add_service(acme.pool, acme.org)
    for act in (put, remove):
        await run_sql(acme.pool, "update memberships set role = 'admin' where user_id = %s", acme.people["admin"].id)
        changes = [("select 1 from organizations where id = %s for no key update", (acme.org,)), (change, ())]
        assert (await run_during(acme.pool, changes, lambda act=act: act(acme, by="admin"))).status == status  # type: ignore[misc]
        await run_sql(acme.pool, "delete from services")
        await add_service(acme.pool, acme.org)
    assert await acme.log() == []


@pytest.mark.slow
async def test_twenty_concurrent_changes_leave_one_and_are_all_recorded(acme: Tenant) -> None:
    service = await add_service(acme.pool, acme.org)
    answers = await run_concurrently(20, lambda number: put(acme, {"client_id": f"id {number}", "client_secret": f"secret {number}"}))
    assert {answer.status for answer in answers} == {200}
    [(key, (client_id, secret))] = (await stored_credentials(acme)).items()
    assert (key, secret) == ((service, "codehost"), client_id.replace("id", "secret"))
    assert await acme.actions() == {"service.oauth_credentials.updated": 20}
