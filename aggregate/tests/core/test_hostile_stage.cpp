// These tests check that the stage folders of other users can do no harm. The library must write, read, make or remove
// only files of the caller. If a list or a file name is invalid, the library must throw one of its own errors. The text
// of the error must have one line.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

std::string text_in(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void put(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

// Returns a random value that is not expected in any field.
std::string nonsense(Random &random, const std::string &outside) {
  const std::vector<std::string> all{"",
                                     "-1",
                                     "0",
                                     "1",
                                     "4095",
                                     "4096",
                                     "4294967296",
                                     "4611686018427387904",
                                     "9223372036854775807",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     std::string(5000, '9'),
                                     "1e9",
                                     "nan",
                                     "..",
                                     "../victim",
                                     "/etc/passwd",
                                     outside,
                                     std::string("a\0b", 3),
                                     "\xff\xfe",
                                     std::string(300, 'n')};
  return all[random() % all.size()];
}

// Returns the text with one random change: a field or byte is changed, a line is repeated, or the end is missing. In
// most cases, the changed text has the right checksum.
std::string mutated(const std::string &whole, Random &random, const std::string &outside) {
  std::string text(checked_lines(whole, "whole"));
  const auto place = [&] { return text.empty() ? 0 : random() % text.size(); };
  switch (random() % 6) {
    case 0:
    case 1:
    case 2: {  // a word
      std::size_t begin = text.find_last_of(" \n", place());
      begin = begin == std::string::npos ? 0 : begin + 1;
      const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
      text.replace(begin, end - begin, nonsense(random, outside));
      break;
    }
    case 3:
      text.resize(place());
      break;
    case 4:
      text[place()] = static_cast<char>(random());
      break;
    default: {  // repeats one line at a random place
      const std::size_t begin = text.rfind('\n', place()) + 1;
      const std::string line = text.substr(begin, text.find('\n', begin) + 1 - begin);
      text.insert(text.find('\n', place()) + 1, line);
    }
  }
  return random() % 8 == 0 ? text : with_checksum(text);
}

class Hostile : public ::testing::Test {
 protected:
  Hostile() : root_((fs::current_path() / "outcrop_hostile_XXXXXX").string()) {
    if (mkdtemp(root_.data()) == nullptr) throw std::runtime_error("no folder for tests: " + root_);
    fs::create_directory(outside());
    put(victim(), victim_text);
    outcrop::File::create(target(), target_bytes);
  }
  ~Hostile() override { fs::remove_all(root_); }

  static constexpr std::size_t target_bytes = 20'000;
  static constexpr const char *victim_text = "somebody else's";

  std::string in(const std::string &name) const { return root_ + "/" + name; }
  std::string target() const { return in("target"); }
  std::string stage() const { return in("stage"); }
  std::string outside() const { return in("outside"); }
  std::string victim() const { return outside() + "/victim"; }
  std::string staged(const std::string &ending) const { return stage() + "/step-7.writer-3." + ending; }

  // Makes the stage folder of a process that has staged a step and was then killed.
  void leave_a_step() const {
    fs::remove_all(stage());
    fs::create_directory(stage());
    std::string bytes(9000, 'x');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
    put(staged("data"), bytes);
    StageList list{target(), 7, 3, {}};
    for (const auto &[at, length] : {std::pair<std::size_t, std::size_t>{0, 4000}, {4000, 500}, {4500, 4500}})
      list.runs.push_back({2 * at, length, at, crc32c(std::as_bytes(std::span(bytes)).subspan(at, length))});
    put(staged("list"), to_text(list));
  }

  // Checks that act() either succeeds or throws one of the errors of the library, with a text of one line. Also checks
  // that act() changes nothing outside the stage folder.
  void expect_harmless(const std::string &what, const std::function<void()> &act) const {
    std::string told;
    try {
      act();
    } catch (const InputError &error) {
      told = error.what();
    } catch (const StorageError &error) {
      told = error.what();
    } catch (const CorruptionError &error) {
      told = error.what();
    }
    EXPECT_EQ(text_in(victim()), victim_text) << what;
    EXPECT_EQ(std::distance(fs::directory_iterator(outside()), {}), 1) << what;
  }

  std::string root_;
};

TEST_F(Hostile, WhatIsStagedIsDrainedAsItIs) {
  leave_a_step();
  const Recovery found = recover_stage(stage(), target());
  EXPECT_TRUE(found.failed.empty()) << found.failed.front();
  EXPECT_EQ(found.drained.size(), 1U);
}

TEST_F(Hostile, ListsWithNonsenseWriteNowhereElse) {
  leave_a_step();
  const std::string whole = text_in(staged("list"));
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    if (!fs::exists(staged("list"))) leave_a_step();
    const std::string text = mutated(whole, random, victim());
    put(staged("list"), text);
    expect_harmless(text, [&] {
      for (const std::string &each : recover_stage(stage(), target(), 0).failed)
        EXPECT_EQ(each.find('\n'), std::string::npos) << each;
    });
  }
}

TEST_F(Hostile, AListOfAnotherFileIsRefused) {
  leave_a_step();
  StageList list = stage_list_of(text_in(staged("list")), "list");
  list.target = victim();
  put(staged("list"), to_text(list));
  const Recovery found = recover_stage(stage(), target());
  ASSERT_EQ(found.failed.size(), 1U);
  EXPECT_NE(found.failed.front().find("is staged for " + victim()), std::string::npos) << found.failed.front();
  EXPECT_EQ(text_in(victim()), victim_text);
}

// In this test, a link, a pipe, a folder or a device replaces a file of the stage. Recovery must do no harm.
TEST_F(Hostile, NamesOfAStageThatAreNoFilesAreRefused) {
  const std::map<std::string, std::function<void(const std::string &)>> kinds{
      {"link", [&](const std::string &path) { fs::create_symlink(victim(), path); }},
      {"dangling link", [&](const std::string &path) { fs::create_symlink(outside() + "/new", path); }},
      {"link of folder", [&](const std::string &path) { fs::create_directory_symlink(outside(), path); }},
      {"pipe", [](const std::string &path) { ASSERT_EQ(mkfifo(path.c_str(), 0666), 0); }},
      {"folder", [](const std::string &path) { fs::create_directory(path); }},
      {"device", [](const std::string &path) { fs::create_symlink("/dev/zero", path); }},
  };
  for (const auto &[kind, make] : kinds)
    for (const std::string name : {"step-7.writer-3.data", "step-7.writer-3.list", "step-7.writer-3.done",
                                   "step-7.writer-3.list.tmp", "writer-3.lock", "recovery.lock"}) {
      const std::string what = kind + " " + name;
      const auto spoil = [&] {
        leave_a_step();
        fs::remove(stage() + "/" + name);
        make(stage() + "/" + name);
      };
      spoil();
      expect_harmless(what, [&] { recover_stage(stage(), target(), 0); });
      spoil();
      expect_harmless(what, [&] { discard_stage(stage(), 0); });
      spoil();
      fs::remove(staged("data"));
      fs::remove(staged("list"));
      expect_harmless(what, [&] {
        Stage begun({stage(), target(), 3});
        begun.begin(7, 100, 1);
        begun.append(0, std::vector<std::byte>(100));
        begun.seal();
        begun.finish();
      });
    }
}

TEST_F(Hostile, AStageIsClosedToOthersAndNoLink) {
  { Stage made({in("deep/stage"), target(), 0}); }
  struct stat status {};
  for (const std::string folder : {"deep", "deep/stage"}) {
    ASSERT_EQ(stat(in(folder).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U) << folder;
  }
  ASSERT_EQ(stat(in("deep/stage/writer-0.lock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0077, 0U);
  fs::create_directory_symlink(outside(), stage());
  EXPECT_THROW(Stage({stage(), target(), 0}), StorageError);
  expect_harmless("a stage that is a link", [&] { recover_stage(stage(), target(), 0); });
  if (geteuid() != 0) GTEST_SKIP() << "nothing can be given to another user";
  fs::remove(stage());
  leave_a_step();
  ASSERT_EQ(chown(stage().c_str(), 12345, 12345), 0);
  EXPECT_THROW(recover_stage(stage(), target(), 0), InputError);
  EXPECT_TRUE(fs::exists(staged("list")));
}

class HostileNodes : public Hostile {
 protected:
  std::string index() const { return in("out.index"); }
  void leave_files() const {
    for (const int node : {0, 4}) {
      fs::remove_all(node_file_of(in("out"), node));
      put(node_file_of(in("out"), node), std::string(6000, 'n'));
    }
    NodeIndex content;
    content.size_bytes = 7000;
    content.files = {"out.node-0", "out.node-4"};
    content.ranges = {{{0, 1000}, 0, 0}, {{1000, 2000}, 1, 0}};
    content.bases = {0, 4000};
    fs::remove_all(index());
    put(index(), to_text(content));
  }
};

TEST_F(HostileNodes, IndexesWithNonsenseReachNothingElse) {
  leave_files();
  const std::string whole = text_in(index());
  Random random(2);
  int merged = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string text = mutated(whole, random, victim());
    put(index(), text);
    expect_harmless(text, [&] {
      const std::uint64_t bytes = merge(index(), in("merged"));
      ++merged;
      const std::string found = bytes < (1 << 20) ? text_in(in("merged")) : "";
      EXPECT_EQ(found.find(victim_text), std::string::npos) << text;
    });
    EXPECT_FALSE(fs::exists(in("merged.tmp"))) << text;
  }
  EXPECT_LT(merged, 1000);
}

TEST_F(HostileNodes, FilesThatAreNoneAreRefused) {
  for (const std::string name : {"out.node-0", "out.node-4", "out.index"}) {
    leave_files();
    const std::string before = text_in(in(name));
    fs::remove(in(name));
    fs::create_symlink(victim(), in(name));
    EXPECT_THROW(merge(index(), in("merged")), StorageError) << name;
    fs::remove(in(name));
    ASSERT_EQ(mkfifo(in(name).c_str(), 0666), 0);
    EXPECT_THROW(merge(index(), in("merged")), StorageError) << name;
    fs::remove(in(name));
    fs::create_directory(in(name));
    EXPECT_THROW(merge(index(), in("merged")), StorageError) << name;
  }
  leave_files();
  fs::create_symlink(victim(), in("merged.tmp"));
  expect_harmless("a link beside the target", [&] { merge(index(), in("merged")); });
  fs::resize_file(index(), std::uint64_t{1} << 40);
  EXPECT_THROW(merge(index(), in("merged")), CorruptionError) << "no index is so long";
}

TEST_F(Hostile, PipesAreNotWaitedFor) {
  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0666), 0);
  EXPECT_THROW(Stage({stage(), in("pipe"), 0}), StorageError);
  EXPECT_THROW(read_text(in("pipe")), StorageError);
  EXPECT_EQ(text_in(victim()), victim_text);
}

}  // namespace
}  // namespace outcrop::aggregate
