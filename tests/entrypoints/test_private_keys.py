"""The fields that can hold a private key, and the public texts that come back in them."""

import html
import json
import re
from base64 import b64encode, encodebytes
from typing import Any, Final
from urllib.parse import quote, urlencode

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from entrypoints.http.base.rendering.private_keys import KEY_FIELDS, can_hold_private_key
from entrypoints.http.edge.typed_fields import READERS, to_certificate
from tests.edge.test_typed_fields import AS_TYPED
from tests.federation.api.client_authentication.keys import client_key
from tests.support.rows import NOW
from tests.support.saml import identity_provider_metadata, new_certificate

# Client ids, attributes and addresses as identity providers make them.
NAMES: Final = (
    "3MVG9lKcPoNINVBIPJjdw1J9LLM82HnFVVX19KY1uA5mu0QqEWhqKpoW3svG3XHrXDiCQjK1mdgAvhCscA9GE",
    "761326798069-r5mljlln1rd4lrbhg75efgigp36m78j5.apps.googleusercontent.com",
    "login.example.com/auth/realms/Master2026/protocol/saml/descriptor/of/the/realm",
    "https://acme.okta.com/app/exk1fcia6d6EMsf331d8Z4x7ExAmPlE9fcia6d6EMsf331d8/sso/saml/metadata",
    "urn:oasis:names:tc:SAML:2.0:assertion-of-Acme2026-EuropeMiddleEastAndAfrica",
    f"https://idp.example.com/metadata?d={'aB3-' * 12}&amp;k={'a-slug-of-words-' * 3}",
)
_ALGORITHMS: Final[dict[str, Any]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "Ed25519": OKPAlgorithm}


def test_every_field_for_documents_is_one_for_keys() -> None:
    """An application's authorization document has names alone."""
    of_pem = {name for name, reader in READERS.items() if reader is to_certificate}
    assert of_pem | AS_TYPED["documents"] - {"document"} | {"new_metadata"} == KEY_FIELDS


async def test_public_texts_come_back() -> None:
    of_rsa = (await new_certificate(NOW)).certificate
    name, key = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp")]), ec.generate_private_key(ec.SECP256R1())
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW).sign(key, SHA256())
    curve = built.public_bytes(Encoding.PEM).decode()
    signature = (
        f"<ds:DigestValue>{'aB3/' * 11}</ds:DigestValue><ds:SignatureValue>\n{'aB3+' * 86}\n</ds:SignatureValue></md:EntityDescriptor>"
    )
    metadata = identity_provider_metadata("https://idp.example.com/Acme2026", certificates=[of_rsa])
    keys = {"keys": [client_key(algorithm).jwk for algorithm in ("RS256", "ES256", "EdDSA")]}
    texts = {
        "certificate": (of_rsa, curve, of_rsa + curve, "".join(of_rsa.splitlines()[1:-1]), "not a certificate", ""),
        "metadata": (metadata, metadata.replace("</md:EntityDescriptor>", signature), f"{metadata}<ds:KeyName>{'aB3_' * 11}</ds:KeyName>"),
        "jwks": (json.dumps(keys), json.dumps(keys, indent=1)),
        "client_id": NAMES,
        "description": (
            "Administrators/owners keep the private key of Acme2026 " * 9,
            f"Cohorts {' '.join(map(str, range(2010, 2030)))}, rooms {', '.join(map(str, range(10, 30)))}",
        ),
    }
    assert "SignatureValue" in texts["metadata"][1]
    found = [(name, text) for name, each in texts.items() for text in each if can_hold_private_key(name, text)]
    assert found == []


def test_a_private_jwk_comes_back_in_no_field() -> None:
    key = json.loads(ECAlgorithm.to_jwk(client_key().private))
    texts = [json.dumps(key), str(key), json.dumps({"kty": "oct", "k": "AAAA"}), json.dumps({"keys": [key]}, indent=1)]
    assert all(can_hold_private_key(name, text) for name in ("jwks", "public_key", "client_id", "scopes") for text in texts)


def test_a_key_in_hexadecimal_or_after_a_short_line_comes_back_in_no_field_for_keys() -> None:
    der = "MIIE\n" + "vQIBADANBgkqhkiG9w0BAQEFAASC\n" * 9
    for text in ("0123456789abcdef" * 4, der, f"'{'aB3/' * 11}'"):
        assert [name for name in sorted(KEY_FIELDS) if not can_hold_private_key(name, text)] == []


def test_the_dump_of_a_key_comes_back_in_no_field() -> None:
    """As `openssl pkey -text` prints it, or a part."""
    digits = ":".join(f"{number:02x}" for number in range(64))
    for text in (f"privateExponent:\n    {digits[:44]}", "priv:\n  01:02", digits, digits.replace(":", " "), digits.upper()):
        assert [name for name in (*sorted(KEY_FIELDS), "domain", "entity_id") if not can_hold_private_key(name, text)] == []


def test_an_encoded_private_key_comes_back_in_no_field() -> None:
    """As it stands in a URL, in JSON or HTML, or as a tool prints it."""
    keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey] = {
        "RSA": rsa.generate_private_key(65537, 2048),
        "EC": ec.generate_private_key(ec.SECP256R1()),
        "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    }
    texts: dict[str, str] = {}
    for kind, key in keys.items():
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        jwk = _ALGORITHMS[kind].to_jwk(key)
        digits = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()).hex()
        assert isinstance(jwk, str)
        private = json.loads(jwk)["d"]
        for form, text in {
            "PEM in a URL": quote(pem),
            "PEM in a form": urlencode({"key": pem}),
            "PEM twice in a URL": quote(quote(pem)),
            "PEM in JSON": json.dumps({"key": pem}),
            "PEM with escaped hyphens": pem.replace("-", "\\u002d"),
            "PEM in HTML": pem.replace("-", "&#45;"),
            "PEM in base64": b64encode(pem.encode()).decode(),
            "PEM in lines of base64": encodebytes(pem.encode()).decode(),
            "JWK in a URL": quote(jwk),
            "JWK in JSON": json.dumps(jwk),
            "JWK in HTML": html.escape(jwk),
            "JWK in YAML": "\n".join(f"{name}: {value}" for name, value in json.loads(jwk).items()),
            "member alone": json.dumps({"d": private}),
            "PEM in a query": f"https://idp.example.com/?{urlencode({'key': pem})}",
            "base64 in a query": f"https://idp.example.com/?key={''.join(pem.splitlines()[1:-1])}",
            "PEM after a number of HTML": f"&#{'1' * 5000};{pem}",
            "xxd": "\n".join(f"{at:08x}: {' '.join(re.findall('.{1,4}', digits[at : at + 32]))}" for at in range(0, len(digits), 32)),
            "bytes": ", ".join(f"0x{each}" for each in re.findall("..", digits)),
            "asn1parse": f"   14:d=1  hl=2 l=  34 prim: OCTET STRING      [HEX DUMP]:{digits[-68:]}",
        }.items():
            texts[f"{kind}, {form}"] = text
    fields = (*sorted(KEY_FIELDS), "client_id", "entity_id", "sso_url", "metadata_url")
    assert [(kind, name) for kind, text in texts.items() for name in fields if not can_hold_private_key(name, text)] == []
