"""The checks of `gatehouse doctor`. Platform owners can see them on a page, too."""
