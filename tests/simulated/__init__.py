"""A deterministic simulator of storage, and random histories that test on this storage how runs and arrays commit.

    files      Simulates files and folders, and what a disk keeps of them when power fails.
    system     Simulates the system calls of `outcrop.durable.SYSTEM` on these files. Processes take turns.
    chance     Chooses from one seed when a process is killed, when power fails, and when a call fails.

`python -m simulated HISTORY SEED` in the folder `tests` repeats one history and prints its calls.
"""
