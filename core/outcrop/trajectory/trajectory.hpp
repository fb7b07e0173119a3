// A trajectory keeps the states of a program, and gives them back in reverse order.
//
//     push ──copy──► buffer ──pump──► files of state n          a buffer holds one state
//      pop ◄──view── buffer ◄──pump── files of state n - 1      older states are read ahead
//
// States are counted from 0, in the order in which they were pushed. The number of a state determines where the state
// is kept. The first states are in memory. The next states are in files in the first directory, and further states are
// in files in the next directories. So states never move between tiers. A push into memory copies the state to its
// place. A popped state must stay unchanged until the next pop. So if a state in memory is popped, its memory becomes a
// buffer. In exchange, a free buffer becomes the memory for the next state with the same number.
//
// When a trajectory is opened, it has no states in memory, because the last commit has written all states to files. So
// the memory for states is allocated by the first push that needs it. Committed states can therefore also be read on a
// machine with less memory.
//
// A commit makes all pushed states durable. After a program was killed, it must find the states of its last commit
// again. So if a committed state is popped, the state stays on storage until the next commit. Until the next commit, a
// push to the place of a committed state is refused. If a program never commits, no push is refused for this reason.
//
//     committed ▒▒▒▒▒▒▒▒▒▒▒▒       pop ──► ▒▒▒▒▒▒▒▒░░░░       push is refused: the place belongs to a committed state
//                                  commit ──► ▒▒▒▒▒▒▒▒        push is possible
//
// The checksum of a state is computed while the state is copied, or when it is written from memory. When the state is
// popped from files, its checksum is computed again and compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"
#include "outcrop/trajectory/layout.hpp"
#include "outcrop/trajectory/places.hpp"

namespace outcrop {

struct TrajectoryOptions {
  /// the number of buffers for states in flight, for states that are read ahead, and for the popped state; at least 2
  std::size_t buffers = 3;
  std::string io = "auto";  ///< the name of the backend, as for open_store()
  Faults faults;            ///< simulated errors of the store, for tests
};

/// All functions are thread-safe. After a StorageError, the caller can only close or remove the trajectory. The last
/// commit is still valid.
class Trajectory {
 public:
  /// Makes a new trajectory, allocates all its memory and makes all its files. The arguments are those of
  /// Places::create(). Throws InputError and StorageError.
  static std::unique_ptr<Trajectory> create(const StateLayout &layout, std::uint64_t states, std::uint64_t memory_bytes,
                                            const std::vector<DirectoryLimit> &directories,
                                            const TrajectoryOptions &options = {});

  /// Opens a trajectory with the states of its last commit. Allocates only the buffers. Throws InputError, StorageError
  /// and CorruptionError.
  static std::unique_ptr<Trajectory> open(const std::string &path, const TrajectoryOptions &options = {});

  const StateLayout &layout() const { return places_.layout(); }
  const std::string &path() const { return places_.path(); }
  std::uint64_t max_states() const { return places_.manifest().states; }
  std::uint64_t states() const;
  std::uint64_t committed() const;
  /// the maximum number of states that are kept in memory
  std::uint64_t memory_states() const { return places_.manifest().memory_states; }
  /// Returns true if all states have files, so that commit() is possible.
  bool is_durable() const { return places_.manifest().all_have_files(); }

  /// Copies a state. `fields` contains the address of the cells of each field. Waits only if the transfers of all
  /// buffers are still in flight. Returns the number of the state. Throws StorageError. Throws InputError if no place
  /// is left.
  std::uint64_t push(std::span<const std::byte *const> fields);

  struct Popped {
    std::uint64_t state = 0;
    std::byte *data = nullptr;  ///< the buffer with the state; field f begins at layout().offset(f)
  };
  /// Removes the newest state and returns it. The memory stays valid and unchanged until the next pop. Throws
  /// InputError if there is no state, and CorruptionError if the state is damaged. Throws StorageError.
  Popped pop();

  /// Copies the cells of a state to the memory of the caller. `fields` has an address for each field. Throws the same
  /// errors as pop().
  void read(std::uint64_t state, std::span<std::byte *const> fields);

  /// Makes the present states of the trajectory durable. Popped states are not part of the commit. States that were
  /// popped before the commit cannot be recovered after the commit. Throws InputError if the directories have no files
  /// for the states in memory. Throws StorageError.
  void commit();

  /// Waits for writes and closes the files. The memory of the popped state stays valid. States that were pushed after
  /// the last commit are lost.
  void close();

  /// Closes the trajectory and deletes its files.
  void remove();

 private:
  struct StateBuffer {
    std::byte *data = nullptr;
    std::optional<std::uint64_t> state{};        // the state that the buffer holds or will hold after its read
    std::optional<std::uint64_t> files{};        // the state whose files are open for this buffer
    Ticket first = no_ticket, last = no_ticket;  // the first and the last transfer of these files
    bool is_held = false;                        // true if the state has been popped
    bool is_read = false;                        // true if the state comes from files and is not checked yet
  };

  // A piece is a part of a field that one thread copies in one call: the bytes begin <= i < end. `factor` is
  // crc32c_factor(end - begin).
  struct Piece {
    std::size_t field = 0, begin = 0, end = 0;
    std::uint32_t factor = 0, sum = 0;
  };

  Trajectory(Places places, AlignedMemory memory, const TrajectoryOptions &options);

  void require_open() const;
  void keep(AlignedMemory memory);
  void take_memory();
  bool is_in_memory(std::uint64_t state) const { return state < in_memory_.size() && in_memory_[state]; }
  void wait(StateBuffer &buffer);
  void wait_for_writes(std::uint64_t state);
  bool is_idle(const StateBuffer &buffer) const;
  StateBuffer *find(std::uint64_t state);
  StateBuffer &best();
  StateBuffer &take();
  void open_files(StateBuffer &buffer, std::uint64_t state);
  void transfer(StateBuffer &buffer, std::byte *data, bool write, std::size_t field, std::size_t begin,
                std::size_t end);
  void transfer_state(StateBuffer &buffer, std::uint64_t state, std::byte *data, bool write);
  void start_reading(StateBuffer &buffer, std::uint64_t state);
  void read_ahead(std::uint64_t newest);
  void join_sums(std::uint32_t *sums) const;
  std::vector<std::uint32_t> sums_of(std::span<const std::byte *const> cells);
  std::vector<std::byte *> fields_in(std::byte *buffer) const;
  void check(std::uint64_t state, std::span<std::byte *const> cells);
  void write_from_memory(std::uint64_t state);
  std::uint32_t &sum(std::uint64_t state, std::size_t field) { return sums_[state * layout().count() + field]; }
  void stop();

  Places places_;
  const std::uint64_t threads_;  // the number of threads that copy a state or compute its checksum
  std::vector<Piece> pieces_;
  AlignedMemory memory_;                    // the buffers
  AlignedMemory kept_;                      // the states that are kept in memory
  bool has_memory_ = false;                 // true if kept_ is allocated
  std::vector<std::byte *> memory_states_;  // the address of each state's memory; index: number of the state
  std::vector<bool> in_memory_;             // true if a state is now in its memory; index: number of the state
  std::vector<StateBuffer> buffers_;
  std::vector<std::uint32_t> sums_;  // the checksum of each field of all states that were pushed so far
  std::uint64_t states_ = 0;
  bool is_open_ = true;
  mutable std::mutex mutex_;
  // The store has one file for each field of each buffer. The file of field f of buffer b has the number b * fields +
  // f. The pump is destroyed before the store.
  std::unique_ptr<Store> store_;
  std::unique_ptr<Pump> pump_;
};

}  // namespace outcrop
