"""The page before an action: it names the consequences, and asks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from markupsafe import Markup
from quart import Blueprint, Response, request

from core.accounts.factor_changes import LostAccess
from core.kernel.errors import Refusal
from core.kernel.roles import Capability
from entrypoints.http.pages import console_forms
from entrypoints.http.pages.console import console_page

TEMPLATE: Final = "confirm.html"
PROGRAMS: Final = "Service accounts that you answer for go on for 72 hours, unless an admin ends them or takes them over"
RESET_LINK: Final = "We send a link to their own address, with which they set a new password."
V = TypeVar("V", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a page says and asks. GET shows it at the path that takes its form."""

    verb: str  # heads the page, before the object's name
    target: str  # the object's name
    consequences: Sequence[str]
    button: str  # empty: the page only says why the user cannot do this
    back: tuple[str, str]  # label and path of the previous page
    keep: str = "Cancel"  # the button that leaves
    typed_name: str | None = None  # the text that the user types to confirm
    name_label: str = "Name"  # the input label for this text
    reason: str | None = None  # the label for a reason field
    choice: tuple[str, str, Sequence[tuple[str, str]]] | None = None  # a field's name and label, with pairs of value and text
    checkbox: tuple[str, str, str] | None = None  # a box's name, label and hint
    dangerous: bool = True  # cannot be undone, or takes something away
    action: str | None = None  # the path that takes the form; None: the page's own path
    people: Sequence[str] = ()  # addresses: the action changes several people
    answered: Mapping[str, str] = field(default_factory=dict)  # form fields that are sent again with the answer
    chosen: Mapping[str, str] = field(default_factory=dict)  # the fields' first values


def sentence(text: str, *names: object) -> Markup:
    """Return a sentence with names that people chose in place of every `{}`."""
    return Markup(text.replace("{}", "<bdi>{}</bdi>")).format(*names)  # noqa: S704  (`text` is ours; format escapes the names)


def name_all(text: str, names: Sequence[str]) -> list[Markup]:
    """Return a sentence that ends with the names, or nothing without names."""
    places = ", ".join(["{}"] * len(names))
    return [sentence(f"{text}: {places}.", *names)] if names else []


def describe_losses(losses: Sequence[LostAccess]) -> list[Markup]:
    """Return a sentence about every organization and application that then asks for another factor, or asks first, at most ten."""
    refusals = {
        True: "Add another factor first: you are listed for break glass, for which {} requires this one.",
        False: "Add another factor first: {} requires this one.",
    }
    texts = {
        True: "{} then asks you to set up another factor before you sign in there.",
        False: "{} then asks you to set up another factor if the risk of a sign-in is high, such as from a new device.",
    }
    return [
        sentence(refusals[loss.is_for_break_glass] if loss.is_refused else texts[loss.always], loss.name)
        for loss in sorted(losses, key=lambda each: not each.is_refused)[:10]
    ]


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 user" or "2 users"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


async def ask(question: Question) -> Response:
    """Return the page that asks."""
    return await console_page(TEMPLATE, **question_values(question, question.chosen))


def ask_on_refusal(
    question: Callable[..., Awaitable[Question]],
    fields: console_forms.Fields = console_forms.NO_FIELDS,
    *,
    shown_to: Capability | None = None,
) -> Callable[[V], V]:
    """Decorate a question's form, as `on_refusal` does. `question` gets the route's parameters."""

    async def values(form: console_forms.Form, **parameters: Any) -> dict[str, Any]:
        return question_values(await question(**parameters), form)

    return console_forms.on_refusal(TEMPLATE, values, fields, shown_to=shown_to)


def accepts_answer(
    api: str,
    question: Callable[..., Awaitable[Question]],
    fields: console_forms.Fields = console_forms.NO_FIELDS,
    *,
    shown_to: Capability | None = None,
) -> Callable[[V], V]:
    """Decorate a question's form, as `accepts` and `ask_on_refusal` do."""
    return lambda view: console_forms.accepts(api)(ask_on_refusal(question, fields, shown_to=shown_to)(view))


def asks(routes: Blueprint, path: str) -> Callable[[V], V]:
    """Register a question's form, and the page that asks it at the same path."""
    return console_forms.serves_form(routes, path)


async def ask_again(refusal: Refusal, question: Question, form: Mapping[str, str]) -> Response:
    """Return the page after a refusal, with the reason."""
    return await console_forms.refused_console_page(refusal, TEMPLATE, **question_values(question, form))


def question_values(question: Question, form: Mapping[str, str]) -> dict[str, Any]:
    return {**asdict(question), "action": question.action or request.path, "typed": form or question.chosen}
