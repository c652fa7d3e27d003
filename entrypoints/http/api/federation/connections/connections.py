"""The API for an organization's connections: its own identity providers."""

from dataclasses import replace
from typing import Any, Self
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.federation.connections import connections
from core.federation.connections.connections import ConnectionDraft
from core.federation.connections.model.connections import (
    RESERVED_SLUGS,
    ConnectionProtocolMissing,
    ConnectionState,
    MissingPart,
    NoConnectionChanges,
)
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.health import ConnectionHealth, HealthState
from core.federation.connections.model.logins import BACK_FROM_LOGOUT
from core.federation.connections.model.presets import PRESETS, first_settings
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.federation.saml.model import configuration
from core.kernel import values
from core.kernel.connections import ConnectionProtocol
from core.kernel.page_paths import connection_endpoint_path, connection_start_path
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.settings import (
    ClaimMappingRequest,
    ClaimMappingResponse,
    OidcSettingsRequest,
    OidcSettingsResponse,
    SamlSettingsRequest,
    SamlSettingsResponse,
)
from entrypoints.http.base.context import app_context


class ConnectionHealthResponse(kit.ResponseModel):
    """A connection's last refresh, and its result. An active connection is refreshed once a day, and soon after a failure or a change."""

    health: HealthState = Field(
        description="`failing`: users cannot sign in. `unknown`: the connection is not active, or was not refreshed yet."
    )
    problem: str | None = Field(description="The kind of the problem, or null.", examples=["certificate_expires"])
    message: str | None = Field(description="The problem, and what to do.")
    refreshed_at: kit.Timestamp | None = Field(description="When the metadata and the keys of the identity provider were last read.")
    certificate_end: kit.Timestamp | None = Field(
        description="When the first certificate that users need expires: the identity provider's last active certificate, or ours."
    )

    @classmethod
    def of_last_refresh(cls, health: ConnectionHealth | None) -> Self:
        """Return a connection's health. None: it is not active, or was not refreshed yet."""
        if health is not None:
            return cls.of(health)
        return cls(health=HealthState.UNKNOWN, problem=None, message=None, refreshed_at=None, certificate_end=None)


routes = Blueprint("organization_connections", __name__)

PATH = "/api/organizations/<org_slug>/connections"
CONNECTION = f"{PATH}/<connection_slug>"


@kit.before_body
async def existing_connection(connection_slug: str, **_: object) -> None:
    """Answer 404 if there is no connection `<connection_slug>`."""
    await connections.find(kit.ports(), kit.acting(), connection_slug)


class ConnectionRequest(kit.RequestModel):
    """A new connection, with the settings for its protocol."""

    slug: kit.Text = Field(description="The name of the connection in URLs. It never changes.", examples=["okta"])
    name: kit.Name = Field(description="The name of the connection, which users see.", examples=["Okta"])
    preset: kit.Text | None = Field(
        None,
        description=f"The product, or null: {', '.join(f'`{name}`' for name in PRESETS)}. Or `test` for the test provider, which cannot be "
        "activated.",
    )
    oidc: OidcSettingsRequest | None = Field(None, description="The settings with OpenID Connect. The preset has the default settings.")
    saml: SamlSettingsRequest | None = Field(None, description="The settings with SAML. The preset has the default settings.")
    mapping: ClaimMappingRequest | None = Field(None, description="The claims to read. The default is the mapping of the preset.")

    def to_draft(self, settings: OidcSettings | SamlSettings) -> ConnectionDraft:
        """Return the new connection with these settings."""
        mapping = None if self.mapping is None else self.mapping.build()
        slug = values.Slug.parse(self.slug, RESERVED_SLUGS)
        return ConnectionDraft(slug=slug, name=self.name, preset=self.preset, settings=settings, mapping=mapping)


class ConnectionUpdateRequest(kit.RequestModel):
    """The changes to a connection. Fields that are left out stay as they are."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name = kit.optional(description="The new name.", examples=["Okta"])
    oidc: OidcSettingsRequest = kit.optional(description="All settings of a connection with OpenID Connect.")
    saml: SamlSettingsRequest = kit.optional(description="All settings of a connection with SAML.")
    mapping: ClaimMappingRequest = kit.optional(description="All claims to read.")


class ConnectionActivationRequest(kit.RequestModel):
    """The connection that you looked at."""

    version: kit.Text | None = Field(
        None,
        description="The `version` that you looked at: 409 if the connection has changed since. Without a version, 409 if another caller "
        "has changed the connection since its last activation.",
    )


class ClientSecretRequest(kit.RequestModel):
    """The client secret for the identity provider."""

    client_secret: kit.Text = Field(description="The client secret that the identity provider has created.", min_length=1)
    issuer: kit.Text | None = Field(
        None,
        description="The issuer that created the secret: 409 if the connection has another issuer. Without an issuer, 409 if another "
        "caller has changed a connection that was never active.",
    )


class ProviderCertificateRequest(kit.RequestModel):
    """A certificate with which the identity provider signs."""

    certificate: str = Field(
        description="The X.509 certificate: PEM, or its base64 alone, with an RSA key of 2048 to 8192 bits.",
        max_length=configuration.MAX_CERTIFICATE_LENGTH,
    )


class ConnectionResponse(kit.ResponseModel):
    """The organization's connection to its identity provider."""

    id: UUID = Field(description="The id of the connection.")
    slug: str = Field(description="The name of the connection in URLs.", examples=["okta"])
    name: str = Field(description="The name of the connection.", examples=["Okta"])
    protocol: ConnectionProtocol = Field(description="The protocol: `oidc` or `saml`.")
    preset: str | None = Field(description="The product, or null.")
    state: ConnectionState = Field(description="Users sign in through an `active` connection only. A `draft` was never active.")
    created_at: kit.Timestamp = Field(description="When the connection was created.")
    health: ConnectionHealthResponse = Field(description="Whether users can sign in through it, as far as we know.")


class ConnectionListResponse(kit.ResponseModel):
    """The organization's connections."""

    connections: list[ConnectionResponse] = Field(description="The connections, ordered by slug. There are at most 20.")


class OwnEndpointsResponse(kit.ResponseModel):
    """The address where users sign in, and the values to copy into the identity provider. null: the protocol has none."""

    start_url: str = Field(description="Where users start a sign-in through the connection.")
    redirect_uri: str | None = Field(description="The redirect URI, with OpenID Connect.")
    jwks_uri: str | None = Field(description="The address of Gatehouse's public keys for this connection, with OpenID Connect.")
    post_logout_redirect_uri: str | None = Field(description="Where the provider returns users after a sign-out, with OpenID Connect.")
    backchannel_logout_uri: str | None = Field(description="Where the provider reports sign-outs, with OpenID Connect.")
    initiate_login_uri: str | None = Field(description="Where the provider initiates a sign-in, with OpenID Connect.")
    entity_id: str | None = Field(description="The entity id of Gatehouse for this connection, with SAML.")
    acs_url: str | None = Field(description="The address for SAML responses (ACS).")
    slo_url: str | None = Field(description="The address for SAML single logout (SLO).")
    metadata_url: str | None = Field(description="The address of Gatehouse's metadata for this connection, with SAML.")


class ConnectionKeyResponse(kit.ResponseModel):
    """Gatehouse's key for a connection. The private key is never returned."""

    state: configuration.CertificateState = Field(description="Whether the key is used, or will be, or was.")
    certificate: str = Field(description="The X.509 certificate of the key in PEM.")
    valid_until: kit.Timestamp = Field(description="The end of its validity.")
    created_at: kit.Timestamp = Field(description="When the key was created.")


class ProviderCertificateResponse(kit.ResponseModel):
    """A certificate with which the identity provider signs."""

    fingerprint: str = Field(description="Its SHA-256 fingerprint in hexadecimal.")
    certificate: str = Field(description="The certificate in PEM.")
    valid_from: kit.Timestamp = Field(description="The start of its validity.")
    valid_until: kit.Timestamp = Field(description="The end of its validity.")
    added_at: kit.Timestamp = Field(description="When it was added.")


class ConnectionDetailsResponse(ConnectionResponse):
    """A connection with its settings, keys and certificates."""

    version: str = Field(description="It changes with the settings, the mapping and the certificates. Send it to activate the connection.")
    oidc: OidcSettingsResponse | None = Field(description="The settings with OpenID Connect, or null.")
    saml: SamlSettingsResponse | None = Field(description="The settings with SAML, or null.")
    mapping: ClaimMappingResponse = Field(description="The claims that Gatehouse reads.")
    client_secret_set_at: kit.Timestamp | None = Field(description="When the client secret was set, or null. It is never returned.")
    missing: list[MissingPart] = Field(description="What the connection still needs before users can sign in through it.")
    endpoints: OwnEndpointsResponse = Field(description="The address where users sign in, and the values for the identity provider.")
    keys: list[ConnectionKeyResponse] = Field(description="Gatehouse's keys: the active key, the next key, the previous key.")
    certificates: list[ProviderCertificateResponse] = Field(description="The certificates of the identity provider, oldest first.")


def to_details(details: ConnectionDetails) -> ConnectionDetailsResponse:
    """Return the API's answer about a connection."""
    connection = details.connection
    settings = connection.settings
    return ConnectionDetailsResponse.of(
        connection,
        version=details.version,
        health=ConnectionHealthResponse.of_last_refresh(details.health),
        oidc=settings if isinstance(settings, OidcSettings) else None,
        saml=settings if isinstance(settings, SamlSettings) else None,
        missing=list(details.missing),
        endpoints=own_endpoints(connection.id, connection.protocol),
        keys=[_to_key(state, key) for state, key in details.keys.items()],
        certificates=ProviderCertificateResponse.list_of(details.certificates),
    )


def own_endpoints(connection_id: UUID, protocol: ConnectionProtocol) -> OwnEndpointsResponse:
    """Return the address where users sign in, and the values to copy into the identity provider."""

    def url(of: ConnectionProtocol, endpoint: str = "") -> str | None:
        return f"{app_context().base_url}{connection_endpoint_path(connection_id, endpoint)}" if of is protocol else None

    return OwnEndpointsResponse(
        start_url=app_context().base_url + connection_start_path(connection_id),
        redirect_uri=url(ConnectionProtocol.OIDC, "callback"),
        jwks_uri=url(ConnectionProtocol.OIDC, "jwks.json"),
        post_logout_redirect_uri=url(ConnectionProtocol.OIDC, BACK_FROM_LOGOUT),
        backchannel_logout_uri=url(ConnectionProtocol.OIDC, "backchannel-logout"),
        initiate_login_uri=url(ConnectionProtocol.OIDC, "initiate"),
        entity_id=url(ConnectionProtocol.SAML),
        acs_url=url(ConnectionProtocol.SAML, "acs"),
        slo_url=url(ConnectionProtocol.SAML, "slo"),
        metadata_url=url(ConnectionProtocol.SAML, "metadata"),
    )


def _to_key(state: configuration.CertificateState, key: configuration.SamlCertificate) -> ConnectionKeyResponse:
    return ConnectionKeyResponse.of(key, state=state)


@routes.get(PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_connections(org_slug: str) -> ConnectionListResponse:
    """List the organization's connections.

    A connection is the organization's identity provider, such as its Okta or Entra ID.
    """
    health = await connections.list_health(kit.ports(), kit.acting())
    return ConnectionListResponse(
        connections=[
            ConnectionResponse.of(each, health=ConnectionHealthResponse.of_last_refresh(health.get(each.id)))
            for each in await connections.list_own(kit.ports(), kit.acting())
        ]
    )


@routes.post(PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.returns(201)
async def create(org_slug: str, data: ConnectionRequest) -> ConnectionDetailsResponse:
    """Create a connection.

    It is a draft. Copy the values in `endpoints` into the identity provider, set the missing values, call `POST …/check`, and activate it.
    """
    if (data.oidc is None) == (data.saml is None):
        raise ConnectionProtocolMissing
    sent: OidcSettingsRequest | SamlSettingsRequest = data.oidc or data.saml  # type: ignore[assignment]
    built = sent.build()
    chosen = {name: getattr(built, name) for name in sent.model_fields_set}
    settings = replace(first_settings(data.preset, built.protocol), **chosen)
    return to_details(ConnectionDetails(await connections.create(kit.ports(), kit.acting(), data.to_draft(settings)), {}, ()))


@routes.get(CONNECTION)
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def get(org_slug: str, connection_slug: str) -> ConnectionDetailsResponse:
    """Get a connection with its settings, keys and certificates.

    The client secret and private keys are never returned.
    """
    return to_details(await connections.find(kit.ports(), kit.acting(), connection_slug))


@routes.patch(CONNECTION)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_connection
@kit.refuses(409)
async def update(org_slug: str, connection_slug: str, data: ConnectionUpdateRequest) -> ConnectionDetailsResponse:
    """Change a connection.

    Settings and mapping are replaced as a whole. A new issuer removes the client secret: set the new issuer's secret. 409 for settings of
    the wrong protocol, and for a new issuer, entity id or subject after the first activation: create another connection instead. To change
    an active connection, except for its name, the caller needs all of an admin's rights. The identity provider is not asked: `POST …/check`
    says whether it accepts the new settings.
    """
    changes: dict[str, Any] = values.provided(name=data.name, mapping=data.mapping)
    sent = [*values.provided(oidc=data.oidc, saml=data.saml).values()]
    if len(sent) > 1:
        raise ConnectionProtocolMissing
    if sent:
        changes["settings"] = sent[0].build()
    if not changes:
        raise NoConnectionChanges
    if "mapping" in changes:
        changes["mapping"] = changes["mapping"].build()
    await connections.change(kit.ports(), kit.acting(), connection_slug, **changes)
    return to_details(await connections.find(kit.ports(), kit.acting(), connection_slug))


@routes.delete(CONNECTION)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The connection is removed."})
async def remove(org_slug: str, connection_slug: str) -> None:
    """Remove a connection with its keys and certificates.

    The sessions end for users who signed in through it. A session that also has the user's own sign-in goes on with that sign-in. 409: a
    sign-in policy requires the connection, or domains lead to it.
    """
    await connections.remove(kit.ports(), kit.acting(), connection_slug)


@routes.post(f"{CONNECTION}/activate")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_connection
@kit.refuses(409)
async def activate(org_slug: str, connection_slug: str, data: ConnectionActivationRequest) -> ConnectionDetailsResponse:
    """Activate a connection.

    Users sign in through it from now on, so the caller needs all of an admin's rights. Its issuer, entity id and subject are fixed
    afterwards. Send the `version` of the connection that you looked at: another member could change it before you activate it. 400 names
    the values that are missing. 409: the connection has changed since, or another caller changed it after its last activation and you sent
    no `version`.
    """
    await connections.activate(kit.ports(), kit.acting(), connection_slug, data.version)
    return to_details(await connections.find(kit.ports(), kit.acting(), connection_slug))


@routes.post(f"{CONNECTION}/deactivate")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
async def deactivate(org_slug: str, connection_slug: str) -> ConnectionDetailsResponse:
    """Deactivate a connection.

    No user signs in through it from now on. Sessions end for users who did, as when it is removed. It can be activated again. 409: a
    sign-in policy requires the connection.
    """
    await connections.deactivate(kit.ports(), kit.acting(), connection_slug)
    return to_details(await connections.find(kit.ports(), kit.acting(), connection_slug))


@routes.put(f"{CONNECTION}/client-secret")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_connection
@kit.refuses(409)
@kit.describes({204: "The secret is stored."})
async def set_client_secret(org_slug: str, connection_slug: str, data: ClientSecretRequest) -> None:
    """Set a connection's client secret.

    It replaces the earlier secret. It is stored encrypted, and never returned. Changing the issuer removes it. `POST …/check` says whether
    the identity provider accepts it.
    """
    await connections.put_client_secret(kit.ports(), kit.acting(), connection_slug, data.client_secret, data.issuer)


@routes.post(f"{CONNECTION}/keys")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.returns(201)
async def create_key(org_slug: str, connection_slug: str) -> ConnectionKeyResponse:
    """Create a Gatehouse key for a connection.

    With OpenID Connect, Gatehouse authenticates with it at the provider. With SAML, it signs requests and decrypts assertions. The first
    key is active at once. A later key is the next key: give its certificate to the identity provider, then activate it.
    """
    key, state = await connections.create_key(kit.ports(), kit.acting(), connection_slug)
    return _to_key(state, key)


@routes.post(f"{CONNECTION}/keys/activate")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
async def activate_key(org_slug: str, connection_slug: str) -> ConnectionKeyResponse:
    """Use a connection's next key from now on.

    The previous key still decrypts assertions for 7 days. 404 if there is no next key.
    """
    return _to_key(configuration.CertificateState.ACTIVE, await connections.activate_key(kit.ports(), kit.acting(), connection_slug))


@routes.post(f"{CONNECTION}/certificates")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_connection
@kit.refuses(409)
@kit.returns(201)
async def add_certificate(org_slug: str, connection_slug: str, data: ProviderCertificateRequest) -> ProviderCertificateResponse:
    """Trust a certificate from the identity provider.

    Its signatures are accepted beside the present certificates' signatures. A connection can have 8 certificates. If the connection is
    active, the caller needs all of an admin's rights.
    """
    return ProviderCertificateResponse.of(await connections.add_certificate(kit.ports(), kit.acting(), connection_slug, data.certificate))


@routes.delete(f"{CONNECTION}/certificates/<fingerprint>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The certificate is removed.", 400: "It is the last one of an active connection."})
async def remove_certificate(org_slug: str, connection_slug: str, fingerprint: str) -> None:
    """Trust the identity provider's certificate no longer."""
    await connections.remove_certificate(kit.ports(), kit.acting(), connection_slug, fingerprint)
