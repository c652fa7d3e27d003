"""The benchmark, `./run bench`: compares the service's speed with the raw cost of its work on the same machine."""
