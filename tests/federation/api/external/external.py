"""An external client: its document on its own server, and a user's browser."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import uuid4

import jwt

from core.federation.oauth.model.clients import ASSERTION_TYPE
from tests.fakes.client_documents import ClientServer
from tests.federation.api.client_authentication.keys import ClientKey, client_key
from tests.federation.api.relying import AUTHORIZE, FORM, PKCE, TOKEN, VERIFIER, redirect_parts
from tests.federation.api.resources.orders import ORDERS, READ
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Answer, Api, run_sql
from tests.support.tenants import Tenant

REGISTER: Final = "/auth/register"
LOCAL: Final = "http://127.0.0.1:33418/callback"


@dataclass(slots=True)
class ExternalParty:
    """A client that the organization has not registered."""

    tenant: Tenant
    browser: FakeBrowser
    server: ClientServer
    address: str
    redirect_uri: str
    credentials: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        return self.tenant.api

    @property
    def host(self) -> str:
        return f"client.example:{self.server.port}"

    def path(self, **changes: str | None) -> str:
        """Return its authorization request's path and query. Omit fields with the value None."""
        fields: dict[str, str | None] = {
            "client_id": self.address,
            "redirect_uri": self.redirect_uri,
            "response_type": "code",
            "scope": READ,
            "resource": ORDERS,
            "state": "af0ifjsldkj",
            **PKCE,
            **changes,
        }
        return f"{AUTHORIZE}?{urlencode({name: value for name, value in fields.items() if value is not None})}"

    async def open(self, **changes: str | None) -> Answer:
        return await self.browser.open(self.path(**changes))

    async def authorize(self, **changes: str | None) -> dict[str, str]:
        """Send a request, agree if a page asks, and return the response to the client."""
        answer = await self.open(**changes)
        if answer.status == 200:
            answer = await self.browser.answer(answer, "continue")
        assert answer.status == 303, answer.text
        return redirect_parts(answer)[1]

    async def code(self, **changes: str | None) -> str:
        fields = await self.authorize(**changes)
        assert "code" in fields, fields
        return fields["code"]

    async def post(self, path: str, **fields: str | None) -> Answer:
        sent = {"client_id": self.address, **self.credentials, **fields}
        raw = urlencode({name: value for name, value in sent.items() if value is not None}).encode()
        return await self.api.call("POST", path, raw=raw, headers=FORM)

    async def exchange(self, code: str, **changes: str | None) -> Answer:
        fields = {"code": code, "redirect_uri": self.redirect_uri, "code_verifier": VERIFIER, "resource": ORDERS}
        return await self.post(TOKEN, **{"grant_type": "authorization_code", **fields, **changes})

    async def tokens(self, **changes: str | None) -> dict[str, Any]:
        answer = await self.exchange(await self.code(**changes))
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def refresh(self, tokens: dict[str, Any], **changes: str | None) -> Answer:
        return await self.post(TOKEN, **{"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], **changes})

    async def set_policy(
        self, admit: str = "any", hosts: tuple[str, ...] = (), scopes: tuple[str, ...] | None = None, *, registration: bool = False
    ) -> None:
        """Set the policy for external clients at all API resources, without the core's rules."""
        await run_sql(
            self.tenant.pool,
            "update api_resources set external_admit = %s, external_hosts = %s, external_scopes = %s, external_registration = %s",
            admit,
            list(hosts),
            None if scopes is None else list(scopes),
            registration,
        )

    async def register(self, **metadata: Any) -> Answer:
        """Register the client by itself. Omit members with the value None."""
        members = {"client_name": "Assistant", "redirect_uris": [self.redirect_uri], **metadata}
        return await self.api.call("POST", REGISTER, {name: value for name, value in members.items() if value is not None})

    async def become_registered(self, **metadata: Any) -> None:
        """Use the client id from a new registration from now on."""
        answer = await self.register(**metadata)
        assert answer.status == 201, answer.text
        self.address = answer.json["client_id"]

    async def stored(self) -> list[tuple[Any, ...]]:
        """Return address, name and type of the stored external clients."""
        return await run_sql(
            self.tenant.pool, "select client_uri, name, service_type from services where client_uri is not null order by client_uri"
        )


def assertion(client: ExternalParty, key: ClientKey | None = None, **changes: Any) -> dict[str, str]:
    """Return the fields for a request that the client signs."""
    key, now = key or client_key(), client.tenant.ports.clock.now()
    claims = {"iss": client.address, "sub": client.address, "aud": BASE_URL, "jti": str(uuid4()), "exp": now + timedelta(minutes=5)}
    signed = jwt.encode({**claims, **changes}, key.private, key.algorithm, headers={"kid": key.kid})
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}
