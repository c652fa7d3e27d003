"""How an anonymization changes the account, its data and its records (decisions 65, 143, 147, 148; security A-4)."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind, new_email
from core.kernel.causes import SYSTEM
from core.kernel.values import Email
from core.privacy.model import personal_data as model_personal_data
from core.privacy.model import personal_data as personal_data_model
from core.tenancy import events
from core.tenancy.model.invitations import InvitationStatus
from ports import Ports
from tests.accounts.profiles import set_profile
from tests.applications.api.service_users import check_counts, open_shop
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.privacy.api.anonymization.data import (
    DELETED_TABLES,
    KEPT_TABLES,
    PLACEHOLDER,
    USER_ADDRESS,
    account_row,
    add_all_data,
    anonymize,
    columns_with,
    count_rows,
    end_undo_links,
    request_anonymization,
)
from tests.programs.service_accounts import add_robot
from tests.support.builders import EMAIL, PASSWORD, Api, add_account, add_invitation, add_member, deliver, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.refusals import FORBIDDEN, UNAUTHORIZED, refused
from tests.support.services import add_service, add_service_user, sign_in_to
from tests.support.tenants import Tenant, Tenants
from tests.support.webhooks import add_webhook


@pytest.mark.slow
async def test_no_data_that_identifies_the_user_or_lets_them_sign_in_remains(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    # What the user did inside and outside an organization
    passwords = {"current_password": PASSWORD, "new_password": "another good password"}
    assert (await api.post("/api/user/change-password", passwords, token=acme.token("ada"))).status == 200
    # Invitations to the address: one here, and a pending invitation in another organization
    invitation = await add_invitation(ports, acme.org, EMAIL)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.invitations.end(acme.org, invitation.id, InvitationStatus.ACCEPTED, clock.now())
        tx.record(events.invitation_accepted(invitation, user.id))
    await other_tenant.invite(EMAIL)
    shop = await open_shop(acme)
    await add_all_data(acme, user, shop.id)
    await set_profile(ports, user.id)
    await run_sql(pool, "update audit_log set address = %s", USER_ADDRESS)  # the test client has no address
    before = await account_row(pool, user.id)
    counts = await count_rows(pool, user.id, *KEPT_TABLES)
    assert 0 not in {**counts, **await count_rows(pool, user.id, *DELETED_TABLES)}.values()
    entries = await run_sql(pool, "select id, action, actor_id, target_id, created_at from audit_log order by id")
    assert await columns_with(pool, "key of Ada") == {"sessions.key_thumbprint"}
    assert await columns_with(pool, EMAIL) >= {
        "users.email",
        "service_users.email",
        "end_users.email",
        "mails.address",
        "invitations.email",
    }
    now = clock.now()

    await end_undo_links(pool)
    answer = await request_anonymization(api, user.id, acme.token("owner"))
    assert (answer.status, answer.json) == (200, {"success": True, "message": "The user is anonymized.", "user_id": str(user.id)})

    after = await account_row(pool, user.id)
    assert PLACEHOLDER.fullmatch(after["email"])
    assert after["email"] == personal_data_model.placeholder_at(now)
    assert (after["email_verified_at"], after["password_hash"], after["mfa_enabled_at"]) == (None, None, None)
    assert (after["anonymized_at"], after["created_at"]) == (now, before["created_at"])
    assert {after[name] for name in ("name", "picture", "locale", "zoneinfo", "profile_details")} == {None}
    assert await columns_with(pool, EMAIL) == set()
    assert await count_rows(pool, user.id, *DELETED_TABLES) == dict.fromkeys(DELETED_TABLES, 0)
    assert await count_rows(pool, user.id, *KEPT_TABLES) == counts
    assert await run_sql(pool, "select distinct address, agent, city, country from login_events where user_id = %s", user.id) == [
        ("0.0.0.0", "anonymized", None, None)  # noqa: S104
    ]
    assert await run_sql(pool, "select distinct address, agent from mfa_events where user_id = %s", user.id) == [("0.0.0.0", "anonymized")]  # noqa: S104
    assert await run_sql(pool, "select distinct address, agent from audit_log where actor_id = %s", user.id) == [("0.0.0.0", "anonymized")]  # noqa: S104
    remaining_entries = await run_sql(pool, "select id, action, actor_id, target_id, created_at from audit_log order by id")
    assert set(entries) < set(remaining_entries), "entries stay"
    for text in ("Ada's", "Lovelace", "images.example.com", "en-GB", "London", "ada-at-codehost", "ada-at-websuite", "key of Ada"):
        assert await columns_with(pool, text) == set()
    await check_counts(pool)
    await deliver(ports)
    assert sent.emails == []


async def test_stored_webhook_deliveries_lose_the_address(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    await add_webhook(ports, acme.org, "https://hooks.example.com/")
    await acme.set_role("owner", "ada", "admin")
    await acme.invite("guest@example.com", by="ada")
    await run_sql(pool, "update webhook_deliveries set response_body = payload::text")  # the receiver repeats the content
    [(before,)] = await run_sql(pool, "select payload from webhook_deliveries")
    assert before["actor_email"] == EMAIL
    await anonymize(api, user.id, acme.token("owner"))
    assert await run_sql(pool, "select payload, response_body from webhook_deliveries") == [({**before, "actor_email": None}, None)]


async def test_an_anonymization_is_recorded_once(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account, platform: Platform
) -> None:
    """In the privacy log, and for every organization with the user as a member, confirmed or not."""
    await add_member(pool, other_tenant.org, user.id)
    await anonymize(api, user.id, platform.token)
    first = await account_row(pool, user.id)
    platform.clock.advance(timedelta(minutes=1))
    await anonymize(api, user.id, platform.token)
    assert await account_row(pool, user.id) == first
    assert await run_sql(pool, "select event_type, user_id, actor_id, agent, created_at from privacy_log") == [
        ("user_anonymized", user.id, platform.account.id, "the owner's browser", first["anonymized_at"])
    ]
    for tenant in (acme, other_tenant):
        assert await tenant.recorded() == [("user.anonymized", "user", str(user.id), platform.account.id, {})]
        assert await tenant.webhook_events() == [("user.anonymized", str(user.id), {})]
    assert await run_sql(pool, "select action from audit_log where org_id is null") == []


async def test_an_anonymized_account_cannot_sign_in(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    service = await add_service(pool, acme.org)
    own_tokens, service_tokens = await sign_in(ports, user), await sign_in_to(ports, pool, service, user)
    await anonymize(api, user.id, acme.token("owner"))
    placeholder = (await account_row(pool, user.id))["email"]
    for tokens in (own_tokens, service_tokens):
        assert (await api.get("/api/user", token=tokens.access_token)).status == 401
        assert (await api.post("/api/auth/refresh", {"refresh_token": tokens.refresh_token})).status == 401
    for address in (EMAIL, placeholder):
        assert refused(await api.login(address)) == UNAUTHORIZED
        assert (await api.post("/api/auth/forgot-password", {"email": address})).status == 200
    await deliver(ports)
    assert await run_sql(pool, "select 1 from one_time_tokens where user_id = %s", user.id) == []


async def test_a_new_account_with_the_old_address_has_no_access_to_the_old_data(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    await anonymize(api, user.id, acme.token("owner"))
    assert (await api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})).status == 200
    [(new_id,)] = await run_sql(pool, "select id from users where email = %s", EMAIL)
    assert new_id != user.id
    await run_sql(pool, "update users set email_verified_at = now(), first_verified_at = now() where id = %s", new_id)
    token = (await api.login()).json["access_token"]
    assert (await api.get("/api/user", token=token)).json["id"] == str(new_id)
    assert refused(await api.get(f"{acme.path}/members", token=token)) == FORBIDDEN
    assert refused(await api.get(f"/api/privacy/export/{user.id}", token=token)) == FORBIDDEN


async def test_lists_of_members_and_end_users_show_the_placeholder(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    shop = await open_shop(acme)
    await add_service_user(ports, shop.id, user.id)
    await anonymize(api, user.id, acme.token("owner"))
    placeholder = (await account_row(pool, user.id))["email"]
    for path, items in ((f"{acme.path}/members", "members"), (f"{acme.path}/users", "users")):
        answer = await api.get(path, token=acme.token("owner"))
        assert answer.status == 200, answer.text
        assert placeholder in answer.text, items
        assert EMAIL not in answer.text
    assert await shop.stored_emails() == [placeholder]


async def test_a_later_export_is_redacted(api: Api, acme: Tenant, user: Account) -> None:
    await api.login()
    await anonymize(api, user.id, acme.token("owner"))
    package = (await api.get(f"/api/privacy/export/{user.id}", token=acme.token("owner"))).json
    assert (package["user_id"], package["memberships"][0]["organization_slug"]) == (str(user.id), "acme")
    assert PLACEHOLDER.fullmatch(package["email"])


async def test_invitations_to_the_address_end_in_every_organization(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, acme: Tenant, other_tenant: Tenant, tenants: Tenants, user: Account
) -> None:
    third = await tenants.add("third")
    overdue = await add_invitation(ports, third.org, EMAIL, expires_at=clock.now())
    response = await other_tenant.invite(EMAIL)
    await anonymize(api, user.id, acme.token("owner"))
    placeholder = (await account_row(pool, user.id))["email"]
    assert await other_tenant.statuses() == {placeholder: "cancelled"}
    assert await third.statuses() == {placeholder: "expired"}
    assert (await api.post("/api/invitations/accept", {"token": response["token"]})).status == 400
    # The event says that it ended, but not who ended it and why.
    details = {"invited_email": placeholder, "role": "member"}
    invitation = response["invitation"]["id"]
    assert await other_tenant.recorded() == [
        ("user.invited", "invitation", invitation, other_tenant.people["owner"].id, details),
        ("invitation.revoked", "invitation", invitation, None, details),
    ]
    assert await other_tenant.webhook_events() == [("user.invited", invitation, details), ("invitation.revoked", invitation, details)]
    assert (await other_tenant.entry("invitation.revoked"))["address"] is None
    assert await third.recorded() == [("invitation.expired", "invitation", str(overdue.id), None, details)]
    # The address can be invited again.
    assert (await other_tenant.invite(EMAIL))["invitation"]["id"] != invitation


async def test_invitations_that_the_user_sent_stay(api: Api, acme: Tenant, user: Account) -> None:
    await acme.set_role("owner", "ada", "admin")
    await acme.invite("guest@example.com", by="ada")
    await anonymize(api, user.id, acme.token("owner"))
    assert await acme.statuses() == {"guest@example.com": "pending"}


async def test_personal_tokens_of_the_user_end(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    """Their names, which could identify the user, are in no record about what was done with them."""
    await add_webhook(acme.ports, acme.org, "https://hooks.example.com/")
    await acme.set_role("owner", "ada", "admin")
    choices = {"scopes": ["members:read", "members:write"], "org_slug": "acme"}
    secrets = []
    for name in ("Lovelace 1", "Lovelace 2"):
        answer = await api.post("/api/user/personal-tokens", {"name": name, **choices}, token=acme.token("ada"))
        assert answer.status == 200, answer.text
        secrets.append(answer.json["token"])
    invitation = {"email": "guest@example.com", "role": "member"}
    assert (await api.post(f"{acme.path}/invitations", invitation, token=secrets[0])).status == 200
    assert (await api.delete(f"{acme.path}/personal-tokens/{answer.json['id']}", token=acme.token("owner"))).status == 204
    exported = (await api.get(f"/api/privacy/export/{user.id}", token=acme.token("ada"))).json["personal_tokens"]
    assert {token["name"]: token["ended_at"] is None for token in exported} == {"Lovelace 1": True, "Lovelace 2": False}
    assert await columns_with(pool, "Lovelace") == {"personal_tokens.name", "mails.secret"}
    await end_undo_links(pool)
    await anonymize(api, user.id, acme.token("owner"))
    assert (await api.get(f"{acme.path}/members", token=secrets[0])).status == 401
    assert await run_sql(pool, "select 1 from personal_tokens") == []
    assert await columns_with(pool, "Lovelace") == set()


async def test_service_accounts_of_the_user_stop(api: Api, acme: Tenant, platform: Platform) -> None:
    """The roles above member that a user's service accounts gave are void (security R-4)."""
    of_admin = await add_robot(acme, "admin")
    of_owner = await add_robot(acme, role="owner", granted_capabilities=["roles.manage", "members.manage"])
    assert (await of_owner.set_role("member", "admin")).status == 200
    assert (await of_owner.invite("guest@example.com", "admin")).status == 200
    for name in ("admin", "owner"):
        await anonymize(api, acme.id(name), platform.token)
    for robot in (of_admin, of_owner):
        assert (await robot.call("GET", "/members")).status == 401
    assert (await acme.roles())["member"] == "member"
    assert await acme.statuses() == {"guest@example.com": "cancelled"}


async def test_emails_to_other_users_stay(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for address in (EMAIL, "eve@example.com"):
            await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, Email(address), ports.clock.now()))
    await anonymize(api, user.id, acme.token("owner"))
    assert await run_sql(pool, "select address from mails") == [("eve@example.com",)]


async def test_placeholders_differ_at_the_same_time(api: Api, ports: Ports, pool: Pool, platform: Platform) -> None:
    people = [await add_account(ports, f"n{number}@example.com", None) for number in range(3)]
    for account in people:  # the clock does not move
        await anonymize(api, account.id, platform.token)
    assert {(await account_row(pool, account.id))["email"] for account in people} == {
        personal_data_model.placeholder_at(ports.clock.now() + number * timedelta(microseconds=1)) for number in range(3)
    }


async def test_without_a_free_placeholder_the_request_is_limited(
    api: Api, pool: Pool, platform: Platform, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_personal_data, "MAX_LOST_RACES", 1)
    first, second = [await add_account(ports, f"n{number}@example.com", None) for number in range(2)]
    await anonymize(api, first.id, platform.token)
    answer = await request_anonymization(api, second.id, platform.token)
    assert refused(answer) == (429, "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == "1"
    assert (await account_row(pool, second.id))["email"] == "n1@example.com"
