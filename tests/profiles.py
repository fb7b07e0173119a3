"""What all test sessions share: how long the random ones search, and Ctrl-C as in a terminal."""

import os
import signal

from hypothesis import settings

# `make soak` searches elsewhere each time; otherwise two builds of the same code must give the same answer.
settings.register_profile("soak", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("soak" if "OUTCROP_SOAK" in os.environ else "build")

# A shell that starts jobs in the background makes them ignore Ctrl-C, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
