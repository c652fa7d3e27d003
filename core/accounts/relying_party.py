"""The installation's RP ID, and the origins of its pages (WebAuthn section 4)."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import KeyHosts, NoPasskeysHere, Passkey, PasskeyKind, RelyingParty
from core.kernel import uris
from core.kernel.errors import refuse
from core.kernel.policy import AndroidApp, IosApp, Policy
from ports import Ports, storage

LOCALHOST: Final = "localhost"
RELATED_ORIGINS_PATH: Final = "/.well-known/webauthn"
STORED_ID_TTL: Final = timedelta(minutes=1)


@dataclass(slots=True)
class StoredId:
    """The stored RP ID as last read, for pages that need no further statement. It changes only with the base URL or the settings."""

    rp_id: str | None = None
    read_at: datetime | None = None  # UTC


async def load(ports: Ports, read: storage.Reading | storage.Transaction) -> RelyingParty:
    """Return the relying party for new ceremonies. Raises: NoPasskeysHere."""
    rp_id = choose_id(ports.policy, ports.tokens.issuer, await read.passkeys.rp_id())
    return _party(ports, rp_id or refuse(NoPasskeysHere))


async def load_cached(ports: Ports, stored: StoredId) -> RelyingParty:
    """Return the relying party for new ceremonies. It can be a minute old."""
    now = ports.clock.now()
    if stored.read_at is None or now - stored.read_at >= STORED_ID_TTL:
        async with ports.storage.reading() as read:
            stored.rp_id = await read.passkeys.rp_id()
        stored.read_at = now
    return _party(ports, choose_id(ports.policy, ports.tokens.issuer, stored.rp_id) or refuse(NoPasskeysHere))


async def adopt(ports: Ports, tx: storage.Transaction, party: RelyingParty) -> bool:
    """Store the RP ID for a passkey that is added now. Return False if a concurrent process has stored a different RP ID since `load`."""
    url = ports.tokens.issuer
    await tx.passkeys.lock_rp_id(url)
    stored = await tx.passkeys.rp_id()
    if choose_id(ports.policy, url, stored) != party.id:
        return False
    if stored != party.id:
        await tx.passkeys.set_rp_id(party.id)
    return True


async def load_usable(
    ports: Ports, read: storage.Reading | storage.Transaction, user_id: UUID
) -> tuple[RelyingParty | None, list[Passkey]]:
    """Return an account's passkeys and security keys for the present RP ID, with the relying party, or None if there are none."""
    if not has_host(ports):
        return None, []
    party = await load(ports, read)
    own = [passkey for passkey in await read.passkeys.of_user(user_id) if passkey.rp_id == party.id]
    return (party, own) if own else (None, [])


async def has_passkey(ports: Ports, read: storage.Reading | storage.Transaction, account: Account) -> bool:
    """Return whether the account has a passkey for the present RP ID that has verified its user (security PK-12)."""
    return any(key.user_verified for key in await load_passkeys(ports, read, account))


async def load_passkeys(ports: Ports, read: storage.Reading | storage.Transaction, account: Account) -> list[Passkey]:
    """Return an account's passkeys for the present RP ID, without its security keys."""
    keys = (await load_usable(ports, read, account.id))[1] if account.passkey_count else []
    return [key for key in keys if key.kind is PasskeyKind.PASSKEY]


def present_id(ports: Ports, hosts: KeyHosts) -> str | None:
    """Return the RP ID for new passkeys of an account with these keys. None if the host is an IP address."""
    return choose_id(ports.policy, ports.tokens.issuer, hosts.stored)


def without_lost_keys(ports: Ports, account: Account, hosts: KeyHosts) -> Account:
    """Return the account as if it had no passkeys and security keys for an earlier RP ID, for rules about factors.

    What the user chose stays: sign-ins that ask for a second factor still do, and take a backup code.
    """
    present = present_id(ports, hosts)
    return replace(
        account,
        passkey_count=account.passkey_count - sum(host != present for host in hosts.passkeys),
        security_key_count=account.security_key_count - sum(host != present for host in hosts.security_keys),
    )


async def load_without_lost_keys(
    ports: Ports, read: storage.Reading | storage.Transaction, account: Account, *, removed: UUID | None = None
) -> Account:
    """Return the account as `without_lost_keys` does. `removed` is a key that the account no longer counts, but that is still stored."""
    if account.key_count == 0:
        return account
    keys = [key for key in await read.passkeys.of_user(account.id) if key.id != removed]
    passkeys, security_keys = ([key.rp_id for key in keys if key.kind is kind] for kind in (PasskeyKind.PASSKEY, PasskeyKind.SECURITY_KEY))
    return without_lost_keys(ports, account, KeyHosts(passkeys, security_keys, await read.passkeys.rp_id()))


def of_passkey(ports: Ports, passkey: Passkey) -> RelyingParty:
    """Return the relying party that the passkey was made for."""
    return _party(ports, passkey.rp_id)


def choose_id(policy: Policy, base_url: str, stored: str | None) -> str | None:
    """Return the RP ID for new passkeys: the operator's, or the stored RP ID, or the base URL's host.

    None if the host is an IP address.

    Passkeys for `localhost` do not bind an installation that has got a domain: no browser would ask
    `localhost` for the file that lets the domain use them.
    """
    host = _host_of(base_url)
    if _is_address(host):
        return None
    return policy.passkey_rp_id or (host if stored in (None, LOCALHOST) else stored)


def has_host(ports: Ports) -> bool:
    """Return whether passkeys work at the base URL. They do not at an IP address."""
    return not _is_address(_host_of(ports.tokens.issuer))


def web_origins(policy: Policy, base_url: str) -> Sequence[str]:
    """Return the origins of our own pages and the frontend, as browsers write them."""
    return _origins_of(base_url, policy.frontend_url)


@lru_cache(8)  # of the settings, which do not change; every sign-in with a passkey asks for them
def _origins_of(*urls: str | None) -> tuple[str, ...]:
    origins = (uris.origin_of(url) for url in urls if url is not None)
    return tuple(dict.fromkeys(origin for origin in origins if origin))  # a text that is not a URL has none


def foreign_origins(policy: Policy, base_url: str, rp_id: str) -> Sequence[str]:
    """Return our origins that may use the RP ID only if another host lists them (WebAuthn section 5.11)."""
    if _host_of(base_url) == rp_id:
        return []  # we list them ourselves
    return [origin for origin in web_origins(policy, base_url) if not f".{_host_of(origin)}".endswith(f".{rp_id}")]


async def find_foreign_host(ports: Ports) -> str | None:
    """Return a warning for the operator if browsers use passkeys here only because a file on another host allows it."""
    async with ports.storage.reading() as read:
        rp_id = choose_id(ports.policy, ports.tokens.issuer, await read.passkeys.rp_id())
    origins = [] if rp_id is None else foreign_origins(ports.policy, ports.tokens.issuer, rp_id)
    if not origins:
        return None
    return f"Passkeys are for {rp_id}. They work at {' and '.join(origins)} only if https://{rp_id}{RELATED_ORIGINS_PATH} lists these."


def _party(ports: Ports, rp_id: str) -> RelyingParty:
    apps = ports.policy.native_apps
    origins = {*web_origins(ports.policy, ports.tokens.issuer)}
    origins.update(origin for app in apps if isinstance(app, AndroidApp) for origin in app.origins)
    if any(isinstance(app, IosApp) for app in apps):
        origins.add(f"https://{rp_id}")  # iOS reports the host of the passkey, not the application
    return RelyingParty(rp_id, frozenset(origins))


def _host_of(url: str) -> str:
    return urlsplit(uris.canonicalize(url)).hostname or ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
