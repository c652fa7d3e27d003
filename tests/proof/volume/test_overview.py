"""An overview's figures read few rows in large tables."""

from collections.abc import Iterator
from functools import partial
from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from core.applications.model.analytics import DELIVERIES_CHECKED, OrganizationFigures, PendingTask
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault
from tests.support.rows import NOW

pytestmark = pytest.mark.slow

ORG = UUID(int=1)
SIZE: Final = 8000
# ORG has three admins among its members. Its busy webhook has the newest deliveries, and its quiet
# webhook the oldest. All certificates in the other organizations have expired.
INSERTS: Final = """
    insert into organizations (id, slug, name, status, member_count, created_at, updated_at)
    values (%(org)s, 'acme', 'Acme', 'active', %(size)s, %(now)s, %(now)s);
    insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
    select gen_random_uuid(), %(org)s, md5('u' || n)::uuid, n || '@example.com',
           case when n <= 3 then 'admin' else 'member' end, %(now)s, %(now)s
    from generate_series(1, %(size)s) n;
    insert into mfa (user_id, secret, setup_at, last_step)
    select md5('u' || n)::uuid, '', %(now)s, 1 from generate_series(2, %(size)s) n;
    insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at)
    select gen_random_uuid(), %(org)s, n || '@example.com', 'member', %(org)s, case when n <= 150 then 'pending' else 'accepted' end,
           sha256(n::text::bytea), %(now)s + interval '1 day', %(now)s, case when n > 150 then %(now)s end
    from generate_series(1, %(size)s) n;
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
    select md5('s' || n)::uuid, case when n <= 1000 then %(org)s else md5('o' || mod(n, 50))::uuid end, 's' || n, 's', 'mobile',
           gen_random_uuid(), '{}', %(now)s, %(now)s
    from generate_series(1, 10000) n;
    insert into saml_configurations (service_id, org_id, enabled, entity_id, acs_url, name_id_format, sign_assertions, sign_response,
                                     updated_at)
    select id, org_id, true, 'e', 'a', 'n', true, true, %(now)s from services;
    insert into saml_certificates (id, org_id, service_id, certificate, private_key, valid_from, valid_until, created_at)
    select gen_random_uuid(), org_id, id, 'c', 'k', %(now)s,
           case when org_id = %(org)s and slug <> 's7' then %(now)s + interval '1 year' else %(now)s end, %(now)s
    from services;
    insert into connections (id, org_id, slug, name, protocol, state, settings, mapping, created_at)
    select md5('c' || n)::uuid, case when n <= 5 then %(org)s else md5('o' || n / 20)::uuid end, 'c' || n, 'c', 'oidc', 'active',
           '{}', '{}', %(now)s
    from generate_series(1, 5000) n;
    insert into connection_health (org_id, connection_id, due_at, refreshed_at, health, problem)
    select org_id, id, %(now)s, %(now)s, 'failing', 'unreachable' from connections where org_id is not null;
    insert into home_realm_routes (org_id, domain, connection_id)
    select org_id, slug || '.example', id from connections where org_id is not null;
    insert into domains (org_id, domain, challenge, verified_at, created_at)
    select org_id, slug || '.example', 'x', %(now)s, %(now)s from connections where org_id is not null and slug <> 'c1';
    insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
    select md5('w' || n)::uuid, case when n <= 2 then %(org)s else md5('o' || mod(n, 50))::uuid end, 'w' || n, 'u', '{user.invited}',
           true, '', %(now)s, %(now)s from generate_series(1, 3000) n;
    insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, delivered, attempt_count, created_at,
                                    updated_at)
    select gen_random_uuid(), %(org)s, md5(case when n <= %(size)s then 'w1' else 'w2' end)::uuid, 'user.invited', '{}', 'done', %(now)s,
           n <= %(size)s, 1, %(now)s - n * interval '1 second', %(now)s
    from generate_series(1, %(size)s + 50) n"""
TABLES: Final = ("organizations", "memberships", "mfa", "invitations", "services", "saml_configurations", "saml_certificates")
OF_CONNECTIONS: Final = ("connections", "connection_health", "home_realm_routes", "domains")


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    parameters = {"org": ORG, "size": SIZE, "now": NOW}
    with filled_database(server, INSERTS, parameters, *TABLES, *OF_CONNECTIONS, "webhooks", "webhook_deliveries") as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_figures_of_a_large_organization_read_few_rows(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        overview = Repositories(connection, make_vault(), NoSignals()).overview
        figures, reads = await count_reads(connection, mode, partial(overview.figures, ORG, NOW))
    assert figures == OrganizationFigures(
        SIZE,
        1000,
        False,
        {
            PendingTask.INVITATIONS_PENDING: 100,
            PendingTask.ADMINS_WITHOUT_MFA: 1,
            PendingTask.CERTIFICATES_EXPIRING: 1,
            PendingTask.WEBHOOKS_FAILING: 1,
            PendingTask.CONNECTIONS_FAILING: 5,
            PendingTask.CONNECTIONS_WITHOUT_DOMAIN: 1,
        },
    )
    assert reads.scans.keys() <= {"organizations"}, reads.scans  # it has a single row
    assert reads.rows["webhook_deliveries"] <= 2 * DELIVERIES_CHECKED
    # The invitations that are counted, the services, and a few members, certificates and webhooks
    assert reads.rows.total() - reads.rows["webhook_deliveries"] <= 100 + 1000 + 50, reads.rows
