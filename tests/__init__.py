"""The tests: a folder per package, mirroring its files, and themes that cross packages."""
