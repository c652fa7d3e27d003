"""Sign-ins that wait for the second factor."""

from typing import Final
from uuid import UUID

from tests.fakes.provider import Person
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import is_step, leads_to
from tests.support.builders import run_sql

STRANGER: Final = Person(subject="666")  # the provider says that this user has the account's address


async def sign_in_until_code(provider_sign_in: ProviderSignIn, /, **query: str) -> None:
    assert is_step(leads_to(await provider_sign_in.complete(**query)), "code")
    assert await provider_sign_in.user_id() is None


async def subjects(provider_sign_in: ProviderSignIn) -> list[tuple[UUID | None, str]]:
    """Return every identity's service and subject."""
    return [(row[1], row[4]) for row in await provider_sign_in.identities()]


async def pending_identities(provider_sign_in: ProviderSignIn) -> int:
    """Return how many identities wait for the second factor. Pending identities are sealed."""
    [[count]] = await run_sql(provider_sign_in.pool, "select count(identity) from sign_in_flows")
    return int(count)
