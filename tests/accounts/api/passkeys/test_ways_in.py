"""The ways in that remain when a way in goes, and the sign-in policies that a change to factors must meet."""

from dataclasses import replace
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import passkeys, ways_in
from core.accounts.factor_changes import LostAccess
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST
from core.kernel.proofs import Method, first_proof
from core.kernel.sign_in_policy.rules import Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import Api, add_member, add_organization, deliver, one_factor, run_sql, sign_in
from tests.support.identities import add_identity
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey, start_login, verify_second
from tests.support.services import add_service, add_service_user

PASSWORD_PATH = "/api/user/password"


async def add_policy(ports: Ports, pool: Pool, user: Account, **document: object) -> UUID:
    """Add an organization with this policy, and make the user a member."""
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, confirmed=True)
    await put_policy(ports, org, None, document)
    return org


async def add_policy_of_application(ports: Ports, pool: Pool, service: UUID, **document: object) -> None:
    [(org,)] = await run_sql(pool, "select org_id from services where id = %s", service)
    await put_policy(ports, org, service, document)


async def put_policy(ports: Ports, org: UUID, service: UUID | None, document: dict[str, object]) -> None:
    policy = SignInPolicy(org_id=org, service_id=service, rules=Rules.read(document), changed_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(policy)


async def test_the_password_goes_once_a_passkey_signs_in(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    refused = await api.delete(PASSWORD_PATH, token=holder.token)
    error = "You need your password to sign in. Add a passkey that works here before you remove it."
    assert (refused.status, refused.json["error"]) == (400, error)
    await add_member(pool, await add_organization(pool, "acme"), user.id, confirmed=True)
    await holder.add()
    assert (await api.delete(PASSWORD_PATH, token=holder.token)).status == 204
    assert (await api.login()).status == 401
    signed_in = await sign_in_with_passkey(api, holder.authenticator)
    assert signed_in.status == 200
    again = await api.delete(PASSWORD_PATH, token=signed_in.json["access_token"])
    assert (again.status, again.json["error"].startswith("This account has no password.")) == (400, True)
    events = await run_sql(pool, "select details from audit_log where action = 'security.password.changed'")
    assert events == [({"method": "remove"},)]
    await deliver(ports)
    removed = sent.newest("Your password was removed")
    assert "was removed on" in removed.text
    assert "You sign in with a passkey from now on." in removed.text


@pytest.mark.parametrize("change", ["kind = 'security_key'", "user_verified = false", "rp_id = 'old.test'"])
async def test_a_passkey_that_does_not_sign_in_here_is_not_enough(api: Api, holder: PasskeyUser, pool: Pool, change: str) -> None:
    await holder.add()
    await run_sql(pool, f"update passkeys set {change}")  # noqa: S608
    assert (await api.delete(PASSWORD_PATH, token=holder.token)).status == 400


async def test_a_policy_that_does_not_accept_passkeys_keeps_the_password(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool
) -> None:
    await holder.add()
    await add_policy(ports, pool, user, methods=["password", "totp"])
    holder.token = (await api.login()).json["access_token"]
    await holder.confirm()
    answer = await api.delete(PASSWORD_PATH, token=holder.token)
    assert (answer.status, answer.json["error"]) == (400, "Acme does not accept passkeys. Keep your password.")


async def test_the_last_factor_of_a_policy_stays(api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool) -> None:
    holder.token = (await api.login()).json["access_token"]
    first = await holder.add()
    await add_policy(ports, pool, user, phishing_resistant=["everyone"])
    path = f"{PASSKEYS}/{first['id']}"
    answer = await api.delete(path, token=holder.token)
    assert (answer.status, answer.json["error"]) == (400, "Acme requires a passkey. Add another one first.")
    await PasskeyUser(api, holder.token).add()
    assert (await api.delete(path, token=holder.token)).status == 204
    await run_sql(pool, """update sign_in_policies set rules = '{"second_factor": ["everyone"]}'""")
    [left] = await holder.listed()
    answer = await api.delete(f"{PASSKEYS}/{left['id']}", token=holder.token)
    assert (answer.status, answer.json["error"]) == (400, "Acme requires a second factor. Add another one first.")


LAST_WAY = "Acme requires a way to sign in that it accepts, and this is your last one. Add another one first."
LATER = {"due_at": {"methods": "2999-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("of_application", "document", "factors", "goes", "error"),
    [
        (False, {"methods": ["passkey"]}, ("passkey",), "passkey", LAST_WAY),
        (False, {"methods": ["passkey"]}, ("passkey", "app"), "app", None),
        (False, {"methods": ["passkey", "password"]}, ("passkey",), "passkey", None),
        (
            *(False, {"methods": ["passkey", "password"], "second_factor": ["everyone"]}, ("passkey", "app")),
            *("passkey", "Acme requires a second factor. Add another one first."),
        ),
        (False, {"methods": ["passkey", "provider:codehost"]}, ("passkey",), "passkey", LAST_WAY),
        (False, {"methods": ["passkey", "provider:codehost"]}, ("passkey", "codehost"), "passkey", None),
        (False, {"methods": ["passkey", "provider:codehost"]}, ("codehost",), "codehost", LAST_WAY),
        (False, {"methods": ["passkey", "provider:codehost"]}, ("passkey", "codehost"), "codehost", None),
        (False, {"methods": ["passkey", "provider:codehost"], **LATER}, ("codehost",), "codehost", None),
        (True, {"methods": ["passkey"]}, ("passkey",), "passkey", None),
        (True, {"methods": ["passkey", "provider:codehost"]}, ("codehost",), "codehost", None),
        *(
            (is_own, {"methods": ["password"], **when}, ("passkey",), "password", "{} does not accept passkeys. Keep your password.")
            for is_own in (False, True)
            for when in ({}, LATER)
        ),
        (True, {"methods": ["password", "passkey"]}, ("passkey",), "password", None),
    ],
)
async def test_the_last_way_in_by_the_methods_of_a_policy_stays(
    api: Api,
    user: Account,
    ports: Ports,
    pool: Pool,
    of_application: bool,
    document: dict[str, object],
    factors: tuple[str, ...],
    goes: str,
    error: str | None,
) -> None:
    """The user may do without an application, but not without a password where it accepts no passkeys."""
    token, added = (await sign_in(ports, user)).access_token, dict[str, str]()
    if "passkey" in factors:
        added["passkey"] = (await PasskeyUser(api, token).add())["id"]
    if "app" in factors:
        await add_mfa(ports, user)
    if "codehost" in factors:
        await add_identity(pool, user.id)
    org = await add_policy(ports, pool, user, **({} if of_application else document))
    name = "Acme"
    if of_application:
        shop, name = await add_service(pool, org), "Shop"
        await add_service_user(ports, shop, user.id)
        await add_policy_of_application(ports, pool, shop, **document)
    session, now = await sign_in(ports, user), ports.clock.now()
    proofs = [first_proof("password", now), first_proof("codehost", now)]
    if "passkey" in factors:
        proofs.append(replace(first_proof("passkey", now), user_verified=True, phishing_resistant=True))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.session_sign_ins.reauthenticate(session.session_id, user.id, tuple(proofs))
    paths = {"app": "/api/user/mfa", "codehost": "/api/user/identities/codehost", "password": PASSWORD_PATH}
    answer = await api.delete(paths.get(goes, f"{PASSKEYS}/{added.get('passkey')}"), token=session.access_token)
    refusal = answer.json["error"] if answer.status == 400 else None
    assert (answer.status < 300, refusal) == (error is None, error and error.format(name)), answer.text


async def test_the_page_names_an_application_that_accepts_none_of_the_ways_that_are_left(
    api: Api, user: Account, ports: Ports, pool: Pool
) -> None:
    await PasskeyUser(api, (await sign_in(ports, user)).access_token).add()
    shop = await add_service(pool, await add_policy(ports, pool, user))
    await add_service_user(ports, shop, user.id)
    await add_policy_of_application(ports, pool, shop, methods=["passkey"])
    async with ports.storage.reading() as read:
        [passkey], account = await read.passkeys.of_user(user.id), await read.accounts.by_id(user.id)
    assert account is not None
    assert await passkeys.list_losses(ports, account, passkey) == [LostAccess("Shop", always=True)]


async def test_an_app_that_a_policy_requires_stays(api: Api, user: Account, ports: Ports, pool: Pool) -> None:
    await add_mfa(ports, user)
    token = (await sign_in(ports, user, second_factor=True)).access_token
    await add_policy(ports, pool, user, second_factor=["everyone"])
    answer = await api.delete("/api/user/mfa", token=token)
    assert (answer.status, answer.json["error"]) == (400, "Acme requires a second factor. Add another one first.")


async def test_a_security_key_that_sign_ins_do_not_ask_for_meets_no_policy(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool
) -> None:
    """Sign-ins do not accept such a key, so a change to factors needs no proof from it. A second factor stays a second factor."""
    holder.token = (await api.login()).json["access_token"]
    await holder.add_key(second_factor=False)
    await add_policy(ports, pool, user, second_factor=["everyone"])
    turned_on = await api.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": True}, token=(await api.login()).json["access_token"])
    assert (turned_on.status, len(turned_on.json["backup_codes"])) == (200, 10)
    holder.token = (await verify_second(api, await start_login(api), holder.authenticator)).json["access_token"]
    turned_off = await api.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": False}, token=holder.token)
    assert (turned_off.status, turned_off.json["error"]) == (400, "Acme requires a second factor. Add another one first.")


async def test_a_weaker_session_changes_no_factor(api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool) -> None:
    """A password alone must not lead to what a policy accepts, if the account has more."""
    holder.token = (await api.login()).json["access_token"]
    await holder.add()
    await add_policy(ports, pool, user, phishing_resistant=["everyone"])
    thief = PasskeyUser(api, (await api.login()).json["access_token"])
    [own] = await holder.listed()
    for answer in (
        await api.post(f"{PASSKEYS}/options", token=thief.token),
        await api.delete(f"{PASSKEYS}/{own['id']}", token=thief.token),
        await api.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": True}, token=thief.token),
        await api.post("/api/user/mfa/setup", token=thief.token),
        await api.delete(PASSWORD_PATH, token=thief.token),
        await api.patch("/api/user", {"email": "moved@example.com"}, token=thief.token),
    ):
        assert answer.status == 401, answer.text
        assert 'acr_values="phr"' in answer.headers["WWW-Authenticate"]
    assert (await api.post(f"{PASSKEYS}/options", token=holder.token)).status == 200


async def test_one_who_has_less_than_a_policy_asks_enrolls_with_it(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool
) -> None:
    await add_policy(ports, pool, user, phishing_resistant=["everyone"])
    await holder.add()


@pytest.mark.parametrize("with_app", [False, True])
async def test_passkeys_of_an_earlier_rp_id_lock_no_user_out(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool, *, with_app: bool
) -> None:
    """The user is led to a new passkey, like a user who has no passkey. Until then, all other factors on the account are asked for."""
    holder.token = (await api.login()).json["access_token"]
    old = await holder.add()
    await run_sql(pool, "update passkeys set rp_id = 'old.test'")
    org = await add_policy(ports, pool, user, phishing_resistant=["everyone"])
    session, weaker = await sign_in(ports, user, org, second_factor=with_app), await sign_in(ports, user, org)
    if with_app:
        await add_mfa(ports, user)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for each in (weaker,) if with_app else (session, weaker):
            await tx.session_sign_ins.reauthenticate(each.session_id, user.id, one_factor(ports.clock.now()))
    refused = await api.get("/api/organizations/acme", token=session.access_token)
    assert (refused.status, refused.json["error_code"]) == (403, "ENROLMENT_REQUIRED")
    if with_app:
        answer = await api.post(f"{PASSKEYS}/options", token=weaker.access_token)
        assert (answer.status, 'acr_values="mfa"' in answer.headers["WWW-Authenticate"]) == (401, True)
    new = PasskeyUser(api, session.access_token)
    assert (await api.delete(f"{PASSKEYS}/{old['id']}", token=new.token)).status == 204, "it is not the factor of the policy"
    added = await new.add()
    assert (await api.get("/api/organizations/acme", token=new.token)).status == 200
    answer = await api.delete(f"{PASSKEYS}/{added['id']}", token=new.token)
    assert (answer.status, answer.json["error"]) == (400, "Acme requires a passkey. Add another one first.")


async def test_an_admin_with_only_lost_passkeys_cannot_ask_for_passkeys(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool
) -> None:
    await holder.add()
    await run_sql(pool, "update passkeys set rp_id = 'old.test'")
    org = await add_policy(ports, pool, user)
    await run_sql(pool, "update memberships set role = 'owner' where org_id = %s", org)
    token, path = (await sign_in(ports, user, org)).access_token, "/api/organizations/acme/sign-in-policy"
    rules = {"phishing_resistant": ["everyone"]}
    seen = await api.post(f"{path}/preview", rules, token=token)
    assert (seen.status, [person["missing"] for person in seen.json["people"]]) == (200, ["phishing_resistant"])
    version = (await api.get(path, token=token)).json["version"]
    saved = await api.call("PUT", path, {**rules, "version": version}, token=token)
    assert (saved.status, "you could not sign in yourself" in saved.json["error"]) == (400, True)


async def test_each_way_in_remains_until_it_goes(ports: Ports, user: Account, holder: PasskeyUser, pool: Pool) -> None:
    await add_identity(pool, user.id)
    passkey = await holder.add()
    key = await PasskeyUser(holder.api, holder.token).add_key(second_factor=False)

    async def left(without: object = None, **account_changes: object) -> tuple[str, ...]:
        async with ports.storage.reading() as read:
            account = await read.accounts.by_id(user.id)
            assert account is not None
            account = replace(account, **account_changes)  # type: ignore[arg-type]
            return await ways_in.remaining(ports, read, account, without=without)  # type: ignore[arg-type]

    assert await left() == ("password", "passkey", "codehost")
    assert await left(Method.PASSWORD) == ("passkey", "codehost")
    assert await left(UUID(passkey["id"])) == ("password", "codehost")
    assert await left(UUID(key["id"])) == ("password", "passkey", "codehost")
    assert await left(CODEHOST) == ("password", "passkey")
    assert await left(email_verified_at=None) == ("passkey", "codehost"), "a password needs a verified address"
    assert await left(password_hash=None) == ("passkey", "codehost")
    by_email = replace(ports, policy=replace(ports.policy, email_sign_in=True))
    async with ports.storage.reading() as read:
        assert await ways_in.remaining(by_email, read, user) == ("password", "email", "codehost"), "as before the passkey"
