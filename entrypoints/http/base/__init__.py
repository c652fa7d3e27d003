"""What the edge, the API and the pages share: the request's context, cookies, redirects and rendered pages."""
