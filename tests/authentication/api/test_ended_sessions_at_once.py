"""Tests of changes that wait for a lock while their session ends or their account is anonymized
(security J-4, Z-5, Z-6, Y-2; decision 46).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.kernel.principals import SYSTEM, Role
from ports import Ports
from ports.crypto import Passwords
from tests.support.builders import NEW_PASSWORD, PASSWORD, Api, add_account, run_concurrently, run_during, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator, add_mfa
from tests.support.platform import Platform
from tests.support.refusals import UNAUTHORIZED, refused
from tests.support.services import add_service
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

# Requests of an owner. `{org}` is the path of the organization, `{eve}` the id of a member.
IN_THE_ORGANIZATION: Final[Mapping[str, tuple[str, str, Any]]] = {
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
ON_THE_PLATFORM: Final[Mapping[str, tuple[str, str, Any]]] = {
    "promote": ("POST", "/api/platform/owners", {"user_id": "{eve}"}),
    "second factor": ("DELETE", "/api/platform/users/{eve}/mfa?reason=lost", None),
    "forget": ("DELETE", "/api/privacy/forget/{eve}", None),
}
TABLES: Final = (
    "organizations", "memberships", "invitations", "services", "api_keys", "branding", "audit_log", "events", "mails", "privacy_log", "mfa",
)  # fmt: skip


async def state(pool: Pool) -> dict[str, Any]:
    """Return the rows of all tables that these requests change."""
    found: dict[str, Any] = {name: await run_sql(pool, f"select t::text from {name} t order by 1") for name in TABLES}  # noqa: S608
    return found | {"users": await run_sql(pool, "select id, email, is_platform_owner, anonymized_at from users order by id")}


@pytest.fixture
def cast() -> Mapping[str, Role]:
    return {"owner": Role.OWNER, "admin": Role.ADMIN, "eve": Role.MEMBER}


@pytest.mark.parametrize("name", IN_THE_ORGANIZATION)
async def test_a_session_that_ends_during_the_request_cannot_change_an_organization(acme: Tenant, pool: Pool, name: str) -> None:
    await add_service(pool, acme.org)
    method, path, body = IN_THE_ORGANIZATION[name]
    eve, before = acme.id("eve"), await state(pool)
    held = [
        ("select 1 from organizations where id = %s for update", (acme.org,)),
        ("update sessions set ended_at = now() where user_id = %s", (acme.people["owner"].id,)),
    ]
    filled = None if body is None else {key: eve if value == "{eve}" else value for key, value in body.items()}
    address = path.replace("{org}", acme.path).replace("{eve}", eve)
    answer = await run_during(pool, held, lambda: acme.api.call(method, address, filled, token=acme.token("owner")))
    assert refused(answer) == UNAUTHORIZED
    assert await state(pool) == before


@pytest.mark.parametrize("name", ON_THE_PLATFORM)
async def test_a_session_that_ends_during_the_request_cannot_change_the_platform(
    platform: Platform, ports: Ports, pool: Pool, name: str
) -> None:
    eve = await add_account(ports, "eve@example.com", None)
    await add_mfa(ports, eve)
    method, path, body = ON_THE_PLATFORM[name]
    before = await state(pool)
    held = [
        ("select 1 from users where id = %s for update", (eve.id,)),
        ("update sessions set ended_at = now() where user_id = %s", (platform.account.id,)),
    ]
    filled = None if body is None else {"user_id": str(eve.id)}
    address = path.replace("{eve}", str(eve.id))
    answer = await run_during(pool, held, lambda: platform.api.call(method, address, filled, token=platform.token))
    assert refused(answer) == UNAUTHORIZED
    assert await state(pool) == before


async def test_a_request_may_end_its_own_session(acme: Tenant, pool: Pool) -> None:
    owner, service = acme.people["owner"], await add_service(pool, acme.org)
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        assert await tx.end_users.enroll(service, owner.id, acme.ports.clock.now(), signed_in=True)
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
    [(kept, later)] = await run_sql(
        pool,
        """
        select count(*) filter (where address <> '0.0.0.0' or agent <> 'anonymized'),
               count(*) filter (where created_at > (select anonymized_at from users where id = %s) + interval '1 s')
        from audit_log where actor_id = %s""",
        admin.id,
        admin.id,
    )
    assert (kept, later) == (0, 0)


# Right attempts


async def test_the_right_password_is_not_counted_when_the_session_ends_during_the_request(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    token = (await sign_in(ports, account)).access_token
    held = [
        ("select 1 from users where id = %s for no key update", (account.id,)),
        ("update sessions set ended_at = now() where user_id = %s", (account.id,)),
    ]
    body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert refused(await run_during(pool, held, lambda: api.post("/api/user/change-password", body, token=token))) == UNAUTHORIZED
    assert await run_sql(pool, "select * from guesses") == []


@dataclass(frozen=True, slots=True)
class Slow:
    """Passwords whose hashes take so long that the second factor is disabled before they end."""

    passwords: Passwords
    pool: Pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.passwords, name)

    async def derive(self, secret: str, salt: bytes) -> bytes:
        for statement in ("delete from backup_codes", "delete from mfa", "delete from pre_auths", "update users set mfa_enabled_at = null"):
            await run_sql(self.pool, statement)
        return await self.passwords.derive(secret, salt)


async def test_a_right_backup_code_is_not_counted_when_the_second_factor_is_disabled_during_the_request(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, user: Account, factor: Authenticator
) -> None:
    waiting = (await api.login()).json["access_token"]
    change_ports(app, passwords=Slow(ports.passwords, pool))
    answer = await api.post("/api/auth/mfa/verify", {"code": factor.backup_codes[0]}, token=waiting)
    assert refused(answer) == UNAUTHORIZED
    assert "continued" in answer.json["error"]
    assert await run_sql(pool, "select * from guesses where secret = 'mfa'") == []
