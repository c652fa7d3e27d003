"""Applications' permissions and roles. Every change replaces the whole document, in one transaction.

Members change the document, and so do programs with the service's API key, such as a build pipeline.

An application asks whether a subject may do something (AuthZEN Authorization API 1.0), about its own permissions only. Nothing is
remembered between two requests, so a role that was taken away counts in no later answer.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.applications import api_keys, events, services
from core.applications.model import evaluation
from core.applications.model.api_keys import ApiKeyInvalid
from core.applications.model.authorization import (
    MAX_SHOWN_HOLDERS,
    NO_HOLDERS,
    AuthorizationChanged,
    AuthorizationDocument,
    AuthorizationResult,
    DeclaredPermission,
    DeclaredPermissionNotFound,
    EmptyRoleUpdate,
    FirstHolders,
    HolderCount,
    PermissionExists,
    RoleDefinition,
    ServiceAuthorization,
    ServiceRoleExists,
    ServiceRoleInUse,
    ServiceRoleNotFound,
    SlugOfOrganizationRole,
    StoredRole,
    changes_between,
    check_permission_name,
    check_role_slug,
)
from core.applications.model.services import Service, ServiceNotFound
from core.kernel import callers, errors, values
from core.kernel.access import may_view
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.roles import Capability, Permission
from ports import Ports, storage
from ports.storage import Reading

Edit = Callable[[AuthorizationDocument], AuthorizationDocument]
AuthorizationCaller = callers.OrganizationCaller | callers.ServiceKey
OWN_SERVICE: Final = ""  # in place of the slug, if an API key acts on its own service


async def get(ports: Ports, caller: AuthorizationCaller, slug: str) -> ServiceAuthorization:
    """Return a service's permissions and roles, which may be empty. Raises: ServiceNotFound, ApiKeyInvalid."""
    async with ports.storage.reading() as read:
        service = await _find(read, caller, slug)
        return await read.authorizations.find(service.org_id, service.id) or refuse(ServiceNotFound)


async def get_with_counts(ports: Ports, caller: AuthorizationCaller, slug: str) -> tuple[ServiceAuthorization, Mapping[str, HolderCount]]:
    """Return a service's permissions and roles, and by slug how many users and groups have the roles."""
    async with ports.storage.reading() as read:
        service = await _find(read, caller, slug)
        authorization = await read.authorizations.find(service.org_id, service.id) or refuse(ServiceNotFound)
        return authorization, await read.authorizations.count_holders(service.org_id, service.id)


async def find_role(ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str) -> StoredRole:
    """Return a service's role."""
    async with ports.storage.reading() as read:
        service = await _find(read, caller, slug)
        return await read.authorizations.find_role(service.org_id, service.id, role_slug) or refuse(ServiceRoleNotFound)


async def find_role_with_count(ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str) -> tuple[StoredRole, HolderCount]:
    """Return a service's role, and how many users and groups have it."""
    role = await find_role(ports, caller, slug, role_slug)
    async with ports.storage.reading() as read:
        service = await _find(read, caller, slug)
        counts = await read.authorizations.count_holders(service.org_id, service.id, [role_slug])
    return role, counts.get(role_slug, NO_HOLDERS)


async def find_permission(ports: Ports, caller: AuthorizationCaller, slug: str, name: str) -> DeclaredPermission:
    """Return a permission that a service declares."""
    return (await get(ports, caller, slug)).document.permission(name) or refuse(DeclaredPermissionNotFound)


async def replace_document(
    ports: Ports,
    caller: AuthorizationCaller,
    slug: str,
    document: AuthorizationDocument,
    *,
    versions: Collection[int] | None = None,
    confirmed: bool = False,
) -> AuthorizationResult:
    """Replace all permissions and roles that a service has. Nothing is written if the document is unchanged.

    `versions` are the versions that the caller has seen; None takes any. A role that users or groups have is deleted
    only if the change is `confirmed`.
    """
    return await _change(ports, caller, slug, lambda _: document, versions=versions, confirmed=confirmed)


async def preview(
    ports: Ports, caller: AuthorizationCaller, slug: str, document: AuthorizationDocument, *, versions: Collection[int] | None = None
) -> AuthorizationResult:
    """Return the result that `replace_document` would have now, and change nothing. The version is the present version.

    Raises: the errors of `replace_document`, without ServiceRoleInUse: the result says whether a confirmation is needed.
    """
    async with ports.storage.reading() as read:
        service = await _find(read, caller, slug)
        old = await read.authorizations.find(service.org_id, service.id) or refuse(ServiceNotFound)
        return await _compare(read, service, old, document, versions)


async def declare_permission(ports: Ports, caller: AuthorizationCaller, slug: str, permission: DeclaredPermission) -> AuthorizationResult:
    """Declare a permission."""
    check_permission_name(permission.name)

    def add(old: AuthorizationDocument) -> AuthorizationDocument:
        if old.permission(permission.name) is not None:
            raise PermissionExists
        return AuthorizationDocument.parse([*old.permissions, permission], old.roles)

    return await _change(ports, caller, slug, add)


async def describe_permission(
    ports: Ports, caller: AuthorizationCaller, slug: str, name: str, description: str | None
) -> AuthorizationResult:
    """Change a permission's description."""

    def describe(old: AuthorizationDocument) -> AuthorizationDocument:
        old.permission(name) or refuse(DeclaredPermissionNotFound)
        others = (each for each in old.permissions if each.name != name)
        return AuthorizationDocument.parse([*others, DeclaredPermission(name, description)], old.roles)

    return await _change(ports, caller, slug, describe)


async def remove_permission(ports: Ports, caller: AuthorizationCaller, slug: str, name: str) -> AuthorizationResult:
    """Remove a permission from the service and from its roles."""

    def remove(old: AuthorizationDocument) -> AuthorizationDocument:
        old.permission(name) or refuse(DeclaredPermissionNotFound)
        roles = (replace(role, permissions=tuple(each for each in role.permissions if each != name)) for role in old.roles)
        return AuthorizationDocument.parse((each for each in old.permissions if each.name != name), roles)

    return await _change(ports, caller, slug, remove)


async def create_role(ports: Ports, caller: AuthorizationCaller, slug: str, role: RoleDefinition) -> AuthorizationResult:
    """Add a role to a service."""
    check_role_slug(role.slug)

    def add(old: AuthorizationDocument) -> AuthorizationDocument:
        if old.role(role.slug) is not None:
            raise ServiceRoleExists
        return AuthorizationDocument.parse(old.permissions, [*old.roles, role])

    return await _change(ports, caller, slug, add)


async def update_role(
    ports: Ports,
    caller: AuthorizationCaller,
    slug: str,
    role_slug: str,
    *,
    name: str | values.Keep = values.KEEP,
    description: str | values.Keep | None = values.KEEP,
    permissions: tuple[str, ...] | values.Keep = values.KEEP,
) -> AuthorizationResult:
    """Change a service's role. The role's users get and lose the permissions at once."""
    fields = values.provided(name=name, description=description, permissions=permissions)
    if not fields:
        raise EmptyRoleUpdate

    def update(old: AuthorizationDocument) -> AuthorizationDocument:
        role = old.role(role_slug) or refuse(ServiceRoleNotFound)
        return AuthorizationDocument.parse(old.permissions, [*(each for each in old.roles if each is not role), replace(role, **fields)])

    return await _change(ports, caller, slug, update)


async def delete_role(
    ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str, *, confirmed: bool = False
) -> AuthorizationResult:
    """Delete a service's role. If users or groups have it, the change must be `confirmed`."""

    def remove(old: AuthorizationDocument) -> AuthorizationDocument:
        old.role(role_slug) or refuse(ServiceRoleNotFound)
        return AuthorizationDocument.parse(old.permissions, (each for each in old.roles if each.slug != role_slug))

    return await _change(ports, caller, slug, remove, confirmed=confirmed)


async def first_holders(ports: Ports, caller: callers.OrganizationCaller, slug: str, role_slugs: Collection[str]) -> FirstHolders | None:
    """Return the first users and groups with these roles, or None if the caller may not see them."""
    async with ports.storage.reading() as read:
        return await _first_holders(read, caller, await _find(read, caller, slug), role_slugs)


async def _change(
    ports: Ports,
    caller: AuthorizationCaller,
    slug: str,
    edit: Edit,
    *,
    versions: Collection[int] | None = None,
    confirmed: bool = False,
) -> AuthorizationResult:
    """Change the document. Every change to the document starts here."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        if isinstance(caller, callers.ServiceKey):
            _, service = await api_keys.lock_organization_for(tx, caller, Permission.WRITE_SERVICE, now)
        else:
            _, service = await services.lock_organization_for(tx, caller, slug, Capability.SERVICES_MANAGE)
        old = await tx.authorizations.find(service.org_id, service.id) or refuse(ServiceNotFound)
        result = await _compare(tx, service, old, edit(old.document), versions)
        if result.document == old.document:
            return result
        if result.changes.needs_confirmation and not confirmed:
            holders = result.changes.holders
            raise ServiceRoleInUse(holders, await _first_holders(tx, caller, service, holders))
        ids = {role.slug: stored.id if (stored := old.stored_role(role.slug)) else values.new_id() for role in result.document.roles}
        version = await tx.authorizations.save(service.org_id, service.id, result.document, ids, now)
        for event in events.authorization_changed(service, version, old.document, result.document, result.changes):
            tx.record(event)
    return replace(result, version=version)


async def _compare(
    read: storage.Reading | storage.Transaction,
    service: Service,
    old: ServiceAuthorization,
    document: AuthorizationDocument,
    versions: Collection[int] | None,
) -> AuthorizationResult:
    """Return the result when this document replaces the old one."""
    if versions is not None and old.version not in versions:
        raise AuthorizationChanged
    await _check_slugs(read, service.org_id, [role.slug for role in document.roles])
    changed = [role.slug for role in old.document.roles if role not in document.roles]
    counts = await read.authorizations.count_holders(service.org_id, service.id, changed) if changed else {}
    return AuthorizationResult(old.version, document, changes_between(old.document, document, counts))


async def _check_slugs(read: storage.Reading | storage.Transaction, org_id: UUID, slugs: Collection[str]) -> None:
    """Check that no organization role has such a slug, because tokens list the organization's and the service's roles together."""
    taken = {role.name for role in await read.roles.all(org_id)}
    for slug in slugs:
        if slug in taken:
            raise SlugOfOrganizationRole(slug)


async def _first_holders(
    read: storage.Reading | storage.Transaction, caller: AuthorizationCaller, service: Service, role_slugs: Collection[str]
) -> FirstHolders | None:
    """Return the first users and groups with these roles to callers who may see end users, and never to an API key."""
    if isinstance(caller, callers.ServiceKey) or not may_view(caller, Capability.END_USERS_VIEW):
        return None
    return await read.authorizations.first_holders(service.org_id, service.id, role_slugs, MAX_SHOWN_HOLDERS)


async def _find(read: storage.Reading | storage.Transaction, caller: AuthorizationCaller, slug: str) -> Service:
    if isinstance(caller, callers.ServiceKey):
        return await read.services.by_id(caller.service.org_id, caller.service.id) or refuse(ApiKeyInvalid)
    return await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)


async def answer_key(
    ports: Ports, caller: Caller, key: str, questions: evaluation.Questions
) -> tuple[callers.ServiceKey, list[evaluation.AccessDecision]]:
    """Return the caller with this API key, and the decisions about its service's permissions.

    A single statement reads the key, its service and the facts.
    """
    now, key_hash = ports.clock.now(), api_keys.hash_of(key)
    async with ports.storage.reading() as read:
        record, facts = await read.evaluations.by_key(key_hash, questions.valid, now) or (None, [])
    program = await api_keys.accept(ports, caller, record, key_hash, Permission.EVALUATE_ACCESS)
    return program, evaluation.decide_all(questions, facts)


async def answer_service(ports: Ports, service: callers.ServiceContext, questions: evaluation.Questions) -> list[evaluation.AccessDecision]:
    """Return the decisions about the permissions that an authenticated service declares."""
    _require_active(service)
    async with ports.storage.reading() as read:
        return evaluation.decide_all(
            questions, await read.evaluations.by_service(service.org_id, service.id, questions.valid, ports.clock.now())
        )


async def answer_credential(
    read: Reading, client_id: UUID, credential_id: UUID, questions: evaluation.Questions, now: datetime
) -> tuple[callers.ServiceContext, list[evaluation.AccessDecision]]:
    """Return the service that got a token for itself, and the decisions about its permissions.

    Raises: ProgramStopped if the token's credential has ended; OrganizationNotActive.
    """
    service, facts = await read.evaluations.by_credential(client_id, credential_id, questions.valid, now) or errors.refuse(
        errors.ProgramStopped
    )
    _require_active(service)
    return service, evaluation.decide_all(questions, facts)


def _require_active(service: callers.ServiceContext) -> None:
    if service.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
