"""The values for pages about an organization's tokens."""

from collections.abc import Sequence
from typing import Any, Final

from core.applications import analytics
from core.eventing.audit import load_authors
from core.programs.model.registration_tokens import RegistrationToken
from core.provisioning.model.directories import ScimToken
from entrypoints.http import kit
from entrypoints.http.pages.console_forms import Form

LISTED: Final = 1_000  # credentials to review


async def token_values(tokens: Sequence[ScimToken] | Sequence[RegistrationToken], typed: Form) -> dict[str, Any]:
    """Return the tokens with their authors, the ids of the tokens to review, the present time and the typed fields."""
    return {
        "tokens": tokens,
        "authors": await load_authors(kit.ports(), kit.acting_member(), {token.created_by for token in tokens}),
        "to_review": {each.id for each in await analytics.list_to_review(kit.ports(), kit.acting_member(), LISTED)},
        "now": kit.ports().clock.now(),
        "typed": typed,
    }
