"""The console's forms: their documentation, their copies, their refusals, and forms with a passkey ceremony's result."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import get_annotations
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic import ValidationError
from quart import Blueprint, Response, g, request

from core.accounts.model.passkeys import Json
from core.authentication import browser, forms
from core.authentication.browser import FormTokenInvalid
from core.authentication.model.policy import StepUpNeeded
from core.kernel import errors
from core.kernel.roles import Capability
from core.kernel.sign_in_age import SignInNotRecent
from entrypoints.http import kit
from entrypoints.http.base import redirects
from entrypoints.http.edge import reauthentication
from entrypoints.http.edge.access.guards import opens_page_of
from entrypoints.http.edge.forms import FILE, note_sent, uploads
from entrypoints.http.pages import console
from entrypoints.http.pages.form_pages import refused_page
from entrypoints.http.pages.form_values import FieldInvalid
from ports import Ports

REDIRECTED: Final = "The change is saved. The browser is redirected to a page that shows it."
FOREIGN_FORM: Final = "The form does not come from our page."
NOT_ACCEPTED: Final = "A field is not valid, and the page gives the reason. Or the session has ended, and the page has the form."
ANSWERS_TO_FORM: Final = {303: REDIRECTED, 400: NOT_ACCEPTED, 403: FOREIGN_FORM}
ANSWERS_TO_BUTTON: Final = {303: REDIRECTED}
MAX_KEY_LENGTH: Final = 64
ONCE_ATTRIBUTE: Final = "_once"  # marks views with the decorator `once`
RESTORED: Final = "Your session had ended, so nothing was sent. Check the form, and send it again."
Fields: TypeAlias = Mapping[type[errors.Refusal], str]  # the field that a refusal is about
NO_FIELDS: Final[Fields] = MappingProxyType({})
# The access decorator answers the first with the sign-in page, and the second with a confirmation that
# comes back with the form. `once` answers the third.
OF_DECORATORS: Final = (errors.SessionEnded, SignInNotRecent, StepUpNeeded, forms.FormAlreadySent)
Form: TypeAlias = Mapping[str, str]  # a form's fields
V = TypeVar("V", bound=Callable[..., Any])
_SHOWN: Final = "_shown"  # an attribute on forms


def accepts(
    *api: str, answers: Mapping[int, str] = ANSWERS_TO_FORM, form: Sequence[str] = ("form_token",), page: str | None = None
) -> Callable[[V], V]:
    """Decorate a console form: read it, and document it, as in `shows`.

    Every form can be refused as foreign.

    `page` is the route for the page with the form, unless its path is the form's path or the next path above.

    Our own page must have sent it in this session. The view gets the fields as `form`, if it has this parameter. A form
    from an ended session is only shown again, by `on_refusal` or a view with `restores`. Views without them do not run.
    """

    def decorate(view: V) -> V:
        has_form, is_restorable = "form" in get_annotations(view), getattr(view, reauthentication.RESTORES_ATTRIBUTE, False)

        @wraps(view)
        async def run(**parameters: Any) -> Any:
            fields = await _read_form()
            if is_restored() and not is_restorable:
                return redirect_unsent()
            return await view(**parameters, **({"form": fields} if has_form else {}))

        setattr(run, redirects.PAGE_ATTRIBUTE, page)
        return kit.describes_page({403: FOREIGN_FORM, **answers}, form=form, api=api)(cast("V", run))

    return decorate


def restores(view: V) -> V:
    """Mark a view that shows a restored form with `restored_console_page`, and does not do what the form asks.

    Views with `on_refusal` show restored forms, too.
    """
    setattr(view, reauthentication.RESTORES_ATTRIBUTE, True)
    return view


def is_restored() -> bool:
    """Return whether this request's form comes back after its session ended, to be shown and not sent."""
    return bool(g.get("is_restored"))


def redirect_unsent() -> Response:
    """Redirect to the page with a form that is not sent again."""
    return kit.redirect(redirects.page_of_form(request.path), notice=kit.FORM_NOT_SENT)


async def restored_console_page(name: str, **values: Any) -> Response:
    """Return the page with a restored form, as it was filled in."""
    return kit.page_response(
        kit.render(
            name, status=400, scripted=True, **{**await console.frame_values(), **values, "done": RESTORED, "problem": None, "wrong": None}
        )
    )


def answers_with(page: str) -> dict[int, str]:
    """Return the documented answers to a form that is answered with a page, such as "The secret."."""
    return {200: page, 400: NOT_ACCEPTED}


class NameNotTyped(FieldInvalid):
    """Type the text exactly as it is shown to confirm."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__ or "", "confirmation")


async def refused_console_page(refusal: errors.Refusal, name: str, fields: Fields = NO_FIELDS, **values: Any) -> Response:
    """Return the page with a refused form, with the reason beside its field.

    Without `wrong`, `fields` tells the field.

    Raises: the refusal, if it is in OF_DECORATORS.
    """
    if isinstance(refusal, OF_DECORATORS):
        raise refusal
    return await _refused_page(refusal, name, **{"wrong": wrong_field(refusal, fields), **values})


async def _refused_page(refusal: errors.Refusal, name: str, **values: Any) -> Response:
    return refused_page(refusal, name, scripted=True, done=None, **{"wrong": None, **await console.frame_values(), **values})


async def _read_form() -> dict[str, str]:
    """Return the fields in a form that was made for this session.

    If the field `kept_form` is set, return the fields from the form that was kept while the user confirmed their
    sign-in. A form from an earlier session by the same user is restored.
    """
    form = await kit.read_form()
    if reauthentication.SEALED_FORM in form:
        return _restore(forms.open_ended(kit.ports(), form[reauthentication.SEALED_FORM]))
    try:
        browser.check_form_token(console.session_secret(), form.get("form_token", ""), console.impersonation_session())
    except FormTokenInvalid:
        ended = forms.build_ended(kit.ports(), form.get(reauthentication.OWNER, ""), request.path, reauthentication.without_secrets(form))
        if ended is None:
            raise
        return _restore(ended)
    if kit.KEPT_FORM in form:
        form = await kit.take_form(form[kit.KEPT_FORM])
    g.form_key = form.get("form_key", "")
    return form


def _restore(form: forms.EndedForm | None) -> dict[str, str]:
    """Return the fields from a form that was sent after its session ended, and mark the request."""
    fields = note_sent(dict(forms.restore_ended(form, kit.signed_in(), request.path)))
    g.is_restored = True
    # A form that was sent has a token. An empty form stands for a page that is opened (`serves_form`).
    return {"form_token": "", **fields}


def ports_once() -> Ports:
    """Return ports for the form's use case, which runs only once, even if the same copy of the form is sent again.

    The view needs `once`.

    Raises: FormTokenInvalid if the form has no key.
    """
    if not forms.MIN_KEY_LENGTH <= len(g.form_key) <= MAX_KEY_LENGTH:
        raise FormTokenInvalid
    return forms.once(kit.ports(), kit.signed_in(), request.path, g.form_key)


def once(path: str, label: str, advice: str) -> Callable[[V], V]:
    """Decorate a form that makes something, or shows a secret: the same copy of the form works only once.

    The view calls its use case with `ports_once()`. `path` leads to what the form has made, with the route's
    parameters; `label` names that page. `advice` says how to make another object or secret.
    """

    def decorate(view: V) -> V:
        @wraps(view)
        async def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return await view(*args, **kwargs)
            except forms.FormAlreadySent as refusal:
                return await _refused_page(refusal, "already_sent.html", leave=(label, kit.fill_in(path, kwargs)), advice=advice)

        setattr(run, ONCE_ATTRIBUTE, path)
        return cast("V", run)

    return decorate


def on_refusal(
    template: str,
    values: Callable[..., Awaitable[dict[str, Any]]],
    fields: Fields | Callable[[errors.Refusal, Form], str | None] = NO_FIELDS,
    *,
    refusals: tuple[type[errors.Refusal], ...] = (errors.Refusal,),
    shown_to: Capability | None = None,
) -> Callable[[V], V]:
    """Decorate a console form, below `accepts`: show its page again, with the reason, if the view is refused.

    `values(form, ...)` returns the page's values. It also gets the route's parameters, except `org_slug`, which `acting_member` stands for.
    `fields` maps refusals to fields, or is a function that does. A refusal outside `refusals` is answered with the error page, and so are
    all refusals for users who may not open the page, because they lack the right `shown_to`.
    """

    def decorate(view: V) -> V:
        @wraps(view)
        async def run(form: Form, **parameters: Any) -> Any:
            async def load() -> dict[str, Any]:
                return await values(form, **_without_slug(parameters))

            is_shown = shown_to is None or console.may(shown_to)
            if is_restored():
                return await restored_console_page(template, **await load()) if is_shown else redirect_unsent()
            try:
                return await view(**parameters, form=form)
            except OF_DECORATORS:
                raise
            except refusals as refusal:
                if not is_shown:
                    raise
                loaded = await load()
                if callable(fields):
                    return await refused_console_page(refusal, template, **{"wrong": fields(refusal, form), **loaded})
                return await refused_console_page(refusal, template, fields, **loaded)

        setattr(run, _SHOWN, (template, values))
        return restores(cast("V", run))

    return decorate


def _without_slug(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name != "org_slug"}


def serves_form(
    routes: Blueprint, path: str, *api: str, opens: Callable[[kit.View], kit.View] | None = None, query: type[kit.Query] | None = None
) -> Callable[[V], V]:
    """Register a form that has `on_refusal`, and its page at the same path.

    The page has the same callers as the form, or as `opens`.

    To show the page, `values` in `on_refusal` gets no fields, and with `query` also the parameter `query_args`. `api` names the page's
    operations, if the form has different operations.
    """

    def decorate(form: V) -> V:
        template, values = getattr(form, _SHOWN)

        async def page(**parameters: Any) -> Response:
            return await console.console_page(template, **await values({}, **_without_slug(parameters)))

        page.__name__, page.__module__ = f"show_{form.__name__}", form.__module__
        page.__doc__ = f"Show the form: {(form.__doc__ or '').partition(chr(10))[0]}"
        page.__annotations__ = {name: type_ for name, type_ in get_annotations(form).items() if name != "form"}
        page.__annotations__ |= {} if query is None else {"query_args": query}
        routes.get(path)((opens or opens_page_of(form))(console.shows(*api or kit.docs_of(form).api)(page)))
        return routes.post(path)(form)

    return decorate


def accepts_image(api: str, template: str, values: Callable[..., Awaitable[dict[str, Any]]]) -> Callable[[V], V]:
    """Decorate a form with an image, which `uploaded_file` returns, as `accepts` and `on_refusal` do."""

    def decorate(view: V) -> V:
        shown_again = on_refusal(template, values, lambda _, __: FILE, refusals=(errors.Invalid, errors.Limited))(uploads(view))
        return accepts(api, form=["form_token", FILE])(shown_again)

    return decorate


def wrong_field(refusal: errors.Refusal, fields: Fields) -> str | None:
    """Return the field that a refusal is about, or None. The page shows the reason beside it."""
    return refusal.field if isinstance(refusal, FieldInvalid) else fields.get(type(refusal))


def check_typed_name(form: Form, name: str) -> None:
    """Check that the `ui.confirm_name` form has this name."""
    if form.get("confirmation", "").strip() != name.strip():
        raise NameNotTyped


CREDENTIAL: Final = "credential"


class CredentialMissing(errors.Invalid):
    """Your browser sent no passkey. Turn on JavaScript, reload this page, and try again."""


def read_credential(form: Form, model: type[kit.RequestModel], refusal: type[errors.Refusal]) -> Json:
    """Return the credential, as the API takes it. Raises: CredentialMissing; `refusal` if it is malformed."""
    text = form.get(CREDENTIAL) or errors.refuse(CredentialMissing)
    try:
        return model.model_validate_json(text).model_dump()
    except ValidationError:
        raise refusal from None
