"""The limits for a received document. Without limits, a canonical form can take seconds and gigabytes (security X-12)."""

from collections.abc import Iterable
from typing import Any, Final

from lxml import etree

from adapters.saml.decryption import XENC
from adapters.saml.signatures import DSIG
from core.federation.connections.model import saml_responses

_LONG_TEXTS: Final = frozenset([f"{{{DSIG}}}X509Certificate", f"{{{XENC}}}CipherValue"])


def check_size(root: Any, *, has_long_texts: bool = True) -> None:
    """Check a received document's limits. Raises: SamlResponseRefused."""
    depth = elements = namespaces = 0
    for event, node in etree.iterwalk(root, events=("start", "end", "start-ns", "end-ns")):
        match event:
            case "start":
                depth, elements = depth + 1, elements + 1
                is_small = (
                    len(node.attrib) <= saml_responses.MAX_XML_ATTRIBUTES
                    and depth <= saml_responses.MAX_DEPTH
                    and elements <= saml_responses.MAX_ELEMENTS
                )
                if is_small and has_long_texts:
                    texts = () if node.tag in _LONG_TEXTS else (node.text, node.tail)
                    is_small = _are_short((*texts, *node.attrib.values()), saml_responses.MAX_TEXT)
                _require(is_small)
            case "end":
                depth -= 1
            case "start-ns":
                namespaces += 1
                _require(namespaces <= saml_responses.MAX_NAMESPACES and _are_short(node, saml_responses.MAX_NAMESPACE))
            case "end-ns":
                namespaces -= 1
    for name, limit in (("Attribute", saml_responses.MAX_ATTRIBUTES), ("AttributeValue", saml_responses.MAX_VALUES)):
        _require(sum(1 for _ in root.iter(f"{{*}}{name}")) <= limit)


def _are_short(texts: Iterable[str | None], limit: int) -> bool:
    return all(text is None or len(text) <= limit for text in texts)


def _require(is_small: bool) -> None:
    if not is_small:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.TOO_LARGE)
