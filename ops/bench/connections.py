"""Sign-ins through an organization's connection: the identity providers' answers that browsers bring back."""

import asyncio
import base64
import json
import queue
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from http.client import HTTPMessage
from itertools import count
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID, uuid4

import jwt
import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from lxml import etree

from core.federation.saml.model.messages import decode_redirect
from ops.bench.filling import add_organization
from ops.bench.people import access_tokens, add_accounts, add_devices
from ops.bench.processes import MeasurementFailed
from ops.bench.requests import Following
from ops.bench.row import REQUESTS
from ops.bench.service import Service
from ops.bench.wrk import Request
from tests.support.saml import format_instant, identity_provider_metadata
from tests.support.saml.identity_provider import ENTITY_ID, PASSWORD, PERSISTENT, Content, new_identity_provider

_CONNECTIONS: Final = "/api/organizations/bench/connections"
_SSO_URL: Final = "https://idp.bench.example/sso"


def openid_callbacks(on: Service, number: int) -> Following:
    """Return requests with an OpenID provider's codes, every code for another user that the connection knows."""
    provider = _OpenIdProvider()
    oidc = {"issuer": provider.address, "client_id": "gatehouse"}
    connection = _Connection(on, {"oidc": oidc}, client_secret="a secret")  # noqa: S106
    subjects, codes = connection.add_people(number), map(str, count(1))

    def callback(subject: str) -> Request:
        sent, cookie = connection.begin()
        code = next(codes)
        provider.answers[code] = provider.tokens(subject, sent["nonce"])
        answer = urlencode({"code": code, "state": sent["state"], "iss": provider.address})
        return Request("GET", f"{connection.path}/callback?{answer}", more={"Cookie": cookie})

    return lambda count_: [callback(subjects.pop()) for _ in range(count_)]


def saml_responses(on: Service, number: int) -> Following:
    """Return two requests per SAML response, for users that the connection knows.

    The identity provider's site sends the first request, and our page sends the second request after it has the first answer. Before the
    measurement, every connection sends a first request. Every second request is followed by the first request for another response.
    """
    provider = trio.run(new_identity_provider)
    metadata = identity_provider_metadata(ENTITY_ID, sso={"HTTP-Redirect": _SSO_URL}, certificates=[provider.certificate.certificate])
    connection = _Connection(on, {"saml": {"entity_id": "", "sso_url": ""}}, metadata=metadata)
    subjects, audience = connection.add_people(number), on.address + connection.path
    acs_url = f"{audience}/acs"

    def respond(subject: str) -> tuple[Request, Request]:
        sent, cookie = connection.begin()
        request_id, now = etree.fromstring(decode_redirect(sent["SAMLRequest"])).get("ID"), datetime.now(UTC)
        content = Content(
            response_id=f"_r{request_id}",
            assertion_id=f"_a{request_id}",
            response_attributes=f'Destination="{acs_url}" InResponseTo="{request_id}"',
            issued=format_instant(now),
            name_id=f'<saml:NameID Format="{PERSISTENT}">{subject}</saml:NameID>',
            bearer=f'Recipient="{acs_url}" InResponseTo="{request_id}" NotOnOrAfter="{format_instant(now + timedelta(minutes=5))}"',
            conditions=f'NotOnOrAfter="{format_instant(now + timedelta(minutes=10))}"',
            restrictions=f"<saml:AudienceRestriction><saml:Audience>{audience}</saml:Audience></saml:AudienceRestriction>",
            statement=(
                f'<saml:AuthnStatement AuthnInstant="{format_instant(now)}" SessionIndex="_s"><saml:AuthnContext>'
                f"<saml:AuthnContextClassRef>{PASSWORD}</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>"
            ),
            attributes=(("email", [f"{subject}@bench.example"]),),
        )
        form = {"SAMLResponse": base64.b64encode(provider.respond(content, signed=("assertion",))).decode()}
        first = Request("POST", f"{connection.path}/acs", form=form, more={"Origin": "https://idp.bench.example"})
        own = {"Origin": on.address, "Cookie": cookie}
        return first, Request("POST", f"{connection.path}/acs", form={**form, "again": "1"}, more=own)

    def following(count_: int) -> list[Request]:
        responses = [respond(subjects.pop()) for _ in range(count_ // 2)]
        for first, _ in responses[: REQUESTS.connections]:
            on.check(first)
        ahead = responses[REQUESTS.connections :]
        return [request for (_, second), (first, _) in zip(responses, ahead, strict=False) for request in (second, first)]

    return following


class _Connection:
    """An active connection at the organization `bench`."""

    def __init__(self, on: Service, settings: Mapping[str, Any], *, client_secret: str = "", metadata: str = "") -> None:
        self._on = on
        self._org = add_organization(on, "bench")
        add_accounts(on, 1)
        on.query(
            """
            insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
            select gen_random_uuid(), %(org)s, id, 'owner', now(), now() from users""",
            org=self._org,
        )
        [token] = access_tokens(on, 1)
        body = {"slug": "idp", "name": "Provider", **settings}
        on.check(Request("POST", _CONNECTIONS, token, body), status=201)
        if client_secret:
            on.check(Request("PUT", f"{_CONNECTIONS}/idp/client-secret", token, {"client_secret": client_secret}), status=204)
        else:
            on.check(Request("POST", f"{_CONNECTIONS}/idp/keys", token, {}), status=201)
            on.check(Request("POST", f"{_CONNECTIONS}/idp/metadata", token, {"metadata": metadata}))
        on.check(Request("POST", f"{_CONNECTIONS}/idp/activate", token, {}))
        [(self._id,)] = on.query("select id from connections where org_id is not null")
        self.path = f"/auth/connections/{self._id}"

    def add_people(self, number: int) -> list[str]:
        """Add members with a device that the connection knows, and return their subjects."""
        ids: list[UUID] = [uuid4() for _ in range(number)]
        self._on.query(
            """
            insert into users (id, email, email_verified_at, first_verified_at, origin, created_at, updated_at)
            select id, id || '@bench.example', at, at, 'platform', at, at
            from unnest(%(ids)s::uuid[]) id, (select now() - interval '1 day' as at) yesterday""",
            ids=ids,
        )
        self._on.query(
            """
            with members as (
                insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
                select gen_random_uuid(), %(org)s, id, 'member', now() - interval '1 day', now() - interval '1 day'
                from unnest(%(ids)s::uuid[]) id)
            insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
            select %(org)s, %(connection)s, id, id::text, now() - interval '1 day', now() - interval '1 day'
            from unnest(%(ids)s::uuid[]) id""",
            ids=ids,
            org=self._org,
            connection=self._id,
        )
        add_devices(self._on, 1)
        self._on.tidy()
        return [str(each) for each in ids]

    def begin(self) -> tuple[dict[str, str], str]:
        """Begin a sign-in in a new browser. Return the parameters that it takes to the identity provider, and its cookie."""
        answer = self._on.send(Request("GET", f"{self.path}/start?next=/app"))
        if answer.status != 302:
            raise MeasurementFailed(f"The sign-in did not begin: {answer.status} {answer.body[:200]}")
        query = parse_qs(urlsplit(answer.headers["Location"]).query)
        return {name: value for name, [value] in query.items()}, _cookie(answer.headers)


def _cookie(headers: HTTPMessage) -> str:
    cookies = [cookie.partition(";")[0] for cookie in headers.get_all("Set-Cookie") or ()]
    return "; ".join(cookies)


class _OpenIdProvider:
    """A local OpenID provider, which answers with tokens that are signed before the measurement."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self._key = rsa.generate_private_key(65537, 2048)
        listening: queue.SimpleQueue[int] = queue.SimpleQueue()
        # A single thread, so that the provider leaves the processor time to the service.
        threading.Thread(target=lambda: asyncio.run(self._serve(listening.put)), daemon=True).start()
        self.address = f"http://127.0.0.1:{listening.get()}"
        endpoints = {f"{name}_endpoint": f"{self.address}/{name}" for name in ("authorization", "token")}
        lists = {"response_types_supported": ["code"], "id_token_signing_alg_values_supported": ["RS256"]}
        metadata = {"issuer": self.address, "jwks_uri": f"{self.address}/keys", **endpoints, **lists, "subject_types_supported": ["public"]}
        public = {**RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True), "kid": "1", "use": "sig", "alg": "RS256"}
        self.documents = {
            "/.well-known/openid-configuration": json.dumps(metadata).encode(),
            "/keys": json.dumps({"keys": [public]}).encode(),
        }

    async def _serve(self, announce: Callable[[int], None]) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Exchange(self.answer), "127.0.0.1", 0, backlog=100)
        announce(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    def answer(self, path: str, body: bytes) -> bytes:
        """Return the document at a path, or the tokens for a code, once."""
        code = re.search(rb"code=(\d+)", body)
        return self.documents[path] if code is None else self.answers.pop(code[1].decode())

    def tokens(self, subject: str, nonce: str) -> bytes:
        """Return the token endpoint's answer, with an ID token that has all claims."""
        now = int(datetime.now(UTC).timestamp())
        claims = {"iss": self.address, "aud": "gatehouse", "sub": subject, "nonce": nonce, "iat": now, "exp": now + 600}
        profile = {"email": f"{subject}@bench.example", "email_verified": True, "name": "Ada", "given_name": "Ada", "family_name": "L"}
        id_token = jwt.encode({**claims, **profile}, self._key, "RS256", headers={"kid": "1"})
        return json.dumps({"access_token": "x", "token_type": "Bearer", "id_token": id_token}).encode()


class _Exchange(asyncio.Protocol):
    """A connection with a single request. This is fast, and not correct in every case."""

    def __init__(self, answer: Callable[[str, bytes], bytes]) -> None:
        self._answer = answer
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, is_complete, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        if is_complete and len(body) >= int(length[1] if length else 0):
            answer = self._answer(head.split(b" ")[1].decode(), body)
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
            self._transport.close()
