"""Emails in an organization's design (decision 66; security E-1, E-4)."""

import email
import re
from dataclasses import replace
from email import policy
from email.headerregistry import Address

import pytest

from adapters.email.mime import to_mime
from core.accounts.model.email_queue import EmailKind
from core.tenancy.model.settings import TEXT, BrandingSettings, Color, Design, contrast
from ports.outside import EmailMessage
from tests.adapters.messages import INVITATION, MAIL, PATHS, RECEIVED, TEMPLATES, Page, normalize
from tests.tables import table

LINKED = list(PATHS)
LOGO = "https://cdn.acme.example/logo.svg?size=2&v=7"
PORTAL = Design("Acme & <Sons>", BrandingSettings(LOGO, "#7a1fa2", "Acme Portal"))
HOSTILE = [
    "<script>alert(1)</script>",
    '"onload="alert(1)',
    "'><img src=x onerror=alert(1)>",
    "</title></style><b>",
    "=?utf-8?q?x=0D=0ABcc:eve@example.com?=",
    "{{ product }} {address} {% raw %}",
    "שלום עולם",
    "مرحبا 42 <b>",
    "x" * 100,
]


def branded(kind: EmailKind, design: Design = PORTAL) -> EmailMessage:
    return TEMPLATES.compose(replace(MAIL, kind=kind, design=design))


def without(text: str, name: str) -> str:
    """Return the text without this name, which it must contain."""
    assert name in text
    return text.replace(name, "")


@table("kind", LINKED)
def test_a_design_adds_the_name_and_does_not_change_the_text(kind: EmailKind) -> None:
    plain, message = TEMPLATES.compose(replace(MAIL, kind=kind)), branded(kind)
    assert message.subject == plain.subject.removesuffix("Gatehouse") + "Acme Portal"
    assert normalize(message.text).endswith("-- This is an automated message from Gatehouse for Acme Portal. Replies aren't read.")
    assert normalize(message.text).replace("Gatehouse for Acme Portal.", "Gatehouse.") == normalize(plain.text)
    assert replace(message, subject="", text="", html="") == replace(plain, subject="", text="", html="")
    visible_text = normalize(Page(message.html).visible_text)
    assert visible_text.startswith("Acme Portal ")
    assert visible_text.endswith(f"This is an automated message from Gatehouse for Acme Portal to {MAIL.address}. Replies aren't read.")
    assert Page(message.html).links == Page(plain.html).links
    for part in (LOGO, "cdn.acme", "#7a1fa2"):
        assert part not in message.text


@table("kind", LINKED)
def test_the_logo_is_one_image_of_fixed_height(kind: EmailKind) -> None:
    [image] = Page(branded(kind).html).images
    assert (image["src"], image["height"], image["alt"]) == (LOGO, "32", "Logo")
    assert branded(kind).html.count("cdn.acme.example") == 1
    unmarked = branded(kind, replace(PORTAL, branding=replace(PORTAL.branding, logo_url=None)))
    assert Page(unmarked.html).images == []


def colors_of(html: str) -> dict[str, dict[str, Color]]:
    """Return the colors for the link, the button and its label by color scheme."""
    patterns_of_scheme = {
        "light": {
            "button": r'class="button" style="background:(#\w+);',
            "label": r'class="label"[^>]* style="[^"]*;color:(#\w+);',
            "link": r'class="link"[^>]* style="color:(#\w+);',
        },
        "dark": {name: rf"\.{name} {{ (?:background|color): (#\w+) !important" for name in ("button", "label", "link")},
    }
    return {
        scheme: {name: Color.parse(re.findall(pattern, html)[0]) for name, pattern in patterns.items()}
        for scheme, patterns in patterns_of_scheme.items()
    }


@table("color", [None, "#ffffff", "#fff6d5", "#ffcc00", "#7a1fa2", "#767676", "#00112a", "#000000"])
@table("kind", LINKED)
def test_colors_have_enough_contrast_in_both_schemes(kind: EmailKind, color: str | None) -> None:
    design = None if color is None else Design("Acme", BrandingSettings(primary_color=color))
    for scheme, colors in colors_of(TEMPLATES.compose(replace(MAIL, kind=kind, design=design)).html).items():
        assert contrast(colors["label"], colors["button"]) >= TEXT
        assert contrast(colors["link"], Color.parse("#ffffff" if scheme == "light" else "#172024")) >= TEXT
        assert color is None or colors["button"] == Color.parse(color)


@table("kind", LINKED)
def test_a_design_without_settings_adds_only_the_name(kind: EmailKind) -> None:
    plain, message = TEMPLATES.compose(replace(MAIL, kind=kind)), branded(kind, Design("Acme Ltd."))
    assert message.subject == plain.subject.removesuffix("Gatehouse") + "Acme Ltd."
    assert normalize(Page(message.html).visible_text).startswith("Acme Ltd. ")
    assert colors_of(message.html) == colors_of(plain.html)
    assert Page(message.html).images == []


def test_the_subject_of_an_invitation_names_the_organization_once() -> None:
    assert branded(EmailKind.INVITATION, Design(RECEIVED.organization_name)).subject == TEMPLATES.compose(INVITATION).subject
    assert branded(EmailKind.INVITATION).subject == "You are invited to Acme & <Sons> - Acme Portal"


@pytest.mark.slow
@table("name", HOSTILE)
@table("kind", LINKED)
def test_a_hostile_name_changes_no_markup_and_no_header(kind: EmailKind, name: str) -> None:
    plain = Page(branded(kind, Design("Acme", replace(PORTAL.branding, product_name="N"))).html)
    message = branded(kind, Design("Acme", replace(PORTAL.branding, product_name=name)))
    page = Page(message.html)
    assert without(message.text, name) == branded(kind).text.replace("Acme Portal", "")
    assert normalize(page.visible_text).startswith(normalize(f"{name} "))
    assert (page.links, page.images, page.attributes, page.headings) == (plain.links, plain.images, plain.attributes, plain.headings)
    assert message.html.count("</title>") == message.html.count("</style>") == 1
    mime = to_mime(message, Address("Gatehouse", addr_spec="signin@id.example.com"))
    read = email.message_from_bytes(bytes(mime), policy=policy.default)
    assert read.keys() == mime.keys()
    assert read["Subject"].strip() == message.subject.replace("=?", "= ?")
    for part, body in zip(read.iter_parts(), (message.text, message.html), strict=True):
        assert part.get_content().splitlines() == body.splitlines()


@table("name", ["שלום", "مرحبا 42"])
def test_a_right_to_left_name_is_isolated_from_the_text_around_it(name: str) -> None:
    body = branded(EmailKind.INVITATION, Design(name)).html.partition("</title>")[2]
    assert body.count(f"<bdi>{name}</bdi>") == body.count(name) == 2
    assert "<bdi>Acme &amp; &lt;Sons&gt;</bdi></h1>" in body
