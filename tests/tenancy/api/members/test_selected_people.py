"""Actions on several members or invitations that were selected in the list: the page that asks, partial refusals, and limits."""

import re
from collections.abc import Sequence
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN, MEMBER, OWNER
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, add_account, add_member, add_organization, run_sql, sign_in

ORG = "/app/organizations/acme"
MEMBERS, SELECTED = f"{ORG}/members", f"{ORG}/selected-people"
PEOPLE = {"grace": OWNER, "alan": ADMIN, "zoe": MEMBER, "ada": MEMBER}


class Acme:
    """A browser for a member at acme, and the ids of its members by name."""

    def __init__(self, app: QuartTrio, api: Api, people: dict[str, Account], pool: Pool) -> None:
        self._app, self.browser, self.people, self._pool = app, FakeBrowser(app), people, pool
        self.api, self.ids = api, {name: account.id for name, account in people.items()}

    def boxes(self, *names: str) -> dict[str, str]:
        return {f"user:{self.ids[name]}": "yes" for name in names}

    async def ask(self, action: str, boxes: dict[str, str]) -> Answer:
        query = "&".join(f"{name}={value}" for name, value in {**boxes, "action": action}.items())
        return await self.browser.open(f"{SELECTED}?{query}", follows=False)

    async def send(self, action: str, boxes: dict[str, str], **fields: str) -> Answer:
        return await self.browser.submit(f"{SELECTED}/{action}", MEMBERS, **boxes, **fields)

    async def sign_in(self, name: str) -> None:
        self.browser = FakeBrowser(self._app)
        await self.browser.sign_in(f"{name}@example.com", PASSWORD)

    async def roles(self) -> dict[str, str]:
        rows = await run_sql(
            self._pool,
            "select split_part(email, '@', 1), role from memberships m join organizations o on o.id = org_id where o.slug = 'acme'",
        )
        return dict(rows)

    async def actions(self) -> Sequence[tuple[str, str]]:
        return await run_sql(self._pool, "select action, target_id from audit_log order by created_at, target_id")


@pytest.fixture
async def acme(app: QuartTrio, api: Api, ports: Ports, pool: Pool) -> Acme:
    org, people = await add_organization(pool, "acme"), {}
    for name, role in PEOPLE.items():
        user = await add_account(ports, f"{name}@example.com", PASSWORD)
        await add_member(pool, org, user.id, role, confirmed=name != "ada")
        people[name] = user
    return Acme(app, api, people, pool)


async def test_the_question_names_each_selected_person(acme: Acme) -> None:
    await acme.sign_in("grace")
    listed = main_of(await acme.browser.open(MEMBERS))
    assert listed.count('type="checkbox"') == 4
    page = main_of(await acme.ask("remove", {**acme.boxes("zoe", "ada"), f"user:{uuid4()}": "yes", "user:x": "yes"}))
    assert "Remove <bdi>2 members</bdi>" in page
    assert page.index("ada@example.com") < page.index("zoe@example.com")
    assert "alan@" not in page
    assert len(await acme.roles()) == 4, "nothing is changed before the form is sent"


async def test_selected_members_are_removed_after_their_number_was_typed(acme: Acme) -> None:
    await acme.sign_in("alan")
    wrong = await acme.send("remove", acme.boxes("zoe", "ada"), confirmation="3 members")
    assert (wrong.status, "Type the text exactly as it is shown to confirm." in wrong.text) == (400, True)
    assert leads_to(await acme.send("remove", acme.boxes("zoe", "ada"), confirmation="2 members")) == MEMBERS
    assert "Members removed: 2." in (await acme.browser.open(MEMBERS)).text
    assert await acme.roles() == {"grace": "owner", "alan": "admin"}
    removed = [target for action, target in await acme.actions() if action == "user.removed"]
    assert sorted(removed) == sorted(str(acme.ids[name]) for name in ("zoe", "ada")), "one entry for each"


async def test_a_refusal_of_one_does_not_prevent_the_others(acme: Acme) -> None:
    await acme.sign_in("alan")
    page = main_of(await acme.send("remove", acme.boxes("alan", "grace", "zoe"), confirmation="3 members"))
    assert "Remove: 1 of 3 done" in page
    results = dict(re.findall(r'<th scope="row">(\w+)@example.com</th><td>(.*?)</td>', page))
    assert "You cannot remove yourself." in results["alan"]
    assert "The owner cannot be removed." in results["grace"]
    assert "Done" in results["zoe"]
    assert await acme.roles() == {"grace": "owner", "alan": "admin", "ada": "member"}


async def test_only_owners_change_the_role_of_several_members(acme: Acme) -> None:
    await acme.sign_in("alan")
    assert 'value="role"' not in (await acme.browser.open(MEMBERS)).text
    assert (await acme.ask("role", acme.boxes("zoe"))).status == 403
    assert (await acme.send("role", acme.boxes("zoe"), role="admin")).status == 403
    await acme.sign_in("grace")
    assert (await acme.send("role", acme.boxes("zoe"), role="owner")).status == 400
    assert leads_to(await acme.send("role", acme.boxes("zoe", "ada"), role="admin")) == MEMBERS
    assert await acme.roles() == dict.fromkeys(("alan", "zoe", "ada"), "admin") | {"grace": "owner"}


async def test_reset_links_go_to_those_who_can_get_one(acme: Acme, pool: Pool) -> None:
    await acme.sign_in("alan")
    page = main_of(await acme.send("password-reset", acme.boxes("zoe", "ada")))
    assert "Send reset link: 1 of 2 done" in page
    assert "This user has not used the organization yet." in page
    assert await run_sql(pool, "select address from mails where kind = 'member_reset'") == [("zoe@example.com",)]
    assert leads_to(await acme.send("end-sessions", acme.boxes("zoe"))) == MEMBERS


async def test_selected_invitations_are_sent_again_and_canceled(acme: Acme, pool: Pool) -> None:
    await acme.sign_in("alan")
    await acme.browser.submit(f"{ORG}/invitations/new", MEMBERS, addresses="new@example.com, other@example.com", role="member")
    boxes = dict.fromkeys(re.findall(r'name="(invitation:[^"]+)"', (await acme.browser.open(MEMBERS)).text), "yes")
    assert len(boxes) == 2
    page = main_of(await acme.ask("resend", {**boxes, **acme.boxes("zoe")}))
    assert ("Send again <bdi>2 invitations</bdi>" in page, "zoe@" in page) == (True, False)
    assert leads_to(await acme.send("resend", boxes)) == MEMBERS
    pending = await run_sql(pool, "select 'invitation:' || id from invitations where status = 'pending'")
    assert len(pending) == 2
    assert not {name for (name,) in pending} & boxes.keys(), "the earlier ones are canceled"
    assert leads_to(await acme.send("cancel", dict.fromkeys((name for (name,) in pending), "yes"))) == MEMBERS
    assert await run_sql(pool, "select 1 from invitations where status = 'pending'") == []


async def test_an_empty_or_too_large_selection_is_refused(acme: Acme) -> None:
    await acme.sign_in("grace")
    for boxes in ({}, {f"user:{uuid4()}": "yes"}, {f"invitation:{uuid4()}": "yes"}):
        assert leads_to(await acme.ask("remove", boxes)) == MEMBERS
        assert "Select at least one person" in (await acme.browser.open(MEMBERS)).text
        assert (await acme.send("remove", boxes, confirmation="0 members")).status == 400
    many = {f"user:{uuid4()}": "yes" for _ in range(51)}
    assert leads_to(await acme.ask("remove", many)) == MEMBERS
    assert "Select at most 50 people at once." in (await acme.browser.open(MEMBERS)).text
    assert (await acme.send("end-sessions", many)).status == 400
    assert leads_to(await acme.ask("anything", acme.boxes("zoe"))) == MEMBERS


async def test_a_full_page_of_members_and_invitations_can_be_selected_at_once(acme: Acme) -> None:
    await acme.sign_in("grace")
    members = {**{f"user:{uuid4()}": "yes" for _ in range(49)}, **acme.boxes("zoe")}
    page = main_of(await acme.ask("end-sessions", {**members, **{f"invitation:{uuid4()}": "yes" for _ in range(10)}}))
    assert "zoe@example.com" in page, "an action counts only those that it can change"


async def test_members_of_other_organizations_cannot_be_selected(acme: Acme, ports: Ports, pool: Pool) -> None:
    other = await add_organization(pool, "twin")
    user = await add_account(ports, "eve@example.com", PASSWORD)
    await add_member(pool, other, user.id, MEMBER, confirmed=True)
    await acme.sign_in("grace")
    assert leads_to(await acme.ask("remove", {f"user:{user.id}": "yes"})) == MEMBERS
    page = main_of(await acme.ask("remove", {f"user:{user.id}": "yes", **acme.boxes("zoe")}))
    assert ("1 member<" in page, "eve@" in page) == (True, False)


async def test_calls_of_the_api_are_shown_for_organizations_and_not_for_the_own_account(acme: Acme) -> None:
    await acme.sign_in("grace")
    assert "Show as curl" in (await acme.browser.open(MEMBERS)).text
    for path in ("/app/account", "/app/account/profile", "/app/account/organizations"):
        assert "Show as curl" not in (await acme.browser.open(path)).text


async def test_the_page_of_a_member_says_who_invited_them_and_when(acme: Acme, ports: Ports, pool: Pool) -> None:
    await acme.sign_in("alan")
    await acme.browser.submit(f"{ORG}/invitations/new", MEMBERS, addresses="new@example.com", role="member")
    listed = main_of(await acme.browser.open(MEMBERS))
    assert re.search(r"new@example.com<span class=\"quiet below\">by alan@example.com, <time", listed)
    user = await add_account(ports, "new@example.com", PASSWORD)
    [(invitation,)] = await run_sql(pool, "select id from invitations")
    api_token = (await sign_in(ports, acme.people["alan"])).access_token
    accepted = await acme.api.post(f"/api/organizations/acme/invitations/{invitation}/accept", token=api_token)
    assert accepted.status == 200
    page = main_of(await acme.browser.open(f"{MEMBERS}/{user.id}"))
    assert re.search(r"<dt>Invited by</dt><dd>alan@example.com, <time", page)
    member = (await acme.api.get(f"/api/organizations/acme/members/{user.id}", token=api_token)).json
    assert (member["invited_by"]["email"], member["invited_at"] is None) == ("alan@example.com", False)
    other = (await acme.api.get(f"/api/organizations/acme/members/{acme.ids['zoe']}", token=api_token)).json
    assert (other["invited_by"], other["invited_at"]) == (None, None)
    await run_sql(pool, "update users set email = 'moved@example.com' where id = %s", user.id)
    await run_sql(pool, "update memberships set email = 'moved@example.com' where user_id = %s", user.id)
    assert (await acme.api.get(f"/api/organizations/acme/members/{user.id}", token=api_token)).json["invited_by"] is None
    await run_sql(
        pool,
        "insert into email_changes (id, user_id, session_id, old_email, new_email, requested_at, expires_at) "
        "values (gen_random_uuid(), %s, gen_random_uuid(), 'new@example.com', 'moved@example.com', now(), now())",
        user.id,
    )
    member = (await acme.api.get(f"/api/organizations/acme/members/{user.id}", token=api_token)).json
    assert member["invited_by"]["email"] == "alan@example.com", "they were invited under an earlier address"
