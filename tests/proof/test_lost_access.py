"""Users who lose access to an application: every way into it ends, and the application gets a notice (security S-9, T-5).

A table has every way to lose access, and what every OpenID Connect endpoint answers afterwards.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.billing import subscriptions
from core.kernel.values import new_id
from entrypoints.http.app import Edge
from tests.billing.api.billing import CREATED, DELETED, Till
from tests.fakes.outside import FakeClock
from tests.fakes.payments import SECRET as BILLING_SECRET
from tests.federation.api.cli import GRANT
from tests.federation.api.relying import (
    SECRET,
    RelyingParty,
    add_relying_party,
    claims,
    give_consent,
    openid_tokens,
    path_of,
    sign_in_browser,
)
from tests.support.browser import FLOW, FakeBrowser
from tests.support.builders import Answer, make_edge, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.scim import Directory, directory_of
from tests.support.services import add_api_key, add_plan, add_subscription
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

OFFLINE: Final = "openid offline_access"


@dataclass(slots=True)
class Case:
    """An application, its user, and the callers that can end the user's access."""

    shop: RelyingParty
    user: Account
    platform: Platform
    directory: Directory
    clock: FakeClock
    pairs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tenant(self) -> Tenant:
        return self.shop.tenant

    @property
    def path(self) -> str:
        return f"{self.tenant.path}/services/{self.shop.slug}"

    async def by_owner(self, method: str, path: str, body: Any = None) -> None:
        await expect_success(self.tenant.api.call(method, path, body, token=self.tenant.token("owner")))

    async def by_key(self, method: str, path: str, body: Any = None) -> None:
        key = await add_api_key(self.tenant.pool, self.shop.service)
        await expect_success(self.tenant.api.call(method, f"/api/service{path}", body, headers={"X-Api-Key": key}))

    async def by_platform(self, method: str, path: str, body: Any = None) -> None:
        await expect_success(self.tenant.api.call(method, path, body, token=self.platform.token))

    async def by_directory(self, method: str, path: str, body: Any = None) -> None:
        await expect_success(self.directory.call(method, path, body))

    async def set_policy(self, policy: str) -> None:
        await self.by_owner("PUT", f"{self.path}/access", {"policy": policy})

    async def at_the_provider(self, event: str) -> None:
        """Receive the payment provider's event about the user's subscription."""
        plan = await add_plan(self.tenant.pool, self.shop.service, price="price_gold")
        till = Till(self.tenant, self.clock, self.shop.service, plan, plan)
        metadata = till.metadata(user_id=self.user.id)
        await till.deliver(event, till.subscription(metadata=metadata, **({"status": "canceled"} if event == DELETED else {})))


async def expect_success(call: Awaitable[Answer]) -> None:
    answer = await call
    assert answer.status < 300, answer.text


# What gives access, and how it ends


async def members_only(case: Case) -> None:
    await case.tenant.join("user", case.user)
    await case.set_policy("members")


async def assigned(case: Case) -> None:
    await case.tenant.join("user", case.user)
    await case.by_owner("PUT", f"{case.path}/assignments/{case.user.id}")
    await case.set_policy("assigned")


async def in_the_group(case: Case) -> None:
    await case.tenant.join("user", case.user)
    await case.set_policy("assigned")
    await change_group(case, "add")


async def change_group(case: Case, operation: str) -> None:
    members = {"op": operation, "path": "members", "value": [{"value": str(case.user.id)}]}
    schemas = ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]
    await case.by_directory("PATCH", f"/Groups/{case.shop.service}", {"schemas": schemas, "Operations": [members]})


async def open_to_anyone(case: Case) -> None:
    pass


async def subscribed(case: Case) -> None:
    tenant, ends = case.tenant, case.clock.now() + timedelta(days=30)
    plan = await add_plan(tenant.pool, case.shop.service)
    await add_subscription(tenant.ports, tenant.pool, case.shop.service, case.user.id, plan, ends=ends)
    await case.set_policy("assigned")


async def subscribed_at_the_provider(case: Case) -> None:
    await case.at_the_provider(CREATED)
    await case.set_policy("assigned")


async def suspend_the_organization(case: Case) -> None:
    await case.by_platform("POST", f"/api/platform/organizations/{case.tenant.org}/suspend", {})


async def deactivate_the_account(case: Case) -> None:
    await case.by_platform("POST", f"/api/platform/users/{case.user.id}/deactivate", {"reason": "a stolen account"})


async def anonymize_the_account(case: Case) -> None:
    await case.by_platform("DELETE", f"/api/privacy/forget/{case.user.id}")


async def remove_the_member(case: Case) -> None:
    await case.by_owner("POST", f"{case.tenant.path}/members/{case.user.id}")


async def block_in_the_directory(case: Case) -> None:
    await expect_success(case.directory.deactivate(case.user.id))


async def delete_in_the_directory(case: Case) -> None:
    await expect_success(case.directory.delete(case.user.id))


async def take_out_of_the_group(case: Case) -> None:
    await change_group(case, "remove")


async def unassign(case: Case) -> None:
    await case.by_owner("DELETE", f"{case.path}/assignments/{case.user.id}")


async def admit_members_only(case: Case) -> None:
    await case.set_policy("members")


async def require_a_second_factor(case: Case) -> None:
    await case.by_owner("PATCH", case.path, {"required_acr": "mfa"})


async def remove_from_the_application(case: Case) -> None:
    await case.by_key("DELETE", f"/users/{case.user.id}")


async def delete_the_subscription(case: Case) -> None:
    await case.by_key("DELETE", f"/subscriptions/{case.user.id}")


async def expire_the_subscription_by_key(case: Case) -> None:
    await case.by_key("PATCH", f"/subscriptions/{case.user.id}", {"status": "expired"})


async def cancel_the_own_subscription(case: Case) -> None:
    [(subscription,)] = await run_sql(case.tenant.pool, "select id from subscriptions")
    await case.shop.browser.submit(f"/app/account/subscriptions/{subscription}/cancel", f"/app/account/subscriptions/{subscription}")


async def let_the_subscription_expire(case: Case) -> None:
    await run_sql(case.tenant.pool, "update subscriptions set current_period_end = %s", case.clock.now())
    assert await subscriptions.sweep(case.tenant.ports, new_id()) == {"subscriptions": 1}


async def let_the_provider_end_the_subscription(case: Case) -> None:
    await case.at_the_provider(DELETED)


Act = Callable[[Case], Awaitable[None]]
# What authorize, prompt=none, an unused code, an approved device, refreshing and userinfo answer.
SIGNED_OUT: Final = ("sign-in", "login_required", "invalid_grant", "access_denied", "invalid_grant", 401)
FORGOTTEN: Final = (*SIGNED_OUT[:3], "invalid_grant", *SIGNED_OUT[4:])
REMOVED: Final = ("access_denied", "access_denied", "invalid_grant", "access_denied", "invalid_grant", 401)
NOT_ADMITTED: Final = (*REMOVED[:2], "access_denied", *REMOVED[3:])  # the code is good, and the user is refused
ASKED_AGAIN: Final = ("consent", "consent_required", "invalid_grant", "access_denied", "invalid_grant", 401)  # the policy admits anyone
CASES: Final[dict[Act, tuple[Act, tuple[object, ...]]]] = {
    deactivate_the_account: (open_to_anyone, SIGNED_OUT),
    anonymize_the_account: (open_to_anyone, FORGOTTEN),
    remove_the_member: (members_only, REMOVED),
    block_in_the_directory: (members_only, REMOVED),
    delete_in_the_directory: (members_only, REMOVED),
    take_out_of_the_group: (in_the_group, NOT_ADMITTED),
    unassign: (assigned, NOT_ADMITTED),
    admit_members_only: (open_to_anyone, NOT_ADMITTED),
    require_a_second_factor: (open_to_anyone, FORGOTTEN),
    remove_from_the_application: (open_to_anyone, ASKED_AGAIN),
    delete_the_subscription: (subscribed, NOT_ADMITTED),
    expire_the_subscription_by_key: (subscribed, NOT_ADMITTED),
    cancel_the_own_subscription: (subscribed, NOT_ADMITTED),
    let_the_subscription_expire: (subscribed, NOT_ADMITTED),
    let_the_provider_end_the_subscription: (subscribed_at_the_provider, NOT_ADMITTED),
}


@pytest.fixture
def edge() -> Edge:
    return make_edge(billing_secrets=(BILLING_SECRET,))


@pytest.fixture
def browser(app: QuartTrio, edge: Edge) -> FakeBrowser:
    return FakeBrowser(app, edge.base_url)


@pytest.fixture
async def case(acme: Tenant, browser: FakeBrowser, user: Account, platform: Platform, clock: FakeClock) -> Case:
    shop = await add_relying_party(acme, browser)
    await sign_in_browser(shop, user, provider="password", is_known=False)
    await give_consent(shop, user)
    await run_sql(acme.pool, "update services set backchannel_logout_uri = 'https://shop.example.com/logout'")
    return Case(shop, user, platform, await directory_of(acme), clock)


async def approved_device(case: Case) -> str:
    """Return the device code for a device that the user has approved."""
    client = {"client_id": str(case.shop.client_id), "scope": "openid"}
    device = await case.shop.post("/auth/device/code", **client)
    approval = {"user_code": device.json["user_code"], "action": "approve"}
    token = (await sign_in(case.tenant.ports, case.user)).access_token
    await expect_success(case.tenant.api.post("/auth/device/verify", approval, token=token))
    return str(device.json["device_code"])


def outcome(answer: Answer) -> str:
    """Return the error that the application gets, or the sign-in step."""
    target = answer.headers.get("Location", "")
    if step := FLOW.fullmatch(target):
        return step[1].removeprefix("/")
    fields = dict(parse_qsl(urlsplit(target).query))
    return fields.get("error", "code" if "code" in fields else str(answer.status))


async def answers(case: Case, code: str, device_code: str) -> tuple[object, ...]:
    shop, refresh_token = case.shop, case.pairs[0]["refresh_token"]
    device = {"grant_type": GRANT, "device_code": device_code, "client_id": str(shop.client_id)}
    case.clock.advance(timedelta(seconds=6))  # how long polls wait
    return (
        outcome(await shop.browser.open(path_of(shop), follows=False)),
        outcome(await shop.browser.open(path_of(shop, prompt="none"))),
        (await shop.exchange(code)).json.get("error"),
        (await shop.post("/auth/token", **device)).json.get("error"),
        (await shop.refresh(refresh_token)).json.get("error"),
        (await shop.api.get("/auth/userinfo", token=case.pairs[0]["access_token"])).status,
    )


async def active_tokens(case: Case) -> set[object]:
    client = {"client_id": str(case.shop.client_id), "client_secret": SECRET}
    tokens = [pair[name] for pair in case.pairs for name in ("access_token", "refresh_token")]
    return {(await case.shop.post("/auth/introspect", **client, token=token)).json["active"] for token in tokens}


async def notices(case: Case) -> list[str]:
    return sorted(str(session) for (session,) in await run_sql(case.tenant.pool, "select session_id from logout_notices"))


async def begin(case: Case, gives_access: Act) -> tuple[str, str]:
    """Return an unused code and an approved device's code, after the application has got tokens."""
    await gives_access(case)
    case.pairs = [await openid_tokens(case.shop), await openid_tokens(case.shop, scope=OFFLINE, prompt="consent")]
    assert await active_tokens(case) == {True}
    assert await notices(case) == []
    device_code = await approved_device(case)
    return await case.shop.code(scope="openid", response_type="code"), device_code


@pytest.mark.parametrize("loses", CASES, ids=lambda act: act.__name__)
async def test_the_end_of_access_ends_everything_and_tells_the_application(case: Case, loses: Act) -> None:
    gives_access, expected = CASES[loses]
    codes = await begin(case, gives_access)
    await loses(case)
    assert await notices(case) == sorted(claims(pair)["sid"] for pair in case.pairs), "one for each session"
    assert await active_tokens(case) == {False}
    assert await answers(case, *codes) == expected
    assert await notices(case) == sorted(claims(pair)["sid"] for pair in case.pairs), "refused requests send nothing"


# What ends nothing


async def test_a_suspended_organization_refuses_and_ends_nothing(case: Case) -> None:
    """Everything works again when the organization is active. Its application is not told."""
    codes = await begin(case, open_to_anyone)
    await suspend_the_organization(case)
    assert await answers(case, *codes) == ("403", "403", *["access_denied"] * 3, 403)
    assert await active_tokens(case) == {False}
    await case.by_platform("POST", f"/api/platform/organizations/{case.tenant.org}/activate")
    assert await answers(case, *codes) == ("code", "code", None, None, None, 200)
    assert await notices(case) == []


async def test_a_deleted_application_is_refused_and_not_told(case: Case) -> None:
    """The address for its notices was deleted with it."""
    codes = await begin(case, open_to_anyone)
    await case.by_owner("DELETE", case.path)
    assert await answers(case, *codes) == ("404", "404", *["invalid_client"] * 3, 401)
    assert await notices(case) == []


async def test_an_expired_subscription_refuses_before_it_is_swept(case: Case) -> None:
    """The time decides. The sessions end, and the application gets a notice, when the sweeper finds the subscription."""
    codes = await begin(case, subscribed)
    await run_sql(case.tenant.pool, "update subscriptions set current_period_end = %s", case.clock.now())
    assert await answers(case, *codes) == (*NOT_ADMITTED[:5], 200)
    assert (await active_tokens(case), await notices(case)) == ({False}, [])


async def test_a_renewed_subscription_ends_nothing(case: Case) -> None:
    """Neither a new subscription after the old has expired, nor a subscription beside another reason for access."""
    await begin(case, subscribed)
    [(plan,)] = await run_sql(case.tenant.pool, "update subscriptions set current_period_end = %s returning plan_id", case.clock.now())
    await case.by_key("POST", "/subscriptions", {"user_id": str(case.user.id), "plan_id": str(plan)})
    assert (await active_tokens(case), await notices(case)) == ({True}, [])
    await case.by_key("PATCH", f"/subscriptions/{case.user.id}", {"status": "past_due"})
    await case.tenant.join("user", case.user)
    await case.by_owner("PUT", f"{case.path}/assignments/{case.user.id}")
    await delete_the_subscription(case)
    assert (await active_tokens(case), await notices(case)) == ({True}, [])
