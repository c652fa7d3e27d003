"""Proofs that a user is here, and the factors of an account. Each fact that follows from them has one function."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final


class Method(StrEnum):
    """A way to prove that the user is here. Login records have the same names."""

    PASSWORD = "password"  # noqa: S105  (a name)
    EMAIL = "email"
    PROVIDER = "provider"
    OWNER_RECOVERY = "owner_recovery"
    TOTP = "totp"
    BACKUP_CODE = "backup_code"
    PASSKEY = "passkey"


# A proof by one of these counts only beside a first factor.
SECOND_METHODS: Final = frozenset({Method.TOTP, Method.BACKUP_CODE})
OWN_FIRST_METHODS: Final = frozenset(Method) - SECOND_METHODS - {Method.PROVIDER}
_PASSKEY, _TOTP, _BACKUP_CODE = Method.PASSKEY, Method.TOTP, Method.BACKUP_CODE
# The names of RFC 8176. An identity provider has none there, and neither has the link for owners.
_NAMES: Final[Mapping[Method | None, str]] = MappingProxyType({Method.PASSWORD: "pwd", Method.EMAIL: "otp"})


class Strength(IntEnum):
    """The strength of several proofs together, or the strength that something requires."""

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
    """One proof that the user is here. `at` is UTC."""

    method: Method | None  # None: an earlier release started the session, and did not store it
    at: datetime
    provider: str | None = None  # the name of the identity provider, for PROVIDER
    is_fresh: bool = True  # False if an identity provider may have authenticated the user earlier, and no second factor followed
    user_verified: bool = False  # the method itself verified two factors
    phishing_resistant: bool = False
    hardware: bool = False  # the key cannot leave its device

    @property
    def is_second(self) -> bool:
        """Whether it counts only beside a first factor."""
        method = self.method  # compared by identity: the hash of a member takes longer than all the rest
        return (method is _PASSKEY and not self.user_verified) or method is _TOTP or method is _BACKUP_CODE


# The proofs of one sign-in, and of reauthentications in its session, oldest first. Empty: the user did not sign in, as in an impersonation.
Proofs = tuple[Proof, ...]


class FactorKind(StrEnum):
    """A kind of factor of an account."""

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
    """Return the proof of a first factor. `name` is that of the method or the identity provider, as in the login records."""
    if name in OWN_FIRST_METHODS:
        return Proof(Method(name), at, is_fresh=is_fresh)
    return Proof(Method.PROVIDER, at, provider=name, is_fresh=is_fresh)


def complete(first: Proof, second: Proof) -> Proofs:
    """Return the proofs of a sign-in with a second factor. This shows that the user is here now, whatever the identity provider did."""
    return replace(first, is_fresh=True), second


def renewed(proofs: Proofs, new: Proofs, since: datetime) -> Proofs:
    """Return the proofs of a session after a reauthentication with `new` ones.

    First factors since then by other methods stay beside them: policies with different methods count each of them.
    """
    methods = {(proof.method, proof.provider) for proof in new}
    kept = (proof for proof in recent(proofs, since) if not proof.is_second and (proof.method, proof.provider) not in methods)
    return (*kept, *new)


def with_second(proofs: Proofs, second: Proof) -> Proofs:
    """Return the proofs of a session with a second factor, in place of an earlier one."""
    return (*(proof for proof in proofs if not proof.is_second and replace(proof, at=second.at) != second), second)


def recent(proofs: Proofs, since: datetime) -> Proofs:
    """Return the proofs that are not older than this time (UTC)."""
    return tuple(proof for proof in proofs if proof.at >= since)


def strength_of(proofs: Proofs) -> Strength:
    """Return the strength of the proofs together. A second factor alone has none."""
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
    """Return the proofs of the newest sign-in or reauthentication of a session.

    Protocols know only these, so that `acr`, `amr` and `auth_time` are about the same moment. Earlier first factors, which
    `renewed` keeps, count for the methods of sign-in policies alone.
    """
    if len(proofs) <= 1:
        return proofs
    first = _newest_first_factor(proofs)
    return (first, *(proof for proof in proofs if proof is not first and (proof.is_second or proof.at >= first.at)))


def session_strength(proofs: Proofs) -> Strength:
    """Return the strength of the newest sign-in of a session."""
    return strength_of(newest_sign_in(proofs))


def acr_of(proofs: Proofs, asked: Collection[Acr] = ()) -> Acr:
    """Return the strongest authentication context class that is met, of the `asked` ones if one of these is met."""
    strength = session_strength(proofs)
    met = [acr for acr, required in _STRENGTHS.items() if required <= strength]
    return ([acr for acr in met if acr in asked] or met or [Acr.PASSWORD])[-1]


def amr_of(proofs: Proofs) -> list[str]:
    """Return the methods with their names of RFC 8176. An identity provider has none."""
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
    """Return the name of the first factor, as in the login records, or None if it is not known."""
    proof = _newest_first_factor(proofs)
    return proof.provider or (proof.method and proof.method.value)


def methods_of(proofs: Proofs) -> tuple[str, ...]:
    """Return the names of the methods, as in the login records: of the first factor, and of the second one if it was proved."""
    first, second = first_method_of(proofs), second_of(proofs)
    names = () if second is None or second.method is None else (second.method.value,)
    return (first or Method.PASSWORD.value, *names)  # sessions of earlier releases have no method


def second_of(proofs: Proofs) -> Proof | None:
    """Return the proof of the second factor beside the first one, or None. A passkey can be either."""
    seconds = newest_sign_in(proofs)[1:]
    return seconds[-1] if seconds else None


def proved_at(proofs: Proofs) -> datetime:
    """Return the time (UTC) of the newest first factor. A second factor alone makes no sign-in newer."""
    return _newest_first_factor(proofs).at


def is_fresh(proofs: Proofs) -> bool:
    """Return whether the user took part in the newest sign-in. Otherwise an identity provider may have known them from earlier."""
    return _newest_first_factor(proofs).is_fresh


def is_by_provider(proofs: Proofs) -> bool:
    """Return whether an identity provider authenticated the user."""
    return _newest_first_factor(proofs).method is Method.PROVIDER


def required_strength(factors: Collection[Factor]) -> Strength:
    """Return the strength of a sign-in with all factors that an account with these ones has."""
    return Strength.TWO if any(factor.is_second for factor in factors) else Strength.ONE


def reachable_strength(factors: Collection[Factor]) -> Strength:
    """Return the strength of the strongest sign-in that an account with these factors can do.

    Sign-ins accept a security key only if it is a second factor.
    """
    has_passkey = any(factor.kind is FactorKind.PASSKEY for factor in factors)
    return Strength.PHISHING_RESISTANT if has_passkey else required_strength(factors)


def covers(proofs: Proofs, factors: Collection[Factor]) -> bool:
    """Return whether the proofs of the newest sign-in are of all factors of an account with these ones."""
    return session_strength(proofs) >= required_strength(factors)


def _newest_first_factor(proofs: Proofs) -> Proof:
    firsts = [proof for proof in proofs if not proof.is_second]
    return firsts[0] if len(firsts) == 1 else max(firsts, key=lambda proof: proof.at)
