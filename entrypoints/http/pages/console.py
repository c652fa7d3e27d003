"""What all pages of the console share: the frame around a page, its forms, and the message about the last change.

The pages call the use cases of the API, for callers with the same capability. After a change the
browser is redirected, so that reloading the page repeats nothing. Only a secret that is shown once
is in the direct response to its form. docs/contributing/adding-a-page.md shows how to add a page.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from itertools import islice
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode
from uuid import UUID

from pydantic import ValidationError, model_validator
from quart import Response, current_app, g, request

from core.authentication import browser, sent_forms
from core.authentication.browser import FormTokenInvalid
from core.authentication.sent_forms import MIN_KEY_LENGTH, FormAlreadySent
from core.kernel.callers import Member, OrganizationStatus
from core.kernel.errors import Invalid, Refusal, refuse
from core.kernel.roles import Capability, has_capability
from core.kernel.sign_in_age import SignInNotRecent
from core.tenancy import organizations
from entrypoints.http.edge import cookies
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.edge.context import acting_member, app_context, page_response, ports, signed_in
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.openapi import api_of, describes_page
from entrypoints.http.edge.queries import PageQuery, PartQuery, Query
from entrypoints.http.edge.reauthentication import KEPT_FORM, take_form
from entrypoints.http.edge.typed_fields import trim
from entrypoints.http.pages import render
from entrypoints.http.pages.authentication.sign_in import redirect, refused_page
from entrypoints.http.pages.curl import commands
from entrypoints.http.pages.navigation import ORGANIZATION_PATH, links_for
from entrypoints.http.pages.notices import NOTICES
from ports import Ports

REDIRECTED: Final = "The change is saved. The browser is redirected to a page that shows it."
FOREIGN_FORM: Final = "The form does not come from our page."
NOT_ACCEPTED: Final = "A field is not valid. The page gives the reason."
ANSWERS_TO_FORM: Final = {303: REDIRECTED, 400: NOT_ACCEPTED, 403: FOREIGN_FORM}
MAX_KEY_LENGTH: Final = 64
ONCE_ATTRIBUTE: Final = "_once"  # of views with the decorator `once`
SWITCHER_SIZE: Final = 10  # organizations in the switcher
DAY_PARAMETERS: Final = frozenset({"since", "until"})  # parameters that are times in the API and days in forms
DAY: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
REASONS: Final = {"missing": "Enter a value.", "int_type": "Enter a whole number."}
MAX_SLUGS: Final = 20  # that are tried for a name
M = TypeVar("M", bound=RequestModel)
T = TypeVar("T")
V = TypeVar("V", bound=Callable[..., Any])


def shows(*api: str) -> Callable[[V], V]:
    """Document a page of the console. `api` names the operations of the API that do the same, the main one first."""
    return describes_page({200: "The page."}, api=api)


def accepts(*api: str, answers: Mapping[int, str] = ANSWERS_TO_FORM) -> Callable[[V], V]:
    """Document a form of the console, as in `shows`."""
    return describes_page(answers, form=["form_token"], api=api)


def as_api_reads(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a form that filters a list as the API reads them.

    Texts are trimmed, and an empty value counts as missing. A day in `since` or `until` stands for its first moment (UTC).
    """
    trimmed = {name: trim(value) if isinstance(value, str) else value for name, value in values.items()}
    return {
        name: to_start_of_day(value) if name in DAY_PARAMETERS and isinstance(value, str) and DAY.fullmatch(value) else value
        for name, value in trimmed.items()
        if value != ""
    }


class ListQuery(Query):
    """The query of a list, as its form sends it. The names are those of the API."""

    @model_validator(mode="before")
    @classmethod
    def _as_api_reads(cls, values: dict[str, Any]) -> dict[str, Any]:
        return as_api_reads(values)


class FieldInvalid(Invalid):
    """A field of the form cannot be used."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class NameNotTyped(FieldInvalid):
    """Type the text exactly as it is shown to confirm."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__ or "", "confirmation")


async def console_page(name: str, **values: Any) -> Response:
    """Return a page of the console, with the message about the last change."""
    notice = cookies.notice_cookie()
    values = {"problem": None, "wrong": None, **await _frame(), **values}
    response = page_response(render(name, scripted=True, done=_message(notice), **values))
    if notice is not None:
        cookies.clear_notice_cookie(response)
    return response


async def refused_console_page(refusal: Refusal, name: str, **values: Any) -> Response:
    """Return the page of a refused form, with the reason. `wrong` is the field that the refusal is about.

    Raises: SignInNotRecent, if that is the refusal: the access decorator asks for a confirmation, and comes back with the form;
    FormAlreadySent, for the decorator `once`.
    """
    if isinstance(refusal, SignInNotRecent | FormAlreadySent):
        raise refusal
    return await _refused_page(refusal, name, **values)


async def _refused_page(refusal: Refusal, name: str, **values: Any) -> Response:
    return refused_page(refusal, name, scripted=True, done=None, **{"wrong": None, **await _frame(), **values})


async def secret_page(heading: str, secrets: Mapping[str, str], *, advice: str, done: tuple[str, str]) -> Response:
    """Return the page that shows secrets once: label and value. `done` is the label and the path of the button that leaves it."""
    return await console_page("secret.html", page_heading=heading, secrets=secrets, advice=advice, leave=done)


async def _frame() -> dict[str, Any]:
    """Return the values of the frame around the page."""
    user = signed_in()
    memberships = await organizations.list_own(ports(), user)
    slug = user.acts_in.slug if isinstance(user, Member) else None
    view = current_app.view_functions.get(request.endpoint or "")
    frame = {
        "email": user.email,
        "is_impersonated": user.impersonator_id is not None,
        "own_token": browser.form_token(session_secret()),
        "navigation": links_for(user, request.path),
        "here": next((organization for organization, _ in memberships if organization.slug == slug), None),
        "organizations": [
            (organization.name, ORGANIZATION_PATH.format(slug=organization.slug), membership.role)
            for organization, membership in memberships
            if organization.slug != slug and organization.status is OrganizationStatus.ACTIVE and membership.confirmed_at is not None
        ][:SWITCHER_SIZE],
        "curl": commands(current_app, api_of(view), app_context().base_url, request.view_args or {}, urlencode(as_api_reads(request.args))),
    }
    root = organization_path() if isinstance(user, Member) else None
    token = browser.form_token(session_secret(), _impersonation())
    return {"form_token": token, "frame": frame, "with_query": with_query, "may": may, "root": root}


def _impersonation() -> UUID | None:
    """Return the session in which this browser impersonates a user, or None."""
    user = signed_in()
    return None if user.impersonator_id is None else user.session_id


def may(capability: str) -> bool:
    """Return whether the user has the capability in the organization of the page. Pages leave out what the user may not do."""
    user = signed_in()
    return isinstance(user, Member) and has_capability(user.acts_in.role, Capability(capability))


def organization_path(below: str = "") -> str:
    """Return the path of the overview of the organization, or of a page below it, such as `/members`."""
    return ORGANIZATION_PATH.format(slug=acting_member().acts_in.slug) + below


def with_query(**changes: Any) -> str:
    """Return the query of the current page with changes. None and an empty text remove a parameter."""
    values = {**request.args, **changes}
    return "?" + urlencode({name: value for name, value in values.items() if value not in (None, "")})


def neighbors(query: PageQuery | PartQuery, total: int) -> dict[str, Any]:
    """Return the values of `ui.pager` for a part of a list with `total` rows."""
    limit = query.limit
    offset = query.offset if isinstance(query, PartQuery) else query.page_request().offset
    here, last = offset // limit + 1, -(-total // limit)

    def link(number: int) -> str:
        if isinstance(query, PartQuery):
            return with_query(offset=(number - 1) * limit or None)
        return with_query(page=number if number > 1 else None)

    return {
        "previous": link(here - 1) if here > 1 else None,
        "next": link(here + 1) if here < last else None,
        "summary": f"Page {here} of {last:,}" if last > 1 else None,
    }


def session_secret() -> str:
    """Return the cookie of the browser's session. Raises: FormTokenInvalid."""
    return cookies.session_cookie() or refuse(FormTokenInvalid)


def redirect_with_notice(notice: str, target: str, *, count: int | None = None) -> Response:
    """Redirect to a page that shows a notice, which is a key of NOTICES."""
    response = redirect(target)
    cookies.set_notice_cookie(response, notice if count is None else f"{notice}.{count}")
    return response


def _message(notice: str | None) -> str | None:
    name, _, count = (notice or "").partition(".")
    message = NOTICES.get(name)
    if message is None or (count and not (count.isascii() and count.isdigit())):
        return None
    return message.format(count=count)


# Forms


async def read_console_form() -> dict[str, str]:
    """Return the fields of a form that was made for this session.

    If the form names a kept one, return the fields of that one, which was sent with a sign-in that was too old.

    Raises: FormTokenInvalid; KeptFormEnded; the errors of `read_form`.
    """
    form = await read_form()
    browser.check_form_token(session_secret(), form.get("form_token", ""), _impersonation())
    if KEPT_FORM in form:
        form = await take_form(form[KEPT_FORM])
    g.form_key = form.get("form_key", "")
    return form


def ports_once() -> Ports:
    """Return ports for the use case that the form stands for, which runs once for each copy of the form. The view needs `once`.

    Raises: FormTokenInvalid if the form has no key, as those of earlier releases.
    """
    if not MIN_KEY_LENGTH <= len(g.form_key) <= MAX_KEY_LENGTH:
        raise FormTokenInvalid
    return sent_forms.once(ports(), signed_in(), request.path, g.form_key)


def once(path: str, label: str, advice: str) -> Callable[[V], V]:
    """Decorate a form that makes something, or shows a secret: each copy of it works once (decision 410).

    The view calls its use case with `ports_once()`. `path` leads to what the form has made, with the
    parameters of the route; `label` names that page. `advice` says how to get another one.
    """

    def decorate(view: V) -> V:
        @wraps(view)
        async def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return await view(*args, **kwargs)
            except FormAlreadySent as refusal:
                target = re.sub("<([a-z_]+)>", lambda match: quote(kwargs[match[1]]), path)
                return await _refused_page(refusal, "already_sent.html", leave=(label, target), advice=advice)

        setattr(run, ONCE_ATTRIBUTE, path)
        return cast("V", run)

    return decorate


def to_model(model: type[M], form: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]] | None = None) -> M:
    """Return the request of the API that a form stands for. The model of the API checks it, as it checks a request.

    A text is stripped, and an empty one counts as missing. `parsers` read the fields that are no
    texts: a field without an input in the form, such as a checkbox that is not checked, is "".

    Raises: FieldInvalid with the first field that is not valid; what a parser raises.
    """
    fields: dict[str, Any] = {name: form[name].strip() for name in model.model_fields if form.get(name, "").strip()}
    fields |= {name: parse(form.get(name, "")) for name, parse in (parsers or {}).items()}
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = detail["msg"].removeprefix("Value error, ")
        message = REASONS.get(detail["type"], f"{reason[0].upper()}{reason[1:]}.")
        raise FieldInvalid(message, str(detail["loc"][0]) if detail["loc"] else "") from None
    except Invalid as refusal:  # of a value of the core, such as an email address
        raise FieldInvalid(refusal.message, next((name for name in fields if _is_refused(model, name, fields[name])), "")) from None


def _is_refused(model: type[RequestModel], name: str, value: Any) -> bool:
    try:
        model.model_validate({name: value})
    except ValidationError:  # the other fields are missing
        return False
    except Invalid:
        return True
    return False


async def create_with_free_slug(slugs: Iterator[str], create: Callable[[str], Awaitable[T]], taken: type[Refusal]) -> T:
    """Return what `create` returns for the first slug that is free, of at most MAX_SLUGS.

    Raises: `taken` if none is free; the other errors of `create`.
    """
    candidates = list(islice(slugs, MAX_SLUGS))
    for slug in candidates[:-1]:
        with suppress(taken):
            return await create(slug)
    return await create(candidates[-1])


def to_lines(text: str) -> list[str]:
    """Return the lines of a text, without empty ones. A parser for `to_model`."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_checked(text: str) -> bool:
    """Return whether a checkbox was checked. A parser for `to_model`."""
    return text != ""


def to_optional(text: str) -> str | None:
    """Return the text without spaces around it, or None for an empty one. A parser for `to_model`."""
    return text.strip() or None


def to_start_of_day(text: str) -> str | None:
    """Return the first moment (UTC) of a day, or None for an empty text. A parser for `to_model`, which refuses other texts."""
    return f"{text.strip()}T00:00:00Z" if text.strip() else None


def to_number(text: str) -> int | None:
    """Return the integer in a text, or None for an empty one. A parser for `to_model`; the model refuses other texts."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else (text or None)  # type: ignore[return-value]


def wrong_field(refusal: Refusal, fields: Mapping[type[Refusal], str]) -> str | None:
    """Return the field that a refusal is about, or None if it is about none of them. The page shows the reason beside it."""
    return refusal.field if isinstance(refusal, FieldInvalid) else fields.get(type(refusal))


def check_typed_name(form: Mapping[str, str], name: str) -> None:
    """Check that the form of `ui.confirm_name` has this name. Raises: NameNotTyped."""
    if form.get("confirmation", "").strip() != name.strip():
        raise NameNotTyped
