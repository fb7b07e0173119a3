// One of several files, one for each node, as an aggregator of that node writes it; and all of them, as it reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/sinks/access.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"

namespace outcrop::aggregate {

class NodeFile final : public Sink {
 public:
  /// `path`: of the index. `own`: what the aggregator's node writes to, or nothing where it only reads.
  NodeFile(std::string path, NodeFiles files, std::unique_ptr<Access> own)
      : path_(std::move(path)), files_(std::move(files)), own_(std::move(own)) {}

  void begin_step([[maybe_unused]] std::uint64_t step, std::uint64_t base) override { files_.index().add_step(base); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override {
    own_->write(offset, data, length);
  }
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // each node has many
  void flush() override {
    if (own_) own_->flush();
  }

 private:
  const std::string path_;
  NodeFiles files_;
  std::unique_ptr<Access> own_;
};

}  // namespace outcrop::aggregate
