"""The person that an identity provider asserts, mapped from its claims or attributes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from core.accounts.model import profiles
from core.authentication.model.sign_in_log import GROUPS_LEFT_OUT
from core.federation.connections.model.answers import CLOCK_SKEW, AnswerRefused
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.logins import ProviderSession
from core.federation.connections.model.settings import SamlSettings
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.errors import Invalid
from core.kernel.values import Email, is_printable

# Of a persistent NameID (SAML core section 8.3.7); OpenID Connect allows 255
MAX_SUBJECT: Final = 256

T = TypeVar("T")


class SubjectMissing(AnswerRefused):
    """Your organization's identity provider did not say who you are. Contact your IT department."""


@dataclass(frozen=True, slots=True)
class OneTimeAssertion:
    """An assertion of a SAML identity provider, which works once. Its hash is kept until it has expired everywhere (UTC)."""

    hash: bytes
    kept_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedClaims:
    """The verified content of a response, the same for both protocols. Times are UTC."""

    subject: str
    values: Mapping[str, Sequence[str]]  # of each claim or attribute
    objects: Sequence[str] = ()  # the names of claims that cannot be mapped, because they are objects
    is_email_verified: bool | None = None  # None: the identity provider does not say
    has_second_factor: bool = False
    authenticated_at: datetime | None = None
    ends_at: datetime | None = None  # of the session at the identity provider
    session: ProviderSession | None = None
    assertion: OneTimeAssertion | None = None  # with SAML

    def first(self, claim: str | None) -> str | None:
        """Return the first value of a claim, or None without one."""
        return None if claim is None else next(iter(self.values.get(claim, ())), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedPerson:
    """A person that the identity provider of an organization has signed in. Times are UTC."""

    connection_id: UUID
    org_id: UUID
    subject: str
    email: Email | None  # None: the claim is missing, or no address
    is_email_verified: bool
    profile: profiles.Profile  # names, and for a new account the picture and the locale
    groups: frozenset[str] | None  # the values of the claim with the groups; None: it is missing
    has_second_factor: bool
    authenticated_at: datetime | None
    ends_at: datetime | None
    claim_names: tuple[str, ...]  # of all that were received
    session: ProviderSession | None = None
    assertion: OneTimeAssertion | None = None  # with SAML; the sign-in uses it up
    groups_left_out: bool = False  # because the user has too many
    clock_skew: timedelta = CLOCK_SKEW  # tolerated by the connection


def map_claims(connection: OrganizationConnection, received: ReceivedClaims) -> AssertedPerson:
    """Return the person, by the mapping of the connection. Facts that an account cannot have are left out."""
    mapping, settings, values = connection.mapping, connection.settings, received.values
    groups = None if mapping.groups is None else values.get(mapping.groups)
    return AssertedPerson(
        connection_id=connection.id,
        org_id=connection.org_id,
        subject=received.subject,
        email=_valid(Email.parse, received.first(mapping.email)),
        is_email_verified=settings.trusts_email if received.is_email_verified is None else received.is_email_verified,
        profile=profiles.Profile(
            name=_valid(profiles.parse_name, received.first(mapping.name)),
            given_name=_valid(profiles.parse_name, received.first(mapping.given_name)),
            family_name=_valid(profiles.parse_name, received.first(mapping.family_name)),
            picture=_valid(partial(profiles.parse_fact, "picture"), received.first(mapping.picture)),
            locale=_valid(partial(profiles.parse_fact, "locale"), received.first(mapping.locale)),
        ),
        groups=None if groups is None else frozenset(groups),
        has_second_factor=received.has_second_factor and settings.trusts_second_factor,
        authenticated_at=received.authenticated_at,
        ends_at=received.ends_at,
        claim_names=tuple(sorted((*values, *received.objects))),
        session=received.session,
        assertion=received.assertion,
        groups_left_out=mapping.groups is not None and groups is None and not GROUPS_LEFT_OUT.isdisjoint(values),
        clock_skew=settings.clock_skew,
    )


def saml_subject(settings: SamlSettings, name_id: tuple[str, str | None] | None, values: Mapping[str, Sequence[str]]) -> str:
    """Return the subject of an assertion. `name_id` is the NameID and its format, or None.

    A transient NameID is no subject, whatever format the settings ask for.
    """
    if settings.subject is not None:
        found = values.get(settings.subject, ())
        # With several values, their order would decide about the account.
        return require_subject(found[0] if len(found) == 1 else "")
    if name_id is None or name_id[1] == NameIdFormat.TRANSIENT:
        raise SubjectMissing
    return require_subject(name_id[0])


def require_subject(subject: str) -> str:
    """Return a subject that can be stored. Its case counts."""
    if not 0 < len(subject) <= MAX_SUBJECT or not is_printable(subject):
        raise SubjectMissing
    return subject


def _valid(parse: Callable[[str], T], text: str | None) -> T | None:
    """Return the parsed value, or None without a valid one."""
    try:
        return None if text is None else parse(text)
    except Invalid:
        return None
