"""The privacy of users: export, anonymization, and the logs about an account."""
