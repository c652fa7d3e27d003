"""Authorizations by an external client with a cached metadata document, and by a registered application."""

from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode
from uuid import UUID, uuid4

from core.federation.oauth.model.authorization import AUTHORIZE_PATH, s256_challenge
from core.kernel import uris
from core.kernel.claims import external_client_id
from core.kernel.values import new_secret
from ops.bench.filling import add_organization
from ops.bench.people import add_accounts, browser_cookies
from ops.bench.requests import checked
from ops.bench.row import Bench, Measure, Sample, measure_sequentially
from ops.bench.service import DATABASE_TIME, WORKER_TIME, Service
from ops.bench.wrk import Request
from tests.fakes.client_documents import ClientServer

RESOURCE: Final = "http://localhost:9100/mcp"
REDIRECT_URI: Final = "https://assistant.bench.example/callback"
SCOPE: Final = "notes:read"


def authorizations(bench: Bench) -> Measure:
    """Authorize an external client for a user who agreed to it. The easier condition is a registered public application."""
    server = bench.keep(ClientServer(bench.directory))
    on = bench.start(SSO_OUTBOUND_CA_FILE=str(server.certificate))
    address = server.publish(host="127.0.0.1", headers={"Cache-Control": "max-age=86400"}, redirect_uris=[REDIRECT_URI])
    add_accounts(on, 1)
    org_id, registered = add_organization(on, "bench"), uuid4()
    resource_id = _add_api_resource(on, org_id)
    _add_client(on, org_id, resource_id, registered)
    _add_client(on, org_id, resource_id, external_client_id(org_id, address), address)
    [cookie] = browser_cookies(on)
    bench.easier = partial(_measure_processor_time, on, checked(on, [_request(str(registered), cookie)], "", 303))
    return partial(_measure_processor_time, on, checked(on, [_request(address, cookie)], "", 303))


def _measure_processor_time(on: Service, requests: Sequence[Request], seconds: int) -> Sample:
    """Measure the processor time per request in the worker and in PostgreSQL, which other load on the machine changes little."""
    sample = measure_sequentially(on, requests, seconds)
    return Sample(sample.also[WORKER_TIME] + sample.also[DATABASE_TIME], {"p50 {} ms": sample.value, **sample.also})


def _request(client_id: str, cookie: dict[str, str]) -> Request:
    fields = {
        "client_id": client_id,
        "redirect_uri": REDIRECT_URI,
        "response_type": "code",
        "scope": SCOPE,
        "resource": RESOURCE,
        "code_challenge": s256_challenge(new_secret()),
        "code_challenge_method": "S256",
    }
    return Request("GET", f"{AUTHORIZE_PATH}?{urlencode(fields)}", more=cookie)


def _add_api_resource(on: Service, org_id: UUID) -> UUID:
    [(resource_id,)] = on.query(
        """
        insert into api_resources (id, org_id, identifier, canonical, name, scope_names, scope_descriptions, token_seconds, access_policy,
                                   external_admit, created_at, updated_at)
        values (gen_random_uuid(), %(org)s, %(identifier)s, %(canonical)s, 'Notes', array[%(scope)s], array['Read your notes'], 600,
                'anyone', 'any', now(), now())
        returning id""",
        org=org_id,
        identifier=RESOURCE,
        canonical=uris.normalize(RESOURCE),
        scope=SCOPE,
    )
    assert isinstance(resource_id, UUID)
    return resource_id


def _add_client(on: Service, org_id: UUID, resource_id: UUID, client_id: UUID, address: str | None = None) -> None:
    """Add a public client to which all users have agreed. An external client has an address."""
    on.query(
        """
        with client as (
            insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, client_uri, document_fetched_at,
                                  client_authentication, created_at, updated_at)
            values (%(id)s, %(org)s, %(slug)s, 'Assistant', 'spa', %(id)s, array[%(uri)s], %(address)s,
                    case when %(address)s::text is not null then now() - interval '1 hour' end,
                    case when %(address)s::text is not null then 'none' end, now(), now())
            returning id),
        usable as (
            insert into api_resource_clients (org_id, resource_id, service_id, own_scopes, created_at)
            select %(org)s, %(resource)s, id, '{}', now() from client),
        agreed as (
            insert into consents (user_id, org_id, service_id, scope, redirect_uris, client_authentication, granted_at)
            select u.id, %(org)s, client.id, '{}', case when %(address)s::text is null then '{}' else array[%(uri)s] end,
                   case when %(address)s::text is not null then 'none' end, now() from users u, client)
        insert into api_consents (user_id, org_id, service_id, resource_id, scope, granted_at)
        select u.id, %(org)s, client.id, %(resource)s, array[%(scope)s], now() from users u, client""",
        id=client_id,
        org=org_id,
        slug=f"client-{client_id.hex[:12]}",
        uri=REDIRECT_URI,
        address=address,
        resource=resource_id,
        scope=SCOPE,
    )
