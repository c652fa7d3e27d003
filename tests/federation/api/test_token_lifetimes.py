"""The lifetimes of an application's tokens, within the platform's limits."""

from datetime import timedelta
from typing import Any

from quart_trio import QuartTrio

from core.kernel.policy import Policy
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import oauth_error
from tests.federation.api.relying import RelyingParty, claims
from tests.support.builders import run_sql
from tests.support.direct import change_ports

INVALID_GRANT = (400, "invalid_grant", "BAD_REQUEST")


async def choose(client: RelyingParty, seconds: int | None) -> None:
    await run_sql(client.tenant.pool, "update services set access_token_seconds = %s", seconds)


def lifetime(tokens: dict[str, Any]) -> int:
    signed = claims(tokens)
    assert tokens["expires_in"] == signed["exp"] - signed["iat"]
    return int(tokens["expires_in"])


async def test_access_tokens_have_the_lifetime_of_their_application(relying_party: RelyingParty, clock: FakeClock) -> None:
    assert lifetime(await relying_party.tokens()) == 900
    await choose(relying_party, 120)
    tokens = await relying_party.tokens()
    assert lifetime(tokens) == 120
    clock.advance(timedelta(seconds=119))
    assert await relying_party.is_live(tokens)
    clock.advance(timedelta(seconds=1))
    assert not await relying_party.is_live(tokens)
    renewed = (await relying_party.refresh(tokens["refresh_token"])).json
    assert lifetime(renewed) == 120
    await choose(relying_party, None)
    assert lifetime((await relying_party.refresh(renewed["refresh_token"])).json) == 900


async def test_unused_refresh_tokens_have_the_lifetime_of_their_application(relying_party: RelyingParty, clock: FakeClock) -> None:
    """A refresh starts the lifetime anew."""
    await run_sql(relying_party.tenant.pool, "update services set refresh_token_seconds = 600")
    tokens = await relying_party.tokens()
    for _ in range(2):
        clock.advance(timedelta(seconds=599))
        answer = await relying_party.refresh(tokens["refresh_token"])
        assert answer.status == 200, answer.text
        tokens = answer.json
    clock.advance(timedelta(seconds=600))
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == INVALID_GRANT


async def test_the_platform_limits_lifetimes_also_later(
    relying_party: RelyingParty, app: QuartTrio, ports: Ports, clock: FakeClock
) -> None:
    await run_sql(relying_party.tenant.pool, "update services set access_token_seconds = 800, refresh_token_seconds = 86400")
    change_ports(app, policy=Policy(access_token_ttl=timedelta(seconds=60), refresh_token_ttl=timedelta(seconds=300)))
    tokens = await relying_party.tokens()
    assert lifetime(tokens) == 60
    clock.advance(timedelta(seconds=299))
    tokens = (await relying_party.refresh(tokens["refresh_token"])).json
    assert lifetime(tokens) == 60
    clock.advance(timedelta(seconds=300))
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == INVALID_GRANT
