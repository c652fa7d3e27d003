"""The repositories of the kernel."""

from adapters.postgres.engine.scope import Scope, repository
from adapters.postgres.kernel.rate_limits import Rates


class KernelRepositories(Scope):
    """The repositories of the kernel, for every kind of access."""

    rates = repository(Rates)
