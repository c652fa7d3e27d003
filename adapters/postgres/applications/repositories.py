"""Declarations of the repositories of applications."""

from adapters.postgres.applications.analytics import Analytics
from adapters.postgres.applications.api_keys import ApiKeys
from adapters.postgres.applications.assignments import Assignments
from adapters.postgres.applications.end_users import EndUsers
from adapters.postgres.applications.overview import OrganizationOverview
from adapters.postgres.applications.own_applications import OwnApplications
from adapters.postgres.applications.plans import Plans
from adapters.postgres.applications.service_users import ServiceUsers
from adapters.postgres.applications.services import Services
from adapters.postgres.engine.scope import Scope, repository


class ApplicationsRepositories(Scope):
    """The repositories of applications, for every kind of access."""

    analytics = repository(Analytics)
    api_keys = repository(ApiKeys)
    assignments = repository(Assignments)
    end_users = repository(EndUsers)
    overview = repository(OrganizationOverview)
    own_applications = repository(OwnApplications)
    plans = repository(Plans)
    service_users = repository(ServiceUsers)
    services = repository(Services)
