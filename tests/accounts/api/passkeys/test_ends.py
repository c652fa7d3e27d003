"""What ends passkeys: an undo, a squatter, an anonymization, and the sweep."""

import re
from datetime import timedelta
from typing import LiteralString

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.security_notices import UNDO_TTL
from ports import Ports
from tests.accounts.api.passkeys.test_waits import DELETED, STARTED, Loser
from tests.accounts.email_changes import UNDO, undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import EMAIL, NEW_PASSWORD, Answer, Api, add_account, deliver, link, run_sql, sign_in
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey, verify_second

RESET = "/auth/reset-password"


async def newest_link(ports: Ports, sent: FakeMailTransport, path: str = UNDO) -> str:
    await deliver(ports)
    return link(sent.newest(path))


async def later(holder: PasskeyUser, user: Account, ports: Ports, clock: FakeClock) -> PasskeyUser:
    """Return a new session that has shown the passkey, after all earlier undo links have expired."""
    clock.advance(UNDO_TTL)
    newer = PasskeyUser(holder.api, (await sign_in(ports, user)).access_token)
    await newer.confirm(holder.authenticator)
    return newer


async def test_an_undo_deletes_an_added_passkey(
    holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock
) -> None:
    await holder.add(name="Old")
    thief = await later(holder, user, ports, clock)
    await thief.add(name="Of a thief")
    token = await newest_link(ports, sent)
    assert (await undo(holder.api, token)).status == 200
    newer = PasskeyUser(holder.api, (await sign_in(ports, user)).access_token)
    assert await newer.names() == ["Old"]
    assert await run_sql(pool, "select passkey_count from users") == [(1,)]
    assert await run_sql(pool, "select count(*) from audit_log where action = 'security.passkey.removed'") == [(1,)]


async def test_an_undo_restores_a_deleted_passkey(
    holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock
) -> None:
    await holder.add(name="Mine")
    thief = await later(holder, user, ports, clock)
    [before] = await thief.listed()
    stored = await run_sql(pool, "select * from passkeys")
    assert (await thief.api.delete(f"{PASSKEYS}/{before['id']}", token=thief.token)).status == 204
    token = await newest_link(ports, sent)
    clock.advance(timedelta(minutes=1))
    await thief.add(name="Of a thief")
    assert (await undo(holder.api, token)).status == 200
    newer = PasskeyUser(holder.api, (await sign_in(ports, user)).access_token)
    assert await newer.listed() == [before]
    assert await run_sql(pool, "select * from passkeys") == stored
    assert await run_sql(pool, "select passkey_count, (select count(*) from former_passkeys) from users") == [(1, 0)]


async def test_a_restored_passkey_gives_way_to_another_account(
    holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock
) -> None:
    passkey = await holder.add()
    clock.advance(timedelta(minutes=1))
    await holder.api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)
    token = await newest_link(ports, sent)
    other = await add_account(ports, "eve@example.com")
    await run_sql(
        pool,
        """
        insert into passkeys (id, user_id, name, credential_id, public_key, algorithm, rp_id, sign_count, aaguid, backup_eligible,
                              created_at)
        select gen_random_uuid(), %s, 'Key', credential_id, public_key, -7, rp_id, 0, aaguid, true, created_at from former_passkeys""",
        other.id,
    )
    assert (await undo(holder.api, token)).status == 200
    assert await run_sql(pool, "select passkey_count from users where id = %s", user.id) == [(0,)]


@pytest.mark.slow
async def test_a_proof_of_the_mailbox_deletes_what_a_squatter_added(
    holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, pool: Pool, api: Api
) -> None:
    """The squatter registered another person's address. Passkeys need a verified address, so the squatter's address was verified before."""
    await holder.add()
    await run_sql(pool, "update users set email_verified_at = null, first_verified_at = null")
    assert (await api.post("/api/auth/forgot-password", {"email": "ada@example.com"})).status == 200
    token = await newest_link(ports, sent, RESET)
    answer = await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    assert answer.status == 200, answer.text
    assert await run_sql(pool, "select passkey_count, (select count(*) from passkeys) from users") == [(0, 0)]


async def test_a_reset_keeps_passkeys(holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, api: Api) -> None:
    await holder.add()
    assert (await api.post("/api/auth/forgot-password", {"email": "ada@example.com"})).status == 200
    token = await newest_link(ports, sent, RESET)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    newer = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    assert await newer.names() == ["Bitwarden"]
    await deliver(ports)
    [told] = [email for email in sent.emails if email.subject.startswith("Your password was changed")]
    assert "Your passkey still works. Delete any that you don't\nrecognize." in told.text
    assert "Your passkey still works." in told.html


async def test_a_reset_at_an_address_that_was_never_proved_deletes_passkeys(
    holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, pool: Pool, api: Api
) -> None:
    """A user may have mistyped the new address. Otherwise its owner would share the account with them."""
    await holder.add()
    await run_sql(pool, "update users set email_verified_at = null")
    assert (await api.post("/api/auth/forgot-password", {"email": "ada@example.com"})).status == 200
    token = await newest_link(ports, sent, RESET)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    assert await run_sql(pool, "select passkey_count, (select count(*) from passkeys) from users") == [(0, 0)]


async def reset_page(holder: PasskeyUser, app: QuartTrio, ports: Ports, sent: FakeMailTransport) -> tuple[FakeBrowser, Answer]:
    """Return the page of a reset link."""
    assert (await holder.api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    browser = FakeBrowser(app)
    return browser, await browser.open(f"/auth/reset-password?token={await newest_link(ports, sent, RESET)}")


async def test_the_page_of_a_reset_asks_about_recent_passkeys(
    app: QuartTrio, holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock
) -> None:
    await holder.add(name="Old")
    newer = await later(holder, user, ports, clock)
    await newer.add(name="<b>Of a thief</b>")
    clock.advance(timedelta(hours=71))
    browser, page = await reset_page(holder, app, ports, sent)
    [box] = re.findall(r'name="(keep:[0-9a-f-]+)"', page.text)
    assert re.search(rf'name="{box}"[^>]* checked', page.text) is None
    assert "Keep the passkey &lt;b&gt;Of a thief&lt;/b&gt;" in page.text
    answer = await browser.send("/auth/reset-password", **{**hidden_fields(page), "new_password": NEW_PASSWORD})
    assert answer.status == 200, "it was not selected"
    assert await run_sql(pool, "select name from passkeys") == [("Old",)]
    token, thief = await newest_link(ports, sent), newer.authenticator
    clock.advance(timedelta(hours=2))  # no undo begins before it was added
    assert (await undo(holder.api, token)).status == 200
    assert [(await sign_in_with_passkey(holder.api, each)).status for each in (holder.authenticator, thief)] == [200, 401], "it stays ended"
    newer.token = (await sign_in(ports, user)).access_token
    await newer.confirm(holder.authenticator)
    await newer.add(name="Mine")
    browser, page = await reset_page(holder, app, ports, sent)
    [box] = re.findall(r'name="(keep:[0-9a-f-]+)"', page.text)
    fields = {**hidden_fields(page), "new_password": NEW_PASSWORD, box: "yes"}
    assert (await browser.send("/auth/reset-password", **fields)).status == 200
    assert await run_sql(pool, "select name from passkeys order by name") == [("Mine",), ("Old",)]


@pytest.mark.parametrize("is_passkey", [True, False])
async def test_a_reset_asks_about_each_recent_key_beside_an_older_second_factor(
    app: QuartTrio, holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, clock: FakeClock, is_passkey: bool
) -> None:
    """The older factor stays. Without this question, the mailbox alone would be enough to sign in."""
    await (holder.add(second_factor=True) if is_passkey else holder.add_key())
    clock.advance(UNDO_TTL)
    newer = PasskeyUser(holder.api, (await sign_in(ports, user, second_factor=True)).access_token)
    if is_passkey:
        await newer.confirm(holder.authenticator)
    await newer.add(name="Of a thief")
    browser, page = await reset_page(holder, app, ports, sent)
    assert (page.text.count('name="keep:'), "Keep the passkey Of a thief" in page.text) == (1, True)
    await browser.send(RESET, **{**hidden_fields(page), "new_password": NEW_PASSWORD})
    assert (await sign_in_with_passkey(holder.api, newer.authenticator)).status == 401
    login = (await holder.api.login(EMAIL, NEW_PASSWORD)).json
    assert (await verify_second(holder.api, login, holder.authenticator)).status == 200


async def test_the_keys_of_a_second_factor_no_longer_sign_in_alone_at_an_address_that_was_never_proved(
    holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    """Like an authenticator app, they count only beside the password that the owner of the mailbox sets."""
    await holder.add(second_factor=True)
    await run_sql(pool, "update users set email_verified_at = null")
    assert (await holder.api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    token = await newest_link(ports, sent, RESET)
    assert (await holder.api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    assert (await sign_in_with_passkey(holder.api, holder.authenticator)).status == 401
    login = await holder.api.post("/api/auth/login", {"email": EMAIL, "password": NEW_PASSWORD})
    assert login.json["methods"] == ["passkey", "backup_code"]


@pytest.mark.parametrize("earlier", [None, "update passkeys set rp_id = 'old.example'", "update passkeys set user_verified = false"])
@pytest.mark.parametrize("by_thief", [True, False])
async def test_the_first_passkey_ends_a_change_of_the_address_that_another_session_requested(
    holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, pool: Pool, user: Account, by_thief: bool, earlier: LiteralString | None
) -> None:
    """The change was requested without the passkey. The session that adds the passkey keeps its own request. Some keys do not count."""
    if earlier is not None:
        await PasskeyUser(holder.api, holder.token).add()
        await run_sql(pool, earlier)
    token = (await sign_in(ports, user)).access_token if by_thief else holder.token
    assert (await holder.api.patch("/api/user", {"email": "new@example.com"}, token=token)).status == 200
    await deliver(ports)
    proof = link(sent.newest("/auth/verify-email", "new@example.com"))
    await holder.add()
    await holder.api.get(f"/auth/verify-email?token={proof}")
    assert await run_sql(pool, "select email = 'new@example.com' from users where id = %s", user.id) == [(not by_thief,)]


async def test_a_passkey_that_first_verifies_its_user_ends_a_change_of_the_address(
    holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, pool: Pool, user: Account
) -> None:
    await holder.add()
    await run_sql(pool, "update passkeys set user_verified = false")
    thief = (await sign_in(ports, user)).access_token
    assert (await holder.api.patch("/api/user", {"email": "new@example.com"}, token=thief)).status == 200
    await deliver(ports)
    proof = link(sent.newest("/auth/verify-email", "new@example.com"))
    assert (await sign_in_with_passkey(holder.api, holder.authenticator)).status == 200
    await holder.api.get(f"/auth/verify-email?token={proof}")
    assert await run_sql(pool, "select email from users where id = %s", user.id) == [(EMAIL,)]


async def test_the_credential_id_of_a_deleted_key_is_taken_while_an_undo_restores_it(
    holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    """A thief's key would take the place of the owner's second factor."""
    key = await holder.add_key()
    clock.advance(UNDO_TTL)
    thief = PasskeyUser(holder.api, (await sign_in(ports, user, second_factor=True)).access_token)
    assert (await holder.api.delete(f"{PASSKEYS}/{key['id']}", token=thief.token)).status == 204
    thief.authenticator.next_id = holder.authenticator.credentials[0].id
    clock.advance(timedelta(minutes=1))
    assert (await thief.send(thief.authenticator.create(await thief.options("security_key")), kind="security_key")).status == 400
    assert (await undo(holder.api, await newest_link(ports, sent))).status == 200
    login = (await holder.api.login()).json
    assert (await verify_second(holder.api, login, holder.authenticator)).status == 200


async def test_a_wait_is_no_default_start_of_an_undo(
    holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, api: Api, app: QuartTrio, clock: FakeClock
) -> None:
    """The user who started the wait showed password and mailbox.

    Otherwise a later link brings a squatter's passkey back, unless its user chooses a start.
    """
    await holder.add(name="Squatter")
    clock.advance(UNDO_TTL)
    loser = Loser(api, ports, sent)
    await loser.show_both()
    assert (await loser.start()).status == 201
    clock.advance(timedelta(hours=24))
    await loser.show_both()
    assert (await loser.remove()).status == 204
    clock.advance(timedelta(hours=1))
    assert (await api.patch("/api/user", {"email": "thief@example.com"}, token=await loser.sign_in())).status == 200
    await deliver(ports)
    starts = {}
    for subject in (STARTED, DELETED, "Your email address is about to change"):
        page = await FakeBrowser(app).open(f"{UNDO}?token={link(sent.newest(subject, EMAIL))}")
        starts[subject] = re.findall(r'value="[0-9a-f-]+" checked.*\n<label[^>]*>([^<]+)<', page.text)
    assert list(starts.values()) == [["All passkeys were reported as lost"]] * 2 + [["Another email address was entered"]]
    assert (await undo(api, await newest_link(ports, sent))).status == 200
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 401
