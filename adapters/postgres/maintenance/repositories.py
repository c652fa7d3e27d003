"""The repositories of maintenance."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.maintenance.housekeeping import Housekeeping, Leases
from adapters.postgres.maintenance.sealed import Sealed


class MaintenanceRepositories(Scope):
    """The repositories of maintenance, for all kinds of access."""

    housekeeping = repository(Housekeeping)
    leases = repository(Leases)
    sealed = repository(Sealed)
