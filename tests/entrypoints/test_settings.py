"""Settings: defaults, variables, and the messages for invalid values."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from adapters import crypto
from adapters.crypto import generate_key
from adapters.http.payments import PaymentSettings
from core.kernel import connections
from core.kernel.connections import ConnectionSettings, PlatformCredentials, ProviderClient, platform_connection
from core.kernel.policy import AndroidApp, IosApp, Policy, SupportContact
from entrypoints import adapters_of_settings, wiring
from entrypoints.adapters_of_settings import encryption_keys, mail_transport
from entrypoints.common_passwords import default_common_passwords
from entrypoints.settings import Settings, SettingsInvalid, load
from entrypoints.wiring import wire
from tests.tables import table

KEYS = "a:" + "A" * 43 + "="
GOLD: dict[str, Any] = {"name": "gold", "display_name": "Gold", "default_max_services": 50, "default_max_users": 500, "price_cents": 49_00}


OF_A_PROVIDER = ("client_id", "client_secret", "authorize_url", "token_url", "userinfo_url")
CODEHOST = {
    "CODEHOST_CLIENT_ID": "gatehouse",
    "CODEHOST_CLIENT_SECRET": "the secret at the code host",
    "CODEHOST_AUTHORIZE_URL": "https://codehost.example/authorize?prompt=select",
    "CODEHOST_TOKEN_URL": "https://codehost.example/token",
    "CODEHOST_USERINFO_URL": "https://api.codehost.example/user",
    "CODEHOST_EMAILS_URL": "https://api.codehost.example/user/emails",
    "CODEHOST_SCOPES": "gist  read:org",
}
OFFICESUITE = {
    "OFFICESUITE_AUTHORIZE_URL": "https://officesuite.example/authorize",
    "OFFICESUITE_TOKEN_URL": "https://officesuite.example/token",
    "OFFICESUITE_USERINFO_URL": "https://officesuite.example/userinfo",
    "OFFICESUITE_ISSUER": "https://officesuite.example/v2.0",
    "OFFICESUITE_JWKS_URL": "http://127.0.0.1:9000/keys",
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without settings and without a settings file."""
    for name in list(os.environ):
        if name.upper().startswith("SSO_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def settings_from(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Return a function that loads settings from an environment with these variables, without the prefix SSO_."""

    def load_with(**variables: str) -> Settings:
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(f"SSO_{name}", value)
            return load()

    return load_with


SettingsFrom = Callable[..., Settings]


def test_the_defaults_are_the_documented_ones(settings_from: SettingsFrom) -> None:
    settings = settings_from()
    assert settings.model_dump() == {
        "database_url": None,
        "data_dir": Path("var"),
        "bind": "localhost:8080",
        "base_url": None,
        "frontend_url": None,
        "tls_certificate": None,
        "tls_key": None,
        "tls_redirect_bind": None,
        "workers": 1,
        "db_pool_size": None,
        "encryption_keys": None,
        "api_audience": True,
        "access_token_ttl": 900,
        "refresh_token_ttl": 2592000,
        "session_absolute_ttl": 7776000,
        "fresh_sign_in_ttl": 600,
        "recent_sign_in_ttl": 3600,
        "verification_ttl": 86400,
        "reset_ttl": 3600,
        "welcome_ttl": 604800,
        "invitation_ttl": 604800,
        "setup_link_days": 14,
        "argon2_memory_kib": 19456,
        "argon2_time_cost": 2,
        "argon2_parallelism": 1,
        "smtp_url": None,
        "smtp_helo_name": None,
        "mail_from": settings.mail_from,
        "tiers": (),
        "platform_owner_email": None,
        "platform_owner_password": None,
        "auto_approve_organizations": False,
        "notify_owners_of_organizations": True,
        "key_environment": None,
        "dns_servers": (),
        "support_address": None,
        "outbound_allow": "",
        "outbound_ports": (),
        "outbound_ca_file": None,
        "client_document_bytes": 5120,
        "client_registration": False,
        "geoip_database": None,
        "anonymizer_networks_file": None,
        "trusted_proxies": (),
        "keep_alive": None,
        "rate_limits": "on",
        "client_rate": 20.0,
        "scim_string_status": False,
        "email_sign_in": False,
        "passkey_rp_id": None,
        "native_apps": (),
        "account_guess_limit": 10,
        "mfa_guess_limit": 10,
        "mails_per_recipient": 5,
        "invitations_per_day": 1000,
        "unverified_purge_days": 7,
        "failed_login_days": 90,
        "signing_key_lead_time": 600,
        "signing_key_max_age_days": 90,
        "export_login_events": 1000,
        "webhook_retry_delays": (0, 5, 300, 1800, 7200),
        "webhook_timeout": 10.0,
        "webhooks_per_organization": 50,
        **{f"billing_{name}": None for name in ("api_url", "api_key", "webhook_secret", "livemode")},
        "common_passwords_file": None,
        **{f"{provider}_{name}": None for provider in ("codehost", "websuite", "officesuite") for name in OF_A_PROVIDER},
        **{f"{provider}_{name}": None for provider in ("websuite", "officesuite") for name in ("issuer", "jwks_url")},
        **{f"{provider}_scopes": "" for provider in ("codehost", "websuite", "officesuite")},
        **{f"{provider}_display_name": None for provider in ("codehost", "websuite", "officesuite")},
        "codehost_emails_url": None,
        "log_format": "auto",
        "log_level": "info",
        "metrics_token": None,
    }
    assert settings.policy == Policy(common_passwords=default_common_passwords())
    assert settings.rate_limit_factor == 1.0
    assert settings.keep_alive_seconds == 5


def test_idle_connections_of_proxies_are_kept_longer(settings_from: SettingsFrom) -> None:
    assert settings_from(TRUSTED_PROXIES="127.0.0.1/32").keep_alive_seconds == 75
    assert settings_from(TRUSTED_PROXIES="127.0.0.1/32", KEEP_ALIVE="20").keep_alive_seconds == 20
    assert settings_from(KEEP_ALIVE="20").keep_alive_seconds == 20


def test_many_workers_share_the_connections_of_the_database(settings_from: SettingsFrom) -> None:
    sizes = [settings_from(WORKERS=str(workers)).database_connections for workers in range(1, 65)]
    assert sizes[:8] == [16, 16, 16, 16, 16, 14, 12, 10]
    assert max(workers * (size + 1) for workers, size in enumerate(sizes[:32], 1)) <= 97  # of `max_connections`, 3 are for administrators
    assert sizes[-1] == 2
    assert settings_from(WORKERS="64", DB_POOL_SIZE="20").database_connections == 20


def test_every_setting_is_read_from_its_variable(settings_from: SettingsFrom, tmp_path: Path) -> None:
    common = tmp_path / "common.txt"
    common.write_text("password1234\nQWERTYuiop\n", encoding="utf-8")
    settings = settings_from(
        DATABASE_URL="postgresql://gatehouse:hunter2@db/gatehouse",
        DATA_DIR="/srv/gatehouse",
        BIND="[::1]:9090",
        BASE_URL="https://id.example.com/",
        FRONTEND_URL="https://app.example.com",
        PASSKEY_RP_ID="Example.com",
        NATIVE_APPS="ios:ABCDE12345.com.example.app",
        WORKERS="4",
        DB_POOL_SIZE="20",
        ENCRYPTION_KEYS=KEYS,
        ACCESS_TOKEN_TTL="86400",
        REFRESH_TOKEN_TTL="3600",
        SESSION_ABSOLUTE_TTL="7200",
        FRESH_SIGN_IN_TTL="120",
        RECENT_SIGN_IN_TTL="180",
        VERIFICATION_TTL="600",
        RESET_TTL="300",
        WELCOME_TTL="259200",
        INVITATION_TTL="120",
        SETUP_LINK_DAYS="3",
        ARGON2_MEMORY_KIB="65536",
        ARGON2_TIME_COST="3",
        ARGON2_PARALLELISM="2",
        SMTP_URL="smtp://mail.example.com:587?starttls=1",
        SMTP_HELO_NAME="ID.example.com",
        MAIL_FROM="Gatehouse <id@example.com>",
        OUTBOUND_ALLOW="10.0.0.0/8,[fd00::/8]:443",
        GEOIP_DATABASE="/srv/cities.mmdb",
        ANONYMIZER_NETWORKS_FILE="/srv/vpns.txt",
        TIERS=json.dumps([GOLD]),
        PLATFORM_OWNER_EMAIL=" Ada@Example.com",
        PLATFORM_OWNER_PASSWORD="hunter2hunter2",
        AUTO_APPROVE_ORGANIZATIONS="true",
        CLIENT_REGISTRATION="true",
        KEY_ENVIRONMENT="live",
        TRUSTED_PROXIES="10.0.0.0/8, fd00::/8 ,192.0.2.1",
        RATE_LIMITS="2.5",
        EMAIL_SIGN_IN="on",
        ACCOUNT_GUESS_LIMIT="3",
        MFA_GUESS_LIMIT="6",
        MAILS_PER_RECIPIENT="2",
        INVITATIONS_PER_DAY="30",
        UNVERIFIED_PURGE_DAYS="1",
        EXPORT_LOGIN_EVENTS="100000",
        WEBHOOK_RETRY_DELAYS="1, 2,3,4,50",
        WEBHOOK_TIMEOUT="2.5",
        WEBHOOKS_PER_ORGANIZATION="7",
        COMMON_PASSWORDS_FILE=str(common),
        LOG_FORMAT="json",
        LOG_LEVEL="debug",
        METRICS_TOKEN="scrape me",
    )
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://gatehouse:hunter2@db/gatehouse"
    assert settings.data_dir == Path("/srv/gatehouse")
    assert (settings.bind, settings.base_url, settings.frontend_url) == ("[::1]:9090", "https://id.example.com", "https://app.example.com")
    assert (settings.workers, settings.db_pool_size) == (4, 20)
    assert (settings.argon2_memory_kib, settings.argon2_time_cost, settings.argon2_parallelism) == (65536, 3, 2)
    assert (settings.mail_from, settings.smtp_helo_name) == ("Gatehouse <id@example.com>", "id.example.com")
    assert settings.outbound_allow == "10.0.0.0/8,[fd00::/8]:443"
    assert settings.geoip_database == Path("/srv/cities.mmdb")
    assert settings.anonymizer_networks_file == Path("/srv/vpns.txt")
    assert [tier.model_dump() for tier in settings.tiers] == [GOLD]
    assert settings.platform_owner_email == "ada@example.com"
    assert settings.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("192.0.2.1/32"))
    assert settings.rate_limit_factor == 2.5
    assert (settings.log_format, settings.log_level) == ("json", "debug")
    assert settings.policy == Policy(
        access_token_ttl=timedelta(days=1),
        refresh_token_ttl=timedelta(hours=1),
        session_absolute_ttl=timedelta(hours=2),
        fresh_sign_in_ttl=timedelta(minutes=2),
        recent_sign_in_ttl=timedelta(minutes=3),
        verification_ttl=timedelta(minutes=10),
        reset_ttl=timedelta(minutes=5),
        welcome_ttl=timedelta(days=3),
        invitation_ttl=timedelta(minutes=2),
        setup_link_days=3,
        email_sign_in=True,
        account_guess_limit=3,
        mfa_guess_limit=6,
        mails_per_recipient=2,
        invitations_per_day=30,
        unverified_purge=timedelta(days=1),
        export_login_events=100_000,
        webhook_retry_delays=tuple(timedelta(seconds=delay) for delay in (1, 2, 3, 4, 50)),
        webhook_timeout=timedelta(seconds=2.5),
        webhooks_per_organization=7,
        auto_approve_organizations=True,
        client_registration=True,
        key_environment="live",
        frontend_url="https://app.example.com",
        passkey_rp_id="example.com",
        native_apps=(IosApp("ABCDE12345.com.example.app"),),
        common_passwords=frozenset({"password1234", "qwertyuiop"}),
    )


@table(("text", "host"), [("Example.com", "example.com"), ("b\u00fccher.example", "xn--bcher-kva.example"), ("localhost", "localhost")])
def test_the_host_of_passkeys_is_stored_as_browsers_write_it(settings_from: SettingsFrom, text: str, host: str) -> None:
    assert settings_from(PASSKEY_RP_ID=text).policy.passkey_rp_id == host


@table(
    "text",
    ["https://example.com", "example.com:443", "example.com/", "192.0.2.1", "[2001:db8::1]", "a..example", ".example.com", "a b.example"],
)
def test_a_host_of_passkeys_that_is_no_host_name_is_refused(settings_from: SettingsFrom, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_PASSKEY_RP_ID is not valid: must be a host name without scheme, port and path"):
        settings_from(PASSKEY_RP_ID=text)


@table("text", ["org", "localhost"])
def test_a_top_level_domain_is_no_host_of_passkeys(settings_from: SettingsFrom, text: str) -> None:
    """A host with a single label can only be the base URL's own host."""
    with pytest.raises(SettingsInvalid, match="browsers refuse a top-level domain"):
        settings_from(BASE_URL="https://login.example.org", PASSKEY_RP_ID=text)
    assert settings_from(BASE_URL=f"https://{text}", PASSKEY_RP_ID=text).policy.passkey_rp_id == text


def test_native_applications_are_listed_with_their_certificates(settings_from: SettingsFrom) -> None:
    first, second = "0a" * 32, ":".join(["FF"] * 32)  # as sha256sum and keytool print them
    text = f"ios:ABCDE12345.com.example.App-1, android:com.example.app_1:{first}+{second} ,android:org.example.other:{first}"
    apps = settings_from(NATIVE_APPS=text).policy.native_apps
    assert apps == (
        IosApp("ABCDE12345.com.example.App-1"),
        AndroidApp("com.example.app_1", (b"\n" * 32, b"\xff" * 32)),
        AndroidApp("org.example.other", (b"\n" * 32,)),
    )
    assert settings_from(NATIVE_APPS=",".join(map(str, apps))).policy.native_apps == apps


@table(
    "text",
    [
        "com.example.app",
        "ios:com.example.app",
        "ios:abcde12345.com.example.app",
        "ios:ABCDE12345.com.example.*",
        "android:com.example.app",
        "android:app:" + "0a" * 32,
        "android:com.example.app:" + "0a" * 31,
        "android:com.example.app:" + "0a" * 33,
        "android:com.example.app:" + "0g" * 32,
        "android:com.example.app:" + "0a" * 32 + "+",
        "https://app.example.com",
    ],
)
def test_native_applications_without_their_owner_are_refused(settings_from: SettingsFrom, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_NATIVE_APPS is not valid: must be applications such as ios:ABCDE12345"):
        settings_from(NATIVE_APPS=text)


@table(
    ("address", "setting", "name"),
    [
        ("https://codehost.example/authorize", "", "Codehost"),
        ("https://github.com/login/oauth/authorize", "", "GitHub"),
        ("https://accounts.google.com/o/oauth2/v2/auth", "", "Google"),
        ("https://Login.MicrosoftOnline.com/common/oauth2/v2.0/authorize", "", "Microsoft"),
        ("https://github.com.example/authorize", "", "Codehost"),
        ("https://github.com/login/oauth/authorize", " Acme's GitHub ", "Acme's GitHub"),
    ],
)
def test_a_provider_has_the_name_of_the_setting_or_of_its_address(
    settings_from: SettingsFrom, address: str, setting: str, name: str
) -> None:
    settings = settings_from(**CODEHOST | {"CODEHOST_AUTHORIZE_URL": address, "CODEHOST_DISPLAY_NAME": setting})
    names = {connections.CODEHOST: name, connections.WEBSUITE: "Websuite", connections.OFFICESUITE: "Officesuite"}
    assert settings.policy.provider_names == names


@table(
    ("text", "address"),
    [(" Help@Example.com", "help@example.com"), ("https://example.com/help?from=id", "https://example.com/help?from=id"), ("", None)],
)
def test_the_support_address_is_an_email_address_or_an_https_url(settings_from: SettingsFrom, text: str, address: str | None) -> None:
    assert settings_from(SUPPORT_ADDRESS=text).policy.support == (None if address is None else SupportContact(address))


@table("text", ["help", "http://example.com/help", "javascript:alert(1)", "https://", 'https://example.com/" onclick="x'])
def test_other_support_addresses_are_refused(settings_from: SettingsFrom, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_SUPPORT_ADDRESS is not valid: must be an email address or an https URL, such as "):
        settings_from(SUPPORT_ADDRESS=text)


def test_two_providers_do_not_have_the_same_name(settings_from: SettingsFrom) -> None:
    with pytest.raises(SettingsInvalid, match=r"^Two identity providers are named Officesuite "):
        settings_from(**CODEHOST, **OFFICESUITE, CODEHOST_DISPLAY_NAME="Officesuite")


@table(("text", "factor"), [("on", 1.0), ("off", None), ("10", 10.0), ("0.5", 0.5), ("1e3", 1000.0)])
def test_rate_limits_are_on_off_or_a_factor(settings_from: SettingsFrom, text: str, factor: float | None) -> None:
    assert settings_from(RATE_LIMITS=text).rate_limit_factor == factor


def test_a_unix_socket_needs_a_base_url(settings_from: SettingsFrom) -> None:
    for bind in ("unix:/run/gatehouse/gatehouse.sock", "systemd"):
        settings = settings_from(BIND=bind, BASE_URL="https://id.example.com")
        assert (settings.bind, settings.keep_alive_seconds) == (bind, 75)
        with pytest.raises(SettingsInvalid, match="SSO_BASE_URL is required"):
            settings_from(BIND=bind, BASE_URL="")


@table("bind", ["unix:", "unix:gatehouse.sock", "unix:/run/", f"unix:/{'x' * 107}"])
def test_an_unusable_path_of_a_unix_socket_is_refused(settings_from: SettingsFrom, bind: str) -> None:
    with pytest.raises(SettingsInvalid, match="must have an absolute path"):
        settings_from(BIND=bind, BASE_URL="https://id.example.com")


@table("bind", ["127.0.0.1:8080", "0.0.0.0:80", "[::]:8080", "[::1]:0", "localhost:65535", ":8080"])
def test_valid_bind_addresses_are_accepted(settings_from: SettingsFrom, bind: str) -> None:
    assert settings_from(BIND=bind).bind == bind


@table(("text", "networks"), [("", 0), ("10.0.0.1", 1), ("10.0.0.0/8,", 1), (" , ", 0), ("::1,127.0.0.1", 2)])
def test_proxies_are_a_list_of_networks(settings_from: SettingsFrom, text: str, networks: int) -> None:
    assert len(settings_from(TRUSTED_PROXIES=text).trusted_proxies) == networks


@table(("text", "ports"), [("", {443}), ("8443", {443, 8443}), (" 8443, 9443,", {443, 8443, 9443})])
def test_ports_of_keys_are_a_list_beside_443(settings_from: SettingsFrom, text: str, ports: set[int]) -> None:
    assert settings_from(OUTBOUND_PORTS=text).policy.key_ports == ports


@table("text", ["0", "65536", "https", "8443;9443", "8443-8450"])
def test_other_ports_are_refused(settings_from: SettingsFrom, text: str) -> None:
    with pytest.raises(SettingsInvalid, match="SSO_OUTBOUND_PORTS"):
        settings_from(OUTBOUND_PORTS=text)


def test_name_servers_are_addresses_with_or_without_a_port(settings_from: SettingsFrom) -> None:
    text = "192.0.2.1, 192.0.2.2:5353 ,2001:db8::1,[2001:DB8::2]:5354"
    servers = (("192.0.2.1", 53), ("192.0.2.2", 5353), ("2001:db8::1", 53), ("2001:db8::2", 5354))
    assert settings_from(DNS_SERVERS=text).dns_servers == servers


def test_an_empty_variable_counts_as_unset(settings_from: SettingsFrom) -> None:
    settings = settings_from(BASE_URL="", WORKERS="", DATABASE_URL="", SMTP_URL="", PLATFORM_OWNER_EMAIL="", METRICS_TOKEN="", LOG_LEVEL="")
    assert settings == Settings()


def test_unknown_variables_are_ignored(settings_from: SettingsFrom) -> None:
    settings_from(SOMETHING_ELSE="x", PATH="x")


# Invalid values

BAD_TIERS: list[dict[str, Any]] = [
    *({"name": name} for name in ("", "Gold", "gold ", "go ld", "-gold", "go--ld", "gold\n", "x" * 101, 5, None)),
    *({"display_name": name} for name in ("", " ", "x" * 101, "Go\nld", "Go\u0000ld", 5, None)),
    *(
        {field: amount}
        for field in ("default_max_services", "default_max_users", "price_cents")
        for amount in (-1, 2**31, 1.5, "5", True, None)
    ),
    {"prize_cents": 5},
]
REFUSED = {
    "BIND": ["8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "x:1e3"],
    "BASE_URL": [
        "id.example.com",
        "ftp://id.example.com",
        "https://",
        "https://id.example.com?x=1",
        "https://id.example.com#x",
        "https://user:pass@id.example.com",
        "http://[::1",
        "javascript:alert(1)",
    ],
    "FRONTEND_URL": ["app.example.com", "*", "null", "https://"],
    "WORKERS": ["0", "-1", "65", "two", "1.5"],
    "DB_POOL_SIZE": ["1", "0", "x", "1001"],
    "ACCESS_TOKEN_TTL": ["0", "-5", "86401", "15m"],
    "REFRESH_TOKEN_TTL": ["0", "x", "9" * 30],
    "SESSION_ABSOLUTE_TTL": ["0", "x", "9" * 30],
    "ARGON2_MEMORY_KIB": ["7", "x", "9" * 30],
    "ARGON2_TIME_COST": ["0", "x"],
    "ARGON2_PARALLELISM": ["0", "17"],
    "TRUSTED_PROXIES": ["proxy", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/8;10.1.0.0/16", "*"],
    "DNS_SERVERS": [
        *("dns.example", "localhost:53", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:dns", "192.0.2.1:" + "9" * 5000),
        *("192.0.2.256", "[192.0.2.1]:53", "[2001:db8::1]", "[2001:db8::1", "192.0.2.1;192.0.2.2", "192.0.2.0/24", "192.0.2.1,x"),
        *(",", " ", " , "),
    ],
    "RATE_LIMITS": ["yes", "0", "-1", "nan", "inf", "-inf", "ON", "1,5"],
    "TIERS": [
        "gold",
        "{}",
        "null",
        "5",
        "[1]",
        "[[]]",
        "[{}",
        "[" * 100_000,
        "[" + "1" * 10_000 + "]",
        *(json.dumps([GOLD | change]) for change in BAD_TIERS),
        json.dumps([{name: value for name, value in GOLD.items() if name != "price_cents"}]),
        json.dumps([GOLD, GOLD]),
    ],
    "AUTO_APPROVE_ORGANIZATIONS": ["maybe", "2"],
    "CLIENT_REGISTRATION": ["maybe", "2"],
    "KEY_ENVIRONMENT": ["prod", "LIVE", "live,test"],
    "ACCOUNT_GUESS_LIMIT": ["0", "x"],
    "MFA_GUESS_LIMIT": ["0", "x"],
    "MAILS_PER_RECIPIENT": ["0", "x"],
    "UNVERIFIED_PURGE_DAYS": ["0", "x", "9" * 12],
    "LOG_FORMAT": ["xml", "JSON"],
    "LOG_LEVEL": ["loud", "INFO!"],
}


def refused() -> Iterator[tuple[str, str]]:
    return ((name, value) for name, values in REFUSED.items() for value in values)


@table(("name", "value"), list(refused()))
def test_an_invalid_value_is_reported_in_one_sentence_with_its_variable(settings_from: SettingsFrom, name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid) as refusal:
        # An accepted value must not fail later, where it is used.
        _ = settings_from(**{name: value}).policy
    sentence = str(refusal.value)
    assert sentence.startswith(f"SSO_{name} ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert "pydantic" not in sentence


@table(
    ("tiers", "sentences"),
    [
        (
            "gold",
            ["must be a JSON array of objects with the fields name, display_name, default_max_services, default_max_users, price_cents"],
        ),
        ([GOLD, {**GOLD, "name": "Silver"}], ["number 2, name: it must have at most 100 lower-case letters and digits,"]),
        ([{**GOLD, "price_cents": -5}], ["number 1, price_cents: input should be greater than or equal to 0"]),
        (
            [{"name": "gold", "display_name": "Gold", "default_max_services": 1, "price_cents": 1}],
            ["number 1, default_max_users: field required"],
        ),
        ([{**GOLD, "prize": 1, "price_cents": "9"}], ["number 1, price_cents: ", "number 1, prize: "]),
        ([GOLD, {**GOLD, "display_name": "Other"}], ["the tier gold is listed twice"]),
    ],
)
def test_the_error_names_the_invalid_tier_and_its_problem(settings_from: SettingsFrom, tiers: object, sentences: list[str]) -> None:
    with pytest.raises(SettingsInvalid) as refusal:
        settings_from(TIERS=tiers if isinstance(tiers, str) else json.dumps(tiers))
    lines = str(refusal.value).splitlines()
    assert len(lines) == len(sentences)
    for line, sentence in zip(lines, sentences, strict=True):
        assert line.startswith(f"SSO_TIERS is not valid: {sentence}")


def test_a_tier_keeps_its_name_and_gets_a_new_id(settings_from: SettingsFrom) -> None:
    settings = settings_from(TIERS=json.dumps([{**GOLD, "name": "gold_2026-b", "display_name": " Gold ", "price_cents": 0}]))
    [tier] = [tier.tier() for tier in settings.tiers]
    assert (tier.name, tier.display_name, tier.default_max_services, tier.default_max_users, tier.price_cents) == (
        "gold_2026-b",
        "Gold",
        50,
        500,
        0,
    )
    assert tier.id != settings.tiers[0].tier().id


def test_the_email_address_of_the_platform_owner_is_validated(settings_from: SettingsFrom) -> None:
    with pytest.raises(
        SettingsInvalid, match=r"^SSO_PLATFORM_OWNER_EMAIL is not valid: the email address is not valid\. Check it for typos\.+$"
    ):
        settings_from(PLATFORM_OWNER_EMAIL="no-address", PLATFORM_OWNER_PASSWORD="hunter2hunter2")


def test_the_password_of_the_platform_owner_needs_an_email_address(settings_from: SettingsFrom) -> None:
    assert settings_from(PLATFORM_OWNER_EMAIL="ada@example.com").platform_owner_password is None
    with pytest.raises(SettingsInvalid, match=r"^SSO_PLATFORM_OWNER_EMAIL is required with SSO_PLATFORM_OWNER_PASSWORD"):
        settings_from(PLATFORM_OWNER_EMAIL="", PLATFORM_OWNER_PASSWORD="hunter2hunter2")


def test_a_fresh_sign_in_is_recent_too(settings_from: SettingsFrom) -> None:
    with pytest.raises(SettingsInvalid, match="SSO_RECENT_SIGN_IN_TTL must be at least SSO_FRESH_SIGN_IN_TTL"):
        settings_from(RECENT_SIGN_IN_TTL="599")
    settings_from(RECENT_SIGN_IN_TTL="600")


TLS = {"TLS_CERTIFICATE": "certificate.pem", "TLS_KEY": "key.pem"}


@table(
    ("settings", "problem"),
    [
        ({"TLS_CERTIFICATE": "certificate.pem"}, "Set both SSO_TLS_CERTIFICATE and SSO_TLS_KEY"),
        ({"TLS_KEY": "key.pem"}, "Set both SSO_TLS_CERTIFICATE and SSO_TLS_KEY"),
        ({"TLS_REDIRECT_BIND": ":80"}, "SSO_TLS_REDIRECT_BIND needs SSO_TLS_CERTIFICATE"),
        ({**TLS, "TLS_REDIRECT_BIND": "systemd"}, "SSO_TLS_REDIRECT_BIND must be an address"),
        ({**TLS, "BIND": "unix:/run/gatehouse.sock", "BASE_URL": "https://id.example.com"}, "SSO_TLS_CERTIFICATE needs a port in SSO_BIND"),
        ({**TLS, "BASE_URL": "http://id.example.com"}, "SSO_BASE_URL must begin with https"),
    ],
)
def test_settings_of_tls_that_contradict_each_other_are_refused(
    settings_from: SettingsFrom, settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(SettingsInvalid, match=problem):
        settings_from(**settings)


def test_clients_with_tls_come_without_a_proxy_also_through_systemd(settings_from: SettingsFrom) -> None:
    for more, is_behind_proxy in (({}, True), (TLS, False)):
        assert settings_from(BIND="systemd", BASE_URL="https://id.example.com", **more).is_behind_proxy is is_behind_proxy


def test_an_external_database_requires_encryption_keys(settings_from: SettingsFrom) -> None:
    with pytest.raises(SettingsInvalid, match="SSO_ENCRYPTION_KEYS is required"):
        settings_from(DATABASE_URL="postgresql://db/gatehouse")


# The wiring checks the values that only adapters understand, before the service listens. It reports
# them in the same way.


@table("keys", ["x", "a:", "a:short", "a:AAAA", KEYS + "," + KEYS, ":" + "A" * 43 + "=", "a b:" + "A" * 43 + "=", "a:" + "A" * 42 + "!="])
async def test_unusable_encryption_keys_are_refused_at_startup(settings_from: SettingsFrom, keys: str) -> None:
    settings = settings_from(DATABASE_URL="postgresql://db/gatehouse", ENCRYPTION_KEYS=keys)
    with pytest.raises(SettingsInvalid, match=r"^SSO_ENCRYPTION_KEYS ") as refusal:
        async with wire(settings, "http://localhost", "host=127.0.0.1 port=1"):
            pass
    assert "A" * 40 not in str(refusal.value)


@table("url", ["mail.example.com", "http://mail.example.com", "smtp://", "smtp://u:hunter2#@mail", "smtp://u:hunter2@"])
def test_a_malformed_mail_server_url_is_refused_at_startup(settings_from: SettingsFrom, url: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_SMTP_URL .*\.$") as refusal:
        mail_transport(settings_from(SMTP_URL=url))
    assert "hunter2" not in str(refusal.value)


@table("name", ["localhost", "127.0.0.1", "[127.0.0.1]", "id.example.com:25", "id example.com", "id.example.com."])
def test_a_malformed_name_for_mail_servers_is_refused_at_startup(settings_from: SettingsFrom, name: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_SMTP_HELO_NAME is not valid: must be a host name with a dot"):
        settings_from(SMTP_HELO_NAME=name)


@pytest.mark.parametrize("text", ["localhost", "10.0.0.1/8", "127.0.0.1:smtp", "fd00::/8:443", "10.0.0.0/8;fd00::/8"])
def test_malformed_allowed_targets_are_refused_at_startup(settings_from: SettingsFrom, tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_OUTBOUND_ALLOW has an entry, number 1, .*\.$"):
        wiring.check_settings(settings_from(DATA_DIR=str(tmp_path), OUTBOUND_ALLOW=text))


@table("sender", ["no-address", "Gatehouse <>", "a@b, c@d", "Gatehouse <id@example.com>\r\nBcc: x@example.com"])
@table("others", [{}, {"SMTP_URL": "smtp://mail.example.com"}])
def test_a_malformed_sender_is_refused_at_startup(settings_from: SettingsFrom, sender: str, others: dict[str, str]) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_MAIL_FROM .*\.$"):
        mail_transport(settings_from(MAIL_FROM=sender, **others))


def test_an_unreadable_password_list_is_refused_at_startup(settings_from: SettingsFrom, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "nothing", tmp_path, binary):
        with pytest.raises(SettingsInvalid, match=r"^SSO_COMMON_PASSWORDS_FILE "):
            _ = settings_from(COMMON_PASSWORDS_FILE=str(path)).policy


def test_all_errors_are_reported_at_once(settings_from: SettingsFrom) -> None:
    with pytest.raises(SettingsInvalid) as refusal:
        settings_from(WORKERS="0", BIND="x", LOG_LEVEL="loud")
    sentences = str(refusal.value).splitlines()
    assert sorted(sentence.split()[0] for sentence in sentences) == ["SSO_BIND", "SSO_LOG_LEVEL", "SSO_WORKERS"]


def test_secrets_are_masked_and_never_quoted(settings_from: SettingsFrom) -> None:
    secrets = {
        "DATABASE_URL": "postgresql://u:hunter2@db/x",
        "SMTP_URL": "smtp://u:hunter2@mail:25",
        "PLATFORM_OWNER_EMAIL": "ada@example.com",
        "PLATFORM_OWNER_PASSWORD": "hunter2hunter2",
        "METRICS_TOKEN": "hunter2",
    }
    settings = settings_from(ENCRYPTION_KEYS=KEYS, **secrets)
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "hunter2" not in shown
        assert KEYS not in shown
    with pytest.raises(SettingsInvalid) as refusal:
        settings_from(BASE_URL="https://user:hunter2@id.example.com", **secrets)
    assert "hunter2" not in str(refusal.value)


def test_settings_cannot_be_changed(settings_from: SettingsFrom) -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings_from().workers = 2  # type: ignore[misc]


def test_two_concurrent_first_starts_use_the_same_encryption_keys(
    settings_from: SettingsFrom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_from(DATA_DIR=str(tmp_path))
    others: list[str] = []

    def start_another_process() -> str:
        if not others:
            others.append("")
            others[0] = encryption_keys(settings)
        return generate_key()

    monkeypatch.setattr(crypto, "generate_key", start_another_process)
    assert encryption_keys(settings) == others[0] == encryption_keys(settings)
    assert [path.name for path in tmp_path.iterdir()] == ["encryption-keys"]
    assert (tmp_path / "encryption-keys").stat().st_mode & 0o777 == 0o600


def test_an_unusable_key_file_is_reported_in_a_sentence(settings_from: SettingsFrom, tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"nowhere/encryption-keys cannot be created: No such file or directory\.$"):
        encryption_keys(settings_from(DATA_DIR=str(tmp_path / "nowhere")))
    (tmp_path / "encryption-keys").mkdir()
    with pytest.raises(SettingsInvalid, match=r"encryption-keys cannot be read: Is a directory\.$"):
        encryption_keys(settings_from(DATA_DIR=str(tmp_path)))


# Identity providers


def test_a_provider_is_configured_by_all_its_settings(settings_from: SettingsFrom) -> None:
    settings = settings_from(**CODEHOST, **OFFICESUITE)
    expected = {
        connections.CODEHOST: ConnectionSettings(
            client_id="gatehouse",
            authorize_url="https://codehost.example/authorize?prompt=select",
            token_url="https://codehost.example/token",
            userinfo_url="https://api.codehost.example/user",
            emails_url="https://api.codehost.example/user/emails",
            scopes=("gist", "read:org"),
        ),
        connections.OFFICESUITE: ConnectionSettings(
            client_id=None,
            authorize_url="https://officesuite.example/authorize",
            token_url="https://officesuite.example/token",
            userinfo_url="https://officesuite.example/userinfo",
            issuer="https://officesuite.example/v2.0",
            jwks_url="http://127.0.0.1:9000/keys",
            verifies_emails=False,
        ),
    }
    clients = [ProviderClient("gatehouse", "the secret at the code host"), None]
    assert adapters_of_settings.platform_connections(settings) == [
        PlatformCredentials(platform_connection(slug, each), client) for (slug, each), client in zip(expected.items(), clients, strict=True)
    ]
    assert "the secret at" not in repr(settings)


@table("missing", sorted(CODEHOST.keys() - {"CODEHOST_SCOPES"}))
def test_an_incomplete_provider_is_refused(settings_from: SettingsFrom, missing: str) -> None:
    with pytest.raises(SettingsInvalid, match=rf"^SSO_{missing} is missing for codehost\.$"):
        settings_from(**{name: value for name, value in CODEHOST.items() if name != missing})


@table(
    "url",
    [
        "codehost.example",
        "ftp://codehost.example/x",
        "https://user@codehost.example",
        "https://x/#y",
        "https://x:0/",
        "https://[",
        "https:///x",
    ],
)
def test_an_endpoint_must_be_a_url(settings_from: SettingsFrom, url: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_CODEHOST_TOKEN_URL is not valid: must be an http or https URL"):
        settings_from(**{**CODEHOST, "CODEHOST_TOKEN_URL": url})


def test_invalid_scopes_are_refused(settings_from: SettingsFrom) -> None:
    with pytest.raises(SettingsInvalid, match=r"^SSO_CODEHOST_SCOPES is not valid: must be scopes separated by spaces"):
        settings_from(**{**CODEHOST, "CODEHOST_SCOPES": 'a "quoted" one'})


def test_billing_is_configured_by_url_key_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert adapters_of_settings.payment_settings(Settings()) is None
    assert Settings().billing_secrets == ()
    for name, value in {
        "API_URL": "https://api.provider.example",
        "API_KEY": "sk_test",
        "WEBHOOK_SECRET": "whsec_one,whsec_two",
        "LIVEMODE": "true",
    }.items():
        monkeypatch.setenv(f"SSO_BILLING_{name}", value)
    settings = load()
    assert adapters_of_settings.payment_settings(settings) == PaymentSettings("https://api.provider.example", "sk_test")
    assert settings.billing_secrets == ("whsec_one", "whsec_two")
    assert settings.policy.billing_livemode is True
    for shown in (repr(settings), repr(adapters_of_settings.payment_settings(settings))):
        assert "sk_test" not in shown
        assert "whsec" not in shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"BILLING_API_URL": "https://api.provider.example"}, "SSO_BILLING_API_KEY"),
        ({"BILLING_API_KEY": "sk_test"}, "SSO_BILLING_API_URL"),
        ({"BILLING_API_URL": "api.provider.example", "BILLING_API_KEY": "sk_test"}, "SSO_BILLING_API_URL"),
        ({"BILLING_API_URL": "https://provider.example?a=1", "BILLING_API_KEY": "sk_test"}, "SSO_BILLING_API_URL .* must not have a query"),
        ({"BILLING_API_URL": "https://provider.example/#a", "BILLING_API_KEY": "sk_test"}, "SSO_BILLING_API_URL .* without .* fragment"),
        ({"BILLING_API_URL": "https://api.provider.example", "BILLING_API_KEY": "sk test"}, "SSO_BILLING_API_KEY"),
        ({"BILLING_WEBHOOK_SECRET": "whsec_one,,whsec_two"}, "SSO_BILLING_WEBHOOK_SECRET"),
        ({"BILLING_LIVEMODE": "perhaps"}, "SSO_BILLING_LIVEMODE"),
    ],
)
def test_an_incomplete_billing_configuration_is_refused(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], message: str) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"SSO_{name}", value)
    with pytest.raises(SettingsInvalid, match=message) as refused:
        load()
    assert "sk_test" not in str(refused.value)
    assert "whsec" not in str(refused.value)


def test_documents_and_keys_of_clients_are_read_from_this_machine_only_where_the_issuer_is_on_it() -> None:
    settings = Settings(outbound_allow="10.0.0.0/8")
    [allowed, *_] = adapters_of_settings.allowed_targets(settings)
    for issuer, networks in {
        "https://sso.example.com": [],
        "http://localhost:8000": ["127.0.0.0/8", "::1/128"],
        "http://127.0.0.1:8000": ["127.0.0.0/8", "::1/128"],
        "http://[::1]:8000": ["127.0.0.0/8", "::1/128"],
        "https://localhost.example.com": [],
    }.items():
        targets = adapters_of_settings.client_targets(settings, issuer)
        assert [str(target.network) for target in targets] == [str(allowed.network), *networks], issuer
