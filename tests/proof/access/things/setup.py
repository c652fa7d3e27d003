"""A tenant's set-up links: a link that waits, and a link that a browser has opened, with proposals."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from core.accounts.model.accounts import Account
from core.authentication.browser import form_token
from core.kernel.callers import SetupPart
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest, new_id, new_secret
from core.setup.model.links import ProposedDomain, SetupDocument, SetupLink, SetupLinkKind, SetupProposal
from core.tenancy.model.organizations import Organization
from ports import Ports
from tests.support.saml import new_certificate


async def add_setup_links_of_tenant(ports: Ports, organization: Organization, creator: Account, connection_id: str) -> Mapping[str, str]:
    """Add the two links, which renew this connection's certificate. Return what requests name, and the browser's cookie."""
    slug, now, token, cookie = organization.slug, ports.clock.now(), new_secret(), new_secret()
    waiting = SetupLink(
        id=new_id(),
        org_id=organization.id,
        name=f"{slug} Waiting",
        kind=SetupLinkKind.EMBEDDED,
        parts=tuple(SetupPart),
        recipient=None,
        expires_at=now + timedelta(days=7),
        created_by=creator.id,
        created_at=now,
        connection_id=UUID(connection_id),
    )
    recipient = Email.parse(f"it@{slug}-customer.example")
    link = replace(waiting, id=new_id(), name=f"{slug} Globex", kind=SetupLinkKind.MAILED, recipient=recipient)
    proposed = {
        # At an address that the guard refuses, so that checks need no resolver.
        SetupPart.CONNECTION: SetupDocument(
            connection_id=str(new_id()),
            preset="okta",
            protocol="oidc",
            issuer=f"https://192.0.2.1/{slug}-customer",
            client_id=f"{slug}-customer-client",
            client_secret=f"{slug}-customer-secret",
        ),
        SetupPart.DOMAIN: SetupDocument(domains=(ProposedDomain(domain=f"{slug}-customer.example", challenge=new_secret()),)),
        SetupPart.DIRECTORY: SetupDocument(prefix=f"scim_live_{slug}"),
        SetupPart.CERTIFICATE: SetupDocument(certificate=(await new_certificate(now, f"{slug}-customer")).certificate),
        SetupPart.SIEM: SetupDocument(
            siem_provider="http", endpoint_url=f"https://192.0.2.1/{slug}-customer/siem", siem_token=f"{slug}-customer-siem"
        ),
    }
    opened = replace(link, opened_at=now, opened_address="203.0.113.77", opened_agent=f"{slug} browser")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.setup_links.add(waiting, digest(token))
        await tx.setup_links.add(link, digest(new_secret()))
        await tx.setup_links.open(opened, digest(cookie))
        for part, document in proposed.items():
            is_ready = part is not SetupPart.DOMAIN
            await tx.setup_links.put_proposal(
                SetupProposal(
                    id=new_id(),
                    org_id=organization.id,
                    link_id=link.id,
                    part=part,
                    document=document,
                    token_hash=digest(f"{slug} proposed") if part is SetupPart.DIRECTORY else None,
                    is_ready=is_ready,
                    changed_at=now,
                )
            )
    return {
        "setup_link_id": str(link.id),
        "setup_part": SetupPart.DIRECTORY.value,
        "setup_token": token,
        "setup_cookie": cookie,
        "setup_form_token": form_token(cookie),
    }
