"""What the settings choose: encryption keys, mail, providers and locations. `gatehouse doctor` checks these adapters too."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from pydantic import SecretStr

from adapters import crypto
from adapters.anonymizers import AnonymizerFile, NoAnonymizers
from adapters.email import transports
from adapters.email.mime import parse_sender
from adapters.geoip import FileUnreadable, GeoIpFile, NoGeoIp
from adapters.http import guard
from adapters.http.lazy_sender import trusted_authorities
from adapters.http.payments import PaymentSettings
from adapters.postgres.engine.connecting import parse_address
from adapters.tls import TlsCertificate
from core.kernel.connections import (
    OFFICESUITE,
    PLATFORM_CONNECTIONS,
    ConnectionSettings,
    PlatformCredentials,
    ProviderClient,
    platform_connection,
)
from core.kernel.uris import is_on_loopback
from entrypoints.settings import Settings, SettingsInvalid

MAX_HASHES_AT_ONCE: Final = 4
URLS: Final = ("authorize_url", "token_url", "userinfo_url", "emails_url", "issuer", "jwks_url")  # a connection's settings


def encryption_keys(settings: Settings) -> str:
    """Return the encryption keys: the operator's, or keys that are generated once and stored in the data directory."""
    try:
        return known_keys(settings) or store_keys(key_file(settings), crypto.generate_key())
    except OSError as error:
        raise SettingsInvalid(f"{key_file(settings)} cannot be created: {error.strerror}.") from None


def key_file(settings: Settings) -> Path:
    """Return the file with the encryption keys, for a service without SSO_ENCRYPTION_KEYS."""
    return settings.data_dir / "encryption-keys"


def known_keys(settings: Settings) -> str | None:
    """Return the operator's encryption keys, or the keys in the data directory, or None."""
    if settings.encryption_keys is not None:
        return settings.encryption_keys.get_secret_value()
    try:
        return key_file(settings).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsInvalid(f"{key_file(settings)} cannot be read: {error.strerror}.") from None


def store_keys(path: Path, keys: str) -> str:
    """Store keys in a new file, and return the keys in the file: another process may have been faster. Raises: OSError."""
    # If an earlier file was lost, the new keys cannot decrypt the stored values. That causes an
    # error, and nothing is overwritten. Two processes can start for the first time at once, because
    # no lock is held yet. Only one process can create the link to a complete file, and the slower
    # process reads that file. With a rename, the second process would replace keys that the first
    # process may have used already.
    with NamedTemporaryFile("w", encoding="ascii", dir=path.parent, prefix=f"{path.name}-") as file:  # mode 0600
        file.write(keys + "\n")
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            return path.read_text(encoding="ascii").strip()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return keys


def vault_of(settings: Settings) -> crypto.AesVault:
    """Return the vault with the existing keys. Keys are never generated here."""
    try:
        return crypto.AesVault(_parsed_keys(settings))
    except ValueError as error:
        raise SettingsInvalid(f"SSO_ENCRYPTION_KEYS is not usable: {error}") from None


def passkeys_of(settings: Settings) -> crypto.WebAuthnPasskeys:
    """Return the passkey ceremonies. Their challenges depend on the vault's keys."""
    return crypto.WebAuthnPasskeys(_parsed_keys(settings))


def _parsed_keys(settings: Settings) -> tuple[tuple[str, bytes], ...]:
    keys = known_keys(settings)
    if keys is None:
        raise SettingsInvalid(f"{key_file(settings)} is missing, and SSO_ENCRYPTION_KEYS is not set. Restore the file, or set the keys.")
    try:
        return crypto.parse_keys(keys)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_ENCRYPTION_KEYS is not usable: {error}") from None


def check_database_address(settings: Settings) -> None:
    """Check SSO_DATABASE_URL. Raises: SettingsInvalid."""
    if settings.database_url is not None:
        try:
            parse_address(settings.database_url.get_secret_value())
        except ValueError as error:
            raise SettingsInvalid(f"SSO_DATABASE_URL {error}.") from None


def hashes_at_once() -> int:
    """Return how many passwords all processes together hash at the same time."""
    return min(MAX_HASHES_AT_ONCE, len(os.sched_getaffinity(0)))


def platform_connections(settings: Settings) -> list[PlatformCredentials]:
    """Return the platform connections that are set up, with the platform's clients there."""
    connections = []
    for slug in PLATFORM_CONNECTIONS:
        values = settings.of_connection(slug)
        if values["token_url"] is not None:
            secret, urls = values["client_secret"], {name: values.get(name) or "" for name in URLS}
            client = None if secret is None else ProviderClient(values["client_id"], secret.get_secret_value())
            scopes = tuple(values["scopes"].split())
            # officesuite verifies no addresses, whatever its tokens contain.
            stored = ConnectionSettings(client_id=values["client_id"], scopes=scopes, verifies_emails=slug != OFFICESUITE, **urls)
            connections.append(PlatformCredentials(platform_connection(slug, stored), client))
    return connections


def payment_settings(settings: Settings) -> PaymentSettings | None:
    """Return the payment provider's settings, or None."""
    if settings.billing_api_url is None or settings.billing_api_key is None:
        return None
    return PaymentSettings(settings.billing_api_url, settings.billing_api_key.get_secret_value())


def mail_folder(settings: Settings) -> Path:
    """Return the folder for emails without a mail server."""
    return settings.data_dir / "mail"


def mail_transport(settings: Settings) -> transports.SmtpTransport | transports.FolderTransport:
    """Return the transport for the platform's emails: to its mail server, or to a folder if none is set."""
    check_sender(settings)
    if settings.smtp_url is None:
        return transports.FolderTransport(mail_folder(settings), settings.mail_from)
    return smtp(settings.smtp_url, settings)


def smtp(url: SecretStr, settings: Settings) -> transports.SmtpTransport:
    """Return the transport to the mail server. Raises: SettingsInvalid."""
    check_sender(settings)
    try:
        return transports.SmtpTransport(url.get_secret_value(), settings.mail_from, own_name=settings.smtp_helo_name)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_SMTP_URL {error}.") from None


def allowed_targets(settings: Settings) -> tuple[guard.AllowedTarget, ...]:
    """Return the private addresses that tenants can make us connect to (SSO_OUTBOUND_ALLOW). Raises: SettingsInvalid."""
    try:
        return guard.parse_allowed_targets(settings.outbound_allow)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_OUTBOUND_ALLOW {error}.") from None


def check_authorities(settings: Settings) -> None:
    """Check the file with further certificate authorities (SSO_OUTBOUND_CA_FILE)."""
    if settings.outbound_ca_file is None:
        return
    try:
        trusted_authorities(settings.outbound_ca_file)
    except OSError as error:
        raise SettingsInvalid(
            f"SSO_OUTBOUND_CA_FILE is not usable: {settings.outbound_ca_file}: {error.strerror or 'no certificates in PEM'}."
        ) from None


def client_targets(settings: Settings, base_url: str) -> tuple[guard.AllowedTarget, ...]:
    """Return the private addresses from which client metadata and keys are read: also this machine, where the issuer is on it."""
    own = [guard.AllowedTarget.parse(network) for network in ("127.0.0.0/8", "::1/128")] if is_on_loopback(base_url) else []
    return *allowed_targets(settings), *own


def geoip(settings: Settings) -> NoGeoIp | GeoIpFile:
    """Return the lookup that finds the location for an IP address. Raises: SettingsInvalid."""
    if settings.geoip_database is None:
        return NoGeoIp()
    try:
        return GeoIpFile(settings.geoip_database)
    except FileUnreadable as error:
        raise SettingsInvalid(f"SSO_GEOIP_DATABASE is not usable: {error}.") from None


def anonymizers(settings: Settings) -> NoAnonymizers | AnonymizerFile:
    """Return the lookup that finds VPNs and proxies. Raises: SettingsInvalid."""
    if settings.anonymizer_networks_file is None:
        return NoAnonymizers()
    try:
        return AnonymizerFile(settings.anonymizer_networks_file)
    except FileUnreadable as error:
        raise SettingsInvalid(f"SSO_ANONYMIZER_NETWORKS_FILE is not usable: {error}.") from None


def tls_certificate(settings: Settings) -> TlsCertificate | None:
    """Return the certificate for TLS, or None if the service speaks plain HTTP. Raises: SettingsInvalid."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    try:
        return TlsCertificate(settings.tls_certificate, settings.tls_key)
    except FileUnreadable as error:
        raise SettingsInvalid(f"SSO_TLS_CERTIFICATE and SSO_TLS_KEY are not usable: {error}.") from None


def check_sender(settings: Settings) -> None:
    """Check SSO_MAIL_FROM. Raises: SettingsInvalid."""
    try:
        parse_sender(settings.mail_from)
    except ValueError as error:
        raise SettingsInvalid(f"SSO_MAIL_FROM {error}.") from None
