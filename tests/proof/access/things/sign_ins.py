"""Sign-ins and failed attempts for the access tests, and what an organization sees (decision 220)."""

from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.devices import Location
from core.authentication.model.login import LoginFailure
from core.kernel.values import new_id
from ports import Ports
from tests.support.builders import run_sql
from tests.support.rows import failed_login

# The rival organization's counted attempts, with and without the home organization. `hide_in_counts` names some
# attempts for the platform.
NETWORK = "192.0.2.77"
ATTEMPTS = 3


async def add_sign_ins_of_tenant(ports: Ports, slug: str, org: UUID, service: UUID, user: UUID) -> None:
    """Add failures that the organization sees: by a member without a user agent, at the platform itself, and at no account."""
    now, place = ports.clock.now(), Location(f"{slug.title()} Pier", "DE")
    at_application = {"org_id": org, "service_id": service}
    async with ports.storage.autocommit() as statements:
        for user_id, values in (
            (user, {**at_application, "agent": None, "reason": LoginFailure.MFA, "request_id": f"{slug}-request"}),
            (user, {"agent": f"{slug} radio"}),
            (None, {**at_application, "agent": f"{slug} scanner"}),
        ):
            await statements.failed_logins.record_failure(failed_login(user_id, at=now, address=f"{slug}:9", location=place, **values))


async def add_counted_attempts(ports: Ports, org: UUID, service: UUID) -> None:
    """Add attempts at unknown accounts, which the application's organization sees as a single count."""
    async with ports.storage.autocommit() as statements:
        for _ in range(ATTEMPTS):
            failure = failed_login(None, at=ports.clock.now(), address=NETWORK, org_id=org, service_id=service)
            await statements.failed_logins.record_failure(failure)


async def add_hidden_sign_ins(pool: Pool, ports: Ports, slug: str, *, rival: tuple[UUID, UUID], both: UUID, strangers: list[UUID]) -> None:
    """Add rows that the rival organization must not see, with the home organization's slug in every text.

    There are three kinds: sign-ins to the home organization's application by a member of the two organizations,
    sign-ins to the platform itself by people the rival does not know, and names in attempts that the rival has counted.
    """
    insert = """
        insert into login_events (id, user_id, org_id, service_id, provider, success, reason, seen_by, address, agent, city, country,
                                  created_at, request_id)
        values (%s, %s, %s, %s, 'password', %s, %s, %s, %s, %s, %s, 'DE', %s, %s)"""
    now, texts = ports.clock.now(), (f"{slug}:10", f"{slug} console", f"{slug.title()} Dock")
    for user in (both, *strangers):
        for success in (True, False):
            seen_by, reason = ("platform" if user == both else "all"), (None if success else "credentials")
            await run_sql(pool, insert, new_id(), user, None, None, success, reason, seen_by, *texts, now, f"{slug}-hidden")
    for user in strangers:
        await run_sql(pool, insert, new_id(), user, *rival, False, "credentials", "platform", *texts, now, f"{slug}-hidden")
