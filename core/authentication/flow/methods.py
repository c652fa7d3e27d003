"""The protocol for sign-in methods, and how failures are recorded. The methods: `core.authentication.methods`, `core.federation`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import Flow, WaitingApplication
from core.authentication.model import sign_in_log
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import LoginFailure
from core.kernel import proofs
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Transaction

# Called right before the lock of this account is sent, to send further statements with it.
SendBehind = Callable[[UUID], None]
Lock = Callable[[Transaction, Caller, SendBehind], Awaitable[tuple[Account, PendingIdentity | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a method has proved, before the transaction that uses it up.

    `lock` finds or creates the account and locks it, and uses the secret up. It also returns the identity to
    link when all required factors are proved, if any. Lock order: the subject at the identity provider, then
    the account. A method that knows the account calls `SendBehind` right before it sends its lock, which saves a round trip.
    """

    proof: proofs.Proof
    lock: Lock
    account: Account | None = None  # if it is known before the lock
    user_id: UUID | None = None  # if only the id of the account is known before the lock
    flow: Flow | None = None  # as it was read, if the caller knew only its id
    continues: bool = False  # it is the second factor beside the first proof of the flow
    is_one_time: bool = False  # the secret is used up once it was right, even if the user is refused
    trusts_device: bool = False  # the device skips the second factor for a while
    # Called when no factor is missing, before the session starts. It returns the proofs of the session.
    complete: Callable[[Transaction, Account, proofs.Proofs], Awaitable[proofs.Proofs]] | None = None
    refused: Callable[[Refusal], Awaitable[None]] | None = None  # told why the sign-in failed after all; may raise another error


class SignInMethod(Protocol):
    """A user's answer that proves who they are, with one factor. Every method is a class for its answers."""

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Check the answer outside any transaction. Its attempt is counted first, and nothing else changes."""


async def record_failure(
    ports: Ports,
    caller: Caller,
    reason: LoginFailure,
    provider: str,
    user_id: UUID | None,
    application: WaitingApplication | None = None,
    *,
    blocked_until: datetime | None = None,
    connection: sign_in_log.ConnectionAttempt | None = None,
) -> None:
    """Count a failed sign-in, and record it in the sign-in log.

    A failure at a connection belongs to its organization.

    An attempt without an account takes the same work, so that the response takes equally long (security B-2).
    """
    ports.metrics.login_failed(reason)
    org_id, service_id, external_client = application or WaitingApplication()
    if connection is not None and org_id != connection.org_id:
        org_id, service_id, external_client = WaitingApplication(connection.org_id)
    failure = sign_in_log.FailedLogin(
        id=new_id(),
        user_id=user_id,
        reason=reason,
        provider=provider,
        at=ports.clock.now(),
        org_id=org_id,
        service_id=service_id,
        external_client=external_client,
        address=caller.address,
        agent=caller.agent,
        location=ports.geoip.locate(caller.address),
        request_id=caller.request_id,
        blocked_until=blocked_until,
        connection=connection,
    )
    async with ports.storage.autocommit() as statements:
        await statements.failed_logins.record_failure(failure)
