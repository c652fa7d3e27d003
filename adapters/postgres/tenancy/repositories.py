"""The repositories of tenancy."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.tenancy.branding import Branding
from adapters.postgres.tenancy.domains import Domains
from adapters.postgres.tenancy.home_realm import HomeRealm
from adapters.postgres.tenancy.invitations import Invitations
from adapters.postgres.tenancy.mail_server import Smtp
from adapters.postgres.tenancy.members import Members
from adapters.postgres.tenancy.organizations import Organizations
from adapters.postgres.tenancy.tiers import Tiers


class TenancyRepositories(Scope):
    """The repositories of tenancy, for every kind of access."""

    branding = repository(Branding)
    domains = repository(Domains)
    home_realm = repository(HomeRealm)
    invitations = repository(Invitations)
    members = repository(Members)
    organizations = repository(Organizations)
    smtp = repository(Smtp)
    tiers = repository(Tiers)
