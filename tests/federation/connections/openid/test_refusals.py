"""Refused answers from OpenID providers, with their faults (security W-1, W-2)."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from joserfc import jws

from core.federation.connections.model.openid import MAX_ANSWER_SIZE, MAX_HEADER_TOKEN, OPENID_FAULTS, OpenIdAnswerRefused, OpenIdFault
from core.kernel.values import base64url
from tests.fakes.http_server import TRAP, Answer, in_json
from tests.fakes.openid_issuers import CLIENT_ID, DISCOVERY, SECRET, FakeIssuer, as_hmac
from tests.fakes.provider import key, sign
from tests.federation.connections.openid.case import Case
from tests.tables import table

MAX_SECONDS: Final = 2**31 - 1
NOW: Final = 1_773_500_966  # the test's present time
JSON: Final = {"Content-Type": "application/json"}
REDIRECT: Final = Answer(302, b"", {"Location": "/issuer-0/keys"})
BROKEN: Final[Mapping[str, tuple[OpenIdFault, Answer]]] = {
    "redirect": (OpenIdFault.STATUS, REDIRECT),
    "failure": (OpenIdFault.STATUS, Answer(500, TRAP.encode())),
    "page": (OpenIdFault.MALFORMED, Answer(200, TRAP.encode(), {"Content-Type": "text/html"})),
    "list": (OpenIdFault.MALFORMED, in_json([{}])),
    "deep JSON": (OpenIdFault.MALFORMED, Answer(200, b"[" * 60_000, JSON)),
    "compressed": (OpenIdFault.MALFORMED, Answer(200, b"\x1f\x8b\x08", {"Content-Encoding": "gzip", **JSON})),
    "too much": (OpenIdFault.TOO_LARGE, Answer(200, b"[" + b" " * MAX_ANSWER_SIZE + b"]", JSON)),
    "endless": (OpenIdFault.UNREACHABLE, Answer(drip=True)),
    "silent": (OpenIdFault.UNREACHABLE, Answer(hang=True)),
}


def metadata(**members: Any) -> Callable[[Case], None]:
    return lambda case: case.issuer.metadata.update(members)


def answers(endpoint: str, answer: Answer) -> Callable[[Case], None]:
    return lambda case: case.issuer.answers.update({endpoint: answer})


def tokens(**members: Any) -> Callable[[Case], None]:
    return lambda case: case.issuer.tokens.update(members)


def claims(**changes: Any) -> Callable[[Case], None]:
    return lambda case: case.issuer.claims.update(changes)


def fresh(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.wants_fresh = True
        case.issuer.claims.update(changes)

    return change


def signed(sign: Callable[[dict[str, Any]], str]) -> Callable[[Case], None]:
    return lambda case: setattr(case.issuer, "sign", sign)


def published(*keys: Mapping[str, Any]) -> Callable[[Case], None]:
    return lambda case: setattr(case.issuer, "published", list(keys))


def userinfo(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.needed = ("email", "groups")
        case.issuer.userinfo.update(changes)

    return change


def asks_userinfo(answer: Answer) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.needed = ("groups",)
        case.issuer.answers["/userinfo"] = answer

    return change


def public(kind: str = "RSA", kid: str = "first") -> dict[str, Any]:
    return dict(key(kind, kid).as_dict(private=False))


def sign_with(signing: Any, claims: dict[str, Any], kid: str, algorithm: str = "RS256") -> str:
    return jws.serialize_compact({"alg": algorithm, "kid": kid}, json.dumps(claims).encode(), signing, algorithms=[algorithm])


def unsigned(claims: dict[str, Any]) -> str:
    return f"eyJhbGciOiJub25lIn0.{sign(claims).split('.')[1]}."


def with_another_subject(claims: dict[str, Any]) -> str:
    head, _, signature = sign(claims).split(".")
    return ".".join((head, sign({**claims, "sub": "4712"}).split(".")[1], signature))


def in_five_parts(claims: dict[str, Any]) -> str:
    return f"{sign(claims)}.x.y"


def elsewhere(issuer: FakeIssuer) -> str:
    """Return the URL of another provider on the same server."""
    return f"{issuer.url}-2"


WEAK: Final = {"kty": "RSA", "kid": "first", "n": base64url(b"\xff" * 128), "e": "AQAB"}
MANY: Final = [public() | {"kid": str(number)} for number in range(300)]
# A case changes an honest provider, and has the fault that its answer causes.
CASES: Final[Mapping[str, tuple[OpenIdFault, Callable[[Case], None]]]] = {
    # Metadata
    "metadata of another issuer": (OpenIdFault.METADATA_ISSUER, lambda case: case.issuer.metadata.update(issuer=elsewhere(case.issuer))),
    "metadata with a slash more": (OpenIdFault.METADATA_ISSUER, lambda case: case.issuer.metadata.update(issuer=f"{case.issuer.url}/")),
    "metadata of each tenant": (OpenIdFault.METADATA_ISSUER, metadata(issuer="https://login.example.com/{tenantid}/v2.0")),
    "metadata without an issuer": (OpenIdFault.METADATA_ISSUER, metadata(issuer=None)),
    "issuer that is a list": (OpenIdFault.METADATA_ISSUER, lambda case: case.issuer.metadata.update(issuer=[case.issuer.url])),
    "no authorization endpoint": (OpenIdFault.METADATA_ENDPOINTS, metadata(authorization_endpoint=None)),
    "authorization endpoint that is a script": (OpenIdFault.METADATA_ENDPOINTS, metadata(authorization_endpoint="javascript:alert(1)")),
    "authorization endpoint with a fragment": (OpenIdFault.METADATA_ENDPOINTS, metadata(authorization_endpoint="https://id.example/#x")),
    "token endpoint over http": (OpenIdFault.METADATA_ENDPOINTS, metadata(token_endpoint="http://id.example/token")),
    "token endpoint with a user name": (OpenIdFault.METADATA_ENDPOINTS, metadata(token_endpoint="https://a@id.example/token")),
    "keys at the port of mail": (OpenIdFault.METADATA_ENDPOINTS, metadata(jwks_uri="https://id.example:25/keys")),
    "keys in a file": (OpenIdFault.METADATA_ENDPOINTS, metadata(jwks_uri="file:///etc/passwd")),
    "userinfo endpoint that is a number": (OpenIdFault.METADATA_ENDPOINTS, metadata(userinfo_endpoint=1)),
    "long logout endpoint": (OpenIdFault.METADATA_ENDPOINTS, metadata(end_session_endpoint=f"https://id.example/{'x' * 2048}")),
    "implicit flow only": (OpenIdFault.METADATA_FLOW, metadata(response_types_supported=["id_token", "token"])),
    "symmetric signatures only": (OpenIdFault.METADATA_ALGORITHMS, metadata(id_token_signing_alg_values_supported=["HS256", "none"])),
    # Token endpoint
    "wrong secret": (OpenIdFault.CLIENT, lambda case: case.client_changes.update(client_secret="guessed")),
    "no secret": (OpenIdFault.CLIENT, lambda case: case.client_changes.update(client_secret=None)),
    "client refused with 400": (OpenIdFault.CLIENT, answers("/token", in_json({"error": "invalid_client"}, 400))),
    "code refused with 200": (OpenIdFault.CODE, answers("/token", in_json({"error": "invalid_grant", "error_description": TRAP}))),
    "code refused": (OpenIdFault.CODE, answers("/token", in_json({"error": "invalid_grant"}, 400))),
    "scope refused": (OpenIdFault.REQUEST, answers("/token", in_json({"error": "invalid_scope"}, 400))),
    "error that is an object": (OpenIdFault.REQUEST, answers("/token", in_json({"error": {"code": 1}}, 400))),
    "no ID token": (OpenIdFault.TOKENS, tokens(id_token=None)),
    "ID token that is a number": (OpenIdFault.TOKENS, tokens(id_token=7)),
    "another type of token": (OpenIdFault.TOKENS, tokens(token_type="mac")),
    "no type of token": (OpenIdFault.TOKENS, tokens(token_type=None)),
    # Signatures
    "token without a signature": (OpenIdFault.ALGORITHM, signed(unsigned)),
    "HMAC with the client secret": (OpenIdFault.ALGORITHM, signed(lambda claims: as_hmac(claims, SECRET.encode()))),
    "HMAC with the public key": (OpenIdFault.ALGORITHM, signed(lambda claims: as_hmac(claims, key().as_pem(private=False)))),
    "algorithm that the metadata lack": (OpenIdFault.ALGORITHM, signed(partial(sign, algorithm="RS512"))),
    "encrypted token": (OpenIdFault.FORM, signed(in_five_parts)),
    "padded token": (OpenIdFault.FORM, signed(lambda claims: sign(claims) + "=")),
    "address of keys in the header": (OpenIdFault.FORM, signed(partial(sign, jku="https://evil.example"))),
    "key in the header": (OpenIdFault.FORM, signed(partial(sign, jwk=public("RSA", "stranger")))),
    "access token": (OpenIdFault.FORM, signed(partial(sign, typ="at+jwt"))),
    "logout token": (OpenIdFault.FORM, signed(partial(sign, typ="logout+jwt"))),
    "unknown key": (OpenIdFault.SIGNING_KEY, signed(partial(sign, kid="unknown"))),
    "key of another connection": (OpenIdFault.SIGNING_KEY, signed(lambda claims: sign_with(key("RSA", "another"), claims, "another"))),
    "another key under the right id": (OpenIdFault.SIGNATURE, signed(lambda claims: sign_with(key("RSA", "another"), claims, "first"))),
    "another content": (OpenIdFault.SIGNATURE, signed(with_another_subject)),
    "two keys with one id": (OpenIdFault.SIGNING_KEY, published(public(), public())),
    "key for encryption": (OpenIdFault.SIGNING_KEY, published(public() | {"use": "enc"})),
    "weak key": (OpenIdFault.SIGNING_KEY, published(WEAK)),
    "symmetric key": (OpenIdFault.SIGNING_KEY, published({"kty": "oct", "k": "c2VjcmV0", "kid": "first"})),
    "the last of 300 keys": (OpenIdFault.SIGNING_KEY, published(*MANY, public())),
    "keys in an object": (OpenIdFault.JWKS, answers("/keys", in_json({"keys": {"first": public()}}))),
    "key that is a text": (OpenIdFault.JWKS, answers("/keys", in_json({"keys": ["first"]}))),
    # Claims (OpenID Connect Core section 3.1.3.7)
    "token of another issuer": (OpenIdFault.ISSUER, claims(iss="https://elsewhere.example")),
    "token of the issuer's other tenant": (OpenIdFault.ISSUER, lambda case: case.issuer.claims.update(iss=elsewhere(case.issuer))),
    "token for another client": (OpenIdFault.AUDIENCE, claims(aud="another")),
    "token for no client": (OpenIdFault.AUDIENCE, claims(aud=[])),
    "token for several clients": (OpenIdFault.AUDIENCE, claims(aud=[CLIENT_ID, "another"])),
    "token issued to another client": (OpenIdFault.AUDIENCE, claims(aud=[CLIENT_ID, "another"], azp="another")),
    "token with another azp": (OpenIdFault.AUDIENCE, claims(azp="another")),
    "token of another request": (OpenIdFault.NONCE, claims(nonce="another")),
    "token of no request": (OpenIdFault.NONCE, claims(nonce=None)),
    "nonce that is a list": (OpenIdFault.NONCE, claims(nonce=["x"])),
    "expired token": (OpenIdFault.TIME, claims(exp=NOW - 61)),
    "token without an end": (OpenIdFault.TIME, claims(exp=None)),
    "end that is not a number": (OpenIdFault.TIME, claims(exp=float("nan"))),
    "end in words": (OpenIdFault.TIME, claims(exp=str(NOW + 300))),
    "token from the future": (OpenIdFault.TIME, claims(iat=NOW + 61)),
    "token that is not valid yet": (OpenIdFault.TIME, claims(nbf=NOW + 61)),
    "no subject": (OpenIdFault.SUBJECT, claims(sub=None)),
    "empty subject": (OpenIdFault.SUBJECT, claims(sub="")),
    "subject that is a number": (OpenIdFault.SUBJECT, claims(sub=4711)),
    "subject that is a list": (OpenIdFault.SUBJECT, claims(sub=["4711"])),
    "long subject": (OpenIdFault.SUBJECT, claims(sub="x" * 256)),
    "subject with a control character": (OpenIdFault.SUBJECT, claims(sub="4711\x00")),
    "no new sign-in": (OpenIdFault.AUTH_TIME, fresh(auth_time=NOW - 3600)),
    "new sign-in without its time": (OpenIdFault.AUTH_TIME, fresh(auth_time=None)),
    "new sign-in in the future": (OpenIdFault.AUTH_TIME, fresh(auth_time=NOW + 3600)),
    "time of the sign-in in words": (OpenIdFault.AUTH_TIME, fresh(auth_time=str(NOW))),
    # Userinfo
    "userinfo of another user": (OpenIdFault.USERINFO_SUBJECT, userinfo(sub="4712")),
    "userinfo of no user": (OpenIdFault.USERINFO_SUBJECT, userinfo(sub=None)),
    "signed userinfo": (OpenIdFault.USERINFO, asks_userinfo(Answer(200, b"a.b.c", {"Content-Type": "application/jwt"}))),
    "userinfo that is refused": (OpenIdFault.USERINFO, asks_userinfo(in_json({"error": "invalid_token"}, 401))),
    "userinfo elsewhere": (OpenIdFault.USERINFO, asks_userinfo(REDIRECT)),
    "long access token that userinfo refuses": (
        OpenIdFault.LONG_ACCESS_TOKEN,
        lambda case: (asks_userinfo(Answer(431))(case), tokens(access_token="x" * (MAX_HEADER_TOKEN + 1))(case))[0],
    ),
    "access token with a line break": (OpenIdFault.TOKENS, lambda case: (userinfo()(case), tokens(access_token="x\r\ny: z")(case))[0]),
}


AFTER_SIGNATURE: Final = frozenset(
    {OpenIdFault.ISSUER, OpenIdFault.AUDIENCE, OpenIdFault.NONCE, OpenIdFault.TIME, OpenIdFault.SUBJECT, OpenIdFault.AUTH_TIME}
    | {OpenIdFault.USERINFO, OpenIdFault.USERINFO_SUBJECT, OpenIdFault.LONG_ACCESS_TOKEN}
)


@pytest.mark.slow
async def test_wrong_answers_are_refused_with_their_fault(new_case: Callable[[], Case]) -> None:
    """The honest provider is accepted, so the case's change is the reason for its fault.

    A refusal has the claim names about the user if their token's signature was right.
    """
    findings = [("honest provider", await new_case().fault())]
    for name, (fault, change) in CASES.items():
        case = new_case()
        change(case)
        findings += [(name, outcome)] if (outcome := await case.fault()) != fault else []
        is_signed = fault in AFTER_SIGNATURE or name == "access token with a line break"
        findings += [(name, str(case.received))] if case.received != (("email",) if is_signed else ()) else []
    assert findings == [("honest provider", "accepted")]
    assert OPENID_FAULTS.keys() == {*OpenIdFault}


@table(
    ("claim", "off", "skew", "is_accepted"),
    [
        *(("iat", off, 60, True) for off in (29, 31, 45, 60)),
        ("iat", 61, 60, False),
        ("exp", -29, 60, True),
        ("exp", -31, 60, True),
        ("exp", -59, 60, True),
        ("exp", -60, 60, False),
        ("nbf", 45, 60, True),
        ("nbf", 95, 60, False),
        ("iat", 300, 300, True),
        ("iat", 301, 300, False),
        ("exp", -299, 300, True),
        ("exp", 0, 0, False),
        ("iat", 1, 0, False),
        ("iat", 1e300, 300, False),
        ("exp", -1e300, 300, False),
    ],
)
async def test_the_clock_of_the_provider_may_be_off_as_far_as_the_connection_says(
    new_case: Callable[[], Case], claim: str, off: float, skew: int, is_accepted: bool
) -> None:
    case = new_case()
    case.client_changes = {"clock_skew": timedelta(seconds=skew)}
    case.issuer.claims = {claim: NOW + off}
    if is_accepted:
        assert (await case.sign_in()).subject == "4711"
        return
    with pytest.raises(OpenIdAnswerRefused) as refused:
        await case.sign_in()
    assert (refused.value.fault, refused.value.seconds_off) == (OpenIdFault.TIME, max(min(off, MAX_SECONDS), -MAX_SECONDS))


async def test_a_refused_time_of_a_new_sign_in_is_counted_from_the_request(new_case: Callable[[], Case]) -> None:
    for off, skew, expected in ((-200, 60, -200), (400, 300, 400), (-200, 300, None)):
        case = new_case()
        case.wants_fresh, case.client_changes = True, {"clock_skew": timedelta(seconds=skew)}
        case.issuer.claims = {"auth_time": NOW + off}
        if expected is None:
            await case.sign_in()
            continue
        with pytest.raises(OpenIdAnswerRefused) as refused:
            await case.sign_in()
        assert (refused.value.fault, refused.value.seconds_off) == (OpenIdFault.AUTH_TIME, expected)


@pytest.mark.slow
async def test_broken_answers_of_each_endpoint_are_refused(new_case: Callable[[], Case]) -> None:
    """A redirect is not followed. The deadline covers all requests together."""
    findings = []
    for endpoint in (DISCOVERY, "/token", "/keys", "/userinfo"):
        for name, (fault, answer) in BROKEN.items():
            case = new_case()
            case.needed = ("groups",)
            case.use(deadline=0.1 if answer.drip or answer.hang else 10.0)
            case.issuer.answers[endpoint] = answer
            is_unread = endpoint == "/userinfo" and fault in (OpenIdFault.STATUS, OpenIdFault.MALFORMED)
            expected = OpenIdFault.USERINFO if is_unread else fault
            findings += [(endpoint, name, outcome)] if (outcome := await case.fault()) != expected else []
    assert findings == []


@pytest.mark.slow
async def test_a_userinfo_endpoint_that_fails_ends_no_sign_in_that_can_go_without_it(new_case: Callable[[], Case]) -> None:
    for name, (_, answer) in {**BROKEN, "signed": (None, Answer(200, b"a.b.c", {"Content-Type": "application/jwt"}))}.items():
        case = new_case()
        case.wanted = ("name", "email")
        case.use(deadline=0.5 if answer.drip or answer.hang else 10.0)
        case.issuer.answers["/userinfo"] = answer
        claims = (await case.sign_in()).claims
        assert (claims["email"], "name" in claims, case.issuer.counted["/userinfo"]) == ("ada@example.com", False, 1), name
    case = new_case()
    case.wanted = ("name",)
    assert (await case.sign_in()).claims["name"] == "Ada Lovelace"
    case.issuer.tokens = {"access_token": None}
    assert "name" not in (await case.sign_in()).claims
    case.issuer.tokens, case.issuer.userinfo = {}, {"sub": "4712"}
    assert await case.fault() == OpenIdFault.USERINFO_SUBJECT, "the answer is about another user"
