"""Sign-in policies for applications, which add to their organization's policy."""

from collections.abc import Sequence

from core.applications import services
from core.kernel.callers import Member
from core.kernel.sign_in_policy.rules import Document
from core.tenancy import sign_in_policies
from core.tenancy.model.sign_in_policies import PolicyApplication, PolicyPreview
from core.tenancy.sign_in_policies import PolicyDetails
from ports import Ports


async def get(ports: Ports, caller: Member, slug: str) -> PolicyDetails:
    """Return the policy for an application in the caller's organization. The policy may be empty. Raises: ServiceNotFound."""
    return await sign_in_policies.get(ports, caller, await _find(ports, caller, slug))


async def list_usable_methods(ports: Ports, caller: Member, slug: str) -> Sequence[str]:
    """Return the methods that this installation offers to the application's users."""
    return await sign_in_policies.list_usable_methods(ports, caller, await _find(ports, caller, slug))


async def save(ports: Ports, caller: Member, slug: str, document: Document, version: int) -> PolicyDetails:
    """Replace an application's policy, and return it. Raises: ServiceNotFound; the errors of `sign_in_policies.save`."""
    return await sign_in_policies.save(ports, caller, document, version, await _find(ports, caller, slug))


async def remove(ports: Ports, caller: Member, slug: str) -> None:
    """Remove an application's policy. Raises: ServiceNotFound; the errors of `sign_in_policies.remove`."""
    await sign_in_policies.remove(ports, caller, await _find(ports, caller, slug))


async def preview(ports: Ports, caller: Member, slug: str, document: Document) -> PolicyPreview:
    """Return the effect that saving this document would have now. Raises: ServiceNotFound; the errors of `sign_in_policies.preview`."""
    return await sign_in_policies.preview(ports, caller, document, await _find(ports, caller, slug))


async def _find(ports: Ports, caller: Member, slug: str) -> PolicyApplication:
    service = await services.find(ports, caller, slug)
    return service.policy_application
