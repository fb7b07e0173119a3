"""The command line: one file for each command. This package only reads options, calls other packages and prints."""
