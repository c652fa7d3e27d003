"""The pages for claims, attributes and additional SAML attributes."""

import json
from html import unescape
from typing import Any, Final

import pytest

from adapters.postgres.engine.pool import Pool
from core.authentication.model.claim_document import ClaimDocument
from entrypoints.http.pages.applications.claims import PRESETS, to_document, to_typed
from tests.accounts.api.account_pages.paths import page_text
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import run_sql
from tests.support.tenants import Tenant

ORG: Final = "/app/organizations/acme"
CLAIMS: Final = f"{ORG}/applications/shop/claims"


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


@pytest.fixture
async def owner(relying_party: RelyingParty, acme: Tenant) -> FakeBrowser:
    await sign_in_browser(relying_party, acme.people["owner"], provider="password")
    return relying_party.browser


async def stored(pool: Pool) -> dict[str, Any]:
    [(document,)] = await run_sql(pool, "select document from service_claims")
    found: dict[str, Any] = document
    return found


async def test_the_form_saves_a_document_and_shows_it_again(owner: FakeBrowser, pool: Pool) -> None:
    form = {
        "preferred_username": "preferred_username, email_local_part",
        "which": "assigned",
        "value": "id",
        "prefix_groups": "oidc:",
        "access:groups": "yes",
        "access_claims": "tenant",
        "names": "groups = cognito:groups",
        "fixed": 'tenant = acme\nlevel = 3\nbeta = true\nareas = ["eu"]',
        "values": "department = directory:department, name (org)\nhttps://a.example/?x=y = email (email)",
        "version": "0",
    }
    assert leads_to(await owner.submit(CLAIMS, CLAIMS, **form)) == CLAIMS
    document = await stored(pool)
    assert document == {
        "names": {"groups": "cognito:groups"},
        "prefix": {"groups": "oidc:"},
        "fixed": {"tenant": "acme", "level": 3, "beta": True, "areas": ["eu"]},
        "values": {
            "department": {"sources": ["directory:department", "name"], "scope": "org"},
            "https://a.example/?x=y": {"sources": ["email"], "scope": "email"},
            "preferred_username": {"sources": ["preferred_username", "email_local_part"], "scope": "profile"},
        },
        "groups": {"which": "assigned", "value": "id"},
        "access_token": ["groups", "tenant"],
    }
    page = await owner.open(CLAIMS)
    assert "Claims saved." in page_text(page)
    for text in ("groups = cognito:groups", "department = directory:department, name (org)", "level = 3"):
        assert text in page.text.replace("&#39;", "'"), text
    assert "no longer valid" not in page.text
    await run_sql(pool, """update service_claims set document = document || '{"names": {"groups": "sub"}}'""")
    assert "A part of the saved claims is no longer valid" in page_text(await owner.open(CLAIMS))
    assert leads_to(await owner.submit(f"{CLAIMS}/remove", CLAIMS)) == CLAIMS
    assert await run_sql(pool, "select count(*) from service_claims") == [(0,)]


async def test_a_change_is_previewed_with_the_claims_before_and_after(owner: FakeBrowser, pool: Pool) -> None:
    page = await owner.submit(f"{CLAIMS}/preview", CLAIMS, fixed="tenant = acme", names="email = mail", version="0")
    text = page_text(page)
    assert "Nothing is saved yet." in text
    assert 'tenant none "acme"' in " ".join(text.split())
    assert "tenant = acme" in page.text, "the form keeps the typed values"
    assert "No claim about you changes." in text, "of access tokens"
    assert await run_sql(pool, "select count(*) from service_claims") == [(0,)]


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("fixed", "sub = x", "is a claim of the protocol"),
        ("fixed", "tenant", "Write each line as a name"),
        ("fixed", "a = 1\na = 2", "has two lines"),
        ("fixed", f"a = {'y' * 1100}", "Together, they may have 1024 bytes"),
        ("names", "groups = ", "Write each line as a name"),
        ("names", "phone = x", "is no claim of Gatehouse"),
        ("values", "x = unknown", "is unknown"),
        ("values", "x = name (openid)", "The scope of"),
        ("prefix_groups", "p" * 51, "A prefix must have"),
        ("access_claims", "email", "cannot be chosen"),
        ("values", "x = attribute:unknown", "has no attribute 'unknown'"),
    ],
)
async def test_a_wrong_line_is_marked(owner: FakeBrowser, field: str, text: str, reason: str) -> None:
    for path in (CLAIMS, f"{CLAIMS}/preview"):
        page = await owner.submit(path, CLAIMS, version="0", **{field: text})
        assert page.status == 400
        assert reason in page_text(page)
        assert f'id="{field}-error"' in page.text


async def test_a_form_of_an_older_version_is_refused(owner: FakeBrowser, pool: Pool) -> None:
    await owner.submit(CLAIMS, CLAIMS, fixed="tenant = a", version="0")
    page = await owner.submit(CLAIMS, CLAIMS, fixed="tenant = b", version="0")
    assert page.status == 409
    assert (await stored(pool))["fixed"] == {"tenant": "a"}


async def test_each_preset_replaces_other_names_and_identifies_no_user_by_a_name_that_users_choose(owner: FakeBrowser, pool: Pool) -> None:
    saved = {
        "names": "groups = renamed\nroles = r",
        "prefix_groups": "g-",
        "prefix_roles": "r-",
        "values": "preferred_username = email_local_part\nx = email",
    }
    saved |= {"preferred_username": "other", "version": "0"}
    assert leads_to(await owner.submit(CLAIMS, CLAIMS, **saved)) == CLAIMS
    typed = to_typed(ClaimDocument.read(await stored(pool)), 1)
    for preset in PRESETS:
        page = await owner.open(f"{CLAIMS}?preset={preset.name}")
        assert f"The form below is filled in for {preset.label}." in page_text(page)
        form, _, _ = page.text.partition('<details class="curl"')
        assert ("roles = r" in form, "renamed" in form) == (True, False)
        document = to_document(preset.fill_in(typed))
        ClaimDocument.parse(document)
        assert (document["names"], document["prefix"]) == ({"roles": "r"}, {"roles": "r-"}), preset.name
        assert set(document["values"]) == {"x", "preferred_username"}, preset.name
        if "preferred_username" in preset.settings:
            assert document["values"]["preferred_username"]["sources"] == ["email"], "no other user has it"
    assert "The form below is filled in" not in page_text(await owner.open(f"{CLAIMS}?preset=unknown"))


def test_a_document_survives_the_form() -> None:
    document = ClaimDocument.parse(
        {
            "names": {"groups": "g"},
            "prefix": {"roles": "r: "},
            "fixed": {"a": "x = y", "b": ["c"], "d": False, "e1": "42", "e2": "true", "e3": '["c"]', "e4": " x ", "e5": '"x"', "e6": 42},
            "values": {"preferred_username": {"sources": ["attribute:login"]}, "e": {"sources": ["name"], "scope": "org"}},
            "groups": {"which": "assigned", "value": "external_id"},
            "access_token": ["roles", "a"],
        }
    )
    typed = to_typed(document, 3)
    assert json.loads(json.dumps(ClaimDocument.parse(to_document(typed)).document)) == document.document


async def test_members_without_the_right_see_the_claims_only(acme: Tenant, relying_party: RelyingParty) -> None:
    await sign_in_browser(relying_party, acme.people["member"])
    page = await relying_party.browser.open(CLAIMS)
    assert page.status == 200
    assert "Save claims" not in page.text
    assert "The standard ones" in page.text
    changes = {"groups": {"which": "assigned"}, "prefix": {"groups": "oidc:"}, "access_token": ["groups"]}
    saved = await acme.api.call("PUT", f"{acme.path}/services/shop/claims", {**changes, "version": 0}, token=acme.token("owner"))
    assert saved.status == 200, saved.text
    text = page_text(await relying_party.browser.open(CLAIMS))
    for part in ("Groups Only groups that it is assigned to", "Access tokens contain groups", "Before each group oidc:"):
        assert part in " ".join(text.split()), part
    assert "The standard ones" not in text


# Attributes


async def test_attributes_are_declared_changed_and_deleted_on_pages(owner: FakeBrowser, acme: Tenant, pool: Pool) -> None:
    path = f"{ORG}/attributes"
    form = {"label": "Cost center", "name": "cost_center", "kind": "number", "merge": "first", "writer:admin": "yes", "writer:user": "yes"}
    assert leads_to(await owner.submit(path, path, **form)) == path
    page = await owner.submit(path, path, **form)
    assert (page.status, "already has an attribute with this name" in page_text(page)) == (409, True)
    one = f"{path}/cost_center"
    assert leads_to(await owner.submit(one, one, label="Center", position="4", merge="greatest")) == one
    rows = await run_sql(pool, "select label, writers, merge, position from organization_attributes")
    assert rows == [("Center", [], "greatest", 4)]
    assert (await owner.submit(f"{one}/delete", one, confirmation="wrong")).status == 400
    assert leads_to(await owner.submit(f"{one}/delete", one, confirmation="cost_center")) == path
    assert await run_sql(pool, "select count(*) from organization_attributes") == [(0,)]


async def test_values_are_written_on_the_pages_of_members_and_of_the_own_account(owner: FakeBrowser, acme: Tenant, pool: Pool) -> None:
    insert = "insert into organization_attributes values (%s, %s, %s, %s, %s, 'first', %s, now())"
    declared = {"text": "text", "number": "number", "flag": "boolean", "day": "date", "teams": "list"}
    for position, (name, kind) in enumerate(declared.items()):
        await run_sql(pool, insert, acme.org, name, name.title(), kind, ["admin", "user"], position)
    await run_sql(pool, insert, acme.org, "fixed", "Fixed", "text", [], 9)
    path = f"{ORG}/members/{acme.people['member'].id}/attributes"
    form = {"text": "a", "number": "1.5", "flag": "false", "day": "2026-12-31", "teams": "Ops\n\nR&D", "fixed": "ignored"}
    assert leads_to(await owner.submit(path, path, **{f"attribute:{name}": text for name, text in form.items()})) == path
    values = "select attributes from attribute_values where user_id = %s"
    expected = {"text": "a", "number": 1.5, "flag": False, "day": "2026-12-31", "teams": ["Ops", "R&D"]}
    assert await run_sql(pool, values, acme.people["member"].id) == [(expected,)]
    page = await owner.submit(path, path, **{"attribute:number": "many"})
    assert (page.status, "Write a number." in page_text(page), 'value="many"' in page.text) == (400, True, True)
    assert leads_to(await owner.submit(path, path, **{"attribute:text": "", "attribute:flag": ""})) == path
    remaining = {name: value for name, value in expected.items() if name not in ("text", "flag")}
    assert await run_sql(pool, values, acme.people["member"].id) == [(remaining,)]
    written = {"teams": [], "text": " a "}
    patched = await acme.api.patch(
        f"{acme.path}/members/{acme.people['member'].id}/attributes", {"values": written}, token=acme.token("owner")
    )
    assert patched.status == 200, patched.text
    shown = {"attribute:text": " a ", "attribute:teams": "", "attribute:number": "1.5"}
    assert leads_to(await owner.submit(path, path, **shown)) == path
    assert await run_sql(pool, values, acme.people["member"].id) == [({**remaining, **written},)], "a form that is saved unchanged"
    assert "The own list is empty, so groups add nothing." in page_text(await owner.open(path))
    own = "/app/account/attributes"
    assert leads_to(await owner.submit(own, own, **{"organization": "acme", "attribute:number": "7"})) == own
    assert await run_sql(pool, values, acme.people["owner"].id) == [({"number": 7},)]
    page = await owner.submit(own, own, **{"organization": "acme", "attribute:day": "tomorrow"})
    assert (page.status, "Write a date as in 2026-12-31." in page_text(page)) == (400, True)
    assert (await owner.submit(own, own, organization="unknown")).status == 404


# SAML


async def test_further_saml_attributes_are_lines_of_the_form(owner: FakeBrowser, acme: Tenant) -> None:
    path = f"{ORG}/applications/shop/saml"
    form = {"entity_id": "https://a.example", "acs_url": "https://a.example/acs", "name_id_format": "persistent", "sign_assertions": "yes"}
    for separator, written in ((";", ";"), ("; ", '"; "'), (" ", '" "'), ('"', '"')):
        further = f"memberOf = groups joined by {written}\nou = directory:department"
        assert leads_to(await owner.submit(path, path, **form, email_attribute="mail", further_attributes=further)) == path
        saml = (await acme.api.get(f"{acme.path}/services/shop/saml", token=acme.token("owner"))).json
        assert saml["attribute_mapping"] == {"email": "mail", "groups": "memberOf", "directory:department": "ou"}
        assert saml["attribute_formats"] == {"memberOf": {"name_format": None, "separator": separator}}
        assert f"memberOf = groups joined by {written}" in unescape((await owner.open(path)).text)
    for text, reason in (("x", "Write each line"), ("x = unknown", "unknown source"), ("x = name\ny = name", "Name each source only once")):
        page = await owner.submit(path, path, **form, further_attributes=text)
        assert (page.status, reason in page_text(page), 'id="further_attributes-error"' in page.text) == (400, True, True), text
