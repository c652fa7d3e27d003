"""Users' privacy: export, anonymization, and the logs about an account."""
