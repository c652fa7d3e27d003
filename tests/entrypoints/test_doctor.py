"""What `gatehouse doctor` finds in faulty installations."""

import importlib.metadata
import re
import sys
import tomllib
from email.errors import MessageError
from email.generator import BytesGenerator
from pathlib import Path
from typing import Any

import dns.resolver
import pytest
from packaging.requirements import Requirement
from pydantic import SecretStr

from adapters.clock import SystemClock
from entrypoints.addresses import base_url
from entrypoints.doctor import Finding, Health, address_checks, checks
from entrypoints.settings import Settings
from tests import ROOT
from tests.fakes.certificates import make_certificate
from tests.fakes.dns_server import DnsServer
from tests.fakes.geoip import SHIPPED
from tests.fakes.http_server import TRAP, Answer
from tests.fakes.payments import API_KEY, FakePayments, error
from tests.fakes.smtp_sink import SmtpSink
from tests.tables import table


def test_the_installed_libraries_are_recent_enough() -> None:
    assert [finding.health for finding in checks.check_package_versions()] == [Health.GOOD]


def test_the_minimum_versions_are_those_of_the_project_and_of_its_specification() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = {requirement.name: requirement.specifier for requirement in map(Requirement, project["dependencies"])}
    assert {name: str(requirements[name]) for name in checks.FLOORS} == {name: f">={floor}" for name, floor in checks.FLOORS.items()}
    section = (ROOT / "docs/specification/security.md").read_text().partition('<a id="p-1">')[2].partition("<a id=")[0]
    rows = re.findall(r"^\| (\w+) \| ([\d., ]+) \|", section, re.MULTILINE)
    pythons = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in checks.PYTHON_FLOORS.items())
    assert {name.lower(): version for name, version in rows} == {**checks.FLOORS, "cpython": pythons}


@pytest.mark.parametrize("library", checks.FLOORS)
def test_a_library_below_its_minimum_version_is_bad(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.99" if name == library else real(name))
    [bad] = checks.check_package_versions()
    assert bad.health is Health.BAD
    assert f"install {checks.FLOORS[library]} or later" in bad.text


def test_the_doctor_warns_about_an_interpreter_without_security_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's 3.13.5 has the fix from 3.13.12, so the version does not tell."""

    def write_headers(generator: Any, message: Any) -> None:
        for name, value in message.raw_items():
            folded = generator.policy.fold_binary(name, value)
            if is_fixed and b"\n" in folded.removesuffix(b"\n"):
                raise MessageError
            generator._fp.write(folded)

    monkeypatch.setattr(BytesGenerator, "_write_headers", write_headers)
    monkeypatch.setattr(sys, "version_info", (3, 13, 5))
    is_fixed = True
    assert checks.check_interpreter() == Finding("Python", Health.GOOD, "3.13.5")
    is_fixed = False
    warned = checks.check_interpreter()
    assert warned.health is Health.WARNING
    assert warned.text.endswith("Install the security updates of your distribution, or use 3.13.12 or later")


def test_the_doctor_names_a_misspelled_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSO_SMPT_URL", "smtp://mail.example.com")
    warnings = list(checks.check_environment())
    assert {finding.health for finding in warnings} == {Health.WARNING}, "and does not also say that all values are valid"
    assert any("SSO_SMPT_URL is not a setting of this release. Do you mean SSO_SMTP_URL?" in finding.text for finding in warnings)
    assert all("mail.example.com" not in finding.text for finding in warnings)


def test_the_doctor_greets_the_mail_server_as_emails_do_and_quotes_its_refusal() -> None:
    with SmtpSink() as sink:
        settings = Settings(smtp_url=SecretStr(sink.url), mail_from="Gatehouse <id@example.com>")
        assert checks.check_mail(settings).health is Health.GOOD
        assert checks.check_mail(settings.model_copy(update={"smtp_helo_name": "mail.example.com"})).health is Health.GOOD
        sink.helo_answer = "421 4.7.0 Try again later, closing connection. (EHLO)"
        found = checks.check_mail(settings)
        assert (found.health, sink.helo_answer in found.text) == (Health.BAD, True)
    assert sink.helo_names == ["example.com", "mail.example.com", "example.com"]


def test_the_doctor_names_the_usual_spelling_of_the_base_url() -> None:
    found = address_checks.check_base_url("https://bücher.example:443")
    assert (found.health, "Set it to https://xn--bcher-kva.example." in found.text) == (Health.WARNING, True)


def test_the_doctor_warns_about_private_networks_that_tenants_can_reach() -> None:
    assert checks.check_outbound_calls(Settings()).health is Health.GOOD
    warned = checks.check_outbound_calls(Settings(outbound_allow="10.0.0.0/8,127.0.0.1:2525"))
    assert warned.health is Health.WARNING
    assert "10.0.0.0/8,127.0.0.1:2525" in warned.text
    assert checks.check_outbound_calls(Settings(outbound_allow="localhost")).health is Health.BAD


def test_each_configured_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with DnsServer() as good, DnsServer() as failing:
        failing.codes[""] = "SERVFAIL"
        [fine, bad] = checks.check_name_servers(Settings(dns_servers=(good.address, failing.address)))
        assert (fine.health, bad.health) == (Health.GOOD, Health.BAD)
        for finding, server in ((fine, good), (bad, failing)):
            assert "127.0.0.1:{1}".format(*server.address) in finding.text
            assert set(server.queries) == {("udp", "")}, "only the root is queried, which reveals no domain"
        assert "SERVFAIL" in bad.text
    monkeypatch.setattr(checks, "DNS_DEADLINE", 0.05)  # the server has ended
    [silent] = checks.check_name_servers(Settings(dns_servers=(good.address,)))
    assert silent.health is Health.BAD
    assert "Error" not in silent.text


def test_without_configured_name_servers_the_system_resolvers_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with DnsServer() as server:

        def read(resolver: dns.resolver.BaseResolver, _: object) -> None:
            resolver.nameservers, resolver.port = [server.address[0]], server.address[1]

        monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", read)
        assert [finding.health for finding in checks.check_name_servers(Settings())] == [Health.GOOD]
        server.codes[""] = "REFUSED"
        [warned] = checks.check_name_servers(Settings())
        assert warned.health is Health.WARNING, "only the verification of domains needs it"
        assert "REFUSED" in warned.text


def test_the_doctor_warns_that_it_cannot_check_an_embedded_database_that_is_not_running(tmp_path: Path) -> None:
    [warned] = checks.check_database(Settings(data_dir=tmp_path), "http://localhost:8080")
    assert warned.health is Health.WARNING
    assert "is not running" in warned.text


def test_lxml_and_xmlsec_share_their_library() -> None:
    assert checks.check_xml_libraries().health is Health.GOOD


def test_the_file_of_anonymizers_is_opened(tmp_path: Path) -> None:
    (tmp_path / "vpns.txt").write_text("192.0.2.0/24\n")
    assert checks.check_anonymizers(Settings()).health is Health.GOOD
    assert checks.check_anonymizers(Settings(anonymizer_networks_file=tmp_path / "vpns.txt")).health is Health.GOOD
    bad = checks.check_anonymizers(Settings(anonymizer_networks_file=SHIPPED))
    assert (bad.health, "has no flags such as is_anonymous" in bad.text) == (Health.BAD, True)


def test_the_geoip_file_is_opened(tmp_path: Path) -> None:
    assert checks.check_locations(Settings()).health is Health.GOOD
    assert checks.check_locations(Settings(geoip_database=SHIPPED)).health is Health.GOOD
    bad = checks.check_locations(Settings(geoip_database=tmp_path / "missing.mmdb"))
    assert bad.health is Health.BAD
    assert "missing.mmdb cannot be read" in bad.text


def test_the_doctor_describes_billing_and_warns_about_missing_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with FakePayments() as provider:
        check_billing(provider)
    assert capsys.readouterr().out == "", "findings are not logged too"


def check_billing(provider: FakePayments) -> None:
    on = {"billing_api_url": provider.address, "billing_api_key": API_KEY}
    secret = {"billing_webhook_secret": "whsec_one,whsec_two"}

    def check(**settings: Any) -> tuple[Health, str]:
        finding = checks.check_billing(Settings(**settings), base_url(Settings()))
        for secret in (API_KEY, "sk_wrong", "whsec", TRAP):
            assert secret not in finding.text
        return finding.health, finding.text

    assert check() == (Health.GOOD, "off: SSO_BILLING_API_URL is not set")
    assert check(**secret)[0] is Health.GOOD
    assert check(**on)[0] is Health.WARNING
    assert check(**on, **secret) == (
        Health.GOOD,
        f"through {provider.address}, which responds; its events go to http://localhost:8080/webhooks/billing",
    )
    elsewhere = provider.address.replace("127.0.0.1", "127.1")  # the same address in a form that is not recognized as local
    assert check(**{**on, "billing_api_url": elsewhere}, **secret) == (
        Health.WARNING,
        f"the payment provider is at {elsewhere}: its key is sent unencrypted",
    )
    assert {(method, path, tuple(sent.items())) for method, path, sent in provider.requests} == {
        ("GET", "subscriptions", (("limit", "1"),))
    }
    refused = (Health.BAD, f"the payment provider at {provider.address} refuses the key. Check SSO_BILLING_API_KEY")
    assert check(**{**on, "billing_api_key": "sk_wrong"}) == refused
    provider.answers["subscriptions"] = error(403)
    assert check(**on, **secret) == refused
    unusable = f"the payment provider at {provider.address} is not usable"
    provider.answers["subscriptions"] = error(402)
    assert check(**on, **secret) == (Health.BAD, f"{unusable}: it answered 402 to GET subscriptions")
    provider.answers["subscriptions"] = Answer(200, TRAP.encode())
    assert check(**on, **secret) == (Health.BAD, f"{unusable}: its answer is not JSON")
    unreachable = {**on, "billing_api_url": "http://127.0.0.1:9"}
    assert check(**unreachable, **secret) == (
        Health.BAD,
        "the payment provider at http://127.0.0.1:9 is not usable: the request failed: ConnectError",
    )


@table(
    ("url", "health"),
    [
        (None, []),
        ("https://app.example.com", [Health.GOOD]),
        ("http://localhost:3000", [Health.GOOD]),
        ("http://127.0.0.1:3000", [Health.GOOD]),
        ("http://app.example.com", [Health.WARNING]),
        ("http://localhost.example.com", [Health.WARNING]),
    ],
)
def test_the_doctor_warns_about_a_frontend_without_tls(url: str | None, health: list[Health]) -> None:
    assert [finding.health for finding in address_checks.check_frontend_url(Settings(frontend_url=url))] == health


def test_the_doctor_checks_the_directory_of_a_unix_socket(tmp_path: Path) -> None:
    def health(bind: str) -> Health:
        return address_checks.check_bind(Settings(bind=bind, base_url="https://id.example.com")).health

    assert [health(bind) for bind in ("localhost:8080", "127.0.0.1:8080", "systemd", f"unix:{tmp_path}/socket")] == [Health.GOOD] * 4
    assert health(f"unix:{tmp_path}/missing/socket") is Health.BAD


@pytest.mark.parametrize(
    ("names", "days", "health", "text"),
    [
        (["id.example.com"], 90, Health.GOOD, "for id.example.com, until "),
        (["other.example.com", "*.example.com"], 31, Health.GOOD, "for other.example.com, "),
        (["example.com", "*.id.example.com"], 29, Health.BAD, "the base URL has id.example.com, so browsers refuse it"),
        (["id.example.com"], 29, Health.WARNING, "it ends on "),
        (["id.example.com"], 6.5, Health.WARNING, "in 6 days, and was not renewed"),
        (["id.example.com"], -1, Health.BAD, "it ended on "),
    ],
)
def test_the_doctor_checks_the_certificate(tmp_path: Path, names: list[str], days: float, health: Health, text: str) -> None:
    file = make_certificate(tmp_path / "both.pem", *names, days=days)
    settings = Settings(tls_certificate=file, tls_key=file)
    [finding] = address_checks.check_certificate(settings, "https://id.example.com", SystemClock().now())
    assert finding.health is health
    assert text in finding.text
    file.unlink()
    [finding] = address_checks.check_certificate(settings, "https://id.example.com", SystemClock().now())
    assert (finding.health, "cannot be read" in finding.text) == (Health.BAD, True)


def test_the_doctor_warns_about_a_base_url_without_tls() -> None:
    """Most clients do not return a cookie for https alone without TLS (security G-2)."""
    for url, health in (("https://id.example.com", Health.GOOD), ("http://id.example.com", Health.WARNING), (None, Health.WARNING)):
        assert address_checks.check_base_url(base_url(Settings(base_url=url))).health is health


@table(
    ("url", "advice"),
    [
        ("http://localhost:8080", None),
        ("http://sso.localhost:8080", None),
        ("https://id.example.com", None),
        ("http://127.0.0.1:8080", "Set SSO_BASE_URL to http://localhost:8080,"),
        ("http://[::1]:9090", "Set SSO_BASE_URL to http://localhost:9090,"),
        ("http://127.0.0.1", "Set SSO_BASE_URL to http://localhost,"),
        ("https://192.0.2.1", "Set SSO_BASE_URL to a URL with a domain,"),
        ("http://id.example.com", "Set SSO_BASE_URL to the public https URL"),
    ],
)
def test_the_doctor_warns_about_a_base_url_without_passkeys(url: str, advice: str | None) -> None:
    """In Chromium, `navigator.credentials` refuses numbers as RP ID, and does not exist without a secure context."""
    finding = address_checks.check_passkeys(url)
    assert finding.health is (Health.GOOD if advice is None else Health.WARNING)
    assert (advice or "") in finding.text


def test_the_doctor_names_identity_providers_and_warns_about_those_without_tls() -> None:
    assert [finding.health for finding in checks.check_providers(Settings())] == [Health.GOOD]
    names = ("authorize_url", "token_url", "userinfo_url", "emails_url")
    urls: dict[str, Any] = {f"codehost_{name}": "https://codehost.example/x" for name in names}
    [good] = checks.check_providers(Settings(**urls))
    assert (good.health, good.text) == (Health.GOOD, "codehost, for services with separate credentials")
    [warned] = checks.check_providers(Settings(**{**urls, "codehost_token_url": "http://codehost.example/x"}))
    assert warned.health is Health.WARNING
    assert "http://codehost.example/x" in warned.text
