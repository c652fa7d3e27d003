"""The second factor and the passkey for the demo's end users, and the sign-in policy for its first organization."""

import secrets
from base64 import b64decode
from dataclasses import replace
from typing import Final
from uuid import UUID

from core.accounts import events as accounts_events
from core.accounts import mfa, relying_party
from core.accounts.model import passkeys
from core.accounts.model.mfa import MfaEvent
from core.demo.model.demo import DemoUser
from core.kernel.causes import SYSTEM
from core.kernel.proofs import FactorKind
from core.kernel.sign_in_policy.rules import Concerned, Rules
from core.kernel.values import new_id
from core.tenancy import events as tenancy_events
from core.tenancy.model import sign_in_policies
from ports import Ports
from ports.storage import Transaction

# A COSE key without a private key, which was deleted at once. So the passkey is shown, and signs in no user.
PUBLIC_KEY: Final = b64decode("pQECAyYgASFYINvdk6+kBNPyD4XYcZugRYe+ydu7cexC1ynK+2dhFe67Ilgg3WMzoPDt5VdiMA4BjLbDU1UwaCnznxNwBX8pMOMHGFA=")
PASSKEY_NAME: Final = "Phone of the demo"
# Admins set up a second factor before the grace period ends, which every run starts again.
POLICY: Final = Rules.parse({"second_factor": [Concerned.ADMINS], "grace_days": 14})


async def enable_mfa(ports: Ports, tx: Transaction, user: DemoUser) -> DemoUser:
    """Give the user a second factor with a new secret, and no backup codes."""
    secret, now = ports.codes.new_secret(), ports.clock.now()
    account = await tx.accounts.lock(user.id)
    assert account is not None, "a locked account exists"
    was_enabled = await mfa.remove_factors(tx, account, now, (FactorKind.TOTP,))
    await tx.mfa.save_pending_secret(user.id, secret, now)
    await tx.accounts.set_mfa(user.id, now, now)
    if not was_enabled:
        await tx.mfa.log(user.id, [MfaEvent.SETUP_INITIATED, MfaEvent.SETUP_COMPLETED, MfaEvent.ENABLED], SYSTEM, now)
        tx.record(*accounts_events.mfa_enabled(user.id, FactorKind.TOTP))
    return replace(user, totp_secret=secret)


async def ensure_passkey(ports: Ports, tx: Transaction, user: DemoUser) -> None:
    """Give the user a passkey, not as a second factor. Users with a passkey, and base URLs without passkeys, are left out."""
    now = ports.clock.now()
    account = await tx.accounts.lock(user.id)
    assert account is not None, "a locked account exists"
    await mfa.remove_factors(tx, account, now, (FactorKind.PASSKEY,))
    if not relying_party.has_host(ports) or account.passkey_count:
        return
    party = await relying_party.load(ports, tx)
    passkey = passkeys.Passkey(
        id=new_id(),
        user_id=user.id,
        kind=passkeys.PasskeyKind.PASSKEY,
        name=PASSKEY_NAME,
        credential_id=secrets.token_bytes(32),
        public_key=PUBLIC_KEY,
        algorithm=-7,
        rp_id=party.id,
        sign_count=0,
        aaguid=passkeys.NO_AAGUID,
        backup_eligible=True,
        backed_up=True,
        user_verified=False,  # so that the password cannot be removed
        transports=("hybrid", "internal"),
        created_at=now,
    )
    await tx.passkeys.handle(user.id, secrets.token_bytes(passkeys.HANDLE_BYTES))
    await relying_party.adopt(ports, tx, party)
    await tx.passkeys.add(passkey)
    await tx.mfa.log(user.id, [MfaEvent.PASSKEY_ADDED], SYSTEM, now)
    tx.record(accounts_events.passkey_added(passkey))


async def ensure_policy(ports: Ports, tx: Transaction, org_id: UUID) -> None:
    """Let the organization ask its admins for a second factor, unless a user has changed its policy."""
    now, stored = ports.clock.now(), await tx.sign_in_policies.find(org_id)
    if stored is not None and stored.changed_by is not None:
        return
    rules = POLICY.with_due_dates(Rules(), now)
    await tx.sign_in_policies.put(sign_in_policies.SignInPolicy(org_id=org_id, rules=rules, changed_at=now))
    if stored is None:
        tx.record(tenancy_events.sign_in_policy_updated(org_id, None, sign_in_policies.changes_of(Rules(), rules)))
