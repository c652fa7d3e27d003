"""The benchmark, `./run bench`: the speed of the service compared with the raw cost of its work on the same machine."""
