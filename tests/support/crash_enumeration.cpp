#include "crash_enumeration.hpp"

#include <flatshard/io/faulty_file_operations.hpp>

#include <cerrno>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>

#include "model_disk.hpp"
#include "random.hpp"

using namespace flatshard;

namespace flatshard_test {
namespace {

constexpr std::size_t most_violations = 5;

struct Trouble {
  const char* name;
  FileFaults::Kind kind;
  int code;
  bool sticky;
  bool death = false;
};

constexpr Trouble troubles[] = {
    {"EIO", FileFaults::Kind::Error, EIO, false},
    {"EIO for ever", FileFaults::Kind::Error, EIO, true},
    {"ENOSPC", FileFaults::Kind::Error, ENOSPC, false},
    {"ENOSPC half way", FileFaults::Kind::PartialError, ENOSPC, true},
    {"short", FileFaults::Kind::ShortCount, 0, false},
    {"short for ever", FileFaults::Kind::ShortCount, 0, true},
    {"death", FileFaults::Kind::Error, EIO, false, true},
};

class Enumeration {
 public:
  Enumeration(const CrashScenario& scenario, int random_states)
      : scenario_(scenario), random_states_(random_states), random_(generator()) {}

  CrashReport run() {
    prepare();
    measure();
    for (int rank = 0; rank < scenario_.ranks; ++rank)
      for (std::int64_t n = 1; n <= report_.operations[static_cast<std::size_t>(rank)]; ++n)
        for (const Trouble& trouble : troubles) break_at(rank, n, trouble);
    return report_;
  }

 private:
  using Operations = std::vector<std::unique_ptr<FaultyFileOperations>>;

  /// With the old checkpoint, all of it durable.
  void prepare() {
    ModelDisk disk;
    scenario_.prepare(disk);
    prepared_ = disk.after_crash([](std::size_t) { return Fate::Dropped; }, random_);
  }

  Operations operations_on(ModelDisk& disk, int rank, const FileFaults& faults) const {
    Operations operations;
    for (int r = 0; r < scenario_.ranks; ++r)
      operations.push_back(
          std::make_unique<FaultyFileOperations>(disk, r == rank ? faults : FileFaults{}));
    return operations;
  }

  bool save(const Operations& operations) const {
    std::vector<FileOperations*> pointers;
    for (const auto& rank : operations) pointers.push_back(rank.get());
    try {
      return scenario_.save(pointers);
    } catch (const std::exception&) {
      return false;
    }
  }

  void measure() {
    const auto disk = prepared_->copy();
    old_ = scenario_.load(*disk);
    const Operations operations = operations_on(*disk, -1, {});
    if (!save(operations)) throw std::runtime_error("the save fails without any fault");
    for (const auto& rank : operations) report_.operations.push_back(rank->operations());
    new_ = scenario_.load(*disk);
    scenario_.save_later(*disk);
    later_ = scenario_.load(*disk);
    if (new_ == old_ || later_ == new_ || later_ == old_)
      throw std::runtime_error("a save without any fault is not found");
  }

  void break_at(int rank, std::int64_t n, const Trouble& trouble) {
    const auto disk = prepared_->copy();
    FileFaults faults{n, trouble.kind, trouble.code, trouble.sticky};
    if (trouble.death) faults.at_fault = [&](std::int64_t) { disk->die(); };
    faults.at_failed_fsync = [&](int file) { disk->lose_changes_of(file); };
    const Operations operations = operations_on(*disk, rank, faults);
    const bool reported = save(operations);
    ++report_.saves;
    report_.reported += reported;
    where_ = "rank " + std::to_string(rank) + ", operation " + std::to_string(n) + " (" +
             operations[static_cast<std::size_t>(rank)]->faulty_operation() + "): " + trouble.name;
    check_crashes(*disk, reported, trouble.death);
    const bool kills_later =
        scenario_.later_dies && &trouble == troubles &&
        operations[static_cast<std::size_t>(rank)]->faulty_operation() == "fsync";
    if (kills_later) kill_later(*disk, reported);
    if (!trouble.death) check(*disk, reported, "no crash", true);
  }

  /// Leaves `disk` as it is.
  void kill_later(const ModelDisk& disk, bool reported) {
    bool died = true;
    for (std::int64_t n = 1; died; ++n) {
      died = false;
      const auto copy = disk.copy();
      FaultyFileOperations faulty(*copy, {.operation = n, .at_fault = [&](std::int64_t) {
                                            died = true;
                                            copy->die();
                                          }});
      try {
        scenario_.save_later(faulty);
      } catch (const std::exception&) {
        // Its own crash is what is looked at.
      }
      for (int k = 0; died && k < random_states_; ++k)
        check_crash(*copy, reported, "later death at operation " + std::to_string(n), false,
                    [&](std::size_t) { return static_cast<Fate>(random_() % 3); });
    }
  }

  void check_crashes(const ModelDisk& disk, bool reported, bool thorough) {
    const std::size_t changes = disk.pending();
    check_crash(disk, reported, "all changes kept", true, [](std::size_t) { return Fate::Kept; });
    check_crash(disk, reported, "none kept", true, [](std::size_t) { return Fate::Dropped; });
    for (std::size_t k = 0; thorough && k < changes; ++k) {
      check_crash(disk, reported, "change " + std::to_string(k) + " dropped", false,
                  [&](std::size_t c) { return c == k ? Fate::Dropped : Fate::Kept; });
      check_crash(disk, reported, "only change " + std::to_string(k) + " kept", false,
                  [&](std::size_t c) { return c == k ? Fate::Kept : Fate::Dropped; });
    }
    for (int k = 0; changes > 0 && k < random_states_; ++k)
      check_crash(disk, reported, "random changes kept", k == 0,
                  [&](std::size_t) { return static_cast<Fate>(random_() % 3); });
  }

  void check_crash(const ModelDisk& disk, bool reported, const std::string& what, bool saves_later,
                   const std::function<Fate(std::size_t)>& fate) {
    check(*disk.after_crash(fate, random_), reported, what, saves_later);
  }

  void check(ModelDisk& disk, bool reported, const std::string& what, bool saves_later) {
    ++report_.disks;
    try {
      const std::string found = scenario_.load(disk);
      report_.found_old += found == old_;
      report_.found_new += found == new_;
      report_.found_later += found == later_;
      if (found != old_ && found != new_ && found != later_)
        violated(what, "found neither old nor new: " + found);
      if (reported && found == old_) violated(what, "reported as saved, found: " + found);
      if (saves_later) check_later(disk, what);
    } catch (const std::exception& error) {
      violated(what, error.what());
    }
  }

  void check_later(ModelDisk& disk, const std::string& what) {
    scenario_.save_later(disk);
    const std::string found = scenario_.load(disk);
    if (found != later_) violated(what, "a later save is not found");
  }

  void violated(const std::string& what, const std::string& message) {
    if (report_.violations.size() < most_violations)
      report_.violations.push_back(where_ + "; " + what + ": " + message);
  }

  const CrashScenario& scenario_;
  int random_states_;
  std::mt19937_64 random_;
  std::unique_ptr<ModelDisk> prepared_;
  std::string old_, new_, later_, where_;
  CrashReport report_;
};

}  // namespace

CrashReport enumerate_crashes(const CrashScenario& scenario, int random_states) {
  return Enumeration(scenario, random_states).run();
}

std::string to_string(const CrashReport& report) {
  std::string text = std::to_string(report.operations.size()) + " ranks with";
  for (std::size_t rank = 0; rank < report.operations.size(); ++rank)
    text += (rank == 0 ? " " : " + ") + std::to_string(report.operations[rank]);
  return text + " file operations: " + std::to_string(report.saves) + " broken saves (" +
         std::to_string(report.reported) + " reported as saved), " + std::to_string(report.disks) +
         " disks: " + std::to_string(report.found_old) + " with the old checkpoint, " +
         std::to_string(report.found_new) + " with the new one, " +
         std::to_string(report.found_later) + " with a later one";
}

}  // namespace flatshard_test
