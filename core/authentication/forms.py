"""Forms that wait: sent with a sign-in that is too old, sent when their session had ended, or sent a second time (security A-12, G-2).

Every console form has a sealed owner: the user and the organization that its page was made for.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from core.authentication.model import sessions
from core.authentication.model.dpop import ProofUse
from core.kernel import callers, errors
from core.kernel.causes import Caller
from core.kernel.values import digest, new_id
from ports import Ports, crypto, storage


async def keep(ports: Ports, caller: callers.Person, path: str, label: str, fields: Mapping[str, str]) -> UUID:
    """Keep a form of the caller's session, and return its id. Of the session's forms, only the newest MAX_KEPT are kept.

    The edge has checked that our own page sent the form.
    """
    now = ports.clock.now()
    form = sessions.KeptForm(new_id(), caller.session_id, path, label, fields, now, now + sessions.KEPT_FOR)
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.kept_forms.add(form, sessions.MAX_KEPT):
            raise errors.SessionEnded
    return form.id


async def find_kept(ports: Ports, caller: callers.Person, form_id: UUID) -> sessions.KeptForm:
    """Return a kept form of the caller's session."""
    async with ports.storage.reading() as read:
        return await read.kept_forms.find(caller.session_id, form_id, ports.clock.now()) or errors.refuse(sessions.KeptFormEnded)


async def take_kept(ports: Ports, caller: callers.Person, form_id: UUID, path: str) -> Mapping[str, str]:
    """Return the fields of a form that was kept for this path, and forget it. It can be taken once."""
    async with ports.storage.transaction(by=caller) as tx:
        form = await tx.kept_forms.take(caller.session_id, form_id, path, ports.clock.now()) or errors.refuse(sessions.KeptFormEnded)
    return form.fields


MIN_KEY_LENGTH: Final = 16


class FormAlreadySent(errors.Invalid):
    """This form was already sent. Nothing was changed now."""


def once(ports: Ports, caller: callers.Person, path: str, key: str) -> Ports:
    """Return ports for a use case.

    Its transaction also uses up the key of a form that was sent to `path`.

    The transaction raises FormAlreadySent if the key was used before. So does a refusal while the use case
    reads, because it may be about what the first copy of the form has made. A use case that is refused rolls
    the key back, so the form can be sent again.
    """
    form_hash = digest(f"{caller.session_id} {path} {key}")
    return replace(ports, storage=_StorageForOneForm(ports.storage, form_hash, ports.clock.now() + ports.policy.session_absolute_ttl))


@dataclass(frozen=True, slots=True)
class _StorageForOneForm:
    """The storage, with a form's key in every transaction. The use case commits only one transaction. `expires_at` is UTC."""

    _storage: storage.Storage
    _form_hash: bytes
    _expires_at: datetime

    @asynccontextmanager
    async def transaction(self, by: Caller, *, in_session: bool = True) -> AsyncIterator[storage.Transaction]:
        async with self._storage.transaction(by=by, in_session=in_session) as tx:
            if not await tx.sent_forms.add(self._form_hash, self._expires_at):
                raise FormAlreadySent
            yield tx

    @asynccontextmanager
    async def reading(self, *, using: ProofUse | None = None) -> AsyncIterator[storage.Reading]:
        async with self._storage.reading(using=using) as read:
            try:
                yield read
            except errors.Refusal:
                if await read.sent_forms.contains(self._form_hash):
                    raise FormAlreadySent from None
                raise

    def autocommit(self) -> AbstractAsyncContextManager[storage.Autocommit]:
        return self._storage.autocommit()

    async def ping(self) -> None:
        await self._storage.ping()


RESTORABLE_FOR: Final = timedelta(minutes=15)
MAX_SEALED: Final = 128 * 1024  # characters, so that the form with it stays below the largest body
_OWNER: Final = crypto.SecretContext("ended_forms", "", "owner")
_FORM: Final = crypto.SecretContext("ended_forms", "", "form")


class FormNotRestorable(errors.Invalid):
    """This form was filled in more than 15 minutes ago, or by another user. Nothing was sent. Fill it in again."""


@dataclass(frozen=True, slots=True)
class EndedForm:
    """A form that its user has filled in. `org_id` is None outside the pages of an organization."""

    user_id: UUID
    org_id: UUID | None
    path: str  # that it was sent to
    fields: Mapping[str, str]
    expires_at: datetime


def seal_owner(ports: Ports, user: callers.Person) -> str:
    """Return the sealed owner for the forms of a page. During an impersonation it is empty: such forms are not restored."""
    if user.impersonator_id is not None:
        return ""
    org_id = str(user.acts_in.id) if isinstance(user, callers.Member) else None
    return _seal(ports, {"user": str(user.user_id), "org": org_id}, _OWNER)


def build_ended(ports: Ports, owner: str, path: str, fields: Mapping[str, str]) -> EndedForm | None:
    """Return this owner's form, which was sent to this path, or None if we did not seal the owner."""
    opened = _open(ports, owner, _OWNER)
    if opened is None:
        return None
    return _to_form(opened, path, fields, ports.clock.now() + RESTORABLE_FOR)


def seal_ended(ports: Ports, form: EndedForm) -> str | None:
    """Return the form as a text for its page, or None if it is too long."""
    org_id = None if form.org_id is None else str(form.org_id)
    values = {"user": str(form.user_id), "org": org_id, "path": form.path, "fields": dict(form.fields)}
    text = _seal(ports, {**values, "expires": form.expires_at.isoformat()}, _FORM)
    return text if len(text) <= MAX_SEALED else None


def open_ended(ports: Ports, text: str) -> EndedForm | None:
    """Return the form in a text of `seal_ended`, or None if it has expired or is not ours."""
    opened = _open(ports, text, _FORM)
    if opened is None:
        return None
    form = _to_form(opened, opened["path"], opened["fields"], datetime.fromisoformat(opened["expires"]))
    return form if ports.clock.now() < form.expires_at else None


def restore_ended(form: EndedForm | None, user: callers.Person, path: str) -> Mapping[str, str]:
    """Return the fields of a form for its user, at the path and in the organization that it was sent in."""
    org_id = user.acts_in.id if isinstance(user, callers.Member) else None
    if form is None or (form.user_id, form.org_id, form.path) != (user.user_id, org_id, path) or user.impersonator_id is not None:
        raise FormNotRestorable
    return form.fields


def _to_form(opened: Mapping[str, Any], path: str, fields: Mapping[str, str], expires_at: datetime) -> EndedForm:
    return EndedForm(UUID(opened["user"]), None if opened["org"] is None else UUID(opened["org"]), path, fields, expires_at)


def _seal(ports: Ports, values: Mapping[str, Any], context: crypto.SecretContext) -> str:
    return urlsafe_b64encode(ports.vault.seal(json.dumps(values).encode(), context)).decode()


def _open(ports: Ports, text: str, context: crypto.SecretContext) -> Any:
    try:
        return json.loads(ports.vault.open(urlsafe_b64decode(text.encode()), context))
    except (crypto.SealBroken, ValueError):  # `text` can be anything, and the key may have been removed since
        return None
