"""Who calls, and what they may: callers, roles, and the one function that turns a token and a row into a person."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from core.errors import Forbidden, SessionEnded
from core.values import Email


class Role(StrEnum):
    """Membership roles, in descending order of power (identity.md section 5, rule 1)."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class OrganizationStatus(StrEnum):
    """organizations.md section 2.3."""

    PENDING = "pending"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever caused something: what `transaction(by=...)` writes into audit entries."""

    address: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous(Caller):
    """Nobody in particular, over HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Caller):
    """The service itself: an actor, or a command of the operator."""


SYSTEM = System()


@dataclass(frozen=True, slots=True)
class OrganizationContext:
    """The organization that a token was issued for, as it stands now."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Person(Caller):
    """A person with a live session; every right is read from the database for this request (security.md J-5)."""

    user_id: UUID
    email: Email
    email_verified: bool = False
    session_id: UUID
    is_platform_owner: bool = False
    organization: OrganizationContext | None = None
    impersonator_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What an access token of ours says (identity.md section 5, rule 4; decisions, point 36).

    `org_id` goes beside `org` so that a token of a deleted organization is worth nothing in a later one of the same name
    (security.md J-6). Times are UTC.
    """

    user_id: UUID
    session_id: UUID
    email: Email
    email_verified: bool
    token_id: UUID
    issued_at: datetime
    expires_at: datetime
    org: str = ""
    org_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What one statement knows of a live session: the person, and the organization that was asked about, if the person is a member."""

    user_id: UUID
    email: Email
    email_verified_at: datetime | None
    is_platform_owner: bool
    organization: OrganizationContext | None


class NotAMember(Forbidden):
    """You are not a member of the organization that this token was issued for."""


def person(claims: Claims, standing: Standing | None, *, address: str | None, agent: str | None, anywhere: bool = False) -> Person:
    """The person that `claims` and the database together describe.

    Raises SessionEnded when the session, or the account, is no longer live; NotAMember when the token names an organization that
    the person does not belong to any more, unless `anywhere` is true (ending one's own session must always be possible).
    """
    if standing is None:
        raise SessionEnded
    organization = standing.organization if claims.org_id is not None else None
    if claims.org_id is not None and organization is None and not anywhere:
        raise NotAMember
    return Person(
        user_id=standing.user_id,
        email=standing.email,
        email_verified=standing.email_verified_at is not None,
        session_id=claims.session_id,
        is_platform_owner=standing.is_platform_owner,
        organization=organization,
        address=address,
        agent=agent,
    )
