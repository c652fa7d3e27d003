"""Changes that wait for a lock while their session ends or their account is anonymized.

Covers security J-4, Z-5, Z-6 and Y-2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER, RoleName
from ports import Ports
from ports.crypto import Passwords
from tests.support.builders import NEW_PASSWORD, PASSWORD, Api, add_account, run_concurrently, run_during, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator, add_mfa
from tests.support.platform import Platform
from tests.support.refusals import UNAUTHORIZED, refused
from tests.support.services import add_service, enroll_user
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

# An owner's requests. `{org}` is the organization's path, `{eve}` a member's id.
ORGANIZATION_REQUESTS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "rename": ("PATCH", "{org}", {"name": "New"}),
    "delete": ("DELETE", "{org}", None),
    "invite": ("POST", "{org}/invitations", {"email": "new@example.com", "role": "admin"}),
    "role": ("PATCH", "{org}/members/{eve}", {"role": "admin"}),
    "remove": ("POST", "{org}/members/{eve}", {}),
    "transfer": ("POST", "{org}/transfer-ownership", {"new_owner_user_id": "{eve}"}),
    "service": ("POST", "{org}/services", {"slug": "wiki", "name": "Wiki", "service_type": "web"}),
    "secret": ("POST", "{org}/services/shop/rotate-secret", {}),
    "key": ("POST", "{org}/services/shop/api-keys", {"name": "New", "permissions": ["read:users"]}),
    "branding": ("PATCH", "{org}/branding", {"product_name": "New"}),
    "forget": ("DELETE", "/api/privacy/forget/{eve}", None),
}
PLATFORM_REQUESTS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "promote": ("POST", "/api/platform/owners", {"user_id": "{eve}"}),
    "second factor": ("DELETE", "/api/platform/users/{eve}/mfa?reason=lost", None),
    "forget": ("DELETE", "/api/privacy/forget/{eve}", None),
}
TABLES: Final = (
    "organizations", "memberships", "invitations", "services", "api_keys", "branding", "audit_log", "events", "mails", "privacy_log", "mfa",
)  # fmt: skip


async def stored_rows(pool: Pool) -> dict[str, Any]:
    """Return the rows that these requests change, from all tables."""
    rows: dict[str, Any] = {name: await run_sql(pool, f"select t::text from {name} t order by 1") for name in TABLES}  # noqa: S608
    return rows | {"users": await run_sql(pool, "select id, email, is_platform_owner, anonymized_at from users order by id")}


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    return {"owner": OWNER, "admin": ADMIN, "eve": MEMBER}


@pytest.mark.parametrize("name", ORGANIZATION_REQUESTS)
async def test_a_session_that_ends_during_the_request_cannot_change_an_organization(acme: Tenant, pool: Pool, name: str) -> None:
    await add_service(pool, acme.org)
    method, path, body = ORGANIZATION_REQUESTS[name]
    eve, before = acme.id("eve"), await stored_rows(pool)
    changes = [
        ("select 1 from organizations where id = %s for update", (acme.org,)),
        ("update sessions set ended_at = now() where user_id = %s", (acme.people["owner"].id,)),
    ]
    payload = None if body is None else {key: eve if value == "{eve}" else value for key, value in body.items()}
    address = path.replace("{org}", acme.path).replace("{eve}", eve)
    answer = await run_during(pool, changes, lambda: acme.api.call(method, address, payload, token=acme.token("owner")))
    assert refused(answer) == UNAUTHORIZED
    assert await stored_rows(pool) == before


async def test_a_request_waits_for_a_transaction_that_ends_its_session(acme: Tenant, pool: Pool) -> None:
    """It waits for nothing else: the change is written, and only the commit is left."""
    before = await stored_rows(pool)
    changes = [("update sessions set ended_at = now() where user_id = %s", (acme.people["owner"].id,))]
    answer = await run_during(pool, changes, lambda: acme.api.patch(acme.path, {"name": "New"}, token=acme.token("owner")))
    assert refused(answer) == UNAUTHORIZED
    assert await stored_rows(pool) == before


@pytest.mark.parametrize("name", PLATFORM_REQUESTS)
async def test_a_session_that_ends_during_the_request_cannot_change_the_platform(
    platform: Platform, ports: Ports, pool: Pool, name: str
) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    await add_mfa(ports, eve)
    method, path, body = PLATFORM_REQUESTS[name]
    before = await stored_rows(pool)
    changes = [
        ("select 1 from users where id = %s for update", (eve.id,)),
        ("update sessions set ended_at = now() where user_id = %s", (platform.account.id,)),
    ]
    payload = None if body is None else {"user_id": str(eve.id)}
    address = path.replace("{eve}", str(eve.id))
    answer = await run_during(pool, changes, lambda: platform.api.call(method, address, payload, token=platform.token))
    assert refused(answer) == UNAUTHORIZED
    assert await stored_rows(pool) == before


async def test_a_request_may_end_its_own_session(acme: Tenant, pool: Pool) -> None:
    owner, service = acme.people["owner"], await add_service(pool, acme.org)
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, service, owner.id, acme.ports.clock.now())
    answer = await acme.api.delete(f"{acme.path}/users/{owner.id}/sessions", token=acme.token("owner"))
    assert (answer.status, answer.json["sessions_revoked"]) == (200, 1)
    assert await run_sql(pool, "select count(*) from audit_log where action = 'user.sessions_revoked'") == [(1,)]


async def test_an_anonymized_user_changes_nothing_and_leaves_no_address(acme: Tenant, platform: Platform, pool: Pool) -> None:
    await add_service(pool, acme.org)
    admin, token = acme.people["admin"], acme.token("admin")

    async def act(number: int) -> int:
        if number == 3:
            return (await platform.api.delete(f"/api/privacy/forget/{admin.id}", token=platform.token)).status
        body = {"name": f"Key {number}", "permissions": ["read:users"]}
        return (await acme.api.post(f"{acme.path}/services/shop/api-keys", body, token=token)).status

    statuses = await run_concurrently(20, act)
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 201, 401}
    [(unredacted, late)] = await run_sql(
        pool,
        """
        select count(*) filter (where address <> '0.0.0.0' or agent <> 'anonymized'),
               count(*) filter (where created_at > (select anonymized_at from users where id = %s) + interval '1 s')
        from audit_log where actor_id = %s""",
        admin.id,
        admin.id,
    )
    assert (unredacted, late) == (0, 0)


# Right passwords and codes


async def test_the_right_password_is_not_counted_when_the_session_ends_during_the_request(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    token = (await sign_in(ports, account)).access_token
    changes = [
        ("select 1 from users where id = %s for no key update", (account.id,)),
        ("update sessions set ended_at = now() where user_id = %s", (account.id,)),
    ]
    body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert refused(await run_during(pool, changes, lambda: api.post("/api/user/change-password", body, token=token))) == UNAUTHORIZED
    assert await run_sql(pool, "select * from guesses") == []


@dataclass(frozen=True, slots=True)
class SlowPasswords:
    """Passwords with hashes that take so long that the second factor is disabled before they end."""

    passwords: Passwords
    pool: Pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.passwords, name)

    async def derive(self, secret: str, salt: bytes) -> bytes:
        ended = ("delete from backup_codes", "delete from mfa", "delete from sign_in_flows", "update users set mfa_enabled_at = null")
        for statement in ended:
            await run_sql(self.pool, statement)
        return await self.passwords.derive(secret, salt)


async def test_a_right_backup_code_is_not_counted_when_the_second_factor_is_disabled_during_the_request(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, user: Account, factor: Authenticator
) -> None:
    token = (await api.login()).json["access_token"]
    change_ports(app, passwords=SlowPasswords(ports.passwords, pool))
    answer = await api.post("/api/auth/mfa/verify", {"code": factor.backup_codes[0]}, token=token)
    assert refused(answer) == UNAUTHORIZED
    assert "continued" in answer.json["error"]
    assert await run_sql(pool, "select * from guesses where secret = 'mfa'") == []
