"""A session's proofs, and the columns that API requests read instead."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.authentication import session_contexts
from adapters.postgres.authentication.sign_in_proofs import SECOND_AT
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.openid import OpenIdGrant, Scope
from core.kernel.callers import StoredSignIn
from core.kernel.proofs import Method, Proof, Proofs, Strength, complete, every_proof, first_proof, in_session, proved_at
from core.kernel.values import digest
from tests.support.builders import one_factor, run_sql, two_factors
from tests.support.rows import EVE, HOUR, NOW, SECOND, account, add, begin, session, within

STARTED = NOW - HOUR  # by `session`
COLUMNS = "authenticated_at, strength, fresh"


@pytest.fixture
async def user_id(storage: Postgres) -> UUID:
    return (await add(storage, account(), account(EVE, is_platform_owner=True))).id


async def load(storage: Postgres, session_id: UUID, user_id: UUID) -> Proofs:
    async with storage.reading() as read:
        factors = await read.session_sign_ins.load_factors(session_id, user_id)
    assert factors is not None
    return every_proof(factors.proofs)


async def strength(storage: Postgres, session_id: UUID, user_id: UUID) -> Strength:
    async with storage.reading() as read:
        context = await read.session_contexts.load(session_id, user_id, None, NOW)
    assert context is not None
    assert context.sign_in is not None
    return context.sign_in.strength


PROVIDER = first_proof("websuite", STARTED, is_fresh=False)
CASES: dict[str, tuple[Proofs, tuple[Any, ...]]] = {
    "a password": (one_factor(STARTED), (STARTED, 1, True)),
    "an email": (one_factor(STARTED, "email"), (STARTED, 1, True)),
    "a provider": ((PROVIDER,), (STARTED, 1, False)),
    "an earlier sign-in": (one_factor(STARTED - HOUR), (STARTED - HOUR, 1, True)),
    "a code": (two_factors(STARTED), (STARTED, 2, True)),
    "a provider and a code": (complete(PROVIDER, Proof(Method.TOTP, STARTED)), (STARTED, 2, True)),
}


@pytest.mark.parametrize(("proofs", "columns"), CASES.values(), ids=CASES)
async def test_the_columns_of_a_sign_in_follow_from_its_proofs(
    storage: Postgres, pool: Pool, user_id: UUID, proofs: Proofs, columns: tuple[Any, ...]
) -> None:
    stored = await begin(storage, user_id, "token", proofs=proofs)
    assert await run_sql(pool, f"select {COLUMNS} from sessions") == [columns]  # noqa: S608
    assert await load(storage, stored.id, user_id) == proofs
    assert await strength(storage, stored.id, user_id) == columns[1]


async def test_every_field_of_a_proof_is_stored(storage: Postgres, user_id: UUID) -> None:
    proofs = (
        replace(PROVIDER, user_verified=True, phishing_resistant=True),
        Proof(Method.BACKUP_CODE, NOW),
        Proof(Method.OWNER_RECOVERY, NOW - SECOND),
    )
    stored = await begin(storage, user_id, "token", proofs=proofs)
    assert await load(storage, stored.id, user_id) == proofs
    assert await strength(storage, stored.id, user_id) == Strength.TWO, "that of the newest sign-in"


async def test_an_impersonation_has_no_proofs(storage: Postgres, pool: Pool, user_id: UUID) -> None:
    [[eve]] = await run_sql(pool, "select id from users where id <> %s", user_id)
    await begin(storage, user_id, "token", impersonator_id=eve)
    assert await run_sql(pool, f"select proofs, {COLUMNS} from sessions where impersonator_id is not null") == [  # noqa: S608
        (None, None, None, True)
    ]
    rotated = await within(storage, lambda tx: tx.refresh_tokens.rotate(digest("token"), b"next", NOW, NOW + HOUR))
    assert rotated is not None
    assert rotated.subject.proofs == ()


async def test_a_method_of_a_later_release_is_a_first_factor(storage: Postgres, pool: Pool, user_id: UUID) -> None:
    stored = await begin(storage, user_id, "token", proofs=one_factor(STARTED))
    await run_sql(pool, """update sessions set proofs = jsonb_set(proofs, '{0,method}', '"telepathy"')""")
    assert await load(storage, stored.id, user_id) == (Proof(None, STARTED),)


async def test_other_changes_of_a_session_keep_its_proofs(storage: Postgres, pool: Pool, user_id: UUID) -> None:
    proofs = (*one_factor(STARTED), Proof(Method.BACKUP_CODE, STARTED))
    stored = await begin(storage, user_id, "token", proofs=proofs)
    await run_sql(pool, "update sessions set expires_at = expires_at, mfa_missing = true, org_id = null")
    assert await load(storage, stored.id, user_id) == proofs


async def test_a_reauthentication_replaces_the_proofs(storage: Postgres, pool: Pool, user_id: UUID) -> None:
    stored = await begin(storage, user_id, "token", proofs=two_factors(STARTED))
    for proofs in ((replace(PROVIDER, at=NOW),), two_factors(NOW, "email")):
        await within(storage, lambda tx, new=proofs: tx.session_sign_ins.reauthenticate(stored.id, user_id, new))  # type: ignore[misc]
        assert await load(storage, stored.id, user_id) == proofs
        assert await run_sql(pool, "select authenticated_at, strength from sessions") == [(NOW, len(proofs))]


async def test_equal_proofs_stay(storage: Postgres, pool: Pool, user_id: UUID) -> None:
    stored = await begin(storage, user_id, "token", proofs=one_factor(STARTED))
    same = StoredSignIn(stored.id, None, mfa_missing=False, proofs=stored.proofs)
    await within(storage, lambda tx: tx.session_sign_ins.reauthenticate(stored.id, user_id, stored.proofs))
    await within(storage, lambda tx: tx.session_sign_ins.weaken([same], user_id, asks_again=False))
    await within(storage, lambda tx: tx.session_sign_ins.join(stored.id, user_id, stored.proofs, NOW + HOUR, NOW + HOUR))
    assert await load(storage, stored.id, user_id) == stored.proofs
    assert await run_sql(pool, "select authenticated_at, proofs is null, expires_at from sessions") == [(STARTED, False, NOW + HOUR)]


async def test_a_new_second_factor_is_missing_in_all_other_sessions(storage: Postgres, pool: Pool, user_id: UUID) -> None:
    own, other = session(user_id, proofs=one_factor(STARTED)), session(user_id, proofs=two_factors(STARTED))
    for each in (own, other):
        await within(storage, lambda tx, new=each: tx.sessions.begin(new, new.id.bytes))  # type: ignore[misc]
    await within(storage, lambda tx: tx.session_sign_ins.require_mfa_again(user_id, own.id, is_proved=True))
    proofs = (*every_proof(own.proofs), Proof(Method.TOTP, NOW))
    await within(storage, lambda tx: tx.session_sign_ins.reauthenticate(own.id, user_id, proofs))
    assert await load(storage, own.id, user_id) == proofs
    assert await load(storage, other.id, user_id) == other.proofs
    assert (await strength(storage, own.id, user_id), await strength(storage, other.id, user_id)) == (Strength.TWO, Strength.ONE)


@pytest.mark.parametrize("scope", [None, (Scope.OPENID,)])
async def test_a_refresh_finds_the_proofs(storage: Postgres, user_id: UUID, scope: tuple[Scope, ...] | None) -> None:
    openid = None if scope is None else OpenIdGrant(scope)
    proofs = (*one_factor(STARTED), Proof(Method.BACKUP_CODE, STARTED))
    stored = replace(session(user_id, proofs=proofs), openid=openid)
    await within(storage, lambda tx: tx.sessions.begin(stored, b"first"))
    rotated = await within(storage, lambda tx: tx.refresh_tokens.rotate(b"first", b"second", NOW, NOW + HOUR))
    assert rotated is not None
    assert proved_at(in_session(rotated.subject.proofs)) == STARTED
    assert rotated.subject.proofs == proofs


def test_no_request_of_an_api_reads_the_proofs() -> None:
    for sql in (
        session_contexts.LOAD_SESSION_CONTEXT,
        session_contexts.LOAD_SESSION_CONTEXT_IN,
        session_contexts.LOAD_WITH_PROFILE,
        session_contexts.LOAD_APPLICATION_SESSION,
        session_contexts.LOAD_APPLICATION_SESSION_WITH_PROFILE,
        session_contexts.LOAD_USERINFO,
        session_contexts.LOAD_USERINFO_OF_SERVICE,
    ):
        assert "proofs" not in sql.replace(SECOND_AT, ""), "but for the time of a second factor"
