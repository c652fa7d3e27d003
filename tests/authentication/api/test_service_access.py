"""Every protocol applies the same rule for access to services (security C-5, decision 57)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.applications.model.users import AccessPolicy
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import DeviceClient
from tests.federation.api.relying import SECRET, RelyingParty
from tests.support.browser import HOME, leads_to
from tests.support.builders import EMAIL, PASSWORD, Answer, add_account, add_member, add_provisioned, run_sql, sign_in
from tests.support.saml import SamlApplication
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_plan, add_service_user, add_subscription, service_context, sign_in_to
from tests.support.tenants import Tenant


@dataclass(frozen=True, slots=True)
class State:
    """What the organization knows about a user."""

    origin: str | None = None  # the enrollment's time, or None if the user does not use the service
    member: bool = False
    confirmed: bool = True  # the membership
    subscription: str | None = None  # its status
    blocked: bool = False  # by the directory
    blocked_by_admin: bool = False


STATES: Final = {
    "stranger": State(),
    "end user": State("self"),
    "member": State(member=True),
    "unconfirmed member": State(member=True, confirmed=False),
    "of an API key": State("api_key"),
    "of the directory": State("directory"),
    "of an admin": State("admin"),
    "subscriber": State("subscription", subscription="active"),
    "former subscriber": State("subscription", subscription="expired"),
    "blocked": State("admin", member=True, subscription="active", blocked=True),
    "blocked by an admin": State("admin", member=True, subscription="active", blocked_by_admin=True),
}
BLOCKED: Final = {"blocked", "blocked by an admin"}
ASSIGNED: Final = {"of an API key", "of the directory", "of an admin", "subscriber"}
MEMBERS: Final = {"member"}
WITH_UNCONFIRMED: Final = MEMBERS | {"unconfirmed member"}
ADMITTED: Final = {
    "anyone": set(STATES) - BLOCKED,
    "members": WITH_UNCONFIRMED,
    "members_and_assigned": WITH_UNCONFIRMED | ASSIGNED,
    "assigned": ASSIGNED,
}
# SAML, under the policy and with or without `saml_self_enrolled`. Only confirmed memberships count.
ADMITTED_BY_SAML: Final = {
    ("anyone", False): MEMBERS | ASSIGNED,
    ("anyone", True): set(STATES) - BLOCKED - {"stranger", "unconfirmed member"},
    ("members", True): MEMBERS,
    ("members_and_assigned", True): MEMBERS | ASSIGNED,
    ("assigned", True): ASSIGNED,
}


class Protocols:
    """All the ways in which a user gets into a service. Every way starts from the given state and answers whether it let the user in."""

    def __init__(self, party: RelyingParty, browser: SamlBrowser, application: SamlApplication, user: Account, clock: FakeClock) -> None:
        self._tenant, self._party, self._browser, self._application = party.tenant, party, browser, application
        self._user, self._clock = user, clock

    async def put(self, policy: str, state: State, *, saml_self_enrolled: bool = False) -> None:
        """Set the policy and the state directly, so that the user's sessions, codes and approvals stay."""
        pool, service, user = self._tenant.pool, self._party.service, self._user.id
        set_policy = "update services set access_policy = %s, saml_self_enrolled = %s where id = %s"
        await run_sql(pool, set_policy, policy, saml_self_enrolled, service)
        for table in ("service_users", "end_users", "memberships", "subscriptions", "scim_users", "directory_blocks", "end_user_blocks"):
            await run_sql(pool, f"delete from {table} where user_id = %s", user)  # noqa: S608
        if state.origin is not None:
            await add_service_user(self._tenant.ports, service, user, signed_in=False)
            await run_sql(pool, "update service_users set enrolled_by = %s where user_id = %s", state.origin, user)
        if state.member:
            await add_member(pool, self._tenant.org, user, confirmed=state.confirmed)
        if state.subscription is not None:
            ends = self._clock.now() + timedelta(days=1)
            await add_subscription(self._tenant.ports, pool, service, user, self._plan, state.subscription, ends=ends)
        if state.blocked:
            await add_provisioned(pool, self._tenant.org, user, provisioned=False, blocked=True)
        if state.blocked_by_admin:
            await run_sql(pool, "insert into end_user_blocks select %s, id, now(), email from users where id = %s", self._tenant.org, user)

    async def prepare(self) -> None:
        self._plan = await add_plan(self._tenant.pool, self._party.service)
        self._service = await service_context(self._tenant.pool, self._party.service)
        self._token = (await sign_in(self._tenant.ports, self._user)).access_token
        assert leads_to(await self._browser.sign_in()) == HOME

    async def _new_device(self) -> DeviceClient:
        device = DeviceClient(self._tenant.api, self._tenant.pool, self._clock, self._service)
        await device.begin()
        return device

    async def outcomes(self, policy: str, state: State) -> dict[str, bool]:
        """Return the protocols and whether they let the user in."""
        await self.put("anyone", State("self"))
        code, of_code = await self._party.code(), await self._party.tokens()
        of_password = await sign_in_to(self._tenant.ports, self._tenant.pool, self._party.service, self._user)
        approved, waiting = await self._new_device(), await self._new_device()
        assert (await approved.decide(self._token)).status == 200
        login = {"email": EMAIL, "password": PASSWORD, "org_slug": self._tenant.slug, "service_slug": self._party.slug}
        calls: dict[str, Callable[[], Awaitable[Answer]]] = {
            "password login": lambda: self._tenant.api.post("/api/auth/login", login),
            "code exchange": lambda: self._party.exchange(code),
            "OAuth refresh": lambda: self._party.refresh(of_code["refresh_token"]),
            "API refresh": lambda: self._tenant.api.post("/api/auth/refresh", {"refresh_token": of_password.refresh_token}),
            "device approval": lambda: waiting.decide(self._token),
            "device redemption": approved.poll_after_interval,
        }
        outcomes = {}
        for protocol, call in calls.items():
            await self.put(policy, state)
            outcomes[protocol] = (await call()).status == 200
        await self.put(policy, state)
        outcomes["OAuth authorization"] = "error=access_denied" not in (await self._party.open_request()).headers.get("Location", "")
        return outcomes

    async def admits_by_saml(self, policy: str, state: State, *, self_enrolled: bool) -> bool:
        await self.put(policy, state, saml_self_enrolled=self_enrolled)
        return (await self._browser.sign_on(self._application, IsPassive="true")).statuses == ["Success"]


@pytest.fixture
async def protocols(acme: Tenant, user: Account, browser: SamlBrowser, shop: SamlApplication, clock: FakeClock) -> Protocols:
    """The protocols for an application that uses OAuth and SAML."""
    await run_sql(acme.pool, "update services set client_secret_hash = %s where id = %s", digest(SECRET), shop.id)
    service = await service_context(acme.pool, shop.id)
    party = RelyingParty(acme, browser, shop.id, shop.slug, service.client_id, f"https://{shop.slug}.example.com/callback", SECRET)
    protocols = Protocols(party, browser, shop, user, clock)
    await protocols.prepare()
    return protocols


@pytest.mark.parametrize("policy", AccessPolicy)
async def test_the_policy_of_the_service_decides_in_every_protocol(protocols: Protocols, policy: AccessPolicy) -> None:
    """This includes a session, a code and an approval from before the change. A refresh also needs an end user."""
    for name, state in STATES.items():
        outcomes = await protocols.outcomes(policy.value, state)
        is_admitted = name in ADMITTED[policy.value]
        expected = dict.fromkeys(outcomes, is_admitted)
        for refresh in ("OAuth refresh", "API refresh"):
            expected[refresh] = is_admitted and state.origin is not None
        assert outcomes == expected, (policy, name)


@pytest.mark.parametrize(("policy", "self_enrolled"), ADMITTED_BY_SAML)
async def test_saml_admits_no_strangers(protocols: Protocols, policy: str, self_enrolled: bool) -> None:
    admitted = {name for name, state in STATES.items() if await protocols.admits_by_saml(policy, state, self_enrolled=self_enrolled)}
    assert admitted == ADMITTED_BY_SAML[policy, self_enrolled]


async def test_a_membership_that_the_user_never_confirmed_gives_no_assertion(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant
) -> None:
    """Otherwise an organization could add any account, and read its address with a link.

    A sign-in with a password at the application confirms the membership.
    """
    member = await add_account(ports, "member@example.com")
    await add_member(pool, acme.org, member.id)
    await browser.sign_in("member@example.com")
    for path in (await browser.start_sign_on(shop), f"{shop.management}/login"):
        page = await browser.open(path)
        assert (page.status, "SAMLResponse" in page.text) == (403, False)
    bookmark = f"{shop.management}/login"
    browser.cookies.clear()
    page = await browser.open(bookmark)
    assert "<bdi>Acme</bdi>" in page.text
    await browser.fill(page, email="member@example.com", password=PASSWORD)
    assert (await browser.sign_on(shop)).name_id == "member@example.com"
