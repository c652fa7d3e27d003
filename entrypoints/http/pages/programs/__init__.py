"""The pages for programs: API resources, service accounts and tokens."""
