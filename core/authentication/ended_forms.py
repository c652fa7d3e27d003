"""Forms that were sent when their session had ended. The page has them, sealed; nothing is stored (decision 441).

Every console form has a sealed owner: the user and the organization that its page was made for.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from core.kernel.callers import Member, Person
from core.kernel.errors import Invalid
from ports import Ports
from ports.crypto import SealBroken, SecretContext

RESTORABLE_FOR: Final = timedelta(minutes=15)
MAX_SEALED: Final = 128 * 1024  # characters, so that the form with it stays below the largest body
_OWNER: Final = SecretContext("ended_forms", "", "owner")
_FORM: Final = SecretContext("ended_forms", "", "form")


class FormNotRestorable(Invalid):
    """This form was filled in more than 15 minutes ago, or by another user. Nothing was sent. Fill it in again."""


@dataclass(frozen=True, slots=True)
class EndedForm:
    """A form that its user has filled in. `org_id` is None outside the pages of an organization."""

    user_id: UUID
    org_id: UUID | None
    path: str  # that it was sent to
    fields: Mapping[str, str]
    expires_at: datetime


def seal_owner(ports: Ports, user: Person) -> str:
    """Return the sealed owner for the forms of a page. During an impersonation it is empty: such forms are not restored."""
    if user.impersonator_id is not None:
        return ""
    org_id = str(user.acts_in.id) if isinstance(user, Member) else None
    return _seal(ports, {"user": str(user.user_id), "org": org_id}, _OWNER)


def build(ports: Ports, owner: str, path: str, fields: Mapping[str, str]) -> EndedForm | None:
    """Return this owner's form, which was sent to this path, or None if we did not seal the owner."""
    opened = _open(ports, owner, _OWNER)
    if opened is None:
        return None
    return _to_form(opened, path, fields, ports.clock.now() + RESTORABLE_FOR)


def seal(ports: Ports, form: EndedForm) -> str | None:
    """Return the form as a text for its page, or None if it is too long."""
    org_id = None if form.org_id is None else str(form.org_id)
    values = {"user": str(form.user_id), "org": org_id, "path": form.path, "fields": dict(form.fields)}
    text = _seal(ports, {**values, "expires": form.expires_at.isoformat()}, _FORM)
    return text if len(text) <= MAX_SEALED else None


def open_sealed(ports: Ports, text: str) -> EndedForm | None:
    """Return the form in a text of `seal`, or None if it has expired or is not ours."""
    opened = _open(ports, text, _FORM)
    if opened is None:
        return None
    form = _to_form(opened, opened["path"], opened["fields"], datetime.fromisoformat(opened["expires"]))
    return form if ports.clock.now() < form.expires_at else None


def restore(form: EndedForm | None, user: Person, path: str) -> Mapping[str, str]:
    """Return the fields of a form for its user, at the path and in the organization that it was sent in."""
    org_id = user.acts_in.id if isinstance(user, Member) else None
    if form is None or (form.user_id, form.org_id, form.path) != (user.user_id, org_id, path) or user.impersonator_id is not None:
        raise FormNotRestorable
    return form.fields


def _to_form(opened: Mapping[str, Any], path: str, fields: Mapping[str, str], expires_at: datetime) -> EndedForm:
    return EndedForm(UUID(opened["user"]), None if opened["org"] is None else UUID(opened["org"]), path, fields, expires_at)


def _seal(ports: Ports, values: Mapping[str, Any], context: SecretContext) -> str:
    return urlsafe_b64encode(ports.vault.seal(json.dumps(values).encode(), context)).decode()


def _open(ports: Ports, text: str, context: SecretContext) -> Any:
    try:
        return json.loads(ports.vault.open(urlsafe_b64decode(text.encode()), context))
    except (SealBroken, ValueError):  # `text` can be anything, and the key may have been removed since
        return None
