"""The mailbox's owner owns the account (security A-7, R-3, R-5, T-6).

An organization can name addresses before their owners arrive: it invites them, or its directory creates them. Neither
may cost these people anything.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

import pytest

from core.kernel.connections import PlatformCredentials
from core.provisioning.model.users import DomainOfAnother
from core.tenancy.model.invitations import MailTokenRequired
from tests.fakes.outside import FakeMailTransport
from tests.fakes.provider import FakeProvider, Person
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.builders import PASSWORD, Answer, Api, add_account, deliver, link, run_concurrently, run_sql, sign_in
from tests.support.scim import directory_of, problem
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept

CEO: Final = "ceo@victim.example"
NEW_PASSWORD: Final = "a password of the owner"


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


async def mail_token(acme: Tenant, sent: FakeMailTransport) -> str:
    await deliver(acme.ports)
    return link(sent.emails[-1])


async def verify_domain(tenant: Tenant, domain: str) -> None:
    insert = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'x', now(), now())"
    await run_sql(tenant.pool, insert, tenant.org, domain)


async def account_row(acme: Tenant, email: str = CEO) -> dict[str, Any]:
    rows = await run_sql(
        acme.pool,
        """
        select id, email_verified_at is not null, password_hash is not null, origin, origin_org_id, deactivated_at is not null
        from users where email = %s""",
        email,
    )
    names = ("id", "verified", "has_password", "origin", "origin_org_id", "deactivated")
    return dict(zip(names, rows[0], strict=True)) if rows else {}


# Invitations


async def test_only_the_token_of_the_email_proves_the_mailbox(acme: Tenant, api: Api, sent: FakeMailTransport) -> None:
    """A squatter registered the account. Their password does not survive."""
    await api.post("/api/auth/register", {"email": CEO, "password": PASSWORD})
    await deliver(acme.ports)  # emails from the same delivery arrive in any order
    token = (await acme.invite(CEO))["token"]
    by_mail = await mail_token(acme, sent)
    assert token != by_mail
    assert all(token not in email.text for email in sent.emails)
    assert (await accept(api, by_mail)).status == 200
    assert (await acme.members())[CEO] == ("member", True)
    row = await account_row(acme)
    assert (row["verified"], row["has_password"]) == (True, False)
    assert (await api.login(CEO, PASSWORD)).status == 401


async def test_the_token_of_the_response_joins_and_confirms_nothing(acme: Tenant, api: Api) -> None:
    await add_account(acme.ports, CEO, PASSWORD)
    await run_sql(acme.pool, "update users set email_verified_at = null, first_verified_at = null")
    assert (await accept(api, (await acme.invite(CEO))["token"])).status == 200
    assert (await acme.members())[CEO] == ("member", False)
    row = await account_row(acme)
    assert (row["verified"], row["has_password"]) == (False, True)


async def test_an_invitation_through_the_organizations_own_mail_server_proves_nothing(
    acme: Tenant, api: Api, sent: FakeMailTransport
) -> None:
    """That server's operator can read the email."""
    server = """
        insert into smtp_settings (org_id, host, port, from_email, from_name, tls, updated_at)
        values (%s, 'mail.acme.example', 25, 'a@acme.example', 'A', false, now())"""
    await run_sql(acme.pool, server, acme.org)
    token = (await acme.invite(CEO))["token"]
    assert (await accept(api, token)).status == 200
    assert (await acme.members())[CEO] == ("member", False)
    assert (await account_row(acme))["verified"] is False


@pytest.mark.slow
async def test_one_of_twenty_answers_with_either_token_counts(acme: Tenant, api: Api, sent: FakeMailTransport) -> None:
    tokens = [(await acme.invite(CEO))["token"], await mail_token(acme, sent)]
    answers = await run_concurrently(20, lambda number: accept(api, tokens[number % 2]))
    assert Counter(answer.status for answer in answers) == {200: 1, 400: 19}
    assert Counter(entry["action"] for entry in await acme.log())["user.joined"] == 1


async def test_an_organization_destroys_no_account_that_others_use(
    acme: Tenant, other_tenant: Tenant, api: Api, sent: FakeMailTransport
) -> None:
    """The organization invites an unregistered address, and accepts with its own token."""
    assert (await accept(api, (await acme.invite(CEO))["token"])).status == 200
    user_id = (await account_row(acme))["id"]
    await reset_password(acme, sent)
    assert (await api.login(CEO, NEW_PASSWORD)).status == 200
    await add_service_user(acme.ports, await add_service(other_tenant.pool, other_tenant.org), user_id)
    await run_sql(acme.pool, "update memberships set confirmed_at = now() where user_id = %s", user_id)
    assert (await api.delete(f"/api/privacy/forget/{user_id}", token=acme.token("owner"))).status == 403
    assert (await api.login(CEO, NEW_PASSWORD)).status == 200


# Squatting


async def reset_password(acme: Tenant, sent: FakeMailTransport) -> None:
    await acme.api.post("/api/auth/forgot-password", {"email": CEO})
    token = await mail_token(acme, sent)
    answer = await acme.api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    assert answer.status == 200, answer.text


async def change_address(acme: Tenant, user_id: str) -> None:
    """The account got another mailbox and a password first, and then another person's address."""
    hashed = await acme.ports.passwords.hash(PASSWORD)
    change = "update users set password_hash = %s, email_verified_at = null where id = %s"
    await run_sql(acme.pool, change, hashed, UUID(user_id))


async def by_reset(acme: Tenant, other: Tenant, sent: FakeMailTransport, provider: ProviderSignIn) -> None:
    await reset_password(acme, sent)
    assert (await acme.api.login(CEO, NEW_PASSWORD)).status == 200


async def by_provider(acme: Tenant, other: Tenant, sent: FakeMailTransport, provider: ProviderSignIn) -> None:
    provider.provider.person = Person(email=CEO)
    await provider.sign_in()
    assert await provider.user_id() == (await account_row(acme))["id"]


async def by_invitation(acme: Tenant, other: Tenant, sent: FakeMailTransport, provider: ProviderSignIn) -> None:
    token = (await other.invite(CEO))["token"]
    assert (await accept(acme.api, token)).status == 400, "the inviter's token proves nothing"
    assert (await accept(acme.api, await mail_token(acme, sent))).status == 200
    assert (await other.members())[CEO] == ("member", True)


@pytest.mark.parametrize("has_other_credentials", [False, True])
@pytest.mark.parametrize("prove", [by_reset, by_provider, by_invitation])
async def test_the_owner_of_the_mailbox_frees_an_account_that_an_organization_created_and_closed(
    acme: Tenant,
    other_tenant: Tenant,
    sent: FakeMailTransport,
    provider_sign_in: ProviderSignIn,
    prove: Callable[[Tenant, Tenant, FakeMailTransport, ProviderSignIn], Awaitable[None]],
    has_other_credentials: bool,
) -> None:
    directory = await directory_of(acme)
    user_id = (await directory.create_user(CEO, active=False))["id"]
    if has_other_credentials:
        await change_address(acme, user_id)
    await prove(acme, other_tenant, sent, provider_sign_in)
    row = await account_row(acme)
    assert (str(row["id"]), row["verified"], row["origin"], row["origin_org_id"], row["deactivated"]) == (
        user_id, True, "platform", None, False,
    )  # fmt: skip
    assert (await acme.api.login(CEO, PASSWORD)).status == 401
    # The organization keeps its block, and nothing else.
    assert CEO not in await acme.members()
    assert await run_sql(acme.pool, "select org_id, user_id from directory_blocks") == [(acme.org, UUID(user_id))]
    assert (await acme.entry("user.released"))["target_id"] == user_id
    assert (await directory.delete(user_id)).status == 204
    assert (await account_row(acme))["deactivated"] is False


async def test_an_account_with_credentials_stays_closed(acme: Tenant, sent: FakeMailTransport) -> None:
    directory = await directory_of(acme)
    user_id = (await directory.create_user(CEO))["id"]
    await reset_password(acme, sent)
    await directory.deactivate(user_id)
    await deliver(acme.ports)
    count = len(sent.emails)
    await acme.api.post("/api/auth/forgot-password", {"email": CEO})
    await deliver(acme.ports)
    assert len(sent.emails) == count
    assert (await acme.api.login(CEO, NEW_PASSWORD)).status == 401


# Verified domains


async def test_another_directory_cannot_create_accounts_at_a_verified_domain(
    acme: Tenant, other_tenant: Tenant, sent: FakeMailTransport
) -> None:
    await verify_domain(other_tenant, "victim.example")
    directory = await directory_of(acme)
    for email in (CEO, "ceo@mail.victim.example"):
        answer = await directory.try_create_user(email)
        assert (problem(answer), answer.json["detail"]) == ((403, None), DomainOfAnother.__doc__)
    user = await directory.create_user("ada@acme.example")
    assert problem(await directory.put(user["id"], userName=CEO)) == (403, None)
    assert await account_row(acme) == {}
    await deliver(acme.ports)  # emails from the same delivery arrive in any order
    # A guest can be invited. The inviter's token creates no account, and the email's token does.
    answer = await accept(acme.api, (await acme.invite(CEO))["token"])
    assert (answer.status, answer.json["error"]) == (400, MailTokenRequired.__doc__)
    assert await account_row(acme) == {}
    assert (await accept(acme.api, await mail_token(acme, sent))).status == 200
    assert (await acme.members())[CEO] == ("member", True)
    assert (await (await directory_of(other_tenant)).try_create_user(CEO)).status == 409, "the guest's account is their own"


async def test_the_owner_of_a_domain_sees_what_others_did_there_and_takes_over(acme: Tenant, other_tenant: Tenant) -> None:
    squatter, owner = await directory_of(acme), await directory_of(other_tenant)
    ids = {name: (await squatter.create_user(f"{name}@victim.example", active=name != "away"))["id"] for name in ("ceo", "away")}
    await squatter.create_user("other@notvictim.example")
    await acme.invite("guest@mail.victim.example")

    async def seen(what: str) -> Answer:
        return await acme.api.get(f"{other_tenant.path}/domains/victim.example/{what}", token=other_tenant.token("owner"))

    assert [(await seen(what)).status for what in ("accounts", "invitations")] == [404, 404]
    await verify_domain(other_tenant, "victim.example")
    accounts, invitations = (await seen("accounts")).json, (await seen("invitations")).json
    by_acme = {"slug": acme.slug, "name": "Acme"}
    assert {(account["email"], account["user_id"]) for account in accounts["accounts"]} == {
        (f"{name}@victim.example", user_id) for name, user_id in ids.items()
    }
    assert [account["organization"] for account in accounts["accounts"]] == [by_acme] * 2
    assert [(each["email"], each["organization"]) for each in invitations["invitations"]] == [("guest@mail.victim.example", by_acme)]
    assert (accounts["pagination"]["total"], invitations["pagination"]["total"]) == (2, 1)

    async with acme.ports.storage.reading() as read:
        ceo = await read.accounts.by_id(UUID(ids["ceo"]))
    assert ceo is not None
    session = await sign_in(acme.ports, ceo)
    answers = await run_concurrently(20, lambda _: owner.try_create_user(CEO, displayName="The CEO"))
    assert Counter(answer.status for answer in answers) == {201: 1, 409: 19}
    taken = next(answer.json for answer in answers if answer.status == 201)
    assert (taken["id"], taken["displayName"], taken["active"]) == (ids["ceo"], "The CEO", True)
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await owner.create_user("away@victim.example"))["active"] is True
    row = await account_row(acme)
    assert (row["origin"], row["origin_org_id"], row["deactivated"]) == ("scim", other_tenant.org, False)
    assert [(await other_tenant.members())[f"{name}@victim.example"] for name in ids] == [("member", True)] * 2
    for tenant, action in ((acme, "user.released"), (other_tenant, "user.taken_over")):
        assert {entry["target_id"] for entry in await tenant.log() if entry["action"] == action} == set(ids.values())
    welcomes = await run_sql(
        acme.pool, "select address from mails where kind = 'welcome' and org_id = %s order by address", other_tenant.org
    )
    assert welcomes == [("away@victim.example",), (CEO,)]
    assert (await seen("accounts")).json["accounts"] == []
    # The former creator controls its membership only.
    assert (await squatter.delete(ids["ceo"])).status == 204
    assert (await account_row(acme))["deactivated"] is False


async def test_taking_over_an_unverified_account_removes_every_way_into_it(acme: Tenant, other_tenant: Tenant) -> None:
    squatter, owner = await directory_of(acme), await directory_of(other_tenant)
    user_id = (await squatter.create_user("squatter@acme.example"))["id"]
    hashed = await acme.ports.passwords.hash(PASSWORD)
    squat = "update users set password_hash = %s, email = %s, email_verified_at = null where id = %s"
    await run_sql(acme.pool, squat, hashed, CEO, UUID(user_id))
    await verify_domain(other_tenant, "victim.example")
    assert (await owner.create_user(CEO))["id"] == user_id
    row = await account_row(acme)
    assert (row["verified"], row["has_password"]) == (True, False)
    assert (await acme.api.login(CEO, PASSWORD)).status == 401


async def test_a_registration_without_proof_does_not_keep_the_directory_of_the_domain_out(
    acme: Tenant, api: Api, sent: FakeMailTransport
) -> None:
    await verify_domain(acme, "victim.example")
    await api.post("/api/auth/register", {"email": CEO, "password": PASSWORD})
    by_mail = await mail_token(acme, sent)
    assert (await (await directory_of(acme)).create_user(CEO))["active"] is True
    assert (await acme.members())[CEO] == ("member", True)
    assert (await api.login(CEO, PASSWORD)).status == 401
    answer = await api.get(f"/auth/verify-email?token={by_mail}")
    assert answer.status == 400
