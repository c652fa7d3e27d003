"""The repositories of maintenance."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.maintenance.housekeeping import Housekeeping, Leases


class MaintenanceRepositories(Scope):
    """The repositories of maintenance, for every kind of access."""

    housekeeping = repository(Housekeeping)
    leases = repository(Leases)
