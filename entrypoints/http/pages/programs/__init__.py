"""The pages of programs: API resources, service accounts and tokens."""
