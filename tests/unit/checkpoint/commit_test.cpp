#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/io/faulty_file_operations.hpp>

#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "scratch_folder.hpp"
#include "tiny_save.hpp"
#include "turn_agreement.hpp"
#include "without_fsync.hpp"

using namespace flatshard;
using flatshard_test::in_turns;
using flatshard_test::ScratchFolder;

namespace {

flatshard_test::WithoutFsync posix;

CommitOptions options(const ScratchFolder& scratch, std::int64_t step) {
  return {.folder = scratch / "run", .step = step};
}

void save(const CommitOptions& with, std::int64_t contents_of) {
  SoloAgreement solo;
  tiny::save(solo, with, contents_of, posix);
}
void save(const ScratchFolder& scratch, std::int64_t step) { save(options(scratch, step), step); }

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const FolderEntry& entry : Folder::open(folder).list()) names.insert(entry.name);
  return names;
}
using Names = std::set<std::string>;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string found_in(const ScratchFolder& scratch) { return tiny::load(scratch / "run", posix); }
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

constexpr std::uint64_t any_id = 0x0123456789abcdef;

}  // namespace

TEST_CASE("names of steps and stages have one spelling") {
  CHECK(step_folder_name(1000) == "step-1000");
  CHECK(step_of("step-0") == 0);
  CHECK(step_of("step-9223372036854775807") == 9223372036854775807);
  for (const char* name : {"step-", "step-01", "step--1", "step-+1", "step-1 ", "Step-1", "step-1x",
                           "step-9223372036854775808", "xstep-1", ""})
    CHECK_FALSE(step_of(name));
  const StageName stage{42, any_id};
  CHECK(stage.folder_name() == ".tmp-42-0123456789abcdef");
  CHECK(StageName::parse(stage.folder_name()) == stage);
  for (const char* name : {".tmp-42-123", ".tmp-42-0123456789ABCDEF", ".tmp-042-0123456789abcdef",
                           ".tmp--0123456789abcdef", ".tmp-42", "tmp-42-0123456789abcdef"})
    CHECK_FALSE(StageName::parse(name));
}

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

TEST_CASE("a step that exists is refused, or replaced as a whole") {
  const ScratchFolder scratch;
  save(scratch, 1);
  const std::string before = found_in(scratch);
  CommitOptions again = options(scratch, 1);
  CHECK(message_of([&] { save(again, 2); }) ==
        "save: rank 0: " + (scratch / "run/step-1") + ": exists already");
  CHECK(found_in(scratch) == before);
  again.existing = ExistingStep::Replace;
  save(again, 2);
  CHECK(found_in(scratch) != before);
  CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1"});
  again.step = 2;  // nothing to replace
  save(again, 2);
  CHECK(names_in(scratch / "run") == Names{".lock", "latest", "step-1", "step-2"});
  REQUIRE(::symlink("step-1", (scratch / "run/step-3").c_str()) == 0);
  again.step = 3;
  CHECK(message_of([&] { save(again, 3); }) != "");
}

TEST_CASE("what cannot fit is refused before anything is written") {
  const ScratchFolder scratch;
  CommitOptions large = options(scratch, 1);
  large.bytes = Bytes{1} << 60;
  CHECK(message_of([&] { save(large, 1); }).find("bytes are to be written") != std::string::npos);
  large.bytes = 1, large.reserve = Bytes{1} << 60;
  CHECK(message_of([&] { save(large, 1); }).find("to stay free") != std::string::npos);
  CHECK(names_in(scratch / "run") == Names{".lock"});
  large.bytes = 0;
  save(large, 1);
  large.step = 2, large.retention.keep_last = -1;
  CHECK(message_of([&] { save(large, 2); }).find("keep_last") != std::string::npos);
  large.step = -1, large.retention = {};
  CHECK(message_of([&] { save(large, 2); }).find("negative") != std::string::npos);
}

TEST_CASE("one save at a time: a second one is refused while the first lives") {
  const ScratchFolder scratch;
  SoloAgreement solo;
  {
    const Commit first(solo, options(scratch, 1));
    CHECK(message_of([&] { save(scratch, 2); }).find("another save") != std::string::npos);
    CHECK(names_in(scratch / "run") == Names{".lock", first.stage().folder_name()});
  }
  CHECK(names_in(scratch / "run") == Names{".lock"});  // deleted with the Commit
  save(scratch, 2);
}

TEST_CASE("what dead saves have left is swept; other files and links are not") {
  const ScratchFolder scratch;
  const Folder run = Folder::open_or_create(scratch / "run");
  const std::string stage = StageName{1, any_id}.folder_name(),
                    trash = ".trash-2-" + stage.substr(7);
  run.create_folder(stage).create("half").close();
  run.create_folder(trash).create("half").close();
  run.create_folder(".tmp-mine").create("x").close();
  run.create(StageName{3, any_id}.folder_name()).close();  // a file of that name
  const ScratchFolder precious;
  Folder::open(precious.path()).create("x").close();
  const std::string link = StageName{4, any_id}.folder_name();
  REQUIRE(::symlink(precious.path().c_str(), (scratch / ("run/" + link)).c_str()) == 0);
  save(scratch, 1);
  CHECK(names_in(scratch / "run") ==
        Names{".lock", "latest", "step-1", ".tmp-mine", link, StageName{3, any_id}.folder_name()});
  CHECK(names_in(precious.path()) == Names{"x"});
}

TEST_CASE("without locks only what is older than a day is swept") {
  const ScratchFolder scratch;
  const Folder run = Folder::open_or_create(scratch / "run");
  const std::string fresh = StageName{1, any_id}.folder_name();
  const std::string old = StageName{2, any_id}.folder_name();
  run.create_folder(fresh), run.create_folder(old);
  const auto path = std::filesystem::path(scratch / ("run/" + old));
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) - std::chrono::hours(25));
  // mkdir, open, fsync, close, open; open .lock, fstat, lock
  FaultyFileOperations faulty(posix, {.operation = 8, .code = ENOLCK});
  const CheckpointFolder folder(scratch / "run", faulty);
  REQUIRE(faulty.faulty_operation() == "lock");
  CHECK(names_in(scratch / "run") == Names{".lock", fresh});
}

TEST_CASE("older checkpoints go when a new one is there") {
  const ScratchFolder scratch;
  CommitOptions with = options(scratch, 0);
  with.retention = {.keep_last = 2, .keep_every = 4};
  for (with.step = 0; with.step < 8; ++with.step) save(with, with.step);
  CHECK(names_in(scratch / "run") ==
        Names{".lock", "latest", "step-0", "step-4", "step-6", "step-7"});
  // A folder without a manifest is no checkpoint: it counts for nothing and stays.
  Folder::open(scratch / "run").create_folder("step-100");
  save(with, 8);
  CHECK(names_in(scratch / "run") ==
        Names{".lock", "latest", "step-0", "step-100", "step-4", "step-7", "step-8"});
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

TEST_CASE("latest is a hint: what is not whole is passed over, for the newest that is") {
  const ScratchFolder scratch;
  CHECK_THROWS_AS(find_checkpoint(scratch / "run"), IoError);
  Folder::open_or_create(scratch / "run");
  CHECK_FALSE(find_checkpoint(scratch / "run"));
  for (const std::int64_t step : {1, 2, 3, 20}) save(scratch, step);
  const auto step_found = [&] { return find_checkpoint(scratch / "run")->manifest.step; };
  const std::string latest = scratch / "run/latest";
  CHECK(step_found() == 20);
  write_text(latest, "step-2\n");  // a run that was resumed from step 1
  CHECK(step_found() == 2);
  for (const char* text : {"", "step-4\n", "../step-1\n", "step-1/../step-2\n", "step-02"}) {
    write_text(latest, text);
    CHECK(step_found() == 20);
    CHECK(find_checkpoint(scratch / "run")->passed_over.size() == 1);
  }
  std::filesystem::remove(latest);
  CHECK(step_found() == 20);
  std::filesystem::resize_file(scratch / "run/step-20/data.bin", 2200);
  CHECK(step_found() == 3);
  CHECK(find_checkpoint(scratch / "run")->passed_over.size() == 1);
  CHECK_THROWS_AS(find_checkpoint(scratch / "run/step-20"), ManifestError);
  std::filesystem::remove(scratch / "run/step-3/manifest.json");
  CHECK(step_found() == 2);
  std::filesystem::remove(scratch / "run/step-2/data.bin");
  CHECK(step_found() == 1);
  std::filesystem::rename(scratch / "run/step-1", scratch / "run/step-7");
  CHECK_THROWS_AS(find_checkpoint(scratch / "run"), ManifestError);  // its manifest is of step 1
}

TEST_CASE("a checkpoint through a link is none") {
  const ScratchFolder scratch;
  save(scratch, 1);
  std::filesystem::rename(scratch / "run/step-1", scratch / "step-1");
  std::filesystem::create_directory_symlink(scratch / "step-1", scratch / "run/step-1");
  CHECK_THROWS_AS(find_checkpoint(scratch / "run"), ManifestError);
  std::filesystem::remove(scratch / "run/latest");
  CHECK_FALSE(find_checkpoint(scratch / "run"));
}
