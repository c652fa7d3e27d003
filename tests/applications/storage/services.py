"""Services, and functions that store and load them."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from adapters.postgres.storage import Postgres
from core.applications.model.services import Service, ServiceType
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST, OFFICESUITE, WEBSUITE
from core.kernel.values import Slug, digest
from tests.support.rows import DAY, HOUR, NOW


def service(org: UUID, slug: str = "shop", **changes: Any) -> Service:
    default = Service(
        id=uuid4(),
        org_id=org,
        slug=Slug(slug),
        name="Shop",
        service_type=ServiceType.WEB,
        client_id=uuid4(),
        credential_id=uuid4(),
        client_secret_hash=digest("secret"),
        connection_scopes={CODEHOST: ("read:user", "user:email"), WEBSUITE: ("openid",), OFFICESUITE: ()},
        redirect_uris=("https://b.example.com/", "https://a.example.com/"),
        device_activation_uri="https://example.com/device",
        subscription_count=0,
        created_at=NOW - DAY,
        updated_at=NOW - HOUR,
        pkce_without_secret=True,
        email_sign_in=True,
        is_trusted=True,
        id_token_claims=False,
        post_logout_redirect_uris=("https://b.example.com/bye", "https://a.example.com/bye"),
        backchannel_logout_uri="https://b.example.com/logout",
        jwks=({"kty": "OKP", "crv": "Ed25519", "x": "a", "kid": "1"},),
        accepts_token_endpoint_audience=True,
        access_token_seconds=60,
        refresh_token_seconds=600,
        enterprise=True,
        required_acr="mfa",
        require_pushed_authorization_requests=True,
        dpop_bound_access_tokens=True,
        initiate_login_uri="https://b.example.com/login",
        logo_url="https://sso.example/images/key/256",
        always_ask_consent=True,
        logo_uri="https://b.example.com/logo.png",
        policy_uri="https://b.example.com/privacy",
        tos_uri="https://b.example.com/terms",
        former_secret_hash=digest("former"),
        former_secret_expires_at=NOW + HOUR,
    )
    return replace(default, **changes)


async def put(storage: Postgres, *services: Service) -> Service:
    async with storage.transaction(by=SYSTEM) as tx:
        for service in services:
            await tx.services.add(service)
    return services[0]


async def by_id(storage: Postgres, service: Service) -> Service | None:
    async with storage.reading() as read:
        return await read.services.by_id(service.org_id, service.id)
