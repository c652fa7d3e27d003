"""The check of a new password: the platform's rules, and the rules of the organization that controls the account."""

from core.accounts.model.accounts import MIN_PASSWORD_LENGTH, Account, RequiredLength, check_new_password
from core.kernel.values import Email
from ports import Ports
from ports.storage import Reading


async def check(ports: Ports, account: Account | None, email: Email, password: str) -> None:
    """Check a new password for an account with this address. None: there is no account yet."""
    required = None
    if account is not None and account.origin_org_id is not None:
        async with ports.storage.reading() as read:
            required = await _required_length(read, account)
    check_new_password(password, email, ports.policy.common_passwords, required)


async def find_least_length(read: Reading, account: Account) -> int:
    """Return the least length that a new password for this account must have. Only its user may learn it."""
    required = await _required_length(read, account)
    return MIN_PASSWORD_LENGTH if required is None else max(MIN_PASSWORD_LENGTH, required.length)


async def check_of_address(ports: Ports, email: Email, password: str) -> None:
    """Check a new password for the account with this address, if the account exists."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_email(email)
    await check(ports, account, email, password)


async def _required_length(read: Reading, account: Account) -> RequiredLength | None:
    """Return the least length that the organization asks for which created the account.

    No other organization decides about its password.
    """
    if account.origin_org_id is None or not (await read.accounts.account_control(account.id, account.origin_org_id)).controls_account:
        return None
    policy = await read.sign_in_policies.effective(account.origin_org_id)
    length = None if policy is None else policy.parts[0].rules.min_password_length
    return None if policy is None or length is None else RequiredLength(policy.name, length)
