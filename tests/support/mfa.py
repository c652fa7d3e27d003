"""Accounts with a second factor."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import pyotp

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import Flow, FlowTarget, new_flow
from core.authentication.flow.prove import prove
from core.authentication.methods.second_factor import Code
from core.kernel.causes import SYSTEM
from core.kernel.proofs import first_proof
from ports import Ports
from ports.observe import Clock
from tests.support.builders import run_sql

STEP = timedelta(seconds=30)
# The sessions began with an authenticator app's code, too.
USED_IN_SESSIONS = """
    update sessions set strength = 2,
        proofs = proofs || jsonb_build_array(jsonb_build_object('method', 'totp', 'at', proofs -> 0 -> 'at'))"""
BACKUP_CODES = [f"ABCD-EFG{letter}" for letter in "HJKLMNPQRS"]


@dataclass(slots=True)
class Authenticator:
    """An authenticator app with the secret and a correct clock, and the backup codes."""

    secret: str
    clock: Clock
    backup_codes: Sequence[str] = ()

    def code(self, steps: int = 0) -> str:
        """Return the current code, or the code after `steps` more steps."""
        return pyotp.TOTP(self.secret).at(self.clock.now() + steps * STEP)

    def wrong(self) -> str:
        """Return six digits that are not a code for the current or a near step."""
        near = {self.code(steps) for steps in range(-3, 4)}
        return next(code for code in map(str, range(100000, 999999)) if code not in near)


async def add_mfa(
    ports: Ports, account: Account, *, backup_codes: Sequence[str] = BACKUP_CODES, at: datetime | None = None
) -> Authenticator:
    """Enable an account's second factor, as if it was confirmed one step ago. The current code is unused."""
    now = at or ports.clock.now()
    secret, salt = ports.codes.new_secret(), ports.passwords.new_salt()
    hashes = [await ports.passwords.derive(code, salt) for code in backup_codes]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(account.id, secret, now)
        await tx.mfa.use_step(account.id, now, int(now.timestamp()) // 30 - 1)
        await tx.mfa.replace_codes(account.id, salt, hashes)
        await tx.accounts.set_mfa(account.id, now, now)
    return Authenticator(secret, ports.clock, backup_codes)


async def use_in_sessions(pool: Pool, account: Account) -> None:
    """Store that an account's sessions began with its second factor."""
    await run_sql(pool, f"{USED_IN_SESSIONS} where user_id = %s", account.id)


def waiting_flow(user_id: UUID, now: datetime) -> Flow:
    """Return an API client's flow with a right password, which waits for the second factor."""
    first = first_proof("password", now)
    return new_flow(now, FlowTarget.API, "", user_id=user_id, proofs=(first,), proofs_expire_at=now + timedelta(seconds=600))


async def show(ports: Ports, account: Account, code: str) -> None:
    """Complete a pending sign-in with a code. Raises: the errors from `Code`."""
    flow = waiting_flow(account.id, ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.flows.add(flow)
    await prove(ports, SYSTEM, flow, Code(code), PresentedDevice())
