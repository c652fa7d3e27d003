"""The URIs that can be registered (security O-2)."""

import re
from collections.abc import Callable

from core.kernel import schemes
from core.kernel.uris import canonicalize, has_private_scheme, is_on_device, is_web_url, native_flaw, target_flaw, to_ascii, web_flaw
from tests import ROOT
from tests.tables import table

WEB_URIS = [
    "https://example.com",
    "https://example.com/",
    "https://example.com/callback?tenant=1&x=%20#"[:-1],
    "https://example.com:8443/a/b;c=d,e/(f)!$'~_-.",
    "https://sub_domain.example.com/@me:x",
    "https://intranet/callback",
    "https://203.0.113.9/callback",
    "https://[2001:db8::1]:444/callback",
    "https://xn--bcher-kva.example/callback",
    "HTTPS://EXAMPLE.COM/Callback",
    "http://localhost",
    "http://localhost:3000/callback",
    "http://127.0.0.1/callback",
    "http://127.0.0.1:1/callback",
    "http://[::1]:65535/callback",
    "http://LocalHost/callback",
]
APPLICATION_URIS = [
    "com.example.app:/callback",
    "com.example.app://callback",
    "com.example.app:///callback",
    "com.example.app:callback",
    "Com.Example-2.App+x://callback/a?b=c",
    "cursor://anysphere.cursor-mcp/oauth/callback",
    "vscode-insiders://publisher.extension/callback",
    "Zed:/callback",
    "a1:callback",
    "web-app://callback",
    "mstream://callback",
]
INVALID_URIS = [
    "",
    " ",
    "callback",
    "/callback",
    "//example.com/callback",
    "://example.com",
    "https:",
    "https:/example.com",
    "https:example.com",
    "https://",
    "https:///callback",
    "https://?x",
    "https:// example.com",
    " https://example.com",
    "https://example.com ",
    "https://example.com/a b",
    "https://example.com/\tx",
    "https://example.com/\nx",
    "https://example.com/\x00",
    "https://example.com/%00",
    "https://example.com/a%0d%0aSet-Cookie",
    "https://example.com/?x=%7F",
    "com.example.app:/%1b",
    "https://example.com\\callback",
    "https://example.com/\\x",
    'https://example.com/"x"',
    "https://example.com/<x>",
    "https://example.com/{x}",
    "https://example.com/^`|",
    "https://example.com/[x]",
    "https://example.com/%",
    "https://example.com/%2",
    "https://example.com/%zz",
    "https://bücher.example/callback",
    "https://example.com/ü",
    "https://example.com/#fragment",
    "https://example.com/#",
    "https://example.com#",
    "https://*.example.com/callback",
    "https://example.com/*",
    "https://example.com/?x=*",
    "https://ada@example.com/callback",
    "https://ada:secret@example.com/callback",
    "https://@example.com/callback",
    "https://example.com@evil.example/callback",
    "https://example.com:/callback",
    "https://example.com:0/callback",
    "https://example.com:0443/callback",
    "https://example.com:65536/callback",
    "https://example.com:100000/callback",
    "https://example.com:x/callback",
    "https://example.com:-1/callback",
    "https://example.com:80:90/callback",
    "https://.example.com/",
    "https://example..com/",
    "https://example.com./",
    "https://-example.com/",
    "https://example-.com/",
    f"https://{'a' * 64}.com/",
    f"https://{'.'.join(['a' * 60] * 5)}/",
    "https://[::1/",
    "https://::1/",
    "https://[:::1]/",
    "https://[::1]x/",
    "https://[fe80::1%25eth0]/",
    "https://[example.com]/",
    "http://example.com/callback",
    "http://127.0.0.2/callback",
    "http://127.1/callback",
    "http://0.0.0.0/callback",
    "http://[::ffff:127.0.0.1]/callback",
    "http://[0:0:0:0:0:0:0:1]/callback",
    "http://localhost.example.com/callback",
    "http://localhost./callback",
    "http://localhost@example.com/callback",
    "http://evil.example#@localhost/callback",
    "http:localhost/callback",
    "http:///callback",
    "ftp://example.com/callback",
    "ws://localhost/callback",
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "javascript://example.com/%0aalert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://example.com/x",
    "c:/callback",
    "cursor",
    "cursor:",
    "com.example.app",
    "com.example.app:",
    "com.example.app:/#x",
    "com.example.app:/*",
    "com.example.app://ada@callback",
    "com.example.app://callback:x",
    "com.example.app:/a b",
    "com.example.:/callback",
    ".example.app:/callback",
    "com..app:/callback",
    "1com.example.app:/callback",
    "com.exämple.app:/callback",
    "javascript.:alert(1)",
]


@table("uri", WEB_URIS)
def test_https_and_loopback_addresses_are_web_addresses(uri: str) -> None:
    assert is_web_url(uri)
    assert not has_private_scheme(uri)


@table("uri", APPLICATION_URIS)
def test_other_schemes_belong_to_applications(uri: str) -> None:
    assert has_private_scheme(uri)
    assert not is_web_url(uri)


BY_BROWSERS = {
    "about",
    "blob",
    "chrome-extension",
    "data",
    "file",
    "http",
    "https",
    "intent",
    "javascript",
    "vbscript",
    "view-source",
    "ws",
}
BY_SYSTEMS = {
    "facetime-audio",
    "itms-apps",
    "mailto",
    "market",
    "ms-settings",
    "ms-word",
    "search-ms",
    "sms",
    "ssh",
    "tel",
    "urn",
    "web+app",
}


@table("scheme", sorted(BY_BROWSERS | BY_SYSTEMS))
def test_schemes_of_browsers_and_systems_are_refused_in_all_spellings(scheme: str) -> None:
    for spelling in (scheme, scheme.upper(), scheme.title()):
        for rest in (":callback", ":/callback", "://callback", "://callback/x?y=z", ":///callback"):
            uri = spelling + rest
            assert not has_private_scheme(uri), uri
            assert native_flaw(uri) is None if is_web_url(uri) else native_flaw(uri), uri


def test_the_guide_names_all_refused_schemes() -> None:
    listed = (ROOT / "docs/guides/mobile-and-desktop.md").read_text().partition("<!-- refused schemes -->")[2].partition("\n\n")[0]
    assert re.findall("`([^`]+)`", listed) == [*sorted(schemes.REFUSED), *(f"{start}*" for start in schemes.REFUSED_STARTS)]


@table("uri", INVALID_URIS)
def test_other_uris_are_refused(uri: str) -> None:
    assert not is_web_url(uri)
    assert not has_private_scheme(uri)


LONG = ["https://" + "a." * 1000, "https://example.com/" + "%2" * 1000, "a" * 2048, "https://[" + ":" * 2000 + "]/"]


@table("uri", LONG)
def test_other_uris_are_refused_at_any_length(uri: str) -> None:
    assert not is_web_url(uri)
    assert not has_private_scheme(uri)


# One host, one spelling


@table(
    ("typed", "canonical"),
    [
        ("HTTPS://Bücher.Example:443/Cb?a=%2f", "https://xn--bcher-kva.example/Cb?a=%2f"),
        ("http://Localhost:80", "http://localhost"),
        ("https://example.com:8443/A", "https://example.com:8443/A"),
        ("https://[2001:DB8::1]:443/", "https://[2001:db8::1]/"),
        ("https://xn--bcher-kva.example/%0a", "https://xn--bcher-kva.example/%0a"),
        ("https://bu\u0308cher.example/", "https://xn--bcher-kva.example/"),
        ("https://straße.example/", "https://straße.example/"),  # no A-labels that both IDNA versions agree on
        ("com.example.app:/x", "com.example.app:/x"),
        ("no URL", "no URL"),
    ],
)
def test_a_url_has_one_canonical_form(typed: str, canonical: str) -> None:
    assert canonicalize(typed) == canonical == canonicalize(canonical)


@table("host", ["\u00fc." * 130 + "example", "\u00fc" * 100_000, "\u00fc." * 100_000])
def test_a_host_that_is_too_long_for_a_name_is_not_converted(host: str) -> None:
    """Converting long names takes seconds, and anyone can send a long name in a SAML message."""
    url = f"https://{host}/"
    assert canonicalize(url) == to_ascii(url) == url


FLAWS = {
    "callback": "https://",
    "ftp://example.com/": "https://",
    "https:///x": "have a host",
    "http://example.com/": "http:// on localhost",
    "https://example.com/#x": "fragment",
    "https://*.example.com/": "asterisk",
    "https://ada@example.com/": "user name",
    "https://example.com:0/": "port",
    "https://example.com:x/": "port",
    "https://example.com./": "host",
    "https://[::1/": "host",
    "https://straße.example/": "xn--",
    "https://-bücher.example/": "xn--",
    "https://bü_cher.example/": "xn--",
    "https://bücher..example/": "a host name",
    f"https://{'ü' * 70}.example/": "a host name",
    "https://example.com/%zz": "percent sign",
    "https://example.com/%0a": "control character",
    "https://example.com/a b": "Percent-encode",
    "https://example.com/ü": "Percent-encode",
}


def test_each_rule_has_its_own_sentence() -> None:
    found = {uri: web_flaw(to_ascii(uri)) or "" for uri in FLAWS}
    assert {uri: flaw for uri, flaw in found.items() if FLAWS[uri] not in flaw} == {}
    assert len({*found.values()}) == 10


@table("flaw_of", [web_flaw, native_flaw, target_flaw])
def test_a_text_without_a_scheme_is_told_the_schemes_of_its_field(flaw_of: Callable[[str], str | None]) -> None:
    assert flaw_of("app.example.com") == flaw_of("ftp://app.example.com")


def test_a_uri_has_a_flaw_exactly_if_it_is_refused() -> None:
    every = [*WEB_URIS, *APPLICATION_URIS, *INVALID_URIS, *LONG]
    assert [uri for uri in every if (web_flaw(uri) is None) is not is_web_url(uri)] == []
    assert [uri for uri in every if (native_flaw(uri) is None) is not (is_web_url(uri) or has_private_scheme(uri))] == []


def test_a_program_on_the_device_answers_names_and_addresses_of_the_loopback_interface() -> None:
    hosts = ("localhost:1", "LocalHost", "a.b.localhost", "127.0.0.1", "127.9.9.9", "[::1]:444", "0.0.0.0", "[::]")  # noqa: S104
    assert [host for host in hosts if not is_on_device(f"https://{host}/callback")] == []
    assert is_on_device("com.example.app:/callback")
    elsewhere = ("localhost.example.com", "notlocalhost", "128.0.0.1", "[2001:db8::1]", "example.com")
    assert [host for host in elsewhere if is_on_device(f"https://{host}/callback")] == []
