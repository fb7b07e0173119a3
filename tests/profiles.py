"""Settings of all test sessions: the choice of random examples, and the handling of Ctrl-C."""

import os
import signal

from hypothesis import settings

# `make soak` tries new random examples each time. All other sessions try the same examples each time, so that the same
# code always gives the same result.
settings.register_profile("soak", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("soak" if "OUTCROP_SOAK" in os.environ else "build")

# If a shell starts a job in the background, the job and its child processes ignore Ctrl-C. The tests need the default
# handling of Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
