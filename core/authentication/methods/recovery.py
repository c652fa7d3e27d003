"""The link that the operator of the machine creates for a platform owner (security I-7)."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from core.accounts import email_changes, mfa, profiles
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import EmailKind, TokenPurpose, new_email
from core.accounts.model.profiles import ProfileChanges
from core.authentication import events
from core.authentication.flow.methods import Proved, SendBehind
from core.authentication.flow.model import Flow
from core.authentication.owner_recovery import PURPOSES, RecoveryLinkInvalid
from core.kernel.causes import Caller
from core.kernel.proofs import Method, Proof
from core.kernel.values import KEEP, digest
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class RecoveryLink:
    """The token of a link. It replaces the password, and not the second factor (security A-10), unless it removes it (security I-7).

    An owner without a name gets the name, unless it is empty.
    """

    token: str = field(repr=False)
    name: str = ""

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Return the proof, which uses the link up. Raises: NameInvalid; in the transaction: RecoveryLinkInvalid."""
        changes, now = ProfileChanges.parse(name=self.name.strip() or KEEP), ports.clock.now()

        async def lock(tx: Transaction, _: Caller, __: SendBehind) -> tuple[Account, None]:
            account, purpose = await self._lock(tx)
            sent_for = await tx.one_time_tokens.redeem(digest(self.token), purpose, now)
            if sent_for != account.email or not account.is_usable or not account.is_platform_owner:
                raise RecoveryLinkInvalid
            tx.record(events.owner_recovered(account.id))
            await tx.accounts.set_recovery_required(account.id, None)  # the operator's command is the recovery of an owner
            if account.profile.name is None:
                await profiles.apply_changes(tx, account, changes, now)
            return (await _reset(tx, caller, account, now) if purpose is TokenPurpose.RESET_OWNER else account), None

        return Proved(proof=Proof(Method.OWNER_RECOVERY, now), lock=lock)

    async def _lock(self, tx: Transaction) -> tuple[Account, TokenPurpose]:
        """Lock the link's account, and return it with the link's purpose."""
        for purpose in PURPOSES:
            if (account := await tx.accounts.lock_by_token(digest(self.token), purpose)) is not None:
                return account, purpose
        raise RecoveryLinkInvalid


async def _reset(tx: Transaction, caller: Caller, account: Account, now: datetime) -> Account:
    """Remove all factors of a locked account but the password, end its sign-ins, and return it. All platform owners get an email."""
    await mfa.reset_factors(tx, caller, account, now)
    await email_changes.end_all(tx, account, now)  # an undo link could restore an earlier factor
    for address in await tx.accounts.platform_owner_addresses():  # the account's own address is among them
        await tx.email_queue.add(new_email(EmailKind.OWNER_RESET_USED, address, now, token=account.email))
    return replace(account, mfa_enabled_at=None, passkey_second_at=None, passkey_count=0, security_key_count=0)
