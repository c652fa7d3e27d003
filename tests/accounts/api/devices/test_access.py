"""The callers that can read and change devices, and concurrent changes (security I-4, S-5, Z-5)."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.devices import Device
from tests.accounts.api.devices.owner import DAY, DEVICES, Owner
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, add_platform_owner, impersonate, run_concurrently, run_during, run_sql, sign_in
from tests.support.refusals import FORBIDDEN, MISSING, UNAUTHORIZED, refused
from tests.support.services import add_service, sign_in_to


async def test_devices_of_other_users_are_forbidden_and_unknown_ones_not_found(user: Owner, other_user: Owner) -> None:
    other_device, revoked_device = await other_user.add_trusted(), await other_user.add()
    await other_user.revoke(revoked_device)
    session = await other_user.start_session(other_device)
    before = await other_user.stored_rows()
    for device, refusal in (
        (other_device, FORBIDDEN),
        (revoked_device, FORBIDDEN),
        (uuid4(), MISSING),
        ("x", MISSING),
        (str(other_device.id).upper(), MISSING),
    ):
        for act in (user.get, user.rename, user.revoke):
            assert refused(await act(device)) == refusal
        # The device is checked before the body.
        assert refused(await user.rename(device, 5)) == refusal
    assert await other_user.stored_rows() == before
    assert await other_user.accepts(session)


CALLS: dict[str, Callable[[Owner, Device, str], Any]] = {
    "list": lambda owner, device, token: owner.api.get(DEVICES, token=token),
    "find": lambda owner, device, token: owner.get(device, token),
    "rename": lambda owner, device, token: owner.rename(device, "Work", token),
    "revoke": lambda owner, device, token: owner.revoke(device, token),
}
READS = ("list", "find")


async def test_every_endpoint_requires_a_token(user: Owner) -> None:
    device = await user.add()
    for name, call in CALLS.items():
        assert refused(await call(user, device, "nonsense")) == (401, "JWT_ERROR"), name
    assert len(await user.list_devices()) == 1


async def test_an_application_can_only_read(user: Owner, pool: Pool) -> None:
    device = await user.add()
    service = await add_service(pool, await add_organization(pool, "acme"))
    token = (await sign_in_to(user.ports, pool, service, user.account)).access_token
    before = await user.stored_rows()
    statuses = {name: (await call(user, device, token)).status for name, call in CALLS.items()}
    assert statuses == {name: 200 if name in READS else 403 for name in CALLS}
    assert await user.stored_rows() == before


async def test_an_application_sees_trust_by_the_period_of_its_organization(user: Owner, pool: Pool, clock: FakeClock) -> None:
    device, acme = await user.add_trusted(), await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set device_trust_days = 1")
    service = await add_service(pool, acme)
    clock.advance(2 * DAY)
    user.session = await sign_in(user.ports, user.account)
    token = (await sign_in_to(user.ports, pool, service, user.account)).access_token
    assert [one["trusted"] for one in await user.list_devices()] == [True]
    assert [one["trusted"] for one in await user.list_devices(token)] == [False]
    assert (await user.get(device, token)).json["trusted"] is False


async def test_an_impersonator_can_only_read(user: Owner) -> None:
    device = await user.add()
    token = await impersonate(user.ports, await add_platform_owner(user.ports), user.account)
    before = await user.stored_rows()
    statuses = {name: (await call(user, device, token)).status for name, call in CALLS.items()}
    assert statuses == {name: 200 if name in READS else 403 for name in CALLS}
    assert await user.stored_rows() == before


# Races


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(5))
async def test_of_two_devices_that_revoke_each_other_one_remains(user: Owner, attempt: int) -> None:
    devices = [await user.add(), await user.add()]
    sessions = [await user.start_session(device) for device in devices]
    answers = await run_concurrently(2, lambda one: user.revoke(devices[1 - one], sessions[one].access_token))
    assert sorted(answer.status for answer in answers) == [200, 401]
    assert sorted([await user.accepts(session) for session in sessions]) == [False, True]


@pytest.mark.parametrize("call", ["rename", "revoke"])
async def test_a_change_by_a_session_that_ends_during_the_request_is_refused(user: Owner, pool: Pool, call: str) -> None:
    device = await user.add()
    changes = [
        ("select 1 from users where id = %s for update", (user.account.id,)),
        ("update sessions set ended_at = now() where id = %s", (user.session.session_id,)),
    ]
    before = await user.stored_rows()
    assert refused(await run_during(pool, changes, lambda: CALLS[call](user, device, user.token))) == UNAUTHORIZED
    assert await user.stored_rows() == before


@pytest.mark.slow
async def test_concurrent_revocations_of_a_device_all_succeed(user: Owner) -> None:
    device = await user.add_trusted()
    answers = await run_concurrently(20, lambda _: user.revoke(device))
    assert {answer.status for answer in answers} == {200}
    assert await user.list_devices() == []
