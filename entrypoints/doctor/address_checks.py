"""The checks that `gatehouse doctor` makes on the service's own addresses."""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from core.authentication.tokens.issuing import issuer_warning
from core.kernel import uris
from core.kernel.display import format_day
from core.kernel.policy import CERTIFICATE_EXPIRES_SOON
from entrypoints import bind, doctor
from entrypoints.adapters_of_settings import tls_certificate
from entrypoints.bind import LOCALHOST
from entrypoints.settings import Settings, SettingsInvalid

CERTIFICATE_ENDS_SOON: Final = timedelta(days=7)  # the alert GatehouseCertificateEnds fires from then on, too


def check_bind(settings: Settings) -> doctor.Finding:
    """Check that the service can listen there. A Unix socket needs its directory."""
    path = bind.unix_path(settings.bind)
    if path is None:
        text = "the socket that systemd passes (gatehouse.socket)" if settings.bind == bind.SYSTEMD else settings.bind
        return doctor.Finding("listening", doctor.Health.GOOD, text)
    directory = Path(path).parent
    if not os.access(directory, os.W_OK | os.X_OK):
        text = f"{directory} does not exist, or the user of this command may not write to it. Create it for the service's user"
        return doctor.Finding("listening", doctor.Health.BAD, text)
    text = f"{settings.bind}, for a reverse proxy in the group of the service's user that sets X-Forwarded-For"
    return doctor.Finding("listening", doctor.Health.GOOD, text)


def check_certificate(settings: Settings, url: str, now: datetime) -> Iterator[doctor.Finding]:
    """Check the TLS certificate: its files, its end, and that it names the base URL's host."""
    try:
        certificate = tls_certificate(settings)
    except SettingsInvalid as error:
        yield doctor.Finding("certificate", doctor.Health.BAD, str(error))
        return
    if certificate is None:
        return
    day = format_day(certificate.ends_at)
    left = certificate.ends_at - now
    host = urlsplit(url).hostname or ""
    if left <= timedelta():
        yield doctor.Finding(
            "certificate", doctor.Health.BAD, f"it ended on {day}, and browsers refuse it: renew the files of SSO_TLS_CERTIFICATE"
        )
    elif not _is_covered(host, certificate.names):
        text = f"it names {', '.join(certificate.names) or 'no host'}, and the base URL has {host}, so browsers refuse it"
        yield doctor.Finding("certificate", doctor.Health.BAD, text)
    elif left <= CERTIFICATE_ENDS_SOON:
        text = f"it ends on {day}, in {left.days} days, and was not renewed: check the program that renews SSO_TLS_CERTIFICATE"
        yield doctor.Finding("certificate", doctor.Health.WARNING, text)
    elif left <= CERTIFICATE_EXPIRES_SOON:
        yield doctor.Finding("certificate", doctor.Health.WARNING, f"it ends on {day}: renew the files of SSO_TLS_CERTIFICATE")
    else:
        yield doctor.Finding("certificate", doctor.Health.GOOD, f"for {', '.join(certificate.names)}, until {day}")


def _is_covered(host: str, names: Sequence[str]) -> bool:
    wildcard = f"*.{host.partition('.')[2]}"
    return any(name.lower() in (host, wildcard) for name in names)


def check_base_url(url: str) -> doctor.Finding:
    """Check that the base URL uses https, which protects cookies, and that it has its usual spelling."""
    if problem := issuer_warning(url):
        return doctor.Finding("base URL", doctor.Health.WARNING, f"{url}: {problem}")
    if url.startswith("https:"):
        return doctor.Finding("base URL", doctor.Health.GOOD, url)
    return doctor.Finding(
        "base URL",
        doctor.Health.WARNING,
        f"{url} is not https: cookies and tokens are sent unencrypted. Set SSO_BASE_URL to the public https URL",
    )


def check_passkeys(url: str) -> doctor.Finding:
    """Check that browsers allow passkeys at the base URL: at a domain with https, or at localhost (WebAuthn Level 3, section 5.1.3)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_numeric(host):
        usual = f"{LOCALHOST}:{parts.port}" if parts.port else LOCALHOST
        advice = f"{parts.scheme}://{usual}" if uris.is_on_loopback(url) else "a URL with a domain"
        text = f"passkeys need a host name, and {url} has numbers. Set SSO_BASE_URL to {advice}, and the issuer in applications"
        return doctor.Finding("passkeys", doctor.Health.WARNING, text)
    if parts.scheme == "http" and not f".{host}".endswith(f".{LOCALHOST}"):
        text = f"browsers allow passkeys only with https, and {url} has none. Set SSO_BASE_URL to the public https URL"
        return doctor.Finding("passkeys", doctor.Health.WARNING, text)
    return doctor.Finding("passkeys", doctor.Health.GOOD, f"browsers allow them at {host}")


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def check_frontend_url(settings: Settings) -> Iterator[doctor.Finding]:
    """Check that the frontend URL uses https, which protects codes and tokens."""
    url = settings.frontend_url
    if url is not None and uris.is_web_url(url):
        yield doctor.Finding("frontend URL", doctor.Health.GOOD, url)
    elif url is not None:
        text = f"{url} is not https: codes and tokens are sent unencrypted, and an attacker on the network can change its pages"
        yield doctor.Finding("frontend URL", doctor.Health.WARNING, text)
