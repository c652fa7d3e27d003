"""`./run release`: build the files of a release from a revision, always with the same bytes.

The wheel has Gatehouse's programs, the archive adds the wheels of all libraries, and the Debian package has the
archive.
"""
