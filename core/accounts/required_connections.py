"""The check before users change a fact that decides whether they have to come through a connection (security SP-9).

Otherwise a user could take another address, or remove the link, and continue by a password after the identity provider has removed them.
"""

from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.required_connections import ConnectionStaysRequired
from core.kernel.values import Email
from ports.storage import Transaction


async def require_kept_at(tx: Transaction, account: Account, email: Email) -> None:
    """Check that a locked account stays bound to its required connections at another address. Raises: ConnectionStaysRequired."""
    bound = [each for each in await tx.sign_in_policies.requirements(account.id, account.email) if each.is_bound]
    stays = {each.org_id for each in await tx.sign_in_policies.requirements(account.id, email) if each.is_bound} if bound else set()
    for each in bound:
        if each.org_id not in stays:
            raise ConnectionStaysRequired(each.organization, "Sign in there once to link your account. Then change the address.")


async def require_kept_without(tx: Transaction, account: Account, connection_id: UUID) -> None:
    """Check that a locked account stays bound to its required connections without a link. Raises: ConnectionStaysRequired."""
    for each in await tx.sign_in_policies.requirements(account.id, account.email):
        if each.is_bound and not each.without_link(connection_id).is_bound:
            raise ConnectionStaysRequired(each.organization, "An admin can unlink you. You can also leave the organization.")
