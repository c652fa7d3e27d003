"""Storage of services and plans, API keys, service users, end users and login analytics."""

from typing import Protocol

from ports.storage.applications.services import ApiKeys, ApiKeysRead, ApiKeyUse, ClientCharges, Plans, PlansRead, Services, ServicesRead
from ports.storage.applications.users import (
    AnalyticsRead,
    Assignments,
    AssignmentsRead,
    EndUsers,
    EndUsersRead,
    OverviewRead,
    OwnApplications,
    ServiceUsers,
    ServiceUsersRead,
)


class ApplicationsReading(Protocol):
    """Read access to the repositories of applications."""

    @property
    def analytics(self) -> AnalyticsRead: ...
    @property
    def api_keys(self) -> ApiKeysRead: ...
    @property
    def assignments(self) -> AssignmentsRead: ...
    @property
    def end_users(self) -> EndUsersRead: ...
    @property
    def overview(self) -> OverviewRead: ...
    @property
    def own_applications(self) -> OwnApplications: ...
    @property
    def plans(self) -> PlansRead: ...
    @property
    def service_users(self) -> ServiceUsersRead: ...
    @property
    def services(self) -> ServicesRead: ...


class ApplicationsTransaction(Protocol):
    """The repositories of applications in a transaction."""

    @property
    def api_keys(self) -> ApiKeys: ...
    @property
    def assignments(self) -> Assignments: ...
    @property
    def end_users(self) -> EndUsers: ...
    @property
    def plans(self) -> Plans: ...
    @property
    def service_users(self) -> ServiceUsers: ...
    @property
    def services(self) -> Services: ...


class ApplicationsAutocommit(Protocol):
    """The statements of applications that commit by themselves."""

    @property
    def services(self) -> ClientCharges: ...
    @property
    def api_keys(self) -> ApiKeyUse: ...
