"""Rules for client ID metadata documents: addresses, and hostile documents."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from core.federation.oauth.model import client_documents
from core.federation.oauth.model.client_documents import ClientAddressInvalid, ClientDocument, ClientDocumentUnavailable
from core.federation.oauth.model.client_metadata import ClientMethod
from core.kernel.policy import Policy
from tests.support.rows import NOW
from tests.tables import table

POLICY = Policy(key_ports=frozenset({443, 8443}))
ADDRESS = "https://client.example/oauth/metadata.json"
PLAIN = {"client_id": ADDRESS, "client_name": "Assistant", "redirect_uris": ["https://client.example/callback"]}
_X, _Y = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
KEY = {"kty": "EC", "crv": "P-256", "x": _X, "y": _Y}
REFUSED_ADDRESSES = {
    "http://client.example/metadata": "must start with https://",
    "HTTPS://client.example/metadata": "must start with https://",
    "https://client.example": "no path",
    "https://client.example/": "no path",
    "https://client.example//": "no path",
    "https://client.example/a/../b": "dots",
    "https://client.example/./b": "dots",
    "https://client.example/a/%2e%2E": "dots",
    "https://client.example/a?b=c": "query",
    "https://client.example/a?": "query",
    "https://client.example/a#b": "fragment",
    "https://me@client.example/a": "user name",
    "https://client.example:8080/a": "port is not allowed",
    "https://client.example:0/a": "port",
    "https://клиент.example/a": "xn--",
    "https://client.example/a b": "space",
    "https://client.example/a%0a": "control character",
    "https://client.example/a%": "percent sign",
    "https://client.example\\@other.example/a": "user name",
    "https://client.example\\a": "host",
    "https://client.example./a": "dot at the end",
    "https:///a": "host",
    f"https://client.example/{'a' * 500}": "500 characters",
}
REFUSED_MEMBERS: list[tuple[dict[str, Any], str]] = [
    ({"client_id": None}, "another client_id"),
    ({"client_id": ADDRESS + "/"}, "another client_id"),
    ({"client_id": ADDRESS.upper()}, "another client_id"),
    ({"client_name": None}, "no client_name"),
    ({"client_name": " \u200b"}, "no client_name"),
    ({"client_name": '\u201c"'}, "no client_name"),
    ({"client_name": "a" * 101}, "more than 100 characters"),
    ({"client_name": "pay\u202epal"}, "control characters"),
    ({"client_name": "a\x00b"}, "control characters"),
    ({"client_name": ["Assistant"]}, "no client_name"),
    ({"redirect_uris": None}, "redirect_uris"),
    ({"redirect_uris": []}, "redirect_uris"),
    ({"redirect_uris": "https://client.example/callback"}, "redirect_uris"),
    ({"redirect_uris": [1]}, "redirect_uris"),
    ({"redirect_uris": [f"https://client.example/{number}" for number in range(51)]}, "redirect_uris"),
    ({"redirect_uris": ["http://client.example/callback"]}, "redirect URI that is not allowed: it must start with https://"),
    ({"redirect_uris": ["javascript:alert(1)"]}, "redirect URI that is not allowed"),
    ({"redirect_uris": ["data:text/html,x"]}, "redirect URI that is not allowed"),
    ({"redirect_uris": ["https://*.client.example/callback"]}, "redirect URI that is not allowed"),
    ({"redirect_uris": ["https://client.example/callback#a"]}, "redirect URI that is not allowed: it"),
    ({"client_secret": "s"}, "client secret"),
    ({"client_secret_expires_at": 0}, "client secret"),
    ({"token_endpoint_auth_method": "client_secret_basic"}, "no method"),
    ({"token_endpoint_auth_method": "client_secret_jwt", "jwks": {"keys": [KEY]}}, "no method"),
    ({"token_endpoint_auth_method": "private_key_jwt"}, "no keys"),
    ({"token_endpoint_auth_method": {}}, "token_endpoint_auth_method"),
    ({"token_endpoint_auth_methods_supported": ["client_secret_post"]}, "no method"),
    ({"token_endpoint_auth_methods_supported": "none"}, "token_endpoint_auth_methods_supported"),
    ({"grant_types": ["client_credentials"]}, "authorization code flow"),
    ({"grant_types": "authorization_code"}, "grant_types"),
    ({"response_types": ["token"]}, "authorization code flow"),
    ({"jwks": {"keys": [KEY]}, "jwks_uri": "https://client.example/keys"}, "both jwks and jwks_uri"),
    ({"jwks": {"keys": []}}, "keys that are not allowed: 1 to 20 are"),
    ({"jwks": {"keys": [{**KEY, "d": "secret"}]}}, "a private or symmetric key"),
    ({"jwks": {"keys": [{"kty": "oct", "k": "secret"}]}}, "a private or symmetric key"),
    ({"jwks": [KEY]}, "not a set of keys"),
    ({"jwks_uri": "http://client.example/keys"}, "jwks_uri that is not allowed"),
    ({"jwks_uri": "https://client.example:22/keys"}, "jwks_uri that is not allowed"),
    ({"jwks_uri": 1}, "jwks_uri"),
]
REFUSED_BODIES: list[tuple[bytes, str, str]] = [
    (b"", "application/json", "not a JSON object"),
    (b"[]", "application/json", "not a JSON object"),
    (b"\xff", "application/json", "not a JSON object"),
    (b"[" * 3000, "application/json", "not a JSON object"),
    (json.dumps(PLAIN).encode("utf-16"), "application/json", "not a JSON object"),
    (b'{"client_id": "a", ' + json.dumps(PLAIN).encode()[1:], "application/json", "has a member twice"),
    (json.dumps(PLAIN | {"more": float("nan")}).encode(), "application/json", "the value NaN"),
    (json.dumps(PLAIN).encode(), "text/html", "application/json"),
    (json.dumps(PLAIN).encode(), "", "application/json"),
    (json.dumps(PLAIN | {"more": "a" * 5120}).encode(), "application/json", "larger than 5120 bytes"),
]


def parse(members: Mapping[str, Any], media_type: str = "application/json") -> ClientDocument:
    return client_documents.parse_document(ADDRESS, media_type, json.dumps(members).encode(), POLICY, NOW)


def test_only_addresses_with_a_path_and_without_ambiguity_name_a_document() -> None:
    findings = []
    for address, reason in REFUSED_ADDRESSES.items():
        try:
            client_documents.check_address(address, POLICY)
            findings.append((address, "accepted"))
        except ClientAddressInvalid as refusal:
            if reason not in refusal.message:
                findings.append((address, refusal.message))
    assert not findings
    for address in (ADDRESS, "https://xn--80aqecdr1a.example:8443/a", "https://client.example/a/.well-known/..b", "https://localhost:1/a"):
        client_documents.check_address(address, POLICY)


def test_a_hostile_document_is_refused_with_our_words() -> None:
    findings = []
    cases = [(json.dumps(PLAIN | members).encode(), "application/json", reason) for members, reason in REFUSED_MEMBERS]
    for body, media_type, reason in (*cases, *REFUSED_BODIES):
        try:
            client_documents.parse_document(ADDRESS, media_type, body, POLICY, NOW)
            findings.append((body, "accepted"))
        except ClientDocumentUnavailable as refusal:
            if reason not in refusal.message or "client.example" not in refusal.message or "later" in refusal.message:
                findings.append((body, refusal.message))
    assert not findings
    large = json.dumps(PLAIN | {"more": "a" * 5120}).encode()
    policy = replace(POLICY, client_document_bytes=len(large))
    assert client_documents.parse_document(ADDRESS, "application/json", large, policy, NOW).name == "Assistant"


def test_a_document_gives_name_redirect_uris_and_method() -> None:
    document = parse(
        PLAIN | {"client_name": '  My\n Assistant\u201d was "checked" ', "grant_types": ["authorization_code", "urn:x", "refresh_token"]}
    )
    assert (document.name, document.redirect_uris) == ("My Assistant was checked", ("https://client.example/callback",))
    assert (document.method, document.is_native, document.authentication) == (ClientMethod.NONE, False, "none")


@table(
    ("members", "authentication"),
    [
        ({"jwks": {"keys": [KEY]}}, "private_key_jwt"),
        ({"jwks_uri": "https://keys.example/keys"}, "private_key_jwt keys.example"),
        ({"jwks_uri": "https://keys.example/keys", "token_endpoint_auth_method": "private_key_jwt"}, "private_key_jwt keys.example"),
        (
            {"jwks_uri": "https://keys.example/keys", "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"]},
            "private_key_jwt keys.example",
        ),
        ({"token_endpoint_auth_methods_supported": ["client_secret_basic", "none"]}, "none"),
        ({"token_endpoint_auth_methods_supported": ["none", "private_key_jwt"]}, "none"),
        ({"jwks_uri": "https://keys.example/keys", "token_endpoint_auth_method": "none"}, "none"),
    ],
)
def test_the_method_follows_from_what_the_document_names_and_its_keys(members: dict[str, Any], authentication: str) -> None:
    assert parse(PLAIN | members).authentication == authentication


@table("uri", ["http://127.0.0.1/callback", "http://localhost:3000/callback", "com.example.app:/callback"])
def test_a_redirect_uri_on_the_users_device_makes_a_client_native(uri: str) -> None:
    assert parse(PLAIN | {"redirect_uris": ["https://client.example/callback", uri]}).is_native


@table(
    ("cache_control", "age", "expected"),
    [
        ("", "", timedelta(minutes=5)),
        ("max-age=3600", "", timedelta(hours=1)),
        ("public, max-age=3600, s-maxage=7200", "600", timedelta(seconds=6600)),
        ("max-age=31536000", "", timedelta(hours=24)),
        ("max-age=99999999999999999999", "", timedelta(hours=24)),  # RFC 9111 section 1.2.2
        ('no-cache="x", max-age=3600', "", timedelta(minutes=5)),
        ("max-age=-1", "x", timedelta(minutes=5)),
    ],
)
def test_headers_decide_between_five_minutes_and_a_day(cache_control: str, age: str, expected: timedelta) -> None:
    assert client_documents.fresh_for(cache_control, age) == expected
