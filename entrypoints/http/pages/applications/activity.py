"""An application's activity on its pages: the last sign-in, the last failure, and the wait for the first sign-in."""

from typing import Any

from core.applications.model.services import Service
from core.authentication import sign_in_log
from core.kernel.roles import Capability
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.base.rendering.labels import failure_label
from entrypoints.http.pages.console import may, organization_path


async def activity_values(service: Service, *, waits: bool) -> dict[str, Any]:
    """Return the values for `applications/_activity.html`.

    The user sees the activity if they may see the sign-in log.

    If the page `waits` for the first sign-in, a script looks again, and a link does the same.
    """
    visible = may(Capability.SIGN_INS_VIEW)
    return {
        "activity": await sign_in_log.load_activity(ports(), acting_member(), service.id) if visible else None,
        "failure_label": failure_label,
        "polls": waits,
        "setup": organization_path(f"/applications/{service.slug}/setup") if waits else None,
    }
