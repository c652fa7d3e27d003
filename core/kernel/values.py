"""Small values that every area uses: email addresses, domains, slugs, pages, batches, digests, ids and secrets."""

import enum
import hashlib
import re
import secrets
import unicodedata
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count, islice
from typing import Any, Final, Generic, Self, TypeVar

from core.kernel import errors

T = TypeVar("T")


class EmailInvalid(errors.Invalid):
    """The email address is not valid. Check it for typos."""


# A dot-atom (RFC 5322 section 3.2.3), ASCII only. Quoted local parts and comments are refused
# (security E-3).
_LOCAL = re.compile(r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# RFC 1035 section 2.3.4 allows 255 octets on the wire, which are 253 characters.
MAX_HOST_NAME: Final = 253


# Control characters (C0, C1), Unicode line breaks, bidirectional overrides, lone surrogates, and the two noncharacters
# U+FFFE and U+FFFF, which XML excludes. PostgreSQL, XML and email headers refuse some such characters, and users cannot
# see the rest (security E-4, N-5).
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


# Characters that show nothing and are no format characters: characters with the property Default_Ignorable_Code_Point, such as fillers and
# variation selectors, also unassigned ones (Unicode 16, DerivedCoreProperties.txt)
_IGNORABLE: Final = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2065, 0x3164, *range(0xFE00, 0xFE10), 0xFFA0)
_IGNORABLE_BEYOND: Final = (*range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000))
# The empty braille pattern, the Khitan filler, the null notehead, and the two SignWriting spaces
_EMPTY: Final = (0x2800, 0x16FE4, 0x1D159, 0x1DA7F, 0x1DA80)
_BLANK: Final = frozenset(map(chr, (*_IGNORABLE, *_IGNORABLE_BEYOND, *_EMPTY)))


def is_printable(text: str) -> bool:
    """Return whether the text has no control characters, line breaks, bidirectional overrides, lone surrogates, U+FFFE or U+FFFF."""
    return _FORBIDDEN.search(text) is None


def is_visible(text: str) -> bool:
    """Return whether the text has a letter, a number, a punctuation mark or a symbol that shows something."""
    return any(unicodedata.category(character)[0] in "LNPS" for character in without_invisible(text))


def without_invisible(text: str) -> str:
    """Return the text without format characters, such as joiners, and the letters and symbols that show nothing, such as fillers."""
    return "".join(character for character in text if character not in _BLANK and unicodedata.category(character) != "Cf")


def to_printable(text: str) -> str:
    """Replace every character that `is_printable` refuses by a question mark."""
    return _FORBIDDEN.sub("?", text)


def is_host_name(text: str) -> bool:
    """Return whether `text` is a host name in lower case, with A-labels. IPv4 addresses pass too."""
    return len(text) <= MAX_HOST_NAME and all(_LABEL.fullmatch(label) for label in text.split("."))


class DomainInvalid(errors.Invalid):
    """The domain is not valid. It must be a name with at least two parts, such as example.com."""


class Domain(str):
    """A domain name in canonical form: at least two A-labels in lower case. Two spellings of the same domain are equal."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the domain in canonical form. Raises: DomainInvalid."""
        name = to_a_labels(text)
        labels = name.split(".")
        # If the last label is a number, the name is an IPv4 address. A single label is a host name,
        # not a domain.
        if len(labels) < 2 or labels[-1].isdigit() or not is_host_name(name):
            raise DomainInvalid
        return cls(name)


class Email(str):
    """An email address in canonical form: trimmed, in lower case, the domain in A-labels. Two spellings of the same mailbox are equal.

    Every input passes through `parse`, so a unique index on the canonical form is sufficient (security E-3).
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address in canonical form. Raises: EmailInvalid."""
        local, at, domain = text.strip(" ").rpartition("@")
        # Check for ASCII before lowering the case: the Kelvin sign's lower case is a plain "k"
        # (CVE-2019-19844).
        if not at or not local.isascii() or len(local) > 64:
            raise EmailInvalid
        local = local.lower()
        # "=?" starts an encoded word (RFC 2047), which a header cannot contain as an address
        # (security E-4).
        if not _LOCAL.fullmatch(local) or "=?" in local:
            raise EmailInvalid
        try:
            ascii_domain = Domain.parse(domain)
        except DomainInvalid:
            raise EmailInvalid from None
        if len(local) + 1 + len(ascii_domain) > 254:  # RFC 5321 section 4.5.3.1.3, without the angle brackets
            raise EmailInvalid
        return cls(f"{local}@{ascii_domain}")

    @classmethod
    def parse_part(cls, text: str) -> str:
        """Return a part of an address in canonical form, to search stored addresses for it. The part's domain labels become A-labels."""
        local, at, domain = text.strip().lower().rpartition("@")
        try:
            return f"{local}{at}{to_a_labels(domain)}"
        except DomainInvalid:
            return f"{local}{at}{domain}"

    @property
    def domain(self) -> Domain:
        return Domain(self.rpartition("@")[2])


# What a host name's labels never have: other ASCII characters, and a hyphen at the start or at the
# end.
_NOT_IN_LABELS = re.compile(r"[\0-,/:-`{-\x7f]|(?:^|\.)-|-(?:\.|$)")


def to_a_labels(domain: str) -> str:
    """Return a domain in lower case with A-labels. Whether its labels are valid is not checked.

    Raises: DomainInvalid for names that have another usual spelling, and for international names that are too long.
    """
    if domain.isascii():
        return domain.lower()
    # An A-label is longer than its Unicode form. The codec takes seconds for very long names.
    if len(domain) > MAX_HOST_NAME:
        raise DomainInvalid
    if unicodedata.normalize("NFD", domain) == domain:  # some systems paste accents as separate characters
        domain = unicodedata.normalize("NFC", domain)
    lowered = domain.lower()
    # Full-width and compatibility letters would become another, existing domain (CVE-2026-73420).
    # The standard library's codec (IDNA 2003) turns the sharp s into "ss". Names that change when
    # encoded and decoded again are refused.
    if unicodedata.normalize("NFKC", domain) != domain or _NOT_IN_LABELS.search(lowered):
        raise DomainInvalid
    try:
        encoded = lowered.encode("idna")
        if encoded.decode("idna") != lowered:
            raise DomainInvalid
    except UnicodeError:
        raise DomainInvalid from None
    return encoded.decode("ascii")


class SlugInvalid(errors.Invalid):
    """A slug must have 1 to 63 lower-case letters and digits. Single hyphens are allowed between them."""


class SlugReserved(errors.Invalid):
    """This slug is reserved. Choose another one."""


_SLUG = re.compile(r"[a-z0-9](?:-?[a-z0-9])*")
# Words that our own paths use, or that users would take for the platform itself.
_RESERVED = frozenset({
    "about", "account", "accounts", "admin", "administrator", "api", "app", "assets", "auth", "billing", "callback", "docs",
    "gatehouse", "health", "help", "home", "internal", "invitations", "legal", "login", "logout", "mail", "me", "metrics", "new",
    "oauth", "openapi", "organizations", "owner", "platform", "pricing", "privacy", "public", "register", "root", "saml", "scim",
    "security", "select", "service", "services", "settings", "signin", "signup", "sso", "static", "status", "support", "system",
    "terms", "test", "tiers", "tokens", "unknown", "user", "users", "webhooks", "well-known", "www",
})  # fmt: skip


class Slug(str):
    """The name that an organization or a service has in URLs.

    A slug is in lower case, so it is unique regardless of case (security T-4).
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str, reserved: Collection[str] = _RESERVED) -> Self:
        """Return `text` as a slug. Raises: SlugInvalid, SlugReserved."""
        if len(text) > 63 or not _SLUG.fullmatch(text):
            raise SlugInvalid
        if text in reserved:
            raise SlugReserved
        return cls(text)

    @classmethod
    def suggest(cls, name: str, fallback: str) -> Iterator[Self]:
        """Yield slugs that resemble this name, the shortest first.

        Accents are dropped. A name without a usable character becomes `fallback`.
        """
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        base = re.sub(r"[^a-z0-9]+", "-", plain)[:50].strip("-") or fallback
        candidates = chain([base], (f"{base}-{number}" for number in count(2)))
        return (cls(candidate) for candidate in candidates if candidate not in _RESERVED)


MAX_SUGGESTED_SLUGS: Final = 20


class NameUsedTooOften(errors.Invalid):
    """Too many others have this name already. Choose another name."""


async def create_with_free_slug(name: str, fallback: str, create: Callable[[Slug], Awaitable[T]], taken: type[errors.Refusal]) -> T:
    """Return what `create` returns for the first free slug that `Slug.suggest` yields.

    Raises: NameUsedTooOften if the first MAX_SUGGESTED_SLUGS are not free; the other errors of `create`.
    """
    for slug in islice(Slug.suggest(name, fallback), MAX_SUGGESTED_SLUGS):
        with suppress(taken):
            return await create(slug)
    raise NameUsedTooOften


@dataclass(frozen=True, slots=True)
class Page:
    """A list page: its number, starting at 1, and how many items a page has."""

    number: int
    limit: int

    @property
    def offset(self) -> int:
        """Return how many items come before this page."""
        return (self.number - 1) * self.limit


@dataclass(frozen=True, slots=True)
class PageResult(Generic[T]):
    """A list page, and how many items the whole list has."""

    items: Sequence[T]
    total: int


class Batches(Generic[T]):
    """An asynchronous iterator over the batches of a list without a maximum length (security N-6).

    `read` gets the previous batch's last item (None at the start) and the largest size for the next batch. Every call
    should take its own database connection, and return it at the end. `limit` bounds the item count.
    """

    def __init__(self, read: Callable[[T | None, int], Awaitable[Sequence[T]]], limit: int | None = None, *, size: int = 500) -> None:
        self._read = read
        self._size = size
        self._left = limit
        self._last: T | None = None
        self.has_ended = limit == 0  # there is no further batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[T]:
        batch = await self.next_batch()
        if not batch:
            raise StopAsyncIteration
        return batch

    async def next_batch(self) -> Sequence[T]:
        """Return the next batch, or an empty batch at the end.

        Use `next_batch` instead of `anext` with a default, which has a bug in Python 3.11.
        """
        if self.has_ended:
            return ()
        size = self._size if self._left is None else min(self._size, self._left)
        batch = await self._read(self._last, size)
        if self._left is not None:
            self._left -= len(batch)
        self.has_ended = len(batch) < size or self._left == 0
        if batch:
            self._last = batch[-1]
        return batch


class Keep(enum.Enum):
    """The type of KEEP: the value for a field that a change leaves as it is. With None, a change would set the field to null."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


def provided(**fields: object) -> dict[str, Any]:
    """Return the fields with another value than KEEP, by name."""
    return {name: value for name, value in fields.items() if value is not KEEP}


_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def parse_id(text: str) -> uuid.UUID | None:
    """Return the id if `text` is a UUID in canonical form, or None. Other spellings are not accepted (security T-4)."""
    return uuid.UUID(text) if _ID.fullmatch(text) else None


def rfc3339(time: datetime) -> str:
    """Return a time in the format for responses and log entries: in UTC, with a Z."""
    return time.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def read_time(value: object) -> datetime | None:
    """Return the time (UTC) that a NumericDate means (RFC 7519 section 2), or None if the value is no NumericDate."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def new_id() -> uuid.UUID:
    """Return a random UUID (version 4, from the operating system's generator)."""
    return uuid.uuid4()


def new_secret() -> str:
    """Return 256 random bits as 43 base64url characters."""
    return secrets.token_urlsafe(32)


def base64url(content: bytes) -> str:
    """Return the content in base64url without padding (RFC 7515 section 2)."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def digest(secret: str) -> bytes:
    """Return a secret's SHA-256 digest (32 bytes). The database stores and finds secrets by their digests.

    Secrets with at least 122 random bits need no slow hash (security A-5).
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
