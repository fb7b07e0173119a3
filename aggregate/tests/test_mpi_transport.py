"""These tests build the C++ transport with the installed MPI. The transport must keep the contract of all transports.
"""

from __future__ import annotations

import pytest

from mpi_programs import build_with_mpi, mpirun


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_transport_keeps_the_contract(ranks: int) -> None:
    """Check the transport with the test cases in aggregate/tests/core/transport_contract.cpp. In some of these runs,
    there are more ranks than cores.
    """
    folder = build_with_mpi("outcrop_mpi_transport_test")
    done = mpirun(ranks, str(folder / "outcrop_mpi_transport_test"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_fetched_messages_keep_the_contract(ranks: int) -> None:
    """Check one-sided messages with the test cases of all transports. If the windows of this MPI do not work, the
    transport must detect this failure, and must send ordinary messages.
    """
    folder = build_with_mpi("outcrop_mpi_one_sided_test")
    done = mpirun(ranks, str(folder / "outcrop_mpi_one_sided_test"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_mpi_that_hangs_with_windows_ends_with_a_line() -> None:
    """Check that the program ends if a call of MPI never returns. The last line of the program's output must name the
    setting that the user should leave out.
    """
    folder = build_with_mpi("outcrop_mpi_one_sided_test")
    done = mpirun(3, str(folder / "outcrop_mpi_one_sided_test"), "hang", seconds=60)
    assert done.returncode != 0
    assert "hangs in one-sided communication" in done.stderr and "transport = rma" in done.stderr


def test_transfers_that_never_end_are_noticed() -> None:
    """Check that the transport detects one-sided transfers that never end, and then sends ordinary messages."""
    folder = build_with_mpi("outcrop_mpi_one_sided_test")
    done = mpirun(3, str(folder / "outcrop_mpi_one_sided_test"), "never", seconds=60)
    assert "noticed" in done.stderr and "were not noticed" not in done.stderr, done.stderr
