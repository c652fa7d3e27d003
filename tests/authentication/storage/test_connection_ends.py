"""Ending a connection's sign-ins: for all users, or for one user."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.federation.connections.model.connections import ConnectionIdentity
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method, Proof, Proofs, first_proof, restriction_of
from tests.support.builders import add_organization, run_sql
from tests.support.connections import add_connection, add_login
from tests.support.rows import EVE, NOW, account, add, begin, within
from tests.support.services import add_service

PASSWORD = first_proof("password", NOW)


async def known_user(storage: Postgres, org: UUID, connection: UUID, user: Any) -> UUID:
    user_id = (await add(storage, user)).id
    identity = ConnectionIdentity(
        org_id=org, connection_id=connection, user_id=user_id, subject=str(user_id), email=None, linked_at=NOW, last_used_at=NOW
    )
    await within(storage, lambda tx: tx.connection_identities.add(identity))
    return user_id


async def end_session_of_provider(storage: Postgres, org: UUID, connection: UUID, session: str, user: UUID | None) -> Mapping[UUID, int]:
    return await within(storage, lambda tx: tx.session_sign_ins.end_provider_session(org, connection, session, user, NOW))


@pytest.mark.parametrize("of_one", [False, True])
async def test_the_end_of_a_connection_leaves_only_what_the_account_has_proved(storage: Postgres, pool: Pool, *, of_one: bool) -> None:
    org, other_org = await add_organization(pool, "acme"), await add_organization(pool, "globex")
    okta, entra = await add_connection(storage, org, "okta"), await add_connection(storage, org, "entra")
    elsewhere = await add_connection(storage, other_org)
    service = await add_service(pool, org, "shop")
    ada, eve = await known_user(storage, org, okta.id, account()), await known_user(storage, org, okta.id, account(EVE))
    by_okta, by_entra, there = (Proof(Method.CONNECTION, NOW, connection=each.id, org=each.org_id) for each in (okta, entra, elsewhere))
    kinds = {
        "restricted": (by_okta,),
        "merged": (PASSWORD, by_okta),
        "application": (PASSWORD, by_okta),
        "another connection": (by_entra,),
        "another organization": (there,),
        "another organization, merged": (PASSWORD, there),
        "own": (PASSWORD,),
    }
    ids = {}
    for user in (ada, eve):
        for kind, proofs in kinds.items():
            ids[user, kind] = new = await begin(storage, user, f"{kind} {user}", proofs=proofs)
            if kind == "application":
                await run_sql(pool, "update sessions set service_id = %s, org_id = %s where id = %s", service, org, new.id)
            assert await run_sql(pool, "select restricted_to from sessions where id = %s", new.id) == [(restriction_of(proofs),)]
            for place in (org, other_org):
                await run_sql(
                    pool,
                    "insert into policy_passes (session_id, org_id, version, valid_until, used_at) values (%s, %s, 1, %s, %s)",
                    *(new.id, place, NOW, NOW),
                )
    await within(storage, lambda tx: tx.session_sign_ins.end_of_connection(org, okta.id, ada if of_one else None, NOW))
    ended = {id_ for (id_,) in await run_sql(pool, "select id from sessions where ended_at = %s", NOW)}
    concerned = (ada,) if of_one else (ada, eve)
    assert ended == {ids[user, kind].id for user in concerned for kind in ("restricted", "application")}
    for (user, kind), stored in ids.items():
        [(proofs,)] = await run_sql(pool, "select proofs from sessions where id = %s", stored.id)
        passes = {org_id for (org_id,) in await run_sql(pool, "select org_id from policy_passes where session_id = %s", stored.id)}
        is_merged = kind == "merged" and user in concerned
        assert len(proofs) == (1 if is_merged else len(kinds[kind])), kind
        assert passes == ({other_org} if is_merged else {org, other_org}), kind


async def test_a_connection_of_another_organization_ends_nothing(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    okta = await add_connection(storage, org)
    user = await known_user(storage, org, okta.id, account())
    await begin(storage, user, "restricted", proofs=(Proof(Method.CONNECTION, NOW, connection=okta.id, org=org),))
    await within(storage, lambda tx: tx.session_sign_ins.end_of_connection(uuid4(), okta.id, None, NOW))
    assert await run_sql(pool, "select 1 from sessions where ended_at is not null") == []


async def test_a_session_at_the_provider_ends_what_a_sign_out_here_ends(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    okta, entra = await add_connection(storage, org, "okta"), await add_connection(storage, org, "entra")
    service = await add_service(pool, org, "shop")
    ada, eve = await known_user(storage, org, okta.id, account()), await known_user(storage, org, okta.id, account(EVE))
    first, second, other = [
        (await add_login(storage, connection, ada, provider_session=session, logout={"id_token": f"of {session}"})).id
        for connection, session in ((okta, "s1"), (okta, "s2"), (entra, "s1"))
    ]
    proof = Proof(Method.CONNECTION, NOW, connection=okta.id, org=org, login=first)
    kinds: dict[str, Proofs] = {
        "restricted": (proof,),
        "merged": (PASSWORD, proof),
        "application": (proof,),
        "offline": (proof,),
        "another session there": (replace(proof, login=second),),
        "another connection": (replace(proof, connection=entra.id, login=other),),
        "own": (PASSWORD,),
    }
    ids = {kind: (await begin(storage, ada, kind, proofs=proofs)).id for kind, proofs in kinds.items()}
    scopes = {"application": ["openid"], "offline": ["openid", "offline_access"]}
    for kind, scope in scopes.items():
        await run_sql(pool, "update sessions set service_id = %s, org_id = %s, scope = %s where id = %s", service, org, scope, ids[kind])
    async with storage.reading() as read:
        login = await read.connection_logins.find(org, first, ada)
        assert login is not None
        assert login.logout == {"id_token": "of s1"}
        assert await read.connection_logins.find(org, first, eve) is None
        assert await read.connection_logins.find(uuid4(), first, ada) is None
    async with storage.transaction(by=SYSTEM) as tx:
        logins = tx.connection_logins
        sessions = [await logins.newest_of_session(*names, "s1") for names in ((org, okta.id), (org, uuid4()), (uuid4(), okta.id))]
        users = [await logins.newest_of_user(org, okta.id, user) for user in (ada, eve)]
    assert [each and each.id for each in sessions] == [first, None, None]
    assert users[0] is not None
    assert (users[0].id in (first, second), users[1]) == (True, None)
    end = partial(end_session_of_provider, storage, org, okta.id)
    assert (await end("s3", None), await end("s1", eve)) == ({}, {})
    assert await end("s1", None) == {ada: 2}
    ended = {id_ for (id_,) in await run_sql(pool, "select id from sessions where ended_at = %s", NOW)}
    assert ended == {ids["restricted"], ids["application"]}
    [(stored,)] = await run_sql(pool, "select jsonb_array_length(proofs) from sessions where id = %s", ids["merged"])
    assert stored == 1, "the own proof"
