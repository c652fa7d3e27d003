"""The pages that browsers show: routes, templates and assets."""
