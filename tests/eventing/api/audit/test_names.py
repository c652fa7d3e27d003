"""Names in audit logs: they are today's names, belong to the organization, and find entries."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.eventing.model import audit
from core.eventing.model import audit as audit_model
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from ports import Ports
from tests.eventing.api.audit.log import LOG, Record, World, actions, logs, person
from tests.fakes.outside import FakeClock
from tests.support.builders import Api, add_account, add_invitation, add_member, add_organization, add_platform_owner, run_sql, sign_in
from tests.support.refusals import BAD, refused

ROLES = {"old_role": "member", "new_role": "admin"}


@pytest.fixture
async def kai(ports: Ports, pool: Pool, world: World) -> Account:
    """A confirmed acme member with a name."""
    kai = await add_account(ports, "kai@example.com")
    await run_sql(pool, "update users set name = 'Kai de Vries' where id = %s", kai.id)
    await add_member(pool, world.org, kai.id, confirmed=True)
    return kai


async def change_role(record: Record, world: World, user: UUID, **values: Any) -> None:
    await record("user.role_updated", target=str(user), by=person(world.owner), details=ROLES, **values)


async def the_sentence(api: Api, world: World) -> tuple[str, str | None]:
    [entry] = await logs(api, world)
    return entry["sentence"], entry["target_name"]


async def test_a_sentence_has_the_address_of_today(api: Api, world: World, record: Record, pool: Pool, kai: Account) -> None:
    await change_role(record, world, kai.id)
    assert await the_sentence(api, world) == ("owner@example.com changed kai@example.com from member to admin", "kai@example.com")
    await run_sql(pool, "update users set email = 'kai@new.example' where id = %s", kai.id)
    assert await the_sentence(api, world) == ("owner@example.com changed kai@new.example from member to admin", "kai@new.example")
    stored = await run_sql(pool, "select count(*) from audit_log l where l::text like '%%kai@%%' or l::text like '%%Kai%%'")
    assert stored == [(0,)], "no name is stored"


async def test_the_own_name_of_a_member_is_shown_after_the_confirmation_only(
    api: Api, world: World, record: Record, pool: Pool, kai: Account
) -> None:
    await record("user.joined", target=str(kai.id), by=person(kai), details={"role": "member"})
    [entry] = await logs(api, world)
    assert (entry["actor_name"], entry["sentence"]) == ("Kai de Vries", "kai@example.com joined as member")
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", kai.id)
    [entry] = await logs(api, world)
    assert (entry["actor_name"], entry["target_name"]) == (None, "kai@example.com")


async def test_an_organization_sees_no_address_of_users_it_does_not_know(
    api: Api, ports: Ports, world: World, record: Record, pool: Pool
) -> None:
    stranger = await add_account(ports, "stranger@example.com")
    await add_member(pool, world.other_tenant, stranger.id, confirmed=True)
    await change_role(record, world, stranger.id)
    hidden = f"a former user ({str(stranger.id)[:8]})"
    assert await the_sentence(api, world) == (f"owner@example.com changed {hidden} from member to admin", None)
    assert await logs(api, world, "?target=stranger@example.com") == []
    await run_sql(
        pool,
        "insert into scim_users (org_id, user_id, provisioned, email, updated_at) values (%s, %s, false, 'left@example.com', now())",
        world.org,
        stranger.id,
    )
    assert (await the_sentence(api, world))[1] == "left@example.com", "a former member has the address when they left"
    await run_sql(
        pool,
        "insert into end_users (org_id, user_id, email, deactivated, created_at) values (%s, %s, 'stranger@example.com', false, now())",
        world.org,
        stranger.id,
    )
    assert (await the_sentence(api, world))[1] == "stranger@example.com"
    assert len(await logs(api, world, "?target=stranger@")) == 1, "by the beginning of the address"


async def test_entries_are_found_by_an_address_or_a_name(api: Api, world: World, record: Record, kai: Account) -> None:
    await change_role(record, world, kai.id)
    await record("user.login.success", target=str(kai.id), by=person(kai), details={"provider": "password"})
    await record("domain.set", target=str(world.org), by=person(kai), details={"domain": "acme.example"})
    await change_role(record, world, world.owner.id)
    await change_role(record, world, kai.id, org=world.other_tenant)
    by_kai, about_kai = ["domain.set", "user.login.success"], ["user.login.success", "user.role_updated"]
    for text in ("kai@example.com", "KAI@", "ai@exam", "kai de", "vries", "%20Vries%20"):
        assert await actions(api, world, f"?actor={text}") == by_kai, text
        assert await actions(api, world, f"?target={text}") == about_kai, text
        assert await actions(api, world, f"?search={text}") == ["domain.set", "user.login.success", "user.role_updated"], text
    assert await actions(api, world, "?search=kai&action=domain.set") == ["domain.set"]
    assert await actions(api, world, "?search=kai&success=false") == []
    assert await actions(api, world, "?actor=owner&target=kai") == ["user.role_updated"]
    assert await actions(api, world, "?actor=owner&search=kai") == ["user.role_updated"]
    assert await actions(api, world, "?target=kai&target_type=user&target_id=x") == []
    for nothing in ("eli", "de vr", "example.org", "other@example.com", "_e", "%25e"):
        assert await actions(api, world, f"?search={nothing}") == [], nothing
    exported = await api.get(f"{LOG}/export?format=jsonl&search=kai", token=world.token)
    assert len(exported.text.splitlines()) == 3


async def test_objects_with_names_are_found(api: Api, ports: Ports, world: World, record: Record) -> None:
    invitation = await add_invitation(ports, world.org, "eve@example.com")
    await record("user.invited", target=str(invitation.id), details={"invited_email": "eve@example.com", "role": "member"})
    assert await actions(api, world, "?target=eve@example.com") == ["user.invited"]
    assert await actions(api, world, "?target=eve@") == []


async def test_a_search_covers_90_days_unless_a_range_is_chosen(
    api: Api, ports: Ports, world: World, record: Record, clock: FakeClock, kai: Account
) -> None:
    await change_role(record, world, kai.id)
    clock.advance(timedelta(days=89))
    world = world._replace(token=(await sign_in(ports, world.owner)).access_token)
    assert len(await logs(api, world, "?search=kai")) == 1
    clock.advance(timedelta(days=2))
    world = world._replace(token=(await sign_in(ports, world.owner)).access_token)
    assert await logs(api, world, "?search=kai") == []
    assert len(await logs(api, world, "?search=kai&since=2000-01-01T00:00:00Z")) == 1
    until = (clock.now() - timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert len(await logs(api, world, f"?search=kai&until={until}")) == 1


async def test_periods_end_now(api: Api, ports: Ports, world: World, record: Record, clock: FakeClock) -> None:
    await record("domain.set")
    for period, length in (("1h", timedelta(hours=1)), ("24h", timedelta(days=1)), ("7d", timedelta(days=7))):
        assert len(await logs(api, world, f"?period={period}")) == 1, period
        clock.advance(length + timedelta(seconds=1))
        world = world._replace(token=(await sign_in(ports, world.owner)).access_token)
        assert await logs(api, world, f"?period={period}") == [], period
    assert refused(await api.get(f"{LOG}?period=2h", token=world.token)) == BAD


async def test_entries_are_found_by_category(api: Api, world: World, record: Record) -> None:
    await record("domain.set")
    await record("plan.created")
    assert await actions(api, world, "?category=Plans") == ["plan.created"]
    assert await actions(api, world, "?category=Plans&action=plan.created") == ["plan.created"]
    assert await actions(api, world, "?category=Plans&action=domain.set") == []
    assert await actions(api, world, "?category=Domains%20and%20branding&target_type=domain") == ["domain.set"]
    assert await actions(api, world, "?category=plans") == []


async def test_a_text_that_many_people_have_is_refused(
    api: Api, world: World, record: Record, monkeypatch: pytest.MonkeyPatch, kai: Account
) -> None:
    monkeypatch.setattr(audit, "MAX_MATCHES", 1)
    assert refused(await api.get(f"{LOG}?search=example", token=world.token)) == BAD
    assert refused(await api.get(f"{LOG}/export?search=example", token=world.token)) == BAD
    assert refused(await api.get(f"{LOG}?search=%20", token=world.token)) == BAD
    assert await logs(api, world, "?search=kai") == []
    assert str(audit_model.MAX_MATCHES) in str(audit_model.SearchTooBroad(""))


async def test_the_platforms_log_has_names(api: Api, ports: Ports, pool: Pool, record: Record) -> None:
    steward, org = await add_platform_owner(ports), await add_organization(pool, "initech")
    user = await add_account(ports, "user@example.com")
    await run_sql(pool, "update users set name = 'Uma Lind' where id = %s", user.id)
    async with ports.storage.transaction(by=person(steward), in_session=False) as tx:
        tx.record(Event(EVENT_KINDS["platform.owner.promoted"], str(user.id)))
        tx.record(Event(EVENT_KINDS["organization.suspended"], str(org), details={"reason": "unpaid"}))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        tx.record(Event(EVENT_KINDS["organization.deleted"], str(uuid4()), details={"name": "Gone"}))
    token = (await sign_in(ports, steward)).access_token

    async def found(query: str) -> set[str]:
        answer = await api.get(f"/api/platform/audit-log{query}", token=token)
        assert answer.status == 200, answer.text
        return {entry["sentence"] for entry in answer.json["logs"] if entry["action"] != "user.login.success"}

    promoted, suspended = f"{steward.email} made user@example.com a platform owner", f"{steward.email} suspended Initech"
    everything = await found("")
    assert {promoted, "Gatehouse deleted the organization Gone"} <= everything
    assert any(sentence.lower() == suspended.lower() for sentence in everything)
    for text in ("user@example.com", "uma", "lind"):
        assert await found(f"?target={text}") == {promoted}, text
    assert promoted in await found(f"?actor={steward.email}")
    assert len(await found("?target=initech")) == 1
    assert await found("?search=nobody") == set()
