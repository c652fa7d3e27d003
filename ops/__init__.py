"""Everything to run, ship, measure and check the service. The service imports nothing from here."""
