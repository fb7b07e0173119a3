"""These tests check that Outcrop reads answers of PMIx correctly, and that it reports missing answers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mpi_programs import run_ranks
from outcrop.aggregate.distances import Facts, PmixAnswer, Surroundings, find_distances
from outcrop.aggregate.surroundings import ask_pmix, loaded_pmix, surroundings_of

HEADERS = ("/usr/include", "/usr/lib/x86_64-linux-gnu/pmix2/include", "/usr/lib/aarch64-linux-gnu/pmix2/include")

# The source of a small library that answers requests instead of PMIx. Each test compiles the library with a different
# answer.
LIBRARY = """
#include <pmix.h>
#include <string.h>
static uint32_t physical[] = {9, 9}, logical[] = {3, 1, 4};
static pmix_coord_t views[] = {{.view = PMIX_COORD_PHYSICAL_VIEW, .coord = physical, .dims = 2},
                               {.view = PMIX_COORD_LOGICAL_VIEW, .coord = logical, .dims = 3}};
static pmix_geometry_t cards[] = {{.coordinates = NULL, .ncoords = 0}, {.coordinates = views, .ncoords = 2}};
static pmix_data_array_t array = GIVEN;
static pmix_value_t host = {.type = PMIX_STRING, .data.string = "node7"};
static pmix_value_t coordinates = {.type = PMIX_DATA_ARRAY, .data.darray = &array};
static int uses = USES;
int PMIx_Initialized(void) { return uses > 0; }
pmix_status_t PMIx_Init(pmix_proc_t *own, pmix_info_t info[], size_t count) {
  (void)info, (void)count;
  strcpy(own->nspace, "job");
  own->rank = 5;
  ++uses;
  return PMIX_SUCCESS;
}
pmix_status_t PMIx_Finalize(const pmix_info_t info[], size_t count) {
  (void)info, (void)count;
  return --uses == USES ? PMIX_SUCCESS : PMIX_ERROR;
}
pmix_status_t PMIx_Get(const pmix_proc_t *own, const char key[], const pmix_info_t info[], size_t count,
                       pmix_value_t **value) {
  if (strcmp(own->nspace, "job") || own->rank != 5) return PMIX_ERR_BAD_PARAM;
  if (count != 1 || strcmp(info[0].key, PMIX_OPTIONAL) || info[0].value.type != PMIX_BOOL || !info[0].value.data.flag)
    return PMIX_ERR_BAD_PARAM;
  if (!strcmp(key, PMIX_HOSTNAME)) *value = &host;
  else if (!strcmp(key, PMIX_FABRIC_COORDINATES) && array.size > 0) *value = &coordinates;
  else return PMIX_ERR_NOT_FOUND;
  return PMIX_SUCCESS;
}
"""
NONE = "{.type = PMIX_GEOMETRY, .size = 0}"


def build(folder: Path, array: str, ready: int = 1) -> Path:
    """Compile LIBRARY with the headers of the installed PMIx. The compiled library gives the answer `array`. Return the
    path of the compiled library.
    """
    header = next((folder for folder in HEADERS if Path(folder, "pmix.h").is_file()), None)
    if header is None or shutil.which("cc") is None:
        pytest.skip("there are no headers of PMIx, or no compiler")
    source, made = folder / "pmix.c", folder / "libpmix.so.2"
    source.write_text(LIBRARY.replace("USES", str(ready)).replace("GIVEN", array))
    flags = ["-w", "-shared", "-fPIC", f"-I{header}", f"-I{header}/pmix/src/include", f"-I{header}/pmix"]
    subprocess.run(["cc", *flags, str(source), "-o", str(made)], check=True)
    return made


@pytest.mark.parametrize(
    ("array", "coordinates"),
    [
        ("{.type = PMIX_GEOMETRY, .size = 2, .array = cards}", (3, 1, 4)),
        ("{.type = PMIX_COORD, .size = 2, .array = views}", (3, 1, 4)),
        ("{.type = PMIX_COORD, .size = 1, .array = views}", (9, 9)),
        ("{.type = PMIX_UINT32, .size = 3, .array = logical}", ()),
        ("{.type = PMIX_GEOMETRY, .size = 2, .array = NULL}", ()),
        (NONE, ()),
    ],
)
def test_coordinates_are_read_as_the_headers_lay_them_out(
    tmp_path: Path, array: str, coordinates: tuple[int, ...]
) -> None:
    """Check that the coordinates come from the first network card with coordinates. Coordinates in the logical view
    have priority over coordinates in the physical view.
    """
    answer = ask_pmix(build(tmp_path, array))
    assert answer.coordinates == coordinates and answer.host == "node7"
    assert bool(answer.refusal) == (not coordinates)


def test_what_is_not_there_or_not_used_says_so(tmp_path: Path) -> None:
    """Check that the answer has a reason in two cases: the process does not use PMIx, or the file is not a library."""
    assert "does not use PMIx" in ask_pmix(build(tmp_path, NONE, ready=0)).refusal
    assert "cannot be used" in ask_pmix(Path(__file__)).refusal
    (tmp_path / "maps").write_text("7f00-7f01 r--p 0 00:00 0\n7f00-7f01 r--p 0 00:00 7   /a b/libpmix.so.2.6\n")
    assert loaded_pmix(tmp_path / "maps") == Path("/a b/libpmix.so.2.6")
    assert loaded_pmix(tmp_path / "nowhere") is None


def around(*coordinates: tuple[int, ...]) -> Surroundings:
    """Return surroundings with one node for each element of `coordinates`."""
    facts = [Facts(f"host{i}", {}, "", PmixAnswer("", one, "" if one else "none")) for i, one in enumerate(coordinates)]
    return surroundings_of(facts, range(len(coordinates)))


def test_coordinates_of_all_nodes_become_distances() -> None:
    """Check that the first coordinate is the top of the node's path in the tree. If one node has no coordinates, the
    result must have the reason, and the next provider must give the distances.
    """
    found = find_distances(around((0, 1), (0, 1), (0, 2), (5, 1)))
    assert found.provider == "PMIx"
    row = list(found.distances.row(0))
    assert row[0] == 0 and 0 < row[1] < row[2] < row[3]
    found = find_distances(around((0, 1), ()))
    assert found.provider != "PMIx" and ("PMIx", "none") in found.refusals


ASKED = """
import os, socket
from mpi4py import MPI
from outcrop.aggregate.surroundings import ask_pmix
first, second = ask_pmix(), ask_pmix()
assert first == second
assert first.coordinates or first.refusal
if "PMIX_RANK" in os.environ and first.refusal != "MPI has loaded no PMIx library":
    assert first.host and first.host.split(".")[0] == socket.gethostname().split(".")[0], first
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.Get_rank() == 0:
    print("library:", MPI.Get_library_version().split()[0], "host:", first.host, "no coordinates:", first.refusal)
"""


def test_servers_of_launchers_are_asked() -> None:
    """Check that the PMIx server of Open MPI returns the name of the host. After the request to PMIx, MPI must continue
    and end normally.
    """
    done = run_ranks(3, ASKED)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("library:")]
    if "Open" in line:
        assert "host:  " not in line, line
