"""A fake server with several OpenID providers below paths of their own, with all possible failures.

joserfc signs their tokens and verifies our assertions. Like a provider, it checks client, redirect URI, PKCE, and that a code works once.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from joserfc import jwk, jwt

from core.kernel.values import new_id
from tests.fakes.http_server import TRAP, Answer, FakeServer, ReceivedRequest, in_json
from tests.fakes.provider import key, sign

CLIENT_ID: Final = "gatehouse:at/the provider"  # with characters that HTTP Basic must encode
SECRET: Final = "a secret + with: signs"
DISCOVERY: Final = "/.well-known/openid-configuration"


@dataclass(slots=True, kw_only=True)
class FakeIssuer:
    """A provider. Its user agrees, unless `refuses` names an error."""

    url: str
    now: Callable[[], float]
    subject: str = "4711"
    email: str | None = "ada@example.com"
    refuses: str | None = None
    sends_iss: bool = True  # RFC 9207
    clients: dict[str, str] = field(default_factory=lambda: {CLIENT_ID: SECRET})
    client_keys: jwk.KeySet | None = None  # that verify our assertions
    # Failures: responses by endpoint, changed members in the metadata, tokens and userinfo; None leaves a member out.
    answers: dict[str, Answer] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] = sign
    published: list[dict[str, Any]] = field(default_factory=lambda: [_public("RSA", "first"), _public("EC", "curve")])
    counted: Counter[str] = field(default_factory=Counter)
    received: list[ReceivedRequest] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    access_tokens: set[str] = field(default_factory=set)
    assertions: set[str] = field(default_factory=set)  # used codes

    def authorize(self, address: str) -> dict[str, str]:
        """Send an authorization request as a browser does. Return the answer's parameters."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize", address
        query = {name: value for name, [value] in parse_qs(parts.query, strict_parsing=True).items()}
        assert query["client_id"] in self.clients
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        assert "openid" in query["scope"].split()
        assert all(len(query[name]) >= 43 for name in ("state", "nonce")), "128 bits and more"
        answer = {"state": query["state"]} | ({"iss": self.url} if self.sends_iss else {})
        if self.refuses is not None:
            return answer | {"error": self.refuses, "error_description": TRAP}
        code = secrets.token_urlsafe()
        self.codes[code] = query
        return answer | {"code": code}

    def logout_token(self, typ: str | None = "logout+jwt", **changes: Any) -> str:
        now = int(self.now())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 120, "jti": str(new_id()), "sub": self.subject, "sid": "s1"}
        event = "http://schemas.openid.net/event/backchannel-logout"
        changed = {**claims, "events": {event: {}}, **changes}
        header = {} if typ is None else {"typ": typ}
        return sign({name: value for name, value in changed.items() if value is not None}, **header)

    def reply(self, request: ReceivedRequest, endpoint: str) -> Answer:
        self.counted[endpoint] += 1
        self.received.append(request)
        if endpoint in self.answers:
            return self.answers[endpoint]
        match endpoint:
            case "/.well-known/openid-configuration":
                return in_json(_changed(self._metadata(), self.metadata))
            case "/authorize":
                answer = self.authorize(f"{self.url}/authorize?{urlencode(request.sent)}")
                return Answer(302, b"", {"Location": f"{request.sent['redirect_uri']}?{urlencode(answer)}"})
            case "/keys":
                return in_json({"keys": self.published})
            case "/token":
                return self._token(request)
            case "/userinfo" if request.headers.get("authorization", "").removeprefix("Bearer ") in self.access_tokens:
                return in_json(_changed({"sub": self.subject, "name": "Ada Lovelace", "groups": ["staff"]}, self.userinfo))
        return in_json({"error": "invalid_token", "error_description": TRAP}, 401)

    def _metadata(self) -> dict[str, Any]:
        names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo", "end_session": "logout"}
        return {
            "issuer": self.url,
            **{f"{name}_endpoint": f"{self.url}/{path}" for name, path in names.items()},
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code", "id_token"],
            "id_token_signing_alg_values_supported": ["RS256", "PS256", "ES256", "ES384", "HS256", "none"],
            "authorization_response_iss_parameter_supported": self.sends_iss,
        }

    def _token(self, request: ReceivedRequest) -> Answer:
        form = request.sent
        if not self._is_client(request):
            return in_json({"error": "invalid_client", "error_description": TRAP}, 401)
        query = self.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
        if query is None or query["redirect_uri"] != form.get("redirect_uri") or query["code_challenge"] != challenge:
            return in_json({"error": "invalid_grant", "error_description": TRAP}, 400)
        now = int(self.now())
        claims = {"iss": self.url, "aud": CLIENT_ID, "sub": self.subject, "nonce": query["nonce"], "iat": now, "exp": now + 300}
        claims |= {} if self.email is None else {"email": self.email}
        claims |= {"auth_time": now} if "max_age" in query else {}
        access_token = secrets.token_urlsafe()
        self.access_tokens.add(access_token)
        answer = {"access_token": access_token, "token_type": "Bearer", "id_token": self.sign(_changed(claims, self.claims))}
        return in_json(_changed(answer, self.tokens))

    def _is_client(self, request: ReceivedRequest) -> bool:
        form, basic = request.sent, request.headers.get("authorization", "")
        if basic:
            name, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            return self.clients.get(unquote_plus(name)) == unquote_plus(secret)
        if "client_assertion" in form:
            assert self.client_keys is not None
            token = jwt.decode(form["client_assertion"], self.client_keys, algorithms=["RS256"])
            claims = jwt.JWTClaimsRegistry(
                int(self.now()),
                iss={"essential": True, "value": CLIENT_ID},
                sub={"essential": True, "value": CLIENT_ID},
                aud={"essential": True, "value": f"{self.url}/token"},
                exp={"essential": True},
                jti={"essential": True},
            )
            claims.validate(token.claims)
            is_new = token.claims["jti"] not in self.assertions
            self.assertions.add(token.claims["jti"])
            return is_new and form.get("client_id") == CLIENT_ID
        return self.clients.get(form.get("client_id", "")) == form.get("client_secret")


class OpenIdIssuers(FakeServer):
    """The providers' server. The token endpoints wait for the gate."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(now=now)
        self.issuers: dict[str, FakeIssuer] = {}
        self.waiting: Counter[str] = Counter()  # requests at the gate

    def add(self, name: str, **values: Any) -> FakeIssuer:
        issuer = self.issuers[name] = FakeIssuer(url=f"{self.address}/{name}", now=self.now, **values)
        return issuer

    def _reply(self, request: ReceivedRequest) -> Answer:
        name, _, endpoint = request.path.removeprefix("/").partition("/")
        if endpoint == "token" and self.gate is not None:
            with self._lock:
                self.waiting[name] += 1
            self.gate.wait(10)
        with self._lock:
            issuer = self.issuers.get(name)
            return in_json({"error": TRAP}, 404) if issuer is None else issuer.reply(request, f"/{endpoint}")


def _public(kind: str, kid: str) -> dict[str, Any]:
    return dict(key(kind).as_dict(private=False)) | {"kid": kid}


def _changed(members: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**members, **changes}.items() if value is not None}


def as_hmac(claims: dict[str, Any], secret: bytes, algorithm: str = "HS256") -> str:
    """Sign with a shared secret, such as the client secret, or the public key, which everyone knows."""
    header = _part(json.dumps({"alg": algorithm, "kid": "first"}).encode())
    signed = f"{header}.{_part(json.dumps(claims).encode())}"
    return f"{signed}.{_part(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
