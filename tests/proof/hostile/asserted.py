"""The people that A's hostile provider asserts, with their results.

An attack prepares its victim, yields, attacks, and yields its outcome.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from tests.proof.hostile.world import DOMAIN, World
from tests.support.browser import FLOW, form_token, hidden_fields, leads_to, step_of
from tests.support.builders import PASSWORD, Answer, add_member, run_sql
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import add_passkeys

QUESTION, REFUSED, SESSION, PAGE, LINKED = "asks to link", "refused", "a session in A", "a page", "linked"
Attack = Callable[[World], AsyncIterator[str]]
PEOPLE: Final[dict[str, tuple[Attack, str]]] = {}


def outcome(answer: Answer) -> str:
    """Return what an answer means for the person that the provider asserted."""
    if answer.status == 200:
        return PAGE
    if answer.status != 303:
        return REFUSED if 400 <= answer.status < 500 else f"status {answer.status}"
    target = leads_to(answer)
    return QUESTION if FLOW.fullmatch(target) and target.endswith("/link") else SESSION if target.startswith("/app") else target


def adds_to(table: dict[str, tuple[Attack, str]]) -> Callable[[str], Callable[[Attack], Attack]]:
    """Return a decorator that puts an attack with the expected outcome into this table."""

    def expecting(expected: str) -> Callable[[Attack], Attack]:
        def decorate(attack: Attack) -> Attack:
            table[attack.__name__] = (attack, expected)
            return attack

        return decorate

    return expecting


gets = adds_to(PEOPLE)


@gets(QUESTION)
async def member_of_both_with_a_password(world: World) -> AsyncIterator[str]:
    await world.add("both@a.example", world.a, world.b)
    yield ""
    yield outcome(await world.arrive("m1", email="both@a.example"))


@gets(QUESTION)
async def controlled_member_of_both(world: World) -> AsyncIterator[str]:
    account = await world.add_controlled("scim@a.example")
    await add_member(world.pool, world.b.org, account.id, confirmed=True)
    yield ""
    yield outcome(await world.arrive("m2", email="scim@a.example"))


@gets(QUESTION)
async def admin_of_b(world: World) -> AsyncIterator[str]:
    await world.add("admin@a.example", world.b, role="admin")
    yield ""
    yield outcome(await world.arrive("m3", email="admin@a.example"))


@gets(QUESTION)
async def platform_owner(world: World) -> AsyncIterator[str]:
    await world.add("steward@a.example", is_platform_owner=True)
    yield ""
    yield outcome(await world.arrive("m4", email="steward@a.example"))


@gets(QUESTION)
async def account_with_totp(world: World) -> AsyncIterator[str]:
    await add_mfa(world.ports, await world.add("totp@a.example"))
    yield ""
    yield outcome(await world.arrive("m5", email="totp@a.example", amr=["mfa"]))


@gets(QUESTION)
async def account_with_a_passkey(world: World) -> AsyncIterator[str]:
    await add_passkeys(world.pool, (await world.add("key@a.example")).id, "id.example.com")
    yield ""
    yield outcome(await world.arrive("m6", email="key@a.example"))


@gets(QUESTION)
async def unverified_account(world: World) -> AsyncIterator[str]:
    await world.add("new@a.example", email_verified_at=None, first_verified_at=None)
    yield ""
    yield outcome(await world.arrive("m7", email="new@a.example"))


@gets(QUESTION)
async def unverified_account_of_a_with_email_verified_as_text(world: World) -> AsyncIterator[str]:
    await world.add_controlled("text@a.example", email_verified_at=None, first_verified_at=None)
    yield ""
    yield outcome(await world.arrive("m8", email="text@a.example", email_verified="true"))


@gets(REFUSED)
async def deactivated_account(world: World) -> AsyncIterator[str]:
    account = await world.add("off@a.example", world.b)
    await world.link(account, "m9")
    await world.set("update users set deactivated_at = now(), platform_deactivated_at = now() where id = %s", account.id)
    yield ""
    yield outcome(await world.arrive("m9", email="off@a.example"))


@gets(REFUSED)
async def deactivated_account_by_its_address(world: World) -> AsyncIterator[str]:
    account = await world.add_controlled("off2@a.example")
    await world.set("update users set deactivated_at = now(), platform_deactivated_at = now() where id = %s", account.id)
    yield ""
    yield outcome(await world.arrive("m10", email="off2@a.example"))


@gets(REFUSED)
async def anonymized_account(world: World) -> AsyncIterator[str]:
    account = await world.add("gone@a.example", world.b)
    await world.link(account, "m11")
    await world.set("update users set deactivated_at = now(), anonymized_at = now() where id = %s", account.id)
    yield ""
    yield outcome(await world.arrive("m11", email="gone@a.example"))


@gets(REFUSED)
async def user_blocked_by_the_directory_of_a(world: World) -> AsyncIterator[str]:
    account = await world.add("blocked@a.example", world.b)
    await world.set("insert into directory_blocks (org_id, user_id, since) values (%s, %s, now())", world.a.org, account.id)
    yield ""
    yield outcome(await world.arrive("m12", email="blocked@a.example"))


@gets(REFUSED)
async def address_at_the_domain_of_b(world: World) -> AsyncIterator[str]:
    await world.add("ada@b.example", world.b, world.a)
    yield ""
    yield outcome(await world.arrive("m13", email="ada@b.example"))


@gets(REFUSED)
async def address_at_a_subdomain_that_b_proved(world: World) -> AsyncIterator[str]:
    await world.add("ada@eu.a.example", world.b)
    yield ""
    yield outcome(await world.arrive("m14", email="ada@x.eu.a.example"))
    yield outcome(await world.arrive("m14", email="ada@eu.a.example"))


@gets(REFUSED)
async def address_at_no_proved_domain(world: World) -> AsyncIterator[str]:
    await world.add("ada@free.example", world.a)
    yield ""
    for email in ("ada@free.example", "ada@example", "ada@nota.example", "ada@a.example.evil.example", "a.example", ""):
        yield outcome(await world.arrive("m15", email=email))


@gets(REFUSED)
async def address_at_a_domain_that_a_lost(world: World) -> AsyncIterator[str]:
    await world.add("ada@lost.example", world.a)
    await world.set(DOMAIN, world.a.org, "lost.example")
    await world.set("update domains set verified_at = null where domain = 'lost.example'")
    yield ""
    yield outcome(await world.arrive("m16", email="ada@lost.example"))


@gets(REFUSED)
async def known_subject_of_b(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("known@b.example", world.b), "m17", world.of_b)
    yield ""
    yield outcome(await world.arrive("m17", email="known@b.example"))
    yield outcome(await world.arrive("m17", email=None))


@gets(SESSION)
async def another_person_with_a_subject_of_b(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("known2@b.example", world.b), "m18", world.of_b)
    yield ""
    yield outcome(await world.arrive("m18", email="unrelated@a.example"))


@gets(QUESTION)
async def another_form_of_an_address(world: World) -> AsyncIterator[str]:
    await world.add("form@a.example", world.b)
    yield ""
    yield outcome(await world.arrive("m19", email="FORM@A.Example"))


@gets(REFUSED)
async def unicode_forms_of_an_address(world: World) -> AsyncIterator[str]:
    await world.add("uni@b.example", world.b)
    yield ""
    for email in ("uni@\uff42.example", "uni@b\u3002example", "\uff55ni@b.example", "uni@b.example\u200b", "uni@b.example,x@a.example"):
        yield outcome(await world.arrive("m20", email=email))


@gets(QUESTION)
async def account_older_than_the_proof_of_its_domain(world: World) -> AsyncIterator[str]:
    await world.add("old@later.example", world.b)
    await world.set(
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'later.example', 'x', now(), now())",
        world.a.org,
    )
    yield ""
    yield outcome(await world.arrive("m21", email="old@later.example"))


@gets(SESSION)
async def linked_user_with_other_data(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("linked@a.example", world.a, world.b), "m22")
    await world.add("victim@a.example", world.b)
    yield ""
    others: dict[str, Any] = {"name": "Eve", "picture": "https://evil.example/", "groups": ["admins", "owner"], "amr": ["mfa", "hwk"]}
    yield outcome(await world.arrive("m22", email="victim@a.example", **others))


@gets(SESSION)
async def linked_user_whose_address_left_a(world: World) -> AsyncIterator[str]:
    """The link still opens A. A new subject with the old address is another person."""
    await world.link(await world.add("private@free.example", world.a, world.b), "m23")
    yield ""
    yield outcome(await world.arrive("m23", email="before@a.example"))
    yield outcome(await world.arrive("m23b", email="before@a.example"))


@gets(REFUSED)
async def platform_owner_since_the_link(world: World) -> AsyncIterator[str]:
    account = await world.add("promoted@a.example", world.a)
    await world.link(account, "m24")
    await world.set("update users set is_platform_owner = true where id = %s", account.id)
    yield ""
    yield outcome(await world.arrive("m24", email="promoted@a.example"))


@gets(SESSION)
async def times_of_another_age(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("times@a.example", world.a, world.b), "m25")
    yield ""
    now = world.ports.clock.now().timestamp()
    for time in (0, -60_000_000_000, now - 1, now + 1e11, 1e300, "never", [1]):
        yield outcome(await world.arrive("m25", email="times@a.example", auth_time=time, session_expiry=now + 60))
    yield outcome(await world.arrive("m25", email="times@a.example", session_expiry=now + 1e11))


@gets(REFUSED)
async def session_that_has_ended_at_the_provider(world: World) -> AsyncIterator[str]:
    yield ""
    now = world.ports.clock.now().timestamp()
    for time in (0, -60_000_000_000, now - 1, now, 1e300, "never", [1]):
        yield outcome(await world.arrive("m25b", email="ended@a.example", session_expiry=time))
    yield REFUSED if not await run_sql(world.pool, "select 1 from users where email = 'ended@a.example'") else "an account"


# The question, and ways around it


@gets(SESSION)
async def sign_in_without_an_answer_to_the_question(world: World) -> AsyncIterator[str]:
    """The user goes back from the question to the flow's sign-in page."""
    account, browser = await world.add("back@a.example", password=PASSWORD), world.browser()
    question = await browser.open(leads_to(await world.arrive("m26", browser, email="back@a.example")))
    page = await browser.open(step_of(question, "sign-in"))
    signed_in = await browser.fill(page, email="back@a.example", password=PASSWORD)
    linked = await run_sql(world.pool, "select 1 from connection_identities where user_id = %s", account.id)
    await world.set("delete from sessions where user_id = %s", account.id)
    yield ""
    yield LINKED if linked else outcome(signed_in)


@gets(QUESTION)
async def answer_to_the_question_about_another_person(world: World) -> AsyncIterator[str]:
    """The flow asks about another person since the page was shown."""
    for email in ("first@a.example", "second@a.example"):
        await world.add(email, world.b)
    browser = world.browser()
    yield ""
    question = await browser.open(leads_to(await world.arrive("m27", browser, email="first@a.example")))
    flow = step_of(question, "").rstrip("/").rpartition("/")[2]
    await world.arrive("m27b", browser, query={"flow": flow}, email="second@a.example")
    answer = await browser.send(
        step_of(question, "link"), form_token=form_token(question), answer="continue", question=hidden_fields(question)["question"]
    )
    yield outcome(answer)


@gets(SESSION)
async def link_by_a_sign_in_at_the_connection_of_b(world: World) -> AsyncIterator[str]:
    """B's provider signs in the user who must sign in with their own way."""
    account, browser = await world.add("third@a.example", world.b), world.browser()
    await world.link(account, "of-b", world.of_b)
    question = await browser.open(leads_to(await world.arrive("m28", browser, email="third@a.example")))
    flow = step_of(question, "").rstrip("/").rpartition("/")[2]
    await browser.answer(question, "continue")
    answer = await world.arrive("of-b", browser, at=world.of_b, query={"flow": flow})
    sql = "select 1 from connection_identities where user_id = %s and connection_id = %s"
    linked = await run_sql(world.pool, sql, account.id, world.of_a.id)
    await world.set("delete from sessions where user_id = %s", account.id)
    yield ""
    yield LINKED if linked else outcome(answer)


# Provider requests


@gets(REFUSED)
async def answer_at_the_callback_of_another_connection(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("mix@b.example", world.b), "m29", world.of_b)
    browser = world.browser()
    yield ""
    for begun, back in ((world.of_a, world.of_b), (world.of_b, world.of_a)):
        yield outcome(await world.come_back(browser, world.authorize(await world.leave(browser, begun), "m29"), back))


@gets(REFUSED)
async def code_of_a_in_a_request_to_b(world: World) -> AsyncIterator[str]:
    """The two provider requests go to the same provider, as the same client."""
    await world.link(await world.add("inject@b.example", world.b), "m30", world.of_b)
    browser = world.browser()
    yield ""
    of_a = world.authorize(await world.leave(browser, world.of_a), "m30")
    of_b = world.authorize(await world.leave(browser, world.of_b), "m30")
    yield outcome(await world.come_back(browser, {**of_b, "code": of_a["code"]}, world.of_b))


@gets(REFUSED)
async def state_of_another_browser(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("fixed@a.example", world.a), "m31")
    begun, victim = world.browser(), world.browser()
    yield ""
    returned = world.authorize(await world.leave(begun), "m31")
    await victim.open("/app/sign-in")
    yield outcome(await world.come_back(victim, returned))


@gets(REFUSED)
async def flow_of_an_application_of_b(world: World) -> AsyncIterator[str]:
    yield ""
    for service in ("shop", "none"):
        yield outcome(await world.leave(world.browser(), org=world.b.slug, service=service))


@gets(SESSION)
async def open_redirects(world: World) -> AsyncIterator[str]:
    await world.link(await world.add("next@a.example", world.a), "m33")
    yield ""
    for path in (
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "\t//evil.example",
    ):
        yield outcome(await world.arrive("m33", query={"next": path}))
