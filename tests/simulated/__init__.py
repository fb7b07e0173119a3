"""A deterministic simulator of storage, and random histories that test the transaction protocols on the simulated
storage.

    files      Simulates files and folders, and the parts of them that a disk keeps when power fails.
    system     Simulates the system calls of `outcrop.durable.SYSTEM` on these files. Processes take turns.
    chance     Chooses from one seed when a process is killed, when power fails, and when a call fails.

`python -m simulated HISTORY SEED` in the folder `tests` repeats one history and prints its calls.
"""
