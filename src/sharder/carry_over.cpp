#include <fmt/format.h>
#include <flatshard/core/error.hpp>
#include <flatshard/ops/kernel_table.hpp>
#include <flatshard/sharder/carry_over.hpp>

#include <algorithm>

#include "carry_plan.hpp"

namespace flatshard {

namespace {

using detail::CarryPlan;
using detail::Transfer;

using Pieces = std::map<StateTensor, std::vector<ShardPiece>>;

/// One rank's part of carrying a plan out; all work goes to one stream, in order.
class Carrying {
 public:
  Carrying(Engine& from, Engine& to, Bytes block_bytes)
      : from_(from),
        to_(to),
        stream_(to.device().make_stream()),
        block_bytes_(block_bytes),
        waits_(from.plan().nvme_block_bytes + to.plan().nvme_block_bytes > 0),
        held_(pieces_of(from)),
        needed_(pieces_of(to)) {}

  void run(const CarryPlan& plan) {
    const auto travels = [](const Transfer& transfer) {
      return transfer.root != Transfer::in_place;
    };
    if (std::any_of(plan.transfers.begin(), plan.transfers.end(), travels)) prepare_block();
    for (const StateTensor& tensor : plan.zeroed) clear(tensor);
    for (const Transfer& transfer : plan.transfers) {
      if (transfer.root == Transfer::in_place)
        take_held(transfer);
      else
        broadcast(transfer);
    }
    stream_->synchronize();
  }

 private:
  static Pieces pieces_of(Engine& engine) {
    Pieces pieces;
    const Rank rank = engine.communicator().rank();
    for (const ShardPiece& piece : pieces_to_load(engine.plan(), engine.model(), rank))
      pieces[piece.tensor].push_back(piece);
    return pieces;
  }

  void clear(const StateTensor& tensor) {
    for (const ShardPiece& piece : needed_[tensor]) {
      to_.device().kernels().zero(address_of(to_, piece), piece.count * size_of(piece.dtype),
                                  *stream_);
      wait_for_nvme();
    }
  }

  /// What this rank needs of [first, first + count), from what it has.
  void take_held(const Transfer& transfer) {
    for (const ShardPiece& piece : held_[transfer.from]) {
      const Elements first = std::max(transfer.first, piece.first);
      const Elements end = std::min(transfer.first + transfer.count, piece.first + piece.count);
      if (first < end)
        place(transfer.to, element(from_, piece, first), piece.dtype, first, end - first);
    }
  }

  void broadcast(const Transfer& transfer) {
    const DType dtype = dtype_of_tensor(from_.plan(), from_.model(), transfer.from);
    const Elements most = std::max<Elements>(1, block_bytes_ / size_of(dtype));
    for (Elements done = 0; done < transfer.count; done += most) {
      const Elements first = transfer.first + done;
      const Elements count = std::min(most, transfer.count - done);
      auto* block = static_cast<std::byte*>(block_.data());
      if (to_.communicator().rank() == transfer.root) fill(block, transfer.from, first, count);
      to_.communicator().broadcast("carry_over", block, count, dtype, transfer.root, *stream_);
      place(transfer.to, block, dtype, first, count);
    }
  }

  /// The root has all of a transfer.
  void fill(std::byte* block, const StateTensor& tensor, Elements first, Elements count) {
    for (const ShardPiece& piece : held_[tensor]) {
      const Elements begin = std::max(first, piece.first);
      const Elements end = std::min(first + count, piece.first + piece.count);
      if (begin >= end) continue;
      to_.device().copy(element(from_, piece, begin),
                        block + (begin - first) * size_of(piece.dtype),
                        (end - begin) * size_of(piece.dtype), *stream_);
      wait_for_nvme();
    }
  }

  /// Elements [first, first + count) of the tensor lie at `source`; this rank takes what it needs.
  void place(const StateTensor& tensor, const std::byte* source, DType dtype, Elements first,
             Elements count) {
    for (const ShardPiece& piece : needed_[tensor]) {
      const Elements begin = std::max(first, piece.first);
      const Elements end = std::min(first + count, piece.first + piece.count);
      if (begin >= end) continue;
      to_.device().kernels().cast(source + (begin - first) * size_of(dtype), dtype,
                                  element(to_, piece, begin), piece.dtype, end - begin, *stream_);
      wait_for_nvme();
    }
  }

  /// What rests on NVMe stays in memory only until something else is asked for.
  void wait_for_nvme() {
    if (waits_) stream_->synchronize();
  }

  /// Address of the tensor's element `index`, which lies in the piece.
  static std::byte* element(const Engine& engine, const ShardPiece& piece, Elements index) {
    return address_of(engine, piece) + (index - piece.first) * size_of(piece.dtype);
  }

  /// Every rank has its memory before the first collective runs: having it may wait for the devices
  /// of other ranks in this process.
  void prepare_block() {
    block_ = Buffer(to_.device().memory(), block_bytes_);
    to_.communicator().synchronize();
  }

  Engine& from_;
  Engine& to_;
  std::unique_ptr<Stream> stream_;
  Bytes block_bytes_;
  bool waits_;
  Buffer block_;
  Pieces held_, needed_;
};

void expect_fit(const Engine& from, const Engine& to, const CarryOverOptions& options) {
  FLATSHARD_EXPECTS(&from != &to, "carry_over: a Sharder cannot take over from itself");
  const Communicator& old = from.communicator();
  const Communicator& fresh = to.communicator();
  FLATSHARD_EXPECTS(old.size() == fresh.size() && old.rank() == fresh.rank(),
                    fmt::format("carry_over: rank {} of {} cannot take over from rank {} of {}: "
                                "other ranks need a checkpoint",
                                fresh.rank(), fresh.size(), old.rank(), old.size()));
  FLATSHARD_EXPECTS(
      from.device().kind() == to.device().kind() && from.device().name() == to.device().name(),
      fmt::format("carry_over: from {} to {}: other devices need a checkpoint",
                  from.device().name(), to.device().name()));
  FLATSHARD_EXPECTS(
      options.block_bytes >= 4096,
      fmt::format("carry_over: blocks of {} bytes, need at least 4096", options.block_bytes));
}

void expect_optimizer(const Engine& from, const Engine& to, const CarryOverOptions& options) {
  const Optimizer& old = from.group_optimizers().front();
  const Optimizer& fresh = to.group_optimizers().front();
  FLATSHARD_EXPECTS(fresh.has_type_of(old),
                    fmt::format("carry_over: the optimizer was '{}' and is '{}' (optimizer_state = "
                                "false would begin anew)",
                                old.name(), fresh.name()));
  FLATSHARD_EXPECTS(
      !options.hyper_parameters || from.group_optimizers().size() == to.group_optimizers().size(),
      fmt::format("carry_over: hyper-parameters of {} groups for {} "
                  "(hyper_parameters = false would keep the new ones)",
                  from.group_optimizers().size(), to.group_optimizers().size()));
}

/// The numbers beside the elements, as `to` has to go on.
TrainingState carried_state(const Engine& from, const Engine& to, const CarryPlan& plan) {
  const TrainingState old = from.training_state();
  TrainingState state = to.training_state();
  const auto time_of = [&](int parameter) -> std::int64_t {
    const auto source = plan.sources.find({StateTensor::Kind::Parameter, parameter, 0});
    const bool missing = source == plan.sources.end();
    const Plan& where = missing ? to.plan() : from.plan();
    const auto index = static_cast<std::size_t>(missing ? parameter : source->second.index);
    const auto flat = static_cast<std::size_t>(where.flat_of_parameter[index]);
    return where.flats[flat].requires_grad ? (missing ? state : old).times[flat] : 0;
  };
  std::vector<std::int64_t> times = flat_times(to.plan(), to.model(), time_of);
  state.times = std::move(times);
  state.steps = old.steps;
  state.seed = old.seed;
  if (carries_on(old.loss_scaler, state.loss_scaler))
    state.loss_scaler.state = old.loss_scaler.state;
  return state;
}

}  // namespace

void carry_over(Engine& from, Engine& to, const CarryOverOptions& options) {
  expect_fit(from, to, options);
  if (options.optimizer_state) expect_optimizer(from, to, options);
  from.begin_state_read("carry_over()");
  to.begin_state_read("carry_over()");
  const CarryPlan plan =
      detail::plan_carry_over({from.plan(), from.model()}, {to.plan(), to.model()}, options);
  TrainingState state;
  if (options.optimizer_state) state = carried_state(from, to, plan);
  to.begin_state_write("carry_over()");
  Carrying(from, to, options.block_bytes).run(plan);
  if (!options.optimizer_state) return;
  to.restore(state);
  if (options.hyper_parameters) to.set_group_optimizers(from.group_optimizers());
}

}  // namespace flatshard
