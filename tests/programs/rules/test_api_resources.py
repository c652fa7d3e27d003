"""API resource identifiers and scopes (RFC 8707 section 2, RFC 3986 section 6.2)."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from core.authentication.model.openid import Scope
from core.kernel import uris
from core.kernel.api_scopes import ApiScope
from core.programs.model.api_resources import (
    MAX_IDENTIFIER_LENGTH,
    MAX_SCOPES,
    RESERVED_SCOPES,
    ApiResource,
    IdentifierInvalid,
    IdentifierReserved,
    IdentifierUrnInvalid,
    ImpliedScopeInvalid,
    ResourceIdentifier,
    ResourceScope,
    ResourceScopeReserved,
    ResourceScopesInvalid,
    check_scopes,
    parse_identifier,
)
from tests.tables import table

ORG = UUID("6f1c24a5-32f0-4a62-a5c4-6f7a3ed1a1a1")
URN = f"urn:gatehouse:{ORG}:orders"
RESOURCE = ApiResource(
    id=ORG,
    org_id=ORG,
    identifier=URN,
    name="Orders API",
    scopes=(),
    token_seconds=900,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    updated_at=datetime(2026, 1, 1, tzinfo=UTC),
)
ISSUER, LOCAL = "https://login.example.com", "http://127.0.0.1:8080"


@table(
    ("text", "normal"),
    [
        ("https://api.example.com", "https://api.example.com/"),
        ("HTTPS://API.Example.COM:443", "https://api.example.com/"),
        ("https://api.example.com:8443/", "https://api.example.com:8443/"),
        ("https://api.example.com?a=B", "https://api.example.com/?a=B"),
        ("https://api.example.com/V1/", "https://api.example.com/V1/"),
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://api.example.com/%7e", "https://api.example.com/%7e"),
        ("http://LOCALHOST:80/x", "http://localhost/x"),
        ("http://[::1]:5000", "http://[::1]:5000/"),
        (f"URN:Gatehouse:{ORG}:Orders", f"urn:gatehouse:{ORG}:Orders"),
        ("com.Example.app:/X", "com.example.app:/X"),
    ],
)
def test_spellings_of_one_identifier_are_equal(text: str, normal: str) -> None:
    assert uris.normalize(text) == normal
    assert uris.normalize(normal) == normal


@table(
    "text",
    [
        "",
        "api.example.com",
        "https://user@api.example.com/",
        "https://api.example.com/#a",
        "https://api.example.com/ ",
        "https://api.example.com/a b",
        "https://api.example.com\\@evil.example/",
        "https://api.example.com./",
        "https://api.example.com:0/",
        "https://api.example.com:99999/",
        "https://*.example.com/",
        "https://api.example.com/%0a",
        "https://api.example.com/%zz",
    ],
)
def test_other_texts_are_no_identifiers(text: str) -> None:
    assert uris.normalize(text) is None
    with pytest.raises(IdentifierInvalid):
        parse_identifier(text, ORG, ISSUER)


def test_an_identifier_is_an_https_url_or_a_urn_of_the_organization() -> None:
    assert parse_identifier("https://API.example.com", ORG, ISSUER) == ResourceIdentifier(
        "https://API.example.com", "https://api.example.com/", "api.example.com"
    )
    assert parse_identifier(URN, ORG, ISSUER) == ResourceIdentifier(URN, URN, None)


@table(
    "text",
    [
        "http://api.example.com/",
        "ftp://api.example.com/",
        "https:api.example.com",
        "https:///orders",
        "com.example.app:/orders",
        f"https://api.example.com/{'a' * MAX_IDENTIFIER_LENGTH}",
    ],
)
def test_other_uris_are_refused(text: str) -> None:
    with pytest.raises(IdentifierInvalid):
        parse_identifier(text, ORG, ISSUER)


@table(
    "text",
    [
        f"urn:gatehouse:{UUID(int=1)}:orders",  # another organization's id
        f"urn:gatehouse:{str(ORG).upper()}:orders",
        f"urn:gatehouse:{ORG}:",
        f"urn:gatehouse:{ORG}:a:b",
        f"urn:gatehouse:{ORG}:a/b",
        f"urn:gatehouse:{ORG}:{'a' * 64}",
        f"urn:example:{ORG}:orders",
    ],
)
def test_other_urns_are_refused(text: str) -> None:
    with pytest.raises(IdentifierUrnInvalid):
        parse_identifier(text, ORG, ISSUER)


@table("text", ["https://login.example.com", "https://LOGIN.example.com:443/api", "https://login.example.com/x?y"])
def test_our_own_origin_is_reserved(text: str) -> None:
    with pytest.raises(IdentifierReserved):
        parse_identifier(text, ORG, ISSUER)


def test_another_port_of_our_host_is_another_origin() -> None:
    assert parse_identifier("https://login.example.com:8443/", ORG, ISSUER).host == "login.example.com"


@table("text", ["http://localhost:3000", "https://localhost/", "http://127.0.0.1:9000/api", "http://[::1]:9000/"])
def test_apis_on_the_loopback_interface_need_an_issuer_on_it(text: str) -> None:
    with pytest.raises(IdentifierInvalid):
        parse_identifier(text, ORG, ISSUER)
    assert parse_identifier(text, ORG, LOCAL).host is None
    for own in (f"{LOCAL}/api", "http://localhost:8080/", "https://[::1]:8080/api"):
        with pytest.raises(IdentifierReserved):
            parse_identifier(own, ORG, LOCAL)


def scopes(*names: str) -> list[ResourceScope]:
    return [ResourceScope(name, "A scope") for name in names]


def test_scopes_are_names_of_rfc_6749_and_each_once() -> None:
    assert check_scopes([]) == ()
    assert check_scopes(scopes("orders:read", "https://example.com/orders")) == tuple(scopes("orders:read", "https://example.com/orders"))
    for names in (("a b",), ('a"',), ("",), ("ä",), ("a", "a"), map(str, range(MAX_SCOPES + 1)), (str(n) * 50 for n in range(40))):
        with pytest.raises(ResourceScopesInvalid):
            check_scopes(scopes(*names))


def test_implied_scopes_form_no_circle() -> None:
    def chain(**implied: str) -> list[ResourceScope]:
        return [ResourceScope(name, "A scope", tuple(names.split())) for name, names in implied.items()]

    checked = check_scopes(chain(admin="write delete", write="read", delete="read", read=""))
    resource = replace(RESOURCE, scopes=checked)
    for names, expected in (
        (["admin"], ("admin", "write", "delete", "read")),
        (["read", "write"], ("write", "read")),
        (["read"], ("read",)),
        (["unknown"], ()),
        ([], ()),
    ):
        assert resource.granted_scopes(names) == expected
    for wrong in (chain(a="a"), chain(a="b", b="a"), chain(a="b", b="c", c="a"), chain(a="x"), chain(a="b b", b="")):
        with pytest.raises(ImpliedScopeInvalid):
            check_scopes(wrong)


@table("name", ["openid", "OpenID", "phone", *Scope, "members:read", "Members:Write"])
def test_a_scope_has_no_name_of_openid_connect_or_of_our_own_api(name: str) -> None:
    with pytest.raises(ResourceScopeReserved):
        check_scopes(scopes(name))


def test_all_our_scopes_are_reserved() -> None:
    assert {*Scope, *ApiScope} <= RESERVED_SCOPES
