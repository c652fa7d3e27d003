"""Applications with tokens that are bound to keys, and the proofs of these keys (RFC 9449).

The proofs are signed before a measurement. They are valid until the nonce is a minute old.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from jwt.algorithms import ECAlgorithm

from core.kernel.values import base64url, digest
from ops.bench.people import RelyingApplication
from ops.bench.processes import MeasurementFailed
from ops.bench.service import Service
from ops.bench.wrk import Request

NONCE_HEADER: Final = "DPoP-Nonce"
_SIGNATURE: Final = ec.ECDSA(hashes.SHA256())


class Key:
    """A key of an application."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        jwk = ECAlgorithm.to_jwk(self._private.public_key(), as_dict=True)
        self._header = base64url(json.dumps({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk}).encode())

    def proof(self, method: str, url: str, nonce: str, token: str = "") -> str:
        """Return a new proof for a request, with the nonce unless it is empty."""
        claims = {"jti": uuid4().hex, "htm": method, "htu": url, "iat": int(time.time())}
        claims |= {"nonce": nonce} if nonce else {}
        claims |= {"ath": base64url(digest(token))} if token else {}
        text = f"{self._header}.{base64url(json.dumps(claims).encode())}"
        r, s = utils.decode_dss_signature(self._private.sign(text.encode(), _SIGNATURE))
        return f"{text}.{base64url(r.to_bytes(32) + s.to_bytes(32))}"


@dataclass(frozen=True, slots=True)
class BoundReads:
    """Reads with tokens that are bound to keys, each of another user."""

    service: Service
    holders: Sequence[tuple[Key, str]]  # a key and an access token

    def requests(self, count: int) -> list[Request]:
        """Return `count` requests of the holders in turn, each with a new proof."""
        url, nonce = f"{self.service.address}/api/user", current_nonce(self.service)
        turns = (self.holders[number % len(self.holders)] for number in range(count))
        return [Request("GET", "/api/user", token, proof=key.proof("GET", url, nonce, token)) for key, token in turns]


def bound_reads(service: Service, count: int) -> BoundReads:
    """Return the reads of `count` users. The service has at least as many accounts."""
    nonce, holders = current_nonce(service), []
    for exchange in RelyingApplication(service).exchanges(count):
        key = Key()
        proof = key.proof("POST", f"{service.address}{exchange.path}", nonce)
        status, body = service.send(Request(exchange.method, exchange.path, body=exchange.body, proof=proof))
        tokens = json.loads(body)
        if status != 200 or tokens["token_type"] != "DPoP":  # noqa: S105  (a scheme)
            raise MeasurementFailed(f"The tokens are not bound to the key: {status} {body.decode()[:200]}")
        holders.append((key, tokens["access_token"]))
    return BoundReads(service, holders)


def current_nonce(service: Service) -> str:
    """Return the nonce that the service asks for. Raises: MeasurementFailed."""
    path = "/auth/token"
    headers = {"DPoP": Key().proof("POST", f"{service.address}{path}", ""), "Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(f"{service.address}{path}", b"grant_type=refresh_token&refresh_token=x", headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request):  # noqa: S310
            nonce = None
    except urllib.error.HTTPError as error:
        nonce = error.headers[NONCE_HEADER]
    if not nonce:
        raise MeasurementFailed("The service does not ask for a nonce.")
    return nonce
