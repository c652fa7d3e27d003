"""The files of a release, and their installation on a Debian without a network: `./run test release`."""
