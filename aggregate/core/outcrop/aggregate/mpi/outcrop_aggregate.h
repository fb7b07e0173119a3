/* liboutcrop_aggregate: many ranks write or read one file through few of them.

       outcrop_agg_declaration *mine;                                  what this rank has, in every step
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

   Functions return 0 or an error code; outcrop_agg_error() then says what happened in one line, with rank, file and
   offset. What goes wrong at one rank is returned on all. Functions marked so are collective over the ranks of the plan,
   which call them in the same order. One thread of each rank calls this library at a time; MPI_THREAD_FUNNELED is enough
   when it is the main one. Offsets and sizes are in bytes, of 64 bits. */
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
  OUTCROP_AGG_INPUT = 1,         /* what was asked for cannot be done */
  OUTCROP_AGG_STORAGE = 2,       /* a file could not be opened, written, read, flushed, or is damaged */
  OUTCROP_AGG_COMMUNICATION = 3, /* MPI failed, or a rank is gone: nothing but freeing works after it */
  OUTCROP_AGG_MEMORY = 4,        /* no memory */
  OUTCROP_AGG_BUG = 5            /* of this library */
};

/* The last failure of this thread, in one line; valid until its next call. */
OUTCROP_AGG_API const char *outcrop_agg_error(void);
/* "0.1.0" */
OUTCROP_AGG_API const char *outcrop_agg_version(void);

/* --- what a rank has ---------------------------------------------------------------------------------------------- */

typedef struct outcrop_agg_declaration outcrop_agg_declaration;

/* Of `variables` pieces of memory, each with nothing yet. A rank may have none. */
OUTCROP_AGG_API int outcrop_agg_declare(size_t variables, outcrop_agg_declaration **made);

/* Each call adds an extent to a variable: bytes of the file, and where they lie in the variable's memory. */
OUTCROP_AGG_API int outcrop_agg_add_contiguous(outcrop_agg_declaration *declaration, size_t variable,
                                               uint64_t file_offset, uint64_t bytes, uint64_t memory_offset);
/* `count` blocks, a stride apart in the file and in memory; memory_stride_bytes 0: one after the other. */
OUTCROP_AGG_API int outcrop_agg_add_strided(outcrop_agg_declaration *declaration, size_t variable, uint64_t file_offset,
                                            uint64_t count, uint64_t block_bytes, uint64_t file_stride_bytes,
                                            uint64_t memory_offset, uint64_t memory_stride_bytes);
/* The part with `subsizes` items from index `starts` on of an array of `sizes` items in C order, `dims` numbers each,
   that begins at file_offset; itself packed in memory. */
OUTCROP_AGG_API int outcrop_agg_add_subarray(outcrop_agg_declaration *declaration, size_t variable, int dims,
                                             const uint64_t *sizes, const uint64_t *subsizes, const uint64_t *starts,
                                             uint64_t item_bytes, uint64_t file_offset);
/* Frees and makes NULL; nothing is left of it in plans. */
OUTCROP_AGG_API void outcrop_agg_free_declaration(outcrop_agg_declaration **declaration);

/* --- plans -------------------------------------------------------------------------------------------------------- */

typedef struct outcrop_agg_plan outcrop_agg_plan;

/* Collective over an intracommunicator, which is duplicated. Aggregators, their number, and the tiers of their buffers are
   those that cost least on the machine. Settings are hints, and variables of the environment where no hint says something.

   (settings: written by scripts/write_settings.py)

       outcrop_agg_tier, OUTCROP_AGG_TIER
           The tier that holds the buffers. Default: the tier that costs least.
       outcrop_agg_persistence, OUTCROP_AGG_PERSISTENCE
           The minimum persistence of that tier: process, reboot, job or permanent. Default: process.
       outcrop_agg_buffer or cb_buffer_size, OUTCROP_AGG_BUFFER
           The bytes of each buffer, a multiple of 4096. Default: an eighth of a domain, 1 to 8 MiB.
       outcrop_agg_buffers, OUTCROP_AGG_BUFFERS
           The number of buffers of each aggregator, 2 to 8. Default: 4.
       outcrop_agg_count or cb_nodes, OUTCROP_AGG_COUNT
           The number of aggregators. Default: the number that is predicted to finish first.
       outcrop_agg_hosts or cb_config_list, OUTCROP_AGG_HOSTS
           The hosts that may have aggregators: host:number, ... or *:number. Default: all hosts.
       outcrop_agg_machine, OUTCROP_AGG_MACHINE
           A machine file, which describes the nodes; `outcrop agg machine` writes one. Default: what is found on the
           nodes.
       outcrop_agg_target, OUTCROP_AGG_TARGET
           The folder where files will be. Default: the working directory.
       outcrop_agg_topology, OUTCROP_AGG_TOPOLOGY
           A file of lines `rank: group switch port`, which says where ranks are. Default: the first provider that knows
           it.
       outcrop_agg_stage, OUTCROP_AGG_STAGE
           A folder on a tier of each node. Writes end when they are durable there, and reach the file in the
           background. With "auto" the cost model decides where, and if. Default: none.
       outcrop_agg_stage_bytes, OUTCROP_AGG_STAGE_BYTES
           The bytes that a stage may take on a node. Default: all that is free there.
       outcrop_agg_stage_persistence, OUTCROP_AGG_STAGE_PERSISTENCE
           For a stage "auto": its minimum persistence: reboot, job or permanent. Default: job.
       outcrop_agg_seconds_between, OUTCROP_AGG_SECONDS_BETWEEN
           For a stage "auto": the seconds of computing between steps. Default: 0.
       outcrop_agg_reads_back, OUTCROP_AGG_READS_BACK
           For a stage "auto": how often a step is read again soon. Default: 0.
       outcrop_agg_transport, OUTCROP_AGG_TRANSPORT
           What carries bytes between nodes: messages, or rma (one-sided) where that works. Default: messages.
       outcrop_agg_reads_only, OUTCROP_AGG_READS_ONLY
           Ranks may declare the same bytes. Such a plan refuses to write. Default: false.
       outcrop_agg_own_run_bytes, OUTCROP_AGG_OWN_RUN_BYTES
           Each rank writes its own bytes where the mean length of the runs of all ranks is at least this; 0: never.
           Default: 64 KiB on one node, never on several.
       outcrop_agg_seconds_most, OUTCROP_AGG_SECONDS_MOST
           The seconds after which a rank that waits for others fails. Default: no limit.

   (end of the settings)

   ROMIO's other hints have no effect; variables OUTCROP_AGG_... of other names are refused. Settings must be alike on all
   ranks, but for a stage's folder and bytes. */
OUTCROP_AGG_API int outcrop_agg_make_plan(MPI_Comm communicator, const outcrop_agg_declaration *declaration,
                                          MPI_Info hints, outcrop_agg_plan **made);
/* Bytes that the memory of one of this rank's variables must have. */
OUTCROP_AGG_API int outcrop_agg_memory_bytes(const outcrop_agg_plan *plan, size_t variable, uint64_t *bytes);
/* In words, some lines: who aggregates where and why, with predicted seconds, where buffers lie, and what steps took at this
   rank. "" after a failure. Valid until the next call with this plan. */
OUTCROP_AGG_API const char *outcrop_agg_explain(outcrop_agg_plan *plan);
/* What carries bytes between nodes: "messages"; "rma" where outcrop_agg_transport = rma asked for that, and it was seen to
   work between all ranks; or else "messages, though ...", with the rank and what went wrong there. */
OUTCROP_AGG_API const char *outcrop_agg_transport(const outcrop_agg_plan *plan);
/* Collective: all files must have been closed. Makes it NULL. */
OUTCROP_AGG_API void outcrop_agg_free_plan(outcrop_agg_plan **plan);

/* --- files -------------------------------------------------------------------------------------------------------- */

typedef struct outcrop_agg_file outcrop_agg_file;
typedef struct outcrop_agg_operation outcrop_agg_operation;

/* Joined by |. */
enum outcrop_agg_flags {
  OUTCROP_AGG_DURABLE = 1,    /* every write ends with its bytes on the device */
  OUTCROP_AGG_BUFFERED = 2,   /* by the page cache; else what is best */
  OUTCROP_AGG_DIRECT = 4,     /* around the page cache, in whole pages */
  OUTCROP_AGG_WRITABLE = 8,   /* open: for writing, too */
  OUTCROP_AGG_NODE_FILES = 16 /* a file for each node and path.index; opened for reading only */
};

/* Collective: a new file, or an old one emptied. */
OUTCROP_AGG_API int outcrop_agg_create(outcrop_agg_plan *plan, const char *path, int flags, outcrop_agg_file **made);
/* Collective: a file that exists. */
OUTCROP_AGG_API int outcrop_agg_open(outcrop_agg_plan *plan, const char *path, int flags, outcrop_agg_file **made);

/* Collective: one step. `memory` has the address of each of this rank's variables; `base` is added to all offsets of the
   file. */
OUTCROP_AGG_API int outcrop_agg_write(outcrop_agg_file *file, const void *const *memory, uint64_t base);
OUTCROP_AGG_API int outcrop_agg_read(outcrop_agg_file *file, void *const *memory, uint64_t base);

/* Collective: the same, begun. The variables must stay until it is over, for a write unchanged. */
OUTCROP_AGG_API int outcrop_agg_begin_write(outcrop_agg_file *file, const void *const *memory, uint64_t base,
                                            outcrop_agg_operation **made);
OUTCROP_AGG_API int outcrop_agg_begin_read(outcrop_agg_file *file, void *const *memory, uint64_t base,
                                           outcrop_agg_operation **made);
/* `done` becomes 1 when it is over. It still has to be waited for. */
OUTCROP_AGG_API int outcrop_agg_test(outcrop_agg_operation *operation, int *done);
/* Returns when it is over, frees it and makes it NULL. */
OUTCROP_AGG_API int outcrop_agg_wait(outcrop_agg_operation **operation);

/* What an earlier run had left in the stage, a line each: what is in the file now, and what is lost. "" for nothing. Valid
   until the file is closed. */
OUTCROP_AGG_API const char *outcrop_agg_notes(const outcrop_agg_file *file);

/* Collective: returns when all that was written is durable in its file, drained where it was staged. */
OUTCROP_AGG_API int outcrop_agg_flush(outcrop_agg_file *file);
/* Collective: waits for what is under way and for stages to be drained, frees it and makes it NULL. */
OUTCROP_AGG_API int outcrop_agg_close(outcrop_agg_file **file);

/* By one process: makes the one file `target` of the files of nodes that path.index tells of, which stay. */
OUTCROP_AGG_API int outcrop_agg_merge(const char *index, const char *target);

/* --- for Fortran -------------------------------------------------------------------------------------------------- */

/* outcrop_agg_make_plan with Fortran's handles. The module is outcrop_aggregate.f90. */
OUTCROP_AGG_API int outcrop_agg_make_plan_f(MPI_Fint communicator, const outcrop_agg_declaration *declaration,
                                            MPI_Fint hints, outcrop_agg_plan **made);

#ifdef __cplusplus
}
#endif

#endif
