"""A fake identity provider over HTTP: OAuth like `codehost`, or OpenID Connect, with all possible failures.

joserfc signs its tokens. Like a provider, it checks client, redirect URI, PKCE, and that a code
works once.
"""

import base64
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jws

from core.kernel.connections import (
    CODEHOST,
    OFFICESUITE,
    ConnectionSettings,
    ConnectionSlug,
    PlatformCredentials,
    ProviderClient,
    platform_connection,
)
from tests.fakes.http_server import TRAP, Answer, FakeServer, ReceivedRequest, in_form, in_json

CLIENT: Final = ProviderClient("gatehouse-at-the-provider", "a secret of the provider's")


def key(kind: str = "RSA", kid: str = "first") -> jwk.RSAKey | jwk.ECKey:
    """Return a signing key, always the same for a name, because generating a key takes 0.1 seconds."""
    return _made(kind, kid)


@cache
def _made(kind: str, kid: str) -> jwk.RSAKey | jwk.ECKey:
    if kind == "EC":
        return jwk.ECKey.generate_key("P-256", {"kid": kid, "use": "sig"})
    return jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


@dataclass(frozen=True, slots=True)
class Person:
    """A user at the provider. With None, `email_verified` is absent."""

    subject: str = "4711"
    email: str | None = "ada@example.com"
    email_verified: bool | None = True


@dataclass(frozen=True, slots=True)
class _Consent:
    query: dict[str, str]
    person: Person


class FakeProvider(FakeServer):
    """A provider with a single visitor, `person`, who agrees unless `refuses` names an error.

    The token endpoint waits for the gate.
    """

    def __init__(self, provider: ConnectionSlug, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(now=now)
        self.provider = provider
        self.person = Person()
        self.clients = {CLIENT.client_id: CLIENT.client_secret}
        self.refuses: str | None = None
        self.sends_iss = True  # RFC 9207
        self.signed_in_at: float | None = None  # the visitor signed in some time ago
        self.reauthenticates = True  # if the request asks for it
        self.sends_auth_time = True
        self.in_form = False  # the content type of the token endpoint
        self.token_type: str | None = "bearer"
        self.expires_in: int | None = 3600
        self.gives_refresh_token = True
        self.rotates = True  # refreshing replaces the refresh token
        self.scope: str | None = None
        self.requests: list[tuple[str, dict[str, str]]] = []  # path, and query or form
        self.headers: list[dict[str, str]] = []
        self.counted: Counter[str] = Counter()
        # Failures: responses by path, changed claims in ID tokens, and their signatures.
        self.answers: dict[str, Answer] = {}
        self.claims: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = sign
        self.published: list[dict[str, Any]] = [key().as_dict(private=False), key("EC").as_dict(private=False) | {"kid": "curve"}]
        self._codes: dict[str, _Consent] = {}
        self._tokens: dict[str, Person] = {}
        self._refresh_tokens: dict[str, Person] = {}

    @property
    def issuer(self) -> str:
        return self.address if self.provider != CODEHOST else f"{self.address}/login/oauth"

    def settings(self, **changes: Any) -> ConnectionSettings:
        """Return the operator's settings for this provider."""
        speaks_openid = self.provider != CODEHOST
        plain = ConnectionSettings(
            client_id=CLIENT.client_id,
            authorize_url=f"{self.address}/authorize?prompt=select",
            token_url=f"{self.address}/token",
            userinfo_url=f"{self.address}/user",
            emails_url="" if speaks_openid else f"{self.address}/user/emails",
            issuer=self.issuer if speaks_openid else "",
            jwks_url=f"{self.address}/keys" if speaks_openid else "",
            verifies_emails=self.provider != OFFICESUITE,
        )
        return replace(plain, **changes)

    def connection(self, client: ProviderClient | None = CLIENT, **changes: Any) -> PlatformCredentials:
        """Return this provider as a connection of the platform, with this client and changed settings."""
        client_id = None if client is None else client.client_id
        return PlatformCredentials(platform_connection(self.provider, self.settings(client_id=client_id, **changes)), client)

    def variables(self) -> dict[str, str]:
        """Return the settings as environment variables."""
        settings, prefix = self.settings(), f"SSO_{self.provider.upper()}_"
        names = ("authorize_url", "token_url", "userinfo_url", "emails_url", "issuer", "jwks_url")
        fields = {
            "CLIENT_ID": CLIENT.client_id,
            "CLIENT_SECRET": CLIENT.client_secret,
            **{name.upper(): getattr(settings, name) for name in names},
        }
        return {prefix + name: value for name, value in fields.items() if value}

    def authorize(self, address: str) -> str:
        """Open this address as a browser does. Return the redirect's URL."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.address}/authorize", address
        return self._authorize({name: value for name, [value] in parse_qs(parts.query, strict_parsing=True).items()})

    def _authorize(self, query: dict[str, str]) -> str:
        assert query["client_id"] in self.clients, query
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert len(query["state"]) >= 43, "128 bits and more"
        assert ("nonce" in query) == (self.provider != CODEHOST)
        back = {"state": query["state"]} | ({"iss": self.issuer} if self.sends_iss else {})
        if self.refuses is not None:
            back |= {"error": self.refuses, "error_description": TRAP}
        else:
            code = secrets.token_urlsafe()
            self._codes[code] = _Consent(query, self.person)
            back["code"] = code
        return f"{query['redirect_uri']}?{urlencode(back)}"

    # Over HTTP

    def _reply(self, request: ReceivedRequest) -> Answer:
        with self._lock:
            self.requests.append((request.path, request.sent))
            self.headers.append(request.headers)
            self.counted[request.path] += 1
        if request.path == "/token" and self.gate is not None:
            self.gate.wait(10)
        return self.answers.get(request.path) or self._answer(request)

    def _answer(self, request: ReceivedRequest) -> Answer:
        path, sent = request.path, request.sent
        if path == "/authorize":
            return Answer(302, b"", {"Location": self._authorize(sent)})
        if path == "/keys":
            return in_json({"keys": self.published})
        if path == "/token":
            with self._lock:
                return self._token(sent)
        person = self._tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if person is None:
            return in_json({"message": TRAP}, 401)
        if path == "/user/emails":
            return in_json(self._emails(person))
        if self.provider == CODEHOST:
            return in_json({"id": int(person.subject), "login": TRAP, "email": "public@example.com"})
        return in_json({"sub": person.subject, **_email_claims(person)})

    def _emails(self, person: Person) -> list[dict[str, Any]]:
        other = {"email": "other@example.com", "primary": False, "verified": True}
        if person.email is None:
            return [other]
        return [other, {"email": person.email, "primary": True, "verified": person.email_verified is True, "visibility": None}]

    def _token(self, form: dict[str, str]) -> Answer:
        if self.clients.get(form.get("client_id", "")) != form.get("client_secret"):
            return self._refused("invalid_client")
        if form["grant_type"] == "refresh_token":
            person = self._refresh_tokens.pop(form["refresh_token"], None)
            if person is None:
                return self._refused("invalid_grant")
            if not self.rotates:
                self._refresh_tokens[form["refresh_token"]] = person
            return self._give(person, {})
        consent = self._codes.pop(form.get("code", ""), None)
        if consent is None or consent.query["redirect_uri"] != form["redirect_uri"] or consent.query["client_id"] != form["client_id"]:
            return self._refused("invalid_grant")
        hashed = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(hashed).rstrip(b"=").decode() != consent.query["code_challenge"]:
            return self._refused("invalid_grant")
        return self._give(consent.person, self._id_token(consent, form["client_id"]), consent.query["scope"])

    def _give(self, person: Person, more: dict[str, str], scope: str = "") -> Answer:
        access_token, refresh_token = f"access-{secrets.token_urlsafe()}", f"refresh-{secrets.token_urlsafe()}"
        self._tokens[access_token] = person
        fields: dict[str, Any] = {"access_token": access_token, **more}
        if self.token_type is not None:
            fields["token_type"] = self.token_type
        if self.expires_in is not None:
            fields["expires_in"] = self.expires_in
        if self.gives_refresh_token and self.rotates:
            self._refresh_tokens[refresh_token] = person
            fields["refresh_token"] = refresh_token
        if self.scope is not None:
            fields["scope"] = self.scope
        elif self.provider == CODEHOST:
            fields["scope"] = scope.replace(" ", ",")
        return in_form(fields) if self.in_form else in_json(fields)

    def _id_token(self, consent: _Consent, client_id: str) -> dict[str, str]:
        if self.provider == CODEHOST:
            return {}
        now = int(self.now())
        claims = {
            "iss": self.issuer,
            "aud": client_id,
            "sub": consent.person.subject,
            "nonce": consent.query["nonce"],
            "iat": now,
            "exp": now + 300,
            **_email_claims(consent.person),
        }
        if self.sends_auth_time and "max_age" in consent.query:
            is_fresh = self.reauthenticates and consent.query.get("prompt") == "login"
            claims["auth_time"] = now if is_fresh or self.signed_in_at is None else int(self.signed_in_at)
        changed = {name: value for name, value in {**claims, **self.claims}.items() if value is not None}
        return {"id_token": self.sign(changed)}

    def _refused(self, error: str) -> Answer:
        """Return an error with status 200, as codehost does."""
        fields = {"error": error, "error_description": TRAP}
        return in_form(fields) if self.in_form else in_json(fields, 200 if self.provider == CODEHOST else 400)


def _email_claims(person: Person) -> dict[str, Any]:
    fields = {"email": person.email, "email_verified": person.email_verified}
    return {name: value for name, value in fields.items() if value is not None and person.email is not None}


def sign(claims: dict[str, Any], algorithm: str = "RS256", kid: str | None = "first", **header: Any) -> str:
    """Return an ID token, signed with the provider's key."""
    key_id = {} if kid is None else {"kid": kid}
    signing = key("EC") if algorithm == "ES256" else key("RSA", "first" if kid in (None, "first") else str(kid))
    return jws.serialize_compact({"alg": algorithm, **key_id, **header}, json.dumps(claims).encode(), signing, algorithms=[algorithm])
