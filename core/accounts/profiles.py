"""Use cases for a person's profile."""

from datetime import datetime

from core.accounts import events
from core.accounts.model import profiles
from core.accounts.model.accounts import Account
from core.accounts.own_account import lock_own_account
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.errors import refuse
from ports import Ports
from ports.storage import Transaction


async def get_own(ports: Ports, caller: Person) -> profiles.OwnProfile:
    """Return the caller's profile."""
    async with ports.storage.reading() as read:
        own = await read.accounts.own_profile(caller.user_id, ports.clock.now()) or refuse(AccountGone)
    return own.seen_by(caller)


async def change(ports: Ports, caller: Person, changes: profiles.ProfileChanges) -> profiles.Profile:
    """Change the caller's profile, and return it. Equal values change nothing."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        return await apply_changes(tx, account, changes, now)


async def apply_changes(tx: Transaction, account: Account, changes: profiles.ProfileChanges, now: datetime) -> profiles.Profile:
    """Change a locked account's profile, record it, and return the profile."""
    profile = changes.apply_to(account.profile)
    if changed := account.profile.changed_fields(profile):
        await tx.accounts.set_profile(account.id, profile, now)
        tx.record(events.profile_updated(account.id, changed))
    return profile
