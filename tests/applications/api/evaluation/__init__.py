"""Questions whether a user may do something."""
