"""The effects that routes have. A route declares its effect, and this table has the requirements on the caller."""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from core.kernel.access import EffectDemands
from core.kernel.sign_in_age import SignInAge


class Effect(Enum):
    """The change that remains after a request. Log entries, last-use times, limits, flows and queues do not count."""

    SHOWS = auto()  # no change
    CHANGES = auto()  # a changed row in an organization, an account or the platform
    GIVES = auto()  # access, secrets, connections or token contents, given or taken away
    ACTS_ON_ME = auto()  # another way into the caller's account, another address, or its end
    MINE = auto()  # own data without power: names, picture, devices, consents, sessions, answers to invitations
    ENDS = auto()  # ended sessions of people in the organization
    PROTOCOL = auto()  # the state in a sign-in or in a token protocol


class Programs(Enum):
    """The programs that can use a route beside people: service accounts and personal access tokens."""

    ALL = auto()
    IF_GRANTED = auto()  # only a service account to which an owner granted the capability by name
    NONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow(EffectDemands):
    """What an effect, or a named exception, requires."""

    effect: Effect
    programs: Programs = Programs.ALL
    reason: str = ""  # why an exception is made


SHOWS: Final = EffectRow(effect=Effect.SHOWS)
CHANGES: Final = EffectRow(effect=Effect.CHANGES, outlives=True, age=SignInAge.RECENT)
GIVES: Final = replace(CHANGES, effect=Effect.GIVES)
ACTS_ON_ME: Final = EffectRow(effect=Effect.ACTS_ON_ME, outlives=True, age=SignInAge.FRESH, programs=Programs.NONE)
MINE: Final = EffectRow(effect=Effect.MINE, outlives=True)
ENDS: Final = replace(SHOWS, effect=Effect.ENDS)
PROTOCOL: Final = EffectRow(effect=Effect.PROTOCOL, outlives=True, programs=Programs.NONE)

# The exceptions
SHOWS_PEOPLE: Final = replace(SHOWS, programs=Programs.NONE, reason="It shows how people sign in, or writes to the caller's mailbox.")
SHOWS_IMPOSED: Final = replace(
    SHOWS_PEOPLE, asks_policy=False, reason="No policy of an organization hides from its owner the rules that keep them out."
)
PREVIEWS: Final = replace(SHOWS_PEOPLE, outlives=True, reason="A preview of a sign-in policy is refused to impersonators, as saving is.")
BY_PEOPLE: Final = replace(
    GIVES, programs=Programs.NONE, reason="It decides about programs, or about who becomes an admin: no grant is enough."
)
PROMOTES: Final = replace(GIVES, programs=Programs.IF_GRANTED, reason="A personal access token changes no role, and ends only itself.")
OWNS: Final = replace(BY_PEOPLE, age=SignInAge.FRESH, reason="An owner's right, a sign-in policy, or a way into another account.")
REMOVES_FACTORS: Final = replace(PROMOTES, age=SignInAge.FRESH, reason="Removing another user's factors opens their account wider.")
WAYS_IN: Final = replace(ACTS_ON_ME, changes_factors=True, reason="The policies that the user must meet say which sign-in is enough.")
LEAVES: Final = replace(
    ACTS_ON_ME, age=SignInAge.RECENT, asks_policy=False, reason="No policy of an organization holds a member who wants to leave."
)
UNLOCKS: Final = replace(OWNS, asks_policy=False, reason="No policy of an organization keeps its owner from removing imposed rules.")
CHECKOUT: Final = replace(
    CHANGES, outlives=False, age=SignInAge.ANY, programs=Programs.NONE, reason="The payment provider asks the buyer, who pays there."
)
SELECTS: Final = replace(PROTOCOL, outlives=False, reason="The new token belongs to the same session, or to the same impersonation.")
SIGNS_OUT: Final = replace(SELECTS, ends_session=True, reason="Callers may end the session that they use, impersonators too.")
