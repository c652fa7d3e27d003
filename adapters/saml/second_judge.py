"""xmlsec as the second judge, for signatures that `signed_parts` has verified (docs/adr/0045).

Sources: XML Signature section 3.2; security X-18.
"""

from functools import lru_cache
from typing import Any, Final

import xmlsec

from adapters.crypto import public_key_of
from adapters.saml import signed_parts
from core.federation.connections.model import saml_responses

_DIGESTS: Final = (xmlsec.constants.TransformSha256, xmlsec.constants.TransformSha384, xmlsec.constants.TransformSha512)
_REFERENCE: Final = (xmlsec.constants.TransformEnveloped, xmlsec.constants.TransformExclC14N, *_DIGESTS)
_RSA: Final = (xmlsec.constants.TransformRsaSha256, xmlsec.constants.TransformRsaSha384, xmlsec.constants.TransformRsaSha512)
_SIGNATURE: Final = (xmlsec.constants.TransformExclC14N, *_RSA)


def confirm(*parts: signed_parts.SignedPart | None) -> None:
    """Require that xmlsec verifies every signed part with the key that our own code used. Call this last, for a message that is accepted.

    Raises: SamlResponseRefused.
    """
    try:
        for part in filter(None, parts):
            context = xmlsec.SignatureContext()
            for transform in _REFERENCE:
                context.enable_reference_transform(transform)
            for transform in _SIGNATURE:
                context.enable_signature_transform(transform)
            context.key = _load(part.certificate)
            context.register_id(part.document, "ID")  # fails if another element has the same xml:id
            context.verify(part.document.find(signed_parts.SIGNATURE))
    except xmlsec.Error as error:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_DISPUTED) from error


@lru_cache(maxsize=256)
def _load(certificate: str) -> Any:
    """Return a certificate's public key (PEM). xmlsec would copy the whole certificate for every signature."""
    return xmlsec.Key.from_memory(public_key_of(certificate), xmlsec.constants.KeyDataFormatPem)
