"""Passkey answers, and sign-in with a discoverable passkey, which counts as both factors (security #passkeys)."""

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts import events, passkey_waits, relying_party
from core.accounts.model import devices, email_queue, mfa, passkeys
from core.accounts.model.accounts import Account
from core.accounts.relying_party import StoredId
from core.authentication.flow import methods
from core.authentication.flow.model import Flow
from core.authentication.model.login import LoginFailure
from core.kernel import proofs
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from ports import Ports
from ports.storage import Transaction

EMAIL_PAUSE: Final = timedelta(days=1)  # between two emails about the same refused passkey


async def start(ports: Ports, client: devices.PresentedDevice, stored: StoredId) -> passkeys.Json:
    """Return the options with which a client finds a passkey of any account. Raises: NoPasskeysHere."""
    party = await relying_party.load_cached(ports, stored)
    return ports.passkeys.request_options(party, ports.passkeys.new_challenge(_binding(client), ports.clock.now()))


@dataclass(frozen=True, slots=True)
class VerifiedPasskey:
    """A passkey with its verified answer, which is not used up yet."""

    known: passkeys.KnownPasskey
    seen: passkeys.VerifiedAssertion
    at: datetime

    @property
    def proof(self) -> proofs.Proof:
        """The proof. A passkey that verified its user proves both factors."""
        return passkeys.proof_of(self.known.passkey, user_verified=self.seen.user_verified, at=self.at)

    async def redeem(self, tx: Transaction, send_behind: methods.SendBehind = lambda _: None) -> Account:
        """Lock the account and use the challenge up."""
        redeemed = tx.passkeys.redeem(self.known.passkey, self.seen, self.at)
        send_behind(self.known.passkey.user_id)
        used = await redeemed or refuse(passkeys.PasskeyUnknown)
        if not (used.is_used and used.is_first):  # it was deleted during this request, or another sign-in was faster
            raise passkeys.PasskeyRefused
        await self._end_without_passkey(tx, used.account)
        return used.account

    def redeem_second(self, tx: Transaction, caller: Caller, first: mfa.FirstFactor, now: datetime) -> Awaitable[mfa.RedeemedCode | None]:
        """Lock the account, and consume its first factor and the challenge. Pass the result to `accept_second`."""
        return tx.passkeys.redeem_second(first, self.known.passkey, self.seen, caller, now)

    async def accept_second(self, tx: Transaction, redeemed: mfa.RedeemedCode, _now: datetime) -> Account:
        """Return the locked account."""
        if not redeemed.code_taken:
            raise passkeys.PasskeyRefused
        await self._end_without_passkey(tx, redeemed.account)
        return redeemed.account

    async def _end_without_passkey(self, tx: Transaction, account: Account) -> None:
        """End a wait for lost passkeys. If the passkey verifies its user for the first time, cancel a change of the address, too.

        A thief of the password could request the change, because the account did not have a passkey that had verified its user.
        """
        await passkey_waits.end(tx, account, "passkey")
        if self.seen.user_verified and not self.known.passkey.user_verified:
            await tx.email_changes.cancel_pending(account.id, self.at)


async def verify(
    ports: Ports,
    caller: Caller,
    credential: passkeys.Json,
    binding: passkeys.ChallengeBinding,
    *,
    user_id: UUID | None = None,
    flow: Flow | None = None,
    verification: bool = True,
) -> VerifiedPasskey:
    """Verify an answer. `user_id`: it must be of this account. Without it, the authenticator chose the account.

    `verification`: it must be a passkey that verified its user.
    """
    now, known = ports.clock.now(), None
    try:
        presented = ports.passkeys.read_assertion(credential)
        async with ports.storage.reading() as read:
            known = await read.passkeys.by_credential(presented.credential_id)
        if known is None:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.CREDENTIAL)
        _check_account(known, presented.user_handle, user_id)
        if verification and known.passkey.kind is passkeys.PasskeyKind.SECURITY_KEY:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.KIND)
        party = relying_party.of_passkey(ports, known.passkey)
        seen = await ports.passkeys.verify_assertion(presented, known.passkey, party, binding, now, verification=verification)
    except passkeys.CeremonyRefused as refusal:
        await _record(ports, caller, flow, known, binding.ceremony, refusal.reason)
        if refusal.reason is not passkeys.PasskeyReason.CREDENTIAL:
            raise passkeys.PasskeyRefused from None
        async with ports.storage.reading() as read:
            raise (
                passkeys.PasskeyDeleted if await read.passkeys.is_deleted(presented.credential_id) else passkeys.PasskeyUnknown
            ) from None
    try:
        passkeys.check_use(known.passkey, seen)
    except passkeys.CeremonyRefused as refusal:
        # The same answer again, for example after a lost response, is no copy.
        async with ports.storage.reading() as read:
            is_again = await read.passkeys.is_used(seen.challenge)
        await _record(ports, caller, flow, known, binding.ceremony, passkeys.PasskeyReason.CHALLENGE if is_again else refusal.reason)
        if is_again:
            raise passkeys.PasskeyRefused from None
        await _report(ports, caller, known, refusal.reason, now)
        raise passkeys.PasskeyChanged from None
    ports.metrics.passkey_ceremony(binding.ceremony, None)
    return VerifiedPasskey(known, seen, now)


@dataclass(frozen=True, slots=True)
class DiscoveredPasskey:
    """The answer of an authenticator that chose the account itself.

    There is nothing to guess, so no attempts are counted.
    """

    credential: passkeys.Json = field(repr=False)

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: devices.PresentedDevice) -> methods.Proved:
        """Verify the answer."""
        passkey = await verify(ports, caller, self.credential, _binding(client), flow=flow)

        async def lock(tx: Transaction, _: Caller, send_behind: methods.SendBehind) -> tuple[Account, None]:
            return await passkey.redeem(tx, send_behind), None

        return methods.Proved(proof=passkey.proof, user_id=passkey.known.passkey.user_id, lock=lock, is_one_time=True)


def _binding(client: devices.PresentedDevice) -> passkeys.ChallengeBinding:
    return passkeys.ChallengeBinding(passkeys.Ceremony.SIGN_IN, devices.client_hash_of(client) or b"")


def _check_account(known: passkeys.KnownPasskey, user_handle: bytes | None, user_id: UUID | None) -> None:
    """Check the account of a passkey (WebAuthn section 7.2, step 6). Raises: CeremonyRefused."""
    if user_id is not None and known.passkey.user_id != user_id:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.ACCOUNT)
    may_be_missing = user_id is not None
    if known.handle is None or (user_handle != known.handle and not (may_be_missing and user_handle is None)):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.USER_HANDLE)


async def _record(
    ports: Ports,
    caller: Caller,
    flow: Flow | None,
    known: passkeys.KnownPasskey | None,
    ceremony: passkeys.Ceremony,
    reason: passkeys.PasskeyReason,
) -> None:
    ports.metrics.passkey_ceremony(ceremony, reason)
    user_id = None if known is None else known.passkey.user_id
    await methods.record_failure(
        ports, caller, LoginFailure.PASSKEY, proofs.Method.PASSKEY, user_id, None if flow is None else flow.application
    )


async def _report(ports: Ports, caller: Caller, known: passkeys.KnownPasskey, reason: passkeys.PasskeyReason, now: datetime) -> None:
    """Record an impossible change of a passkey. Its user gets an email, at most once a day."""
    async with ports.storage.transaction(by=caller) as tx:
        account = await tx.accounts.lock(known.passkey.user_id)
        passkey = known.passkey
        if account is None:
            return
        if await tx.passkeys.mark_refused(account.id, passkey.id, now - EMAIL_PAUSE, now):
            await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.PASSKEY_REFUSED, account.email, now))
        await tx.mfa.log(account.id, [mfa.MfaEvent.PASSKEY_REFUSED], caller, now)
        tx.record(events.passkey_refused(account.id, passkey.id, reason))
