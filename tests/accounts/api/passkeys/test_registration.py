"""The signed-in user's passkeys: add, list, rename and delete them."""

from datetime import timedelta

import pytest

from adapters.crypto import WebAuthnPasskeys
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import CHALLENGE_TTL, MAX_PASSKEYS, NO_AAGUID
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.builders import (
    BASE_URL,
    EMAIL,
    VAULT_KEY,
    Api,
    add_account,
    add_member,
    add_organization,
    deliver,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import BITWARDEN, SoftAuthenticator, b64
from tests.support.passkeys.users import PASSKEYS, RP_ID, PasskeyUser


async def test_a_passkey_is_added_and_listed(holder: PasskeyUser, user: Account, pool: Pool, clock: FakeClock) -> None:
    options = await holder.options()
    assert options["rp"] == {"id": RP_ID, "name": "Gatehouse"}
    assert options["user"]["name"] == EMAIL
    assert options["excludeCredentials"] == []
    answer = await holder.send(holder.authenticator.create(options), name="My phone")
    assert answer.status == 201
    expected = {
        "kind": "passkey",
        "name": "My phone",
        "product": "Bitwarden",
        "aaguid": str(BITWARDEN),
        "rp_id": RP_ID,
        "backup_eligible": True,
        "created_at": clock.now().isoformat().replace("+00:00", "Z"),
        "last_used_at": None,
    }
    assert answer.json == {"id": answer.json["id"], **expected}
    assert await holder.listed() == [answer.json]
    [(handle, count)] = await run_sql(pool, "select passkey_handle, passkey_count from users where id = %s", user.id)
    assert (b64(handle), count, len(handle)) == (options["user"]["id"], 1, 64)
    [stored] = await run_sql(pool, "select rp_id, algorithm, transports, backed_up, sign_count from passkeys")
    assert stored == (RP_ID, -7, ["hybrid", "internal"], True, 0)
    assert await run_sql(pool, "select rp_id from issuer") == [(RP_ID,)]


async def test_the_handle_stays_and_known_passkeys_are_excluded(holder: PasskeyUser) -> None:
    first = await holder.options()
    await holder.add()
    second = await holder.options()
    [known] = second["excludeCredentials"]
    assert known == {"type": "public-key", "id": b64(holder.authenticator.credentials[0].id), "transports": ["hybrid", "internal"]}
    assert first["user"] == second["user"]
    assert first["challenge"] != second["challenge"]


async def test_without_a_name_it_gets_that_of_its_product(holder: PasskeyUser, clock: FakeClock) -> None:
    await holder.add()
    clock.advance(timedelta(seconds=1))
    holder.authenticator = SoftAuthenticator(origin=BASE_URL, aaguid=NO_AAGUID)
    await holder.add()
    assert await holder.names() == ["Bitwarden", "Passkey"]


async def test_the_user_gets_an_email_and_organizations_an_event(
    holder: PasskeyUser, user: Account, pool: Pool, ports: Ports, sent: FakeMailTransport, metrics: FakeMetrics
) -> None:
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, confirmed=True)
    passkey = await holder.add(name="<b>Secret name</b>")
    assert (await holder.api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)).status == 204
    events = await run_sql(pool, "select org_id, action, target_id, details from audit_log order by created_at")
    details = {"passkey_id": passkey["id"]}
    assert events == [
        (org, "security.passkey.added", str(user.id), {**details, "kind": "passkey", "aaguid": str(BITWARDEN), "backup_eligible": True}),
        (org, "security.passkey.removed", str(user.id), details),
    ]
    log = await run_sql(pool, "select event_type, success from mfa_events order by created_at, event_type")
    assert log == [("passkey_added", True), ("passkey_removed", True)]
    await deliver(ports)
    added, removed = sorted(sent.emails, key=lambda email: email.subject)
    assert "A passkey in Bitwarden was added to the Gatehouse account" in added.text
    assert "A passkey in Bitwarden was deleted from the Gatehouse account" in removed.text
    assert all("undo" in email.text and "Secret name" not in email.html for email in sent.emails)
    assert metrics.passkey_ceremonies == {("register", "ok"): 1}


async def test_a_passkey_is_renamed_and_deleted(holder: PasskeyUser, pool: Pool) -> None:
    passkey = await holder.add()
    path = f"{PASSKEYS}/{passkey['id']}"
    renamed = await holder.api.patch(path, {"name": "Work laptop"}, token=holder.token)
    assert (renamed.status, renamed.json) == (200, {**passkey, "name": "Work laptop"})
    assert (await holder.api.patch(path, {"name": " "}, token=holder.token)).status == 400
    assert await holder.names() == ["Work laptop"]
    assert (await holder.api.delete(path, token=holder.token)).status == 204
    assert await holder.names() == []
    assert await run_sql(pool, "select passkey_count from users") == [(0,)]
    assert (await holder.api.delete(path, token=holder.token)).status == 404
    assert (await holder.api.patch(path, {"name": "Gone"}, token=holder.token)).status == 404


async def test_passkeys_of_other_users_do_not_exist(holder: PasskeyUser, ports: Ports) -> None:
    other = PasskeyUser(holder.api, (await sign_in(ports, await add_account(ports, "eve@example.com"))).access_token)
    passkey = await other.add()
    for answer in (
        await holder.api.patch(f"{PASSKEYS}/{passkey['id']}", {"name": "Mine"}, token=holder.token),
        await holder.api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token),
    ):
        assert answer.status == 404
    assert await holder.listed() == []
    assert await other.names() == ["Bitwarden"]


async def test_a_credential_belongs_to_one_account(holder: PasskeyUser, ports: Ports) -> None:
    await holder.add()
    other = PasskeyUser(holder.api, (await sign_in(ports, await add_account(ports, "eve@example.com"))).access_token)
    other.authenticator.next_id = holder.authenticator.credentials[0].id
    answer = await other.send(other.authenticator.create(await other.options()))
    assert (answer.status, answer.json["error"]) == (400, "This passkey is already in use here. Create a new one.")
    assert await other.listed() == []


async def test_a_challenge_works_once_in_its_session_and_time(holder: PasskeyUser, user: Account, ports: Ports, clock: FakeClock) -> None:
    credential = holder.authenticator.create(await holder.options())
    elsewhere = PasskeyUser(holder.api, (await sign_in(ports, user)).access_token)
    assert (await elsewhere.send(credential)).status == 400
    assert (await holder.send(credential)).status == 201
    assert (await holder.send(credential)).status == 400
    late = SoftAuthenticator(origin=BASE_URL).create(await holder.options())
    clock.advance(CHALLENGE_TTL)
    newer = PasskeyUser(holder.api, (await sign_in(ports, user)).access_token)
    await newer.confirm(holder.authenticator)
    assert (await newer.send(late)).status == 400


@pytest.mark.slow
async def test_of_20_with_one_challenge_one_is_added(holder: PasskeyUser, pool: Pool) -> None:
    options = await holder.options()
    credentials = [SoftAuthenticator(origin=BASE_URL).create(options) for _ in range(20)]

    async def send(number: int) -> int:
        return (await holder.send(credentials[number])).status

    statuses = await run_concurrently(20, send)
    assert sorted(statuses) == [201] + [400] * 19
    assert await run_sql(pool, "select count(*), max(passkey_count) from passkeys, users") == [(1, 1)]


@pytest.mark.slow
async def test_an_account_has_at_most_20(holder: PasskeyUser, pool: Pool) -> None:
    """The limit also holds if the last passkeys are added at once."""
    options = [await holder.options() for _ in range(MAX_PASSKEYS + 4)]

    async def send(number: int) -> int:
        return (await holder.send(SoftAuthenticator(origin=BASE_URL).create(options[number]))).status

    statuses = await run_concurrently(MAX_PASSKEYS + 4, send)
    assert sorted(statuses) == [201] * MAX_PASSKEYS + [400] * 4
    answer = await holder.api.post(f"{PASSKEYS}/options", token=holder.token)
    assert (answer.status, answer.json["error"]) == (
        400,
        "An account can have at most 20 passkeys and security keys. Delete one that you no longer use.",
    )
    assert await run_sql(pool, "select passkey_count from users") == [(MAX_PASSKEYS,)]


async def test_refused_ceremonies_add_nothing(holder: PasskeyUser, metrics: FakeMetrics) -> None:
    for authenticator in (
        SoftAuthenticator(origin="https://evil.example"),
        SoftAuthenticator(origin=BASE_URL, verifies=False),
        SoftAuthenticator(origin=BASE_URL, client_data={"crossOrigin": True}),
    ):
        answer = await holder.send(authenticator.create(await holder.options()))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert await holder.listed() == []
    assert metrics.passkey_ceremonies == {("register", reason): 1 for reason in ("origin", "verification", "cross_origin")}


async def test_the_sign_in_must_be_fresh_and_have_all_factors(
    holder: PasskeyUser, user: Account, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    passkey = await holder.add()
    await run_sql(pool, "update passkeys set user_verified = false")  # otherwise the change needs the passkey
    holder.token = (await sign_in(ports, user)).access_token  # without a proof of the passkey
    credential = SoftAuthenticator(origin=BASE_URL).create(await holder.options())
    clock.advance(timedelta(minutes=9))
    await add_mfa(ports, user)
    await _is_refused(holder, passkey["id"], credential, 'acr_values="mfa"')
    clock.advance(timedelta(minutes=1, seconds=1))
    await _is_refused(holder, passkey["id"], credential, 'max_age="600"')
    assert await holder.names() == ["Bitwarden"]


async def _is_refused(holder: PasskeyUser, passkey_id: str, credential: object, challenge: str) -> None:
    path = f"{PASSKEYS}/{passkey_id}"
    for answer in (
        await holder.api.post(f"{PASSKEYS}/options", token=holder.token),
        await holder.send(credential),
        await holder.api.patch(path, {"name": "Mine"}, token=holder.token),
        await holder.api.delete(path, token=holder.token),
    ):
        assert answer.status == 401
        assert challenge in answer.headers["WWW-Authenticate"]


async def test_an_unverified_address_gets_no_passkey(api: Api, ports: Ports) -> None:
    account = await add_account(ports, "squatter@example.com", verified=False)
    user = PasskeyUser(api, (await sign_in(ports, account)).access_token)
    answer = await api.post(f"{PASSKEYS}/options", token=user.token)
    assert answer.status == 403


async def test_an_installation_at_an_address_of_numbers_has_no_passkeys(
    holder: PasskeyUser, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("http://127.0.0.1:8080", "http://[::1]:8080"):
        monkeypatch.setattr(type(ports.tokens), "issuer", url)
        answer = await holder.api.post(f"{PASSKEYS}/options", token=holder.token)
        assert (answer.status, answer.json["error"].startswith("Passkeys need a host name")) == (400, True)


async def test_the_rp_id_of_the_first_passkey_stays(holder: PasskeyUser, pool: Pool) -> None:
    first = await holder.add()
    holder.authenticator.credentials.clear()
    for table in ("passkeys", "issuer"):
        await run_sql(pool, f"update {table} set rp_id = 'old.test'")  # noqa: S608  (a name)
    options = await holder.options()
    assert options["rp"]["id"] == "old.test"
    assert (await holder.send(holder.authenticator.create(options))).status == 201, "our origin, with related origins of the old host"
    assert await run_sql(pool, "select rp_id from passkeys") == [("old.test",)] * 2
    await run_sql(pool, "delete from passkeys where id <> %s", first["id"])
    assert (await holder.options())["rp"]["id"] == "old.test"
    await run_sql(pool, "delete from passkeys")
    assert (await holder.options())["rp"]["id"] == RP_ID, "an attempt at a wrong address binds nothing once its passkeys are deleted"
    holder.authenticator.credentials.clear()
    assert (await holder.add())["rp_id"] == RP_ID
    assert await run_sql(pool, "select rp_id from issuer") == [(RP_ID,)]


async def test_challenges_of_another_installation_do_not_work(holder: PasskeyUser, user: Account, ports: Ports) -> None:
    options = await holder.options()
    own = WebAuthnPasskeys([(VAULT_KEY[0], bytes(32))])
    assert own is not ports.passkeys
    options["challenge"] = b64(b"x" * 48)
    assert (await holder.send(holder.authenticator.create(options))).status == 400
