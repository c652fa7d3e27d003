"""A storm over one organization: everything that people may do to it, all at once (security.md Z-1 to Z-6)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.pool import Pool
from core.access import Role
from ports import Ports
from tests.access.world import HOME, World, password_of
from tests.builders import Answer, Api, add_account, add_member, everyone, run_sql, sign_in

pytestmark = pytest.mark.slow

AT_ONCE = 60
LAPS = 3
LIMIT = 12  # members
SERVICES = 4  # at most

Act = tuple[str, str, Any, str | None]  # method, path, body, token or API key


class Storm:
    """What people think of doing, whether they may or not. Who owns the organization thinks of more, for the others are mostly refused."""

    def __init__(self, world: World, tokens: Mapping[str, str], seed: int) -> None:
        org = world.home.organization
        self.base, self.platform = f"/api/organizations/{org.slug}", f"/api/platform/organizations/{org.id}"
        self.steward = token_of(world, "platform")
        self.invitations = [(world.home.things["invitation_id"], world.home.things["invitation_token"])]
        self.services = [world.home.things["service_slug"], world.home.things["other_service_slug"]]
        self.plans = [world.home.things["plan_id"], world.home.things["used_plan_id"]]
        self._key = world.home.keys["key"]  # of the first of the services
        self._tokens = tokens  # by the id of the account
        users = (world.home.people["end-user"], world.home.people["further"], world.both)
        self.users = [(str(user.id), str(user.email)) for user in users]
        self._random = Random(seed)  # noqa: S311
        self._invited = 0

    def acts(self, owner: str) -> Iterator[Act]:
        """One of each kind, again and again."""
        while True:
            who = self._tokens[owner] if self._random.random() < 0.7 else self._one_of(self._tokens.values())
            whom = self._one_of(self._tokens)
            invitation, secret = self._one_of(self.invitations)
            role = self._one_of(("admin", "member"))
            service, (user, email) = f"{self.base}/services/{self._one_of(self.services)}", self._one_of(self.users)
            first, plan, number = f"{self.base}/services/{self.services[0]}", self._one_of(self.plans), self._invited // 2
            subscription = {"user_id": user, "plan_id": plan}
            login = {"email": email, "password": password_of(email), "org_slug": HOME, "service_slug": self.services[0]}
            self._invited += 1
            kinds: list[Act] = [
                ("POST", f"{self.base}/transfer-ownership", {"new_owner_user_id": whom}, who),
                ("PATCH", f"{self.base}/members/{whom}", {"role": role}, who),
                ("POST", f"{self.base}/members/{whom}", None, who),
                ("POST", f"{self.base}/invitations", {"email": f"{number}@storm.example", "role": role}, who),
                ("POST", "/api/invitations/accept", {"token": secret}, None),
                ("POST", "/api/invitations/decline", {"token": secret}, None),
                ("POST", f"{self.base}/invitations/{invitation}", None, who),
                ("PATCH", self.base, {"name": f"Storm {self._invited}"}, who),
                ("POST", f"{self.base}/select", None, who),
                ("GET", f"{self.base}/members", None, who),
                ("POST", f"{self.base}/services", {"slug": f"storm-{number}", "name": "Storm", "service_type": "web"}, who),
                ("PATCH", service, {"name": f"Storm {self._invited}"}, who),
                ("DELETE", service if service != first else f"{self.base}/services/storm-{number}", None, who),
                ("POST", f"{first}/plans", {"name": "Storm", "price_cents": 1, "currency": "eur"}, who),
                ("DELETE", f"{first}/plans/{plan}", None, who),
                ("POST", f"{service}/api-keys", {"name": "Storm", "permissions": ["read:users"]}, who),
                ("DELETE", f"{self.base}/users/{user}/sessions", None, who),
                ("GET", f"{self.base}/users", None, who),
                ("POST", "/api/auth/login", login, None),
                # The same addresses are invited, too.
                ("POST", "/api/service/users", {"email": f"{number}@storm.example"}, self._key),
                ("PATCH", f"/api/service/users/{user}", {"email": f"{number}@storm.example"}, self._key),
                ("DELETE", f"/api/service/users/{user}", None, self._key),
                ("POST", "/api/service/subscriptions", subscription, self._key),
                ("PATCH", f"/api/service/subscriptions/{user}", {"plan_id": plan}, self._key),
                ("DELETE", f"/api/service/subscriptions/{user}", None, self._key),
                ("POST", f"{self.platform}/suspend", {}, self.steward),
                ("POST", f"{self.platform}/activate", None, self.steward),
                ("PATCH", f"{self.platform}/tier", {"tier_id": "00000000-0000-4000-8000-000000000001"}, self.steward),
            ]
            self._random.shuffle(kinds)
            yield from kinds

    def deletions(self, owner: str) -> list[Act]:
        first = f"{self.base}/services/{self.services[0]}"
        return [
            ("DELETE", first, None, self._tokens[owner]),
            ("DELETE", self.base, None, self._tokens[owner]),
            ("DELETE", self.platform, None, self.steward),
        ]

    def _one_of(self, those: Any) -> Any:
        return self._random.choice(list(those))


@pytest.mark.parametrize("seed", range(3))
async def test_after_a_storm_everything_is_as_it_must_be(seed: int, api: Api, ports: Ports, pool: Pool, world: World) -> None:
    org = world.home.organization.id
    tokens = {str(world.home.people[role].id): token_of(world, role) for role in Role}
    for number in range(4):
        account = await add_account(ports, f"member{number}@storm.example", None)
        await add_member(pool, org, account.id)
        tokens[str(account.id)] = (await sign_in(ports, account, org)).access_token
    await run_sql(pool, "update organizations set max_users = %s, max_services = %s where id = %s", LIMIT, SERVICES, org)
    storm = Storm(world, tokens, seed)
    for lap in range(1, LAPS + 1):
        await run_sql(pool, "update organizations set status = 'active' where id = %s", org)
        [(owner,)] = await run_sql(pool, "select user_id::text from memberships where org_id = %s and role = 'owner'", org)
        acts = list(islice(storm.acts(owner), AT_ONCE))
        if lap == LAPS:
            acts[AT_ONCE // 2 : AT_ONCE // 2] = storm.deletions(owner)
        answers = await everyone(len(acts), partial(perform, api, acts))
        assert [answer.text for answer in answers if answer.status >= 500] == []
        assert 200 in {answer.status for answer in answers}
        storm.invitations += [(made["invitation"]["id"], made["token"]) for made in map(json_of, answers) if "invitation" in made]
        storm.services += [made["service"]["slug"] for made in map(json_of, answers) if "default_plan" in made]
        storm.users += [(made["id"], made["email"]) for made in map(json_of, answers) if made.keys() == {"id", "email", "created_at"}]
        storm.plans += [made["id"] for made in map(json_of, answers) if "price_cents" in made]
        await check(pool, org, gone=lap == LAPS)


async def perform(api: Api, acts: Sequence[Act], number: int) -> Answer:
    method, path, body, token = acts[number]
    if path.startswith("/api/service/"):
        return await api.call(method, path, body, headers={"X-Api-Key": token or ""})
    return await api.call(method, path, body, token=token)


def token_of(world: World, name: str) -> str:
    session = world.callers[name].session
    assert session is not None
    return session.access_token


def json_of(answer: Answer) -> dict[str, Any]:
    found = answer.json if answer.status == 200 else {}
    return found if isinstance(found, dict) else {}


async def check(pool: Pool, org: UUID, *, gone: bool) -> None:
    """What holds after whatever happened."""
    left = await run_sql(
        pool,
        """
        select o.member_count, count(m.id), count(m.id) filter (where m.role = 'owner')
        from organizations o left join memberships m on m.org_id = o.id where o.id = %s group by o.id""",
        org,
    )
    if gone:
        assert left == []
        assert await run_sql(pool, "select 1 from memberships where org_id = %s", org) == []
        for table in ("invitations", "services", "plans", "subscriptions", "api_keys"):
            assert await run_sql(pool, f"select 1 from {table} where org_id = %s", org) == []  # noqa: S608
    else:
        [(counted, members, owners)] = left
        assert (counted, owners) == (members, 1)
        assert members <= LIMIT
        await check_services(pool, org)
    totals = await run_sql(pool, "select action, target_type, total from audit_totals where org_id = %s and total > 0", org)
    entries = await run_sql(pool, "select action, target_type, count(*) from audit_log where org_id = %s group by 1, 2", org)
    assert sorted(totals) == sorted(entries)


async def check_services(pool: Pool, org: UUID) -> None:
    """What is counted is there, and whoever uses a service is an end user of the organization."""
    services = await run_sql(
        pool,
        """
        select user_count, (select count(*) from service_users u where u.service_id = s.id),
               subscription_count, (select count(*) from subscriptions u where u.service_id = s.id),
               (select coalesce(sum(total), 0) from login_totals t where t.service_id = s.id),
               (select count(*) from login_events e where e.service_id = s.id and e.success)
        from services s where org_id = %s""",
        org,
    )
    assert len(services) <= SERVICES
    for users, found_users, subscriptions, found_subscriptions, logins, found_logins in services:
        assert (users, subscriptions, logins) == (found_users, found_subscriptions, found_logins)
    users = await run_sql(pool, "select distinct user_id from service_users where org_id = %s order by 1", org)
    assert users == await run_sql(pool, "select user_id from end_users where org_id = %s order by 1", org)
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", org) == [(len(users),)]
