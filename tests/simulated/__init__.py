"""A deterministic simulator of storage. Random histories on this storage test the commits of runs and arrays.

    files      Simulates files and folders, and what a disk keeps of them when power fails.
    system     Simulates the system calls of `outcrop.durable.SYSTEM` on these files. Processes take turns.
    chance     Chooses from one seed when a process is killed, when power fails, and when a call fails.

`python -m simulated HISTORY SEED` in the folder `tests` repeats one history and prints its calls.
"""
