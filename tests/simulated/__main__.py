"""`python -m simulated runs 17` in the folder `tests` repeats the history of runs with seed 17 and prints its calls.

`python -m simulated runs 17 40` tries the histories of runs with seeds 17 to 39. `python -m simulated digest` prints a
checksum of the calls of some histories.
"""

import sys

from simulated.search import HISTORIES, digest, repeat, search

if sys.argv[1:] == ["digest"]:
    print(*(digest(kind, range(12)) for kind in HISTORIES))
elif len(sys.argv) == 4:
    print(search(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3]))))
else:
    repeat(sys.argv[1], int(sys.argv[2]))
