/* This program tests the interface for C. In several steps, all ranks write columns of an array of doubles, and one
   rank also writes a header. Then the ranks read the values back. On every rank, each error must have a code and a text
   of one line. mpirun starts the program with the path of a file that the program may make. */
#include "mpi_end_all_ranks.h"

#include <outcrop_aggregate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { rows = 50, columns_each = 3, header_bytes = 100, steps = 3 };

static int rank, size;

/* Ends the program after an error. All ranks get the error of one rank, so all ranks call this function. It does not
   call MPI_Abort, because MPI_Abort may lose the output of other ranks. */
static void end_all(const char *doing) {
  fprintf(stderr, "rank %d, %s: %s\n", rank, doing, outcrop_agg_error());
  MPI_Finalize();
  exit(1);
}

static void succeed(int code, const char *doing) {
  if (code != OUTCROP_AGG_OK) end_all(doing);
}

static void require(int kept, const char *promise) {
  if (kept) return;
  fprintf(stderr, "rank %d: %s\n", rank, promise);
  end_all_ranks();
}

/* Returns a declaration with two variables. Variable 0 is the header, which only the first rank has. Variable 1 has
   this rank's columns. */
static outcrop_agg_declaration *declare(uint64_t first_column) {
  const uint64_t sizes[] = {rows, (uint64_t)(columns_each * size)}, part[] = {rows, columns_each};
  const uint64_t starts[] = {0, first_column};
  outcrop_agg_declaration *declaration = NULL;
  succeed(outcrop_agg_declare(2, &declaration), "declaring");
  if (rank == 0) succeed(outcrop_agg_add_contiguous(declaration, 0, 0, header_bytes, 0), "adding a header");
  succeed(outcrop_agg_add_subarray(declaration, 1, 2, sizes, part, starts, sizeof(double), header_bytes),
          "adding columns");
  return declaration;
}

static outcrop_agg_plan *make_plan(MPI_Info hints) {
  outcrop_agg_declaration *declaration = declare((uint64_t)(columns_each * rank));
  outcrop_agg_plan *plan = NULL;
  succeed(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, hints, &plan), "making a plan");
  outcrop_agg_free_declaration(&declaration);
  require(declaration == NULL, "what is freed becomes NULL");
  return plan;
}

static void fill(char *header, double *values, int step) {
  memset(header, 'a' + step, header_bytes);
  for (int i = 0; i < rows * columns_each; ++i) values[i] = 1e6 * step + 1e3 * rank + i;
}

static void write_steps(outcrop_agg_plan *plan, const char *path, int flags, uint64_t step_bytes) {
  char header[header_bytes];
  double values[rows * columns_each];
  const void *memory[] = {header, values};
  outcrop_agg_file *file = NULL;
  succeed(outcrop_agg_create(plan, path, flags, &file), "creating");
  for (int step = 0; step < steps; ++step) {
    fill(header, values, step);
    outcrop_agg_operation *operation = NULL;
    int done = 0;
    if (step == 1) {
      succeed(outcrop_agg_begin_write(file, memory, step_bytes, &operation), "beginning to write");
      while (!done) succeed(outcrop_agg_test(operation, &done), "looking");
      succeed(outcrop_agg_wait(&operation), "waiting");
    } else {
      succeed(outcrop_agg_write(file, memory, (uint64_t)step * step_bytes), "writing");
    }
  }
  succeed(outcrop_agg_flush(file), "flushing");
  succeed(outcrop_agg_close(&file), "closing");
}

static void read_steps(outcrop_agg_plan *plan, const char *path, int flags, uint64_t step_bytes) {
  char header[header_bytes], expected_header[header_bytes];
  double values[rows * columns_each], expected[rows * columns_each];
  void *memory[] = {header, values};
  outcrop_agg_file *file = NULL;
  succeed(outcrop_agg_open(plan, path, flags, &file), "opening");
  for (int step = steps; step-- > 0;) {
    fill(expected_header, expected, step);
    memset(values, 0, sizeof values);
    succeed(outcrop_agg_read(file, memory, (uint64_t)step * step_bytes), "reading");
    require(memcmp(values, expected, sizeof values) == 0, "what is read is what was written");
    require(rank != 0 || memcmp(header, expected_header, header_bytes) == 0, "the header is what was written");
  }
  succeed(outcrop_agg_close(&file), "closing");
}

/* Reads the file without this library, and checks that all bytes are at their places. */
static void check_file(const char *path, uint64_t step_bytes) {
  FILE *file = fopen(path, "rb");
  require(file != NULL, "there is a file");
  for (int step = 0; step < steps; ++step) {
    for (int column = 0; column < columns_each * size; ++column) {
      const int of_rank = column / columns_each, row = (step + column) % rows;
      const double expected = 1e6 * step + 1e3 * of_rank + row * columns_each + column % columns_each;
      double found = -1;
      const long item = (long)row * columns_each * size + column;
      fseek(file, (long)((uint64_t)step * step_bytes) + header_bytes + item * (long)sizeof(double), SEEK_SET);
      require(fread(&found, sizeof found, 1, file) == 1 && found == expected, "values are where they belong");
    }
  }
  fclose(file);
}

/* Writes one file for each node, reads them as one file, and merges them into one file. */
static void use_node_files(outcrop_agg_plan *plan, const char *folder, uint64_t step_bytes) {
  char path[4000], index[4100], of_node[4100], merged[4100];
  snprintf(path, sizeof path, "%s/nodes", folder);
  snprintf(index, sizeof index, "%s.index", path);
  snprintf(of_node, sizeof of_node, "%s.node-0", path);
  snprintf(merged, sizeof merged, "%s.merged", path);
  write_steps(plan, path, OUTCROP_AGG_NODE_FILES, step_bytes);
  read_steps(plan, path, OUTCROP_AGG_NODE_FILES, step_bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) return;
  succeed(outcrop_agg_merge(index, merged), "merging");
  check_file(merged, step_bytes);
  require(remove(index) == 0 && remove(of_node) == 0 && remove(merged) == 0, "the files are there");
}

static void refuses(int code, int expected, const char *words) {
  require(code == expected, words);
  require(strstr(outcrop_agg_error(), words) != NULL, words);
}

/* Writes and checks a file with RMA. The file must be correct even if RMA does not work with this MPI, and the plan
   must say whether RMA works. */
static void use_rma(const char *path, uint64_t step_bytes) {
  MPI_Info hints = MPI_INFO_NULL;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "outcrop_agg_transport", "rma");
  outcrop_agg_plan *plan = make_plan(hints);
  MPI_Info_free(&hints);
  const char *carried = outcrop_agg_transport(plan);
  require(!strcmp(carried, "rma") || !strncmp(carried, "messages, though hint outcrop_agg_transport = rma: rank ", 56),
          "the plan says what carries bytes, and why");
  write_steps(plan, path, 0, step_bytes);
  if (rank == 0) check_file(path, step_bytes);
  outcrop_agg_free_plan(&plan);
}

/* Checks that ranks may declare the same bytes if they only read. All ranks read the columns of the first rank. */
static void read_shared(const char *path) {
  MPI_Info hints = MPI_INFO_NULL;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "outcrop_agg_reads_only", "true");
  outcrop_agg_declaration *declaration = declare(0);
  outcrop_agg_plan *plan = NULL;
  outcrop_agg_file *file = NULL;
  succeed(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, hints, &plan), "making a plan for reading");
  MPI_Info_free(&hints);
  outcrop_agg_free_declaration(&declaration);
  char header[header_bytes];
  double values[rows * columns_each];
  void *memory[] = {header, values};
  succeed(outcrop_agg_open(plan, path, OUTCROP_AGG_WRITABLE, &file), "opening");
  succeed(outcrop_agg_read(file, memory, 0), "reading what others read, too");
  for (int i = 0; i < rows * columns_each; ++i) require(values[i] == i, "all have read the columns of the first");
  refuses(outcrop_agg_write(file, (const void *const *)memory, 0), OUTCROP_AGG_INPUT, "reading only");
  succeed(outcrop_agg_close(&file), "closing");
  outcrop_agg_free_plan(&plan);
}

static void check_refusals(outcrop_agg_plan *plan, const char *folder) {
  MPI_Info hints = MPI_INFO_NULL;
  outcrop_agg_declaration *declaration = declare(0); /* all ranks have the same columns */
  outcrop_agg_plan *none = NULL;
  outcrop_agg_file *file = NULL;
  if (size > 1)
    refuses(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, MPI_INFO_NULL, &none), OUTCROP_AGG_INPUT, "overlap");
  refuses(outcrop_agg_add_contiguous(declaration, 2, 0, 1, 0), OUTCROP_AGG_INPUT, "variable 2");
  refuses(outcrop_agg_make_plan(MPI_COMM_NULL, declaration, MPI_INFO_NULL, &none), OUTCROP_AGG_INPUT, "MPI_COMM_NULL");
  MPI_Info_create(&hints);
  if (rank == size - 1) MPI_Info_set(hints, "cb_nodes", "many"); /* all ranks get the error of one rank */
  refuses(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, hints, &none), OUTCROP_AGG_INPUT, "cb_nodes");
  MPI_Info_free(&hints);
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "outcrop_agg_tier", "hbm"); /* an unknown tier must not be ignored */
  refuses(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, hints, &none), OUTCROP_AGG_INPUT, "hbm");
  MPI_Info_set(hints, "outcrop_agg_tier", "dram");
  MPI_Info_set(hints, "outcrop_agg_persistence", "job");
  refuses(outcrop_agg_make_plan(MPI_COMM_WORLD, declaration, hints, &none), OUTCROP_AGG_INPUT, "persistence");
  MPI_Info_free(&hints);
  refuses(outcrop_agg_create(plan, folder, 0, &file), OUTCROP_AGG_STORAGE, folder);
  require(none == NULL && file == NULL, "nothing is made of what is refused");
  outcrop_agg_free_declaration(&declaration);
}

int main(int count, char **arguments) {
  int provided = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  require(count == 3, "arguments are a file to make and a folder");

  MPI_Info hints = MPI_INFO_NULL;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "cb_buffer_size", "4096");
  MPI_Info_set(hints, "cb_nodes", "2");
  outcrop_agg_plan *plan = make_plan(hints);
  MPI_Info_free(&hints);

  uint64_t bytes = 0;
  succeed(outcrop_agg_memory_bytes(plan, 1, &bytes), "asking for the memory of a variable");
  require(bytes == rows * columns_each * sizeof(double), "a variable's memory is as large as its part");
  const uint64_t step_bytes = header_bytes + (uint64_t)(rows * columns_each * size) * sizeof(double);
  write_steps(plan, arguments[1], OUTCROP_AGG_DURABLE, step_bytes);
  read_steps(plan, arguments[1], 0, step_bytes);
  if (rank == 0) check_file(arguments[1], step_bytes);
  require(!strcmp(outcrop_agg_transport(plan), "messages"), "messages are sent unless something else is asked for");
  use_rma(arguments[1], step_bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  read_shared(arguments[1]);
  use_node_files(plan, arguments[2], step_bytes);
  check_refusals(plan, arguments[2]);
  outcrop_agg_free_plan(&plan);
  MPI_Finalize();
  return 0;
}
