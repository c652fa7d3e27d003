"""The platform's own people and figures (organizations.md sections 4.6 and 4.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.access import SYSTEM
from core.accounts import check_new_password, new_account
from core.errors import Invalid
from core.guesses import Secret, clear
from core.one_time_tokens import Purpose

if TYPE_CHECKING:
    from core.values import Email
    from ports import Ports


class PlatformOwnerExists(Invalid):
    """There is a platform owner already. Platform owners make further ones: POST /api/platform/owners."""


class AccountNotUsable(Invalid):
    """The account with this address is deactivated. Choose another address."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the gauges of organizations.md section 4.11 show; active users are accounts that are not deactivated."""

    active_users: int
    organizations: int
    mfa_enabled_users: int


async def create_first_owner(ports: Ports, email: Email, password: str) -> None:
    """Make `email` the first platform owner, verified, with this password (security.md I-6; decisions, point 55).

    An account that has the address already is taken over whole: its password and sessions may be a squatter's. Raises
    PlatformOwnerExists once there is a platform owner, AccountNotUsable, and what check_new_password raises.
    """
    check_new_password(password, ports.policy.common_passwords)
    async with ports.storage.reading() as read:
        if await read.accounts.platform_owner_exists():  # before the expensive hash; the answer that counts is the one below
            raise PlatformOwnerExists
    password_hash = await ports.passwords.hash(password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()
        if await tx.accounts.platform_owner_exists():
            raise PlatformOwnerExists
        account = await tx.accounts.lock_by_email(email)
        if account is None:
            account = new_account(email, password_hash, now, verified=True)
            await tx.accounts.add(account)
        else:
            if not account.is_usable:
                raise AccountNotUsable
            for purpose in Purpose:
                await tx.one_time_tokens.void(account.id, purpose)
            await tx.accounts.set_password(account.id, password_hash, now)
            await tx.accounts.mark_verified(account.id, now)
            await tx.sessions.end_all(account.id, now)
        await tx.accounts.promote(account.id, now)
    await clear(ports, Secret.PASSWORD, email)


async def figures(ports: Ports) -> Figures:
    """The platform's gauges, counted now."""
    async with ports.storage.reading() as read:
        return await read.platform.figures()
