"""The parser for SAML documents (security X-2)."""

import re
from typing import Any

from lxml import etree

from core.federation.saml.model.messages import SamlMessageInvalid

_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""")


def parse(document: bytes) -> Any:
    """Return a document's root without DTD, entities, comments and processing instructions. Raises: SamlMessageInvalid."""
    # Refuse a DOCTYPE before parsing. Only UTF-8 is accepted: in another encoding, a DOCTYPE would
    # consist of different bytes (security X-2).
    declared = _ENCODING.match(document)
    if b"<!DOCTYPE" in document or (declared is not None and declared[1].lower() != b"utf-8"):
        raise SamlMessageInvalid
    parser = etree.XMLParser(
        encoding="utf-8",
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        resolve_entities=False,
        huge_tree=False,
        remove_comments=True,  # a comment would split a text and hide the part after it (CVE-2026-57580)
    )
    try:
        document.decode("utf-8")
        root = etree.fromstring(document, parser)
    except (etree.XMLSyntaxError, ValueError):
        raise SamlMessageInvalid from None
    siblings = (*root.itersiblings(preceding=True), *root.itersiblings())
    if siblings or next(root.iter(etree.ProcessingInstruction, etree.Entity, etree.Comment), None) is not None:
        raise SamlMessageInvalid
    return root
