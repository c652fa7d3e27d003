"""The statements about the states of browsers at identity providers."""

from datetime import timedelta

import pytest

from adapters.postgres.storage import Postgres
from core.federation.model.sign_in import ProviderState
from core.kernel.connections import CODEHOST
from core.kernel.values import digest
from tests.support.rows import HOUR, NOW, account, add, begin, within


@pytest.mark.parametrize(("expires_in", "is_added"), [(HOUR, True), (timedelta(0), False)])
async def test_a_link_needs_a_session_that_has_not_expired(storage: Postgres, expires_in: timedelta, is_added: bool) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "token", expires_at=NOW + expires_in)
    state = ProviderState(
        state_hash=digest("state"),
        browser_hash=digest("browser"),
        provider=CODEHOST,
        org_id=None,
        service_id=None,
        user_id=user.id,
        session_id=session.id,
        browser_session_id=None,
        reauthenticates=False,
        scopes=None,
        after="/app/account/identities",
        created_at=NOW,
        expires_at=NOW + HOUR,
    )
    assert await within(storage, lambda tx: tx.provider_states.add(state)) is is_added
