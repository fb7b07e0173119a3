#include "outcrop/aggregate/sinks/node_file.hpp"

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

void NodeFile::read(std::uint64_t offset, std::byte *data, std::size_t length) {
  if (offset + length > files_.index().end())
    throw StorageError("read", path_, offset, length, 0);  // as a file that ends early
  files_.read(offset, {data, length});
}

}  // namespace outcrop::aggregate
