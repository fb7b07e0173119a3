/* This program tests that staged steps survive the death of a rank. mpirun starts the program with a command, a file, a
   file of numbers and a number of microseconds. The commands are:

   write   Writes steps until the program is killed. When all ranks know that a step is staged, a rank writes the step's
           number to the file of numbers. The last rank kills itself the given number of microseconds after the first
           step.
   read    Reads the file that `write` has left. The file must have each step whose number is in the file of numbers. */
#include "mpi_end_all_ranks.h"

#include <outcrop_aggregate.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { items_each = 20000, steps_most = 2000 };

static int rank, size;
static double values[items_each];

static void end_all(const char *doing) {
  fprintf(stderr, "rank %d, %s: %s\n", rank, doing, outcrop_agg_error());
  end_all_ranks();
}

static void succeed(int code, const char *doing) {
  if (code != OUTCROP_AGG_OK) end_all(doing);
}

static outcrop_agg_plan *make_plan(uint64_t *step_bytes) {
  outcrop_agg_declaration *declaration = NULL;
  outcrop_agg_plan *plan = NULL;
  const uint64_t item = sizeof(double), ranks = (uint64_t)size;
  succeed(outcrop_agg_declare(1, &declaration), "declaring");
  succeed(outcrop_agg_add_strided(declaration, 0, (uint64_t)rank * 10 * item, items_each / 10, 10 * item,
                                  ranks * 10 * item, 0, 0),
          "adding items in turns");
  succeed(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, MPI_INFO_NULL, &plan), "making a plan");
  outcrop_agg_free_declaration(&declaration);
  *step_bytes = items_each * ranks * item;
  return plan;
}

static double value(int step, int i) { return 1e6 * step + 1e5 * rank + i; }

static void die(int signal_number) {
  (void)signal_number;
  kill(getpid(), SIGKILL);
}

static void die_after(long microseconds) {
  const struct itimerval when = {{0, 0}, {microseconds / 1000000, microseconds % 1000000 + 1}};
  signal(SIGALRM, die);
  setitimer(ITIMER_REAL, &when, NULL);
}

static void write_steps(outcrop_agg_plan *plan, uint64_t step_bytes, char **arguments) {
  const void *memory[] = {values};
  outcrop_agg_file *file = NULL;
  FILE *notes = fopen(arguments[3], "wb");
  succeed(outcrop_agg_create(plan, arguments[2], 0, &file), "creating");
  for (int step = 0; step < steps_most; ++step) {
    for (int i = 0; i < items_each; ++i) values[i] = value(step, i);
    succeed(outcrop_agg_write(file, memory, (uint64_t)step * step_bytes), "writing");
    if (rank == 0 && (fwrite(&step, sizeof step, 1, notes) != 1 || fflush(notes) != 0)) end_all("noting");
    if (step == 0 && rank == size - 1) die_after(atol(arguments[4]));
  }
}

static int last_noted(const char *path) {
  int last = -1;
  FILE *notes = fopen(path, "rb");
  while (notes != NULL && fread(&last, sizeof last, 1, notes) == 1) continue;
  if (notes != NULL) fclose(notes);
  return last;
}

static void read_steps(outcrop_agg_plan *plan, uint64_t step_bytes, char **arguments) {
  void *memory[] = {values};
  outcrop_agg_file *file = NULL;
  const int last = last_noted(arguments[3]);
  succeed(outcrop_agg_open(plan, arguments[2], OUTCROP_AGG_WRITABLE, &file), "opening");
  if (rank == 0) printf("steps %d\n%s", last + 1, outcrop_agg_notes(file));
  for (int step = 0; step <= last; ++step) {
    succeed(outcrop_agg_read(file, memory, (uint64_t)step * step_bytes), "reading");
    for (int i = 0; i < items_each; ++i)
      if (values[i] != value(step, i)) end_all("a step that was staged is not in the file");
  }
  succeed(outcrop_agg_close(&file), "closing");
}

int main(int count, char **arguments) {
  uint64_t step_bytes = 0;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  outcrop_agg_plan *plan = make_plan(&step_bytes);
  if (count > 1 && strcmp(arguments[1], "write") == 0)
    write_steps(plan, step_bytes, arguments);
  else
    read_steps(plan, step_bytes, arguments);
  outcrop_agg_free_plan(&plan);
  MPI_Finalize();
  return 0;
}
