"""The header and signature in DPoP proofs (RFC 9449 section 4.3, security J-1)."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from adapters.crypto import JwtDpopProofs
from adapters.crypto import dpop as adapter
from core.authentication.model.dpop import PROOF_ALGORITHMS, NonceKey, ProofInvalid
from tests.adapters.access_tokens import NOW, b64, unb64
from tests.support.dpop import LEFT_OUT, ProofKey, proof_key
from tests.tables import table

URL = "https://sso.example.com/auth/token"


def refusal(text: str) -> str:
    with pytest.raises(ProofInvalid) as caught:
        JwtDpopProofs().read(text)
    return caught.value.message


def with_header(**members: Any) -> str:
    """Return a proof with these members in its header."""
    return proof_key().proof("POST", URL, NOW, headers=members)


@table("algorithm", PROOF_ALGORITHMS)
def test_a_proof_names_its_key_and_its_claims(algorithm: str) -> None:
    key = proof_key(algorithm)
    proofs = JwtDpopProofs()
    for _ in range(2):  # the second time with the remembered header
        read = proofs.read(key.proof("POST", URL, NOW, jti="a"))
        assert read.thumbprint == key.thumbprint
        assert dict(read.claims) == {"jti": "a", "htm": "POST", "htu": URL, "iat": int(NOW.timestamp())}


def test_other_types_and_algorithms_are_refused() -> None:
    for type_ in ("JWT", "at+jwt", "dpop+jwt ", LEFT_OUT, None, 1):
        assert "typ" in refusal(with_header(typ=type_))
    header, payload, signature = with_header().split(".")
    for algorithm in ("none", "HS256", "ES384", "ES256K", "RS512", "", None, ["ES256"]):
        forged = json.loads(unb64(header)) | {"alg": algorithm}
        assert "is not valid" in refusal(f"{b64(json.dumps(forged).encode())}.{payload}.{signature}")


def test_the_public_key_must_not_come_with_its_private_members_whatever_its_type() -> None:
    for algorithm in PROOF_ALGORITHMS:
        key = proof_key(algorithm)
        for jwk in (key.private_jwk, key.jwk | {"d": "AQ"}, key.jwk | {"k": "AQ"}, key.jwk | {"p": "AQ"}):
            assert "private" in refusal(key.proof("POST", URL, NOW, headers={"jwk": jwk}))
    assert "symmetric" in refusal(with_header(jwk={"kty": "oct", "k": "c2VjcmV0"}))
    assert "symmetric" in refusal(with_header(jwk={"kty": "oct"}))


def test_the_key_must_be_one_of_the_known_kinds_and_strong_enough() -> None:
    weak = ProofKey("RS256", rsa.generate_private_key(65537, 1024))  # noqa: S505  (it must be refused)
    other_curve = ProofKey("ES256", ec.generate_private_key(ec.SECP384R1()))
    unknown = {"kty": "OKP", "crv": "X25519", "x": proof_key("EdDSA").jwk["x"]}
    for jwk in (weak.jwk, other_curve.jwk, unknown, {}, {"kty": "EC"}, {"kty": "RSA", "n": "AQ", "e": "AQ"}, {"kty": ["EC"]}):
        assert "jwk" in refusal(with_header(jwk=jwk))
    for missing in (LEFT_OUT, None, "key", [proof_key().jwk]):
        assert "jwk" in refusal(with_header(jwk=missing))


def test_the_key_must_fit_the_algorithm() -> None:
    assert "fit its alg" in refusal(with_header(jwk=proof_key("EdDSA").jwk))
    assert "fit its alg" in refusal(with_header(jwk=proof_key("RS256").jwk))
    assert "jwk" in refusal(with_header(jwk=proof_key().jwk | {"alg": "RS256"}))
    assert "jwk" in refusal(with_header(jwk=proof_key().jwk | {"use": "enc"}))
    rsa_key = proof_key("RS256")
    assert "fit its alg" in refusal(rsa_key.proof("POST", URL, NOW, headers={"jwk": rsa_key.jwk | {"alg": "PS256"}}))


def test_a_key_has_one_spelling() -> None:
    """Another spelling would have another thumbprint."""
    key = proof_key("RS256")
    padded = b64(b"\0" + unb64(key.jwk["n"]))
    assert "spelling" in refusal(key.proof("POST", URL, NOW, headers={"jwk": key.jwk | {"n": padded}}))
    x = proof_key().jwk["x"]
    twin = x[:-1] + chr(ord(x[-1]) + 1)  # the last letter has unused bits
    assert unb64(twin) == unb64(x)
    assert "jwk" in refusal(with_header(jwk=proof_key().jwk | {"x": twin}))


def test_other_ways_to_name_a_key_are_refused_and_unknown_members_ignored() -> None:
    for name in ("jku", "x5u", "x5c", "crit"):
        assert "but no crit" in refusal(with_header(**{name: "https://keys.example"})) or name == "crit"
    assert JwtDpopProofs().read(with_header(kid="one", other={"a": 1})).thumbprint == proof_key().thumbprint


def test_the_signature_must_be_of_the_key_in_the_header() -> None:
    header, payload, signature = with_header().split(".")
    other = proof_key(name="two").proof("POST", URL, NOW).split(".")
    for forged in (
        f"{header}.{payload}.{other[2]}",
        f"{other[0]}.{payload}.{signature}",
        f"{header}.{other[1]}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}.{signature}=",
        f"{header}.{payload}",
        "",
        "a.b.c",
        ".".join((header, payload, signature, signature)),
        header + "." + "A" * 9000,
    ):
        assert "is not valid" in refusal(forged)


def test_a_proof_with_a_remembered_header_still_needs_a_signature() -> None:
    proofs = JwtDpopProofs()
    proofs.read(with_header())
    header, payload, _ = with_header().split(".")
    with pytest.raises(ProofInvalid):
        proofs.read(f"{header}.{payload}.{proof_key(name='two').proof('POST', URL, NOW).split('.')[2]}")


def test_a_proof_has_an_object_of_claims() -> None:
    for payload in (b"[]", b"1", b"null", b"{", b"\xff", b"[" * 3000):
        text = jwt.PyJWS().encode(payload, proof_key().private, "ES256", {"typ": "dpop+jwt", "jwk": proof_key().jwk})
        assert "is not valid" in refusal(text)


def test_only_headers_of_valid_proofs_are_remembered_and_the_earliest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "MAX_REMEMBERED", 2)
    proofs = JwtDpopProofs()
    keys = [proof_key(name=name) for name in ("one", "two", "three")]
    for key in keys:
        proofs.read(key.proof("POST", URL, NOW))
        header, payload, _ = key.proof("POST", URL, NOW, headers={"kid": "forged"}).split(".")
        with pytest.raises(ProofInvalid):
            proofs.read(f"{header}.{payload}.AAAA")
    assert [signer.thumbprint for signer in proofs._signers.values()] == [key.thumbprint for key in keys[1:]]


def test_the_keys_of_nonces_are_kept_for_this_period_and_the_one_before() -> None:
    proofs = JwtDpopProofs()
    for period in (7, 8, 9):
        proofs.keep_nonce_key(NonceKey(period, bytes([period])))
    assert [proofs.nonce_key(period) is not None for period in (7, 8, 9, 10)] == [False, True, True, False]
    proofs.forget_nonce_keys()
    assert proofs.nonce_key(9) is None
