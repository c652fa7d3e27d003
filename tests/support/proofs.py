"""The proofs of sign-ins."""

from datetime import datetime

from core.kernel.proofs import Method, Proof, Proofs, complete, first_proof


def one_factor(at: datetime, name: str = "password") -> Proofs:
    """Return the proofs of a sign-in without a second factor. `name` is that of the method or the identity provider."""
    return (first_proof(name, at),)


def two_factors(at: datetime, name: str = "password") -> Proofs:
    """Return the proofs of a sign-in with a code of an authenticator app."""
    return complete(first_proof(name, at), Proof(Method.TOTP, at))
