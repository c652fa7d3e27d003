"""The benchmark: `./run bench`. How fast the service is in relation to what its work costs at the least on the same machine."""
