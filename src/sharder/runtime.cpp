#include "runtime.hpp"

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

Runtime::Runtime(Communicator& world_communicator, Plan made_plan, Device& on, Stream* user_compute,
                 MemoryResource* user_memory)
    : plan(std::move(made_plan)),
      device(on),
      memory_resource(user_memory == nullptr ? on.memory() : *user_memory),
      kernels(on.kernels()),
      own_compute_(user_compute == nullptr ? on.make_compute_stream() : nullptr),
      own_gather_(on.make_stream()),
      own_reduce_(on.make_stream()),
      own_shard_(split_contiguous(world_communicator, plan.shard_group)),
      own_replicas_(split_strided(world_communicator, plan.shard_group)),
      own_secondary_(plan.request.strategy.secondary_shard
                         ? split_contiguous(world_communicator, plan.secondary_group)
                         : nullptr),
      arena_(memory_resource, plan.arena_bytes),
      compute(user_compute == nullptr ? *own_compute_ : *user_compute),
      gather(*own_gather_),
      reduce(*own_reduce_),
      world(world_communicator),
      shard(own_shard_ ? *own_shard_ : world_communicator),
      replicas(own_replicas_ ? *own_replicas_ : world_communicator),
      secondary(own_secondary_ ? *own_secondary_ : world_communicator) {
  for (int index = 0; index < static_cast<int>(plan.flats.size()); ++index)
    flats.push_back(locate(index));
  if (const Block* exchange = plan.block(Role::Exchange, 0))
    for (Communicator* communicator : {&shard, &replicas})
      communicator->lend_scratch(address(Role::Exchange, 0), exchange->bytes);
  kernels.zero(arena_.data(), plan.arena_bytes, reduce);
  reduce.synchronize();
}

Runtime::~Runtime() {
  drain();
  for (Communicator* communicator : {&shard, &replicas}) communicator->lend_scratch(nullptr, 0);
}

void Runtime::drain() noexcept {
  for (Stream* stream : {&compute, &gather, &reduce}) {
    try {
      stream->synchronize();
    } catch (...) {  // a destructor cannot report it; the peers and the user were told before
    }
  }
}

std::byte* Runtime::address(Role role, int owner, int index) const {
  const Block* block = plan.block(role, owner, index);
  return block == nullptr ? nullptr : static_cast<std::byte*>(arena_.data()) + block->offset;
}

FlatMemory Runtime::locate(int index) const {
  const Flat& flat = plan.flats[static_cast<std::size_t>(index)];
  const Elements own = shard.rank() * flat.partition.slice();
  FlatMemory at;
  at.whole = address(Role::Whole, index);
  at.master = address(Role::Master, index);
  at.compute = address(Role::Compute, index);
  if (flat.whole == ParametersWhole::Always && at.whole != nullptr)
    at.compute = at.whole + own * size_of(flat.compute);
  if (flat.requires_grad && flat.master_is_compute) {
    if (at.master == nullptr) at.master = at.compute;
    at.compute = at.master;
  }
  at.secondary = address(Role::Secondary, index);
  at.gradient = address(Role::Gradient, index);
  const bool boundary = plan.moment == ReduceMoment::Boundary;
  if (at.gradient != nullptr)
    at.gradient_slice = at.gradient + (boundary ? own * size_of(flat.accumulate) : 0);
  for (int state = 0; state < plan.request.optimizer_states; ++state)
    at.states.push_back(address(Role::State, index, state));
  for (int sum = 0; sum < plan.partial_sums; ++sum)
    at.partials.push_back(address(Role::Partial, index, sum));
  return at;
}

}  // namespace flatshard::detail
