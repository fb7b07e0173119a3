"""Settings of all test sessions: random examples, and Ctrl-C."""

import os
import signal

from hypothesis import settings

# `make soak` tries new random examples each time. All other sessions try the same examples, so that the same code
# always gives the same result.
settings.register_profile("soak", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("soak" if "OUTCROP_SOAK" in os.environ else "build")

# Jobs that a shell starts in the background ignore Ctrl-C. The tests need the default handling of Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
