/* liboutcrop_trajectory: keeps the states of a program in memory and in files, and gives them back in reverse order.

       const uint64_t shape[] = {128, 256, 256};
       const outcrop_trajectory_field fields[] = {{"u", 3, shape}, {"p", 3, shape}};
       const outcrop_trajectory_directory places[] = {{"/local/nvme/history", 0}, {"/scratch/me/history", 0}};

       outcrop_trajectory *history;
       outcrop_trajectory_create(fields, 2, "float64", 1000, memory_bytes, places, 2, &history);
       for (step = 0; step < 1000; ++step) {
         const void *state[] = {u, p};
         outcrop_trajectory_push(history, state, NULL);
       }
       outcrop_trajectory_commit(history);                               all states are durable
       while (outcrop_trajectory_states(history) > 0) {
         const void *state[2];
         outcrop_trajectory_pop(history, state, &number);                the newest state
       }
       outcrop_trajectory_close(&history);

   Functions return 0 or an error code. After an error, outcrop_trajectory_error() returns the error message, which is
   one line. Any thread may call the functions. Sizes are in bytes and have 64 bits. */
#ifndef OUTCROP_TRAJECTORY_H
#define OUTCROP_TRAJECTORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OUTCROP_TRAJECTORY_API __attribute__((visibility("default")))
#else
#define OUTCROP_TRAJECTORY_API
#endif

enum outcrop_trajectory_code {
  OUTCROP_TRAJECTORY_OK = 0,
  OUTCROP_TRAJECTORY_INPUT = 1,      /* an argument is invalid, or there is no room */
  OUTCROP_TRAJECTORY_STORAGE = 2,    /* a file cannot be made, opened, written, read or flushed */
  OUTCROP_TRAJECTORY_CORRUPTION = 3, /* a state or the manifest is damaged */
  OUTCROP_TRAJECTORY_MEMORY = 4,     /* there is not enough memory */
  OUTCROP_TRAJECTORY_BUG = 5         /* a bug of this library */
};

/* Returns the last error of this thread, in one line. The text is valid until this thread calls this library again. */
OUTCROP_TRAJECTORY_API const char *outcrop_trajectory_error(void);
/* Returns the version of this library, "0.1.0". */
OUTCROP_TRAJECTORY_API const char *outcrop_trajectory_version(void);

typedef struct outcrop_trajectory outcrop_trajectory;

/* A field of a state. `shape` has the number of cells on each of the `dims` axes. The cells are in C order. */
typedef struct {
  const char *name;
  size_t dims;
  const uint64_t *shape;
} outcrop_trajectory_field;

/* A new or empty directory, and the maximum number of bytes that the files of states may use in it. The value 0 means
   all free bytes. */
typedef struct {
  const char *path;
  uint64_t limit_bytes;
} outcrop_trajectory_directory;

/* Makes a trajectory for `states` states. The first states are kept in `memory_bytes` bytes of memory. The next states
   are kept in the first directory, then in the second directory, and so on. This function allocates all memory and
   makes all files. Three buffers for transfers need the memory of three more states. The type of all cells is
   "float32", "float64", "complex64", "complex128", "int32" or "int64". Fails if the states do not fit. The error
   message then gives the number of states that fit in memory and in each directory. If a process was killed while it
   made or removed a trajectory in the first directory, this function removes the files that are left. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_create(const outcrop_trajectory_field *fields, size_t field_count,
                                                     const char *dtype, uint64_t states, uint64_t memory_bytes,
                                                     const outcrop_trajectory_directory *directories,
                                                     size_t directory_count, outcrop_trajectory **made);

/* Opens the trajectory in the first directory, with the states of its last commit. This function allocates the three
   buffers, but no memory for states. The first push that needs memory for states allocates it. If too little memory is
   free then, all states are kept in the directories. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_open(const char *path, outcrop_trajectory **opened);

/* Returns the number of states that were pushed and not popped. */
OUTCROP_TRAJECTORY_API uint64_t outcrop_trajectory_states(const outcrop_trajectory *trajectory);

/* Copies a state. `fields` contains the address of each field's cells. If the place of the state is in a directory, the
   copy is written to files in the background. The function waits only if the transfers of all buffers are still in
   flight. Sets *number to the number of the state, unless `number` is NULL. Fails if the place of the state belongs to
   a committed state that was popped. In this case, call outcrop_trajectory_commit first. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_push(outcrop_trajectory *trajectory, const void *const *fields,
                                                   uint64_t *number);

/* Removes the newest state, and sets fields[i] to the address of the cells of field i. The cells are valid until the
   next pop, or until the trajectory is closed. Sets *number to the number of the state, unless `number` is NULL. Older
   states are read ahead. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_pop(outcrop_trajectory *trajectory, const void **fields,
                                                  uint64_t *number);

/* Copies state `number`: the cells of field i go to the address fields[i]. The state stays in the trajectory. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_read(outcrop_trajectory *trajectory, uint64_t number,
                                                   void *const *fields);

/* Makes all states durable that were pushed and not popped. States that were popped before the commit cannot be
   recovered after the commit. Fails if the directories have no room for all states. A program that must survive a crash
   saves its own data before it calls this function. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_commit(outcrop_trajectory *trajectory);

/* Closes the trajectory without a commit, and sets the handle to NULL. */
OUTCROP_TRAJECTORY_API void outcrop_trajectory_close(outcrop_trajectory **trajectory);

/* Closes the trajectory, deletes its files, and sets the handle to NULL. */
OUTCROP_TRAJECTORY_API int outcrop_trajectory_remove(outcrop_trajectory **trajectory);

#ifdef __cplusplus
}
#endif
#endif
