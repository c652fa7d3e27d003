"""The names of problems of sign-ins through connections, for the sign-in log."""

import re

from core.federation.connections.model.openid import OpenIdAnswerRefused, OpenIdErrorReturned, OpenIdProviderUnreachable
from core.federation.connections.model.saml_responses import SamlResponseRefused, SamlStatusReturned
from core.kernel.errors import Refusal


def fault_of(problem: Refusal) -> str:
    """Return the fault of the answer, the error of the provider, or the name of our refusal."""
    match problem:
        case OpenIdAnswerRefused() | OpenIdProviderUnreachable() | SamlResponseRefused():
            return problem.fault
        case OpenIdErrorReturned():
            return problem.error
        case SamlStatusReturned():
            return problem.detail or problem.status
    return re.sub("(?<!^)(?=[A-Z])", "_", type(problem).__name__).lower()
