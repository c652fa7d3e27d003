"""The protocol of sign-in methods, and the record of failures. The methods: `core.authentication.methods`, `core.federation`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import Flow
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import LoginFailure
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.proofs import Proof
from ports import Ports
from ports.storage import Transaction

Lock = Callable[[Transaction, Caller], Awaitable[tuple[Account, PendingIdentity | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a method has proved, before the transaction that uses it up.

    `lock` finds or creates the account and locks it, and uses the secret up. It also returns the identity to
    link when all required factors are proved, if any. Lock order: the subject at the identity provider, then
    the account.
    """

    proof: Proof
    lock: Lock
    account: Account | None = None  # if it is known before the lock
    flow: Flow | None = None  # as it was read, if the caller knew only its id
    trusts_device: bool = False  # the device skips the second factor for a while
    refused: Callable[[Refusal], Awaitable[None]] | None = None  # told why the sign-in failed after all; may raise another error


class SignInMethod(Protocol):
    """The answer of a user that proves who they are, with one factor. Each method is a class of answers."""

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Check the answer outside any transaction. Its attempt is counted first, and nothing else changes."""


async def record_failure(ports: Ports, caller: Caller, reason: LoginFailure, provider: str, user_id: UUID | None) -> None:
    """Count a failed sign-in, and record it for this account, if any."""
    ports.metrics.login_failed(reason)
    location = ports.geoip.locate(caller.address)  # also without an account, so that the response takes equally long (security B-2)
    if user_id is not None:
        async with ports.storage.autocommit() as statements:
            await statements.logins.record_failure(user_id, provider, ports.clock.now(), caller.address, caller.agent, location)
