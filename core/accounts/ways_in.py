"""The ways in which the user of an account can sign in, so that no change takes the last one away."""

from uuid import UUID

from core.accounts import factor_changes, relying_party
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import PasskeyKind
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import refuse
from core.kernel.proofs import Method, Proof, first_proof
from core.kernel.sign_in_age import SignInAge, is_enough
from ports import Ports
from ports.storage import Reading, Transaction


async def list_own(ports: Ports, caller: Person, *, without: Method | ConnectionSlug | UUID) -> tuple[str, ...]:
    """Return the ways in that remain to the caller, as `remaining` does. Raises: AccountGone."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        return await remaining(ports, read, account, without=without)


async def needs_passkey_recovery(ports: Ports, caller: Person) -> bool | None:
    """Return whether only a recovery replaces a lost passkey of the caller: the other factors together cannot add one (security PK-8).

    False without a passkey that works here, and if this session can add one now. None in a session that is good in one organization
    only: it must not learn the policies of others.

    Raises: AccountGone.
    """
    if caller.bounded_to is not None:
        return None
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        keys = (await relying_party.load_usable(ports, read, account.id))[1]
        if not any(key.kind is PasskeyKind.PASSKEY for key in keys):
            return False
        if await factor_changes.needs_recovery(ports, read, account, now, caller.session_id):
            return True
        is_fresh = is_enough(caller.sign_in, SignInAge.FRESH, ports.policy, now)
        if is_fresh and await factor_changes.may_add(ports, read, caller.session_id, account, now):
            return False
        status = await read.mfa.status(account.id) or refuse(AccountGone)
        firsts = [Method.PASSWORD, Method.EMAIL, *(identity.provider for identity in await read.identities.list_of_user(account.id, None))]
        has_key = any(key.kind is PasskeyKind.SECURITY_KEY for key in keys)
        seconds = [Proof(method, now) for method in status.methods if method is not Method.PASSKEY or has_key]
        present = await relying_party.load_without_lost_keys(ports, read, account)
        demands = await factor_changes.load_demands(ports, read, account.id, now)
        return demands.find_step_up(present, (*(first_proof(name, now) for name in firsts), *seconds)) is not None


async def remaining(
    ports: Ports,
    read: Reading | Transaction,
    account: Account,
    *,
    service_id: UUID | None = None,
    without: Method | ConnectionSlug | UUID | None = None,
) -> tuple[str, ...]:
    """Return the ways in that remain: `password`, `passkey`, `email` and the names of linked identity providers.

    `without` is the one that goes: PASSWORD, an identity provider, or the id of a passkey. `service_id`: identities that are
    linked in this service count. A password, and an email where sign-in by email is on, need a verified address
    (security A-4). A passkey counts if its authenticator has verified its user.
    """
    is_verified = account.email_verified_at is not None
    has_password = is_verified and account.password_hash is not None and without != Method.PASSWORD
    keys = (await relying_party.load_usable(ports, read, account.id))[1] if account.passkey_count else []
    has_passkey = any(key.kind is PasskeyKind.PASSKEY and key.user_verified and key.id != without for key in keys)
    providers = {identity.provider for identity in await read.identities.list_of_user(account.id, service_id)} - {without}
    ways = ((Method.PASSWORD, has_password), (Method.PASSKEY, has_passkey), (Method.EMAIL, is_verified and ports.policy.email_sign_in))
    return (*(way.value for way, is_there in ways if is_there), *sorted(map(str, providers)))
