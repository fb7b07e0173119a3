"""The command line. This package only reads options, calls other packages and prints."""
