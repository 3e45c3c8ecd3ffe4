#include <flatshard/io/faulty_file_operations.hpp>

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <fstream>
#include <map>
#include <mutex>

#include "commit_cases.hpp"
#include "turn_agreement.hpp"

using namespace flatshard;
using namespace commit_cases;
using flatshard_test::in_turns;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string text_for(std::int64_t step) {
  const ScratchFolder other;
  save(other, step);
  return found_in(other);
}

/// Writes down what decides over durability, with names instead of descriptors and random numbers.
class Protocol final : public FaultyFileOperations {
 public:
  Protocol() : FaultyFileOperations(posix_file_operations(), {}) {}
  std::vector<std::string> lines;

  int open(int folder, const std::string& path, int flags, unsigned mode) override {
    return named(path, FaultyFileOperations::open(folder, path, flags, mode));
  }
  int open_beneath(int folder, const std::string& path, int flags, unsigned mode) override {
    return named(path, FaultyFileOperations::open_beneath(folder, path, flags, mode));
  }
  int fsync(int file) override {
    lines.push_back("fsync " + names_[file]);
    return FaultyFileOperations::fsync(file);
  }
  int mkdir(int folder, const std::string& path, unsigned mode) override {
    lines.push_back("mkdir " + short_name(path));
    return FaultyFileOperations::mkdir(folder, path, mode);
  }
  int rename(int from_folder, const std::string& from, int to_folder, const std::string& to,
             Existing existing) override {
    lines.push_back("rename " + short_name(from) + " " + short_name(to));
    return FaultyFileOperations::rename(from_folder, from, to_folder, to, existing);
  }
  int unlink(int folder, const std::string& path) override {
    lines.push_back("unlink " + path);
    return FaultyFileOperations::unlink(folder, path);
  }

 private:
  int named(const std::string& path, int file) {
    if (file >= 0) names_[file] = short_name(path);
    return file;
  }
  static std::string short_name(const std::string& path) {
    const std::string last = path.substr(path.find_last_of('/') + 1);
    if (last.starts_with("flatshard-")) return "parent";
    return last[0] == '.' ? last.substr(0, last.find('-')) : last;
  }
  std::map<int, std::string> names_;
};

}  // namespace

TEST_CASE("a save is a folder with its files and a manifest, and latest names it") {
  const ScratchFolder scratch;
  save(scratch, 5);
  CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-5"});
  CHECK(names_in(scratch / "run/step-5") == Names{tiny::data_name, manifest_name});
  CHECK(text_of(scratch / "run/latest") == "step-5\n");
  const auto found = find_checkpoint(scratch / "run");
  REQUIRE(found);
  CHECK(found->path == scratch / "run/step-5");
  CHECK(found->manifest.step == 5);
  CHECK(found->manifest.save_id.size() == 16);
  CHECK(found->passed_over.empty());
  CHECK(find_checkpoint(scratch / "run/step-5")->manifest == found->manifest);
  struct stat status = {};
  REQUIRE(::stat((scratch / "run/step-5").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
}

TEST_CASE("the protocol, operation by operation") {
  const ScratchFolder scratch;
  SoloAgreement solo;
  Protocol first, second;
  tiny::save(solo, options(scratch, 1), 1, first);
  using Lines = std::vector<std::string>;
  const Lines body{"fsync run",  // the stage has its entry
                   "fsync .tmp",
                   "fsync data.bin",
                   "fsync .tmp",  // the files have theirs
                   "fsync manifest.json.part",
                   "rename manifest.json.part manifest.json",
                   "fsync .tmp"};
  Lines expected{"mkdir run", "fsync parent", "mkdir .tmp"};
  const auto append = [&](const Lines& lines) {
    expected.insert(expected.end(), lines.begin(), lines.end());
  };
  append(body);
  append({"rename .tmp step-1", "fsync run", "fsync latest.part", "rename latest.part latest",
          "fsync run"});
  CHECK(first.lines == expected);

  CommitOptions with = options(scratch, 2);
  with.retention.keep_last = 1;
  tiny::save(solo, with, 2, second);
  expected = {"mkdir run", "fsync parent", "mkdir .tmp"};
  append(body);
  append({"rename .tmp step-2", "fsync run", "fsync latest.part", "rename latest.part latest",
          "fsync run", "rename step-1 .trash", "fsync run", "unlink data.bin",
          "unlink manifest.json"});
  CHECK(second.lines == expected);
}

TEST_CASE("several ranks save what one saves") {
  const ScratchFolder scratch;
  for (const int ranks : {1, 2, 3, 5}) {
    std::mutex mutex;
    std::set<std::string> paths;
    in_turns(ranks, [&](RankAgreement& agreement) {
      const std::string path = tiny::save(agreement, options(scratch, ranks), 7, posix);
      const std::lock_guard hold(mutex);
      paths.insert(path);
    });
    CHECK(paths == Names{scratch / ("run/step-" + std::to_string(ranks))});
    const std::string found = found_in(scratch);
    CHECK(found.substr(found.find(':')) == text_for(7).substr(text_for(7).find(':')));
  }
}

TEST_CASE("a rank that fails, at any call, fails the save on all ranks with its message") {
  const ScratchFolder scratch;
  save(scratch, 1);
  for (const int place : {0, 1, 2}) {
    std::mutex mutex;
    std::multiset<std::string> messages;
    in_turns(3, [&](RankAgreement& ranks) {
      const std::string message = message_of([&] {
        Commit commit(ranks, options(scratch, 2));
        const auto work = [&](int here) {
          if (ranks.rank() > 0 && place == here)
            throw std::runtime_error("no luck on " + std::to_string(ranks.rank()));
        };
        commit.run([&](const Folder&) { work(0); });
        bool ran = false;
        commit.run([&](const Folder&) { ran = true; });
        CHECK(ran == (place != 0 || ranks.rank() == 0));
        commit.agree();
        commit.run([&](const Folder&) { work(1); });
        commit.publish([&](const Folder&) {
          work(2);
          return Manifest{};
        });
      });
      const std::lock_guard hold(mutex);
      messages.insert(message);
    });
    CHECK(messages.count("save: rank 1: no luck on 1 (and 1 more ranks failed)") == 3);
    CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1"});
  }
}

TEST_CASE("ranks that cannot see the stage fail the save") {
  const ScratchFolder scratch;
  class Elsewhere final : public RankAgreement {
   public:
    explicit Elsewhere(RankAgreement& inner) : inner_(inner) {}
    Rank rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::vector<std::string> all_gather(const std::string& text) override {
      std::vector<std::string> texts = inner_.all_gather(text);
      if (rank() == 1 && texts[0].size() > 1) texts[0] += "-on-another-disk";
      return texts;
    }

   private:
    RankAgreement& inner_;
  };
  in_turns(2, [&](RankAgreement& ranks) {
    Elsewhere agreement(ranks);
    const std::string message =
        message_of([&] { tiny::save(agreement, options(scratch, 1), 1, posix); });
    CHECK(message.find("save: rank 1: open folder: ") == 0);
    CHECK(message.find("No such file") != std::string::npos);
  });
  CHECK(names_in(scratch / "run") == Names{".lock"});
}

TEST_CASE("a manifest that does not fit the files is not published") {
  const ScratchFolder scratch;
  SoloAgreement solo;
  Commit commit(solo, options(scratch, 1));
  commit.run([](const Folder& stage) { stage.create("a").close(); });
  CHECK(message_of([&] {
          commit.publish([](const Folder&) {
            Manifest manifest;
            manifest.files = {{"a", 1, 0, 0, {}}};
            return manifest;
          });
        }).find("a: the file has 0 bytes instead of 1") != std::string::npos);
  CHECK_FALSE(names_in(scratch / "run").contains("step-1"));
}

TEST_CASE("a rank that dies at any agreement leaves no stage, and the older checkpoint") {
  const ScratchFolder scratch;
  /// The n-th agreement finds that a rank is gone.
  class Dying final : public RankAgreement {
   public:
    explicit Dying(int round) : left_(round) {}
    Rank rank() const override { return 0; }
    int size() const override { return 1; }
    std::vector<std::string> all_gather(const std::string& text) override {
      if (--left_ == 0) throw CommunicationError(1, "gone");
      return {text};
    }

   private:
    int left_;
  };
  save(scratch, 1);
  const std::string before = found_in(scratch);
  for (int round = 1; round <= 4; ++round) {
    Dying ranks(round);
    CHECK_THROWS_AS(tiny::save(ranks, options(scratch, 2), 2, posix), CommunicationError);
    CHECK(found_in(scratch) == before);
    CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1"});
  }
  Dying told_too_late(5);  // rank 0 has published
  CHECK_THROWS_AS(tiny::save(told_too_late, options(scratch, 2), 2, posix), CommunicationError);
  CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1", "step-2"});
  CHECK(found_in(scratch) != before);
}
