"""A deterministic simulator of storage, and random histories that test the transaction protocols on it.

    files      what a disk keeps of files and folders when power fails
    system     the system calls of `outcrop.durable.SYSTEM` over them, by processes that take turns
    chance     when a process is killed, power fails, or a call goes wrong; all of it from one seed

`python -m simulated HISTORY SEED` in the folder `tests` repeats one history and prints its calls.
"""
