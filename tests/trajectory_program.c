/* Uses every function of outcrop_trajectory.h in the new folder argv[1], and checks the results. Prints errors. */
#include <outcrop_trajectory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { rows = 40, columns = 50, states = 12 };

static double u[rows][columns], p[7];

static void require(int is_right, const char *what) {
  if (is_right) return;
  fprintf(stderr, "wrong: %s (%s)\n", what, outcrop_trajectory_error());
  exit(1);
}

static void set(double value) {
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) u[row][column] = value + row;
  for (int i = 0; i < 7; ++i) p[i] = -value;
}

static int is_set(const void *const *state, double value) {
  set(value);
  return memcmp(state[0], u, sizeof u) == 0 && memcmp(state[1], p, sizeof p) == 0;
}

int main(int argc, char **argv) {
  require(argc == 2 && strcmp(outcrop_trajectory_version(), "") != 0, "arguments");
  char first[4096], second[4096];
  snprintf(first, sizeof first, "%s/first", argv[1]);
  snprintf(second, sizeof second, "%s/second", argv[1]);
  const uint64_t shape_u[] = {rows, columns}, shape_p[] = {7};
  const outcrop_trajectory_field fields[] = {{"u", 2, shape_u}, {"p", 1, shape_p}};
  const outcrop_trajectory_directory places[] = {{first, 100000}, {second, 0}};
  const void *state[] = {u, p}, *popped[2];
  uint64_t number = 0;

  outcrop_trajectory *history = NULL;
  require(outcrop_trajectory_create(fields, 2, "float16", states, 0, places, 2, &history) == OUTCROP_TRAJECTORY_INPUT,
          "an unknown type is refused");
  require(strstr(outcrop_trajectory_error(), "float16") != NULL && history == NULL, "the error names it");
  require(outcrop_trajectory_create(fields, 2, "float64", states, 50000, places, 2, &history) == 0, "create");
  for (int step = 0; step < states; ++step) {
    set(step);
    require(outcrop_trajectory_push(history, state, &number) == 0 && number == (uint64_t)step, "push");
  }
  require(outcrop_trajectory_push(history, state, NULL) == OUTCROP_TRAJECTORY_INPUT, "a full trajectory refuses");
  require(outcrop_trajectory_commit(history) == 0, "commit");
  require(outcrop_trajectory_pop(history, popped, &number) == 0 && number == states - 1, "pop");
  require(is_set(popped, states - 1), "the newest state");
  outcrop_trajectory_close(&history);
  require(history == NULL, "close");

  require(outcrop_trajectory_open(argv[1], &history) == OUTCROP_TRAJECTORY_INPUT, "no trajectory there");
  require(outcrop_trajectory_open(first, &history) == 0, "open");
  require(outcrop_trajectory_states(history) == states, "the popped state is there again: no commit followed");
  void *into[] = {u, p};
  set(-1);
  require(outcrop_trajectory_read(history, 3, into) == 0, "read");
  require(u[1][0] == 4 && p[0] == -3, "state 3");
  for (int step = states; step-- > 0;) {
    require(outcrop_trajectory_pop(history, popped, &number) == 0 && number == (uint64_t)step, "pop");
    require(is_set(popped, step), "a state");
  }
  require(outcrop_trajectory_pop(history, popped, NULL) == OUTCROP_TRAJECTORY_INPUT, "an empty one refuses");
  require(outcrop_trajectory_remove(&history) == 0 && history == NULL, "remove");
  require(outcrop_trajectory_commit(history) == OUTCROP_TRAJECTORY_INPUT, "a missing handle is refused");
  return 0;
}
