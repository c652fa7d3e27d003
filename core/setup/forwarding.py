"""The SIEM that a set-up link's reader proposes. No entry goes there before an admin applies it, who may read the audit log."""

from datetime import datetime

from core.eventing import siem
from core.eventing.model.siem import SiemProvider, new_sink
from core.kernel.callers import OrganizationCaller, SetupLinkCaller, SetupPart
from core.setup import proposals
from core.setup.model.links import SetupDocument, SetupProposal, SetupReceiverNotEncrypted
from ports import Ports
from ports.storage import Transaction


async def propose(ports: Ports, caller: SetupLinkCaller, provider: SiemProvider, endpoint_url: str, token: str) -> None:
    """Propose a SIEM, in place of the earlier proposal. Nothing is sent to the SIEM."""
    sink = new_sink(caller.org_id, provider=provider, endpoint_url=endpoint_url, token=token, enabled=True)
    if not sink.endpoint_url.startswith("https:"):
        raise SetupReceiverNotEncrypted
    document = SetupDocument(siem_provider=provider.value, endpoint_url=sink.endpoint_url, siem_token=token)
    await proposals.propose(ports, caller, SetupPart.SIEM, document, is_ready=True)


async def store(tx: Transaction, caller: OrganizationCaller, proposal: SetupProposal, now: datetime) -> None:
    """Forward the audit log to the proposed SIEM, in place of the present SIEM."""
    document = proposal.document
    provider, endpoint_url = SiemProvider(document.siem_provider or ""), document.endpoint_url or ""
    sink = new_sink(proposal.org_id, provider=provider, endpoint_url=endpoint_url, token=document.siem_token or "", enabled=True)
    await siem.store(tx, caller, sink, now)
