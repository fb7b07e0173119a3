"""The command line: one file per command, each of which only reads options, calls the package and prints."""
