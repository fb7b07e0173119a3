"""A deterministic simulator of storage, and random histories that test the transaction protocols on it.

    files      files and folders, and the parts of them that a disk keeps when power fails
    system     the system calls of `outcrop.durable.SYSTEM` on these files, made by processes that take turns
    chance     chooses from one seed when a process is killed, power fails, or a call fails

`python -m simulated HISTORY SEED` in the folder `tests` repeats one history and prints its calls.
"""
