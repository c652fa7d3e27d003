"""The data for `gatehouse demo mcp`: an MCP server's API resource. The server's client is not registered."""

from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from core.applications.model.users import AccessPolicy
from core.demo import creation
from core.demo.model import demo
from core.demo.model.demo import DemoRefused
from core.kernel import callers, roles, values
from core.kernel.causes import SYSTEM
from core.kernel.errors import Refusal
from core.programs import api_resources, credentials
from core.programs.model import client_policy
from core.programs.model.api_resources import ApiResource, ResourceScope
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction

SLUG: Final = values.Slug("demo")  # the organization's slug
NAME: Final = "Notes"
READ, WRITE = "notes:read", "notes:write"
SCOPES: Final = (ResourceScope(READ, "Read your notes"), ResourceScope(WRITE, "Change your notes", implies=(READ,)))
# All well-known clients, and clients that register themselves, where the platform allows it.
POLICY: Final = client_policy.ExternalClientPolicy(
    admit=client_policy.ClientAdmission.LISTED,
    hosts=tuple(host for preset in client_policy.PRESETS for host in preset.hosts),
    accepts_token_endpoint_audience=True,
    registration=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesDemo:
    """An API resource for an MCP server, and the secret with which it introspects tokens."""

    identifier: str
    resource_id: UUID
    resource_secret: str = field(repr=False)
    user: values.Email  # a user who can sign in, with the password that `gatehouse demo` printed


async def ensure(ports: Ports, identifier: str) -> NotesDemo:
    """Create or refresh the API resource with this identifier in the demo's first organization.

    The secret of the API resource is new. Values that users may have changed stay. After a refusal, nothing has changed.
    """
    async with ports.storage.transaction(by=SYSTEM) as tx:
        organization = await creation.find_organization(tx, SLUG)
        if organization is None or organization.status is not callers.OrganizationStatus.ACTIVE:
            raise DemoRefused("The MCP server belongs to the organization of the demo. Run gatehouse demo first.")
        await tx.organizations.lock(organization.id)
        caller = await _load_owner(tx, organization)
        shared = replace(ports, storage=creation.SharedTransaction(tx, ports.storage))
        try:
            resource = await _ensure_resource(shared, tx, caller, identifier)
            secret = await _replace_secret(shared, tx, caller, resource.id)
        except Refusal as refusal:  # for example, the address is not on this machine
            raise DemoRefused(f"The API resource for {identifier} cannot be created: {refusal.message}") from refusal
    user = demo.customer_email(SLUG, demo.END_USERS[0])
    return NotesDemo(identifier=identifier, resource_id=resource.id, resource_secret=secret, user=user)


async def _load_owner(tx: Transaction, organization: Organization) -> callers.Member:
    account = await tx.accounts.by_email(demo.member_email(SLUG, roles.OWNER))
    assert account is not None, "the organization was found by its owner"
    person = callers.Person(user_id=account.id, email=account.email, email_verified=True, session_id=values.new_id())
    return callers.to_member(
        person,
        callers.OrganizationContext(organization.id, organization.slug, organization.status, roles.OWNER, roles.rights_of(roles.OWNER)),
    )


async def _ensure_resource(ports: Ports, tx: Transaction, caller: callers.Member, identifier: str) -> ApiResource:
    for resource in await tx.api_resources.of_org(caller.acts_in.id):
        if resource.identifier == identifier:
            return resource
    created = await api_resources.create(ports, caller, identifier, NAME, SCOPES)
    return await api_resources.save_external_clients(ports, caller, created.id, POLICY, access=AccessPolicy.ANYONE)


async def _replace_secret(ports: Ports, tx: Transaction, caller: callers.Member, resource_id: UUID) -> str:
    for credential in await tx.credentials.of_client(caller.acts_in.id, resource_id):
        await credentials.revoke_of_resource(ports, caller, resource_id, credential.id)
    _, text = await credentials.create_for_resource(ports, caller, resource_id, demo.NEW_SECRET)
    assert text is not None, "a secret has a text"
    return text
