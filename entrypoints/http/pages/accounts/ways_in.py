"""The ways to sign in that remain, for the questions before one of them ends."""

from core.accounts.model.accounts import Account
from core.authentication import identities
from core.authentication.model.login import is_on
from core.kernel.proofs import FactorKind, ways_in
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.pages.consequences import count


async def own_ways_in(account: Account) -> str:
    """Return a sentence with the ways in which the user can sign in to the account as it will be."""
    kinds, policy = ways_in(account.factors), ports().policy
    ways = [
        *(["your password"] if FactorKind.PASSWORD in kinds else []),
        *([count(account.passkey_count, "passkey")] if FactorKind.PASSKEY in kinds else []),
        *(["a code by email"] if account.email_verified_at is not None and is_on(policy, None) else []),
        *(policy.provider_names[provider] for provider in await identities.list_sign_in_providers(ports(), signed_in())),
    ]
    if not ways:
        return "No way to sign in would remain."
    return f"You can still sign in with {' and '.join(filter(None, (', '.join(ways[:-1]), ways[-1])))}."
