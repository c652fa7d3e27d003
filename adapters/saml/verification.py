"""Verifying service signatures.

Sources: SAML core section 5.4; SAML bindings section 3.4.4.1; security X-9.
"""

import base64
import binascii
from typing import Any

from adapters.crypto import is_signed_by
from adapters.saml import second_judge, signed_parts
from adapters.saml.sizes import check_size
from core.federation.connections.model.saml_responses import SamlResponseRefused
from core.federation.saml.model import messages


def verify_query(signature: messages.QuerySignature, certificate: str) -> None:
    """Check that the query is signed with this certificate's key. Raises: LogoutSignatureInvalid."""
    try:
        algorithm, value = signed_parts.RSA_ALGORITHMS[signature.algorithm], base64.b64decode(signature.value, validate=True)
    except (KeyError, binascii.Error, ValueError):
        raise messages.LogoutSignatureInvalid from None
    if not is_signed_by(certificate, algorithm, value, signature.signed):
        raise messages.LogoutSignatureInvalid


def verify(root: Any, certificate: str) -> bool:
    """Return whether the document is signed with this certificate's key.

    The only accepted signature is the root's child, and covers the root. So it covers the elements that are read.

    Raises: LogoutSignatureInvalid.
    """
    signatures = list(root.iter(signed_parts.SIGNATURE))
    if not signatures:
        return False
    if len(signatures) != 1:
        raise messages.LogoutSignatureInvalid
    try:
        check_size(root)
        second_judge.confirm(signed_parts.verify(root, [certificate]))
    except SamlResponseRefused as refusal:
        raise messages.LogoutSignatureInvalid from refusal
    return True
