"""The facts about the account of a known person that each sign-in through a connection renews."""

from datetime import datetime

from core.accounts import events
from core.accounts.model.accounts import Account, AccountOrigin
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.people import ConnectionNotActive
from core.kernel.errors import refuse
from ports.storage import Transaction


async def follow_names(tx: Transaction, account: Account, person: AssertedPerson, now: datetime) -> None:
    """Give an account that the organization controls the names that the identity provider sends now. Its address stays."""
    profile = person.profile.names_over(account.profile)
    if profile == account.profile or account.origin_org_id != person.org_id:
        return
    if (await tx.accounts.account_control(account.id, person.org_id)).controls_account:
        await tx.accounts.set_profile(account.id, profile, now)
        tx.record(events.profile_updated(account.id, account.profile.changed_fields(profile)))


async def verify_address(tx: Transaction, account: Account, person: AssertedPerson, now: datetime) -> Account:
    """Take the word of the identity provider for the address of an account that the connection created, and return the account.

    Only the identity provider has a way into such an account, so nothing is cleared (security A-7).
    """
    is_own = account.origin is AccountOrigin.CONNECTION and account.origin_org_id == person.org_id
    is_proof = is_own and person.is_email_verified and person.email == account.email
    if account.first_verified_at is not None or not is_proof or await tx.domains.verified_owner(account.email) != person.org_id:
        return account
    await tx.accounts.mark_verified(account.id, now)
    return await tx.accounts.lock(account.id) or refuse(ConnectionNotActive)
