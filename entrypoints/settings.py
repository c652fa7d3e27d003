"""The operator's settings: environment variables that start with SSO_, validated once at start."""

import os
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from core.kernel import connections
from core.kernel.policy import PROVIDER_NAMES, Policy, SupportContact
from core.setup.model.links import MAX_DAYS
from entrypoints import setting_types
from entrypoints.bind import LOOPBACK_ADDRESSES, has_own_address, is_localhost, unix_path

# Well-known providers' sign-in pages. A provider that is configured with such a page is shown by this name.
PROVIDER_HOSTS = {"github.com": "GitHub", "accounts.google.com": "Google", "login.microsoftonline.com": "Microsoft"}
TEN_YEARS = 10 * 365 * 86400  # seconds
KEEP_ALIVE = 5  # seconds without a request until a connection is closed
# Seconds. Verifiers may cache the key set for 300 seconds, and a process that misses a notification
# publishes a new key up to 66 seconds late.
SHORTEST_LEAD_TIME = 400


class SettingsInvalid(Exception):
    """The settings are not valid. The message has a sentence for every error."""


class Settings(BaseModel):
    """Every setting, with its default. Secrets are masked when shown."""

    model_config = ConfigDict(frozen=True, validate_default=True)

    database_url: SecretStr | None = None
    data_dir: Path = Path("var")
    bind: setting_types.Bind = "localhost:8080"
    base_url: setting_types.BaseUrl | None = None
    frontend_url: setting_types.FrontendUrl | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_redirect_bind: setting_types.Bind | None = None
    workers: int = Field(1, ge=1, le=64)
    db_pool_size: int | None = Field(None, ge=2, le=1000)
    encryption_keys: SecretStr | None = None
    api_audience: bool = True
    access_token_ttl: int = Field(900, ge=1, le=86400)
    signing_key_lead_time: int = Field(600, ge=SHORTEST_LEAD_TIME, le=86400)
    signing_key_max_age_days: int = Field(90, ge=0, le=3650)
    refresh_token_ttl: int = Field(30 * 86400, ge=1, le=TEN_YEARS)
    session_absolute_ttl: int = Field(90 * 86400, ge=1, le=TEN_YEARS)
    fresh_sign_in_ttl: int = Field(600, ge=60, le=86400)
    recent_sign_in_ttl: int = Field(3600, ge=60, le=TEN_YEARS)
    verification_ttl: int = Field(86400, ge=1, le=TEN_YEARS)
    reset_ttl: int = Field(3600, ge=1, le=TEN_YEARS)
    welcome_ttl: int = Field(7 * 86400, ge=1, le=30 * 86400)
    invitation_ttl: int = Field(7 * 86400, ge=1, le=TEN_YEARS)
    email_sign_in: bool = False
    passkey_rp_id: setting_types.PasskeyRpId | None = None
    native_apps: setting_types.NativeApps = ()
    argon2_memory_kib: int = Field(19456, ge=8, le=4 * 1024 * 1024)
    argon2_time_cost: int = Field(2, ge=1, le=100)
    argon2_parallelism: int = Field(1, ge=1, le=16)
    dns_servers: setting_types.DnsServers = ()
    smtp_url: SecretStr | None = None
    smtp_helo_name: setting_types.HostName | None = None
    mail_from: str = "Gatehouse <gatehouse@localhost.localdomain>"
    support_address: setting_types.SupportAddress | None = None
    outbound_allow: str = ""
    outbound_ports: setting_types.Ports = ()
    outbound_ca_file: Path | None = None
    client_document_bytes: int = Field(5120, ge=1024, le=65_536 - 1)
    client_registration: bool = False
    geoip_database: Path | None = None
    anonymizer_networks_file: Path | None = None
    tiers: setting_types.Tiers = ()
    platform_owner_email: setting_types.EmailAddress | None = None
    platform_owner_password: SecretStr | None = None
    auto_approve_organizations: bool = False
    notify_owners_of_organizations: bool = True
    key_environment: Literal["live", "test"] | None = None
    trusted_proxies: setting_types.Networks = ()
    keep_alive: int | None = Field(None, ge=1, le=3600)
    rate_limits: setting_types.RateLimits = "on"
    client_rate: float = Field(20.0, gt=0, lt=1e6)
    scim_string_status: bool = False
    account_guess_limit: int = Field(10, ge=1, le=1_000_000)
    mfa_guess_limit: int = Field(10, ge=1, le=1_000_000)
    mails_per_recipient: int = Field(5, ge=1, le=1_000_000)
    invitations_per_day: int = Field(1000, ge=1, le=1_000_000)
    setup_link_days: int = Field(MAX_DAYS, ge=1, le=MAX_DAYS)
    webhook_retry_delays: setting_types.Delays = (0, 5, 300, 1800, 7200)
    webhook_timeout: float = Field(10, ge=0.1, le=60)
    webhooks_per_organization: int = Field(50, ge=1, le=10_000)
    unverified_purge_days: int = Field(7, ge=1, le=3650)
    failed_login_days: int = Field(90, ge=1, le=3650)
    export_login_events: int = Field(1000, ge=1, le=1_000_000_000)
    common_passwords_file: setting_types.CommonPasswordsFile = None
    codehost_client_id: str | None = None
    codehost_client_secret: SecretStr | None = None
    codehost_authorize_url: setting_types.Endpoint | None = None
    codehost_token_url: setting_types.Endpoint | None = None
    codehost_userinfo_url: setting_types.Endpoint | None = None
    codehost_emails_url: setting_types.Endpoint | None = None
    codehost_scopes: setting_types.Scopes = ""
    codehost_display_name: setting_types.DisplayName | None = None
    websuite_client_id: str | None = None
    websuite_client_secret: SecretStr | None = None
    websuite_authorize_url: setting_types.Endpoint | None = None
    websuite_token_url: setting_types.Endpoint | None = None
    websuite_userinfo_url: setting_types.Endpoint | None = None
    websuite_issuer: str | None = None
    websuite_jwks_url: setting_types.Endpoint | None = None
    websuite_scopes: setting_types.Scopes = ""
    websuite_display_name: setting_types.DisplayName | None = None
    officesuite_client_id: str | None = None
    officesuite_client_secret: SecretStr | None = None
    officesuite_authorize_url: setting_types.Endpoint | None = None
    officesuite_token_url: setting_types.Endpoint | None = None
    officesuite_userinfo_url: setting_types.Endpoint | None = None
    officesuite_issuer: str | None = None
    officesuite_jwks_url: setting_types.Endpoint | None = None
    officesuite_scopes: setting_types.Scopes = ""
    officesuite_display_name: setting_types.DisplayName | None = None
    billing_api_url: setting_types.ApiUrl | None = None
    billing_api_key: setting_types.AsciiSecret = None
    billing_webhook_secret: setting_types.AsciiSecret = None
    billing_livemode: bool | None = None
    log_format: setting_types.LogFormat = "auto"
    log_level: setting_types.LogLevel = "info"
    metrics_token: SecretStr | None = None

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.platform_owner_email is None and self.platform_owner_password is not None:
            raise ValueError("SSO_PLATFORM_OWNER_EMAIL is required with SSO_PLATFORM_OWNER_PASSWORD; set the address of the first owner")
        if self.database_url is not None and self.encryption_keys is None:
            raise ValueError("SSO_ENCRYPTION_KEYS is required with SSO_DATABASE_URL; create a key with: gatehouse keys generate")
        if self.base_url is None and not has_own_address(self.bind):
            raise ValueError(f"SSO_BASE_URL is required with SSO_BIND={self.bind}; set the public URL, such as https://id.example.com")
        self._check_tls()
        if self.recent_sign_in_ttl < self.fresh_sign_in_ttl:  # our pages ask for a fresh sign-in, which must be enough
            raise ValueError("SSO_RECENT_SIGN_IN_TTL must be at least SSO_FRESH_SIGN_IN_TTL")
        if (self.billing_api_url is None) != (self.billing_api_key is None):
            raise ValueError("set both SSO_BILLING_API_URL and SSO_BILLING_API_KEY, or neither")
        host = "localhost" if self.base_url is None else urlsplit(self.base_url).hostname
        if self.passkey_rp_id is not None and "." not in self.passkey_rp_id and self.passkey_rp_id != host:
            raise ValueError("SSO_PASSKEY_RP_ID must be the host of SSO_BASE_URL or a domain above it: browsers refuse a top-level domain")
        for slug in connections.PLATFORM_CONNECTIONS:
            self._check_connection(slug)
        names = [self.display_name_of(slug) for slug in connections.PLATFORM_CONNECTIONS if self.of_connection(slug)["token_url"]]
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two identity providers are named {duplicate} on pages; set SSO_<PROVIDER>_DISPLAY_NAME for one of them")
        return self

    def _check_tls(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("set both SSO_TLS_CERTIFICATE and SSO_TLS_KEY, or neither")
        if self.tls_certificate is None:
            if self.tls_redirect_bind is not None:
                raise ValueError("SSO_TLS_REDIRECT_BIND needs SSO_TLS_CERTIFICATE; a proxy that ends TLS redirects by itself")
            return
        if unix_path(self.bind) is not None:
            raise ValueError("SSO_TLS_CERTIFICATE needs a port in SSO_BIND, such as :443; a proxy at a Unix socket ends TLS itself")
        if self.tls_redirect_bind is not None and not has_own_address(self.tls_redirect_bind):
            raise ValueError("SSO_TLS_REDIRECT_BIND must be an address, such as :80")
        if self.base_url is not None and urlsplit(self.base_url).scheme != "https":
            raise ValueError("SSO_BASE_URL must begin with https if SSO_TLS_CERTIFICATE is set")

    def _check_connection(self, slug: connections.ConnectionSlug) -> None:
        """Refuse incomplete connection settings, because a misspelled name would switch it off silently."""
        values = self.of_connection(slug)
        client = {"client_id", "client_secret"}
        endpoints = values.keys() - client - {"scopes", "display_name"}
        required = (endpoints if any(values.values()) else set()) | (client if any(values[name] is not None for name in client) else set())
        if missing := sorted(f"SSO_{slug}_{name}".upper() for name in required if values[name] is None):
            raise ValueError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing for {slug}")

    def of_connection(self, slug: connections.ConnectionSlug) -> dict[str, Any]:
        """Return a platform connection's settings, by their names without the slug."""
        return {name.removeprefix(f"{slug}_"): value for name, value in self if name.startswith(f"{slug}_")}

    def display_name_of(self, slug: connections.ConnectionSlug) -> str:
        """Return a connection's name on pages: the setting, or else the name of the service at its address."""
        values = self.of_connection(slug)
        host = urlsplit(values["authorize_url"] or "").hostname
        return values["display_name"] or PROVIDER_HOSTS.get(host or "") or PROVIDER_NAMES[slug]

    @property
    def rate_limit_factor(self) -> float | None:
        """Return the factor for the documented rate limits. None switches them off."""
        return {"on": 1.0, "off": None}[self.rate_limits] if self.rate_limits in ("on", "off") else float(self.rate_limits)

    @property
    def billing_secrets(self) -> tuple[str, ...]:
        """Return the secrets for the payment provider's signatures. There are several during a rotation."""
        return () if self.billing_webhook_secret is None else tuple(self.billing_webhook_secret.get_secret_value().split(","))

    @property
    def proxy_networks(self) -> setting_types.Networks:
        """Return the trusted proxies' networks.

        A proxy on this machine that connects to `localhost` can use either loopback address, so trusting one address trusts the other.
        """
        if is_localhost(self.bind) and any(address in network for network in self.trusted_proxies for address in LOOPBACK_ADDRESSES):
            return *self.trusted_proxies, *(ip_network(address) for address in LOOPBACK_ADDRESSES)
        return self.trusted_proxies

    @property
    def is_behind_proxy(self) -> bool:
        """Return whether a reverse proxy must name the client's address: at a Unix or systemd socket, unless we speak TLS there."""
        return not has_own_address(self.bind) and self.tls_certificate is None

    @property
    def database_connections(self) -> int:
        """Return the connection pool size for a process.

        Without the setting, up to 32 workers open at most 96 connections, including the connections that listen for notifications.
        PostgreSQL accepts 97 by default, and 3 more from administrators.
        """
        return self.db_pool_size or max(2, min(16, 95 // self.workers - 1))

    @property
    def keep_alive_seconds(self) -> int:
        """Return the seconds without a request until a connection is closed.

        Load balancers keep idle connections for 60 seconds by default. If Gatehouse closed a connection earlier, a
        request could meet the closing connection and fail.
        """
        return self.keep_alive or (75 if self.trusted_proxies or self.is_behind_proxy else KEEP_ALIVE)

    @property
    def policy(self) -> Policy:
        """Return the lifetimes and limits for the core."""
        return Policy(
            access_token_ttl=timedelta(seconds=self.access_token_ttl),
            signing_key_lead_time=timedelta(seconds=self.signing_key_lead_time),
            signing_key_max_age=timedelta(days=self.signing_key_max_age_days),
            refresh_token_ttl=timedelta(seconds=self.refresh_token_ttl),
            session_absolute_ttl=timedelta(seconds=self.session_absolute_ttl),
            fresh_sign_in_ttl=timedelta(seconds=self.fresh_sign_in_ttl),
            recent_sign_in_ttl=timedelta(seconds=self.recent_sign_in_ttl),
            key_ports=frozenset({443, *self.outbound_ports}),
            client_document_bytes=self.client_document_bytes,
            client_registration=self.client_registration,
            verification_ttl=timedelta(seconds=self.verification_ttl),
            reset_ttl=timedelta(seconds=self.reset_ttl),
            welcome_ttl=timedelta(seconds=self.welcome_ttl),
            invitation_ttl=timedelta(seconds=self.invitation_ttl),
            setup_link_days=self.setup_link_days,
            email_sign_in=self.email_sign_in,
            passkey_rp_id=self.passkey_rp_id,
            native_apps=self.native_apps,
            account_guess_limit=self.account_guess_limit,
            mfa_guess_limit=self.mfa_guess_limit,
            mails_per_recipient=self.mails_per_recipient,
            invitations_per_day=self.invitations_per_day,
            unverified_purge=timedelta(days=self.unverified_purge_days),
            failed_logins_kept=timedelta(days=self.failed_login_days),
            export_login_events=self.export_login_events,
            webhook_retry_delays=tuple(timedelta(seconds=delay) for delay in self.webhook_retry_delays),
            webhook_timeout=timedelta(seconds=self.webhook_timeout),
            webhooks_per_organization=self.webhooks_per_organization,
            auto_approve_organizations=self.auto_approve_organizations,
            notify_owners_of_organizations=self.notify_owners_of_organizations,
            key_environment=self.key_environment,
            support=None if self.support_address is None else SupportContact(self.support_address),
            billing_livemode=self.billing_livemode,
            frontend_url=self.frontend_url,
            common_passwords=setting_types.read_common_passwords(self.common_passwords_file),
            provider_names={slug: self.display_name_of(slug) for slug in connections.PLATFORM_CONNECTIONS},
        )


def load() -> Settings:
    """Return the settings from the environment. An empty variable counts as unset. Raises: SettingsInvalid."""
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    try:
        return Settings.model_validate(
            {name: variables[variable] for name in Settings.model_fields if (variable := f"SSO_{name.upper()}") in variables}
        )
    except ValidationError as error:
        problems = [_to_sentence(detail) for detail in error.errors(include_url=False, include_input=False)]
        raise SettingsInvalid("\n".join([*problems, *unknown_variables()])) from None


def unknown_variables() -> list[str]:
    """Return a sentence for every environment variable that starts with SSO_ and is no setting. Values are never named."""
    known = [f"SSO_{name.upper()}" for name in Settings.model_fields]
    sentences = []
    for name in sorted({name.upper() for name in os.environ if name.upper().startswith("SSO_")}.difference(known)):
        nearest = get_close_matches(name, known, n=1, cutoff=0.75)
        advice = f"Do you mean {nearest[0]}?" if nearest else "Check its spelling."
        sentences.append(f"{name} is not a setting of this release. {advice}")
    return sentences


def _to_sentence(detail: Any) -> str:
    reason = detail["msg"].removeprefix("Value error, ")
    reason = reason.removesuffix(".")
    if not detail["loc"]:
        return f"{reason[0].upper()}{reason[1:]}."
    name, *path = detail["loc"]
    location = "".join(f"number {part + 1}, " if isinstance(part, int) else f"{part}: " for part in path)
    return f"SSO_{str(name).upper()} is not valid: {location}{reason[0].lower()}{reason[1:]}."
