#include "runtime.hpp"

#include <fmt/format.h>
#include <flatshard/core/error.hpp>

#include "plan_build.hpp"

namespace flatshard::detail {

namespace {

/// Null when `part` is the whole world or one rank alone: no communicator of its own is needed.
std::unique_ptr<Communicator> split_contiguous(Communicator& world, int part) {
  if (part == world.size()) return nullptr;
  return world.split(world.rank() / part, world.rank());
}

std::unique_ptr<Communicator> split_strided(Communicator& world, int stride) {
  if (stride == 1) return nullptr;
  return world.split(world.rank() % stride, world.rank());
}

}  // namespace

Runtime::Runtime(Communicator& world_communicator, Plan made_plan, Device& on,
                 const Options& options)
    : plan(std::move(made_plan)),
      device(on),
      memory_resource(options.memory == nullptr ? on.memory() : *options.memory),
      kernels(on.kernels()),
      own_compute_(options.compute_stream == nullptr ? on.make_compute_stream() : nullptr),
      own_gather_(on.make_stream()),
      own_reduce_(on.make_stream()),
      own_upload_(offloads() ? on.make_stream() : nullptr),
      own_download_(offloads() ? on.make_stream() : nullptr),
      own_host_(offloads() ? on.make_host_side_stream() : nullptr),
      own_disk_(plan.parameter_file.buffers > 0 ? on.make_host_side_stream() : nullptr),
      own_shard_(split_contiguous(world_communicator, plan.shard_group)),
      own_replicas_(split_strided(world_communicator, plan.shard_group)),
      own_secondary_(plan.request.strategy.secondary_shard
                         ? split_contiguous(world_communicator, plan.secondary_group)
                         : nullptr),
      arenas_{Buffer(memory_resource, plan.arena_bytes), Buffer(), Buffer()},
      compute(options.compute_stream == nullptr ? *own_compute_ : *options.compute_stream),
      gather(*own_gather_),
      reduce(*own_reduce_),
      upload(own_upload_ ? *own_upload_ : *own_gather_),
      download(own_download_ ? *own_download_ : *own_reduce_),
      host(own_host_ ? *own_host_ : *own_reduce_),
      disk(own_disk_ ? *own_disk_ : host),
      world(world_communicator),
      shard(own_shard_ ? *own_shard_ : world_communicator),
      replicas(own_replicas_ ? *own_replicas_ : world_communicator),
      secondary(own_secondary_ ? *own_secondary_ : world_communicator) {
  take_host_memory(options.on_warning);
  for (auto& event : joined_) event = make_event();
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index)
    flats.push_back(locate(index));
  open_files(options);
  lend_exchange();
  try {
    zero_arenas();
  } catch (...) {  // no destructor waits for what was enqueued
    drain();
    throw;
  }
}

void Runtime::lend_exchange() {
  const Block* exchange = plan.block(Role::Exchange, 0);
  if (exchange == nullptr) return;
  for (Communicator* communicator : {&shard, &replicas})
    communicator->lend_scratch(address(Role::Exchange, 0), exchange->bytes);
}

void Runtime::zero_arenas() {
  kernels.zero(arena(), plan.arena_bytes, reduce);
  for (const Memory memory : {Memory::Pinned, Memory::Pageable})
    if (plan.bytes(memory) > 0)
      device.host_kernels().zero(arenas_[static_cast<std::size_t>(memory)].data(),
                                 plan.bytes(memory), host);
  synchronize();
}

/// Pageable where the device cannot have so much pinned memory.
Buffer Runtime::take_pinned(std::string& warning) {
  try {
    return {device.host_memory(), plan.pinned_bytes};
  } catch (const MemoryError& error) {
    warning += fmt::format("{}{} bytes that the Plan pins are pageable: {}",
                           warning.empty() ? "" : "; ", plan.pinned_bytes, error.what());
    pinned_ = false;
    return {pageable_memory_, plan.pinned_bytes};
  }
}

void Runtime::take_host_memory(const WarningHandler& on_warning) {
  if (!offloads()) return;
  std::string warning;
  if (plan.pageable_bytes > 0)
    warning = fmt::format(
        "{} bytes of host memory are pageable, because pinned_budget allows no more than the {} "
        "that are pinned",
        plan.pageable_bytes, plan.pinned_bytes);
  arenas_[static_cast<std::size_t>(Memory::Pinned)] = take_pinned(warning);
  arenas_[static_cast<std::size_t>(Memory::Pageable)] =
      Buffer(pageable_memory_, plan.pageable_bytes);
  if (!warning.empty() && on_warning) on_warning(warning);
}

std::unique_ptr<NvmeRing> Runtime::open_file(const NvmeFile& file, const NvmeOptions& options,
                                             Stream& stream, int owner, int index) {
  if (file.buffers == 0) return nullptr;
  NvmeRing::Blocks blocks{{}, address(Role::Staging, staging_bounce, index)};
  for (int buffer = 0; buffer < file.buffers; ++buffer)
    blocks.buffers.push_back(address(Role::Staging, owner, buffer));
  return std::make_unique<NvmeRing>(plan, file, options, device, host_stream(stream), flats,
                                    blocks);
}

void Runtime::open_files(const Options& options) {
  optimizer_slots = open_file(plan.optimizer_file, options.nvme, host, staging_optimizer_buffer, 0);
  parameter_slots = open_file(plan.parameter_file, options.nvme, disk, staging_parameter_buffer, 1);
  const NvmeRing* const any = optimizer_slots ? optimizer_slots.get() : parameter_slots.get();
  if (any != nullptr && !any->store().fallback().empty() && options.on_warning)
    options.on_warning(
        fmt::format("NVMe through threads, not io_uring: {}", any->store().fallback()));
}

void Runtime::wait_for_nvme() {
  if (optimizer_slots) host.synchronize();
  if (parameter_slots) disk.synchronize();
}

void Runtime::bring_and_wait(int index, bool writes) {
  const Flat& its = flat(index);
  NvmeRing* const slots = its.requires_grad ? optimizer_slots.get() : parameter_slots.get();
  if (slots == nullptr || !slots->holds(its.unit)) return;
  synchronize();
  slots->bring_and_wait(its.requires_grad ? NvmePart::Optimizer : NvmePart::Parameters, index,
                        writes);
}

void Runtime::put_back_and_wait() {
  for (NvmeRing* slots : {optimizer_slots.get(), parameter_slots.get()})
    if (slots != nullptr) slots->put_back_and_wait();
}

void Runtime::join() {
  const auto streams = own_streams();
  for (std::size_t i = 0; i < streams.size(); ++i) streams[i]->record(*joined_[i]);
  for (Stream* stream : streams)
    for (const auto& event : joined_) stream->wait(*event);
}

void Runtime::check() {
  for (const NvmeRing* slots : {optimizer_slots.get(), parameter_slots.get()})
    if (slots != nullptr) slots->check();
  gather.check();
  reduce.check();
  if (!offloads()) return;
  for (Stream* stream : {&upload, &download, &host, &disk}) stream->check();
}

// A user's compute stream comes last: what it waits for may never end, and only who waits for the
// others notices.
void Runtime::synchronize() {
  for (Stream* stream : {&gather, &reduce}) stream->synchronize();
  if (offloads())
    for (Stream* stream : {&upload, &download, &host, &disk}) stream->synchronize();
  compute.synchronize();
}

Runtime::~Runtime() {
  drain();
  for (Communicator* communicator : {&shard, &replicas}) communicator->lend_scratch(nullptr, 0);
}

void Runtime::drain() noexcept {
  for (Stream* stream : {&gather, &reduce, &upload, &download, &host, &disk, &compute})
    settle(*stream);
}

void Runtime::settle(Stream& stream) noexcept {
  try {
    stream.synchronize();
  } catch (...) {  // a destructor cannot report it; the peers and the user were told before
  }
}

std::byte* Runtime::address(Role role, int owner, int index) const {
  const Block* block = plan.block(role, owner, index);
  if (block == nullptr || block->memory == Memory::Nvme) return nullptr;
  const Buffer& arena = arenas_[static_cast<std::size_t>(block->memory)];
  return static_cast<std::byte*>(arena.data()) + block->offset;
}

FlatMemory Runtime::locate(int index) const {
  const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
  const Elements own = shard.rank() * flat.partition.slice();
  FlatMemory at;
  at.whole = address(Role::Whole, index);
  at.master = address(Role::Master, index);
  at.compute = address(Role::Compute, index);
  if (flat.rests_whole)
    at.resting_whole = flat.parameters_rest == Tier::Device ? at.whole : at.compute;
  if (at.resting_whole != nullptr) at.compute = at.resting_whole + own * size_of(flat.compute);
  if (flat.requires_grad && flat.master_is_compute) {
    if (at.master == nullptr) at.master = at.compute;
    at.compute = at.master;
  }
  at.secondary = address(Role::Secondary, index);
  at.gradient = address(Role::Gradient, index);
  const bool boundary = plan.moment == ReduceMoment::Boundary;
  if (at.gradient != nullptr)
    at.sum_slice = at.gradient + (boundary ? own * size_of(flat.accumulate) : 0);
  const bool copied = steps_on_host(plan) && !sums_on_host(plan);
  at.gradient_slice = copied ? address(Role::ReducedGradient, index) : at.sum_slice;
  for (int state = 0; state < plan.request.optimizer_states; ++state)
    at.states.push_back(address(Role::State, index, state));
  for (int sum = 0; sum < plan.partial_sums; ++sum)
    at.partials.push_back(address(Role::Partial, index, sum));
  return at;
}

}  // namespace flatshard::detail
