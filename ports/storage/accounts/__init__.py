"""Storage for accounts: accounts, second factors, devices, the email queue, attempt limits, one-time tokens, platform metrics."""
