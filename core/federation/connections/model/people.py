"""The people who come through a connection, and the accounts that they get."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Self
from uuid import UUID

from core.accounts.model.profiles import NO_PROFILE
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.logins import ProviderSession
from core.kernel import errors, proofs, values
from core.tenancy.model.invitations import TeamFull

LINK_TTL: Final = timedelta(hours=1)  # in which the user signs in to the account that is linked


class ConnectionNotActive(errors.Conflict):
    """Your organization's identity provider is not set up for sign-ins yet, or no longer. Contact your IT department."""


class AddressOutside(errors.Forbidden):
    """Your organization's identity provider sent no email address at a domain of your organization. Contact your IT department."""


class AddressReserved(errors.Conflict):
    """This email address belonged to another account until recently. Try again in three days, or contact your IT department."""


class PlatformOwnerRefused(errors.Forbidden):
    """Your account administers this platform. Sign in with a way of your own, such as your password or a passkey."""


class OtherPersonLinked(errors.Conflict):
    """Your account is linked with another user of your organization's identity provider. Ask an admin of the organization to unlink it."""


class ConnectionTeamFull(TeamFull):
    """Your organization has reached its member limit. Ask an admin of the organization to make room, then sign in again."""


class ConnectionPersonNotFound(errors.NotFound):
    """The connection does not know this user. See the list of its people."""


class ConnectionNotLinked(errors.NotFound):
    """Your account is not linked with this connection. See the list of your linked accounts."""


class LinkNeeded(errors.Conflict):
    """An account with your email address exists already. Sign in to it once to link it with your organization."""


@dataclass(frozen=True, slots=True)
class GroupRule:
    """A group for users with this value of the claim, or with None for all users. `mapped_by` is the member who answers for it."""

    value: str | None
    group_id: UUID
    mapped_by: UUID


@dataclass(frozen=True, slots=True)
class ConnectionSubject:
    """A subject at a connection. `user_id` is None if the connection does not know it yet."""

    is_active: bool  # the connection and its organization
    user_id: UUID | None
    is_member: bool
    is_blocked: bool  # by the directory
    is_provisioned: bool = False  # by the directory, which then decides about the groups alone
    given: frozenset[UUID] = frozenset()  # the groups that the connection gave the user
    mapped: tuple[GroupRule, ...] = ()

    def groups_for(self, claimed: frozenset[str] | None) -> frozenset[UUID]:
        """Return the groups for these values of the claim. Without the claim, the groups by values stay as they are."""
        if self.is_provisioned:
            return frozenset()
        wanted = {each.group_id for each in self.mapped if each.value is None or (claimed is not None and each.value in claimed)}
        return frozenset(wanted) | self.given if claimed is None else frozenset(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPerson:
    """A person that a connection knows. Times are UTC."""

    user_id: UUID
    email: values.Email  # of the account
    subject: str
    provider_email: values.Email | None  # as the identity provider sent it last
    linked_at: datetime
    last_used_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnConnectionLink:
    """A connection of an organization that knows the user's account. Times are UTC."""

    org_id: UUID
    organization: str
    connection_id: UUID
    connection: str
    linked_at: datetime
    last_used_at: datetime


@dataclass(frozen=True, slots=True)
class PendingLink:
    """A person and an account that exists already. It is linked when the user has agreed and has signed in to it. `at` is UTC."""

    id: UUID
    person: AssertedPerson = field(repr=False)
    at: datetime
    is_fresh: bool
    is_agreed: bool = False  # by the user; until then, a sign-in makes no link
    logout: str | None = field(default=None, repr=False)  # the encrypted values for a sign-out at the identity provider

    @property
    def document(self) -> dict[str, Any]:
        """The link as it is stored."""
        person = self.person
        return {
            "org_id": str(person.org_id),
            "connection_id": str(person.connection_id),
            "subject": person.subject,
            "email": person.email,
            "groups": None if person.groups is None else sorted(person.groups),
            "has_second_factor": person.has_second_factor,
            "ends_at": None if person.ends_at is None else values.rfc3339(person.ends_at),
            "at": values.rfc3339(self.at),
            "is_fresh": self.is_fresh,
            "id": str(self.id),
            "is_agreed": self.is_agreed,
            "provider_session": None if person.session is None else person.session.id,
            "logout": self.logout,
        }

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None, now: datetime) -> Self | None:
        """Return the stored link, or None without one, or if it is too old.

        The names of the person are not stored. `logout` has the values for a sign-out at the identity provider.
        """
        if stored is None or (at := datetime.fromisoformat(stored["at"])) + LINK_TTL <= now:
            return None
        groups, ends_at, session, logout = stored["groups"], stored["ends_at"], stored["provider_session"], stored["logout"]
        person = AssertedPerson(
            connection_id=UUID(stored["connection_id"]),
            org_id=UUID(stored["org_id"]),
            subject=stored["subject"],
            email=values.Email(stored["email"]),
            is_email_verified=True,
            profile=NO_PROFILE,
            groups=None if groups is None else frozenset(groups),
            has_second_factor=stored["has_second_factor"],
            authenticated_at=None,
            ends_at=None if ends_at is None else datetime.fromisoformat(ends_at),
            claim_names=(),
            session=None if session is None and logout is None else ProviderSession(session, {}),
        )
        return cls(UUID(stored["id"]), person, at, stored["is_fresh"], stored["is_agreed"], logout)


def proof_of(person: AssertedPerson, at: datetime, *, is_fresh: bool, login: UUID | None = None) -> proofs.Proof:
    """Return the proof of a sign-in at a connection. It counts in the organization of the connection alone."""
    return proofs.Proof(
        proofs.Method.CONNECTION,
        at,
        is_fresh=is_fresh,
        user_verified=person.has_second_factor,
        connection=person.connection_id,
        org=person.org_id,
        until=person.ends_at,
        login=login,
        received=person.claim_names,
    )
