"""External clients' names on pages and in logs. An external client chooses its own name, so its host stands for it."""

from typing import Final

from core.kernel import uris

SELF_REGISTERED: Final = "Self-registered application"  # for a client that registered itself, in place of a host
LABEL_LENGTH: Final = 64  # the start of a sealed client id: its random part is in it


def client_host(address: str) -> str | None:
    """Return the host in a client's address in A-labels and lower case, with a port other than 443, or None if it is not https."""
    start = uris.start_of(address)
    return start.removeprefix("https://").removesuffix("/") if start and start.startswith("https://") else None


def known_name(client_uri: str) -> str:
    """Return a name for an external client that it did not choose: its host, or that it registered itself."""
    return client_host(client_uri) or SELF_REGISTERED


def client_label(client_uri: str) -> str:
    """Return the text that names a client in events and logs: its address, or the start of its client id if it registered itself."""
    return client_uri if client_host(client_uri) else f"{client_uri[:LABEL_LENGTH]}..."
