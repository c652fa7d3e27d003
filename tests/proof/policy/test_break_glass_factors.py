"""The factors that users have who are listed for break glass: no loss lets a password alone open the organization (security SP-9)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import mailbox
from core.accounts.model.accounts import RecoveryRequired
from core.kernel.access import AccountGone
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.proofs import Method, Proof
from ports import Ports
from tests.accounts.api import test_reset_and_policies
from tests.accounts.api.platform_paths import remove_mfa
from tests.accounts.api.test_undo import reset, turn_on_second_factor, undo_token
from tests.accounts.email_changes import undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.proof.policy.test_required_connection import BY_APPLICATION, BY_DOMAIN, REQUIRED, list_for_break_glass, verify_domain
from tests.proof.policy.world import World, new_world
from tests.support.browser import main_of
from tests.support.builders import NEW_PASSWORD, Api, run_sql, sign_in
from tests.support.connections.proofs import write_proofs
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PASSKEYS, PasskeyUser
from tests.support.platform import Platform
from tests.support.services import add_service

# The account keeps the factor; or it lost the factor, and only a recovery gives a new factor; or the password alone adds a factor.
KEPT, RECOVERY, OPEN = "kept", "recovery", "open"
NONE: Final[Mapping[str, Any]] = {}
DISABLE: Final = "/app/account/two-factor/disable"


@dataclass(frozen=True, slots=True)
class Rule:
    """The policies of Acme and of its application, which Ada does not use, and the strength that the application's settings require."""

    of_organization: Callable[[datetime], Mapping[str, Any]] = lambda _: {}
    of_application: Callable[[datetime], Mapping[str, Any]] = lambda _: {}
    required_acr: str | None = None
    is_in_force: bool = False  # in the organization, at any risk
    requires_connection: bool = True


def second_factor(*concerned: str, others: Mapping[str, Any] = NONE, is_later: bool = False) -> Callable[[datetime], Mapping[str, Any]]:
    def at(now: datetime) -> Mapping[str, Any]:
        dates = {"due_at": {"second_factor": (now + timedelta(days=14)).isoformat()}} if is_later else {}
        return {"second_factor": list(concerned), **dates, **others}

    return at


RULES: Final[Mapping[str, Rule]] = {
    "in force": Rule(second_factor("everyone", others=BY_DOMAIN), is_in_force=True),
    "later": Rule(second_factor("admins", is_later=True, others=BY_DOMAIN)),
    "at a high risk": Rule(second_factor("high_risk", others=BY_DOMAIN)),
    "with a connection of other users": Rule(second_factor("high_risk", others={"required_connections": {"acme.example": REQUIRED}})),
    "of an application": Rule(of_application=second_factor("everyone", others=BY_APPLICATION)),
    "of an application, later": Rule(of_application=second_factor("everyone", is_later=True, others=BY_APPLICATION)),
    "of an application, at a high risk": Rule(lambda _: BY_DOMAIN, second_factor("high_risk")),
    "of the settings of an application": Rule(lambda _: BY_DOMAIN, required_acr="mfa"),
    "without a required connection": Rule(second_factor("high_risk"), requires_connection=False),
}


@dataclass(slots=True)
class Ada:
    """Ada's sessions, and the users and emails around her."""

    world: World
    platform: Platform
    sent: FakeMailTransport

    async def token(self) -> str:
        """Return the token for a new session with a password, on which no device is trusted."""
        return (await sign_in(self.world.ports, self.world.ada)).access_token

    async def strong_token(self, *methods: Method) -> str:
        """Return the token for a new session with these methods, or with a passkey."""
        token, now = await self.token(), self.world.clock.now()
        proofs = [Proof(method, now) for method in methods] or [Proof(Method.PASSKEY, now, user_verified=True, phishing_resistant=True)]
        await write_proofs(self.world.pool, self.world.ada.id, tuple(proofs))
        await run_sql(self.world.pool, "update sessions set mfa_missing = false")
        return token

    async def call(self, method: str, path: str, body: Any = None) -> None:
        answer = await self.world.api.call(method, path, body, token=await self.strong_token())
        assert answer.status < 300 or (answer.status, "requires a second factor" in answer.json["error"]) == (400, True), answer.text

    async def forget(self) -> None:
        """Remove all factors, and what the user did before."""
        for table in ("passkeys", "mfa", "backup_codes", "security_notices", "sessions"):
            await run_sql(self.world.pool, f"delete from {table} where user_id = %s", self.world.ada.id)  # noqa: S608  (our tables)
        await run_sql(self.world.pool, "delete from mails")  # its emails count towards a limit
        nothing = "mfa_enabled_at = null, passkey_second_at = null, recovery_required_at = null, passkey_count = 0, security_key_count = 0"
        sql = f"update users set {nothing}, email_verified_at = now(), first_verified_at = now() where id = %s"  # noqa: S608  (our columns)
        await run_sql(self.world.pool, sql, self.world.ada.id)

    async def result(self) -> str:
        sql = """
            select 1 from users u where u.id = %s and (
                u.mfa_enabled_at is not null
                or exists (select from passkeys p where p.user_id = u.id and p.rp_id <> 'old.example' and p.kind = 'passkey')
                or u.passkey_second_at is not null and u.security_key_count > 0)"""
        has_factor = bool(await run_sql(self.world.pool, sql, self.world.ada.id))
        added = await self.world.api.post("/api/user/mfa/setup", token=await self.token())
        if has_factor:
            return KEPT
        assert added.status == 200 or (added.status, added.json["error"]) == (403, RecoveryRequired().message), added.text
        return OPEN if added.status == 200 else RECOVERY


async def add_app(ada: Ada) -> str:
    await add_mfa(ada.world.ports, ada.world.ada)
    return ""


async def add_recent_app(ada: Ada) -> str:
    await turn_on_second_factor(ada.world.api, await ada.token(), ada.world.clock)
    return ""


async def add_passkey(ada: Ada) -> str:
    return str((await PasskeyUser(ada.world.api, await ada.token()).add())["id"])


async def add_key(ada: Ada) -> str:
    return str((await PasskeyUser(ada.world.api, await ada.token()).add_key(second_factor=True))["id"])


async def disable_app(ada: Ada, _: str) -> None:
    await ada.call("DELETE", "/api/user/mfa")


async def delete_key(ada: Ada, key: str) -> None:
    await ada.call("DELETE", f"{PASSKEYS}/{key}")


async def turn_off_keys(ada: Ada, _: str) -> None:
    await ada.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": False})


async def remove_by_platform(ada: Ada, _: str) -> None:
    answer = await remove_mfa(ada.platform, ada.world.ada.id, {"reason": "The phone was lost."})
    assert answer.status in (200, 403), answer.text


async def undo_app(ada: Ada, _: str) -> None:
    token = await undo_token(ada.world.ports, ada.sent, "Two-factor authentication is on", ada.world.ada.email)
    assert (await undo(ada.world.api, token)).status == 200


async def reset_password(ada: Ada, _: str) -> None:
    await reset(ada.world.api, ada.world.ports, ada.sent, ada.world.ada.email, NEW_PASSWORD)


async def reset_on_page(ada: Ada, _: str) -> None:
    """Keep nothing."""
    world = ada.world
    await test_reset_and_policies.reset(world.api, world.app, world.ports, ada.sent, world.ada.email, on_page=True)


async def prove_new_mailbox(ada: Ada, _: str) -> None:
    """The address was never verified, as in an account that a directory created."""
    sql = "update users set email_verified_at = null, first_verified_at = null where id = %s"
    await run_sql(ada.world.pool, sql, ada.world.ada.id)
    async with ada.world.ports.storage.transaction(by=SYSTEM) as tx:
        account = await tx.accounts.lock(ada.world.ada.id) or refuse(AccountGone)
        await mailbox.prove_mailbox(tx, account, ada.world.clock.now())


async def change_host(ada: Ada, _: str) -> None:
    """Passkeys for an earlier RP ID do not work any longer."""
    await run_sql(ada.world.pool, "update passkeys set rp_id = 'old.example'")


# The factor, how the account loses it, and three results: for listed users by the rule in force, for all other users, and by other
# rules.
Loss = tuple[Callable[[Ada], Awaitable[str]], Callable[[Ada, str], Awaitable[None]], str, str, str]
LOSSES: Final[Mapping[str, Loss]] = {
    "the app is disabled": (add_app, disable_app, KEPT, KEPT, OPEN),
    "the passkey is deleted": (add_passkey, delete_key, KEPT, KEPT, OPEN),
    "the security key is deleted": (add_key, delete_key, KEPT, KEPT, OPEN),
    "keys are no longer a second factor": (add_key, turn_off_keys, KEPT, KEPT, OPEN),
    "a platform owner removes it": (add_app, remove_by_platform, KEPT, KEPT, KEPT),
    "an undo removes it": (add_recent_app, undo_app, RECOVERY, RECOVERY, RECOVERY),
    "a reset of the password": (add_recent_app, reset_password, KEPT, KEPT, KEPT),
    "a reset on the page": (add_recent_app, reset_on_page, RECOVERY, RECOVERY, RECOVERY),
    "the mailbox is proved for the first time": (add_app, prove_new_mailbox, RECOVERY, OPEN, OPEN),
    "the host has changed": (add_passkey, change_host, RECOVERY, OPEN, OPEN),
}


@pytest.fixture
async def ada(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, platform: Platform, sent: FakeMailTransport) -> Ada:
    """Ada is an admin at Acme. She does not use its application, and it is not assigned to her."""
    world = await new_world(api, app, ports, pool, clock)
    await verify_domain(world, "example.com")
    await run_sql(pool, "delete from service_users")
    await run_sql(pool, "update services set access_policy = 'assigned'")
    return Ada(world, platform, sent)


async def store(world: World, rule: Rule) -> None:
    now = world.clock.now()
    await world.put(rule.of_organization(now))
    await world.put(rule.of_application(now), service=world.service)
    await run_sql(world.pool, "update services set required_acr = %s", rule.required_acr)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
async def test_no_loss_lets_a_password_alone_open_the_organization(ada: Ada, loss: str) -> None:
    add, lose, of_listed, in_force, of_others = LOSSES[loss]
    wrong = list[str]()
    for name, rule in RULES.items():
        for is_listed in (False, True):
            await store(ada.world, Rule())
            await list_for_break_glass(ada.world, is_listed=False)
            await ada.forget()
            factor = await add(ada)
            await list_for_break_glass(ada.world, is_listed=is_listed)
            await store(ada.world, rule)
            await lose(ada, factor)
            counts = bool(rule.of_organization(ada.world.clock.now()).get("second_factor"))
            of_other = in_force if rule.is_in_force else of_others if counts else OPEN
            expected = of_listed if is_listed and rule.requires_connection else of_other
            if (result := await ada.result()) != expected:
                wrong.append(f"{name}, {'listed' if is_listed else 'not listed'}: {result} instead of {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("is_listed", [False, True])
async def test_the_page_says_before_that_a_listed_user_adds_another_factor_first(ada: Ada, is_listed: bool) -> None:
    await add_app(ada)
    await store(ada.world, RULES["later"])
    await list_for_break_glass(ada.world, is_listed=is_listed)
    await ada.world.open_browser()
    await ada.strong_token()
    first = "Add another factor first: you are listed for break glass, for which <bdi>Acme</bdi> requires this one."
    assert (first in main_of(await ada.world.browser.open(DISABLE))) is is_listed
    sent = await ada.world.browser.submit(DISABLE, DISABLE)
    if is_listed:
        refusal = "You are listed for break glass, for which Acme requires a second factor. Add another one first"
        assert (sent.status, refusal in sent.text) == (400, True), sent.text
    else:
        assert sent.status == 303


@pytest.mark.parametrize("proof", [Method.PASSWORD, Method.OWNER_RECOVERY])
async def test_the_link_of_the_operator_lets_a_listed_platform_owner_add_a_factor(ada: Ada, proof: Method) -> None:
    """The operator's command is a platform owner's recovery: nothing else recovers them."""
    await run_sql(ada.world.pool, "update users set is_platform_owner = true where id = %s", ada.world.ada.id)
    await store(ada.world, RULES["later"])
    await list_for_break_glass(ada.world)
    token = await ada.token()
    await write_proofs(ada.world.pool, ada.world.ada.id, (Proof(proof, ada.world.clock.now()),))
    added = await ada.world.api.post("/api/user/mfa/setup", token=token)
    assert added.status == (200 if proof is Method.OWNER_RECOVERY else 403), added.text


async def test_a_password_does_not_cancel_the_recovery_of_a_listed_user(ada: Ada) -> None:
    """It is all that the account can do without the factor."""
    await store(ada.world, RULES["later"])
    await list_for_break_glass(ada.world)
    path = f"/api/platform/users/{ada.world.ada.id}/recovery"
    issued = await ada.world.api.post(path, {"reason": "A lost phone."}, token=ada.platform.token)
    assert issued.status == 201, issued.text
    open_ = "select count(*)::int from account_recoveries"
    for is_listed in (True, False):
        await list_for_break_glass(ada.world, is_listed=is_listed)
        assert (await ada.world.api.login(ada.world.ada.email)).status == 200
        assert await run_sql(ada.world.pool, open_) == [(int(is_listed),)]


@pytest.mark.parametrize("needs_both", [False, True])
async def test_a_recovered_factor_adds_another_one_only_where_the_policies_need_both(ada: Ada, needs_both: bool) -> None:
    """A recovery sets up a single factor, so a second recovery would not help."""
    blog = await add_service(ada.world.pool, ada.world.org, "blog")
    app_only = second_factor("everyone", others={"methods": ["password", "totp"]})
    await store(ada.world, Rule(lambda _: BY_DOMAIN, app_only if needs_both else lambda _: {}))
    await ada.world.put({"methods": ["passkey"]}, service=blog)
    await list_for_break_glass(ada.world)
    assert await ada.result() == RECOVERY
    await add_app(ada)
    added = await ada.world.api.post(f"{PASSKEYS}/options", token=await ada.strong_token(Method.PASSWORD, Method.TOTP))
    assert added.status == (200 if needs_both else 403), added.text
