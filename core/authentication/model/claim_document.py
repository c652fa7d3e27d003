"""The claims document of an application: which claims its tokens have, and where their values come from.

`claim_rules` builds claims by it. An application without a document gets the standard claims.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

from core.authentication.model import openid
from core.kernel.errors import Invalid
from core.kernel.values import is_printable, is_visible
from core.tenancy.model import attributes

MAX_CLAIMS: Final = 50  # per document
MAX_CLAIM_NAME: Final = 100
MAX_NAME_BYTES: Final = 2048  # of all own names: a token names also the claims that it leaves out
MAX_PREFIX: Final = 50
MAX_SOURCES: Final = 5  # per claim
MAX_FIXED_BYTES: Final = 1024  # of all fixed values as JSON
Document = Mapping[str, Any]  # JSON: the form for claims in the API and in the database
LIST_CLAIMS: Final = ("roles", "permissions", "groups")
# A mapping can replace these claims. All remaining standard claims state facts from Gatehouse itself, such as a verified
# address.
REPLACEABLE: Final = frozenset(openid.CLAIMS_OF_SCOPE[openid.Scope.PROFILE]) - {"updated_at"}
MAPPED_SCOPES: Final = (
    openid.Scope.PROFILE,
    openid.Scope.EMAIL,
    openid.Scope.ORG,
    openid.Scope.ROLES,
    openid.Scope.PERMISSIONS,
    openid.Scope.GROUPS,
)
# Claims in access tokens, in introspection, and from OpenID Connect Core sections 3.3.2.11 and 5.6.2.
_FURTHER_PROTOCOL_CLAIMS: Final = (
    *("jti", "nbf", "token_use", "token_type", "client_id", "scope", "cnf", "act", "may_act", "active", "username", "events"),
    *("service", "credential_id", "impersonator", "impersonation_session", "sub_jwk", "c_hash", "s_hash"),
    *("_claim_names", "_claim_sources", openid.SESSION_EXPIRY),
)
OMITTED: Final = "_omitted"  # the suffix of the mark that replaces a claim in an access token
# Compared without regard to case: some libraries read claims so.
RESERVED: Final = frozenset(name.casefold() for name in (*openid.PROTOCOL_CLAIMS, *_FURTHER_PROTOCOL_CLAIMS))
_STANDARD: Final = frozenset(name.casefold() for name in openid.USER_CLAIMS)
ATTRIBUTE: Final = attributes.SOURCE_PREFIX
DIRECTORY: Final = "directory:"
# The scope that the user agrees to for a source. An attribute is covered by the scope of its claim.
_SCOPES: Final[Mapping[str, openid.Scope]] = {
    "email": openid.Scope.EMAIL,
    "email_local_part": openid.Scope.EMAIL,
    "id": openid.Scope.OPENID,
    **dict.fromkeys(sorted(REPLACEABLE), openid.Scope.PROFILE),
}
SOURCES: Final = tuple(_SCOPES)
# The values of a directory, by SCIM name.
DIRECTORY_VALUES: Final = (
    *("externalId", "userName", "displayName", "formatted", "givenName", "familyName", "title", "preferredLanguage"),
    *("locale", "timezone", "phoneNumber", "employeeNumber", "department", "manager", "managerName"),
)


Choice = TypeVar("Choice", bound=StrEnum)


class ClaimDocumentInvalid(Invalid):
    """The claims of the application are not valid."""

    def __init__(self, member: str, problem: str) -> None:
        """`member` is the wrong member's name in the document, and `problem` a sentence about it."""
        super().__init__(f"{member}: {problem}")
        self.member, self.problem = member, problem


class WhichGroups(StrEnum):
    """The groups of a user that an application gets."""

    ALL = "all"
    ASSIGNED = "assigned"  # to the application


class GroupValue(StrEnum):
    """The text that stands for a group in a token."""

    NAME = "name"
    ID = "id"
    EXTERNAL_ID = "external_id"  # in the directory; groups without it are left out


@dataclass(frozen=True, slots=True)
class MappedClaim:
    """A claim that takes its value from the first source that has a value. Users agree to it with the scope."""

    sources: tuple[str, ...]
    scope: openid.Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDocument:
    """The claims of an application.

    `names` has names that replace standard claim names, and `prefix` texts before every value in LIST_CLAIMS. `fixed`
    are claims with the same value for all users. `access_token` names the claims that access tokens have, too.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    prefix: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, MappedClaim] = field(default_factory=dict)
    which_groups: WhichGroups = WhichGroups.ALL
    group_value: GroupValue = GroupValue.NAME
    access_token: tuple[str, ...] = ()

    @classmethod
    def parse(cls, document: Document) -> Self:
        """Return the claims of a document that a user wrote. Raises: ClaimDocumentInvalid."""
        for name, mapped in document.get("values", {}).items():
            scopes = _scopes_of(name)
            if mapped.get("scope") not in (None, *scopes):
                raise ClaimDocumentInvalid("values", f"The scope of {name!r} must be one of {', '.join(scopes)}.")
        claims = cls._of(document)
        claims._check_names()
        claims._check_values()
        return claims

    @classmethod
    def is_valid(cls, document: Document) -> bool:
        """Return whether all parts of a stored document count."""
        try:
            cls.parse(document)
        except (ClaimDocumentInvalid, AttributeError, KeyError, TypeError, ValueError):
            return False
        return True

    @classmethod
    def read(cls, document: Document) -> Self:
        """Return the claims of a stored document, without the parts that `parse` refuses today.

        A release with different rules may have written it. No stored part stops a sign-in, or gives a claim a different claim's value.
        """
        return cls._of(document) if cls.is_valid(document) else cls._valid_part(document)

    @classmethod
    def _valid_part(cls, document: Document) -> Self:
        names = {
            claim: name
            for claim, name in _pairs(document, "names")
            if claim in openid.USER_CLAIMS and _is_name(name) and not _takes_other_name(claim, name)
        }
        has_doubles = len({names.get(claim, claim).casefold() for claim in openid.USER_CLAIMS}) < len(openid.USER_CLAIMS)
        if has_doubles or _size_of_names(names.values()) > MAX_NAME_BYTES:
            names = {}
        taken = {names.get(claim, claim).casefold() for claim in openid.USER_CLAIMS}
        values, fixed = dict[str, MappedClaim](), dict[str, Any]()
        for name, mapped in _pairs(document, "values"):
            fits = _size_of_names([*names.values(), *values, name]) <= MAX_NAME_BYTES
            if fits and (name in REPLACEABLE or _is_free(name, taken)):
                values[name] = _read_mapped(mapped, _scopes_of(name))
                taken.add(name.casefold())
        for name, value in _pairs(document, "fixed"):
            if _is_value(value) and _is_free(name, taken) and _size_of({**fixed, name: value}) <= MAX_FIXED_BYTES:
                fixed[name] = value
                taken.add(name.casefold())
        groups = dict(_pairs(document, "groups"))
        chosen = document.get("access_token")
        return cls(
            names=names,
            prefix={name: text for name, text in _pairs(document, "prefix") if name in LIST_CLAIMS and _is_text(text, MAX_PREFIX)},
            fixed=fixed,
            values=values,
            # For an unknown choice: fewer groups, and the id, which is never a different group's name.
            which_groups=_read_choice(WhichGroups, groups.get("which"), WhichGroups.ALL, WhichGroups.ASSIGNED),
            group_value=_read_choice(GroupValue, groups.get("value"), GroupValue.NAME, GroupValue.ID),
            access_token=tuple(name for name in chosen if name in (*LIST_CLAIMS, *fixed, *values)) if isinstance(chosen, list) else (),
        )

    @classmethod
    def _of(cls, document: Document) -> Self:
        groups = document.get("groups", {})
        return cls(
            names=document.get("names", {}),
            prefix=document.get("prefix", {}),
            fixed=document.get("fixed", {}),
            values={
                name: MappedClaim(tuple(mapped["sources"]), openid.Scope(mapped.get("scope") or openid.Scope.PROFILE))
                for name, mapped in document.get("values", {}).items()
            },
            which_groups=WhichGroups(groups.get("which") or WhichGroups.ALL),
            group_value=GroupValue(groups.get("value") or GroupValue.NAME),
            access_token=tuple(document.get("access_token", ())),
        )

    @property
    def document(self) -> dict[str, Any]:
        """The document that `read` reads."""
        return {
            "names": dict(self.names),
            "prefix": dict(self.prefix),
            "fixed": dict(self.fixed),
            "values": {name: {"sources": list(mapped.sources), "scope": mapped.scope.value} for name, mapped in self.values.items()},
            "groups": {"which": self.which_groups.value, "value": self.group_value.value},
            "access_token": list(self.access_token),
        }

    @property
    def attribute_names(self) -> frozenset[str]:
        """The names of the organization's own attributes that the document uses."""
        return frozenset(source.removeprefix(ATTRIBUTE) for source in self._sources() if source.startswith(ATTRIBUTE))

    def reads(self, kind: str) -> bool:
        """Return whether a claim has a source of this kind, which is ATTRIBUTE or DIRECTORY."""
        return any(source.startswith(kind) for source in self._sources())

    def shows_kept_facts(self, scopes: Collection[openid.Scope]) -> bool:
        """Return whether a claim in these scopes reads an organization's attribute or a directory value."""
        return any(
            mapped.scope in scopes and any(source.startswith((ATTRIBUTE, DIRECTORY)) for source in mapped.sources)
            for mapped in self.values.values()
        )

    def final_name(self, claim: str) -> str:
        """Return the name that a standard claim has in tokens of the application."""
        return self.names.get(claim, claim)

    def _sources(self) -> Iterator[str]:
        for mapped in self.values.values():
            yield from mapped.sources

    def _check_names(self) -> None:
        for claim in self.names:
            if claim not in openid.USER_CLAIMS:
                raise ClaimDocumentInvalid("names", f"{claim!r} is no claim of Gatehouse. Rename only claims of scopes.")
        for claim in self.prefix:
            if claim not in LIST_CLAIMS:
                raise ClaimDocumentInvalid("prefix", f"{claim!r} has no prefix. Choose from {', '.join(LIST_CLAIMS)}.")
        if len(self.names) + len(self.fixed) + len(self.values) > MAX_CLAIMS:
            raise ClaimDocumentInvalid("names", f"Together with fixed and values, name at most {MAX_CLAIMS} claims.")
        self._check_final_names()
        if _size_of_names([*self.names.values(), *self.values]) > MAX_NAME_BYTES:
            raise ClaimDocumentInvalid("names", f"The names in names and values may have {MAX_NAME_BYTES:,} bytes together. Shorten them.")
        for name in self.access_token:
            if name not in (*LIST_CLAIMS, *self.fixed, *self.values):
                raise ClaimDocumentInvalid(
                    "access_token", f"{name!r} cannot be chosen. Choose from {', '.join(LIST_CLAIMS)} and your own claims."
                )
        if len(set(self.access_token)) < len(self.access_token):
            raise ClaimDocumentInvalid("access_token", "List each claim only once.")

    def _check_final_names(self) -> None:
        taken = set[str]()
        for member, standard, name in self._final_names():
            if not 0 < len(name) <= MAX_CLAIM_NAME or not is_printable(name) or any(map(str.isspace, name)):
                raise ClaimDocumentInvalid(member, f"A claim name must have 1 to {MAX_CLAIM_NAME} printable characters without spaces.")
            if _is_reserved(name):
                raise ClaimDocumentInvalid(member, f"{name!r} is a claim of the protocol. Choose another name.")
            if _takes_other_name(standard, name):
                raise ClaimDocumentInvalid(member, f"{name!r} is a standard claim with a value of its own. Choose another name.")
            if name.casefold() in taken:
                raise ClaimDocumentInvalid(member, f"Two claims would have the name {name!r}. Choose another name for one of them.")
            taken.add(name.casefold())

    def _final_names(self) -> Iterator[tuple[str, str | None, str]]:
        """Return per claim: the document member that names it, its standard name or None, and its name in tokens."""
        for claim in sorted(openid.USER_CLAIMS):  # the standard names first, so that the refusal names the document's member
            if claim not in self.names:
                yield "names", claim, claim
        for claim, name in self.names.items():
            yield "names", claim, name
        for name in self.values:
            if name not in REPLACEABLE:
                yield "values", None, name
        for name in self.fixed:
            yield "fixed", None, name

    def _check_values(self) -> None:
        for name, text in self.prefix.items():
            if not _is_text(text, MAX_PREFIX):
                raise ClaimDocumentInvalid(f"prefix.{name}", f"A prefix must have 1 to {MAX_PREFIX} printable characters.")
        if _size_of(self.fixed) > MAX_FIXED_BYTES:
            raise ClaimDocumentInvalid("fixed", f"The fixed values are too long. Together, they may have {MAX_FIXED_BYTES} bytes of JSON.")
        for name, value in self.fixed.items():
            if not _is_value(value):
                problem = "must be a text of printable characters, a whole number, true or false, or a list of texts"
                raise ClaimDocumentInvalid("fixed", f"{name!r} {problem}.")
        for name, mapped in self.values.items():
            if not 0 < len(mapped.sources) <= MAX_SOURCES or len(set(mapped.sources)) < len(mapped.sources):
                raise ClaimDocumentInvalid("values", f"Name 1 to {MAX_SOURCES} different sources of {name!r}.")
            for source in mapped.sources:
                check_source(source, "values")


def _scopes_of(name: str) -> tuple[openid.Scope, ...]:
    """Return the scopes that an own or a replaced claim can have."""
    return (openid.Scope.PROFILE,) if name in REPLACEABLE else MAPPED_SCOPES


def _pairs(document: Document, member: str) -> Iterator[tuple[str, Any]]:
    pairs = document.get(member)
    if isinstance(pairs, Mapping):
        yield from pairs.items()


def _is_name(name: object) -> bool:
    """Return whether this can be the name of a claim."""
    is_text = isinstance(name, str) and 0 < len(name) <= MAX_CLAIM_NAME and is_printable(name) and not any(map(str.isspace, name))
    return is_text and not _is_reserved(str(name))


def _is_reserved(name: str) -> bool:
    return name.casefold() in RESERVED or name.casefold().endswith(OMITTED)


def _size_of(fixed: Mapping[str, Any]) -> int:
    return len(json.dumps(dict(fixed), ensure_ascii=False).encode())


def _size_of_names(names: Iterable[str]) -> int:
    return sum(len(name.encode()) for name in names)


def _is_free(name: str, taken: Collection[str]) -> bool:
    return _is_name(name) and not _takes_other_name(None, name) and name.casefold() not in taken


def _read_mapped(mapped: object, scopes: Collection[openid.Scope]) -> MappedClaim:
    """Return a stored mapping. Without a valid source or scope it has no source, so that the claim is left out."""
    if not isinstance(mapped, Mapping) or not isinstance(mapped.get("sources"), list) or mapped.get("scope") not in (None, *scopes):
        return MappedClaim((), openid.Scope.PROFILE)
    sources = tuple(source for source in mapped["sources"] if isinstance(source, str) and is_source(source))
    return MappedClaim(sources[:MAX_SOURCES], openid.Scope(mapped.get("scope") or openid.Scope.PROFILE))


def _read_choice(kind: type[Choice], value: object, default: Choice, unknown: Choice) -> Choice:
    if not value:
        return default
    return kind(str(value)) if value in set(kind) else unknown


def is_source(source: str) -> bool:
    """Return whether there is such a source of values."""
    try:
        check_source(source, "")
    except ClaimDocumentInvalid:
        return False
    return True


def check_source(source: str, member: str) -> None:
    """Check that there is such a source of values. `member` names it in the refusal. Raises: ClaimDocumentInvalid."""
    name = source.partition(":")[2]
    if source.startswith(ATTRIBUTE):
        if not attributes.ATTRIBUTE_NAME.fullmatch(name):
            raise ClaimDocumentInvalid(member, f"{source!r} names no attribute. Write it as in {ATTRIBUTE}cost_center.")
    elif source.startswith(DIRECTORY):
        if name not in DIRECTORY_VALUES:
            raise ClaimDocumentInvalid(member, f"{source!r} is unknown. A directory has {', '.join(DIRECTORY_VALUES)}.")
    elif source not in SOURCES:
        raise ClaimDocumentInvalid(
            member, f"{source!r} is unknown. Choose from {', '.join(SOURCES)}, {DIRECTORY}<name> and {ATTRIBUTE}<name>."
        )


def scope_of(source: str) -> openid.Scope | None:
    """Return the scope that a user agrees to for this source, or None if that of the claim is enough."""
    return _SCOPES.get(source)


def _takes_other_name(claim: str | None, name: str) -> bool:
    """Return whether a claim would have the standard name of another claim.

    An application trusts standard names: in `email`, beside `email_verified`, a name that the user chose would be a
    verified address. The LIST_CLAIMS can exchange their names.
    """
    if name.casefold() not in _STANDARD or name.casefold() == claim:
        return False
    return not (claim in LIST_CLAIMS and name.casefold() in LIST_CLAIMS)


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and is_printable(value) and is_visible(value)


def _is_value(value: object) -> bool:
    if isinstance(value, list):
        return 0 < len(value) <= MAX_CLAIMS and all(_is_text(each, MAX_FIXED_BYTES) for each in value)
    return (isinstance(value, bool | int) and -(2**53) < value < 2**53) or _is_text(value, MAX_FIXED_BYTES)
