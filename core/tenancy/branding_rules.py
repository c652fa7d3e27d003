"""Entities, refusals and pure rules of `core.tenancy.branding`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from core.kernel import uris
from core.kernel.errors import Invalid
from core.kernel.values import is_host_name
from core.tenancy.colors import Color

LONGEST_URL = 2048


class NothingToChange(Invalid):
    """Say what to change: logo_url, primary_color or product_name; null removes it."""


class LogoInvalid(Invalid):
    """The address of a logo must be absolute, in ASCII, https (or http on localhost), without user name and fragment."""


@dataclass(frozen=True, slots=True)
class Branding:
    """What an organization has chosen; None where it has chosen nothing. `primary_color` is written `#rrggbb`, in lower case."""

    logo_url: str | None = None
    primary_color: str | None = None
    product_name: str | None = None


NOTHING_CHOSEN = Branding()


@dataclass(frozen=True, slots=True)
class Design:
    """How mails and pages of an active organization look."""

    organization: str  # its name
    branding: Branding = NOTHING_CHOSEN

    @property
    def name(self) -> str:
        """Whose mail or page it is."""
        return self.branding.product_name or self.organization

    @property
    def color(self) -> Color | None:
        return None if self.branding.primary_color is None else Color.parse(self.branding.primary_color)

    @property
    def logo_origin(self) -> str | None:
        """From where the logo is loaded, as a content security policy says it. What cannot be chosen widens none."""
        url = self.branding.logo_url
        if url is None or not _can_be_logo(url):
            return None
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.lower()}"


def check_logo(url: str) -> None:
    """Raises LogoInvalid."""
    if not _can_be_logo(url):
        raise LogoInvalid


def _can_be_logo(url: str) -> bool:
    # A content security policy can name neither IPv6 addresses nor hosts with underscores.
    return len(url) <= LONGEST_URL and uris.is_web(url) and is_host_name(urlsplit(url).hostname or "")
