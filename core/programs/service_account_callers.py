"""Requests with a service account's access token.

`reading` is the connection for the query. If the token has a DPoP proof, the query also uses the proof up.
"""

from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from core.kernel import access, callers, errors
from core.kernel.api_scopes import ApiScope
from core.kernel.causes import Caller
from core.kernel.claims import ProgramClaims
from core.programs.model.service_accounts import ServiceAccountContext
from ports import Ports
from ports.storage import Reading


async def authenticate_member(
    ports: Ports,
    caller: Caller,
    claims: ProgramClaims,
    reading: AbstractAsyncContextManager[Reading],
    slug: str,
    requirement: access.Requirement,
) -> callers.ActingServiceAccount:
    """Return this token's service account, acting in the organization `slug`, if it may call a route with this requirement.

    Raises: ProgramStopped if the account is not live.
    """
    context = await _load_context(ports, claims, reading, slug)
    assert requirement.capability is not None, "the requirement of an organization's route has a capability"
    account = _to_caller(caller, claims, context)
    if context.acts_in is not None and context.acts_in.role is None:
        raise access.NotOfThisOrganization
    try:
        organization = access.require_capability(context.acts_in, requirement.capability, inactive=requirement.inactive)
        access.check_service_account(account, requirement)
    except errors.Forbidden as refusal:
        refusal.caller = account
        raise
    return callers.to_acting_service_account(account, organization)


async def authenticate_on_platform(
    ports: Ports, caller: Caller, claims: ProgramClaims, reading: AbstractAsyncContextManager[Reading], requirement: access.Requirement
) -> callers.ServiceAccountCaller:
    """Return the platform's service account with this token, if it may call a route with this requirement.

    Raises: ProgramStopped if the account is not live; NotAPlatformOwner for an organization's account.
    """
    context = await _load_context(ports, claims, reading, None)
    if context.org_id is not None:
        raise access.NotAPlatformOwner
    account = _to_caller(caller, claims, context)
    access.check_service_account(account, requirement)
    return account


async def refuse_on_account(ports: Ports, claims: ProgramClaims, reading: AbstractAsyncContextManager[Reading]) -> NoReturn:
    """Refuse a service account on a route about the caller's own user account.

    Raises: ProgramStopped if the account is not live, or else NeedsPerson.
    """
    await _load_context(ports, claims, reading, None)
    raise access.NeedsPerson


async def _load_context(
    ports: Ports, claims: ProgramClaims, reading: AbstractAsyncContextManager[Reading], slug: str | None
) -> ServiceAccountContext:
    async with reading as read:
        now = ports.clock.now()
        return await read.service_accounts.load_context(claims.client_id, claims.credential_id, slug, now) or errors.refuse(
            errors.ProgramStopped
        )


def _to_caller(caller: Caller, claims: ProgramClaims, context: ServiceAccountContext) -> callers.ServiceAccountCaller:
    scopes = frozenset(ApiScope(name) for name in claims.scope if name in ApiScope.__members__.values())
    return callers.ServiceAccountCaller(
        account_id=claims.client_id,
        credential_id=claims.credential_id,
        name=context.name,
        scopes=scopes if context.scopes is None else scopes & context.scopes,
        granted=context.granted,
        org_id=context.org_id,
        address=caller.address,
        agent=caller.agent,
    )
