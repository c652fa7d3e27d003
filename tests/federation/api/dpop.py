"""An application with a key. The tokens are bound to this key (RFC 9449)."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.federation.api.relying import TOKEN, VERIFIER, RelyingParty
from tests.support.builders import BASE_URL, Answer
from tests.support.dpop import ProofKey, proof_key


@dataclass(slots=True)
class BoundClient:
    """An application, its key, and the last nonce that it got."""

    party: RelyingParty
    key: ProofKey = field(default_factory=proof_key)
    nonce: str | None = None

    def proof(self, method: str, path: str, token: str | None = None, **changes: Any) -> str:
        now = self.party.tenant.ports.clock.now()
        return self.key.proof(method, BASE_URL + path, now, changes.pop("nonce", self.nonce), token, **changes)

    async def learn_nonce(self) -> None:
        """Get a nonce as a client does: send a request without a nonce."""
        answer = await self.party.post(TOKEN, {"DPoP": self.proof("POST", TOKEN)}, grant_type="refresh_token", refresh_token="x")
        assert answer.json["error"] == "use_dpop_nonce", answer.text
        self.nonce = answer.headers["DPoP-Nonce"]

    async def post(self, path: str, headers: dict[str, str] | None = None, /, **fields: str | None) -> Answer:
        """Send a form with a proof."""
        return await self.party.post(path, {"DPoP": self.proof("POST", path), **(headers or {})}, **fields)

    async def exchange(self, code: str, **changes: str | None) -> Answer:
        fields: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.party.redirect_uri,
            "client_id": str(self.party.client_id),
            "client_secret": self.party.secret,
            "code_verifier": None if self.party.secret else VERIFIER,
            **changes,
        }
        return await self.post(TOKEN, **fields)

    async def tokens(self, **changes: str | None) -> dict[str, Any]:
        if self.nonce is None:
            await self.learn_nonce()
        answer = await self.exchange(await self.party.code(**changes))
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def refresh(self, refresh_token: str, **changes: str | None) -> Answer:
        fields: dict[str, str | None] = {
            "grant_type": "refresh_token",
            "refresh_token": refresh_token,
            "client_id": str(self.party.client_id),
            "client_secret": self.party.secret,
            **changes,
        }
        return await self.post(TOKEN, **fields)

    async def get(self, path: str, token: str, *, query: dict[str, str] | None = None, method: str = "GET", **changes: Any) -> Answer:
        """Send a request with the token and a proof for its key."""
        headers = {"Authorization": f"DPoP {token}", "DPoP": self.proof(method, path, token, **changes)}
        return await self.party.api.call(method, f"{path}?{urlencode(query)}" if query else path, headers=headers)
