"""What the doctor says of an installation that has something wrong with it."""

import importlib.metadata
from pathlib import Path
from typing import Any

import dns.resolver
import pytest

from entrypoints import doctor
from entrypoints.doctor import Health
from entrypoints.settings import Settings
from tests.fakes.dns_server import DnsServer
from tests.fakes.places import SHIPPED


def test_what_is_installed_here_is_above_every_floor() -> None:
    assert [finding.health for finding in doctor.libraries()] == [Health.GOOD]


@pytest.mark.parametrize("library", doctor.FLOORS)
def test_a_library_below_its_floor_is_bad(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.99" if name == library else real(name))
    [bad, _] = doctor.libraries()
    assert bad.health is Health.BAD
    assert f"install {doctor.FLOORS[library]} or later" in bad.text


@pytest.mark.parametrize(
    ("version", "health"),
    [((3, 11, 14), Health.WARNING), ((3, 11, 15), Health.GOOD), ((3, 13, 11), Health.WARNING), ((3, 14, 3), Health.GOOD)],
)
def test_an_interpreter_without_its_security_fix_is_warned_of(version: tuple[int, int, int], health: Health) -> None:
    assert doctor.interpreter(version).health is health


def test_a_misspelt_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSO_SMPT_URL", "smtp://mail.example.com")
    assert any(finding.health is Health.WARNING and "SSO_SMPT_URL" in finding.text for finding in doctor.unknown_settings())


def test_what_tenants_can_reach_that_is_not_public_is_warned_of() -> None:
    assert doctor.outbound(Settings()).health is Health.GOOD
    warned = doctor.outbound(Settings(outbound_allow="10.0.0.0/8,127.0.0.1:2525"))
    assert warned.health is Health.WARNING
    assert "10.0.0.0/8,127.0.0.1:2525" in warned.text
    assert doctor.outbound(Settings(outbound_allow="localhost")).health is Health.BAD


def test_each_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with DnsServer() as good, DnsServer() as failing:
        failing.codes[""] = "SERVFAIL"
        [fine, bad] = doctor.name_servers(Settings(dns_servers=(good.address, failing.address)))
        assert (fine.health, bad.health) == (Health.GOOD, Health.BAD)
        for finding, server in ((fine, good), (bad, failing)):
            assert "127.0.0.1:{1}".format(*server.address) in finding.text
            assert set(server.asked) == {("udp", "")}, "the root: nobody's domain is told to anybody"
        assert "SERVFAIL" in bad.text
    monkeypatch.setattr(doctor, "DNS_DEADLINE", 0.05)  # nobody listens there any more
    [silent] = doctor.name_servers(Settings(dns_servers=(good.address,)))
    assert silent.health is Health.BAD
    assert "Error" not in silent.text


def test_without_name_servers_that_are_set_those_of_the_system_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with DnsServer() as server:

        def read(resolver: dns.resolver.BaseResolver, _: object) -> None:
            resolver.nameservers, resolver.port = [server.address[0]], server.address[1]

        monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", read)
        assert [finding.health for finding in doctor.name_servers(Settings())] == [Health.GOOD]
        server.codes[""] = "REFUSED"
        [warned] = doctor.name_servers(Settings())
        assert warned.health is Health.WARNING, "the service does without, but for domains"
        assert "REFUSED" in warned.text


def test_lxml_and_xmlsec_share_their_library() -> None:
    assert doctor.xml().health is Health.GOOD


def test_a_file_of_places_is_tried_out(tmp_path: Path) -> None:
    assert doctor.locations(Settings()).health is Health.GOOD
    assert doctor.locations(Settings(geoip_database=SHIPPED)).health is Health.GOOD
    bad = doctor.locations(Settings(geoip_database=tmp_path / "missing.mmdb"))
    assert bad.health is Health.BAD
    assert "missing.mmdb cannot be read" in bad.text


def test_billing_is_told_and_what_is_missing_warned_of() -> None:
    on = {"billing_api_url": "https://api.provider.example", "billing_api_key": "sk_test"}
    secret = {"billing_webhook_secret": "whsec_one,whsec_two"}

    def found(**given: Any) -> tuple[Health, str]:
        finding = doctor.billing(Settings(**given))
        assert "sk_test" not in finding.text
        assert "whsec" not in finding.text
        return finding.health, finding.text

    assert found() == (Health.GOOD, "off: SSO_BILLING_API_URL is unset")
    assert found(**secret)[0] is Health.GOOD
    assert found(**on)[0] is Health.WARNING
    assert found(**on, **secret) == (
        Health.GOOD,
        "through https://api.provider.example; its events go to http://127.0.0.1:8080/webhooks/billing",
    )
    assert found(**{**on, "billing_api_url": "http://provider.example"}, **secret)[0] is Health.WARNING


def test_identity_providers_are_told_and_those_in_the_clear_warned_of() -> None:
    assert [finding.health for finding in doctor.providers(Settings())] == [Health.GOOD]
    names = ("authorize_url", "token_url", "userinfo_url", "emails_url")
    places: dict[str, Any] = {f"codehost_{name}": "https://codehost.example/x" for name in names}
    [good] = doctor.providers(Settings(**places))
    assert (good.health, good.text) == (Health.GOOD, "codehost, for services with credentials of their own")
    [warned] = doctor.providers(Settings(**{**places, "codehost_token_url": "http://codehost.example/x"}))
    assert warned.health is Health.WARNING
    assert "http://codehost.example/x" in warned.text
