"""Responses that must be refused, with their faults."""

from collections.abc import Callable, Mapping
from typing import Any

from core.federation.connections.model.saml_responses import SamlFault, SamlResponseRefused
from ports.saml import SamlProviders
from tests.support.saml.identity_provider import NOW, REQUEST, IdentityProvider

Case = Callable[[IdentityProvider], bytes]
Cases = Mapping[str, tuple[SamlFault, Case]]


async def refusals(verifier: SamlProviders, provider: IdentityProvider, cases: Cases, **partner: Any) -> list[tuple[str, object]]:
    """Return the cases that are not refused with their fault."""
    findings: list[tuple[str, object]] = []
    for name, (fault, case) in cases.items():
        outcome: object
        try:
            outcome = await verifier.read(await verifier.parse(case(provider)), provider.partner(**partner), NOW, expected=REQUEST)
        except SamlResponseRefused as refusal:
            outcome = refusal.fault
        findings += [(name, outcome)] if outcome != fault else []
    return findings
