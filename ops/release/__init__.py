"""`./run release`: build the files of a release from a revision, with the same bytes each time.

The wheel has the programs of Gatehouse, the archive has the wheels of all libraries too, and the
Debian package has the archive.
"""
