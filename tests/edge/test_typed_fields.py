"""The kinds that the pages' text fields have, and how every kind is read (decision 361)."""

import re
from base64 import b64encode
from typing import Final

from entrypoints.http.edge.typed_fields import READERS
from entrypoints.http.pages.applications.client_settings import ON_PAGE, SWITCHES
from tests.edge.test_pages import TEMPLATES
from tests.tables import table

# The pages and the API models take these as they are, or without the spaces around them.
AS_TYPED: Final = {
    "user codes, in any case and with any punctuation": {"user_code"},
    "addresses, between any separators": {"addresses"},
    "passwords": {"password", "new_password", "current_password"},
    "secrets of other services": {"client_secret", "token"},
    "names and sentences": {
        *("name", "given_name", "middle_name", "family_name", "nickname", "preferred_username", "gender", "from_name", "username"),
        *("product_name", "reason", "confirmation", "features", "scopes", "targets", "implied", "description", "permissions", "label"),
    },
    "URLs": {
        *(
            "acs_url",
            "slo_url",
            "slo_response_url",
            "sso_url",
            "metadata_url",
            "url",
            "endpoint_url",
            "launch_url",
            "return_url",
            "logo_url",
            "jwks_uri",
            "redirect_uris",
            "post_logout_redirect_uris",
        ),
        *(
            "backchannel_logout_uri",
            "device_activation_uri",
            "initiate_login_uri",
            "logo_uri",
            "policy_uri",
            "tos_uri",
            "identifier",
            "issuer",
            "picture",
            "profile",
            "website",
        ),
    },
    "names at other services": {
        "client_id",
        "entity_id",
        "email_attribute",
        "id_attribute",
        "subject",
        "audience",
        "billing_price_id",
        "value",
    },
    "names of claims": {
        "claim_email",
        "claim_name",
        "claim_given_name",
        "claim_family_name",
        "claim_groups",
        "claim_picture",
        "claim_locale",
    },
    "claims and attributes, a line each": {"names", "fixed", "values", "access_claims", "further_attributes", "further_claims", "groups"},
    "networks": {"admin_networks"},
    "hosts, or addresses of clients at them": {"hosts"},
    "documents": {"metadata", "public_key", "jwks", "document", "new_certificate"},
    "numbers, days and codes of standards": {
        *(
            "access_token_seconds",
            "clock_skew_seconds",
            "refresh_token_seconds",
            "device_trust_days",
            "max_services",
            "max_users",
            "port",
            "price_cents",
        ),
        *("grace_days", "min_password_length", "position", "uses", "days"),
        *("birthdate", "expires_at", "currency", "locale", "primary_color"),
    },
}
_MACROS: Final = re.compile(r'\b(?:field|input|text_field)\(\s*"(\w+)"|\bnew_password\(.*?name="(\w+)"')
_INPUTS: Final = re.compile(r'<(?:input|textarea)\b(?![^>]*type="(?:hidden|checkbox|radio|search|file)")[^>]* name="(\w+)"')


def test_every_text_field_of_a_page_has_a_kind() -> None:
    texts = [path.read_text("utf-8") for path in TEMPLATES.rglob("*.html")]
    names = {name for text in texts for found in _MACROS.findall(text) for name in found if name} | {"new_password"}
    names |= {name for text in texts for name in _INPUTS.findall(text)} - {"scope"}  # in a form with GET
    names |= (
        {name for name, field in ON_PAGE.items() if field.group != "scopes"} - SWITCHES - {"service_type", "email_sign_in", "required_acr"}
    )
    assert sorted(name for kind in (READERS, *AS_TYPED.values()) for name in kind) == sorted(names)


CONTENT: Final = b64encode(bytes(range(256))).decode()
PEM: Final = "\n".join(
    ["-----BEGIN CERTIFICATE-----", *(CONTENT[start : start + 64] for start in range(0, len(CONTENT), 64)), "-----END CERTIFICATE-----", ""]
)
KEY: Final = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
CERTIFICATES: Final = [
    *(PEM.replace("\n", end) for end in ("\n", "\r\n", "\r", " ", "\n    ")),
    *(CONTENT, f" {CONTENT}\r\n"),  # without a header, as in metadata
]
ADDRESS, DOMAIN = "ada@example.com", "example.com"
DOMAINS: Final = [DOMAIN, "example.com.", " https://example.com/sign-in?a#b ", f"http://{ADDRESS}.:8080", f"@{DOMAIN}", ADDRESS]
CASES: Final[list[tuple[str, str, list[str]]]] = [
    ("code email_code", "123456", ["123456", "123 456", " 123456 ", "12\t34\r\n56", "1 2 3 4 5 6"]),
    ("code email_code", "ABCD-2345", ["ABCD-2345", "abcd-2345", "abcd2345", " ABCD - 2345\n", "AbCd 2345"]),
    ("email from_email recipient", ADDRESS, [ADDRESS, f" {ADDRESS}\n", f"\u00a0{ADDRESS}\u200b", f"\t{ADDRESS}"]),
    ("slug", "acme", ["acme", " Acme ", "ACME\n"]),
    ("domain", DOMAIN, DOMAINS),
    ("invited_domains", "a.example\nb.example", ["https://a.example./\r\r\n @b.example \n\n"]),
    ("host", "mail.example.com", ["mail.example.com", " mail.example.com. "]),
    ("slo_certificate certificate", PEM, CERTIFICATES),
]
# Texts without these kinds stay as they are, so that the API refuses them.
OTHER: Final[dict[str, list[str]]] = {
    "code": ["\uff11\uff12\uff13\uff14\uff15\uff16", "\u00a0123456", "abcde", "abcd_2345", "ab-cd2345", "\u017fbcd2345", ""],
    "domain": ["example.com another.example", "https://", "", "[::1]"],
    "host": ["mail.example.com:587", "::1", ""],
    "slo_certificate": ["", PEM + PEM, PEM + KEY, KEY, "not a certificate!"],
}


@table(("names", "expected", "spellings"), CASES)
def test_every_spelling_of_a_value_is_read(names: str, expected: str, spellings: list[str]) -> None:
    for name in names.split():
        assert {spelling: READERS[name](spelling) for spelling in spellings} == dict.fromkeys(spellings, expected)


def test_every_reader_has_a_case() -> None:
    assert {name for names, _, _ in CASES for name in names.split()} == READERS.keys()


@table("name", OTHER)
def test_a_text_of_another_form_stays_as_it_is(name: str) -> None:
    assert [READERS[name](text) for text in OTHER[name]] == OTHER[name]
