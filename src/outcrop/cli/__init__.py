"""The command line: one file for each command. It only reads options, calls the package and prints."""
