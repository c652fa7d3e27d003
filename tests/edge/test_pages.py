"""The pages: what is written on them is escaped, what they may load is fixed, and only known files are served."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import escape

from core.tenancy.branding_rules import BrandingSettings, Design
from entrypoints.http import pages

HOSTILE = "\"'><script>alert(1)</script><form action=https://elsewhere.example>{{ 7 * 7 }}"

UNTIL = "4 March 2026 at 05:06 UTC"

OWN: dict[str, object] = {"form_token": "c4ca4238", "done": "It was done."}
DEVICE: dict[str, object] = {
    "id": 7,
    "name": "Laptop",
    "system": "Firefox 121.0 on Linux",
    "used": UNTIL,
    "first": UNTIL,
    "location": "Geneva, CH",
    "address": "203.0.113.9",
    "is_current": False,
    "trusted": True,
}
ASKED: dict[str, object] = {
    "service": "Portal & Shop",
    "organization": "Acme & Sons",
    "address": "203.0.113.9",
    "agent": "curl/8.5.0",
    "requested_at": UNTIL,
}
PAGES: dict[str, dict[str, object]] = {
    "home.html": {},
    "verified.html": {"email": "ada@example.org"},
    "reset_password.html": {"token": "8f14e45f", "problem": "The password must have at least 8 characters."},
    "password_reset_done.html": {},
    "invitation.html": {
        "token": "8f14e45f",
        "organization": "Acme & Sons",
        "inviter": "grace@example.org",
        "email": "ada@example.org",
        "role": "an administrator",
        "until": UNTIL,
    },
    "invitation_accepted.html": {"organization": "Acme & Sons"},
    "invitation_declined.html": {"organization": "Acme & Sons"},
    "sign_in.html": {
        "form_token": "c4ca4238",
        "next": "/app/account",
        "email": "ada@example.org",
        "problem": "It is wrong.",
        "service": "Portal & Shop",
        "providers": {"Codehost": "/auth/codehost?next=%2F"},
        "is_anew": True,
        "is_signed_out": False,
    },
    "no_access.html": {"form_token": "c4ca4238", "next": "/app/account", "email": "ada@example.org", "problem": "You have no access."},
    "authorize.html": {
        "form_token": "c4ca4238",
        "action": "/auth/authorize?org=acme",
        "service": "Portal & Shop",
        "organization": "Acme & Sons",
        "email": "ada@example.org",
    },
    "link.html": {"provider": "Codehost", "email": "ada@example.com", "url": "https://codehost.example/authorize"},
    "linked.html": {"provider": "Codehost"},
    "saml_answer.html": {"acs_url": "https://app.example/acs", "saml_response": "PHNhbWw+", "relay_state": "where", "is_error": False},
    "signed_out.html": {"is_partial": True, "onward": "/app/sign-in"},
    "signing_out.html": {"onward": "/saml/acme/shop/slo"},
    "signing_out_goes_on.html": {"onward": "/saml/acme/shop/slo"},
    "sign_in_code.html": {"form_token": "c4ca4238", "next": "/app/account", "problem": "It is wrong."},
    "forgot_password.html": {"form_token": "c4ca4238"},
    "forgot_password_done.html": {},
    "device.html": {"form_token": "c4ca4238", "email": "ada@example.org", "user_code": "BCDF-GHJK", "problem": "Nobody has it."},
    "device_confirm.html": {"form_token": "c4ca4238", "email": "ada@example.org", "user_code": "BCDF-GHJK", **ASKED},
    "device_done.html": {"approved": True, "service": "Portal & Shop", "organization": "Acme & Sons"},
    "account.html": {
        **OWN,
        "email": "ada@example.org",
        "verified": True,
        "has_password": True,
        "mfa_since": UNTIL,
        "linked": ["Codehost"],
        "devices": 2,
        "trusted": 1,
        "sessions": 2,
    },
    "account_identities.html": {
        **OWN,
        "linked": [{"name": "Codehost", "provider": "codehost", "email": None, "subject": "583231", "since": UNTIL}],
        "others": [{"name": "Websuite", "provider": "websuite", "can_be_linked": True, "at_an_application": True}],
        "problem": "It is linked already.",
    },
    "account_link.html": {"done": "It was done.", "provider": "Codehost", "address": "https://codehost.example/authorize?state=x"},
    "account_email.html": {**OWN, "email": "ada@example.org", "verified": False, "typed": "ada", "problem": "It is not valid."},
    "account_password.html": {**OWN, "email": "ada@example.org", "has_password": True, "about_current": False, "problem": "Too short."},
    "account_two_factor.html": {**OWN, "since": UNTIL, "codes": 8, "problem": "Not now."},
    "account_two_factor_setup.html": {
        **OWN,
        "qr": "data:image/svg+xml;base64,PHN2Zy8+",
        "secret": "ABCD EFGH",
        "uri": "otpauth://totp/Gatehouse:ada?secret=ABCDEFGH",
        "problem": "It is wrong.",
    },
    "account_backup_codes.html": {"done": "It was done.", "codes": ["ABCD-2345"], "switched_on": True},
    "account_devices.html": {"done": "It was done.", "devices": [DEVICE]},
    "account_device.html": {**OWN, "device": DEVICE, "typed": "Laptop", "problem": "Too long."},
    "account_sessions.html": {
        **OWN,
        "sessions": [{"id": 7, "title": "Portal of Acme", "where": "203.0.113.9", "agent": None, "since": UNTIL, "is_current": False}],
        "total": 2,
    },
    "error.html": {"status": 404, "title": "Not Found", "message": "There is nothing here.", "request_id": "q3f8cW0nT1y5"},
}
# What works without it, too, and by itself with it: its nonce lets this one run.
SCRIPTED = {"saml_answer.html"}
PARTS = {"base.html", "ui.html", "docs.html", "account_layout.html"}


def render(name: str, **values: object) -> pages.Page:
    return pages.render(name, **{**PAGES[name], **values})  # type: ignore[arg-type]  # the table knows each page's values


def policy(headers: Mapping[str, str]) -> dict[str, str]:
    directives = (directive.strip().partition(" ") for directive in headers["Content-Security-Policy"].split(";"))
    return {name: sources for name, _, sources in directives}


def test_every_template_is_listed_here() -> None:
    templates = Path(pages.__file__).parent / "templates"
    assert {path.name for path in templates.iterdir()} == PAGES.keys() | PARTS


@pytest.mark.parametrize("name", PAGES)
def test_page_is_a_complete_document_without_scripts(name: str) -> None:
    body = render(name).body
    assert body.startswith('<!doctype html>\n<html lang="en">')
    assert body.count("<h1>") == 1
    assert re.search(r"<title>[^<]+ · Gatehouse</title>", body)
    assert ("<script" in body) == (name in SCRIPTED)
    assert " style=" not in body  # the nonce covers the style element only


@pytest.mark.parametrize("name", PAGES)
def test_page_lets_nothing_else_in(name: str) -> None:
    page = render(name)
    nonces = re.findall(r'<style nonce="([\w-]{22})">', page.body)
    assert len(nonces) == 1
    assert policy(page.headers) == {
        "default-src": "'none'",
        "style-src": f"'nonce-{nonces[0]}'",
        "img-src": "'self' data:",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"


def test_every_response_has_a_nonce_of_its_own() -> None:
    assert render("home.html").headers["Content-Security-Policy"] != render("home.html").headers["Content-Security-Policy"]


TEXTS = [(name, value) for name, values in PAGES.items() for value, example in values.items() if isinstance(example, str)]


@pytest.mark.parametrize(("name", "value"), TEXTS)
def test_hostile_values_stay_text(name: str, value: str) -> None:
    page = render(name, **{value: HOSTILE})
    assert "&lt;script&gt;alert(1)" in page.body
    assert page.body.count("<script") == (name in SCRIPTED)
    assert "elsewhere.example>" not in page.body
    assert "{{ 7 * 7 }}" in page.body
    assert policy(page.headers)["form-action"] == policy(render(name).headers)["form-action"]


@pytest.mark.parametrize("key", [key for key, value in DEVICE.items() if isinstance(value, str)])
def test_what_devices_call_themselves_stays_text(key: str) -> None:
    hostile = DEVICE | {key: HOSTILE}
    for page in (render("account_devices.html", devices=[hostile]), render("account_device.html", device=hostile)):
        assert "<script" not in page.body
        assert "elsewhere.example>" not in page.body


def test_page_has_the_status_it_was_given() -> None:
    page = pages.render("error.html", status=429, title="Too many requests", message="Try again in 27 s.", request_id="q3f8cW0nT1y5")
    assert page.status == 429
    assert "Error 429" in page.body
    assert "q3f8cW0nT1y5" in page.body


def test_forgotten_value_is_an_error_and_not_a_gap() -> None:
    with pytest.raises(UndefinedError):
        pages.render("error.html", title="Not Found", request_id="q3f8cW0nT1y5")


def test_form_may_send_where_the_page_says() -> None:
    page = render("reset_password.html", form_action="https://service.example")
    assert policy(page.headers)["form-action"] == "https://service.example"


def test_refused_password_is_explained_to_screen_readers_too() -> None:
    body = render("reset_password.html", problem="The password is too common.").body
    assert '<div class="notice notice-bad" id="problem" role="alert"><p>The password is too common.</p></div>' in body
    assert 'aria-invalid="true" aria-describedby="problem new_password-hint"' in body
    assert "<title>Error: " in body


def test_reset_form_says_what_a_password_needs() -> None:
    body = render("reset_password.html", problem=None).body
    assert '<form method="post" action="/auth/reset-password">' in body
    assert '<input type="hidden" name="token" value="8f14e45f">' in body
    assert (
        'type="password" required aria-describedby="new_password-hint" autocomplete="new-password" minlength="8" maxlength="128">' in body
    )
    assert " aria-invalid=" not in body
    assert " role=" not in body


def test_an_invitation_says_who_invites_whom_to_what_until_when_and_offers_both_answers() -> None:
    body = render("invitation.html").body
    assert "<h1>You are invited to <bdi>Acme &amp; Sons</bdi></h1>" in body
    assert "<strong>grace@example.org</strong> has invited you (<strong>ada@example.org</strong>) to join <bdi>Acme &amp; Sons</bdi>" in body
    assert "as <strong>an administrator</strong>." in body
    assert f"This invitation expires on {UNTIL}." in body
    for answer, label in (("accept", "Accept"), ("decline", "Decline")):
        form = body.partition(f'<form method="post" action="/app/invitations/{answer}">')[2].partition("</form>")[0]
        assert '<input type="hidden" name="token" value="8f14e45f">' in form
        assert f'type="submit">{label}</button>' in form


def test_an_invitation_of_somebody_who_is_gone_names_nobody() -> None:
    assert "You've been invited (<strong>ada@example.org</strong>) to join" in render("invitation.html", inviter=None).body


# In the design of an organization (decisions, point 66)

LOGO = "https://cdn.acme.example:8443/logo.svg?size=2&v=7"
PORTAL = Design("Acme & Sons", BrandingSettings(LOGO, "#7a1fa2", "Acme Portal"))
# What the links of mails lead to.
LINKED = [name for name in PAGES if name not in ("home.html", "error.html", *SCRIPTED)]


def render_for(design: Design, name: str = "reset_password.html") -> pages.Page:
    return render(name, design=design)


@pytest.mark.parametrize("name", LINKED)
def test_a_page_has_the_name_the_logo_and_the_colour_of_an_organization(name: str) -> None:
    body = render_for(PORTAL, name).body
    assert re.search(r"<title>[^<]+ · Acme Portal</title>", body)
    header = body.partition("<header>")[2].partition("</header>")[0]
    assert f'<img class="logo" src="{LOGO.replace("&", "&amp;")}" alt=""><bdi>Acme Portal</bdi>' in header
    assert "--button: #7a1fa2;" in body
    assert '<a href="/">Gatehouse</a> signs people in for <bdi>Acme Portal</bdi>.' in body.partition("</main>")[2]
    assert "<script" not in body
    assert " style=" not in body


@pytest.mark.parametrize("name", LINKED)
def test_such_a_page_lets_in_what_is_at_the_origin_of_its_logo_and_nothing_else(name: str) -> None:
    page, plain = render_for(PORTAL, name), render(name)
    nonces = re.findall(r'<style nonce="([\w-]{22})">', page.body)
    assert len(nonces) == 2
    assert len({*nonces}) == 1
    assert policy(page.headers) == policy(plain.headers) | {
        "style-src": f"'nonce-{nonces[0]}'",
        "img-src": "'self' data: https://cdn.acme.example:8443",
    }
    assert page.headers.keys() == plain.headers.keys()
    assert page.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("logo", "origin"),
    [
        ("https://acme.example/logo.svg", "https://acme.example"),
        ("HTTPS://CDN.Acme.Example/logo.svg", "https://cdn.acme.example"),
        ("https://acme.example?logo", "https://acme.example"),
        ("http://127.0.0.1:8080/logo.svg", "http://127.0.0.1:8080"),
    ],
)
def test_the_origin_of_a_logo_is_written_as_policies_write_it(logo: str, origin: str) -> None:
    assert policy(render_for(Design("Acme", BrandingSettings(logo_url=logo))).headers)["img-src"] == f"'self' data: {origin}"


@pytest.mark.parametrize("logo", ["https://a; script-src *", "https://*", "javascript:alert(1)", "http://acme.example/", '"><script>'])
def test_a_logo_that_could_never_be_chosen_widens_no_policy(logo: str) -> None:
    page = render_for(Design("Acme", BrandingSettings(logo_url=logo)))
    assert policy(page.headers)["img-src"] == "'self' data:"
    assert "<script" not in page.body


def test_an_organization_that_has_chosen_nothing_has_its_name_alone() -> None:
    page = render_for(Design("Acme Ltd."))
    assert '<header><span class="brand"><bdi>Acme Ltd.</bdi></span></header>' in page.body
    assert page.body.count("<style") == 1
    assert "<img" not in page.body
    assert policy(page.headers)["img-src"] == "'self' data:"
    assert " · Acme Ltd.</title>" in page.body


def test_the_title_of_an_invitation_does_not_name_the_organization_twice() -> None:
    assert "<title>Invitation to Acme &amp; Sons · Gatehouse</title>" in render_for(Design("Acme & Sons"), "invitation.html").body


NAMES = [HOSTILE, '"onload="alert(1)', "</title></style><b>", "=?utf-8?q?x?=", "שלום", "مرحبا 42"]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_product_does_harm(name: str) -> None:
    def skeleton(name: str) -> str:
        body = render_for(Design("Acme", BrandingSettings(LOGO, "#7a1fa2", name))).body
        return re.sub(r'nonce="[^"]+"', "", body).replace(str(escape(name)), "")

    assert skeleton(name) == skeleton("Acme Portal")
    assert f"<bdi>{escape(name)}</bdi>" in render_for(Design(name)).body


def test_docs_may_run_only_files_of_ours() -> None:
    page = pages.docs()
    assert policy(page.headers) == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert "://" not in page.body
    assert re.findall(r"<script[^>]*>(.*?)</script>", page.body, re.DOTALL) == ["", ""]
    assert "<style" not in page.body


@pytest.mark.parametrize("page", [pages.docs(), pages.render("home.html")], ids=["docs", "home"])
def test_files_that_a_page_names_are_served(page: pages.Page) -> None:
    names = re.findall(r'"/assets/([^"]+)"', page.body)
    assert names
    assert all(pages.asset(name) for name in names)


def test_asset_is_kept_for_ever_under_the_name_of_its_content() -> None:
    name = pages.asset_url("docs.js").removeprefix("/assets/")
    asset = pages.asset(name)
    assert asset is not None
    fingerprint = hashlib.sha256(asset.body()).hexdigest()[:16]
    assert name == f"docs.{fingerprint}.js"
    assert asset.headers == {
        "Content-Type": "text/javascript; charset=utf-8",
        "Cache-Control": "public, max-age=31536000, immutable",
        "ETag": f'"{fingerprint}"',
    }


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "icon.svg", "docs/docs.js", "pages.css", "../__init__.py", "..%2f__init__.py", "..\\__init__.py",
     "/etc/passwd", "docs/../icon.svg", "docs.js\0", "docs/README.md", "templates/base.html"],
)  # fmt: skip
def test_what_is_not_listed_does_not_exist(name: str) -> None:
    assert pages.asset(name) is None
    assert pages.asset(name + pages.asset_url("icon.svg")) is None


def test_vendored_files_are_the_published_ones() -> None:
    docs = Path(pages.__file__).parent / "assets" / "docs"
    sums = re.findall(r"^([0-9a-f]{64})  (\S+)$", (docs / "README.md").read_text("utf-8"), re.MULTILINE)
    assert len(sums) == 2
    for digest, file in sums:
        assert hashlib.sha256((docs / file).read_bytes()).hexdigest() == digest
