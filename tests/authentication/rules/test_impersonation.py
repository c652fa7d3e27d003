"""The events in an impersonation (decision 207; security I-5)."""

from datetime import UTC, datetime
from uuid import UUID

from core.authentication import events
from core.authentication.model.sessions import Session
from core.kernel.callers import OrganizationStatus, ServiceContext
from tests.tables import table

NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
ADA, SUPPORT, ORG, ENTRY = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)
SHOP = ServiceContext(
    id=UUID(int=5), slug="shop", client_id=UUID(int=6), is_public=False, org_id=ORG, org_slug="acme", status=OrganizationStatus.ACTIVE
)


def session(org_id: UUID | None = None, service: ServiceContext | None = None) -> Session:
    return Session(
        id=UUID(int=7),
        user_id=ADA,
        created_at=NOW,
        expires_at=NOW,
        ends_at=NOW,
        address=None,
        agent=None,
        impersonator_id=SUPPORT,
        service=service,
        org_id=org_id,
    )


@table(("new_session", "org_id", "service_slug"), [(session(), None, None), (session(ORG), ORG, None), (session(None, SHOP), ORG, "shop")])
def test_the_organizations_event_has_the_impersonator_but_not_the_reason(
    new_session: Session, org_id: UUID | None, service_slug: str | None
) -> None:
    event = events.impersonated(new_session)
    assert (event.kind.name, event.target_id, event.org_id, event.of_person) == ("user.impersonated", str(ADA), org_id, None)
    assert (event.impersonator_id, event.id) == (SUPPORT, None)
    assert event.details == {"session_id": str(new_session.id), "expires_at": "2026-03-14T15:09:26Z", "service_slug": service_slug}


@table("new_session", [session(), session(ORG), session(None, SHOP)])
def test_the_platforms_event_has_the_reason(new_session: Session) -> None:
    impersonated = events.impersonated(new_session)
    event = events.impersonated_for_the_platform(impersonated, ENTRY, "a reason")
    assert (event.kind, event.target_id, event.org_id, event.of_person) == (impersonated.kind, str(ADA), None, None)
    assert (event.impersonator_id, event.id) == (SUPPORT, ENTRY)
    org_id = None if impersonated.org_id is None else str(impersonated.org_id)
    assert event.details == {**impersonated.details, "org_id": org_id, "reason": "a reason"}


def test_a_request_is_recorded_for_the_platform_only() -> None:
    event = events.impersonation_request(ADA, UUID(int=7), ENTRY, "GET", "/api/user/<x>", {"x": "1"})
    assert (event.id, event.target_id, event.org_id, event.of_person, event.kind.platform_only) == (ENTRY, str(ADA), None, None, True)
    assert event.details == {"session_id": str(UUID(int=7)), "method": "GET", "route": "/api/user/<x>", "arguments": {"x": "1"}}
