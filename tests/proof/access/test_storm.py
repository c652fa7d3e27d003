"""A storm: all requests that change an organization and its accounts, at the same time.

The requirements are security Z-1, Z-2, Z-3, Z-4, Z-5 and Z-6.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication.model.openid import Scope
from core.authentication.model.tokens import START
from core.kernel.roles import ROLES
from core.kernel.values import new_id, new_secret
from core.maintenance import housekeeping
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.access.belongings import backup_codes, begin_in_browser, password_of
from tests.proof.access.parties import Parties
from tests.proof.access.things.saml import saml_of
from tests.proof.access.world import CONSENTED, HOME, World
from tests.support.builders import Answer, Api, add_account, add_member, add_platform_owner, run_concurrently, run_sql, sign_in
from tests.support.mfa import STEP, Authenticator

pytestmark = pytest.mark.slow

AT_ONCE = 90
LAPS = 4
LIMIT = 12  # members
SERVICES = 4  # at most
# The scopes that the browsers' users agree to: the end user, the member, the owner, and the member of two organizations.
AGREED = ("openid email profile", "openid email org offline_access", "openid profile", "openid roles")
Act = tuple[str, str, Any, str | None]  # method, path, body, token or API key


class Kind(StrEnum):
    """The method for acts with several steps (parties.py).

    Their token belongs to a user, or is a browser's cookie.
    """

    CODE = "code"
    DEVICE = "device"
    SAML = "saml"
    OPENID = "openid"
    SILENT = "silent"
    WITHDRAW = "withdraw"
    SIGN_OUT = "sign out"
    END_SESSION = "end session"


class Storm:
    """The requests that the callers choose from, allowed or not.

    The owner has more chances, because most requests by other callers are refused.
    """

    def __init__(self, world: World, tokens: Mapping[str, str], stewards: Mapping[str, str], seed: int) -> None:
        org = world.home.organization
        self.base, self.platform = f"/api/organizations/{org.slug}", f"/api/platform/organizations/{org.id}"
        self.stewards = stewards  # access tokens by account id
        self.forgettable = [id_ for id_ in tokens if id_ not in {str(account.id) for account in world.home.people.values()}]
        self.acting: dict[str, str] = {}  # impersonation tokens
        self.browsers: list[str] = []  # cookies from browsers on our pages
        self.scopes: dict[str, str] = {}  # the scopes that this browser's user agrees to
        # An account with a second factor that several clients use at the same time.
        self.guarded_id, self.guarded_email = world.home.things["guarded_id"], str(world.home.people["guarded"].email)
        self.guarded: list[str] = []
        self.refresh_tokens: list[str] = []
        self.devices: list[str] = []
        self.trust_tokens = [world.home.things["guarded_device_token"]]
        self.personal_tokens = [(new_id(), new_secret())]  # ids and texts
        self.invitations = [(world.home.things["invitation_id"], world.home.things["invitation_token"])]
        self.services = [world.home.things["service_slug"], world.home.things["other_service_slug"]]
        self.plans = [world.home.things["plan_id"], world.home.things["used_plan_id"]]
        self.webhook = world.home.things["webhook_id"]
        self.role = world.home.things["role_slug"]  # a role at the first service
        self._key = world.home.keys["key"]  # an API key for the first service
        callers = [world.callers[name].robot for name in ("granted-robot", "owner-robot", "admin-robot")]
        self.robots = {str(robot.id): robot.token for robot in callers if robot is not None}  # tokens by account id
        self._tokens = tokens  # by account id
        users = (world.home.people["end-user"], world.home.people["further"], world.both)
        self.users = [(str(user.id), str(user.email)) for user in users]
        self._random = Random(seed)  # noqa: S311
        self._invited = 0

    @property
    def steward(self) -> str:
        return str(self._one_of(self.stewards.values()))

    def acts(self, owner: str) -> Iterator[Act]:
        """Return the acts in a random order, every kind once per round."""
        while True:
            who = self._tokens[owner] if self._random.random() < 0.7 else self._one_of(self._tokens.values())
            target = self._one_of(self._tokens)
            invitation, secret = self._one_of(self.invitations)
            role, policy = self._one_of(("admin", "member")), self._one_of(("anyone", "anyone", "members", "assigned"))
            service, (user, email) = f"{self.base}/services/{self._one_of(self.services)}", self._one_of(self.users)
            first, plan, number = f"{self.base}/services/{self.services[0]}", self._one_of(self.plans), self._invited // 2
            subscription = {"user_id": user, "plan_id": plan}
            login = {"email": email, "password": password_of(email), "org_slug": HOME, "service_slug": self.services[0]}
            self._invited += 1
            kinds: list[Act] = [
                ("POST", f"{self.base}/transfer-ownership", {"new_owner_user_id": target}, who),
                ("PATCH", f"{self.base}/members/{target}", {"role": role}, who),
                ("POST", f"{self.base}/members/{target}", None, who),
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
                ("POST", f"{first}/checkout", {"plan_id": plan, "success_url": "http://a/", "cancel_url": "http://a/"}, who),
                ("PUT", f"{first}/access", {"policy": policy, "saml_self_enrolled": True}, who),
                ("PUT", f"{first}/assignments/{user}", None, who),
                ("DELETE", f"{first}/assignments/{user}", None, who),
                ("PUT", f"{first}/roles/{self.role}/users/{user}", None, who),
                ("PUT", f"{first}/roles/{self.role}/users/{target}", None, who),
                ("PUT", f"/api/service/roles/{self.role}/users/{user}", None, self._key),
                ("DELETE", f"{first}/roles/{self.role}/users/{user}", None, who),
                ("PUT", f"{first}/authorization?confirm=true", {"permissions": [], "roles": [{"slug": self.role, "name": "R"}]}, who),
                ("PUT", f"{first}/authorization?confirm=true", {"permissions": [], "roles": []}, self._key),
                ("POST", f"{first}/roles", {"slug": self.role, "name": "Storm"}, who),
                ("POST", f"{service}/api-keys", {"name": "Storm", "permissions": ["read:users"]}, who),
                ("DELETE", f"{self.base}/users/{user}/sessions", None, who),
                ("GET", f"{self.base}/users", None, who),
                ("POST", f"{self.base}/webhooks", {"name": f"Storm {number}", "url": "https://192.0.2.9/", "events": ["user.joined"]}, who),
                ("PATCH", f"{self.base}/webhooks/{self.webhook}", {"is_active": bool(number % 2)}, who),
                ("POST", f"{self.base}/webhooks/{self.webhook}/test", None, who),
                ("POST", f"{self.base}/webhooks/{self.webhook}/rotate-secret", None, who),
                ("POST", f"{self.base}/siem", {"provider": "http", "endpoint_url": "https://192.0.2.7/", "token": "storm"}, who),
                ("POST", f"{self.base}/siem", {"provider": "http", "endpoint_url": "https://192.0.2.8/", "token": "storm"}, who),
                ("DELETE", f"{self.base}/siem", None, who),
                ("POST", f"{self.base}/siem/test", None, who),
                ("POST", "/api/auth/login", login, None),
                # The same addresses are invited too.
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
            kinds += self._about_personal_tokens(who)
            kinds += self._about_relying_parties(service, who)
            kinds += self._about_people(target)
            kinds += self._about_robots(target, role, who)
            self._random.shuffle(kinds)
            yield from kinds

    def _about_personal_tokens(self, who: str) -> list[Act]:
        created = {"name": "Storm", "scopes": ["members:read"], "org_slug": HOME}
        (first, text), (second, other_text) = self._one_of(self.personal_tokens), self._one_of(self.personal_tokens[-4:])
        return [
            ("POST", "/api/user/personal-tokens", created, who),
            ("POST", "/api/user/personal-tokens", created | {"scopes": ["members:read", "members:write"]}, who),
            ("POST", "/api/user/personal-tokens", {"name": "Storm", "scopes": ["account:read"]}, self._one_of(self.guarded)),
            ("DELETE", f"/api/user/personal-tokens/{first}", None, who),
            ("DELETE", f"{self.base}/personal-tokens/{second}", None, who),
            ("GET", f"{self.base}/personal-tokens", None, other_text),
            ("POST", f"{self.base}/invitations", {"email": f"by-token-{self._invited}@storm.example", "role": "member"}, text),
            ("POST", f"{self.base}/invitations", {"email": f"by-other-{self._invited}@storm.example", "role": "member"}, other_text),
            ("PATCH", self.base, {"personal_tokens": self._random.random() < 0.7}, who),
        ]

    def _about_relying_parties(self, service: str, who: str) -> list[Act]:
        """Return acts with codes, devices and SAML: configuration, sign-ons and logouts."""
        saml = saml_of(HOME, service.rpartition("/")[2])
        setup = {"enabled": True, "entity_id": saml.entity_id, "acs_url": saml.acs_url, "slo_url": saml.slo_url}
        name_id_format = self._one_of(("persistent", "emailAddress", "transient"))
        acts: list[Act] = [
            ("POST", f"{service}/saml", {**setup, "name_id_format": name_id_format, "sign_response": self._random.random() < 0.5}, who),
            ("POST", f"{service}/saml/certificate", None, who),
            (Kind.CODE, "", None, self._one_of(self.browsers)),
            (Kind.CODE, "", None, self._one_of(self.browsers)),
            (Kind.DEVICE, "", None, self._one_of(self._tokens.values())),
            (Kind.SAML, self._one_of(self.services[:2]), None, self._one_of(self.browsers)),
            (Kind.SAML, self._one_of(self.services[:2]), None, self._one_of(self.browsers)),
            *[(Kind.OPENID, self.scopes[cookie], None, cookie) for cookie in self._random.sample(self.browsers, 3)],
            (Kind.SILENT, " ".join(Scope), None, self._one_of(self.browsers)),
            *[(Kind.SILENT, self.scopes[cookie], None, cookie) for cookie in self._random.sample(self.browsers, 2)],
            (Kind.WITHDRAW, "", None, self._one_of(self.browsers)),
            (Kind.SIGN_OUT, "", None, self._one_of(self.browsers)),
            (Kind.END_SESSION, "", None, self._one_of(self.browsers)),
        ]
        if self._random.random() < 0.3:
            acts.append(("DELETE", f"{service}/saml", None, who))
        return acts

    def _about_robots(self, target: str, role: str, who: str) -> list[Act]:
        """Return acts by service accounts, and changes to them: their owner, role, credentials and end."""
        account, token = self._one_of(self.robots.items())
        path, number = f"{self.base}/service-accounts/{account}", self._invited // 2
        return [
            ("PATCH", f"{self.base}/members/{target}", {"role": role}, token),
            ("PATCH", f"{self.base}/members/{target}", {"role": "admin"}, token),
            ("POST", f"{self.base}/invitations", {"email": f"robot-{number}@storm.example", "role": role}, token),
            ("PATCH", path, {"owner_id": target}, who),
            ("PATCH", path, {"role": self._one_of(("owner", "owner", "admin"))}, who),
            ("POST", f"{path}/credentials", {"kind": "secret", "name": "Storm"}, who),
            ("POST", f"{self.base}/service-accounts", {"name": "Storm", "role": "admin", "owner_id": target}, who),
            *([("DELETE", path, None, who)] if self._random.random() < 0.1 else []),
        ]

    def _about_people(self, target: str) -> list[Act]:
        steward, other = self._random.sample([*self.stewards], 2)
        tokens, refresh_token = (self._one_of(self.guarded) for _ in range(20)), self._one_of(self.refresh_tokens[-6:])
        password = password_of(self.guarded_email)
        login = {"email": self.guarded_email, "password": password}
        acts: list[Act] = [
            ("POST", "/api/user/mfa/setup", None, next(tokens)),
            ("POST", "/api/user/mfa/setup", None, next(tokens)),
            ("POST", "/api/user/mfa/backup-codes/regenerate", None, next(tokens)),
            ("POST", "/api/auth/login", login, None),
            ("POST", "/api/auth/login", login, None),
            ("POST", "/api/auth/login", {**login, "device_token": self._one_of(self.trust_tokens)}, None),
            ("POST", "/api/auth/refresh", {"refresh_token": refresh_token}, None),
            ("POST", "/api/auth/refresh", {"refresh_token": refresh_token}, None),
            ("POST", "/api/auth/logout", None, next(tokens)),
            ("DELETE", f"/api/privacy/forget/{self._one_of(self.forgettable)}", None, self.steward),
            ("POST", f"/api/platform/impersonate/{target}", {"reason": "a storm", "org_slug": HOME}, self.stewards[steward]),
            ("POST", f"/api/platform/impersonate/{self.guarded_id}", {"reason": "a storm"}, self.stewards[steward]),
            ("POST", "/api/platform/owners", {"user_id": target}, self.steward),
            ("DELETE", f"/api/platform/owners/{target}", None, self.steward),
            ("DELETE", f"/api/platform/owners/{other}", None, self.stewards[steward]),
            ("DELETE", f"/api/platform/owners/{steward}", None, self.stewards[other]),
        ]
        if self._random.random() < 0.5:
            acts.append(("DELETE", "/api/user/mfa", None, next(tokens)))
        if self._random.random() < 0.4:  # ends all other sessions
            acts += [
                self._one_of(
                    [
                        ("POST", "/api/user/change-password", {"current_password": password, "new_password": password}, next(tokens)),
                        ("DELETE", f"/api/platform/users/{self.guarded_id}/mfa", {"reason": "a storm"}, self.steward),
                    ]
                )
            ]
        if self.devices:
            acts += [("DELETE", f"/api/user/devices/{self._one_of(self.devices)}", None, next(tokens)) for _ in range(2)]
        if self.acting:
            acts += [(method, self.base, body, self._one_of(self.acting)) for method, body in (("GET", None), ("PATCH", {"name": "As"}))]
        return acts

    def add_things(self, answers: Sequence[tuple[Act, Answer]]) -> None:
        """Add the ids and tokens in these responses, for the next acts."""
        for (_, path, body, token), answer in answers:
            response = json_of(answer)
            if "invitation" in response:
                self.invitations.append((response["invitation"]["id"], response["token"]))
            if str(response.get("token", "")).startswith(START):
                self.personal_tokens.append((response["id"], response["token"]))
            if "default_plan" in response:
                self.services.append(response["service"]["slug"])
            if response.keys() == {"id", "email", "created_at"}:
                self.users.append((response["id"], response["email"]))
            if "price_cents" in response:
                self.plans.append(response["id"])
            if "impersonated_user" in response:
                self.acting[response["access_token"]] = next(id_ for id_, own in self.stewards.items() if own == token)
            elif path in ("/api/auth/login", "/api/auth/refresh") and "refresh_token" in response:
                if path == "/api/auth/refresh" or body["email"] == self.guarded_email:
                    self.guarded.append(response["access_token"])
                    self.refresh_tokens.append(response["refresh_token"])
                if "device_token" in response:
                    self.trust_tokens.append(response["device_token"])

    def deletions(self, owner: str) -> list[Act]:
        first = f"{self.base}/services/{self.services[0]}"
        return [
            ("DELETE", first, None, self._tokens[owner]),
            ("DELETE", self.base, None, self._tokens[owner]),
            *[("DELETE", self.platform, None, steward) for steward in self.stewards.values()],
        ]

    def _one_of(self, those: Any) -> Any:
        return self._random.choice(list(those))


@pytest.mark.parametrize("seed", range(3))
async def test_all_invariants_hold_after_a_storm(
    seed: int, api: Api, app: QuartTrio, ports: Ports, pool: Pool, world: World, clock: FakeClock
) -> None:
    org = world.home.organization.id
    tokens = {str(world.home.people[role].id): token_of(world, role) for role in ROLES}
    for number in range(6):
        account = await add_account(ports, f"member{number}@storm.example", None)
        await add_member(pool, org, account.id)
        tokens[str(account.id)] = (await sign_in(ports, account, org)).access_token
    await run_sql(pool, "update organizations set max_users = %s, max_services = %s where id = %s", LIMIT, SERVICES, org)
    second = await add_platform_owner(ports, "second@platform.example")
    steward = world.callers["platform"]
    assert steward.account is not None
    stewards = {str(steward.account.id): token_of(world, "platform"), str(second.id): (await sign_in(ports, second)).access_token}
    authenticator = Authenticator(world.home.things["guarded_secret"], clock, backup_codes(HOME))
    storm, parties = Storm(world, tokens, stewards, seed), Parties(api, app, world, clock)
    for lap in range(1, LAPS + 1):
        owner = await restore_rights(pool, org, stewards, tokens)
        storm.guarded = [token for token in storm.guarded if (await api.get("/api/user", token=token)).status == 200]
        for _ in range(4):
            session = await sign_in(ports, world.home.people["guarded"])
            storm.guarded.append(session.access_token)
            storm.refresh_tokens.append(session.refresh_token)
        user_ids = {id_ for (id_,) in await run_sql(pool, "select id from users")}
        users = (*(world.home.people[name] for name in ("end-user", "further", "owner")), world.both)
        agreed = {user.id: scope for user, scope in zip(users, AGREED, strict=True) if user.id in user_ids}
        storm.scopes = {await begin_in_browser(ports, user): agreed[user.id] for user in users if user.id in agreed for _ in range(2)}
        storm.browsers = [*storm.scopes]
        for cookie, scope in storm.scopes.items():  # sessions that the storm can end
            await parties.use_openid(cookie, scope)
        assert lap > 1 or parties.id_tokens.keys() == storm.scopes.keys()
        devices = await run_sql(pool, "select id::text from devices where user_id = %s order by id", world.home.people["guarded"].id)
        storm.devices = [id_ for (id_,) in devices]
        acts = list(islice(storm.acts(owner), AT_ONCE))
        if lap == LAPS:
            acts[AT_ONCE // 2 : AT_ONCE // 2] = storm.deletions(owner)
        answers = await run_concurrently(len(acts), partial(perform, api, parties, acts, authenticator))
        assert [answer.text for _, answer in answers if answer.status >= 500] == []
        assert 200 in {answer.status for _, answer in answers}
        storm.add_things(answers)
        await check_people(pool)
        await check_acting(api, pool, storm.acting)
        await check_openid(pool, org, agreed)
        if lap == LAPS:
            if await run_sql(pool, "select 1 from organizations where id = %s", org):
                # Every caller that tried had lost the right, or did not have it yet.
                await restore_rights(pool, org, stewards, tokens)
                assert (await api.delete(storm.platform, token=storm.steward)).status == 204
            # Rows at the moment in which the resource was deleted. Housekeeping removes them.
            await housekeeping.sweep(ports, new_id())
        await check(pool, org, gone=lap == LAPS)
        clock.advance(3 * STEP)


async def restore_rights(pool: Pool, org: UUID, stewards: Mapping[str, str], tokens: Mapping[str, str]) -> str:
    """Restore what callers need for the next lap. Return the owner's id."""
    await run_sql(pool, "update organizations set status = 'active' where id = %s", org)
    await run_sql(pool, "update users set is_platform_owner = true where id = any(%s::uuid[])", list(stewards))
    # An anonymized owner still owns the organization, but cannot act.
    heir = """
        select m.user_id from memberships m join users u on u.id = m.user_id
        where m.org_id = %s and u.anonymized_at is null and u.id = any(%s::uuid[]) order by m.role <> 'owner', m.user_id limit 1"""
    [(owner,)] = await run_sql(pool, heir, org, list(tokens))
    await run_sql(pool, "update memberships set role = 'member' where org_id = %s and role = 'owner' and user_id <> %s", org, owner)
    await run_sql(pool, "update memberships set role = 'owner' where org_id = %s and user_id = %s", org, owner)
    return str(owner)


async def perform(api: Api, parties: Parties, acts: Sequence[Act], authenticator: Authenticator, number: int) -> tuple[Act, Answer]:
    """Send a request, and the code if the answer asks for it."""
    method, path, body, token = acts[number]
    match method:
        case Kind.CODE:
            return acts[number], await parties.exchange_code(token or "")
        case Kind.DEVICE:
            return acts[number], await parties.approve_device(token or "")
        case Kind.SAML:
            return acts[number], await parties.sign_on(token or "", path)
        case Kind.OPENID:
            return acts[number], await parties.use_openid(token or "", path)
        case Kind.SILENT:
            return acts[number], await parties.ask_silently(token or "", path)
        case Kind.WITHDRAW:
            return acts[number], await parties.withdraw_consent(token or "")
        case Kind.SIGN_OUT:
            return acts[number], await parties.sign_out(token or "")
        case Kind.END_SESSION:
            return acts[number], await parties.end_session(token or "")
    if path.startswith("/api/service/"):
        return acts[number], await api.call(method, path, body, headers={"X-Api-Key": token or ""})
    answer = await api.call(method, path, body, token=token)
    response = json_of(answer)
    if "mfa_required" in response:
        code = authenticator.code() if number % 3 else authenticator.backup_codes[number % len(authenticator.backup_codes)]
        answer = await api.post("/api/auth/mfa/verify", {"code": code, "trust_device": bool(number % 2)}, token=response["access_token"])
    if "qr_code_uri" in response:
        authenticator.secret = response["secret"]  # the shared account's authenticator app
        answer = await api.post("/api/user/mfa/verify", {"code": authenticator.code()}, token=token)
    authenticator.backup_codes = json_of(answer).get("backup_codes", authenticator.backup_codes)
    return acts[number], answer


def token_of(world: World, name: str) -> str:
    session = world.callers[name].session
    assert session is not None
    return session.access_token


def json_of(answer: Answer) -> dict[str, Any]:
    body = answer.json if answer.status == 200 and answer.headers.get("Content-Type") == "application/json" else {}
    return body if isinstance(body, dict) else {}


# Rows that must not exist for a deleted organization.
GOES_ALONG = (
    *("invitations", "services", "plans", "subscriptions", "api_keys", "audit_log", "audit_totals", "events", "member_login_totals"),
    *("authorization_codes", "device_codes", "saml_configurations", "saml_certificates", "saml_name_ids"),
    "consents",
    "saml_sessions",
    *("webhooks", "former_webhook_secrets", "webhook_deliveries", "siem_queue"),
)


async def check(pool: Pool, org: UUID, *, gone: bool) -> None:
    """Check an organization's invariants."""
    organizations = await run_sql(
        pool,
        """
        select o.member_count, count(m.id), count(m.id) filter (where m.role = 'owner')
        from organizations o left join memberships m on m.org_id = o.id where o.id = %s group by o.id""",
        org,
    )
    if gone:
        assert organizations == []
        assert await run_sql(pool, "select 1 from memberships where org_id = %s", org) == []
        for table in GOES_ALONG:
            assert await run_sql(pool, f"select 1 from {table} where org_id = %s", org) == []  # noqa: S608
    else:
        [(member_count, members, owners)] = organizations
        assert (member_count, owners) == (members, 1)
        assert members <= LIMIT
        await check_services(pool, org)
        totals = await run_sql(pool, "select action, target_type, total from audit_totals where org_id = %s and total > 0", org)
        entries = await run_sql(pool, "select action, target_type, count(*) from audit_log where org_id = %s group by 1, 2", org)
        assert sorted(totals) == sorted(entries)
        logins = await run_sql(pool, "select coalesce(sum(total), 0)::bigint from member_login_totals where org_id = %s", org)
        assert logins == [(sum(number for action, _, number in entries if action == "user.login.success"),)]


async def check_services(pool: Pool, org: UUID) -> None:
    """Check the counters, and that the services' users are the organization's end users."""
    services = await run_sql(
        pool,
        """
        select client_uri is null, user_count, (select count(*) from service_users u where u.service_id = s.id),
               subscription_count, (select count(*) from subscriptions u where u.service_id = s.id),
               (select coalesce(sum(total), 0) from login_totals t where t.service_id = s.id),
               (select count(*) from login_events e where e.service_id = s.id and e.success)
        from services s where org_id = %s""",
        org,
    )
    assert sum(is_registered for is_registered, *_ in services) <= SERVICES, "external clients do not count"
    for _, users, user_rows, subscriptions, subscription_rows, logins, login_rows in services:
        assert (users, subscriptions, logins) == (user_rows, subscription_rows, login_rows)
    users = await run_sql(pool, "select distinct user_id from service_users where org_id = %s order by 1", org)
    assert users == await run_sql(pool, "select user_id from end_users where org_id = %s order by 1", org)
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", org) == [(len(users),)]


async def check_people(pool: Pool) -> None:
    """Check the account invariants."""
    assert await run_sql(
        pool, "select 1 from users where is_platform_owner and deactivated_at is null and anonymized_at is null limit 1"
    ), "no platform owner is left"
    for violation, query in VIOLATIONS.items():
        assert await run_sql(pool, query) == [], violation


# Queries for rows that violate an account invariant.
VIOLATIONS: Mapping[str, str] = {
    "a revoked device has a session": """
        select s.id from sessions s join devices d on d.id = s.device_id where d.revoked_at is not null and s.ended_at is null""",
    "a revoked device is trusted": "select id from devices where revoked_at is not null and trust_hash is not null",
    "an anonymized user can sign in": """
        select u.id from users u
        where u.anonymized_at is not null
          and (u.password_hash is not null or u.mfa_enabled_at is not null or u.is_platform_owner
               or exists (select 1 from sessions s where s.user_id = u.id and s.ended_at is null)
               or exists (select 1 from mfa f where f.user_id = u.id)
               or exists (select 1 from backup_codes c where c.user_id = u.id)
               or exists (select 1 from sign_in_flows f where f.user_id = u.id)
               or exists (select 1 from passkeys k where k.user_id = u.id)
               or exists (select 1 from identities i where i.user_id = u.id)
               or exists (select 1 from authorization_codes c where c.user_id = u.id)
               or exists (select 1 from consents c where c.user_id = u.id)
               or exists (select 1 from saml_name_ids n where n.user_id = u.id)
               or exists (select 1 from devices d where d.user_id = u.id and d.trust_hash is not null))""",
    "a user who does not belong to the organization has a role of an application": """
        select h.user_id from service_role_users h
        where not exists (select 1 from end_users e where (e.org_id, e.user_id) = (h.org_id, h.user_id))
          and not exists (
              select 1 from memberships m where (m.org_id, m.user_id) = (h.org_id, h.user_id) and m.confirmed_at is not null)""",
    "a role of an application has a permission that is not declared": """
        select r.id from service_roles r
        where not r.permissions <@ array(select p.name from service_permissions p where p.service_id = r.service_id)""",
    "a service account that is gone or not the owner's gave a role above member": """
        select m.id from memberships m
        left join service_accounts a on a.id = m.promoted_by and a.org_id = m.org_id and a.role = 'owner'
        left join memberships o on o.org_id = a.org_id and o.user_id = a.owner_id and o.role = 'owner'
        where m.promoted_by is not null and o.id is null""",
    "such an account has a pending invitation above member": """
        select i.id from invitations i join service_accounts a on a.id = i.invited_by
        left join memberships o on o.org_id = a.org_id and o.user_id = a.owner_id and o.role = 'owner'
        where i.status = 'pending' and i.role <> 'member' and (a.role <> 'owner' or o.id is null)""",
    "a credential belongs to nothing": """
        select id from credentials c
        where not exists (select 1 from service_accounts where id = c.client_id)
          and not exists (select 1 from api_resources where id = c.client_id)""",
    "a session has two current refresh tokens": """
        select session_id from refresh_tokens where rotated_at is null group by session_id having count(*) > 1""",
    "a session has no current refresh token": """
        select s.id from sessions s
        where s.ended_at is null and s.browser_hash is null and not s.personal_token
          and not exists (select 1 from refresh_tokens t where t.session_id = s.id and t.rotated_at is null)""",
    "a personal access token has a refresh token": """
        select s.id from sessions s join refresh_tokens t on t.session_id = s.id where s.personal_token""",
    "a personal access token acts in an organization that its user has left": """
        select s.id from personal_tokens t join sessions s on s.id = t.session_id
        where s.ended_at is null and t.org_id is not null
          and not exists (select 1 from memberships m where m.org_id = t.org_id and m.user_id = s.user_id)""",
    "a session has another user, organization or service than its code": """
        select s.id from authorization_codes c join sessions s on s.id = c.session_id
        where (s.user_id, s.org_id, s.service_id) is distinct from (c.user_id, c.org_id, c.service_id)""",
    "a code or a device belongs to another organization than its service": """
        select c.service_id
        from (select org_id, service_id from authorization_codes union all select org_id, service_id from device_codes) c
        left join services v on (v.org_id, v.id) = (c.org_id, c.service_id) where c.service_id is not null and v.id is null""",
    "a service without SAML has an active certificate": """
        select k.id from saml_certificates k left join saml_configurations f on f.service_id = k.service_id
        where k.deactivated_at is null and f.enabled is distinct from true""",
    "an account requires a second factor that it does not have": """
        select u.id from users u left join mfa f on f.user_id = u.id
        where u.mfa_enabled_at is not null
          and (u.backup_codes_salt is null or f.last_step is null
               or (select count(*) from backup_codes c where c.user_id = u.id) <> 10)""",
    "an account without a second factor has data of one": """
        select u.id from users u
        where u.mfa_enabled_at is null
          and (exists (select 1 from backup_codes c where c.user_id = u.id)
               or exists (select 1 from sign_in_flows f where f.user_id = u.id and f.proofs <> '[]'))""",
}


async def check_openid(pool: Pool, org: UUID, agreed: Mapping[UUID, str]) -> None:
    """Check the OpenID Connect invariants: logout notices, ended browser sessions, and consents."""
    for violation, query in OPENID_VIOLATIONS.items():
        assert await run_sql(pool, query) == [], violation
    for user_id, scope in await run_sql(pool, "select user_id, scope from consents where org_id = %s", org):
        assert set(scope) <= {*CONSENTED, *agreed[user_id].split()}, "no page showed these scopes to the user"


# Queries for OpenID Connect sessions that violate an invariant.
OPENID_VIOLATIONS: Mapping[str, str] = {
    "an application was not told exactly once of the end of a session": """
        select s.id from sessions s join services v on v.id = s.service_id
        where s.scope is not null and v.backchannel_logout_uri is not null
          and (select count(*) from logout_notices n where n.session_id = s.id) <> (s.ended_at is not null)::int""",
    "an application was told twice of the end of a deleted session": """
        select session_id from logout_notices group by session_id having count(*) > 1""",
    "a session without offline access outlives that of its browser": """
        select s.id from sessions s left join sessions b on b.id = s.browser_session_id
        where s.scope is not null and s.ended_at is null and s.browser_session_id is not null
          and not 'offline_access' = any(s.scope) and (b.id is null or b.ended_at is not null)""",
    "a session has a scope that its user has not agreed to": """
        select s.id from sessions s join services v on v.id = s.service_id
        left join consents c on c.service_id = s.service_id and c.user_id = s.user_id
        where s.scope is not null and s.ended_at is null and s.grant_type = 'authorization_code'
          and not s.scope <@ coalesce(c.scope, '{}')""",
    "a session has tokens for a user who may not use its service": """
        select s.id from sessions s join directory_blocks d on (d.org_id, d.user_id) = (s.org_id, s.user_id)
        where s.scope is not null and s.ended_at is null""",
}


async def check_acting(api: Api, pool: Pool, acting: Mapping[str, str]) -> None:
    """Check that only platform owners have impersonation sessions."""
    rows = await run_sql(pool, "select id::text from users where is_platform_owner and anonymized_at is null")
    platform_owners = {id_ for (id_,) in rows}
    for token, steward in acting.items():
        if steward not in platform_owners:
            assert (await api.get("/api/user", token=token)).status == 401
