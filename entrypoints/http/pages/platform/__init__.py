"""The pages for platform owners: organizations, people, and the installation."""
