"""The setting types, with their parsers and checks."""

import ipaddress
import json
import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from core.kernel import policy, values
from core.kernel.errors import Refusal
from core.kernel.uris import to_ascii
from core.tenancy.model.organizations import Tier
from entrypoints import bind
from entrypoints.common_passwords import default_common_passwords

WEBHOOK_ATTEMPTS = 5  # the delays before them are a setting, and their number is documented

_IOS_APP = re.compile(r"ios:(?P<id>[A-Z0-9]{10}\.[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)")
_PACKAGE = r"[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)+"
_DIGEST = r"[0-9A-Fa-f]{2}(?::?[0-9A-Fa-f]{2}){31}"  # with colons as keytool prints it, or without
_ANDROID_APP = re.compile(rf"android:(?P<package>{_PACKAGE}):(?P<digests>{_DIGEST}(?:\+{_DIGEST})*)")

Network = IPv4Network | IPv6Network
Port = Annotated[int, Field(ge=1, le=65535)]
DnsServer = tuple[str, int]  # address and port
LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]


def _check_tier_name(value: str) -> str:
    if len(value) > 100 or not re.fullmatch(r"[a-z0-9](?:[-_]?[a-z0-9])*", value):
        raise ValueError("it must have at most 100 lower-case letters and digits, with single hyphens or underscores between them")
    return value


def _trim_display_name(value: str) -> str:
    trimmed = value.strip()
    if not 0 < len(trimmed) <= 100 or not values.is_printable(trimmed):
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
        return Tier(id=values.new_id(), **self.model_dump())


def _check_bind(value: str) -> str:
    bind.check_bind(value)
    return value


def _check_base_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("must be an http or https URL without user name, query and fragment, such as https://id.example.com")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError("must have a host name without empty parts and without parts of more than 63 characters") from None
    return value.rstrip("/")


def _refuse_path(value: str) -> str:
    if urlsplit(value).path:
        raise ValueError("must not have a path, because pages and links are at the root of the URL")
    return value


def _check_rp_id(value: str) -> str:
    try:
        host = values.to_a_labels(value)
    except values.DomainInvalid:
        host = ""
    if not values.is_host_name(host) or host.rpartition(".")[2].isdigit():
        raise ValueError("must be a host name without scheme, port and path, such as example.com")
    return host


def _check_host_name(value: str) -> str:
    name = value.lower()
    if "." not in name or not values.is_host_name(name) or name.rpartition(".")[2].isdigit():
        raise ValueError("must be a host name with a dot, such as id.example.com")
    return name


def _parse_native_apps(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(_parse_native_app(part.strip()) for part in value.split(",") if part.strip())


def _parse_native_app(text: str) -> policy.NativeApp:
    if (ios := _IOS_APP.fullmatch(text)) is not None:
        return policy.IosApp(ios["id"])
    if (android := _ANDROID_APP.fullmatch(text)) is not None:
        digests = tuple(bytes.fromhex(digest.replace(":", "")) for digest in android["digests"].split("+"))
        return policy.AndroidApp(android["package"], digests)
    raise ValueError(
        "must be applications such as ios:ABCDE12345.com.example.app or android:com.example.app:DIGEST, "
        "where DIGEST is the SHA-256 of the signing certificate in 64 hexadecimal digits"
    )


def _check_endpoint(value: str) -> str:
    url = to_ascii(value)
    if not _is_endpoint(url):
        raise ValueError("must be an http or https URL without user name and fragment, such as https://provider.example/token")
    return url


def _refuse_query(value: str) -> str:
    if "?" in value:
        raise ValueError("must not have a query, because paths are appended to it")
    return value


def _check_scopes(value: str) -> str:
    if not value.isascii() or not value.isprintable() or '"' in value or "\\" in value:  # RFC 6749 section 3.3
        raise ValueError("must be scopes separated by spaces, such as: profile offline_access")
    return value


def _parse_networks(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(ipaddress.ip_network(part.strip()) for part in value.split(",") if part.strip())
    return value


def _parse_ports(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _parse_delays(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    delays = [part.strip() for part in value.split(",")]
    if len(delays) != WEBHOOK_ATTEMPTS or not all(delay.isascii() and delay.isdigit() for delay in delays):
        raise ValueError(f"must be the seconds before each of the {WEBHOOK_ATTEMPTS} attempts, such as 0,5,300,1800,7200")
    return tuple(int(delay) for delay in delays)


def _parse_dns_servers(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    servers = tuple(bind.parse_server(part.strip()) for part in value.split(",") if part.strip())
    if not servers:  # otherwise the system's name servers would be used by mistake
        raise ValueError("must name a server, such as 192.0.2.1; remove the setting to use the name servers of the system")
    return servers


def _parse_tiers(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        tiers = json.loads(value)
    except (ValueError, RecursionError):
        tiers = None
    if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
        raise ValueError(f"must be a JSON array of objects with the fields {', '.join(TierSetting.model_fields)}")
    return tuple(tiers)


def _refuse_duplicate_tiers(value: tuple[TierSetting, ...]) -> tuple[TierSetting, ...]:
    names = [tier.name for tier in value]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise ValueError(f"the tier {duplicate} is listed twice")
    return value


def _check_rate_limits(value: str) -> str:
    if value not in ("on", "off"):
        try:
            valid = 0 < float(value) < 1e6
        except ValueError:
            valid = False
        if not valid:
            raise ValueError("must be on, off, or a factor such as 10")
    return value


def _check_secret(value: SecretStr | None) -> SecretStr | None:
    text = None if value is None else value.get_secret_value()
    if text is not None and (not text.isascii() or not text.isprintable() or " " in text or not all(text.split(","))):
        raise ValueError("must be printable ASCII without spaces, and without empty parts between commas")
    return value


def _parse_email(value: str) -> str:
    try:
        return values.Email.parse(value)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _check_support_address(value: str) -> str:
    if value.startswith("https://") and _is_endpoint(value):
        return value
    try:
        return values.Email.parse(value)
    except Refusal:
        raise ValueError("must be an email address or an https URL, such as help@example.com or https://example.com/help") from None


def _check_common_passwords_file(value: Path | None) -> Path | None:
    try:
        read_common_passwords(value)
    except OSError as error:
        raise ValueError(f"{value} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise ValueError(f"{value} is not valid UTF-8") from None
    return value


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    has_valid_characters = url.isascii() and url.isprintable() and " " not in url
    has_valid_parts = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    return has_valid_characters and has_valid_parts and "#" not in url and "@" not in parts.netloc


def read_common_passwords(path: Path | None) -> frozenset[str]:
    """Return the passwords in this file, or the default passwords. Raises: OSError, UnicodeError."""
    if path is None:
        return default_common_passwords()
    return frozenset(line.casefold() for line in path.read_text(encoding="utf-8").splitlines())


Bind = Annotated[str, AfterValidator(_check_bind)]
BaseUrl = Annotated[str, AfterValidator(_check_base_url), AfterValidator(_refuse_path)]
FrontendUrl = Annotated[str, AfterValidator(_check_base_url), AfterValidator(to_ascii)]
PasskeyRpId = Annotated[str, AfterValidator(_check_rp_id)]
HostName = Annotated[str, AfterValidator(_check_host_name)]
NativeApps = Annotated[tuple[policy.NativeApp, ...], BeforeValidator(_parse_native_apps)]
Endpoint = Annotated[str, AfterValidator(_check_endpoint)]
ApiUrl = Annotated[Endpoint, AfterValidator(_refuse_query)]
Scopes = Annotated[str, AfterValidator(_check_scopes)]
RateLimits = Annotated[str, AfterValidator(_check_rate_limits)]
EmailAddress = Annotated[str, AfterValidator(_parse_email)]
SupportAddress = Annotated[str, AfterValidator(_check_support_address)]
Networks = Annotated[tuple[Network, ...], BeforeValidator(_parse_networks)]
Ports = Annotated[tuple[Port, ...], BeforeValidator(_parse_ports)]
Delays = Annotated[tuple[Delay, ...], BeforeValidator(_parse_delays)]
DnsServers = Annotated[tuple[DnsServer, ...], BeforeValidator(_parse_dns_servers)]
Tiers = Annotated[tuple[TierSetting, ...], BeforeValidator(_parse_tiers), AfterValidator(_refuse_duplicate_tiers)]
# The whole type is annotated, so that `running_installation` sees that it is a secret, and the shipped file is checked, too.
AsciiSecret = Annotated[SecretStr | None, AfterValidator(_check_secret)]
CommonPasswordsFile = Annotated[Path | None, AfterValidator(_check_common_passwords_file)]
