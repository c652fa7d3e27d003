"""An organization's settings: its mail server, its branding, and readable colors derived from any color.

The contrast meets WCAG 2: at least 4.5:1 for text, and 3:1 for a control's outline (success criteria 1.4.3, 1.4.11).
"""

import ipaddress
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, Self
from urllib.parse import urlsplit
from uuid import UUID

from core.kernel import errors, uris, values

MAX_LOGO_URL = 2048


class EmptyBrandingUpdate(errors.Invalid):
    """The request changes nothing. Send logo_url, primary_color or product_name. null removes a value."""


class LogoInvalid(errors.Invalid):
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
    """How an active organization's emails and pages look."""

    organization_name: str
    branding: BrandingSettings = NO_BRANDING

    @property
    def name(self) -> str:
        """Return the name of the organization or product that emails and pages show."""
        return self.branding.product_name or self.organization_name

    @property
    def color(self) -> "Color | None":
        return None if self.branding.primary_color is None else Color.parse(self.branding.primary_color)

    @property
    def logo_origin(self) -> str | None:
        """Return the logo's origin for a Content-Security-Policy, or None.

        Also return None for a stored URL that the present rules would refuse. A refused URL must not become part of the
        policy.
        """
        url = self.branding.logo_url
        if url is None or not _is_valid_logo(url):
            return None
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.lower()}"


def parse_logo(url: str) -> str:
    """Return a logo's URL in canonical form."""
    canonical = uris.canonicalize(url)
    if flaw := uris.web_flaw(canonical):
        raise LogoInvalid(f"The logo URL is not allowed: {flaw}")
    if not _is_valid_logo(canonical):
        raise LogoInvalid
    return canonical


def _is_valid_logo(url: str) -> bool:
    # A Content-Security-Policy can name neither IPv6 addresses nor hosts with underscores.
    return len(url) <= MAX_LOGO_URL and uris.is_web_url(url) and values.is_host_name(urlsplit(url).hostname or "")


TEXT: Final = 4.5  # the minimum contrast for text
OUTLINE: Final = 3.0  # the minimum contrast for a control's outline
_HEX = re.compile("#[0-9a-f]{6}")
_STEPS: Final = 40  # the steps from a color to black or to white
_HOVER: Final = 6  # the steps between a color and its hover color


class ColorInvalid(errors.Invalid):
    """The color is not valid. Write "#" and six hexadecimal digits, such as "#0b5d66"."""


@dataclass(frozen=True, slots=True)
class Color:
    """An sRGB color: red, green and blue, each from 0 to 255."""

    red: int
    green: int
    blue: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the color written as "#rrggbb", in upper or lower case. Raises: ColorInvalid."""
        lowered = text.lower()
        if not text.isascii() or not _HEX.fullmatch(lowered):
            raise ColorInvalid
        return cls(*bytes.fromhex(lowered[1:]))

    def __str__(self) -> str:
        return f"#{self.red:02x}{self.green:02x}{self.blue:02x}"

    @property
    def luminance(self) -> float:
        """Return the relative luminance, from 0 for black to 1 for white."""
        red, green, blue = (
            value / 12.92 if (value := component / 255) <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
            for component in (self.red, self.green, self.blue)
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def mix(self, other: Self, steps: int) -> Self:
        """Return this color, moved `steps` / _STEPS toward `other`."""
        pairs = ((self.red, other.red), (self.green, other.green), (self.blue, other.blue))
        return type(self)(*(round(start + (end - start) * steps / _STEPS) for start, end in pairs))


BLACK: Final = Color(0, 0, 0)
WHITE: Final = Color(255, 255, 255)


def contrast(one: Color, other: Color) -> float:
    """Return the contrast ratio, from 1 for equal luminance to 21 for black and white."""
    darker, brighter = sorted((one.luminance, other.luminance))
    return (brighter + 0.05) / (darker + 0.05)


@dataclass(frozen=True, slots=True)
class ColorScheme:
    """The colors derived from one color for light or dark mode."""

    accent: Color  # for links and for focused controls
    accent_hover: Color
    button: Color  # the chosen color itself
    button_hover: Color
    label: Color  # black or white, on the button
    edge: Color  # the button's outline, so that it stands out from the background


@dataclass(frozen=True, slots=True)
class Palette:
    """The colors derived from one color, for light and dark mode."""

    light: ColorScheme
    dark: ColorScheme


# Light and dark mode have two backgrounds each: one in `pages.css`, one in `layout.html`. These are
# the two backgrounds on which text has less contrast.
LIGHT_BACKGROUND: Final = Color.parse("#f2f5f6")
DARK_BACKGROUND: Final = Color.parse("#172024")


@lru_cache(maxsize=256)
def derive_palette(color: Color) -> Palette:
    """Return the readable colors for pages and emails that use this color."""
    return Palette(light=_derive_scheme(color, LIGHT_BACKGROUND, BLACK), dark=_derive_scheme(color, DARK_BACKGROUND, WHITE))


def _derive_scheme(color: Color, background: Color, pole: Color) -> ColorScheme:
    """Return the colors for one mode. `pole` is black or white: the color with the most contrast to the background."""
    accent = next(mixed for steps in range(_STEPS + 1) if contrast(mixed := color.mix(pole, steps), background) >= TEXT or steps == _STEPS)
    # If white has too little contrast, black has enough: multiplied, the two contrasts are always
    # 21.
    label = WHITE if contrast(WHITE, color) >= TEXT else BLACK
    return ColorScheme(
        accent=accent,
        accent_hover=accent.mix(pole, _HOVER),
        button=color,
        # The hover color moves away from the label's color, so that the label stays readable.
        button_hover=color.mix(BLACK if label is WHITE else WHITE, _HOVER),
        label=label,
        edge=color if contrast(color, background) >= OUTLINE else accent,
    )


IMPLICIT_TLS: Final = 465
DEFAULT_PORT: Final = 587
# Below 1024, only mail server ports are allowed. All other ports there belong to other services.
_LOW_PORTS: Final = frozenset({25, IMPLICIT_TLS, DEFAULT_PORT})

_PRINTABLE: Final = re.compile(r"[\x20-\x7e]+")


class MailServerNotSet(errors.NotFound):
    """This organization has not set up a mail server. Set one up first."""


class MailHostInvalid(errors.Invalid):
    """The host must be a name, such as mail.example.com, or an IP address."""


class MailPortInvalid(errors.Invalid):
    """The port must be 25, 465, 587, or between 1024 and 65535."""


class MailCredentialsIncomplete(errors.Invalid):
    """Enter both username and password, or neither. The stored password is never used again."""


class MailUsernameInvalid(errors.Invalid):
    """The username may contain only printable ASCII characters. Mail servers accept no others."""


class MailPasswordInvalid(errors.Invalid):
    """The password may contain only printable ASCII characters. Mail servers accept no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings:
    """An organization's mail server settings, without the password.

    With `tls`, nothing is sent unencrypted: port 465 uses TLS from the first byte, other ports use
    STARTTLS. Without `tls`, nothing is encrypted.
    """

    org_id: UUID
    host: str
    port: int
    username: str | None
    from_email: values.Email
    from_name: str | None
    tls: bool

    @property
    def has_password(self) -> bool:
        """Return whether a password is stored. A username and a password always come together."""
        return self.username is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer(SmtpSettings):
    """The mail server settings with the password, which a connection needs."""

    password: str | None = field(repr=False)


class MailServerCheck(StrEnum):
    """The results of a test of a mail server (security W-7)."""

    GOOD = "The mail server works. It accepted an email to your address."
    NO_ADDRESS = "The host has no public address. Use another host, or ask the operator of Gatehouse to allow this one."
    NOT_REACHED = "No mail server answers at this host and port. Check both, and the firewall of the mail server."
    REFUSED = "The mail server ends the conversation before it begins."
    NOT_ENCRYPTED = "The connection could not be encrypted: the server does not offer TLS, or its certificate is not valid for the host."
    NOT_SIGNED_IN = "The mail server does not accept the username and password. Check them, and enter the password again."
    NOT_ACCEPTED = "The mail server does not accept an email from this sender's address to yours. Check that it may send for this address."
    BUSY = "Another test of this mail server is still running. Wait until it ends."


@dataclass(frozen=True, slots=True)
class MailServerTest:
    """A test of a mail server."""

    result: MailServerCheck
    refusal: str | None = None  # code and text of the reply that refused a command, if any

    @property
    def message(self) -> str:
        """Return the result and the refusal, for the admin."""
        return self.result.value if self.refusal is None else f"{self.result.value} Its answer: {self.refusal}"


def validate(server: MailServer) -> MailServer:
    """Return the server with its host in canonical form."""
    if server.port not in _LOW_PORTS and not 1024 <= server.port <= 65535:
        raise MailPortInvalid
    if (server.username is None) != (server.password is None):
        raise MailCredentialsIncomplete
    if server.username is not None and not _PRINTABLE.fullmatch(server.username):
        raise MailUsernameInvalid
    if server.password is not None and not _PRINTABLE.fullmatch(server.password):
        raise MailPasswordInvalid
    return replace(server, host=parse_host(server.host))


def parse_host(text: str) -> str:
    """Return the host in canonical form. Each connection checks whether the address is allowed."""
    host = text.strip(" ").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            name = values.to_a_labels(host)
        except values.DomainInvalid:
            raise MailHostInvalid from None
        return name if values.is_host_name(name) else errors.refuse(MailHostInvalid)
    if "%" in host:  # an IPv6 address zone, which names a network interface on this machine
        raise MailHostInvalid
    return str(address)
