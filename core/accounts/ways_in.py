"""The ways in which the user of an account can sign in, so that no change takes the last one away."""

from uuid import UUID

from core.accounts import passkey_waits, relying_party
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import PasskeyKind
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import refuse
from core.kernel.proofs import Method
from ports import Ports
from ports.storage import Reading, Transaction


async def list_own(ports: Ports, caller: Person, *, without: Method | ConnectionSlug | UUID) -> tuple[str, ...]:
    """Return the ways in that remain to the caller, as `remaining` does. Raises: AccountGone."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        return await remaining(ports, read, account, without=without)


async def needs_passkey_recovery(ports: Ports, caller: Person) -> bool | None:
    """Return whether only a recovery replaces a lost passkey of the caller, and no wait does (security PK-13).

    False without a passkey that works here. None in a session that is good in one organization only: it must not learn the policies of
    others.

    Raises: AccountGone.
    """
    if caller.bounded_to is not None:
        return None
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        keys = (await relying_party.load_usable(ports, read, account.id))[1]
        if not any(key.kind is PasskeyKind.PASSKEY for key in keys):
            return False
        return await passkey_waits.needs_recovery(ports, read, account, ports.clock.now())


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
