"""Clients that register themselves (RFC 7591).

With a registration token of an organization, the client becomes one of its applications. Without one nothing is stored: the
client id is a sealed copy of the checked metadata (RFC 7591 appendix A.5.2), until a first consent stores the client like
one with a document (docs/adr/0043).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from core.applications import services
from core.applications.model import users
from core.applications.model.services import CreatedService, ServiceSlugTaken
from core.federation.oauth.model import client_registration
from core.federation.oauth.model.client_documents import ClientDocument
from core.kernel import errors
from core.kernel.causes import Caller
from core.kernel.values import Slug, new_id
from core.programs import registration_tokens
from ports import Ports, crypto


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredClient:
    """A client that has registered itself. `registered_at` is in UTC."""

    client_id: str
    registration: client_registration.Registration
    registered_at: datetime
    client_secret: str | None = field(default=None, repr=False)  # it cannot be read again


async def register(ports: Ports, caller: Caller, members: Mapping[str, Any], token: str | None) -> RegisteredClient:
    """Register the client with these metadata, as an application of an organization if it has a registration token.

    Raises: the errors of `parse_registration`; without a token RegistrationClosed; with one the errors of
    `registration_tokens.authenticate` and `registration_tokens.use`.
    """
    return _seal(ports, members) if token is None else await _register_application(ports, caller, members, token)


def _seal(ports: Ports, members: Mapping[str, Any]) -> RegisteredClient:
    """Return a client with a sealed copy of its metadata as its id. Nothing is stored."""
    if not ports.policy.client_registration:
        raise client_registration.RegistrationClosed
    registration, now = client_registration.parse_registration(members, ports.policy), ports.clock.now()
    sealed = ports.vault.seal(client_registration.to_payload(registration.metadata, now), _context(ports))
    client_id = client_registration.PREFIX + urlsafe_b64encode(sealed).rstrip(b"=").decode()
    if len(client_id) > client_registration.MAX_LENGTH:
        raise client_registration.RegistrationTooLong
    return RegisteredClient(client_id=client_id, registration=registration, registered_at=now)


async def _register_application(ports: Ports, caller: Caller, members: Mapping[str, Any], token: str) -> RegisteredClient:
    client = await registration_tokens.authenticate(ports, caller, token)
    registration = client_registration.parse_registration(members, ports.policy, with_token=True)
    name = registration.metadata.name

    async def create(slug: Slug) -> CreatedService:
        try:
            # Not `assigned`: such applications need different names.
            access = users.AccessSettings(policy=users.AccessPolicy.MEMBERS)
            draft = services.draft(ports, client.org_id, slug, name, registration.service_type, registration.settings, access)
        except errors.Invalid as refusal:  # for example a key that is too short
            raise client_registration.RegistrationInvalid(refusal.message) from None
        service = replace(draft.service, registered_with=client.name)
        return await registration_tokens.use(ports, client, replace(draft, service=service))

    slug = next(Slug.suggest(name, "application"))
    try:
        created = await create(slug)
    except ServiceSlugTaken:  # each copy of a program registers with the same name
        created = await create(Slug(f"{slug[:50]}-{new_id().hex[-12:]}"))
    secret = created.client_secret if registration.method in client_registration.SECRET_METHODS else None
    return RegisteredClient(
        client_id=created.service.client_name,
        registration=registration,
        registered_at=created.service.created_at,
        client_secret=secret,
    )


def _context(ports: Ports) -> crypto.SecretContext:
    """Return the purpose of the seal, with the issuer: the keys of two installations can be the same."""
    return crypto.SecretContext("registered_clients", ports.tokens.issuer, "client_id")


def open_sealed(ports: Ports, client_id: str) -> ClientDocument:
    """Return the metadata in a sealed client id, which may have expired. Raises: SealedClientInvalid."""
    if not client_registration.has_sealed_form(client_id):
        raise client_registration.SealedClientInvalid
    text = client_id.removeprefix(client_registration.PREFIX)
    try:
        sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        payload = ports.vault.open(sealed, _context(ports))
    except (ValueError, crypto.SealBroken):
        raise client_registration.SealedClientInvalid from None
    if urlsafe_b64encode(sealed).rstrip(b"=").decode() != text:  # one client has one name
        raise client_registration.SealedClientInvalid
    return client_registration.from_payload(client_id, payload) or errors.refuse(client_registration.SealedClientInvalid)


def open_new(ports: Ports, client_id: str) -> ClientDocument:
    """Return the metadata in the sealed client id of a client that is not stored. Raises: SealedClientInvalid."""
    document = open_sealed(ports, client_id)
    if ports.clock.now() >= document.fetched_at + client_registration.VALID_FOR:
        raise client_registration.SealedClientExpired
    if not ports.policy.client_registration:
        raise client_registration.SealedClientsClosed
    return document
