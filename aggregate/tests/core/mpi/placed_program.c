/* This program tests placement for programs in C. Each rank has a part of each record of one file. Rank 0 prints the
   explanation of the plan. The ranks write the file and read it back. mpirun starts the program with the path of the
   file, the number of records, and the bytes of rank 0 in each record. */
#include "mpi_end_all_ranks.h"

#include <outcrop_aggregate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void succeed(int code, const char *doing) {
  if (code == OUTCROP_AGG_OK) return;
  fprintf(stderr, "%s: %s\n", doing, outcrop_agg_error());
  end_all_ranks();
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  /* Rank r has (r + 1) * unit bytes of each record. */
  const uint64_t records = strtoull(argv[2], NULL, 10), unit = strtoull(argv[3], NULL, 10);
  const uint64_t mine = unit * (uint64_t)(rank + 1), before = unit * (uint64_t)(rank * (rank + 1) / 2);
  const uint64_t record = unit * (uint64_t)(size * (size + 1) / 2);

  outcrop_agg_declaration *declaration = NULL;
  outcrop_agg_plan *plan = NULL;
  outcrop_agg_file *file = NULL;
  succeed(outcrop_agg_declare(1, &declaration), "declaring");
  succeed(outcrop_agg_add_strided(declaration, 0, before, records, mine, record, 0, 0), "adding records");
  succeed(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, MPI_INFO_NULL, &plan), "making a plan");
  outcrop_agg_free_declaration(&declaration);

  char *values = malloc(records * mine), *found = malloc(records * mine);
  memset(values, 'a' + rank, records * mine);
  const void *sources[] = {values};
  void *targets[] = {found};
  succeed(outcrop_agg_create(plan, argv[1], OUTCROP_AGG_DURABLE, &file), "creating");
  succeed(outcrop_agg_write(file, sources, 0), "writing");
  succeed(outcrop_agg_read(file, targets, 0), "reading");
  succeed(outcrop_agg_close(&file), "closing");
  if (memcmp(values, found, records * mine) != 0) succeed(OUTCROP_AGG_BUG, "comparing");
  if (rank == 0) fputs(outcrop_agg_explain(plan), stdout);
  if (outcrop_agg_explain(NULL)[0] != '\0') succeed(OUTCROP_AGG_BUG, "explaining nothing");
  free(values);
  free(found);
  outcrop_agg_free_plan(&plan);
  MPI_Finalize();
  return 0;
}
