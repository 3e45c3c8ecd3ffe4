#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/checkpoint/find_checkpoint.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace flatshard {
namespace {

// What a rank tells the others: this mark and its message, or anything else when all is well.
constexpr char failed = '-', well = '+';

std::string told(const std::optional<std::string>& failure) {
  return failure ? failed + *failure : std::string(1, well);
}

bool is_failure(const std::string& text) { return text.empty() || text[0] != well; }

/// The same on every rank: the first rank that failed speaks, the others are counted.
std::string joined_failure(const std::vector<std::string>& texts) {
  const auto first = std::find_if(texts.begin(), texts.end(), is_failure);
  const auto count = std::count_if(texts.begin(), texts.end(), is_failure);
  const std::string message = first->empty() ? "no answer" : first->substr(1);
  const std::string others = count > 1 ? fmt::format(" (and {} more ranks failed)", count - 1) : "";
  return fmt::format("rank {}: {}{}", first - texts.begin(), message, others);
}

void expect_all_well(const std::vector<std::string>& texts) {
  if (std::any_of(texts.begin(), texts.end(), is_failure))
    throw CheckpointError("save: " + joined_failure(texts));
}

std::optional<std::string> failure_of(const std::function<void()>& work) noexcept {
  try {
    work();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

Commit::Commit(RankAgreement& ranks, const CommitOptions& options, FileOperations& operations)
    : ranks_(ranks), options_(options), operations_(operations) {
  std::string answer(1, well);
  if (ranks_.rank() == 0) {
    failure_ = failure_of([&] { begin(); });
    answer = told(failure_) + (failure_ ? "" : stage_.folder_name() + "/" + options_.folder);
  }
  try {
    enter(from_rank_0(answer).substr(1));
  } catch (...) {
    discard();
    throw;
  }
}

Commit::~Commit() { discard(); }

/// `stage` is the name of the stage's folder, a slash, and the path of the folder that it is in.
void Commit::enter(const std::string& stage) {
  const auto slash = stage.find('/');
  options_.folder = stage.substr(slash + 1);
  stage_ = StageName::parse(stage.substr(0, slash)).value();
  failure_ =
      failure_of([&] { stage_folder_.emplace(enter_stage(options_.folder, stage_, operations_)); });
}

void Commit::discard() noexcept {
  if (folder_ && stage_.save_id != 0 && !published_) folder_->discard(stage_);
}

void Commit::begin() {
  steps_to_remove(options_.retention, {}, options_.step);  // refuses what it cannot be
  folder_.emplace(options_.folder, operations_);
  warnings_ = folder_->warnings();
  stage_ = folder_->begin(options_.step, options_.bytes, options_.reserve, options_.existing);
}

/// Rank 0's text on every rank; throws when rank 0 failed.
std::string Commit::from_rank_0(const std::string& text) {
  std::vector<std::string> texts = ranks_.all_gather(text);
  texts.resize(1);
  expect_all_well(texts);
  return texts[0];
}

void Commit::run(const std::function<void(const Folder& stage)>& work) noexcept {
  if (failure_) return;
  failure_ = failure_of([&] {
    work(*stage_folder_);
    stage_folder_->synchronize();
  });
}

void Commit::agree() { expect_all_well(ranks_.all_gather(told(failure_))); }

std::string Commit::publish(const std::function<Manifest(const Folder& stage)>& describe) {
  agree();
  Manifest manifest;
  failure_ = failure_of([&] { manifest = describe(*stage_folder_); });
  agree();
  if (folder_) failure_ = failure_of([&] { finish(std::move(manifest)); });
  from_rank_0(told(failure_));
  if (folder_)
    for (std::string& warning : folder_->retain(options_.retention, stage_.step))
      warnings_.push_back(std::move(warning));
  return options_.folder + "/" + step_folder_name(stage_.step);
}

void Commit::finish(Manifest manifest) {
  folder_->seal(stage_, std::move(manifest));
  // From the first attempt on the stage may be the checkpoint, or, exchanged, what it replaces.
  published_ = true;
  folder_->publish(stage_, options_.existing);
}

}  // namespace flatshard
