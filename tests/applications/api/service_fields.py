"""A service's fields in a response, and invalid field values."""

from typing import Any

from tests.applications.api.services import URI

FIELDS = [
    "id",
    "org_id",
    "slug",
    "name",
    "service_type",
    "client_id",
    "codehost_scopes",
    "websuite_scopes",
    "officesuite_scopes",
    "redirect_uris",
    "device_activation_uri",
    "created_at",
    "logo_url",
]


NAMES: list[Any] = ["", " ", "a" * 101, "a\nb", "a\x00", "\u202eabc", None, 5, ["a"]]
ARRAYS: list[Any] = ["read:user", {"a": "b"}, 5, True, [5], [None], [["a"]], ["a\x00"], ["a" * 2049], [f"a{n}" for n in range(101)]]
SCOPES: list[Any] = [[""], ["a b"], [" a"], ["a", "b", "a"], ['a"b'], ["a\\b"], ["ä"], ["\x7f"], ["a\t"]]
URIS: list[Any] = [
    [""],
    ["callback"],
    ["http://example.com/"],
    [URI + "#x"],
    ["https://ada@example.com/"],
    ["https://*.example.com/"],
    ["javascript:alert(1)"],
    ["data:text/html,x"],
    ["ftp://example.com/"],
    [URI, URI],
    [URI, "https://other.example.com/", URI],
    ["https://example.com/" + "a" * 2029],
]
PAGES: list[Any] = ["", "/device", "http://example.com/", "https://example.com/#x", "https://a@b.example/", "com.example.app:/x", 5, [URI]]
