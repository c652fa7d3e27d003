"""An organization's branding: who reads and changes it, and the valid values."""

from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, Answer, add_account, add_member, run_concurrently, run_during, run_sql
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE

SECOND = timedelta(seconds=1)
NO_DESIGN = {"logo_url": None, "primary_color": None, "product_name": None}
DESIGN = {"logo_url": "https://cdn.acme.example/logo.svg?v=2", "primary_color": "#0b5d66", "product_name": "Acme Portal"}


async def get_branding(acme: Tenant, by: str = "member") -> Answer:
    return await acme.api.get(f"{acme.path}/branding", token=acme.token(by))


async def patch_branding(acme: Tenant, body: Any, by: str = "owner") -> Answer:
    return await acme.api.patch(f"{acme.path}/branding", body, token=acme.token(by))


async def test_an_organization_has_no_branding_at_first(acme: Tenant) -> None:
    answer = await get_branding(acme)
    assert (answer.status, answer.json) == (200, NO_DESIGN)


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_managers_change_the_branding_and_every_member_reads_it(acme: Tenant, other_tenant: Tenant, by: str) -> None:
    answer = await patch_branding(acme, DESIGN, by)
    assert (answer.status, answer.json) == (200, DESIGN)
    for name in acme.people:
        assert (await get_branding(acme, name)).json == DESIGN
    assert (await get_branding(other_tenant)).json == NO_DESIGN
    details = {name: {"old": None, "new": value} for name, value in DESIGN.items()}
    assert await acme.recorded() == [("branding.updated", "organization", str(acme.org), acme.people[by].id, details)]
    assert await acme.webhook_events() == [("branding.updated", str(acme.org), details)]


async def test_omitted_fields_keep_their_value_and_null_removes_it(acme: Tenant, clock: FakeClock) -> None:
    await patch_branding(acme, DESIGN)
    clock.advance(SECOND)
    assert (await patch_branding(acme, {"product_name": "  Acme  "})).json == {**DESIGN, "product_name": "Acme"}
    clock.advance(SECOND)
    assert (await patch_branding(acme, {"logo_url": None, "primary_color": "#FFFFFF"})).json == {
        "logo_url": None,
        "primary_color": "#ffffff",
        "product_name": "Acme",
    }
    assert [entry["details"] for entry in (await acme.log())[1:]] == [
        {"product_name": {"old": "Acme Portal", "new": "Acme"}},
        {"logo_url": {"old": DESIGN["logo_url"], "new": None}, "primary_color": {"old": "#0b5d66", "new": "#ffffff"}},
    ]
    assert (await patch_branding(acme, NO_DESIGN)).json == (await get_branding(acme)).json == NO_DESIGN


@pytest.mark.parametrize("body", [NO_DESIGN, {"logo_url": None}])
async def test_removing_an_unset_value_writes_nothing(acme: Tenant, pool: Pool, body: dict[str, None]) -> None:
    assert (await patch_branding(acme, body)).status == 200
    assert await run_sql(pool, "select * from branding") == []
    assert await acme.log() == []


async def test_an_unchanged_value_is_not_written_again(acme: Tenant, pool: Pool) -> None:
    await patch_branding(acme, DESIGN)
    before = await run_sql(pool, "select xmin from branding")
    assert (await patch_branding(acme, {**DESIGN, "primary_color": "#0B5D66"})).json == DESIGN
    assert await run_sql(pool, "select xmin from branding") == before
    assert len(await acme.log()) == 1


@pytest.mark.parametrize("body", [{}, {"name": "Acme"}])
async def test_an_empty_change_is_refused(acme: Tenant, body: dict[str, str]) -> None:
    answer = await patch_branding(acme, body)
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert "changes nothing" in answer.json["error"]


LOGOS = [
    "https://acme.example",
    "HTTPS://CDN.Acme.Example:8443/a%20b.png?x=[".removesuffix("["),
    "https://203.0.113.7/logo.svg",
    "https://xn--mnchen-3ya.example/~logo,1;a=b",
    "http://localhost/logo.png",
    "http://127.0.0.1:8080/logo.png",
    "https://a.example/" + "x" * (2048 - len("https://a.example/")),
]
INVALID_LOGOS = [
    "",
    " ",
    "logo.png",
    "/logo.png",
    "//acme.example/logo.png",
    "https:",
    "https://",
    "https:///logo.png",
    "https:/acme.example/logo.png",
    "http://acme.example/logo.png",
    "http://10.0.0.1/logo.png",
    "http://127.1/logo.png",
    "http://127.8.9.10/logo.png",
    "http://localhost.example/logo.png",
    "http://127.0.0.1.example/logo.png",
    "ftp://acme.example/logo.png",
    "javascript:alert(1)",
    "data:image/svg+xml,x",
    "https://user@acme.example/logo.png",
    "https://user:word@acme.example/logo.png",
    "https://@acme.example/logo.png",
    "http://localhost@acme.example/",
    "https://acme.example/logo.png#mark",
    "https://acme.example/#",
    "https://acme.example/\\logo.png",
    "https://acme.example\\@evil.example/",
    "https://acme.example/lo go.png",
    'https://acme.example/"onload=',
    "https://acme.example/<script>",
    "https://acme.example/logo\n.png",
    "https://acme.example/logo.png\n",
    "https://acme.example/\x00",
    "https://acme.example/\u202e",
    "https://acme.example/löwe.png",
    "https://*.example/logo.png",
    "https://*/logo.png",
    "https://acme.example/*.png",
    "https://acme.example/%zz.png",
    "https://a_b.example/logo.png",
    "https://acme.example;script-src/*",
    "https://acme.example,evil.example/",
    "https://acme..example/logo.png",
    "https://acme.example./logo.png",
    "https://-acme.example/logo.png",
    "https://acme.example:/logo.png",
    "https://acme.example:0/logo.png",
    "https://acme.example:65536/logo.png",
    "https://acme.example:x/logo.png",
    "https://[::1]/logo.png",
    "http://[::1]/logo.png",
    "https://acme.example/[x]",
    "https://" + "a." * 127 + "example/",
    "https://a.example/" + "x" * (2049 - len("https://a.example/")),
]


async def test_a_logo_is_an_absolute_https_url_or_on_localhost(acme: Tenant) -> None:
    for logo in LOGOS:
        answer = await patch_branding(acme, {"logo_url": logo})
        stored = logo.replace("HTTPS://CDN.Acme.Example", "https://cdn.acme.example")
        assert (answer.status, answer.json) == (200, {**NO_DESIGN, "logo_url": stored}), logo


async def test_other_logo_urls_are_refused(acme: Tenant) -> None:
    for logo in [*INVALID_LOGOS, 5, True, ["https://acme.example"], {}]:
        answer = await patch_branding(acme, {"logo_url": logo})
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), logo
    assert await acme.log() == []


INVALID_COLORS = [
    "",
    "#",
    "0b5d66",
    "#0b5d6",
    "#0b5d667",
    "#fff",
    "#0b5d6g",
    "#0b5d66 ",
    "#0b5d66\n",
    "red",
    "rgb(0,0,0)",
    "#\uff10b5d66",
    "#0b5d66;}",
]


async def test_a_color_has_six_hexadecimal_digits(acme: Tenant) -> None:
    for color in ("#000000", "#FfFfFf", "#a1B2c3"):
        assert (await patch_branding(acme, {"primary_color": color})).json["primary_color"] == color.lower()
    for value in [*INVALID_COLORS, 0, ["#000000"]]:
        answer = await patch_branding(acme, {"primary_color": value})
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), value


INVALID_NAMES = ["", " ", "x" * 101, "a\nb", "a\r\nBcc: eve@example.com", "\u202egnp", "=?utf-8?q?=0d=0aBcc?=", "\u200b", "a\x00"]
NAMES = ["x", "x" * 100, "Zoë & <b>Söhne</b>", '"onload=', "שלום", "株式会社"]


async def test_a_product_name_follows_the_rules_of_all_names(acme: Tenant) -> None:
    for name in NAMES:
        assert (await patch_branding(acme, {"product_name": name})).json["product_name"] == name
    for value in [*INVALID_NAMES, 5, ["x"]]:
        answer = await patch_branding(acme, {"product_name": value})
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), value


async def test_one_invalid_field_prevents_the_whole_change(acme: Tenant) -> None:
    await patch_branding(acme, DESIGN)
    for mistake in ({"logo_url": "x"}, {"primary_color": "x"}, {"product_name": ""}):
        assert (await patch_branding(acme, {"logo_url": None, "primary_color": None, "product_name": None, **mistake})).status == 400
    assert (await get_branding(acme)).json == DESIGN


async def test_members_can_only_read_the_branding(acme: Tenant) -> None:
    answer = await patch_branding(acme, DESIGN, "member")
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await get_branding(acme)).json == NO_DESIGN


async def test_members_of_other_organizations_cannot_reach_the_branding(acme: Tenant, other_tenant: Tenant) -> None:
    for body in (DESIGN, {}, {"logo_url": 5}):
        answer = await acme.api.patch(f"{acme.path}/branding", body, token=other_tenant.token("owner"))
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        unknown = await acme.api.patch("/api/organizations/nothing-there/branding", body, token=acme.token("owner"))
        assert (unknown.status, unknown.code) == (404, "NOT_FOUND")
    assert (await acme.api.get(f"{acme.path}/branding", token=other_tenant.token("owner"))).code == "FORBIDDEN"
    assert (await acme.api.get(f"{acme.path}/branding")).code == "UNAUTHORIZED"


@pytest.mark.parametrize("status", NOT_ACTIVE)
async def test_the_branding_of_an_inactive_organization_is_closed(acme: Tenant, status: str) -> None:
    await acme.set_status(status)
    for answer in (await get_branding(acme, "owner"), await patch_branding(acme, DESIGN), await patch_branding(acme, {})):
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")


async def test_an_admin_demoted_during_the_request_cannot_change_the_branding(acme: Tenant, pool: Pool) -> None:
    demoted = "update memberships set role = 'member' where user_id = %s", (acme.id("admin"),)
    lock = "select 1 from organizations where id = %s for no key update", (acme.org,)
    answer = await run_during(pool, [lock, demoted], lambda: patch_branding(acme, DESIGN, "admin"))
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await run_sql(pool, "select * from branding") == []


async def test_concurrent_changes_of_different_fields_are_all_kept(acme: Tenant) -> None:
    fields = [{name: value} for name, value in DESIGN.items()]
    answers = await run_concurrently(9, lambda number: patch_branding(acme, fields[number % 3]))
    assert {answer.status for answer in answers} == {200}
    assert (await get_branding(acme)).json == DESIGN
    assert len(await acme.log()) == 3


async def test_the_branding_is_deleted_with_the_organization(acme: Tenant, pool: Pool) -> None:
    await patch_branding(acme, DESIGN)
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    assert await run_sql(pool, "select * from branding") == []


async def test_the_preview_of_an_email_has_the_design_and_can_do_nothing(acme: Tenant, app: QuartTrio) -> None:
    await patch_branding(acme, {"product_name": "<b>Acme</b>", "logo_url": "https://cdn.acme.example/logo.png"})
    admin = await add_account(acme.ports, "grace@example.com", PASSWORD)
    await add_member(acme.pool, acme.org, admin.id, ADMIN, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in(admin.email, PASSWORD)
    page = await browser.open("/app/organizations/acme/branding/email/preview")
    assert page.status == 200
    assert "&lt;b&gt;Acme&lt;/b&gt;" in page.text
    assert "https://cdn.acme.example/logo.png" in page.text
    policy = str(page.headers["Content-Security-Policy"])
    assert all(
        part in policy for part in ("default-src 'none'", "sandbox;", "form-action 'none'", "img-src 'self' data: https://cdn.acme.example")
    )
    assert "script" not in policy
