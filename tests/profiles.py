"""Settings of all test sessions: the number of random examples, and Ctrl-C as in a terminal."""

import os
import signal

from hypothesis import settings

# `make soak` tries different random examples each time. In all other sessions, the same code must always give the same
# answer.
settings.register_profile("soak", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("soak" if "OUTCROP_SOAK" in os.environ else "build")

# A shell that starts a job in the background makes the job ignore Ctrl-C. Child processes inherit this setting.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
