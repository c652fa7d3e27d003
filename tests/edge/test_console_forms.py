"""How the console reads its forms: pasted addresses, the API models, names that become slugs, and sessions that end."""

from contextlib import nullcontext, suppress
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kernel.errors import SessionEnded, refuse
from core.kernel.values import NameUsedTooOften, Slug, create_with_free_slug
from core.tenancy import organizations
from core.tenancy.model.invitations import MAX_BULK_INVITATIONS
from core.tenancy.model.organizations import SlugTaken
from entrypoints.http.api.tenancy.mail_server import MailServerRequest
from entrypoints.http.pages.form_values import FieldInvalid, is_checked, to_model, to_number
from entrypoints.http.pages.tenancy.invitations import parse_addresses
from tests.support.browser import FakeBrowser, leads_to
from tests.tables import table

ADA, EVE = ("ada@example.com", "member"), ("eve@example.com", "member")


@table(
    ("text", "expected"),
    [
        ("ada@example.com, eve@example.com", [ADA, EVE]),
        ("ada@example.com;eve@example.com\n\n", [ADA, EVE]),
        ("Ada Lovelace <ada@example.com>\nEve <EVE@example.com>", [ADA, EVE]),
        ("email,role\nada@example.com,Admin\neve@example.com,", [("ada@example.com", "admin"), EVE]),
        ('"Lovelace, Ada","ada@example.com"\r\n"Eve","eve@example.com","member"', [ADA, EVE]),
        ("ada@example.com\nADA@example.com", [ADA]),
        ('"Support Admin" <ada@example.com>\nada@example.com, eve@example.com admin', [ADA, EVE]),
        ("Email address,Role\nada@example.com,admin", [("ada@example.com", "admin")]),
        ("\"ada@example.com,admin\"\n'eve@example.com'", [("ada@example.com", "admin"), EVE]),
    ],
)
def test_addresses_are_read_from_pasted_text_and_csv(text: str, expected: list[tuple[str, str]]) -> None:
    assert parse_addresses(text, "member", ["admin", "member"]) == expected


@table(
    ("text", "reason"),
    [
        ("", "at least one"),
        ("email,role", "at least one"),
        ("Ada, Eve", "no email addresses: Ada, Eve."),
        ("ada@example.com\neve.example.com\nMail room", "no email addresses: eve.example.com, Mail room."),
        ('"a,b"@example.com', "no email addresses: @example.com."),
        ("ada@example.com, eve@, @x", "no email addresses: eve@, @x."),
        ("\n".join(f"{n}@" for n in range(7)), "4@ and 2 more"),
        ("\n".join(f"{n}@example.com" for n in range(MAX_BULK_INVITATIONS + 1)), f"at most {MAX_BULK_INVITATIONS} addresses"),
        (f'"{"x" * 200_000}', 'no email addresses: "x{59}\\.'),
    ],
)
def test_a_refusal_of_addresses_says_what_to_change(text: str, reason: str) -> None:
    with pytest.raises(FieldInvalid, match=reason) as refusal:
        parse_addresses(text, "member", ["admin", "member"])
    assert refusal.value.field == "addresses"


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(FieldInvalid):
        assert parse_addresses(text, "member", ["admin", "member"])


@given(st.text())
def test_any_name_suggests_valid_slugs(name: str) -> None:
    suggested = list(islice(Slug.suggest(name, "application"), 3))
    assert [Slug.parse(slug) for slug in suggested] == suggested
    assert len(set(suggested)) == 3


def test_slugs_resemble_the_name() -> None:
    assert list(islice(Slug.suggest("Zo\u00eb & S\u00f6hne", "application"), 2)) == ["zoe-sohne", "zoe-sohne-2"]
    assert next(Slug.suggest("\u65e5\u672c", "organization")) == "organization"


@table(("free", "tried"), [("acme-3", 3), ("acme-20", 20), ("acme-21", 20)])
async def test_the_first_free_slug_of_twenty_is_used(free: str, tried: int) -> None:
    slugs = []

    async def create(slug: Slug) -> Slug:
        slugs.append(slug)
        return slug if slug == free else refuse(SlugTaken)

    with pytest.raises(NameUsedTooOften) if free == "acme-21" else nullcontext():
        assert await create_with_free_slug("Acme", "organization", create, SlugTaken) == free
    assert len(slugs) == tried


def test_a_form_is_read_with_the_model_of_the_api() -> None:
    form = {"host": " mail.example.com ", "from_email": "post@example.com", "port": "2525", "username": " ", "form_token": "x"}
    data = to_model(MailServerRequest, form, {"port": to_number, "tls": is_checked})
    assert (data.host, data.port, data.username, data.tls) == ("mail.example.com", 2525, None, False)


@table(
    ("changes", "field", "message"),
    [
        ({"host": " "}, "host", "Enter a value."),
        ({"from_email": "post"}, "from_email", "email address is not valid"),
        ({"port": "many"}, "port", "Enter a whole number."),
    ],
)
def test_a_refused_field_is_named_with_the_reason(changes: dict[str, str], field: str, message: str) -> None:
    form = {"host": "mail.example.com", "from_email": "post@example.com", "port": "25"} | changes
    with pytest.raises(FieldInvalid, match=message) as refusal:
        to_model(MailServerRequest, form, {"port": to_number, "tls": is_checked})
    assert refusal.value.field == field


async def test_a_session_that_ends_while_its_form_is_handled_leads_to_the_sign_in_page(
    owner_browser: FakeBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end_session(*_: object, **__: object) -> None:
        raise SessionEnded

    monkeypatch.setattr(organizations, "update", end_session)
    answer = await owner_browser.submit("/app/organizations/acme/settings", name="Acme", device_trust_days="30")
    assert leads_to(answer).startswith("/app/sign-in")
