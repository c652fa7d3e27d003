"""External clients in the access tests: an organization's user agreed to them, and they have tokens for the API resource."""

from dataclasses import replace
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication import sessions
from core.authentication.model.openid import OpenIdGrant, ResourceGrant
from core.authentication.model.sessions import Grant, SessionStart
from core.federation.oauth import client_registration
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.claims import Claims, external_client_id
from core.kernel.values import digest, new_id, new_secret
from core.tenancy.model.organizations import Organization
from ports import Ports
from tests.support.builders import SignedIn, one_factor
from tests.support.services import enroll_user, service_context

ADD = """
    with client as (
        insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, client_uri, jwks_uri, client_authentication,
                              uses_device_flow, document_fetched_at, created_at, updated_at)
        values (%(id)s, %(org)s, %(slug)s, %(name)s, case when %(keys)s::text is null then 'spa' else 'web' end, %(id)s,
                array[%(site)s || '/callback'], %(address)s, %(keys)s, %(authentication)s, true, now(), now(), now())
        returning id, org_id),
    usable as (
        insert into api_resource_clients (org_id, resource_id, service_id, own_scopes, created_at)
        select org_id, %(resource)s, id, '{}', %(now)s from client),
    admitted as (
        update api_resources set external_admit = 'listed', external_hosts = array[%(host)s], external_registration = true
        where id = %(resource)s),
    agreed as (
        insert into consents (user_id, org_id, service_id, scope, redirect_uris, client_authentication, granted_at)
        select %(user)s, org_id, id, '{}', array[%(site)s || '/callback'], %(authentication)s, now() from client)
    insert into api_consents (user_id, org_id, service_id, resource_id, scope, granted_at)
    select %(user)s, org_id, id, %(resource)s, array[%(scope)s], now() from client"""


def address_at(slug: str) -> str:
    """Return the address of this organization's client."""
    return f"https://assistant.{slug}.example/client"


async def register(ports: Ports, slug: str) -> str:
    """Return the client id of a client that registered itself, for a user in this organization."""
    open_ports = replace(ports, policy=replace(ports.policy, client_registration=True))
    metadata = {
        **{"client_name": f"{slug.title()} Notebook", "redirect_uris": [f"https://assistant.{slug}.example/callback"]},
        "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    }
    return (await client_registration.register(open_ports, SYSTEM, metadata, None)).client_id


async def add_external_client(
    ports: Ports, pool: Pool, organization: Organization, resource: UUID, user: Account, address: str
) -> SignedIn:
    """Add the client with this user's session. Return its tokens. A client with a document has keys."""
    slug, org_id, now = organization.slug, organization.id, ports.clock.now()
    host, scope, identifier = f"assistant.{slug}.example", f"{slug}:orders", f"https://api.{slug}.example/"
    has_keys, service = address == address_at(slug), external_client_id(org_id, address)
    kind = "assistant" if has_keys else "notebook"
    names = {
        **{"slug": f"{slug}-{kind}", "name": f"{slug.title()} {kind.title()}", "host": host, "site": f"https://{host}", "scope": scope},
        **{"address": address, "keys": f"https://{host}/keys" if has_keys else None},
        "authentication": f"private_key_jwt {host}" if has_keys else "none",
    }
    async with pool.connection() as connection:
        await connection.execute(ADD, {"id": service, "org": org_id, "resource": resource, "user": user.id, "now": now, **names})
    context = await service_context(pool, service)
    grant = OpenIdGrant((), resource=identifier, api=ResourceGrant(resource, (scope,), 600))
    caller = Anonymous(address=f"{slug}:8", agent=f"{slug} {kind}")
    proofs, by_code = one_factor(now), Grant.AUTHORIZATION_CODE
    start = SessionStart(user_id=user.id, caller=caller, service=context, openid=grant, grant=by_code, proofs=proofs)
    session, refresh_token = sessions.new_session(ports, start, now), new_secret()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await enroll_user(tx, service, user.id, now)
        await tx.sessions.begin(session, digest(refresh_token))
    claims = Claims(
        user_id=user.id,
        session_id=session.id,
        email=None,
        email_verified=False,
        token_id=new_id(),
        issued_at=now,
        expires_at=now + ports.policy.access_token_ttl,
        org=slug,
        org_id=org_id,
        service=context.slug,
        client_id=context.client_id,
        client_uri=address,
        audience=identifier,
        scope=(scope,),
    )
    return SignedIn(session.id, ports.tokens.sign(claims), refresh_token)
