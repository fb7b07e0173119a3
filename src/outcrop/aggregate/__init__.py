"""Many ranks, one file: few of them collect what all write or read. See `communicator`."""
