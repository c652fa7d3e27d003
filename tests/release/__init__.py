"""A release's files, installed on a Debian without a network: `./run test release`."""
