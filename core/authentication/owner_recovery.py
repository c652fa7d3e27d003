"""A platform owner's recovery: a sign-in link that the machine's operator creates (security I-7)."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from core.accounts import email_changes, mfa, profiles
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.profiles import ProfileChanges
from core.authentication import events
from core.authentication.flow import methods
from core.authentication.flow.model import Flow
from core.kernel import causes, errors, proofs, values
from ports import Ports
from ports.storage import Transaction

LIFETIME: Final = timedelta(minutes=15)
FIRST_LIFETIME: Final = timedelta(minutes=10)
PURPOSES: Final = (email_queue.TokenPurpose.RECOVER_OWNER, email_queue.TokenPurpose.RESET_OWNER)
FIRST_START: Final = "first start"  # the operator that the platform's log names for the link of the first start


class NoSuchPlatformOwner(errors.NotFound):
    """No active account with this email address is a platform owner. Check the address. docs/operating/lost-owner.md lists other ways."""


class RecoveryLinkInvalid(errors.Invalid):
    """This link is incomplete, has expired, or has already been used. Create a new one on the server: gatehouse owner recover EMAIL."""


async def create_link(ports: Ports, email: values.Email, operator: str, *, resets_factors: bool = False) -> str:
    """Return a token that signs this platform owner in once within LIFETIME.

    Earlier links become invalid.

    `operator` is the name of the operator in the operating system, for the platform's log. With `resets_factors`, the sign-in removes all
    passkeys and second factors of the account. All platform owners except this owner get an email.
    """
    token, now = values.new_secret(), ports.clock.now()
    kind = email_queue.EmailKind.OWNER_RESET if resets_factors else email_queue.EmailKind.OWNER_RECOVERY
    async with ports.storage.transaction(by=causes.SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()  # an owner who is demoted now gets no link
        account = await tx.accounts.lock_by_email(email)
        if account is None or not account.is_usable or not account.is_platform_owner:
            raise NoSuchPlatformOwner
        await _replace_link(
            tx,
            account,
            token,
            now,
            LIFETIME,
            email_queue.TokenPurpose.RESET_OWNER if resets_factors else email_queue.TokenPurpose.RECOVER_OWNER,
        )
        for address in await tx.accounts.platform_owner_addresses():
            if address != account.email:
                await tx.email_queue.add(email_queue.new_email(kind, address, now, token=account.email))
        tx.record(events.owner_recovery_created(account.id, operator, resets_factors=resets_factors))
    return token


async def create_first_link(ports: Ports, email: values.Email) -> str | None:
    """Return a token that signs the first platform owner in once within FIRST_LIFETIME, or None after the first start.

    That is the only platform owner, with this address, who has never signed in. Until then, every start creates a new
    link, and the earlier link becomes invalid (security I-6).
    """
    token, now = values.new_secret(), ports.clock.now()
    async with ports.storage.transaction(by=causes.SYSTEM) as tx:
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
    tx: Transaction,
    account: Account,
    token: str,
    now: datetime,
    lifetime: timedelta,
    purpose: email_queue.TokenPurpose = email_queue.TokenPurpose.RECOVER_OWNER,
) -> None:
    for each in PURPOSES:
        await tx.one_time_tokens.void(account.id, each)
    await tx.one_time_tokens.add(
        email_queue.OneTimeToken(values.digest(token), purpose, account.id, account.email, created_at=now, expires_at=now + lifetime)
    )


async def resets_factors(ports: Ports, token: str) -> bool:
    """Return whether the sign-in with this link removes all factors of the account."""
    async with ports.storage.reading() as read:
        return (
            await read.one_time_tokens.live_email(values.digest(token), email_queue.TokenPurpose.RESET_OWNER, ports.clock.now()) is not None
        )


async def lacks_name(ports: Ports, token: str) -> bool:
    """Return whether the owner has no name yet. The link must work now, and is not used up."""
    async with ports.storage.reading() as read:
        now, token_hash = ports.clock.now(), values.digest(token)
        emails = [await read.one_time_tokens.live_email(token_hash, purpose, now) for purpose in PURPOSES]
        account = await read.accounts.by_email(next(filter(None, emails), None) or errors.refuse(RecoveryLinkInvalid))
    return account is not None and account.profile.name is None


@dataclass(frozen=True, slots=True)
class RecoveryLink:
    """The token of a link. It replaces the password, and not the second factor (security A-10), unless it removes it (security I-7).

    An owner without a name gets the name, unless it is empty.
    """

    token: str = field(repr=False)
    name: str = ""

    async def verify(self, ports: Ports, caller: causes.Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Return the proof, which uses the link up. Raises: NameInvalid; in the transaction: RecoveryLinkInvalid."""
        changes, now = ProfileChanges.parse(name=self.name.strip() or values.KEEP), ports.clock.now()

        async def lock(tx: Transaction, _: causes.Caller, __: methods.SendBehind) -> tuple[Account, None]:
            account, purpose = await self._lock(tx)
            sent_for = await tx.one_time_tokens.redeem(values.digest(self.token), purpose, now)
            if sent_for != account.email or not account.is_usable or not account.is_platform_owner:
                raise RecoveryLinkInvalid
            tx.record(events.owner_recovered(account.id))
            await tx.accounts.set_recovery_required(account.id, None)  # the operator's command is the recovery of an owner
            if account.profile.name is None:
                await profiles.apply_changes(tx, account, changes, now)
            return (await _reset(tx, caller, account, now) if purpose is email_queue.TokenPurpose.RESET_OWNER else account), None

        return methods.Proved(proof=proofs.Proof(proofs.Method.OWNER_RECOVERY, now), lock=lock)

    async def _lock(self, tx: Transaction) -> tuple[Account, email_queue.TokenPurpose]:
        """Lock the link's account, and return it with the link's purpose."""
        for purpose in PURPOSES:
            if (account := await tx.accounts.lock_by_token(values.digest(self.token), purpose)) is not None:
                return account, purpose
        raise RecoveryLinkInvalid


async def _reset(tx: Transaction, caller: causes.Caller, account: Account, now: datetime) -> Account:
    """Remove all factors of a locked account but the password, end its sign-ins, and return it. All platform owners get an email."""
    await mfa.reset_factors(tx, caller, account, now)
    await email_changes.end_all(tx, account, now)  # an undo link could restore an earlier factor
    for address in await tx.accounts.platform_owner_addresses():  # the account's own address is among them
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.OWNER_RESET_USED, address, now, token=account.email))
    return replace(account, mfa_enabled_at=None, passkey_second_at=None, passkey_count=0, security_key_count=0)
