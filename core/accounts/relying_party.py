"""The RP ID of the installation, and the origins of its pages (WebAuthn section 4)."""

import ipaddress
from urllib.parse import urlsplit

from core.accounts.model.passkeys import NoPasskeysHere, RelyingParty
from core.kernel import uris
from ports import Ports
from ports.storage import Reading, Transaction


async def load(ports: Ports, read: Reading | Transaction) -> RelyingParty:
    """Return the relying party. Its id is the host of the base URL, or what this was at the first passkey. Raises: NoPasskeysHere."""
    base_url, frontend_url = ports.tokens.issuer, ports.policy.frontend_url
    host = urlsplit(base_url).hostname or ""
    if _is_address(host):
        raise NoPasskeysHere
    origins = {uris.origin_of(url) for url in (base_url, frontend_url) if url is not None}
    return RelyingParty(await read.passkeys.rp_id() or host, frozenset(origins))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
