"""SAML attributes from other sources, and how they are written."""

from typing import Any, Final

import pytest
from psycopg.types.json import Jsonb

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import AttributeFormat
from ports import Ports
from tests.support.builders import EMAIL, Answer, add_member, run_sql, sign_in
from tests.support.refusals import BAD, refused
from tests.support.saml import NS, add_application
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

BASIC: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic"
URI: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:uri"
CONFIGURATION: Final = {"enabled": False, "entity_id": "https://shop.example/metadata", "acs_url": "https://shop.example/acs"}


@pytest.fixture
async def member(acme: Tenant, user: Account, pool: Pool) -> Account:
    """A member with an attribute's values and a directory's values."""
    await add_member(pool, acme.org, user.id, "admin", confirmed=True)
    declare = "insert into organization_attributes values (%s, %s, 'A', %s, '{admin}', 'first', 1, now())"
    for name, kind in (("teams", "list"), ("level", "number"), ("active", "boolean")):
        await run_sql(pool, declare, acme.org, name, kind)
    values = Jsonb({"teams": ["Ops", "R&D"], "level": 3, "active": True})
    await run_sql(pool, "insert into attribute_values values (%s, %s, %s, now())", acme.org, user.id, values)
    await run_sql(
        pool,
        "insert into scim_users (org_id, user_id, provisioned, updated_at, attributes) values (%s, %s, false, now(), %s)",
        *(acme.org, user.id, Jsonb({"department": "Research"})),
    )
    await run_sql(pool, "update users set name = 'Ada Lovelace' where id = %s", user.id)
    return user


async def attributes(browser: SamlBrowser, application: Any) -> dict[str, tuple[str, list[str]]]:
    """Return the format and the values for every attribute in a sign-on."""
    await browser.sign_in()
    found = (await browser.sign_on(application)).root.iter(f"{{{NS['saml']}}}Attribute")
    return {str(each.get("Name")): (str(each.get("NameFormat")), [str(value.text) for value in each]) for each in found}


async def test_attributes_have_the_values_of_all_sources(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, member: Account
) -> None:
    mapping = {
        "email": "mail",
        "name": "displayName",
        "roles": "memberOf",
        "groups": "groups",
        "directory:department": "ou",
        "directory:title": "title",
        "attribute:teams": "teams",
        "attribute:level": "level",
        "attribute:active": "active",
        "email_local_part": "user name",
    }
    formats = {"teams": AttributeFormat(separator="; "), "mail": AttributeFormat(name_format=URI)}
    shop = await add_application(ports, pool, acme.org, acme.slug, attribute_mapping=mapping, attribute_formats=formats)
    await add_service_user(ports, shop.id, member.id, signed_in=False)
    assert await attributes(browser, shop) == {
        "mail": (URI, [EMAIL]),
        "displayName": (BASIC, ["Ada Lovelace"]),
        "memberOf": (BASIC, ["admin"]),
        "ou": (BASIC, ["Research"]),
        "teams": (BASIC, ["Ops; R&D"]),
        "level": (BASIC, ["3"]),
        "active": (BASIC, ["true"]),
        "user name": ("urn:oasis:names:tc:SAML:2.0:attrname-format:unspecified", [EMAIL.partition("@")[0]]),
    }, "an attribute without a value is left out"


async def test_several_values_are_elements_of_one_attribute(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, member: Account
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, attribute_mapping={"attribute:teams": "teams"})
    await add_service_user(ports, shop.id, member.id, signed_in=False)
    assert await attributes(browser, shop) == {"teams": (BASIC, ["Ops", "R&D"])}


async def test_too_many_values_are_refused_with_a_sentence(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, member: Account
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, attribute_mapping={"attribute:teams": "teams"})
    await add_service_user(ports, shop.id, member.id, signed_in=False)
    await run_sql(pool, "update attribute_values set attributes = %s", Jsonb({"teams": [f"t{number}" for number in range(501)]}))
    await browser.sign_in()
    page = await browser.open(await browser.start_sign_on(shop))
    assert page.status == 403
    assert "SAMLResponse" not in page.text
    assert "The attribute teams has more than 500 values." in page.text
    token = (await sign_in(ports, member, acme.org)).access_token
    preview = await acme.api.get(f"{acme.path}/services/shop/sign-in-preview", token=token)
    assert (preview.status, preview.json["saml"]["outcome"]) == (200, "refused"), preview.text
    assert "The attribute teams has more than 500 values." in preview.text


async def test_values_that_would_be_split_otherwise_are_refused_with_a_sentence(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, member: Account
) -> None:
    """The sources are names that other people choose: a group, an attribute, a directory, a profile."""
    mapping = {"attribute:teams": "teams", "groups": "memberOf", "directory:department": "ou", "name": "displayName"}
    formats = {name: AttributeFormat(separator=";;") for name in mapping.values()}
    shop = await add_application(ports, pool, acme.org, acme.slug, attribute_mapping=mapping, attribute_formats=formats)
    await add_service_user(ports, shop.id, member.id, signed_in=False)
    groups = GroupAdmin(acme, "owner")
    group = await groups.create("Sales")
    assert (await groups.add(group, member.id)).status == 204
    good: dict[str, list[str]] = {"teams": ["a;b", "c"], "memberOf": ["Sales"], "ou": ["R;D"], "displayName": ["Ada"]}
    for name, values in (
        ("", []),
        *(("teams", wrong) for wrong in (["a;;admins"], ["a;", "b"], [";;"])),
        *((each, ["x;;admins"]) for each in ("memberOf", "ou", "displayName")),
    ):
        now = {**good, **({name: values} if name else {})}
        await run_sql(pool, "update attribute_values set attributes = %s", Jsonb({"teams": now["teams"]}))
        await run_sql(pool, "update groups set name = %s", now["memberOf"][0])
        await run_sql(pool, "update scim_users set attributes = %s", Jsonb({"department": now["ou"][0]}))
        await run_sql(pool, "update users set name = %s where id = %s", now["displayName"][0], member.id)
        if not name:
            found = await attributes(browser, shop)
            assert {each: texts for each, (_, texts) in found.items()} == {each: [";;".join(texts)] for each, texts in good.items()}
            continue
        page = await browser.open(await browser.start_sign_on(shop))
        assert (page.status, "SAMLResponse" in page.text) == (403, False), values
        assert f"With the separator “;;”, the application would read other values of the attribute {name}." in page.text, values


async def configure(acme: Tenant, **fields: Any) -> Answer:
    return await acme.api.post(f"{acme.path}/services/shop/saml", {**CONFIGURATION, **fields}, token=acme.token("owner"))


async def test_the_configuration_is_stored_and_returned(ports: Ports, pool: Pool, acme: Tenant, member: Account) -> None:
    await add_application(ports, pool, acme.org, acme.slug)
    mapping = {"groups": "memberOf", "attribute:teams": "teams"}
    formats = {"memberOf": {"name_format": URI, "separator": None}, "teams": {"name_format": None, "separator": ";"}}
    answer = await configure(acme, attribute_mapping=mapping, attribute_formats=formats)
    assert answer.status == 200, answer.text
    stored = (await acme.api.get(f"{acme.path}/services/shop/saml", token=acme.token("owner"))).json
    assert (stored["attribute_mapping"], stored["attribute_formats"]) == (mapping, formats)
    attribute = f"{acme.path}/attributes/teams"
    assert refused(await acme.api.delete(attribute, token=acme.token("owner"))) == (409, "CONFLICT")
    await configure(acme)
    assert (await acme.api.delete(attribute, token=acme.token("owner"))).status == 204


NOT_URIS: Final = ["", " ", "nope", "urn:", ":a", "urn:a b", "urn:a\n", "urn:%zz", "urn:ä", "//a.example/b", "urn:" + "a" * 253]


@pytest.mark.parametrize(
    "fields",
    [
        {"attribute_mapping": {"attribute:unknown": "x"}},
        {"attribute_mapping": {"directory:password": "x"}},
        {"attribute_mapping": {"password": "x"}},
        {"attribute_mapping": {"groups": "x"}, "attribute_formats": {"y": {}}},
        {"attribute_mapping": {"groups": "x"}, "attribute_formats": {"x": {"separator": ""}}},
        {"attribute_mapping": {"groups": "x"}, "attribute_formats": {"x": {"separator": "\n"}}},
        *({"attribute_mapping": {"groups": "x"}, "attribute_formats": {"x": {"name_format": name_format}}} for name_format in NOT_URIS),
    ],
    ids=str,
)
async def test_a_wrong_mapping_is_refused(ports: Ports, pool: Pool, acme: Tenant, fields: dict[str, Any]) -> None:
    await add_application(ports, pool, acme.org, acme.slug)
    assert refused(await configure(acme, **fields)) == BAD
