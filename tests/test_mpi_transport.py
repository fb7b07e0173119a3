"""Protects C++ over MPI: CMake builds it with the MPI at hand, and it keeps what all transports promise."""

from __future__ import annotations

import pytest

from mpi_programs import build_with_mpi, mpirun


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_transport_keeps_the_contract(ranks: int) -> None:
    """See tests/core/transport_contract.cpp; also with more ranks than cores."""
    folder = build_with_mpi("outcrop_mpi_transport_test") / "core" / "outcrop" / "aggregate"
    done = mpirun(ranks, str(folder / "outcrop_mpi_transport_test"))
    assert done.returncode == 0, done.stdout + done.stderr
