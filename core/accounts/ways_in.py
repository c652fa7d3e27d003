"""The ways in which an account's user can sign in, so that no change takes away the last way."""

from uuid import UUID

from core.accounts import relying_party
from core.accounts.model.accounts import Account
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import refuse
from core.kernel.proofs import Method
from ports import Ports, storage


async def list_own(ports: Ports, caller: Person, *, without: Method | ConnectionSlug | UUID) -> tuple[str, ...]:
    """Return the ways in that remain to the caller, as `remaining` does."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        return await remaining(ports, read, account, without=without)


async def remaining(
    ports: Ports,
    read: storage.Reading | storage.Transaction,
    account: Account,
    *,
    service_id: UUID | None = None,
    without: Method | ConnectionSlug | UUID | None = None,
) -> tuple[str, ...]:
    """Return the ways in that remain: `password`, `passkey`, `email` and linked identity providers by name.

    `without` is the way that goes: PASSWORD, an identity provider, or a passkey id. `service_id`: identities that are linked in this
    service count. A password, and an email where sign-in by email is on, need a verified address (security A-4). A passkey counts if its
    authenticator has verified its user.
    """
    is_verified = account.email_verified_at is not None
    has_password = is_verified and account.password_hash is not None and without != Method.PASSWORD
    has_passkey = any(key.user_verified and key.id != without for key in await relying_party.load_passkeys(ports, read, account))
    providers = {identity.provider for identity in await read.identities.list_of_user(account.id, service_id)} - {without}
    ways = ((Method.PASSWORD, has_password), (Method.PASSKEY, has_passkey), (Method.EMAIL, is_verified and ports.policy.email_sign_in))
    return (*(way.value for way, is_there in ways if is_there), *sorted(map(str, providers)))
