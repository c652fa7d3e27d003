"""Consents, the scopes that users share with applications (OpenID Connect Core section 3.1.2.4), and grants to external clients."""

from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts.own_account import lock_own_account
from core.applications.model.services import Service
from core.authentication.model import agreements, openid
from core.federation.oauth import events
from core.federation.oauth.model import consents
from core.kernel import callers, values
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.programs import api_resources
from core.programs.model.api_resources import ApiResourceNotFound
from core.tenancy import organizations
from ports import Ports, storage

MAX_LISTED: Final = 200


async def compare(
    read: storage.Reading | storage.Transaction,
    service: Service,
    user_id: UUID,
    grant: openid.OpenIdGrant,
    *,
    is_asked: bool,
    counts_trust: bool,
    client: agreements.ClientFacts | None = None,
) -> tuple[openid.OpenIdGrant, agreements.Agreement, bool]:
    """Return the grant that the user can give, their earlier consent, and whether this covers the grant.

    They agree once to each scope. Confirmed members are asked for no consent by a trusted application in their organization, if trust
    counts. `offline_access` is left out, unless they agreed to it before or the request `is_asked`, with `prompt=consent`.
    """
    agreement = await _load_agreement(read, service, user_id, grant, counts_trust=counts_trust)
    if openid.Scope.OFFLINE_ACCESS not in agreement.scope and not is_asked:
        grant = replace(grant, scope=tuple(scope for scope in grant.scope if scope is not openid.Scope.OFFLINE_ACCESS))
    return grant, agreement, agreement.covers(grant, client)


async def are_given(
    tx: storage.Transaction, service: Service, user_id: UUID, grant: openid.OpenIdGrant, client: agreements.ClientFacts | None
) -> bool:
    """Return whether the user still need not be asked for anything in this grant."""
    return (await _load_agreement(tx, service, user_id, grant, counts_trust=True)).covers(grant, client)


async def _load_agreement(
    read: storage.Reading | storage.Transaction, service: Service, user_id: UUID, grant: openid.OpenIdGrant, *, counts_trust: bool
) -> agreements.Agreement:
    if counts_trust and service.is_trusted and await read.end_users.is_confirmed_member(service.org_id, user_id):
        return agreements.Agreement(frozenset(openid.Scope), None if grant.api is None else frozenset(grant.api.scope))
    return await read.consents.agreement(service.org_id, service.id, user_id, None if grant.api is None else grant.api.id)


async def remember(
    tx: storage.Transaction,
    service: Service,
    user_id: UUID,
    grant: openid.OpenIdGrant,
    client: agreements.ClientFacts | None,
    now: datetime,
) -> None:
    """Store the consent of the user to this grant, and record an event if a scope is new. The caller has locked the account."""
    scope = openid.in_order(grant.consent_scopes)
    is_new = await tx.consents.add(service.org_id, service.id, user_id, scope, now, client)
    if grant.api is not None:
        is_new = await tx.consents.add_api(service.org_id, service.id, user_id, grant.api, now) or is_new
    if is_new:
        tx.record(events.consent_granted(service, user_id, scope, grant))


async def list_own(ports: Ports, caller: callers.Person) -> list[consents.Consent]:
    """Return the caller's newest consents, at most MAX_LISTED, by organization and application."""
    async with ports.storage.reading() as read:
        return await read.consents.of_user(caller.user_id, MAX_LISTED)


async def find_own(ports: Ports, caller: callers.Person, service_id: UUID) -> consents.Consent:
    """Return the caller's consent to one application."""
    async with ports.storage.reading() as read:
        return await read.consents.by_service(caller.user_id, service_id) or refuse(consents.ConsentNotFound)


async def withdraw(ports: Ports, caller: callers.Person, service_id: UUID) -> None:
    """Withdraw the caller's consent to an application.

    The user's sessions there that have a scope of OpenID Connect or access to an API resource end. So do
    codes and device approvals that would start new ones. At the next sign-in, the application asks again.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        consent = await tx.consents.remove(caller.user_id, service_id) or refuse(consents.ConsentNotFound)
        await tx.organization_sessions.end_consented(consent.org_id, service_id, caller.user_id, now)
        tx.record(events.consent_withdrawn(consent, caller.user_id))


async def list_grants(
    ports: Ports, caller: callers.OrganizationCaller, resource_id: UUID, page: values.Page, *, search: str | None = None
) -> values.PageResult[consents.ExternalGrant]:
    """Return a page of the grants at an API resource, by email address and client. `search` is a part of an email address."""
    text = values.Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        resource = await api_resources.load_with_users(read, caller, resource_id)
        return await read.external_grants.page(resource.org_id, resource.id, page, search=text)


async def end_grant(ports: Ports, caller: callers.OrganizationCaller, resource_id: UUID, user_id: UUID, client_id: UUID) -> None:
    """End the grant of a user to an external client at an API resource.

    Its sessions for the API resource end, and codes and device approvals that would start new ones. The client asks the user again.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.END_USERS_MANAGE)
        resource = await tx.api_resources.by_id(organization.id, resource_id) or refuse(ApiResourceNotFound)
        # Checked before the lock, so that callers cannot lock accounts of other organizations.
        await tx.external_grants.find(organization.id, resource.id, user_id, client_id) or refuse(consents.ExternalGrantNotFound)
        await tx.accounts.lock(user_id) or refuse(consents.ExternalGrantNotFound)
        grant = await tx.external_grants.remove(organization.id, resource.id, user_id, client_id) or refuse(consents.ExternalGrantNotFound)
        await tx.organization_sessions.end_consented(organization.id, grant.service_id, user_id, now, resource.id)
        tx.record(events.external_grant_ended(resource, grant))
