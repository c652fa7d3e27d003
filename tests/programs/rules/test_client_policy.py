"""An API resource's policy about external clients."""

from dataclasses import replace

import pytest

from core.applications.model.client_settings import client_host
from core.programs.model.client_policy import (
    MAX_CLIENT_HOSTS,
    ClientAdmission,
    ClientHostInvalid,
    ClientHostsMissing,
    ClientScopeUnknown,
    ExternalClientPolicy,
    TooManyClientHosts,
    admits,
    check_policy,
)
from tests.tables import table

LISTED = ExternalClientPolicy(admit=ClientAdmission.LISTED, hosts=("claude.ai",))
SCOPES = ("orders:read", "orders:write")


def test_the_policy_admits_no_client_unless_an_admin_says_so() -> None:
    """A client without a host has registered itself."""
    for admission, expected in (
        (ClientAdmission.NONE, (False, False, False)),
        (ClientAdmission.LISTED, (True, False, False)),
        (ClientAdmission.ANY, (True, True, False)),
    ):
        policy = replace(LISTED, admit=admission)
        assert tuple(admits(policy, host) for host in ("claude.ai", "chatgpt.com", None)) == expected
        assert admits(replace(policy, registration=True), None) == (admission is not ClientAdmission.NONE)
    assert not admits(ExternalClientPolicy(), "claude.ai")


@table(
    "host",
    ["claude.ai.evil.example", "xclaude.ai", "www.claude.ai", "ai", "claude.ai:8443", "claude.ai.", "", "xn--laude-6ve.ai"],
)
def test_a_listed_host_admits_itself_alone(host: str) -> None:
    assert not admits(LISTED, host)


@table(
    ("address", "host"),
    [
        ("https://Claude.AI:443/oauth/metadata", "claude.ai"),
        ("https://claude.ai:8443/x", "claude.ai:8443"),
        ("https://bücher.example/x", "xn--bcher-kva.example"),
        ("https://[::1]:9000/x", "[::1]:9000"),
        ("http://claude.ai/x", None),
        ("https://claude.ai@evil.example/x", None),
        ("https://claude.ai\\@evil.example/x", None),
        ("claude.ai", None),
        ("", None),
    ],
)
def test_the_host_of_a_client_is_that_of_its_https_address(address: str, host: str | None) -> None:
    assert client_host(address) == host


def test_hosts_are_stored_once_in_their_canonical_form() -> None:
    policy = replace(LISTED, hosts=("Claude.AI", "bücher.example", "claude.ai:443", "localhost:8000"), scopes=SCOPES[::-1])
    expected = replace(policy, hosts=("claude.ai", "xn--bcher-kva.example", "localhost:8000"), scopes=SCOPES)
    assert check_policy(policy, SCOPES) == expected
    assert check_policy(expected, SCOPES) == expected


@table("host", ["", " ", "https://claude.ai", "claude.ai/x", "claude.ai/", "a@claude.ai", "*.ai", "claude.ai?x", "a b.ai"])
def test_other_texts_are_no_hosts(host: str) -> None:
    with pytest.raises(ClientHostInvalid):
        check_policy(replace(LISTED, hosts=(host,)), SCOPES)


def test_a_policy_has_limits() -> None:
    many = tuple(f"{number}.example" for number in range(MAX_CLIENT_HOSTS + 1))
    assert len(check_policy(replace(LISTED, hosts=many[1:] * 2), SCOPES).hosts) == MAX_CLIENT_HOSTS
    for changed, refusal in (
        (replace(LISTED, hosts=many), TooManyClientHosts),
        (replace(LISTED, hosts=()), ClientHostsMissing),
        (replace(LISTED, scopes=("orders:delete",)), ClientScopeUnknown),
        (replace(LISTED, scopes=(SCOPES[0], SCOPES[0])), ClientScopeUnknown),
    ):
        with pytest.raises(refusal):
            check_policy(changed, SCOPES)


def test_a_policy_without_scopes_allows_those_of_the_future() -> None:
    assert LISTED.narrowed(()) == LISTED
    assert LISTED.known_scopes(SCOPES) == SCOPES
    narrow = replace(LISTED, scopes=SCOPES)
    assert narrow.narrowed(SCOPES[1:]) == replace(LISTED, scopes=SCOPES[1:])
    assert narrow.known_scopes(SCOPES[:1]) == SCOPES[:1]
