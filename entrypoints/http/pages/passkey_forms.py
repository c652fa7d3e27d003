"""Forms that `assets/passkeys.js` sends, with the result of a ceremony in the field `credential`."""

from typing import Final

from pydantic import ValidationError

from core.accounts.model.passkeys import Json
from core.kernel.errors import Refusal
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.pages.console_forms import Form

CREDENTIAL: Final = "credential"


MISSING: Final = "Your browser sent no passkey. Turn on JavaScript, reload this page, and try again."


def read_credential(form: Form, model: type[RequestModel], refusal: type[Refusal]) -> Json:
    """Return the credential, in the form of the API. Raises: `refusal` if it is missing or malformed."""
    text = form.get(CREDENTIAL, "")
    if not text:
        raise refusal(MISSING)
    try:
        return model.model_validate_json(text).model_dump()
    except ValidationError:
        raise refusal from None
