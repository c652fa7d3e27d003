"""The RP ID of the installation, and the origins of its pages (WebAuthn section 4)."""

import ipaddress
from urllib.parse import urlsplit
from uuid import UUID

from core.accounts.model.passkeys import NoPasskeysHere, Passkey, RelyingParty
from core.kernel import uris
from ports import Ports
from ports.storage import Reading, Transaction


async def load(ports: Ports, read: Reading | Transaction) -> RelyingParty:
    """Return the relying party. Its id is the host of the base URL, or what this was at the first passkey. Raises: NoPasskeysHere."""
    host = urlsplit(ports.tokens.issuer).hostname or ""
    if _is_address(host):
        raise NoPasskeysHere
    return RelyingParty(await read.passkeys.rp_id() or host, _origins(ports))


async def load_usable(ports: Ports, read: Reading | Transaction, user_id: UUID) -> tuple[RelyingParty | None, list[Passkey]]:
    """Return the passkeys and security keys of an account for the present RP ID, with the relying party, or None if there are none."""
    try:
        party = await load(ports, read)
    except NoPasskeysHere:
        return None, []
    own = [passkey for passkey in await read.passkeys.of_user(user_id) if passkey.rp_id == party.id]
    return (party, own) if own else (None, [])


def of_passkey(ports: Ports, passkey: Passkey) -> RelyingParty:
    """Return the relying party that the passkey was made for."""
    return RelyingParty(passkey.rp_id, _origins(ports))


def _origins(ports: Ports) -> frozenset[str]:
    origins = {uris.origin_of(url) for url in (ports.tokens.issuer, ports.policy.frontend_url) if url is not None}
    return frozenset(origins - {""})  # a text that is not a URL has none


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
