"""Forms that `assets/passkeys.js` sends, with a ceremony's result in the field `credential`."""

from typing import Final

from pydantic import ValidationError

from core.accounts.model.passkeys import Json
from core.kernel.errors import Invalid, Refusal, refuse
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.pages.console_forms import Form

CREDENTIAL: Final = "credential"


class CredentialMissing(Invalid):
    """Your browser sent no passkey. Turn on JavaScript, reload this page, and try again."""


def read_credential(form: Form, model: type[RequestModel], refusal: type[Refusal]) -> Json:
    """Return the credential, as the API takes it. Raises: CredentialMissing; `refusal` if it is malformed."""
    text = form.get(CREDENTIAL) or refuse(CredentialMissing)
    try:
        return model.model_validate_json(text).model_dump()
    except ValidationError:
        raise refusal from None
