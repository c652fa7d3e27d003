"""Proofs that a user is here, and an account's factors. Every fact that follows from them has one function."""

from collections.abc import Collection, Mapping, Sized
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final, cast
from uuid import UUID


class Method(StrEnum):
    """A way to prove that the user is here. Login records use the method names."""

    PASSWORD = "password"  # noqa: S105  (a name)
    EMAIL = "email"
    PROVIDER = "provider"
    OWNER_RECOVERY = "owner_recovery"
    TOTP = "totp"
    BACKUP_CODE = "backup_code"
    PASSKEY = "passkey"
    CONNECTION = "connection"  # an organization's connection


# A proof by such a method counts only beside a first factor.
SECOND_METHODS: Final = frozenset({Method.TOTP, Method.BACKUP_CODE})
# A second factor counts beside a first factor that is at most this much newer, and is not asked again for this time.
SECOND_FACTOR_TTL: Final = timedelta(minutes=10)
OWN_FIRST_METHODS: Final = frozenset(Method) - SECOND_METHODS - {Method.PROVIDER, Method.CONNECTION}
_PASSKEY, _TOTP, _BACKUP_CODE, _CONNECTION = Method.PASSKEY, Method.TOTP, Method.BACKUP_CODE, Method.CONNECTION
# The names in RFC 8176. RFC 8176 has no name for identity providers, and none for the link for
# owners.
_NAMES: Final[Mapping[Method | None, str]] = MappingProxyType({Method.PASSWORD: "pwd", Method.EMAIL: "otp"})


class Strength(IntEnum):
    """How strong several proofs are together, or how strong a sign-in has to be."""

    NONE = 0
    ONE = 1  # a first factor
    TWO = 2  # with a second factor
    PHISHING_RESISTANT = 3


class Acr(StrEnum):
    """Authentication context classes, the weakest first: one factor, two, or a phishing-resistant proof that counts as two."""

    PASSWORD = "pwd"  # noqa: S105  (a class)
    MFA = "mfa"
    PHISHING_RESISTANT = "phr"

    @property
    def strength(self) -> Strength:
        """The strength that meets the class."""
        return _STRENGTHS[self]


_STRENGTHS: Final[Mapping[Acr, Strength]] = MappingProxyType({acr: Strength(1 + index) for index, acr in enumerate(Acr)})


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that the user is here. `at` is UTC."""

    method: Method | None  # None: the account no longer has this first factor, or a later release stored the proof
    at: datetime
    provider: str | None = None  # the identity provider's name, for PROVIDER
    is_fresh: bool = True  # False if an identity provider may have authenticated the user earlier, and no second factor followed
    user_verified: bool = False  # the method itself verified two factors
    phishing_resistant: bool = False
    hardware: bool = False  # the key cannot leave its device
    passkey: UUID | None = field(default=None, compare=False)  # for PASSKEY
    # Set for an organization's connection. The proof counts in that organization alone, until this time (UTC) if it is set.
    connection: UUID | None = None
    org: UUID | None = None
    until: datetime | None = None
    login: UUID | None = None  # the stored sign-in at the connection, which a sign-out needs
    vouched_at: datetime | None = None  # UTC: a later sign-in at the connection that may not have asked the user; None: `at`
    received: tuple[str, ...] = field(default=(), compare=False)  # the claims that came, by name, for the sign-in log; not stored

    @property
    def is_second(self) -> bool:
        """Whether the method counts only beside a first factor."""
        method = self.method  # compared by identity: hashing a member takes longer than all the rest
        return (method is _PASSKEY and not self.user_verified) or method is _TOTP or method is _BACKUP_CODE

    @property
    def can_be_second(self) -> bool:
        """Whether the proof can count beside a first factor. A passkey that verified its user can also be the first factor."""
        return self.method is _PASSKEY or self.is_second

    @property
    def is_own(self) -> bool:
        """Whether the proof is the account's own, and so counts everywhere."""
        return self.method is not _CONNECTION


# The proofs from one sign-in, and from reauthentications in its session, oldest first. Empty: the user did not sign in, as in an
# impersonation.
Proofs = tuple[Proof, ...]
# All proofs in a session. No function below takes all proofs: `seen_in` and `in_session` return the proofs that count
# somewhere.
SessionProofs = Sized


class FactorKind(StrEnum):
    """A factor kind that an account can have."""

    PASSWORD = "password"  # noqa: S105  (a name)
    MAILBOX = "mailbox"
    TOTP = "totp"
    PASSKEY = "passkey"
    SECURITY_KEY = "security_key"


@dataclass(frozen=True, slots=True)
class Factor:
    """Something with which an account can prove its user. `since` is UTC, or None if it is not known."""

    kind: FactorKind
    since: datetime | None = None
    is_required: bool = False  # after a first factor, as the user chose for passkeys and security keys

    @property
    def is_second(self) -> bool:
        """Whether a first factor alone does not sign in."""
        return self.kind is FactorKind.TOTP or self.is_required


def first_proof(name: str, at: datetime, *, is_fresh: bool = True) -> Proof:
    """Return the proof for a first factor. `name` is the name that the login records give the method or the identity provider."""
    if name in OWN_FIRST_METHODS:
        return Proof(Method(name), at, is_fresh=is_fresh)
    if name == Method.CONNECTION:  # only `Proof` itself names the organization; without it, the proof counts nowhere
        return Proof(Method.CONNECTION, at, is_fresh=is_fresh)
    return Proof(Method.PROVIDER, at, provider=name, is_fresh=is_fresh)


def complete(first: Proof, second: Proof) -> Proofs:
    """Return the proofs for a sign-in with a second factor.

    A second factor shows that the user is here now, whatever the identity provider did.
    """
    return replace(first, is_fresh=True), second


def seen_in(proofs: SessionProofs, org_id: UUID | None, now: datetime) -> Proofs:
    """Return the session's proofs that count in this organization and its applications at this time (UTC).

    The proof from an organization's connection counts in that organization alone. `org_id` None: for the account itself and the platform,
    only the account's own proofs count. Without a first factor, no proof counts.
    """
    return _of(every_proof(proofs), org_id, now)


def in_session(proofs: SessionProofs, org_id: UUID | None = None) -> Proofs:
    """Return the proofs that count wherever the session is good: the account's own, or the proofs in a restricted session.

    An application's session is good in its organization (`org_id`).
    """
    every = every_proof(proofs)
    return _of(every, org_id or restriction_of(every), None)


def every_proof(proofs: SessionProofs) -> Proofs:
    """Return all proofs in a session, to store them.

    Nothing else may use all proofs, because some proofs count in a single organization.
    """
    return cast("Proofs", proofs)


def used_connection(proofs: SessionProofs, org_id: UUID | None = None) -> Proof | None:
    """Return the proof from the connection through which the user came last, or None if it was another way.

    An application's session has the proofs that count in its organization (`org_id`).
    """
    firsts = [proof for proof in every_proof(proofs) if not proof.is_second and (proof.is_own or org_id in (None, proof.org))]
    return firsts[-1] if firsts and not firsts[-1].is_own else None


def restriction_of(proofs: SessionProofs) -> UUID | None:
    """Return the only organization in which a session with these proofs is good.

    The result is None if the account's own first factor opens the whole account.
    """
    firsts = [proof for proof in every_proof(proofs) if not proof.is_second]
    return firsts[-1].org if firsts and not any(proof.is_own for proof in firsts) else None


def named_login(proofs: SessionProofs) -> tuple[UUID, UUID] | None:
    """Return the organization and the id of the stored sign-in at a connection, at which the user can sign out, or None."""
    named = ((proof.org, proof.login) for proof in every_proof(proofs))
    return next(((org, login) for org, login in named if org is not None and login is not None), None)


def renewed(proofs: SessionProofs, new: Proofs, since: datetime) -> Proofs:
    """Return a session's proofs after a reauthentication with `new` proofs.

    The account's own proofs after `since` by other methods stay beside the new proofs. Policies with different methods count all these
    proofs, and a second factor is not asked again. The account's own proofs and an organization connection's proofs do not replace each
    other.
    """
    every, connections = every_proof(proofs), {proof.connection for proof in new}
    is_own = all(proof.is_own for proof in new)
    own = _beside(every, new, since) if is_own else [proof for proof in every if proof.is_own]
    return (*own, *(proof for proof in every if not proof.is_own and (is_own or proof.connection not in connections)), *new)


def _beside(old: Proofs, new: Proofs, since: datetime) -> list[Proof]:
    """Return the account's own proofs after `since` by other methods than the new proofs."""
    methods = {(proof.method, proof.provider) for proof in new}
    return [proof for proof in recent(old, since) if proof.is_own and (proof.method, proof.provider) not in methods]


def joined(proofs: SessionProofs, ends_at: datetime, new: SessionProofs, new_ends_at: datetime, since: datetime) -> Proofs | None:
    """Return the proofs for a new session that replaces the same user's old session, or None if no old proof stays.

    A sign-in at a connection keeps the account's own proofs. Other sign-ins keep proofs from other connections. As a reauthentication does,
    other sign-ins also keep own proofs after `since` by other methods. Every session ends at its time (UTC), and the connection's proof
    with it.
    """
    is_own = restriction_of(new) is None
    old, new = ([_ending(proof, end) for proof in every_proof(some)] for some, end in ((proofs, ends_at), (new, new_ends_at)))
    connections = {proof.connection for proof in new} - {None}
    own = _beside(tuple(old), tuple(new), since) if is_own else [proof for proof in old if proof.is_own]
    others = [proof for proof in old if is_own and not proof.is_own and proof.connection not in connections]
    return (*own, *others, *new) if own or others else None


def _ending(proof: Proof, end: datetime) -> Proof:
    return proof if proof.is_own else replace(proof, until=min(proof.until or end, end))


def end_of(proofs: SessionProofs) -> datetime | None:
    """Return the latest end (UTC) for a session with these proofs, if its only first factor is a connection's proof, or None."""
    if restriction_of(proofs) is None:
        return None
    return min((proof.until for proof in in_session(proofs) if proof.until is not None), default=None)


def with_second(proofs: SessionProofs, second: Proof) -> Proofs:
    """Return the proofs for a session with a second factor, in place of an earlier second factor."""
    return (*(proof for proof in every_proof(proofs) if not proof.is_second and replace(proof, at=second.at) != second), second)


def has_connection(proofs: SessionProofs) -> bool:
    """Return whether the user signed in at an organization's connection."""
    return any(not proof.is_own for proof in every_proof(proofs))


def recent(proofs: Proofs, since: datetime) -> Proofs:
    """Return the proofs that are not older than this time (UTC)."""
    return tuple(proof for proof in proofs if proof.at >= since)


def sign_in_with(first: Proof, proofs: Proofs) -> Proofs:
    """Return a sign-in's proofs: its first factor, and the session's second factors that count beside it.

    A second factor counts beside a first factor that is at most SECOND_FACTOR_TTL newer. A passkey from before the first factor counts only
    as a second factor, because a later first factor makes no passkey newer.
    """
    since = first.at - SECOND_FACTOR_TTL
    seconds = (proof for proof in proofs if proof is not first and proof.can_be_second and proof.at >= since)
    return (first, *(replace(proof, user_verified=False) if proof.at < first.at else proof for proof in seconds))


def strength_of(proofs: Proofs) -> Strength:
    """Return how strong a sign-in's proofs are together. A second factor alone has no strength."""
    has_first = has_second = False
    for proof in proofs:
        if proof.is_second:
            has_second = True
            continue
        if proof.phishing_resistant and proof.user_verified:
            return Strength.PHISHING_RESISTANT
        has_first, has_second = True, has_second or proof.user_verified
    if not has_first:
        return Strength.NONE
    return Strength.TWO if has_second else Strength.ONE


def newest_sign_in(proofs: Proofs) -> Proofs:
    """Return the proofs from the session's newest sign-in or reauthentication.

    Protocols know only the newest sign-in, so that `acr`, `amr` and `auth_time` are about the same moment. Earlier first factors, which
    `renewed` keeps, count only for the methods in sign-in policies.
    """
    return proofs if len(proofs) <= 1 else sign_in_with(_newest_first_factor(proofs), proofs)


def session_strength(proofs: Proofs) -> Strength:
    """Return how strong the session's newest sign-in is."""
    return strength_of(newest_sign_in(proofs))


def acr_of(proofs: Proofs, asked: Collection[Acr] = ()) -> Acr:
    """Return the strongest authentication context class that is met, or the strongest asked class if an asked class is met."""
    strength = session_strength(proofs)
    met = [acr for acr, required in _STRENGTHS.items() if required <= strength]
    return ([acr for acr in met if acr in asked] or met or [Acr.PASSWORD])[-1]


def amr_of(proofs: Proofs) -> list[str]:
    """Return the methods with their names from RFC 8176. An identity provider has no such name."""
    first = _newest_first_factor(proofs)
    name = _NAMES.get(first.method)
    names = [] if name is None else [name]
    second = second_of(proofs)
    for proof in (first, second):
        if proof is not None and proof.method is Method.PASSKEY:
            names += ["hwk" if proof.hardware else "swk", "user"]
    if second is not None and second.method in SECOND_METHODS:
        names.append("otp")
    if session_strength(proofs) >= Strength.TWO:
        names.append("mfa")
    return [*dict.fromkeys(names)]


def first_method_of(proofs: Proofs) -> str | None:
    """Return the first factor's name, as in the login records, or None if it is not known."""
    proof = _newest_first_factor(proofs)
    return proof.provider or (proof.method and proof.method.value)


def methods_of(proofs: Proofs) -> tuple[str, ...]:
    """Return the method names as in the login records: first the first factor, then the second factor if it was proved."""
    first, second = first_method_of(proofs), second_of(proofs)
    names = () if second is None or second.method is None else (second.method.value,)
    return (first or Method.PASSWORD.value, *names)  # the account may no longer have the first factor


def second_of(proofs: Proofs) -> Proof | None:
    """Return the proof of the second factor beside the first factor, or None. A passkey can be either."""
    return next(reversed(newest_sign_in(proofs)[1:]), None)


def proved_at(proofs: Proofs) -> datetime:
    """Return when (UTC) the newest first factor was proved. A second factor alone makes no sign-in newer."""
    return _newest_first_factor(proofs).at


def is_fresh(proofs: Proofs) -> bool:
    """Return whether the user took part in the newest sign-in. Otherwise an identity provider may have known the user from earlier."""
    return _newest_first_factor(proofs).is_fresh


def is_by_provider(proofs: Proofs) -> bool:
    """Return whether an identity provider authenticated the user."""
    return _newest_first_factor(proofs).method in (Method.PROVIDER, Method.CONNECTION)


def required_strength(factors: Collection[Factor]) -> Strength:
    """Return how strong a sign-in with all these factors is."""
    return Strength.TWO if any(factor.is_second for factor in factors) else Strength.ONE


def reachable_strength(factors: Collection[Factor]) -> Strength:
    """Return how strong a sign-in can be at most with these account factors.

    Sign-ins accept a security key only if it is a second factor.
    """
    has_passkey = any(factor.kind is FactorKind.PASSKEY for factor in factors)
    return Strength.PHISHING_RESISTANT if has_passkey else required_strength(factors)


def covers(proofs: Proofs, factors: Collection[Factor]) -> bool:
    """Return whether the newest sign-in's proofs cover all these account factors."""
    return session_strength(proofs) >= required_strength(factors)


def _of(proofs: Proofs, org_id: UUID | None, now: datetime | None) -> Proofs:
    counting = tuple(proof for proof in proofs if proof.is_own or (proof.org is not None and proof.org == org_id and _is_live(proof, now)))
    return counting if any(not proof.is_second for proof in counting) else ()


def _is_live(proof: Proof, now: datetime | None) -> bool:
    return now is None or proof.until is None or now < proof.until


def _newest_first_factor(proofs: Proofs) -> Proof:
    firsts = [proof for proof in proofs if not proof.is_second]
    return firsts[0] if len(firsts) == 1 else max(firsts, key=lambda proof: (proof.at, proof.is_fresh))
