"""The `gatehouse doctor` checks for passkeys and for the platform owners' factors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from core.accounts import relying_party
from core.accounts.relying_party import RELATED_ORIGINS_PATH
from core.kernel.display import format_day
from core.kernel.outbound import SendFailed
from core.kernel.policy import Policy
from entrypoints import doctor
from ports.outside import HttpSender
from ports.storage import Storage

_DEADLINE: Final = 5.0  # seconds
_SUBJECT: Final = "passkeys"
_OWNERS: Final = "platform owners"
_MAX_LISTED: Final = 5


async def check_rp_id(storage: Storage, sender: HttpSender, policy: Policy, base_url: str) -> list[doctor.Finding]:
    """Report passkeys for another host: the file that it has to serve, and the users who would set up new passkeys."""
    async with storage.reading() as read:
        rp_id = relying_party.choose_id(policy, base_url, await read.passkeys.rp_id())
        if rp_id is None:
            return []
        users = await read.passkeys.users_by_rp_id(rp_id)
    findings = list(_check_lost(users, rp_id))
    if origins := relying_party.foreign_origins(policy, base_url, rp_id):
        findings.append(await _check_file(sender, rp_id, origins, users.get(rp_id, 0)))
    return findings


async def check_owners(storage: Storage, policy: Policy, base_url: str, now: datetime) -> list[doctor.Finding]:
    """Report the platform owners whose password alone signs in, or who have no other factor that works here.

    Also report when the platform's policy starts to ask for more.
    """
    async with storage.reading() as read:
        owners = await read.accounts.platform_owner_addresses()
        rp_id = relying_party.choose_id(policy, base_url, await read.passkeys.rp_id())
        lacking = await read.accounts.owner_addresses_without_second_factor(rp_id)
        alone = await read.accounts.owner_addresses_with_password_alone()
        rules = await read.sign_in_policies.find(None)
    if not lacking and alone:
        text = (
            f"the password alone signs in to the accounts of {_list(alone)}. On the page Security, they make the passkey the second factor"
        )
        return [doctor.Finding(_OWNERS, doctor.Health.WARNING, f"{text}, or remove the password")]
    if not lacking:
        return [doctor.Finding(_OWNERS, doctor.Health.GOOD, "all have a second factor or a passkey")] if owners else []
    text = f"{_list(lacking)} {'has' if len(lacking) == 1 else 'have'} no second factor and no passkey"
    if rules is None:  # no owner has signed in yet
        text += ". A stolen password opens the platform. Set one up on the page Security of the account"
    elif (due := rules.second_factor_due(now)) is None:
        text += ", so the pages of the platform are closed to them until they set one up"
    else:
        text += f". From {format_day(due)} on, the pages of the platform open only with one"
    return [doctor.Finding(_OWNERS, doctor.Health.WARNING, text)]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_LISTED]) + (f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else "")


async def _check_file(sender: HttpSender, rp_id: str, origins: Sequence[str], users: int) -> doctor.Finding:
    url = f"https://{rp_id}{RELATED_ORIGINS_PATH}"
    text = f"their host is {rp_id}. {url} must serve {json.dumps({'origins': list(origins)})}"
    problem = await _find_problem(sender, url, origins)
    if problem is None:
        return doctor.Finding(_SUBJECT, doctor.Health.GOOD, f"{text}, and does. Without it, {_count(users)} would set up new ones")
    advice = f"Serve it, or set SSO_PASSKEY_RP_ID to a host of your own pages. Without it, {_count(users)} must set up new ones"
    return doctor.Finding(_SUBJECT, doctor.Health.WARNING, f"{text}, but {problem}. {advice}")


async def _find_problem(sender: HttpSender, url: str, origins: Sequence[str]) -> str | None:
    try:
        reply = await sender.get(url, _DEADLINE)
    except SendFailed as failure:
        return failure.reason.value
    if not reply.is_success:
        return f"it answered {reply.status}"
    try:
        answer: Any = json.loads(reply.body)
    except (ValueError, RecursionError):
        return "its answer is not JSON"
    listed = answer.get("origins") if isinstance(answer, dict) else None
    missing = [origin for origin in origins if not isinstance(listed, list) or origin not in listed]
    return f"it does not list {' and '.join(missing)}" if missing else None


def _check_lost(users: Mapping[str, int], rp_id: str) -> Iterator[doctor.Finding]:
    for other, count in users.items():
        if other != rp_id:
            has = "has" if count == 1 else "have"
            text = f"{_count(count)} {has} passkeys for {other} only, which do not work here: they sign in another way, and add new ones"
            yield doctor.Finding(_SUBJECT, doctor.Health.WARNING, text)


def _count(users: int) -> str:
    return "1 user" if users == 1 else f"{users} users"
