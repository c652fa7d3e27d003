"""Branding settings, and the design of emails and pages that uses them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from core.kernel import uris
from core.kernel.errors import Invalid
from core.kernel.values import is_host_name
from core.tenancy.model.colors import Color

MAX_LOGO_URL = 2048


class EmptyBrandingUpdate(Invalid):
    """The request changes nothing. Send logo_url, primary_color or product_name. null removes a value."""


class LogoInvalid(Invalid):
    """The logo URL must be an absolute ASCII https URL (http only for localhost), without a user name or a fragment."""


@dataclass(frozen=True, slots=True)
class BrandingSettings:
    """The branding that an organization has chosen.

    None means that the organization has not chosen a value. `primary_color` is `#rrggbb` in lower
    case.
    """

    logo_url: str | None = None
    primary_color: str | None = None
    product_name: str | None = None


NO_BRANDING = BrandingSettings()


@dataclass(frozen=True, slots=True)
class Design:
    """The design of emails and pages of an active organization."""

    organization_name: str
    branding: BrandingSettings = NO_BRANDING

    @property
    def name(self) -> str:
        """Return the name of the organization or product that emails and pages show."""
        return self.branding.product_name or self.organization_name

    @property
    def color(self) -> Color | None:
        return None if self.branding.primary_color is None else Color.parse(self.branding.primary_color)

    @property
    def logo_origin(self) -> str | None:
        """Return the origin of the logo for a Content-Security-Policy, or None.

        Also return None for a stored URL that the present rules would refuse. Such a URL must not
        become part of the policy.
        """
        url = self.branding.logo_url
        if url is None or not _is_valid_logo(url):
            return None
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.lower()}"


def parse_logo(url: str) -> str:
    """Return the URL of a logo in canonical form. Raises: LogoInvalid."""
    canonical = uris.canonicalize(url)
    if flaw := uris.web_flaw(canonical):
        raise LogoInvalid(f"The logo URL is not allowed: {flaw}")
    if not _is_valid_logo(canonical):
        raise LogoInvalid
    return canonical


def _is_valid_logo(url: str) -> bool:
    # A Content-Security-Policy can name neither IPv6 addresses nor hosts with underscores.
    return len(url) <= MAX_LOGO_URL and uris.is_web_url(url) and is_host_name(urlsplit(url).hostname or "")
