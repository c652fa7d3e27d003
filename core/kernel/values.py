"""Small values that every area uses: addresses, slugs, pages, batches, digests, identifiers, secrets, and the mark for "leave as it is"."""

import enum
import hashlib
import re
import secrets
import unicodedata
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, Self, TypeVar

from core.kernel.errors import Invalid

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


def plain(text: str) -> str:
    """The text with a question mark for each of these."""
    return _FORBIDDEN.sub("?", text)


def is_host_name(text: str) -> bool:
    """Whether hosts can have this name, in lower case and A-labels. Addresses of IPv4 look like one, too."""
    # RFC 1035 section 2.3.4, less what only the wire has
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


class DomainInvalid(Invalid):
    """The domain is not valid. It must be a name such as example.com, of two parts at least."""


class Domain(str):
    """The name of a domain in canonical form: lower-case A-labels, two at least; two spellings of one domain are equal."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The canonical form of `text`. Raises DomainInvalid."""
        name = _a_labels(text)
        labels = name.split(".")
        # A last label of digits is an IPv4 address in disguise; a single label is a host name, not a domain.
        if len(labels) < 2 or labels[-1].isdigit() or not is_host_name(name):
            raise DomainInvalid
        return cls(name)


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
        try:
            ascii_domain = Domain.parse(domain)
        except DomainInvalid:
            raise EmailInvalid from None
        if len(local) + 1 + len(ascii_domain) > 254:  # RFC 5321 section 4.5.3.1.3, less the angle brackets
            raise EmailInvalid
        return cls(f"{local}@{ascii_domain}")

    @classmethod
    def parse_part(cls, text: str) -> str:
        """What to look for in addresses if people look for `text`: labels of domains are in their ASCII form there, each as a whole."""
        local, at, domain = text.strip().lower().rpartition("@")
        try:
            return f"{local}{at}{_a_labels(domain)}"
        except DomainInvalid:
            return f"{local}{at}{domain}"

    @property
    def domain(self) -> Domain:
        return Domain(self.rpartition("@")[2])


def _a_labels(domain: str) -> str:
    lowered = domain.lower()
    if domain.isascii():
        return lowered
    # Full-width and compatibility letters would fold into another, existing domain (CVE-2026-73420), and the codec of the standard
    # library (IDNA 2003) folds the sharp s into "ss": whatever does not survive the way there and back is refused.
    if unicodedata.normalize("NFKC", domain) != domain:
        raise DomainInvalid
    try:
        encoded = lowered.encode("idna")
        if encoded.decode("idna") != lowered:
            raise DomainInvalid
    except UnicodeError:
        raise DomainInvalid from None
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


class Batches(Generic[T]):
    """A list that the interface leaves without a maximum, read little by little (security.md N-6): an asynchronous iterator of its batches.

    `read` gets the last item of the batch before, None for the first, and how many may follow it; it should take its own connection to the
    database and give it back. With `limit` there are no more items than that.
    """

    def __init__(self, read: Callable[[T | None, int], Awaitable[Sequence[T]]], limit: int | None = None, *, size: int = 500) -> None:
        self._read = read
        self._size = size
        self._left = limit
        self._last: T | None = None
        self._ended = limit == 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[T]:
        batch = await self.following()
        if not batch:
            raise StopAsyncIteration
        return batch

    async def following(self) -> Sequence[T]:
        """The next batch; empty after the last one, where `anext` with a default trips over a fault of Python 3.11."""
        if self._ended:
            return ()
        wanted = self._size if self._left is None else min(self._size, self._left)
        batch = await self._read(self._last, wanted)
        if self._left is not None:
            self._left -= len(batch)
        self._ended = len(batch) < wanted or self._left == 0
        if batch:
            self._last = batch[-1]
        return batch


class Keep(enum.Enum):
    """The default of an optional change: absent differs from null."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


def given(**fields: object) -> dict[str, Any]:
    """Those of the fields that are not to be kept, by name."""
    return {name: value for name, value in fields.items() if value is not KEEP}


_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def parse_id(text: str) -> uuid.UUID | None:
    """The identifier that `text` is in canonical form, the only one that counts (security.md T-4); None if it is none."""
    return uuid.UUID(text) if _ID.fullmatch(text) else None


def rfc3339(time: datetime) -> str:
    """A time as answers and records have it, in UTC with Z (decisions, point 24)."""
    return time.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


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
