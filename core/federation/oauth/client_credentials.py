"""Tokens that programs get for themselves, without a user (RFC 6749 section 4.4).

A service account gets tokens for our own API, with the scopes that its role and its settings allow. An
application and a service account get tokens for an API resource of their organization, with the
scopes that an admin granted to them there. An application also gets tokens to ask about its permissions.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from core.authentication.model.dpop import KeyBinding, ProofUse
from core.authentication.model.openid import split_scope
from core.authentication.tokens import dpop
from core.federation.oauth import own_permissions
from core.federation.oauth.model import clients, openid_requests
from core.kernel import api_scopes, errors, uris
from core.kernel.access import allowed_scopes
from core.kernel.callers import OrganizationStatus
from core.kernel.claims import ProgramClaims
from core.kernel.values import new_id
from core.programs.model import credentials
from core.programs.model.api_resources import add_implied
from ports import Ports


async def issue(
    ports: Ports,
    client: clients.OAuthClient | credentials.ProgramClient | None,
    scope: str | None,
    resource: str | None,
    proof: ProofUse | None = None,
) -> clients.ProgramToken:
    """Return an access token for the client itself.

    Without `scope`, it has all scopes that the client may have. Without `resource`, it is for our own
    API, which only service accounts may call. Its lifetime is the shortest of three: the API resource's,
    the application's and the time until the credential expires. A `proof` binds it to a key.

    Raises: ClientInvalid without credentials; ClientCredentialsRefused, OrganizationNotActive,
    ResourceMissing, ResourceUnknown, ScopeNotAllowed; ProofMissing if the application needs a proof.
    """
    if client is None:
        raise errors.ClientInvalid
    program = client if isinstance(client, credentials.ProgramClient) else _to_program(client)
    if program.kind is credentials.ProgramKind.API_RESOURCE:
        raise clients.ClientCredentialsRefused
    if program.org_id is not None and program.status is not OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    is_required = not isinstance(client, credentials.ProgramClient) and client.is_bound_only
    binding = dpop.bind(proof, is_required=is_required)
    requested = None if scope is None else split_scope(scope)
    if resource is None or uris.normalize(resource) == uris.normalize(ports.tokens.api_audience):
        if program.kind is not credentials.ProgramKind.SERVICE_ACCOUNT:
            raise openid_requests.ResourceMissing if resource is None else openid_requests.ResourceUnknown
        scopes, lifetime = _narrow(_api_scopes(program), requested), ports.policy.access_token_ttl
        return _sign(ports, program, ports.tokens.api_audience, scopes, lifetime, binding)
    canonical = uris.normalize(resource) or errors.refuse(openid_requests.ResourceUnknown)
    own_limit = client.context.access_token_seconds if isinstance(client, clients.OAuthClient) and client.context is not None else None
    if program.kind is credentials.ProgramKind.APPLICATION and canonical == uris.normalize(own_permissions.audience(ports)):
        lifetime = ports.policy.access_token_ttl if own_limit is None else timedelta(seconds=own_limit)
        return _sign(ports, program, own_permissions.audience(ports), _narrow((own_permissions.SCOPE,), requested), lifetime, binding)
    async with ports.storage.reading() as read:
        grant = await read.api_resources.granted_to(
            program.org_id or errors.refuse(openid_requests.ResourceUnknown), program.client_id, canonical
        )
    target, own_scopes = grant or errors.refuse(openid_requests.ResourceUnknown)
    own_scopes = target.granted_scopes(own_scopes)
    requested = None if requested is None else tuple(add_implied(requested, target.implications))
    seconds = target.token_seconds if own_limit is None else min(target.token_seconds, own_limit)
    return _sign(ports, program, target.identifier, _narrow(own_scopes, requested), timedelta(seconds=seconds), binding)


def _to_program(client: clients.OAuthClient) -> credentials.ProgramClient:
    """Return an application as a program. Raises: ClientCredentialsRefused if it has not proven who it is, or is an external client."""
    is_external = client.service is not None and client.service.is_external
    if client.service is None or client.context is None or client.relies_on_pkce or is_external:
        raise clients.ClientCredentialsRefused
    return credentials.ProgramClient(
        kind=credentials.ProgramKind.APPLICATION,
        client_id=client.service.client_id,
        credential_id=client.service.credential_id,
        org_id=client.context.org_id,
        org_slug=client.context.org_slug,
        status=client.context.status,
    )


def _api_scopes(account: credentials.ProgramClient) -> Sequence[api_scopes.ApiScope]:
    if account.rights is not None:
        return allowed_scopes(account.rights, account.scopes)
    of_platform = (scope for scope in api_scopes.ApiScope if scope.area.is_of_platform)
    return api_scopes.in_order(scope for scope in of_platform if account.scopes is None or scope in account.scopes)


def _narrow(allowed: Iterable[str], requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested scopes, or all allowed scopes, in their order."""
    names = tuple(allowed)
    if requested is not None and not set(requested) <= set(names):
        raise clients.ScopeNotAllowed
    scope = names if requested is None else tuple(name for name in names if name in requested)
    return scope or errors.refuse(clients.NoScope)


def _sign(
    ports: Ports, program: credentials.ProgramClient, audience: str, scope: tuple[str, ...], lifetime: timedelta, binding: KeyBinding | None
) -> clients.ProgramToken:
    now = ports.clock.now()
    ends_at = now + lifetime if program.expires_at is None else min(now + lifetime, program.expires_at)
    claims = ProgramClaims(
        client_id=program.client_id,
        credential_id=program.credential_id,
        token_id=new_id(),
        issued_at=now,
        expires_at=ends_at,
        audience=audience,
        scope=scope,
        org=program.org_slug or "",
        org_id=program.org_id,
        key_thumbprint=None if binding is None else binding.thumbprint,
    )
    ports.metrics.token_issued()
    expires_in = int(ends_at.timestamp()) - int(now.timestamp())
    return clients.ProgramToken(ports.tokens.sign_program(claims), expires_in, " ".join(scope), is_bound=binding is not None)
