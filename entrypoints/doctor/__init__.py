"""The checks of `gatehouse doctor`. A page of platform owners shows them, too."""
