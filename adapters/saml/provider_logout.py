"""Verifying logout requests from identity providers.

Sources: SAML profiles section 4.4.4.1; SAML bindings sections 3.4.4.1 and 3.5.4; security X-17.
"""

from collections.abc import Sequence

from adapters.saml import second_judge, signed_parts, verification
from adapters.saml.parsing import parse
from adapters.saml.sizes import check_size
from adapters.saml.xml import read_message
from core.federation.connections.model.saml_responses import SamlFault, SamlResponseRefused
from core.federation.saml.model.messages import LogoutRequest, LogoutSignatureInvalid, QuerySignature, SamlMessageInvalid


def read_request(document: bytes, signature: QuerySignature | None, certificates: Sequence[str]) -> LogoutRequest:
    """Return a LogoutRequest that is signed in the query, or in the document. Only signed content is read. Raises: SamlResponseRefused."""
    part = None
    try:
        root = parse(document)
        check_size(root)
        if signature is None:
            if root.find(signed_parts.SIGNATURE) is None:
                raise SamlResponseRefused(SamlFault.UNSIGNED)
            part = signed_parts.verify(root, certificates)
            root = part.root
        elif not any(_is_signed(signature, certificate) for certificate in certificates):
            raise SamlResponseRefused(SamlFault.SIGNATURE_WRONG)
        request = read_message(root)
    except SamlMessageInvalid:
        raise SamlResponseRefused(SamlFault.MALFORMED) from None
    if not isinstance(request, LogoutRequest):
        raise SamlResponseRefused(SamlFault.MALFORMED)
    second_judge.confirm(part)
    return request


def _is_signed(signature: QuerySignature, certificate: str) -> bool:
    try:
        verification.verify_query(signature, certificate)
    except LogoutSignatureInvalid:
        return False
    return True
