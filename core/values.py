"""Small values that every area uses: addresses, slugs, pages, digests, identifiers, secrets, and the mark for "leave as it is"."""

import enum
import hashlib
import re
import secrets
import unicodedata
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

from core.errors import Invalid

T = TypeVar("T")


class EmailInvalid(Invalid):
    """The e-mail address is not valid."""


# RFC 5322 section 3.2.3 dot-atom, ASCII only: quoted local parts and comments are refused (security.md E-3).
_LOCAL = re.compile(r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


# Controls (C0, C1), Unicode's own line breaks, bidirectional overrides and lone surrogates: PostgreSQL, XML and the headers of mails refuse
# some of them, and people cannot see the others (security.md E-4, N-5).
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Whether the text holds no control characters, line breaks, bidirectional overrides or lone surrogates."""
    return _FORBIDDEN.search(text) is None


class Email(str):
    """An e-mail address in canonical form: trimmed, lower-case, its domain in A-labels; two spellings of one mailbox are equal.

    The same function stands at every entrance (security.md E-3), so the unique index on it is the truth.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The canonical form of `text`. Raises EmailInvalid."""
        local, at, domain = text.strip(" ").rpartition("@")
        # ASCII is asked for before case is folded: the Kelvin sign, for one, has a plain "k" as its lower case (CVE-2019-19844).
        if not at or not local.isascii() or len(local) > 64:
            raise EmailInvalid
        local = local.lower()
        # "=?" begins an encoded word (RFC 2047), which no header can carry as an address (E-4).
        if not _LOCAL.fullmatch(local) or "=?" in local:
            raise EmailInvalid
        ascii_domain = _a_labels(domain)
        labels = ascii_domain.split(".")
        # A last label of digits is an IPv4 address in disguise; a single label is a host name, not a domain.
        if len(labels) < 2 or labels[-1].isdigit() or not all(_LABEL.fullmatch(label) for label in labels):
            raise EmailInvalid
        if len(local) + 1 + len(ascii_domain) > 254:  # RFC 5321 section 4.5.3.1.3, less the angle brackets
            raise EmailInvalid
        return cls(f"{local}@{ascii_domain}")


def _a_labels(domain: str) -> str:
    lowered = domain.lower()
    if domain.isascii():
        return lowered
    # Full-width and compatibility letters would fold into another, existing domain (CVE-2026-73420), and the codec of the standard
    # library (IDNA 2003) folds the sharp s into "ss": whatever does not survive the way there and back is refused.
    if unicodedata.normalize("NFKC", domain) != domain:
        raise EmailInvalid
    try:
        encoded = lowered.encode("idna")
        if encoded.decode("idna") != lowered:
            raise EmailInvalid
    except UnicodeError:
        raise EmailInvalid from None
    return encoded.decode("ascii")


class SlugInvalid(Invalid):
    """A slug has 1 to 63 lower-case letters and digits, with single hyphens between them."""


class SlugReserved(Invalid):
    """This slug is reserved. Choose another one."""


_SLUG = re.compile(r"[a-z0-9](?:-?[a-z0-9])*")
# Words that an address or a name of ours has, or that a person would take for the platform itself (decisions, point 23).
_RESERVED = frozenset({
    "about", "account", "accounts", "admin", "administrator", "api", "app", "assets", "auth", "billing", "callback", "docs",
    "gatehouse", "health", "help", "home", "internal", "invitations", "legal", "login", "logout", "mail", "me", "metrics", "new",
    "oauth", "openapi", "organizations", "owner", "platform", "pricing", "privacy", "public", "register", "root", "saml", "scim",
    "security", "select", "service", "services", "settings", "signin", "signup", "sso", "static", "status", "support", "system",
    "terms", "test", "tiers", "tokens", "unknown", "user", "users", "webhooks", "well-known", "www",
})  # fmt: skip


class Slug(str):
    """The name of an organization or a service in addresses; lower case, which makes it unique without case (security.md T-4)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """`text`, if it can be a slug. Raises SlugInvalid, SlugReserved."""
        if len(text) > 63 or not _SLUG.fullmatch(text):
            raise SlugInvalid
        if text in _RESERVED:
            raise SlugReserved
        return cls(text)


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list: `number` from 1, `limit` items on each."""

    number: int
    limit: int

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.limit


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Part of a list, and how many items the whole of it has."""

    items: Sequence[T]
    total: int


class Keep(enum.Enum):
    """The default of an optional change: absent differs from null."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def parse_id(text: str) -> uuid.UUID | None:
    """The identifier that `text` is in canonical form, the only one that counts (security.md T-4); None if it is none."""
    return uuid.UUID(text) if _ID.fullmatch(text) else None


def new_id() -> uuid.UUID:
    """A random UUID (version 4, from the operating system's generator)."""
    return uuid.uuid4()


def new_secret() -> str:
    """256 random bits as 43 characters of base64url."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """SHA-256 of a secret, 32 bytes: what is stored and looked up in its place.

    Secrets of 122 bits and more need no slow hash (security.md A-5).
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
