"""The actions on several members or pending invitations that were selected in the list: a page that names them and asks, and its forms."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response, request

from core.applications import removals
from core.kernel.access import RoleInsufficient
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import invitations, inviting, members, selected_people
from core.tenancy.model.members import NoneSelected, OwnershipNotAssignable, RoleUnknown, TooManySelected
from core.tenancy.selected_people import Change
from entrypoints.http import kit
from entrypoints.http.api.tenancy import roles
from entrypoints.http.pages import consequences, console, console_forms, form_values

routes = Blueprint("selected_people_pages", __name__)

ROLE_CONSEQUENCE: Final = (
    "Admins manage the organization and its applications. Members see them. The roles page shows what every other role may do. "
    "Credentials that a member created for service accounts and API resources end if the new role does not allow them."
)

REMOVAL_CONSEQUENCE: Final = (
    "Their sessions here end at once, and pending invitations from and to them are canceled. The credentials that they created for service "
    "accounts and API resources end, and the admins who can replace them get an email."
)
BLOCK: Final = "block"  # the checkbox of a removal
MOST_NAMED: Final = 50  # applications in a sentence

SELECTED: Final = "/app/organizations/<org_slug>/selected-people"
MEMBER: Final = "/api/organizations/<org_slug>/members/<user_id>"
INVITATION: Final = "/api/organizations/<org_slug>/invitations/<invitation_id>"
USER: Final = "user:"  # checkbox names begin with these
INVITED: Final = "invitation:"
ROLE_FIELDS: Final[console_forms.Fields] = {RoleUnknown: "role", OwnershipNotAssignable: "role"}
ANSWERS: Final = {303: console_forms.REDIRECTED, **console_forms.answers_with("The outcome for each of them, if some were refused.")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action on several people. `verb`, `consequence` and `button` belong to its question."""

    name: str  # the name of its form's view
    summary: str
    api: str
    change: Change | None  # None: the form's role is given
    label: str
    verb: str
    consequence: str
    button: str
    notice: str
    noun: str = "member"
    capability: Capability = Capability.MEMBERS_MANAGE
    dangerous: bool = False
    effect: kit.EffectRow = kit.GIVES

    @property
    def of_invitations(self) -> bool:
        return self.noun == "invitation"

    @property
    def prefix(self) -> str:
        """How the checkbox names for the people that the action can change begin."""
        return INVITED if self.of_invitations else USER


ACTIONS: Final[Mapping[str, Action]] = {
    "role": Action(
        name="change_roles",
        summary="Change the role of the selected members.",
        api=f"PATCH {MEMBER}",
        change=None,
        effect=kit.PROMOTES,
        label="Change role",
        verb="Change the role of",
        consequence=ROLE_CONSEQUENCE,
        button="Save role",
        notice="roles-changed",
        capability=Capability.ROLES_MANAGE,
    ),
    "end-sessions": Action(
        name="end_sessions",
        summary="End the sessions of the selected members.",
        api=f"DELETE {MEMBER}/sessions",
        change=members.revoke_sessions,
        effect=kit.ENDS,
        label="End sessions",
        verb="End the sessions of",
        consequence="Their sessions in this organization and its applications end. They can sign in again.",
        button="End sessions",
        notice="sessions-of-members-ended",
    ),
    "password-reset": Action(
        name="send_password_resets",
        summary="Send the selected members a link to set a new password.",
        api=f"POST {MEMBER}/password-reset",
        change=members.send_password_reset,
        label="Send reset link",
        verb="Send a reset link to",
        consequence="We send each of them a link to their own address, with which they set a new password.",
        button="Send reset links",
        notice="resets-sent",
    ),
    "remove": Action(
        name="remove",
        summary="Remove the selected members from the organization.",
        api=f"POST {MEMBER}",
        change=members.remove,
        label="Remove",
        verb="Remove",
        consequence=REMOVAL_CONSEQUENCE,
        button="Remove members",
        notice="members-removed",
        dangerous=True,
    ),
    "resend": Action(
        name="resend_invitations",
        summary="Send the selected invitations again.",
        api=f"POST {INVITATION}/resend",
        change=inviting.resend,
        label="Send invitation again",
        verb="Send again",
        consequence="Each of them gets a new email. The links of the earlier one no longer work.",
        button="Send invitations",
        notice="invitations-resent",
        noun="invitation",
    ),
    "cancel": Action(
        name="cancel_invitations",
        summary="Cancel the selected invitations.",
        api=f"POST {INVITATION}",
        change=invitations.cancel,
        label="Cancel invitation",
        verb="Cancel",
        consequence="The links in their emails no longer work.",
        button="Cancel invitations",
        notice="invitations-canceled",
        noun="invitation",
        dangerous=True,
    ),
}


def actions_on_people(*, with_invitations: bool) -> list[tuple[str, str, str, bool]]:
    """Return the actions that the user may take on several people: name, label, checkbox prefix, and whether it is dangerous."""
    return [
        (name, action.label, action.prefix, action.dangerous)
        for name, action in ACTIONS.items()
        if console.may(action.capability) and (with_invitations or not action.of_invitations)
    ]


@routes.get(SELECTED)
@kit.member_page(Capability.MEMBERS_MANAGE)
@console.shows(f"GET {MEMBER}", *(action.api for action in ACTIONS.values()))
async def show_question(org_slug: str) -> Response:
    """Name the people that were selected in the member list, and ask before an action on them."""
    name = request.args.get("action", "")
    try:
        return await consequences.ask(await _question(name, await _load(name, request.args)))
    except NoneSelected:
        return console.redirect_with_notice("none-selected", console.organization_path("/members"))
    except TooManySelected:
        return console.redirect_with_notice("too-many-selected", console.organization_path("/members"), count=selected_people.MAX_SELECTED)


async def _load(name: str, form: Mapping[str, str]) -> dict[UUID, Email]:
    """Return the selected people that the action can change, by their ids. Raises: NoneSelected, TooManySelected, RoleInsufficient."""
    if name not in ACTIONS:
        raise NoneSelected
    action = ACTIONS[name]
    if not console.may(action.capability):
        raise RoleInsufficient
    load = selected_people.load_invitations if action.of_invitations else selected_people.load_members
    ids = [kit.path_id(text) for text in form_values.checked(form, action.prefix)]
    return await load(kit.ports(), kit.acting_member(), ids) or refuse(NoneSelected)


async def removal_parts(selected: Mapping[UUID, Email]) -> dict[str, Any]:
    """Return the parts of a question that removes members: what stays open to them, and the box that blocks them."""
    outlook = await removals.load_outlook(kit.ports(), kit.acting_member(), selected)
    applications = outlook.open_applications or ()
    names, more = applications[:MOST_NAMED], len(applications) - MOST_NAMED
    remains = "Their account remains." if len(selected) == 1 else "Their accounts remain."
    texts: list[str] = [f"{REMOVAL_CONSEQUENCE} {remains}"]
    unless = "Unless you block them, they" if console.may(Capability.END_USERS_MANAGE) else "They"
    if outlook.open_applications is None:
        texts.append(f"{unless} can still sign in to applications that do not ask for a membership.")
    elif names:
        texts += consequences.name_all(f"{unless} can still sign in to these applications, which do not ask for a membership", names)
        texts += [f"{more:,} more stay open, too."] if more > 0 else []
    else:
        texts.append("They lose access to all applications of this organization.")
    if outlook.blocked >= set(selected):
        return {"consequences": (*texts, "They are blocked from all applications already, and stay blocked.")}
    if not console.may(Capability.END_USERS_MANAGE):
        return {
            "consequences": (*texts, "Ask an admin who manages users to block them there.")
            if names or outlook.open_applications is None
            else texts
        }
    used = sorted(selected[user_id] for user_id in outlook.used_before)
    texts += consequences.name_all("They used an application before they were members", used)
    label = f"Block from all applications of {outlook.organization}"
    hint = "Their sessions and consents there end at once. The block lasts until you unblock them under Users, also if they join again."
    return {"consequences": texts, "checkbox": (BLOCK, label, hint), "chosen": {} if used else {BLOCK: "yes"}}


async def _question(name: str, selected: Mapping[UUID, Email]) -> consequences.Question:
    action = ACTIONS[name]
    parts = await removal_parts(selected) if name == "remove" else {"consequences": (action.consequence,)}
    target = consequences.count(len(selected), action.noun)
    return consequences.Question(
        verb=action.verb,
        target=target,
        **parts,
        button=action.button,
        keep="Keep invitations" if name == "cancel" else "Cancel",
        back=("Members", console.organization_path("/members")),
        typed_name=target if name == "remove" else None,
        name_label="Number of members",
        choice=("role", "Role", roles.giveable_options(await roles.role_choices())) if name == "role" else None,
        dangerous=action.dangerous,
        action=console.organization_path(f"/selected-people/{name}"),
        people=sorted(selected.values()),
        answered={f"{action.prefix}{id_}": "yes" for id_ in selected},
    )


async def _act(name: str, form: console_forms.Form) -> Response:
    """Change the selected people. Return the page with every person's outcome, or to the list if all were changed."""
    action, selected = ACTIONS[name], await _load(name, form)
    if (typed_name := (await _question(name, selected)).typed_name) is not None:
        console_forms.check_typed_name(form, typed_name)
    if action.change is None:
        outcomes = await selected_people.change_roles(kit.ports(), kit.acting_member(), selected, form.get("role", ""))
    else:
        change = partial(removals.remove_member, blocks=BLOCK in form) if name == "remove" else action.change
        outcomes = await selected_people.change_each(kit.ports(), kit.acting_member(), selected, change)
    changed = sum(outcome.refusal is None for outcome in outcomes)
    if changed == len(outcomes):
        return console.redirect_with_notice(action.notice, console.organization_path("/members"), count=changed)
    return await console.console_page("tenancy/selected_people.html", action=action.label, outcomes=outcomes, changed=changed)


def _add_form(name: str, action: Action) -> None:
    """Add the route for an action's form."""

    async def values(form: console_forms.Form) -> dict[str, Any]:
        return consequences.question_values(await _question(name, await _load(name, form)), form)

    @kit.member_page(action.capability, action.effect)
    @console_forms.accepts(action.api, answers=ANSWERS)
    @console_forms.on_refusal(consequences.TEMPLATE, values, ROLE_FIELDS, refusals=(form_values.FieldInvalid, *ROLE_FIELDS))
    async def act(org_slug: str, form: console_forms.Form) -> Response:
        return await _act(name, form)

    act.__doc__ = action.summary
    routes.add_url_rule(f"{SELECTED}/{name}", endpoint=action.name, view_func=act, methods=["POST"])


for _name, _action in ACTIONS.items():
    _add_form(_name, _action)
