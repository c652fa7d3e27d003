"""What the edge, the API and the pages share: the context of a request, cookies, redirects and the rendering of pages."""
