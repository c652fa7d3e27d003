"""The first sign-in of a new user: after a sign-up on our page.

A registration proves nothing, and neither does a verification link alone: an attacker can register
the address of a victim, who then gets the link. So a link signs in only the browser in which the
user chose the password. In any other browser, it verifies the address, and the user signs in with
the password (security A-7).
"""

from __future__ import annotations

from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING

from core.accounts import accounts
from core.accounts.accounts_rules import LinkInvalid
from core.accounts.one_time_tokens import TokenPurpose
from core.authentication import login
from core.authentication.login_rules import PASSWORD, SignInMethod
from core.kernel.errors import refuse
from core.kernel.principals import OrganizationStatus
from core.kernel.values import digest

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.accounts.devices_rules import PresentedDevice
    from core.accounts.one_time_tokens import LinkContinuation
    from core.authentication.identities_rules import PendingIdentity
    from core.authentication.login_rules import PreAuthToken, SignedIn
    from core.kernel.principals import Caller
    from ports import Ports
    from ports.storage import Transaction


def is_of_browser(continuation: LinkContinuation, device_cookie: str | None) -> bool:
    """Return whether the user signed up in the browser with this device cookie."""
    signed_up = continuation.browser_hash
    return signed_up is not None and device_cookie is not None and compare_digest(signed_up, digest(device_cookie))


async def sign_in_after_sign_up(
    ports: Ports, caller: Caller, token: str, device_cookie: str, client: PresentedDevice
) -> SignedIn | PreAuthToken:
    """Verify the address of a sign-up in this browser, and start a browser session. The link works once.

    Raises: LinkInvalid.
    """
    method = SignInMethod(PASSWORD, None, in_browser=True)
    return await login.sign_in_to_account(ports, caller, method, partial(_redeem, ports, token, device_cookie), client)


async def _redeem(ports: Ports, token: str, device_cookie: str, tx: Transaction) -> tuple[Account, PendingIdentity | None]:
    now, token_hash = ports.clock.now(), digest(token)
    continuation = await tx.one_time_tokens.continuation(token_hash, TokenPurpose.VERIFY_EMAIL) or refuse(LinkInvalid)
    if not is_of_browser(continuation, device_cookie):
        raise LinkInvalid
    # Only the first link signs in. The user may have changed the password since.
    account = await tx.accounts.lock_by_token(token_hash, TokenPurpose.VERIFY_EMAIL)
    if account is None or account.email_verified_at is not None:
        raise LinkInvalid
    account = await accounts.redeem_verification(tx, token, now)
    if continuation.service_id is not None:
        await _enroll(tx, continuation.service_id, account.id, now)
    return account, None


async def _enroll(tx: Transaction, service_id: UUID, user_id: UUID, now: datetime) -> None:
    """Make the user an end user of the application that they signed up for, unless it admits them no longer.

    The sign-up page has named the application, so no further page asks for consent.
    """
    service = await tx.services.context_by_id(service_id)
    if service is not None and service.status is OrganizationStatus.ACTIVE:
        tx.end_users.enroll_deferred(service_id, user_id, now)
