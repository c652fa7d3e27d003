"""A platform owner's recovery: a sign-in link that the machine's operator creates (security I-7)."""

from datetime import datetime, timedelta
from typing import Final

from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind, OneTimeToken, TokenPurpose, new_email
from core.authentication import events
from core.kernel.causes import SYSTEM
from core.kernel.errors import Invalid, NotFound, refuse
from core.kernel.values import Email, digest, new_secret
from ports import Ports
from ports.storage import Transaction

LIFETIME: Final = timedelta(minutes=15)
FIRST_LIFETIME: Final = timedelta(minutes=10)
PURPOSES: Final = (TokenPurpose.RECOVER_OWNER, TokenPurpose.RESET_OWNER)
FIRST_START: Final = "first start"  # the operator that the platform's log names for the link of the first start


class NoSuchPlatformOwner(NotFound):
    """No active account with this email address is a platform owner. Check the address. docs/operating/lost-owner.md lists other ways."""


class RecoveryLinkInvalid(Invalid):
    """This link is incomplete, has expired, or has already been used. Create a new one on the server: gatehouse owner recover EMAIL."""


async def create_link(ports: Ports, email: Email, operator: str, *, resets_factors: bool = False) -> str:
    """Return a token that signs this platform owner in once within LIFETIME.

    Earlier links become invalid.

    `operator` is the name of the operator in the operating system, for the platform's log. With `resets_factors`, the sign-in removes all
    passkeys and second factors of the account. All platform owners except this owner get an email.
    """
    token, now = new_secret(), ports.clock.now()
    kind = EmailKind.OWNER_RESET if resets_factors else EmailKind.OWNER_RECOVERY
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()  # an owner who is demoted now gets no link
        account = await tx.accounts.lock_by_email(email)
        if account is None or not account.is_usable or not account.is_platform_owner:
            raise NoSuchPlatformOwner
        await _replace_link(tx, account, token, now, LIFETIME, TokenPurpose.RESET_OWNER if resets_factors else TokenPurpose.RECOVER_OWNER)
        for address in await tx.accounts.platform_owner_addresses():
            if address != account.email:
                await tx.email_queue.add(new_email(kind, address, now, token=account.email))
        tx.record(events.owner_recovery_created(account.id, operator, resets_factors=resets_factors))
    return token


async def create_first_link(ports: Ports, email: Email) -> str | None:
    """Return a token that signs the first platform owner in once within FIRST_LIFETIME, or None after the first start.

    That is the only platform owner, with this address, who has never signed in. Until then, every start creates a new
    link, and the earlier link becomes invalid (security I-6).
    """
    token, now = new_secret(), ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()
        account = await tx.accounts.lock_by_email(email)
        if account is None or not account.is_usable or not account.is_platform_owner:
            return None
        if await tx.accounts.has_signed_in(account.id) or await tx.accounts.other_platform_owner_exists(account.id):
            return None
        await _replace_link(tx, account, token, now, FIRST_LIFETIME)
        tx.record(events.owner_recovery_created(account.id, FIRST_START))
    return token


async def _replace_link(
    tx: Transaction, account: Account, token: str, now: datetime, lifetime: timedelta, purpose: TokenPurpose = TokenPurpose.RECOVER_OWNER
) -> None:
    for each in PURPOSES:
        await tx.one_time_tokens.void(account.id, each)
    await tx.one_time_tokens.add(OneTimeToken(digest(token), purpose, account.id, account.email, created_at=now, expires_at=now + lifetime))


async def resets_factors(ports: Ports, token: str) -> bool:
    """Return whether the sign-in with this link removes all factors of the account."""
    async with ports.storage.reading() as read:
        return await read.one_time_tokens.live_email(digest(token), TokenPurpose.RESET_OWNER, ports.clock.now()) is not None


async def lacks_name(ports: Ports, token: str) -> bool:
    """Return whether the owner has no name yet. The link must work now, and is not used up."""
    async with ports.storage.reading() as read:
        now, token_hash = ports.clock.now(), digest(token)
        emails = [await read.one_time_tokens.live_email(token_hash, purpose, now) for purpose in PURPOSES]
        account = await read.accounts.by_email(next(filter(None, emails), None) or refuse(RecoveryLinkInvalid))
    return account is not None and account.profile.name is None
