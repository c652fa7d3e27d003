"""What ends personal access tokens, and what does not: a session backs every token."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.authentication import sessions
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, form_token, leads_to
from tests.support.builders import PASSWORD, Api, deliver, link, make_device, run_concurrently, run_sql
from tests.support.mfa import Authenticator, add_mfa, use_in_sessions
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.scim import directory_of
from tests.support.tenants import Tenant


@dataclass(slots=True)
class World:
    """An organization, and a member with three tokens: for this organization, for another organization, and for their account."""

    api: Api
    acme: Tenant
    twin: Tenant
    platform: Platform
    sent: FakeMailTransport
    clock: FakeClock
    pool: Pool
    ports: Ports
    browser: FakeBrowser

    @property
    def member(self) -> str:
        return self.acme.id("member")

    async def call(self, method: str, path: str, body: Any = None, *, by: str = "member") -> None:
        answer = await self.api.call(method, path, body, token=self.acme.token(by))
        assert answer.status in (200, 204), answer.text

    async def platform_call(self, method: str, path: str, body: Any = None) -> None:
        answer = await self.api.call(method, path, body, token=self.platform.token)
        assert answer.status == 200, answer.text


async def reset_password(world: World) -> None:
    await world.api.post("/api/auth/forgot-password", {"email": world.acme.people["member"].email})
    await deliver(world.ports)
    body = {"token": link(world.sent.emails[-1]), "new_password": "another good password"}
    assert (await world.api.post("/api/auth/reset-password", body)).status == 200


async def set_password(world: World) -> None:
    await world.call("POST", "/api/user/set-password", {"new_password": PASSWORD})


async def change_password(world: World) -> None:
    await set_password(world)
    await world.call("POST", "/api/user/change-password", {"current_password": PASSWORD, "new_password": "another good password"})


async def change_email(world: World) -> None:
    await world.call("PATCH", "/api/user", {"email": "new.address@example.com"})
    await deliver(world.ports)
    [email] = [email for email in world.sent.emails if email.to == "new.address@example.com"]
    assert (await world.api.get(f"/auth/verify-email?token={link(email)}")).status in (200, 302, 303)


async def enable_mfa(world: World) -> None:
    secret = (await world.api.post("/api/user/mfa/setup", token=world.acme.token("member"))).json["secret"]
    await world.call("POST", "/api/user/mfa/verify", {"code": Authenticator(secret, world.clock).code()})


async def disable_mfa(world: World) -> None:
    await add_mfa(world.ports, world.acme.people["member"])
    await use_in_sessions(world.pool, world.acme.people["member"])
    await world.call("DELETE", "/api/user/mfa")


async def remove_mfa(world: World) -> None:
    await add_mfa(world.ports, world.acme.people["member"])
    await world.platform_call("DELETE", f"/api/platform/users/{world.member}/mfa", {"reason": "lost phone"})


async def sign_out_elsewhere(world: World) -> None:
    """Sign out elsewhere, like the button on the sessions page."""
    account = world.acme.people["member"]
    caller = Person(user_id=account.id, email=account.email, session_id=world.acme.sessions["member"].session_id)
    await sessions.end_others(world.ports, caller)


async def deactivate_by_directory(world: World) -> None:
    """The user is used elsewhere too, so only the membership ends."""
    directory = await directory_of(world.acme)
    assert (await directory.deactivate(world.member)).status == 200


async def revoke_device(world: World) -> None:
    device = make_device(world.acme.people["member"].id, world.clock.now())
    async with world.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.devices.add(device)
    await world.call("DELETE", f"/api/user/devices/{device.id}")


async def sign_in_again(world: World) -> None:
    """In the same browser, where it replaces the earlier session."""
    await set_password(world)
    token = form_token(await world.browser.open(SIGN_IN))
    for _ in range(2):
        fields = {"form_token": token, "email": world.acme.people["member"].email, "password": PASSWORD}
        assert leads_to(await world.browser.send(SIGN_IN, **fields)) == HOME


async def sign_out_in_browser(world: World) -> None:
    await set_password(world)
    await world.browser.sign_in(world.acme.people["member"].email)
    await world.browser.submit("/app/sign-out")
    assert not await world.browser.is_in()


ALL, ORGANIZATION, NONE = {"acme", "twin", "own"}, {"acme"}, set[str]()
ENDS: dict[str, tuple[Callable[[World], Awaitable[object]], set[str]]] = {
    "password reset": (reset_password, ALL),
    "password change": (change_password, ALL),
    "new email address": (change_email, ALL),
    "second factor on": (enable_mfa, ALL),
    "second factor off": (disable_mfa, ALL),
    "removal of the second factor by a platform owner": (remove_mfa, ALL),
    "sign-out everywhere else": (sign_out_elsewhere, ALL),
    "sign-out by a platform owner": (
        lambda world: world.platform_call("POST", f"/api/platform/users/{world.member}/end-sessions", {"reason": "lost laptop"}),
        ALL,
    ),
    "deactivation": (
        lambda world: world.platform_call("POST", f"/api/platform/users/{world.member}/deactivate", {"reason": "lost laptop"}),
        ALL,
    ),
    "sign-out in the organization": (
        lambda world: world.call("DELETE", f"{world.acme.path}/members/{world.member}/sessions", by="owner"),
        ORGANIZATION,
    ),
    "removal": (lambda world: world.acme.remove("owner", "member"), ORGANIZATION),
    "leaving": (lambda world: world.call("POST", f"{world.acme.path}/leave", {}), ORGANIZATION),
    "deletion of the organization": (lambda world: world.call("DELETE", world.acme.path, by="owner"), ORGANIZATION),
    "deletion of the account": (lambda world: world.call("DELETE", "/api/user"), ALL),
    "anonymization": (
        lambda world: world.platform_call("DELETE", f"/api/privacy/forget/{world.member}"),
        ALL,
    ),
    "deactivation by the directory": (deactivate_by_directory, ORGANIZATION),
    "selection of an organization": (lambda world: world.call("POST", f"{world.twin.path}/select", {}), NONE),
    "revocation of a device": (revoke_device, NONE),
    "another sign-in in the browser": (sign_in_again, NONE),
    "sign-out in the browser": (sign_out_in_browser, NONE),
    "sign-out of the session": (lambda world: world.call("POST", "/api/auth/logout", {}), NONE),
    "demotion of an admin": (lambda world: world.acme.set_role("owner", "admin", "member"), NONE),
    "sign-out of another member": (
        lambda world: world.call("DELETE", f"{world.acme.path}/members/{world.acme.id('admin')}/sessions", by="owner"),
        NONE,
    ),
}


@pytest.fixture
async def world(
    api: Api,
    acme: Tenant,
    other_tenant: Tenant,
    platform: Platform,
    sent: FakeMailTransport,
    clock: FakeClock,
    pool: Pool,
    ports: Ports,
    browser: FakeBrowser,
) -> World:
    await other_tenant.join("visitor", acme.people["member"], MEMBER)
    return World(api, acme, other_tenant, platform, sent, clock, pool, ports, browser)


@pytest.mark.parametrize("change", ENDS)
async def test_a_change_ends_the_tokens_that_depend_on_it(world: World, change: str) -> None:
    cause, ended = ENDS[change]
    member = world.acme.people["member"]
    tokens = {
        "acme": await add_personal_token(world.ports, member, world.acme.org),
        "twin": await add_personal_token(world.ports, member, world.twin.org),
        "own": await add_personal_token(world.ports, member),
        "of the admin": await add_personal_token(world.ports, world.acme.people["admin"], world.twin.org),
    }
    paths = {"acme": world.acme.path, "twin": world.twin.path, "own": "/api/user", "of the admin": world.twin.path}
    await world.twin.join("admin of acme", world.acme.people["admin"])
    before = {name: (await world.api.get(paths[name], token=token.text)).status for name, token in tokens.items()}
    assert set(before.values()) == {200}
    await cause(world)
    after = {name: (await world.api.get(paths[name], token=token.text)).status for name, token in tokens.items()}
    assert {name for name, status in after.items() if status == 401} == ended
    assert {status for name, status in after.items() if name not in ended} <= {200}


async def test_the_end_is_final_when_an_account_is_active_again(world: World) -> None:
    token = await add_personal_token(world.ports, world.acme.people["member"])
    user = f"/api/platform/users/{world.member}"
    await world.platform_call("POST", f"{user}/deactivate", {"reason": "lost laptop"})
    await world.platform_call("POST", f"{user}/reactivate", {"reason": "found"})
    assert (await world.api.get("/api/user", token=token.text)).status == 401


async def test_tokens_are_no_sessions_in_lists_and_counts(world: World) -> None:
    member = world.acme.people["member"]
    path = f"{world.acme.path}/members/{world.member}"
    before = (await world.api.get(path, token=world.acme.token("owner"))).json["sessions"]
    listed = await sessions.list_own(world.ports, Person(user_id=member.id, email=member.email, session_id=member.id))
    user = (await world.api.get(f"/api/platform/users/{world.member}", token=world.platform.token)).json["sessions"]
    world.clock.advance(timedelta(seconds=1))
    token = await add_personal_token(world.ports, member, world.acme.org)
    own = await add_personal_token(world.ports, member)
    assert (await world.api.get(path, token=world.acme.token("owner"))).json["sessions"] == before
    caller = Person(user_id=member.id, email=member.email, session_id=member.id)
    assert await sessions.list_own(world.ports, caller) == listed
    assert (await world.api.get(f"/api/platform/users/{world.member}", token=world.platform.token)).json["sessions"] == user
    assert not await sessions.end_own(world.ports, replace(caller, session_id=world.acme.sessions["member"].session_id), own.id)
    revoked = await world.api.delete(f"{path}/sessions", token=world.acme.token("owner"))
    assert revoked.json == {"sessions_revoked": before["active_count"]}
    assert (await world.api.get(world.acme.path, token=token.text)).status == 401


async def test_the_housekeeper_removes_ended_and_expired_tokens(world: World) -> None:
    member = world.acme.people["member"]
    expired = await add_personal_token(world.ports, member, lifetime=timedelta(days=1))
    revoked = await add_personal_token(world.ports, member)
    live = await add_personal_token(world.ports, member)
    await world.call("DELETE", f"/api/user/personal-tokens/{revoked.id}")
    world.clock.advance(timedelta(days=2, seconds=1))
    await housekeeping.sweep(world.ports, new_id())
    rows = await run_sql(world.pool, "select session_id from personal_tokens")
    assert (rows, expired.id in [id_ for (id_,) in await run_sql(world.pool, "select id from sessions")]) == ([(live.id,)], False)


async def test_a_deleted_organization_leaves_no_live_session_of_a_token(world: World) -> None:
    await add_personal_token(world.ports, world.acme.people["member"], world.acme.org)
    await world.call("DELETE", world.acme.path, by="owner")
    assert await run_sql(world.pool, "select 1 from personal_tokens") == []
    assert await run_sql(world.pool, "select 1 from sessions where personal_token and ended_at is null") == []


async def test_a_revocation_beats_a_change_that_is_under_way(world: World) -> None:
    """The change is checked again when it commits, so nothing happens after the token ends (security Z-5)."""
    admin = world.acme.people["admin"]
    token = await add_personal_token(world.ports, admin, world.acme.org)
    members = f"{world.acme.path}/members"

    async def act(number: int) -> int:
        if number == 10:
            await world.call("DELETE", f"/api/user/personal-tokens/{token.id}", by="admin")
            return 204
        body = {"email": f"new{number}@example.com", "role": "member"}
        return (await world.api.post(world.acme.invitations, body, token=token.text)).status

    statuses = await run_concurrently(20, act)
    assert set(statuses) <= {200, 401, 204}
    assert len(await run_sql(world.pool, "select 1 from invitations")) == statuses.count(200)
    assert (await world.api.get(members, token=token.text)).status == 401
    ended = "select ended_at from sessions where id = %s"
    [(at,)] = await run_sql(world.pool, ended, token.id)
    assert at is not None
