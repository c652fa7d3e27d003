"""The verification link for a sign-up, opened in the browser where the user signed up.

A registration proves nothing, and neither does a verification link alone: an attacker can register the address of a
victim, who then gets the link. So a link signs in only the browser in which the user chose the password. In any other
browser, the link only verifies the address, and the user signs in with the password (security A-7).
"""

from dataclasses import dataclass, field
from datetime import datetime
from hmac import compare_digest
from uuid import UUID

from core.accounts import accounts
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account, LinkInvalid
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow import methods
from core.authentication.flow.model import Flow
from core.kernel import proofs
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.values import digest
from ports import Ports
from ports.storage import Transaction


def is_of_browser(continuation: email_queue.LinkContinuation, device_cookie: str | None) -> bool:
    """Return whether the user signed up in the browser with this device cookie."""
    signed_up = continuation.browser_hash
    return signed_up is not None and device_cookie is not None and compare_digest(signed_up, digest(device_cookie))


@dataclass(frozen=True, slots=True)
class SignUpLink:
    """The verification link's token, and the device cookie from the browser that opened it. The link works once."""

    token: str = field(repr=False)
    device_cookie: str = field(repr=False)

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Return what verifies the address. Raises, in the transaction: LinkInvalid."""
        now = ports.clock.now()

        async def lock(tx: Transaction, _: Caller, __: methods.SendBehind) -> tuple[Account, None]:
            return await self._redeem(tx, now), None

        return methods.Proved(proof=proofs.Proof(proofs.Method.PASSWORD, now), lock=lock)

    async def _redeem(self, tx: Transaction, now: datetime) -> Account:
        token_hash = digest(self.token)
        continuation = await tx.one_time_tokens.continuation(token_hash, email_queue.TokenPurpose.VERIFY_EMAIL) or refuse(LinkInvalid)
        if not is_of_browser(continuation, self.device_cookie):
            raise LinkInvalid
        # Only the first link signs in. The user may have changed the password since.
        account = await tx.accounts.lock_by_token(token_hash, email_queue.TokenPurpose.VERIFY_EMAIL)
        if account is None or account.email_verified_at is not None:
            raise LinkInvalid
        account = await accounts.redeem_verification(tx, self.token, now)
        if continuation.service_id is not None:
            await _enroll(tx, continuation.service_id, account.id, now)
        return account


async def _enroll(tx: Transaction, service_id: UUID, user_id: UUID, now: datetime) -> None:
    """Make the user an end user of the application that they signed up for, unless it no longer admits them.

    The sign-up page has named the application, so no further page asks for consent.
    """
    service = await tx.services.context_by_id(service_id)
    if service is not None and service.status is OrganizationStatus.ACTIVE:
        tx.end_users.enroll(service_id, user_id, now)  # sent with the next statement
