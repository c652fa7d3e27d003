"""Proofs of possession, and access tokens that are bound to a key (RFC 9449).

A proof needs our nonce, and works once. All processes issue and accept the same nonces (docs/adr/0033).
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from core.authentication.model import dpop
from core.authentication.tokens import signing_keys
from core.kernel.claims import Accepts, Claims, ProgramClaims
from core.kernel.errors import refuse
from ports import Ports
from ports.storage import Reading


async def current_nonce(ports: Ports) -> str:
    """Return the nonce that new proofs must have now."""
    now = ports.clock.now()
    return dpop.make_nonce(await _key_of(ports, dpop.nonce_period(now)), now)


async def read_proof(ports: Ports, sent: dpop.SentProof, access_token: str | None = None) -> dpop.ProofUse:
    """Verify a proof for its request, and for the access token that it goes with. The caller uses it up, with `use` or `reading`.

    Raises: ProofInvalid; NonceMissing if its nonce is missing or no longer accepted.
    """
    proof, now = ports.dpop_proofs.read(sent.text), ports.clock.now()
    dpop.check_claims(proof, sent, access_token, now)
    nonce = proof.claims.get("nonce")
    step = dpop.parse_nonce(nonce, now)
    key = None if step is None else await _key_of(ports, dpop.period_of_step(step))
    if step is None or key is None or not dpop.is_nonce_of(str(nonce), key, step):
        raise dpop.NonceMissing(await current_nonce(ports))
    next_nonce = await current_nonce(ports) if dpop.is_outdated(step, now) else None
    return dpop.ProofUse(proof.thumbprint, proof.claims["jti"], step, key, next_nonce)


async def use(ports: Ports, proof: dpop.ProofUse | None) -> None:
    """Use up a proof, if there is a proof. If requests use a proof in parallel, only the first succeeds."""
    if proof is not None:
        try:
            async with ports.storage.reading(using=proof):
                pass
        except dpop.NonceKeyLost:
            raise dpop.NonceMissing(await _nonce_after_crash(ports)) from None


def bind(proof: dpop.ProofUse | None, *, is_required: bool, binds_refresh_token: bool = False) -> dpop.KeyBinding | None:
    """Return the proof's key, which this request's tokens are bound to, or None without a proof.

    Raises: ProofMissing if `is_required` and there is no proof.
    """
    if proof is not None:
        return dpop.KeyBinding(proof.thumbprint, binds_refresh_token)
    return refuse(dpop.ProofMissing) if is_required else None


def reading(ports: Ports, proof: dpop.ProofUse | None) -> AbstractAsyncContextManager[Reading]:
    """Open a connection for the queries about an access token.

    The first query uses up the token's proof, if it has a proof.

    The end of the block raises ProofRefused or NonceRequired, so what it has read must not be used before.
    """
    return ports.storage.reading() if proof is None else _reading_once(ports, proof)


@asynccontextmanager
async def _reading_once(ports: Ports, proof: dpop.ProofUse) -> AsyncIterator[Reading]:
    try:
        async with ports.storage.reading(using=proof) as read:
            yield read
    except dpop.ProofReplayed as refusal:
        raise dpop.ProofRefused(refusal.message) from None
    except dpop.NonceKeyLost:
        raise dpop.NonceRequired(await _nonce_after_crash(ports)) from None


async def _nonce_after_crash(ports: Ports) -> str:
    """Return a nonce of a new key. The database has crashed, and could not find a replay."""
    ports.dpop_proofs.forget_nonce_keys()
    return await current_nonce(ports)


async def read_token(ports: Ports, presented: dpop.PresentedToken, *, accepts: Accepts = Accepts.OWN) -> Claims | ProgramClaims:
    """Return an access token's claims, and check that it is presented as it was issued: bound to its proof's key, or unbound.

    Raises: BoundTokenAsBearer, BearerTokenAsBound; the errors of `signing_keys.read_token`.
    """
    claims = await signing_keys.read_token(ports, presented.text, accepts=accepts)
    if presented.proof is None:
        if claims.key_thumbprint is not None:
            raise dpop.BoundTokenAsBearer
    elif claims.key_thumbprint != presented.proof.thumbprint:
        raise dpop.BearerTokenAsBound
    return claims


async def _key_of(ports: Ports, period: int) -> dpop.NonceKey:
    """Return the key for this period's nonces. The first process that needs it creates it."""
    key = ports.dpop_proofs.nonce_key(period)
    if key is None:
        async with ports.storage.autocommit() as statements:
            key = await statements.dpop_proofs.nonce_key(period, secrets.token_bytes(dpop.NONCE_SECRET_BYTES))
        ports.dpop_proofs.keep_nonce_key(key)
    return key
