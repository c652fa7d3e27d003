"""Who may start which recoveries, and what a console page shows about them."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.applications.model.users import EndUserNotFound
from core.authentication.model.recovery import (
    CannotRecoverSelf,
    PlatformOwnerNotRecovered,
    RecoversMoreRights,
    RecoveryNotAllowed,
    RecoveryNotReachable,
    TooManyRecoveries,
)
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, Capability, RoleName
from core.tenancy.model.members import MemberNotFound
from ports import Ports
from tests.authentication.api.recovery.lost import REASON, LostUser
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import PASSWORD, add_account, add_platform_owner, impersonate, mark_created_by, run_sql, sign_in
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant

CAST: Mapping[str, RoleName] = {"owner": OWNER, "admin": ADMIN, "second": ADMIN, "member": MEMBER, "guest": MEMBER}


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    return CAST


async def test_who_may_start_which_recovery(acme: Tenant, other_tenant: Tenant, platform: Platform, ports: Ports, pool: Pool) -> None:
    """Every member but the guest was created by acme, and so was the end user. Service accounts are in the access matrix."""
    end_user = await add_account(ports, "user@example.com", None)
    await add_service_user(ports, await add_service(pool, acme.org), end_user.id)
    await mark_created_by(pool, acme.org, end_user.id, *(account.id for name, account in acme.people.items() if name != "guest"))
    shared = await add_account(ports, "shared@example.com", None)
    await acme.join("shared", shared)
    await other_tenant.join("shared", shared)
    await mark_created_by(pool, acme.org, shared.id)
    unproved = await add_account(ports, "unproved@example.com", None, verified=False)
    await acme.join("unproved", unproved)
    await mark_created_by(pool, acme.org, unproved.id)
    closed = await add_account(ports, "closed@example.com", None, deactivated_at=ports.clock.now())
    await acme.join("closed", closed)
    await mark_created_by(pool, acme.org, closed.id)
    second_steward = await add_platform_owner(ports, "second@platform.example")

    members, users, people = f"{acme.path}/members", f"{acme.path}/users", "/api/platform/users"
    owner, admin, member = (acme.token(name) for name in ("owner", "admin", "member"))
    personal_token = (await add_personal_token(ports, acme.people["owner"], acme.org)).text
    impersonation = await impersonate(ports, second_steward, acme.people["owner"], acme.org)
    table = [
        ("owner: member", owner, members, acme.id("member"), None),
        ("owner: admin", owner, members, acme.id("admin"), None),
        ("admin: member", admin, members, acme.id("member"), None),
        ("admin: another admin", admin, members, acme.id("second"), None),
        ("admin: oneself", admin, members, acme.id("admin"), CannotRecoverSelf),
        ("admin: end user", admin, users, str(end_user.id), None),
        ("admin: owner", admin, members, acme.id("owner"), RecoveryNotAllowed),
        ("admin: admin, as an end user", admin, users, acme.id("second"), EndUserNotFound),
        ("admin: account that the user created", admin, members, acme.id("guest"), RecoveryNotAllowed),
        ("admin: account that another organization uses", admin, members, str(shared.id), RecoveryNotAllowed),
        ("admin: member of another organization", admin, members, other_tenant.id("member"), MemberNotFound),
        ("admin: end user as member", admin, members, str(end_user.id), MemberNotFound),
        ("admin: address not verified", admin, members, str(unproved.id), RecoveryNotReachable),
        ("admin: deactivated account", admin, members, str(closed.id), RecoveryNotReachable),
        ("member: member", member, members, acme.id("second"), "FORBIDDEN"),
        ("end user: end user", (await sign_in(ports, end_user)).access_token, users, str(end_user.id), "FORBIDDEN"),
        ("personal token of the owner", personal_token, members, acme.id("member"), "FORBIDDEN"),
        ("impersonator of the owner", impersonation, members, acme.id("member"), "FORBIDDEN"),
        ("owner: over the platform", owner, people, acme.id("member"), "FORBIDDEN"),
        ("platform owner: organization's owner", platform.token, people, acme.id("owner"), None),
        ("platform owner: account used by two organizations", platform.token, people, str(shared.id), None),
        ("platform owner: oneself", platform.token, people, str(platform.account.id), PlatformOwnerNotRecovered),
        ("platform owner: another one", platform.token, people, str(second_steward.id), PlatformOwnerNotRecovered),
        ("platform owner: over the organization", platform.token, members, acme.id("member"), "FORBIDDEN"),
    ]
    findings = []
    for name, token, path, user_id, refusal in table:
        before = await run_sql(pool, "select user_id from account_recoveries order by created_at, id")
        answer = await acme.api.post(f"{path}/{user_id}/recovery", {"reason": REASON}, token=token)
        after = await run_sql(pool, "select user_id from account_recoveries order by created_at, id")
        if refusal is None:
            is_right = answer.status == 201 and user_id in {str(row[0]) for row in after}
        else:
            message = str(refusal.__doc__) if isinstance(refusal, type) else ""
            is_right = answer.status in (400, 403, 404) and after == before and message in answer.json["error"]
        if not is_right:
            findings.append(f"{name}: {answer.status} {answer.text}")
        # Recovered users have lost their sessions.
        await run_sql(pool, "delete from account_recoveries")
        await run_sql(pool, "update sessions set ended_at = null")
    assert findings == []


async def test_a_right_that_the_issuer_lacks_refuses(ada: LostUser) -> None:
    acme, manager = ada.acme, {Capability.MEMBERS_MANAGE, *ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW}}
    for slug, rights in (("manager", manager), ("auditor", {Capability.AUDIT_VIEW})):
        body = {"slug": slug, "name": slug.title(), "capabilities": sorted(rights)}
        assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await acme.join("manager", await add_account(acme.ports, "manager@acme.example", None), RoleName("manager"))
    assert (await acme.set_role("owner", "ada", "auditor")).status == 200
    answer = await acme.api.post(ada.path, {"reason": REASON}, token=acme.token("manager"))
    assert (answer.status, answer.json["error"]) == (403, str(RecoversMoreRights.__doc__))
    assert await ada.issue("owner")


async def test_a_recovery_without_its_link_is_refused_and_changes_nothing(
    ada: LostUser, platform: Platform, console: FakeBrowser, pool: Pool, clock: FakeClock
) -> None:
    """The hourly link limit holds for all issuers together. The earlier recovery goes on."""
    acme, in_console = ada.acme, f"/app/organizations/acme/members/{ada.account.id}/recovery"
    by_platform = f"/api/platform/users/{ada.account.id}/recovery"

    async def state() -> list[object]:
        tables = ("account_recoveries", "mails", "mfa_events", "audit_log", "sessions where ended_at is not null")
        return [await run_sql(pool, f"select count(*) from {table}") for table in tables]  # noqa: S608  (names of ours)

    for _ in range(5):
        code = await ada.issue()
        clock.advance(timedelta(minutes=1))
    before = await state()
    routes = {ada.path: acme.token("admin"), by_platform: platform.token}
    for path, token in routes.items():
        answer = await acme.api.post(path, {"reason": REASON}, token=token)
        assert (answer.status, answer.json["error"]) == (429, str(TooManyRecoveries.__doc__)), path
        assert answer.headers["Retry-After"] == "3300", path
    question = await console.open(in_console)
    page = await console.send(in_console, form_token=form_token(question), form_key="1" * 22, reason=REASON)
    assert (page.status, str(TooManyRecoveries.__doc__) in page.text) == (429, True)
    assert await state() == before
    assert leads_to(await ada.open(await ada.link(), code)).startswith("/auth/recover/")
    await run_sql(pool, "update mails set created_at = created_at - interval '55 minutes'")
    assert await ada.issue()


async def test_an_organization_cancels_only_its_own_recoveries(ada: LostUser, platform: Platform) -> None:
    path = f"/api/platform/users/{ada.account.id}/recovery"
    assert (await ada.acme.api.post(path, {"reason": REASON}, token=platform.token)).status == 201
    assert (await ada.acme.api.delete(ada.path, token=ada.acme.token("admin"))).status == 404
    assert (await ada.acme.api.delete(path, token=platform.token)).status == 204
    assert await ada.issue()
    assert (await ada.acme.api.delete(path, token=platform.token)).status == 204


@pytest.fixture
async def console(app: QuartTrio, ada: LostUser, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser in which an acme admin is signed in."""
    await ada.acme.join("grace", await add_account(ports, "grace@acme.example"), ADMIN)
    browser = FakeBrowser(app)
    await browser.sign_in("grace@acme.example", PASSWORD)
    return browser


async def test_an_admin_starts_and_cancels_a_recovery_on_pages(ada: LostUser, console: FakeBrowser) -> None:
    member = f"/app/organizations/acme/members/{ada.account.id}"
    page = await console.open(member)
    assert (f'href="{member}/recovery"' in page.text, "Cancel recovery" in page.text) == (True, False)
    question = await console.open(f"{member}/recovery")
    shown = await console.send(f"{member}/recovery", form_token=form_token(question), form_key="1" * 22, reason=REASON)
    assert shown.status == 200, shown.text
    code = shown.text.partition("<dd><code")[2].partition(">")[2].partition("<")[0]
    again = await console.send(f"{member}/recovery", form_token=form_token(question), form_key="1" * 22, reason=REASON)
    assert code not in again.text, "it is shown once"
    assert "Cancel recovery" in (await console.open(member)).text
    token = await ada.link()
    assert leads_to(await ada.open(token, code)).startswith("/auth/recover/")
    question = await console.open(f"{member}/recovery/cancel")
    assert leads_to(await console.send(f"{member}/recovery/cancel", form_token=form_token(question))).startswith(member)
    assert "Cancel recovery" not in (await console.open(member)).text


async def test_pages_offer_a_recovery_only_where_the_form_takes_it(
    ada: LostUser, console: FakeBrowser, other_tenant: Tenant, pool: Pool, ports: Ports
) -> None:
    acme, user = ada.acme, await add_account(ports, "user@example.com", None)
    await add_service_user(ports, await add_service(pool, acme.org), user.id)
    pages = [f"/app/organizations/acme/members/{ada.account.id}", f"/app/organizations/acme/users/{user.id}"]
    await mark_created_by(pool, acme.org, user.id)

    async def offered() -> list[tuple[bool, bool]]:
        """Return whether the pages offer a recovery, and whether they say why not."""
        texts = [(await console.open(page)).text for page in pages]
        reason = str(RecoveryNotAllowed.__doc__).partition(",")[0]
        return [(f'href="{page}/recovery"' in text, reason in text) for page, text in zip(pages, texts, strict=True)]

    assert await offered() == [(True, False), (True, False)]
    for account in (ada.account, user):
        await other_tenant.join(str(account.id), account)
    assert await offered() == [(False, True), (False, False)]
    refused = await acme.api.post(ada.path, {"reason": REASON}, token=acme.token("admin"))
    assert (refused.status, refused.json["error"]) == (403, RecoveryNotAllowed.__doc__)
