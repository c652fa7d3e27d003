"""Secrets that end are announced 14 and 3 days before, every announcement once, to the user who can replace them (decision 291)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import structlog
import trio
from quart_trio import QuartTrio

from actors.mailbox import TimedMailbox
from actors.sweep_jobs import SECRET_ANNOUNCEMENT, sweeper
from adapters.postgres.accounts.email_queue import EmailQueue
from adapters.postgres.engine.pool import Pool
from core.accounts.model.email_queue import NoticedSecret, QueuedEmail
from core.applications.model.api_keys import ApiKey
from core.kernel.causes import SYSTEM
from core.kernel.display import format_utc
from core.kernel.roles import ADMIN as ADMIN_ROLE
from core.kernel.roles import MEMBER as MEMBER_ROLE
from core.kernel.roles import ROLES, Capability, Permission
from core.kernel.values import digest, new_id, new_secret
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as housekeeping_model
from core.programs.model.credentials import Credential, CredentialKind
from core.programs.model.registration_tokens import RegistrationToken
from core.provisioning.model.directories import ScimToken
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, add_account, add_member, add_organization, deliver, run_concurrently, run_sql
from tests.support.personal_tokens import add_personal_token
from tests.support.programs import add_service_account
from tests.support.services import add_api_resource, add_service
from tests.support.waiting import PATIENCE, eventually

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
OWNER, ADMIN, MEMBER, STEWARD = "owner@acme.example", "admin@acme.example", "member@acme.example", "steward@platform.example"
PLATFORM_CREDENTIAL = "platform_credential"
# Who is told about a secret that an admin created: a token's user, a service account's owner, or the admin.
RECIPIENTS: Mapping[str, str] = {
    NoticedSecret.PERSONAL_TOKEN: MEMBER,
    NoticedSecret.API_KEY: ADMIN,
    NoticedSecret.SCIM_TOKEN: ADMIN,
    NoticedSecret.REGISTRATION_TOKEN: ADMIN,
    NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: OWNER,
    NoticedSecret.API_RESOURCE_CREDENTIAL: ADMIN,
    PLATFORM_CREDENTIAL: STEWARD,
}


@dataclass(slots=True)
class World:
    """An organization with something of every kind that can have a secret, and a service account at the platform."""

    ports: Ports
    pool: Pool
    clock: FakeClock
    sent: FakeMailTransport
    org: UUID
    users: dict[str, UUID]
    service: UUID
    robot: UUID
    resource: UUID
    steward: UUID
    holder: UUID = field(default_factory=new_id)

    async def add(self, kind: str, life: timedelta, *, created_by: UUID | None = None, name: str | None = None) -> None:
        """Add a secret that is named after its kind."""
        id_, now, name = new_id(), self.clock.now(), name or kind
        ends_at, secret_hash, creator = now + life, digest(new_secret()), created_by or self.users[ADMIN]
        if kind == NoticedSecret.PERSONAL_TOKEN:
            async with self.ports.storage.reading() as read:
                account = await read.accounts.by_id(self.users[MEMBER])
            assert account is not None
            await add_personal_token(self.ports, account, self.org, name=name, lifetime=life)
            return
        programs = {
            NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: (self.org, self.robot),
            NoticedSecret.API_RESOURCE_CREDENTIAL: (self.org, self.resource),
            PLATFORM_CREDENTIAL: (None, self.steward),
        }
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            if kind == NoticedSecret.API_KEY:
                key = ApiKey(
                    id=id_,
                    org_id=self.org,
                    service_id=self.service,
                    name=name,
                    prefix="sk_k2v7qa",
                    permissions=(Permission.READ_USERS,),
                    last_used_at=None,
                    expires_at=ends_at,
                    created_by=creator,
                    created_at=now,
                )
                await tx.api_keys.add(key, secret_hash)
            elif kind == NoticedSecret.SCIM_TOKEN:
                token = ScimToken(
                    id=id_, org_id=self.org, name=name, prefix="scim_live_k2v7qa", expires_at=ends_at, created_by=creator, created_at=now
                )
                await tx.scim_tokens.add(token, secret_hash)
            elif kind == NoticedSecret.REGISTRATION_TOKEN:
                registration = RegistrationToken(
                    id=id_,
                    org_id=self.org,
                    name=name,
                    prefix="gthr_k2V7qA",
                    uses_left=1,
                    expires_at=ends_at,
                    created_by=creator,
                    created_at=now,
                )
                await tx.registration_tokens.add(registration, secret_hash)
            else:
                org, client = programs[kind]
                credential = Credential(
                    id=id_,
                    client_id=client,
                    org_id=org,
                    kind=CredentialKind.SECRET,
                    name=name,
                    hint="gthc_k2v7qa",
                    expires_at=ends_at,
                    created_by=creator,
                    created_at=now,
                )
                await tx.credentials.add(credential, secret_hash)

    async def add_all(self, life: timedelta = 30 * DAY) -> None:
        for kind in RECIPIENTS:
            await self.add(kind, life)

    async def announced(self) -> Counter[tuple[str, str]]:
        """Send the due announcements, and return the secrets' names with the recipients."""
        assert await housekeeping.announce_expiring_secrets(self.ports, self.holder) is not None
        return await self.take_queued()

    async def take_queued(self) -> Counter[tuple[str, str]]:
        """Remove the queued emails. Return their secrets' names with the recipients."""
        rows = await run_sql(self.pool, "delete from mails where kind = 'secret_expires' returning secret->>'name', address")
        return Counter((name, address) for name, address in rows)


@pytest.fixture
async def world(ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport) -> World:
    org = await add_organization(pool, "acme")
    users = {}
    for email, role in ((OWNER, "owner"), (ADMIN, "admin"), (MEMBER, "member")):
        users[email] = (await add_account(ports, email)).id
        await add_member(pool, org, users[email], role, confirmed=True)
    users[STEWARD] = (await add_account(ports, STEWARD, is_platform_owner=True)).id
    return World(
        ports=ports,
        pool=pool,
        clock=clock,
        sent=sent,
        org=org,
        users=users,
        service=await add_service(pool, org),
        robot=await add_service_account(pool, org, users[OWNER], name="Deploy"),
        resource=await add_api_resource(pool, org, f"urn:gatehouse:{org}:orders"),
        steward=await add_service_account(pool, None, users[STEWARD], name="Provisioning"),
    )


async def test_each_kind_is_announced_twice_with_a_link_to_its_page(world: World, app: QuartTrio) -> None:
    await world.add_all()
    ends_at = format_utc(world.clock.now() + 30 * DAY)
    expected = Counter(RECIPIENTS.items())
    world.clock.advance(16 * DAY - SECOND)
    assert await world.announced() == {}
    world.clock.advance(SECOND)
    assert await world.announced() == expected
    assert await world.announced() == {}
    world.clock.advance(11 * DAY)
    assert await housekeeping.announce_expiring_secrets(world.ports, world.holder) == {
        **dict.fromkeys(NoticedSecret, 1),
        NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: 2,
    }
    await deliver(world.ports)
    emails = {name: message for name in RECIPIENTS for message in world.sent.emails if f" {name} " in message.subject}
    assert len(world.sent.emails) == len(expected)
    assert Counter((name, message.to) for name, message in emails.items()) == expected
    belongings = {
        NoticedSecret.API_KEY: "Shop",
        NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: "Deploy",
        NoticedSecret.API_RESOURCE_CREDENTIAL: "Orders API",
        PLATFORM_CREDENTIAL: "Provisioning",
    }
    for name, message in emails.items():
        text = " ".join(message.text.split())
        assert f"expires on {ends_at}" in text
        assert name == PLATFORM_CREDENTIAL or "in the organization Acme" in text
        assert belongings.get(name, name) in text
        [path] = [line.removeprefix(BASE_URL) for line in message.text.splitlines() if line.startswith(f"{BASE_URL}/app/")]
        browser = FakeBrowser(app)
        await browser.sign_in(message.to)
        page = await browser.open(path)
        assert page.status == 200, path
        assert name in page.text, "the page lists the secret"
    world.clock.advance(3 * DAY)
    assert await housekeeping.announce_expiring_secrets(world.ports, world.holder) == {}


@pytest.mark.parametrize(
    ("life", "days"),
    [(3 * DAY, []), (3 * DAY + SECOND, [3]), (10 * DAY, [3]), (14 * DAY, [3]), (14 * DAY + SECOND, [14, 3]), (366 * DAY, [14, 3])],
)
async def test_a_secret_is_announced_only_at_times_that_it_was_made_to_outlive(world: World, life: timedelta, days: list[int]) -> None:
    ends_at = world.clock.now() + life
    await world.add(NoticedSecret.API_KEY, life)
    announced = []
    for moment in (life, life - SECOND, 14 * DAY, 13 * DAY, 4 * DAY, 3 * DAY, DAY, SECOND):
        if moment <= ends_at - world.clock.now():
            world.clock.advance(ends_at - world.clock.now() - moment)
            announced += [moment] * (await world.announced()).total()
    assert announced == [min(day * DAY, life - SECOND) for day in days]


async def test_after_an_outage_only_the_nearest_announcement_is_sent(world: World) -> None:
    await world.add_all()
    world.clock.advance(28 * DAY)
    assert await world.announced() == Counter(RECIPIENTS.items())
    assert await world.announced() == {}


async def test_secrets_that_do_not_work_are_not_announced(world: World) -> None:
    await world.add_all()
    world.clock.advance(20 * DAY)
    await run_sql(world.pool, "update organizations set status = 'suspended'")
    assert await world.announced() == {(PLATFORM_CREDENTIAL, STEWARD): 1}
    await run_sql(world.pool, "update organizations set status = 'active', personal_tokens = false")
    await run_sql(world.pool, "update memberships set role = 'member' where user_id = %s", world.users[OWNER])
    await run_sql(world.pool, "update api_resources set host = 'lost.example.com'")
    await run_sql(world.pool, "delete from api_keys")  # revoked
    await run_sql(world.pool, "delete from scim_tokens")
    await run_sql(world.pool, "update registration_tokens set uses_left = 0")
    assert await world.announced() == {}
    await run_sql(world.pool, "update sessions set ended_at = now() where personal_token")
    await run_sql(world.pool, "update organizations set personal_tokens = true")
    await run_sql(world.pool, "update memberships set role = 'owner' where user_id = %s", world.users[OWNER])
    await run_sql(world.pool, "update api_resources set host = null")
    kinds = (NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL, NoticedSecret.API_RESOURCE_CREDENTIAL)
    assert await world.announced() == {(kind.value, RECIPIENTS[kind]): 1 for kind in kinds}


GONE: Mapping[str, str] = {
    "demoted": "update memberships set role = 'member' where user_id = %s",
    "removed": "delete from memberships where user_id = %s",
    "deactivated": "update users set deactivated_at = now() where id = %s",
    "with a new address that is not proved": "update users set email_verified_at = null where id = %s",
}


@pytest.mark.parametrize("change", GONE.values(), ids=GONE)
async def test_the_owner_gets_what_the_creator_can_no_longer_replace(world: World, change: str) -> None:
    created = (NoticedSecret.API_KEY, NoticedSecret.SCIM_TOKEN, NoticedSecret.API_RESOURCE_CREDENTIAL)
    for kind in created:
        await world.add(kind, 30 * DAY)
        await world.add(kind, 30 * DAY, created_by=world.robot, name=f"{kind} of a robot")
    await run_sql(world.pool, change, world.users[ADMIN])
    world.clock.advance(20 * DAY)
    assert await world.announced() == Counter((name, OWNER) for kind in created for name in (kind.value, f"{kind} of a robot"))


# The rights with which a member replaces a secret, by kind: creating it takes the same rights
REPLACES: Mapping[NoticedSecret, frozenset[Capability]] = {
    NoticedSecret.API_KEY: frozenset({Capability.API_KEYS_MANAGE, Capability.END_USERS_VIEW}),
    NoticedSecret.SCIM_TOKEN: ROLES[ADMIN_ROLE].rights - {Capability.ORGANIZATION_VIEW},
    NoticedSecret.API_RESOURCE_CREDENTIAL: frozenset({Capability.RESOURCES_MANAGE}),
}
GIVE: Mapping[str, str] = {
    "own role": "update memberships set role = 'keeper' where user_id = '{user}'",
    "role of a group": """
        with given as (
            insert into groups (id, org_id, name, name_key, role, mapped_by, mapped_at, member_count, created_at, updated_at,
                                members_changed_at)
            values ('{user}', '{org}', 'Keepers', 'keepers', 'keeper', '{owner}', now(), 1, now(), now(), now())),
        joined as (
            insert into group_members (org_id, group_id, user_id, added_at) values ('{org}', '{user}', '{user}', now())),
        demoted as (update memberships set role = 'member' where user_id = '{user}')
        update organizations set maps_groups = true""",
}


@pytest.mark.parametrize("give", GIVE.values(), ids=GIVE)
async def test_the_creator_gets_what_they_can_replace_by_rights_of_any_role(world: World, give: str) -> None:
    insert = """
        insert into organization_roles (id, org_id, slug, name, description, capabilities, created_at, updated_at)
        values (%s, %s, 'keeper', 'Keeper', '', '{}', now(), now())"""
    await run_sql(world.pool, insert, new_id(), world.org)
    await run_sql(world.pool, give.format(user=world.users[ADMIN], org=world.org, owner=world.users[OWNER]))
    for number, (kind, rights) in enumerate(REPLACES.items()):
        for missing in (None, *sorted(rights - ROLES[MEMBER_ROLE].rights)):
            await run_sql(world.pool, "update organization_roles set capabilities = %s", sorted(rights - {missing}))
            await world.add(kind, 3 * DAY + SECOND, name=str(number))
            world.clock.advance(SECOND)
            assert await world.announced() == {(str(number), ADMIN if missing is None else OWNER): 1}, (kind, missing)
            world.clock.advance(3 * DAY)


@pytest.mark.parametrize("change", ["deactivated", "with a new address that is not proved"])
async def test_users_who_cannot_receive_it_get_nothing_until_they_can(world: World, change: str) -> None:
    await world.add_all()
    for user in world.users.values():
        await run_sql(world.pool, GONE[change], user)
    world.clock.advance(20 * DAY)
    assert await world.announced() == {}
    await run_sql(world.pool, "update users set deactivated_at = null, email_verified_at = now()")
    assert await world.announced() == Counter(RECIPIENTS.items())


async def test_each_announcement_is_queued_once_with_many_processes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping_model, "EXPIRY_BATCH", 3)
    # The lease ends at once, so the processes compete as often as possible.
    monkeypatch.setattr(housekeeping_model, "EXPIRY_LEASE", timedelta())
    names = Counter[tuple[str, str]]()
    for kind, recipient in RECIPIENTS.items():
        for number in range(10):
            await world.add(kind, 30 * DAY, name=f"{kind} {number}")
            names[f"{kind} {number}", recipient] += 1
    for days in (20, 8):
        world.clock.advance(days * DAY)
        await run_concurrently(4, lambda _: housekeeping.announce_expiring_secrets(world.ports, new_id()))
        await housekeeping.announce_expiring_secrets(world.ports, world.holder)  # rows that were locked in all sweeps
        assert await world.take_queued() == names


async def test_a_crash_between_mark_and_email_loses_and_repeats_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.add_all()
    world.clock.advance(20 * DAY)
    add: Callable[[EmailQueue, QueuedEmail], Awaitable[None]] = EmailQueue.add

    async def crash(self: EmailQueue, email: QueuedEmail) -> None:
        await add(self, email)
        assert email.secret is not None
        if email.secret.name == PLATFORM_CREDENTIAL:
            raise RuntimeError("the process dies")

    with monkeypatch.context() as patch:
        patch.setattr(EmailQueue, "add", crash)
        with pytest.raises(RuntimeError, match="the process dies"):
            await housekeeping.announce_expiring_secrets(world.ports, new_id())
    before_crash = await world.take_queued()
    assert before_crash
    assert await housekeeping.announce_expiring_secrets(world.ports, world.holder) is None  # the dead process has the lease
    world.clock.advance(housekeeping_model.EXPIRY_LEASE)
    after_crash = await world.announced()
    assert after_crash
    assert before_crash + after_crash == Counter(RECIPIENTS.items())


async def test_the_actors_of_several_processes_log_their_work_once(world: World, metrics: FakeMetrics) -> None:
    await world.add(NoticedSecret.SCIM_TOKEN, 30 * DAY)
    world.clock.advance(20 * DAY)

    def counts(log: list[Any]) -> list[Any]:
        return [(line["event"], line["job"], line["scim_token"]) for line in log]

    with structlog.testing.capture_logs() as log, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(sweeper, world.ports, replace(SECRET_ANNOUNCEMENT, period=0.01), TimedMailbox(), new_id())
            await eventually(lambda: log)
            await world.add(NoticedSecret.SCIM_TOKEN, 3 * DAY + SECOND)
            world.clock.advance(SECOND)
            await eventually(lambda: len(log) > 1)
            nursery.cancel_scope.cancel()
    assert counts(log) == [("swept", "secret_announcement", 1)] * 2
    assert {job for job, _ in metrics.jobs} == {"secret_announcement"}


async def test_a_registration_token_that_ended_with_the_rights_of_its_creator_is_not_announced(world: World) -> None:
    await world.add(NoticedSecret.REGISTRATION_TOKEN, 30 * DAY)
    await run_sql(world.pool, "update memberships set role = 'member' where user_id = %s", world.users[ADMIN])
    world.clock.advance(20 * DAY)
    assert await world.announced() == {}
