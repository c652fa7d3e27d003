"""Storage for services and plans, API keys, service users, end users and login analytics."""
