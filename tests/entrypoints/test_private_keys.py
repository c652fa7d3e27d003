"""The fields that can hold a private key, and the public texts that come back in them."""

import json
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm

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
)


def test_every_field_for_documents_is_one_for_keys() -> None:
    """The authorization document of an application has names alone."""
    of_pem = {name for name, reader in READERS.items() if reader is to_certificate}
    assert of_pem | AS_TYPED["documents"] - {"document"} | {"new_metadata"} == KEY_FIELDS


async def test_public_texts_come_back() -> None:
    rsa = (await new_certificate(NOW)).certificate
    name, key = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp")]), ec.generate_private_key(ec.SECP256R1())
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW).sign(key, SHA256())
    curve = built.public_bytes(Encoding.PEM).decode()
    signature = (
        f"<ds:DigestValue>{'aB3/' * 11}</ds:DigestValue><ds:SignatureValue>\n{'aB3+' * 86}\n</ds:SignatureValue></md:EntityDescriptor>"
    )
    metadata = identity_provider_metadata("https://idp.example.com/Acme2026", certificates=[rsa])
    keys = {"keys": [client_key(algorithm).jwk for algorithm in ("RS256", "ES256", "EdDSA")]}
    texts = {
        "certificate": (rsa, curve, rsa + curve, "".join(rsa.splitlines()[1:-1]), "not a certificate", ""),
        "metadata": (metadata, metadata.replace("</md:EntityDescriptor>", signature), f"{metadata}<ds:KeyName>{'aB3_' * 11}</ds:KeyName>"),
        "jwks": (json.dumps(keys), json.dumps(keys, indent=1)),
        "client_id": NAMES,
        "description": ("Administrators/owners keep the private key of Acme2026 " * 9,),
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
    """As `openssl pkey -text` prints it, or a part of it."""
    digits = ":".join(f"{number:02x}" for number in range(64))
    for text in (f"privateExponent:\n    {digits[:44]}", "priv:\n  01:02", digits, digits.replace(":", " "), digits.upper()):
        assert [name for name in (*sorted(KEY_FIELDS), "domain", "entity_id") if not can_hold_private_key(name, text)] == []
