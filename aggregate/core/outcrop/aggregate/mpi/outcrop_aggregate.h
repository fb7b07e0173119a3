/* liboutcrop_aggregate: all ranks write or read one file. A few of them, the aggregators, perform the I/O.

       outcrop_agg_declaration *mine;                                  this rank's bytes in every step
       outcrop_agg_declare(1, &mine);
       outcrop_agg_add_subarray(mine, 0, 3, sizes, subsizes, starts, sizeof(double), 0);

       outcrop_agg_plan *plan;                                         collective, once
       outcrop_agg_make_plan(MPI_COMM_WORLD, mine, MPI_INFO_NULL, &plan);

       outcrop_agg_file *file;
       outcrop_agg_create(plan, "out.bin", OUTCROP_AGG_DURABLE, &file);
       for (step = 0; step < steps; ++step) {
         const void *memory[] = {temperature};                         one address for each variable
         outcrop_agg_write(file, memory, step * step_bytes);
       }
       outcrop_agg_close(&file);
       outcrop_agg_free_plan(&plan);

   Functions return 0 or an error code. After an error, outcrop_agg_error() returns one line with rank, file and offset.
   If one rank has an error, the function returns this error on all ranks. All ranks of a plan must call the collective
   functions in the same order. Only one thread of a rank may call this library at a time. If only the main thread calls
   it, the level MPI_THREAD_FUNNELED is enough. Offsets and sizes are in bytes and have 64 bits. */
#ifndef OUTCROP_AGGREGATE_H
#define OUTCROP_AGGREGATE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OUTCROP_AGG_API __attribute__((visibility("default")))
#else
#define OUTCROP_AGG_API
#endif

enum outcrop_agg_code {
  OUTCROP_AGG_OK = 0,
  OUTCROP_AGG_INPUT = 1,         /* an argument, a hint or an environment variable is invalid */
  OUTCROP_AGG_STORAGE = 2,       /* a file cannot be opened, written, read or flushed, or it is damaged */
  OUTCROP_AGG_COMMUNICATION = 3, /* MPI has failed, or a rank has ended; after this error you can only free objects */
  OUTCROP_AGG_MEMORY = 4,        /* there is not enough memory */
  OUTCROP_AGG_BUG = 5            /* a bug of this library */
};

/* Returns the last error of this thread, in one line. The text is valid until this thread calls this library again. */
OUTCROP_AGG_API const char *outcrop_agg_error(void);
/* Returns "0.1.0". */
OUTCROP_AGG_API const char *outcrop_agg_version(void);

/* --- declarations ------------------------------------------------------------------------------------------------- */

typedef struct outcrop_agg_declaration outcrop_agg_declaration;

/* Makes a declaration of `variables` variables without extents. A rank may have 0 variables. */
OUTCROP_AGG_API int outcrop_agg_declare(size_t variables, outcrop_agg_declaration **made);

/* The functions below add an extent to a variable. An extent describes bytes of the file that belong to the variable,
   and their places in the variable's memory. This function adds one contiguous block. */
OUTCROP_AGG_API int outcrop_agg_add_contiguous(outcrop_agg_declaration *declaration, size_t variable,
                                               uint64_t file_offset, uint64_t bytes, uint64_t memory_offset);
/* Adds `count` blocks with a stride in the file and in memory. If memory_stride_bytes is 0, blocks are contiguous in
   memory. */
OUTCROP_AGG_API int outcrop_agg_add_strided(outcrop_agg_declaration *declaration, size_t variable, uint64_t file_offset,
                                            uint64_t count, uint64_t block_bytes, uint64_t file_stride_bytes,
                                            uint64_t memory_offset, uint64_t memory_stride_bytes);
/* Adds a part of an array. The array is in C order and begins at file_offset. It has `sizes` items on each of its
   `dims` axes. The part begins at the indices `starts` and has `subsizes` items. The part is contiguous in memory. */
OUTCROP_AGG_API int outcrop_agg_add_subarray(outcrop_agg_declaration *declaration, size_t variable, int dims,
                                             const uint64_t *sizes, const uint64_t *subsizes, const uint64_t *starts,
                                             uint64_t item_bytes, uint64_t file_offset);
/* Frees the declaration and sets the handle to NULL. A plan that was made from the declaration stays valid. */
OUTCROP_AGG_API void outcrop_agg_free_declaration(outcrop_agg_declaration **declaration);

/* --- plans -------------------------------------------------------------------------------------------------------- */

typedef struct outcrop_agg_plan outcrop_agg_plan;

/* Collective. Makes a plan. The plan has the aggregators, and the tiers of their buffers, with the lowest predicted
   cost. The communicator must be an intracommunicator, and is duplicated. Each setting comes from a hint. If the hint
   is missing, the setting comes from an environment variable.

   (settings: written by scripts/write_settings.py)

       outcrop_agg_tier, OUTCROP_AGG_TIER
           The tier that holds the buffers. Default: the tier with the lowest predicted cost.
       outcrop_agg_persistence, OUTCROP_AGG_PERSISTENCE
           The minimum persistence of the tier of the buffers: process, reboot, job or permanent. Default: process.
       outcrop_agg_buffer or cb_buffer_size, OUTCROP_AGG_BUFFER
           The size of each buffer in bytes, a multiple of 4096. Default: an eighth of a domain, 1 to 8 MiB.
       outcrop_agg_buffers, OUTCROP_AGG_BUFFERS
           The number of buffers of each aggregator, 2 to 8. Default: 4.
       outcrop_agg_count or cb_nodes, OUTCROP_AGG_COUNT
           The number of aggregators. Default: the number with the shortest predicted time.
       outcrop_agg_hosts or cb_config_list, OUTCROP_AGG_HOSTS
           The hosts that may have aggregators: host:number, ... or *:number. Default: all hosts.
       outcrop_agg_machine, OUTCROP_AGG_MACHINE
           A machine file that describes the nodes; `outcrop agg machine` writes one. Default: the tiers that are
           detected on the nodes.
       outcrop_agg_target, OUTCROP_AGG_TARGET
           The folder of the files. Default: the working directory.
       outcrop_agg_topology, OUTCROP_AGG_TOPOLOGY
           A file with a line `rank: group switch port` for each rank. Default: the first provider that knows the
           distances.
       outcrop_agg_stage, OUTCROP_AGG_STAGE
           A folder on a tier of each node. A write ends when its bytes are durable there. Later, the bytes are copied
           to the file in the background. With "auto", the cost model chooses the folder, or no stage. Default: none.
       outcrop_agg_stage_bytes, OUTCROP_AGG_STAGE_BYTES
           The maximum size of a stage on a node, in bytes. Default: all free space.
       outcrop_agg_stage_persistence, OUTCROP_AGG_STAGE_PERSISTENCE
           With stage "auto": the minimum persistence of the stage: reboot, job or permanent. Default: job.
       outcrop_agg_seconds_between, OUTCROP_AGG_SECONDS_BETWEEN
           With stage "auto": the seconds of computing between two steps. Default: 0.
       outcrop_agg_reads_back, OUTCROP_AGG_READS_BACK
           With stage "auto": how often each step is read again soon after its write. Default: 0.
       outcrop_agg_transport, OUTCROP_AGG_TRANSPORT
           The transport between nodes: messages, or rma (one-sided communication) if it works. Default: messages.
       outcrop_agg_reads_only, OUTCROP_AGG_READS_ONLY
           If true, ranks may declare the same bytes, and the plan cannot write. Default: false.
       outcrop_agg_own_run_bytes, OUTCROP_AGG_OWN_RUN_BYTES
           If the contiguous runs of each rank have at least this mean length, each rank performs its own I/O. 0: never.
           Default: 64 KiB on one node, never on several.
       outcrop_agg_seconds_most, OUTCROP_AGG_SECONDS_MOST
           The maximum time, in seconds, that a rank waits for other ranks. After this time, the rank fails. Default: no
           limit.

   (end of the settings)

   Other hints of ROMIO have no effect. Unknown variables that begin with OUTCROP_AGG_ are errors. Settings must be
   equal on all ranks, except for the folder and the size of a stage. */
OUTCROP_AGG_API int outcrop_agg_make_plan(MPI_Comm communicator, const outcrop_agg_declaration *declaration,
                                          MPI_Info hints, outcrop_agg_plan **made);
/* Sets `bytes` to the minimum size of the memory of one of this rank's variables. */
OUTCROP_AGG_API int outcrop_agg_memory_bytes(const outcrop_agg_plan *plan, size_t variable, uint64_t *bytes);
/* Returns a text of several lines. The text shows the aggregators with the reasons for their choice, the predicted
   seconds, the places of buffers, and the measured seconds of this rank's steps. Returns "" after an error. The text is
   valid until the next call with this plan. */
OUTCROP_AGG_API const char *outcrop_agg_explain(outcrop_agg_plan *plan);
/* Returns the transport between nodes: "messages" or "rma". If you have set outcrop_agg_transport to rma, and the test
   of rma on all ranks has failed, returns "messages, though ...", with the rank and the error. */
OUTCROP_AGG_API const char *outcrop_agg_transport(const outcrop_agg_plan *plan);
/* Collective: frees the plan and sets the handle to NULL. Close all files of the plan first. */
OUTCROP_AGG_API void outcrop_agg_free_plan(outcrop_agg_plan **plan);

/* --- files -------------------------------------------------------------------------------------------------------- */

typedef struct outcrop_agg_file outcrop_agg_file;
typedef struct outcrop_agg_operation outcrop_agg_operation;

/* Flags. Combine them with |. */
enum outcrop_agg_flags {
  OUTCROP_AGG_DURABLE = 1,    /* each write ends only when its bytes are on the device */
  OUTCROP_AGG_BUFFERED = 2,   /* all transfers use the page cache; default: the library chooses */
  OUTCROP_AGG_DIRECT = 4,     /* whole pages bypass the page cache */
  OUTCROP_AGG_WRITABLE = 8,   /* outcrop_agg_open opens the file for writing, too */
  OUTCROP_AGG_NODE_FILES = 16 /* one file for each node, and path.index; outcrop_agg_open can then only read */
};

/* Collective: creates a file, or empties an existing one. */
OUTCROP_AGG_API int outcrop_agg_create(outcrop_agg_plan *plan, const char *path, int flags, outcrop_agg_file **made);
/* Collective: opens an existing file. */
OUTCROP_AGG_API int outcrop_agg_open(outcrop_agg_plan *plan, const char *path, int flags, outcrop_agg_file **made);

/* Collective. These functions write or read one step, and return when the step is done. `memory` has the address of
   each of this rank's variables. `base` is added to all offsets of the file. */
OUTCROP_AGG_API int outcrop_agg_write(outcrop_agg_file *file, const void *const *memory, uint64_t base);
OUTCROP_AGG_API int outcrop_agg_read(outcrop_agg_file *file, void *const *memory, uint64_t base);

/* Collective. These functions begin to write or read one step. The memory must stay valid until the operation has
   ended. During a write, its bytes must not change. */
OUTCROP_AGG_API int outcrop_agg_begin_write(outcrop_agg_file *file, const void *const *memory, uint64_t base,
                                            outcrop_agg_operation **made);
OUTCROP_AGG_API int outcrop_agg_begin_read(outcrop_agg_file *file, void *const *memory, uint64_t base,
                                           outcrop_agg_operation **made);
/* Sets `done` to 1 if the operation has ended. You must still call outcrop_agg_wait. */
OUTCROP_AGG_API int outcrop_agg_test(outcrop_agg_operation *operation, int *done);
/* Waits until the operation has ended. Then frees the operation, and sets the handle to NULL. */
OUTCROP_AGG_API int outcrop_agg_wait(outcrop_agg_operation **operation);

/* Returns one line for each step that an earlier program had left in the stage. The line says whether the step is now
   in the file or is lost. Returns "" if no step was left. The text is valid until the file is closed. */
OUTCROP_AGG_API const char *outcrop_agg_notes(const outcrop_agg_file *file);

/* Collective: waits until all written bytes are durable in the file. Staged bytes are drained first. */
OUTCROP_AGG_API int outcrop_agg_flush(outcrop_agg_file *file);
/* Collective: waits until all operations have ended and the stage is drained. Then frees the file and sets the handle
   to NULL. */
OUTCROP_AGG_API int outcrop_agg_close(outcrop_agg_file **file);

/* Not collective: copies the node files that `index` lists (path.index) into one file `target`. The node files stay. */
OUTCROP_AGG_API int outcrop_agg_merge(const char *index, const char *target);

/* --- for Fortran -------------------------------------------------------------------------------------------------- */

/* Does the same as outcrop_agg_make_plan, but takes Fortran's handles of MPI. The module outcrop_aggregate.f90 calls
   this function. */
OUTCROP_AGG_API int outcrop_agg_make_plan_f(MPI_Fint communicator, const outcrop_agg_declaration *declaration,
                                            MPI_Fint hints, outcrop_agg_plan **made);

#ifdef __cplusplus
}
#endif

#endif
