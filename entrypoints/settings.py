"""The operator's settings: environment variables that start with SSO_, validated once at start.

The module is longer than 400 lines, because all settings are in one class.
"""

import ipaddress
import json
import os
import re
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from core.kernel.common_passwords import fold_lines, shipped_common_passwords
from core.kernel.errors import Refusal
from core.kernel.policy import PROVIDER_NAMES, Policy, SupportContact
from core.kernel.providers import Provider, ProviderClient
from core.kernel.uris import to_ascii
from core.kernel.values import Email, is_printable, new_id
from core.tenancy.model.organizations import Tier
from entrypoints.bind import check_bind, has_own_address, parse_server

# Sign-in pages of well-known providers. A provider that is configured with one is shown by this name.
PROVIDER_HOSTS = {"github.com": "GitHub", "accounts.google.com": "Google", "login.microsoftonline.com": "Microsoft"}
TEN_YEARS = 10 * 365 * 86400  # seconds
KEEP_ALIVE = 5  # seconds without a request until a connection is closed
# Seconds. Verifiers may cache the key set for 300 seconds, and a process that misses a notification
# publishes a new key up to 66 seconds late.
SHORTEST_LEAD_TIME = 400
WEBHOOK_ATTEMPTS = 5  # the delays before them are a setting, and their number is documented

Network = IPv4Network | IPv6Network
Port = Annotated[int, Field(ge=1, le=65535)]
DnsServer = tuple[str, int]  # address and port
LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]


class SettingsInvalid(Exception):
    """The settings are not valid. The message has one sentence per error."""


def _check_tier_name(value: str) -> str:
    if len(value) > 100 or not re.fullmatch(r"[a-z0-9](?:[-_]?[a-z0-9])*", value):
        raise ValueError("it must have at most 100 lower-case letters and digits, with single hyphens or underscores between them")
    return value


def _trim_display_name(value: str) -> str:
    trimmed = value.strip()
    if not 0 < len(trimmed) <= 100 or not is_printable(trimmed):
        raise ValueError("it must have 1 to 100 characters")
    return trimmed


DisplayName = Annotated[str, AfterValidator(_trim_display_name)]
Amount = Annotated[int, Field(ge=0, le=2**31 - 1)]
Delay = Annotated[int, Field(ge=0, le=30 * 86400)]  # seconds


class TierSetting(BaseModel):
    """A tier to create or update, identified by its name."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_check_tier_name)]
    display_name: DisplayName
    default_max_services: Amount
    default_max_users: Amount
    price_cents: Amount

    def tier(self) -> Tier:
        """Return the tier. Its id is used only if no tier has this name yet."""
        return Tier(id=new_id(), **self.model_dump())


class Settings(BaseModel):
    """Every setting, with its default. Secrets are masked when shown."""

    model_config = ConfigDict(frozen=True, validate_default=True)

    database_url: SecretStr | None = None
    data_dir: Path = Path("var")
    bind: str = "127.0.0.1:8080"
    base_url: str | None = None
    frontend_url: str | None = None
    workers: int = Field(1, ge=1, le=64)
    db_pool_size: int = Field(10, ge=2, le=1000)
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
    argon2_memory_kib: int = Field(19456, ge=8, le=4 * 1024 * 1024)
    argon2_time_cost: int = Field(2, ge=1, le=100)
    argon2_parallelism: int = Field(1, ge=1, le=16)
    dns_servers: tuple[DnsServer, ...] = ()
    smtp_url: SecretStr | None = None
    mail_from: str = "Gatehouse <gatehouse@localhost.localdomain>"
    support_address: str | None = None
    outbound_allow: str = ""
    outbound_ports: tuple[Port, ...] = ()
    geoip_database: Path | None = None
    anonymizer_networks_file: Path | None = None
    tiers: tuple[TierSetting, ...] = ()
    platform_owner_email: str | None = None
    platform_owner_password: SecretStr | None = None
    auto_approve_organizations: bool = False
    notify_owners_of_organizations: bool = True
    key_environment: Literal["live", "test"] | None = None
    trusted_proxies: tuple[Network, ...] = ()
    keep_alive: int | None = Field(None, ge=1, le=3600)
    rate_limits: str = "on"
    client_rate: float = Field(20.0, gt=0, lt=1e6)
    scim_string_status: bool = False
    account_guess_limit: int = Field(10, ge=1, le=1_000_000)
    mfa_guess_limit: int = Field(10, ge=1, le=1_000_000)
    mails_per_recipient: int = Field(5, ge=1, le=1_000_000)
    invitations_per_day: int = Field(1000, ge=1, le=1_000_000)
    webhook_retry_delays: tuple[Delay, ...] = (0, 5, 300, 1800, 7200)
    webhook_timeout: float = Field(10, ge=0.1, le=60)
    webhooks_per_organization: int = Field(50, ge=1, le=10_000)
    unverified_purge_days: int = Field(7, ge=1, le=3650)
    export_login_events: int = Field(1000, ge=1, le=1_000_000_000)
    common_passwords_file: Path | None = None
    codehost_client_id: str | None = None
    codehost_client_secret: SecretStr | None = None
    codehost_authorize_url: str | None = None
    codehost_token_url: str | None = None
    codehost_userinfo_url: str | None = None
    codehost_emails_url: str | None = None
    codehost_scopes: str = ""
    codehost_display_name: DisplayName | None = None
    websuite_client_id: str | None = None
    websuite_client_secret: SecretStr | None = None
    websuite_authorize_url: str | None = None
    websuite_token_url: str | None = None
    websuite_userinfo_url: str | None = None
    websuite_issuer: str | None = None
    websuite_jwks_url: str | None = None
    websuite_scopes: str = ""
    websuite_display_name: DisplayName | None = None
    officesuite_client_id: str | None = None
    officesuite_client_secret: SecretStr | None = None
    officesuite_authorize_url: str | None = None
    officesuite_token_url: str | None = None
    officesuite_userinfo_url: str | None = None
    officesuite_issuer: str | None = None
    officesuite_jwks_url: str | None = None
    officesuite_scopes: str = ""
    officesuite_display_name: DisplayName | None = None
    billing_api_url: str | None = None
    billing_api_key: SecretStr | None = None
    billing_webhook_secret: SecretStr | None = None
    billing_livemode: bool | None = None
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    metrics_token: SecretStr | None = None

    @field_validator("bind")
    @classmethod
    def _check_bind(cls, value: str) -> str:
        check_bind(value)
        return value

    @field_validator("base_url", "frontend_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise ValueError("must be an http or https URL without user name, query and fragment, such as https://id.example.com")
        try:
            parts.hostname.encode("idna")
        except UnicodeError:
            raise ValueError("must have a host name without empty parts and without parts of more than 63 characters") from None
        return value.rstrip("/")

    @field_validator("frontend_url")
    @classmethod
    def _to_ascii(cls, value: str | None) -> str | None:
        return None if value is None else to_ascii(value)

    @field_validator("base_url")
    @classmethod
    def _refuse_path(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).path:
            raise ValueError("must not have a path, because pages and links are at the root of the URL")
        return value

    @field_validator(
        "billing_api_url",
        *(f"codehost_{name}_url" for name in ("authorize", "token", "userinfo", "emails")),
        *(f"{provider}_{name}_url" for provider in ("websuite", "officesuite") for name in ("authorize", "token", "userinfo", "jwks")),
    )
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        url = None if value is None else to_ascii(value)
        if url is not None and not _is_endpoint(url):
            raise ValueError("must be an http or https URL without user name and fragment, such as https://provider.example/token")
        return url

    @field_validator("billing_api_url")
    @classmethod
    def _refuse_query(cls, value: str | None) -> str | None:
        if value is not None and "?" in value:
            raise ValueError("must not have a query, because paths are appended to it")
        return value

    @field_validator("codehost_scopes", "websuite_scopes", "officesuite_scopes")
    @classmethod
    def _check_scopes(cls, value: str) -> str:
        if not value.isascii() or not value.isprintable() or '"' in value or "\\" in value:  # RFC 6749 section 3.3
            raise ValueError("must be scopes separated by spaces, such as: profile offline_access")
        return value

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _parse_networks(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(ipaddress.ip_network(part.strip()) for part in value.split(",") if part.strip())
        return value

    @field_validator("outbound_ports", mode="before")
    @classmethod
    def _parse_ports(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("webhook_retry_delays", mode="before")
    @classmethod
    def _parse_delays(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        delays = [part.strip() for part in value.split(",")]
        if len(delays) != WEBHOOK_ATTEMPTS or not all(delay.isascii() and delay.isdigit() for delay in delays):
            raise ValueError(f"must be the seconds before each of the {WEBHOOK_ATTEMPTS} attempts, such as 0,5,300,1800,7200")
        return tuple(int(delay) for delay in delays)

    @field_validator("dns_servers", mode="before")
    @classmethod
    def _parse_dns_servers(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        servers = tuple(parse_server(part.strip()) for part in value.split(",") if part.strip())
        if not servers:  # otherwise the system's name servers would be used by mistake
            raise ValueError("must name a server, such as 192.0.2.1; remove the setting to use the name servers of the system")
        return servers

    @field_validator("tiers", mode="before")
    @classmethod
    def _parse_tiers(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            tiers = json.loads(value)
        except (ValueError, RecursionError):
            tiers = None
        if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
            raise ValueError(f"must be a JSON array of objects with the fields {', '.join(TierSetting.model_fields)}")
        return tuple(tiers)

    @field_validator("tiers")
    @classmethod
    def _refuse_duplicate_tiers(cls, value: tuple[TierSetting, ...]) -> tuple[TierSetting, ...]:
        names = [tier.name for tier in value]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"the tier {duplicate} is listed twice")
        return value

    @field_validator("rate_limits")
    @classmethod
    def _check_rate_limits(cls, value: str) -> str:
        if value not in ("on", "off"):
            try:
                valid = 0 < float(value) < 1e6
            except ValueError:
                valid = False
            if not valid:
                raise ValueError("must be on, off, or a factor such as 10")
        return value

    @field_validator("billing_api_key", "billing_webhook_secret")
    @classmethod
    def _check_secret(cls, value: SecretStr | None) -> SecretStr | None:
        text = None if value is None else value.get_secret_value()
        if text is not None and (not text.isascii() or not text.isprintable() or " " in text or not all(text.split(","))):
            raise ValueError("must be printable ASCII without spaces, and without empty parts between commas")
        return value

    @field_validator("platform_owner_email")
    @classmethod
    def _parse_email(cls, value: str | None) -> str | None:
        try:
            return None if value is None else Email.parse(value)
        except Refusal as refusal:
            raise ValueError(refusal.message) from None

    @field_validator("support_address")
    @classmethod
    def _check_support_address(cls, value: str | None) -> str | None:
        if value is None or (value.startswith("https://") and _is_endpoint(value)):
            return value
        try:
            return Email.parse(value)
        except Refusal:
            raise ValueError("must be an email address or an https URL, such as help@example.com or https://example.com/help") from None

    @field_validator("common_passwords_file")
    @classmethod
    def _check_common_passwords_file(cls, value: Path | None) -> Path | None:
        try:
            _common_passwords(value)
        except OSError as error:
            raise ValueError(f"{value} cannot be read: {error.strerror}") from None
        except UnicodeError:
            raise ValueError(f"{value} is not valid UTF-8") from None
        return value

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if (self.platform_owner_email is None) != (self.platform_owner_password is None):
            raise ValueError("set both SSO_PLATFORM_OWNER_EMAIL and SSO_PLATFORM_OWNER_PASSWORD, or neither")
        if self.database_url is not None and self.encryption_keys is None:
            raise ValueError("SSO_ENCRYPTION_KEYS is required with SSO_DATABASE_URL; create a key with: gatehouse keys generate")
        if self.base_url is None and not has_own_address(self.bind):
            raise ValueError(f"SSO_BASE_URL is required with SSO_BIND={self.bind}; set the public URL, such as https://id.example.com")
        if self.recent_sign_in_ttl < self.fresh_sign_in_ttl:  # our pages ask for a fresh sign-in, which must be enough
            raise ValueError("SSO_RECENT_SIGN_IN_TTL must be at least SSO_FRESH_SIGN_IN_TTL")
        if (self.billing_api_url is None) != (self.billing_api_key is None):
            raise ValueError("set both SSO_BILLING_API_URL and SSO_BILLING_API_KEY, or neither")
        for provider in Provider:
            self._check_provider(provider)
        names = [self.display_name_of(provider) for provider in Provider if self.has_provider(provider)]
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two identity providers are named {duplicate} on pages; set SSO_<PROVIDER>_DISPLAY_NAME for one of them")
        return self

    def _check_provider(self, provider: Provider) -> None:
        """Refuse incomplete settings of a provider, because a misspelled name would switch it off silently."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name.startswith(f"{provider.value}_")}
        client = {f"{provider.value}_client_id", f"{provider.value}_client_secret"}
        endpoints = values.keys() - client - {f"{provider.value}_scopes", f"{provider.value}_display_name"}
        required = (endpoints if any(values.values()) else set()) | (client if any(values[name] is not None for name in client) else set())
        if missing := sorted(f"SSO_{name.upper()}" for name in required if values[name] is None):
            raise ValueError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing for {provider.value}")

    def has_provider(self, provider: Provider) -> bool:
        """Return whether the endpoints of the provider are set."""
        return self.of_provider(provider, "token_url") is not None

    def display_name_of(self, provider: Provider) -> str:
        """Return the name of the provider on pages: the setting, or else the name of the service that its address belongs to."""
        host = urlsplit(self.of_provider(provider, "authorize_url") or "").hostname
        return self.of_provider(provider, "display_name") or PROVIDER_HOSTS.get(host or "") or PROVIDER_NAMES[provider]

    def client_at(self, provider: Provider) -> ProviderClient | None:
        """Return the OAuth client of the platform at the provider, or None."""
        client_id, secret = self.of_provider(provider, "client_id"), self.of_provider(provider, "client_secret")
        return None if client_id is None else ProviderClient(client_id, secret.get_secret_value())

    def of_provider(self, provider: Provider, name: str) -> Any:
        """Return the setting of a provider by its name without the prefix, or None."""
        return getattr(self, f"{provider.value}_{name}", None)

    @property
    def rate_limit_factor(self) -> float | None:
        """Return the factor of the documented rate limits. None switches them off."""
        return {"on": 1.0, "off": None}[self.rate_limits] if self.rate_limits in ("on", "off") else float(self.rate_limits)

    @property
    def billing_secrets(self) -> tuple[str, ...]:
        """Return the secrets of the payment provider's signatures. There are several during a rotation."""
        return () if self.billing_webhook_secret is None else tuple(self.billing_webhook_secret.get_secret_value().split(","))

    @property
    def keep_alive_seconds(self) -> int:
        """Return the seconds without a request until a connection is closed.

        Load balancers keep idle connections for 60 seconds by default. If Gatehouse closed one
        earlier, a request could meet the closing connection and fail.
        """
        return self.keep_alive or (75 if self.trusted_proxies or not has_own_address(self.bind) else KEEP_ALIVE)

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
            verification_ttl=timedelta(seconds=self.verification_ttl),
            reset_ttl=timedelta(seconds=self.reset_ttl),
            welcome_ttl=timedelta(seconds=self.welcome_ttl),
            invitation_ttl=timedelta(seconds=self.invitation_ttl),
            email_sign_in=self.email_sign_in,
            account_guess_limit=self.account_guess_limit,
            mfa_guess_limit=self.mfa_guess_limit,
            mails_per_recipient=self.mails_per_recipient,
            invitations_per_day=self.invitations_per_day,
            unverified_purge=timedelta(days=self.unverified_purge_days),
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
            common_passwords=_common_passwords(self.common_passwords_file),
            provider_names={provider: self.display_name_of(provider) for provider in Provider},
        )


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    has_valid_characters = url.isascii() and url.isprintable() and " " not in url
    has_valid_parts = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    return has_valid_characters and has_valid_parts and "#" not in url and "@" not in parts.netloc


def _common_passwords(path: Path | None) -> frozenset[str]:
    return shipped_common_passwords() if path is None else fold_lines(path.read_text(encoding="utf-8"))


def load() -> Settings:
    """Return the settings from the environment. An empty variable counts as unset.

    Raises: SettingsInvalid.
    """
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    try:
        return Settings.model_validate(
            {name: variables[variable] for name in Settings.model_fields if (variable := f"SSO_{name.upper()}") in variables}
        )
    except ValidationError as error:
        problems = [_to_sentence(detail) for detail in error.errors(include_url=False, include_input=False)]
        raise SettingsInvalid("\n".join([*problems, *unknown_variables()])) from None


def unknown_variables() -> list[str]:
    """Return a sentence for each environment variable that starts with SSO_ and is no setting. Values are never named."""
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
