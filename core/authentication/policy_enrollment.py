"""The page on which users set up a factor that a sign-in policy requires."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from core.accounts import factor_changes
from core.authentication import admissions
from core.authentication.model.policy import PolicyPlace
from core.authentication.service_access import Opened
from core.kernel.callers import Person
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_age import SignInAge
from ports import Ports
from ports.storage import Reading


@dataclass(frozen=True, slots=True)
class Enrollment:
    """The answer of a sign-in policy to a user, who may have to set up a factor."""

    admission: admissions.Admission = admissions.NO_ADMISSION
    needs_recovery: bool = False  # only a recovery gives the account the factor


NO_ENROLLMENT: Final = Enrollment()


async def find_enrollment(ports: Ports, user: Person, place: PolicyPlace, age: SignInAge = SignInAge.ANY) -> Enrollment:
    """Return what a sign-in policy asks of the user, from the organization, its application, or the platform for its owners.

    An organization that does not know the user, or does not exist, asks for nothing. So the answer does not tell which organizations exist.
    With an application that the user may use, the user can be new. An application that the user may not use counts as missing. In a session
    that is good in one organization only, no further organization asks for anything. `age` is that of the sign-in which a request in the
    organization needs.
    """
    if place.org_slug is None and not user.is_platform_owner:
        return NO_ENROLLMENT
    if place.org_slug is None:
        admission = await admissions.judge_session(ports, PolicyPath.ENROLL, Opened(), user)
        return await _to_enrollment(ports, admission, user)
    async with ports.storage.reading() as read:
        org_id = await read.organizations.id_by_slug(place.org_slug)
        if org_id is None or user.restricted_to not in (None, org_id):
            return NO_ENROLLMENT
        found = None if place.service_slug is None else await read.services.client_by_slug(place.org_slug, place.service_slug)
        if found is not None and not await read.end_users.may_use(org_id, found[0].id, user.user_id, ports.clock.now()):
            found = None
        if found is None and not await _is_known(read, org_id, user.user_id):
            return NO_ENROLLMENT
    opened = Opened(org_id, None if found is None else found[0].id)
    return await _to_enrollment(ports, await admissions.judge_session(ports, PolicyPath.ENROLL, opened, user, age), user)


async def _to_enrollment(ports: Ports, admission: admissions.Admission, user: Person) -> Enrollment:
    needs_recovery = False
    if admission.subject is not None and admission.needs_factor:
        async with ports.storage.reading() as read:
            account = admission.subject.account
            needs_recovery = await factor_changes.needs_recovery(ports, read, account, ports.clock.now(), user.session_id)
    return Enrollment(admission, needs_recovery)


async def _is_known(read: Reading, org_id: UUID, user_id: UUID) -> bool:
    """Return whether the user has a membership in the organization, or uses an application there."""
    if await read.members.exists(org_id, user_id):
        return True
    return await read.end_users.by_id(org_id, user_id) is not None
