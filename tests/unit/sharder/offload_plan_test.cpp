// Bytes per tier: tables written by hand, and equations over random models.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "../../../src/sharder/plan_build.hpp"
#include "offload.hpp"
#include "plan_cases.hpp"

using namespace flatshard_test;
using sharder_test::all_on_host;
using sharder_test::offloads;
using sharder_test::optimizer_on_host;
using sharder_test::parameters_on_host;

namespace {

constexpr Elements many = 1 << 20;  // P, elements, in two modules

using ByRole = std::map<Role, Bytes>;

template <class Strategy, class Precision = precision::Full<float>>
Plan two_modules(int world, const OffloadTraits& offload, Options options = {}) {
  PlanRequest request = request_for<Strategy, Precision>(world);
  request.offload = offload;
  return make_plan(equal_modules(2, {many / 2}), request, options);
}

/// All roles but Control.
void check_bytes(const Plan& plan, Memory memory, const ByRole& expected) {
  for (int index = 0; index < role_count; ++index) {
    const Role role = static_cast<Role>(index);
    if (role == Role::Control) continue;
    const auto found = expected.find(role);
    CHECK_MESSAGE(plan.bytes(role, memory) == (found == expected.end() ? 0 : found->second),
                  name_of(role) << " in " << name_of(memory));
  }
}

Plan planned(const PlanCase& made, const OffloadTraits& offload, Options options) {
  PlanRequest request = made.request;
  request.offload = offload;
  return make_plan(made.model, request, options);
}

Memory memory_of(Tier tier) { return tier == Tier::Host ? Memory::Pinned : Memory::Device; }

Bytes slices(const Plan& plan, DType Flat::*dtype) {
  Bytes sum = 0;
  for (const Flat& flat : plan.flats)
    if (flat.requires_grad) sum += flat.partition.slice() * size_of(flat.*dtype);
  return sum;
}

}  // namespace

TEST_CASE("offload plan: fp32 AdamW, everything on the host") {
  const Bytes p = many;
  const Plan plan = two_modules<strategy::FullShard>(4, all_on_host);
  check_bytes(plan, Memory::Device,
              {{Role::GatherRing, 4 * p},
               {Role::GradientRing, 4 * p},
               {Role::Scratch, 2 * 4 * p / 2 / 4}});  // reduced slices of a module, two at once
  check_bytes(plan, Memory::Pinned, {{Role::Master, p}, {Role::Gradient, p}, {Role::State, 2 * p}});
  CHECK(plan.pageable_bytes == 0);
  CHECK(plan.flats[0].master_is_compute);
}

TEST_CASE("offload plan: equal dtypes on two tiers are two copies") {
  const Bytes p = many;
  const Plan optimizer = two_modules<strategy::FullShard>(4, optimizer_on_host);
  check_bytes(optimizer, Memory::Device,
              {{Role::Compute, p},
               {Role::GatherRing, 4 * p},
               {Role::GradientRing, 4 * p},
               {Role::Scratch, p}});
  check_bytes(optimizer, Memory::Pinned,
              {{Role::Master, p}, {Role::Gradient, p}, {Role::State, 2 * p}});
  const Plan parameters = two_modules<strategy::FullShard>(4, parameters_on_host);
  check_bytes(parameters, Memory::Device,
              {{Role::Master, p},
               {Role::Gradient, p},
               {Role::State, 2 * p},
               {Role::GatherRing, 4 * p},
               {Role::GradientRing, 4 * p}});
  check_bytes(parameters, Memory::Pinned, {{Role::Compute, p}});
}

TEST_CASE("offload plan: what is rounded beside the optimizer is staged, one unit behind another") {
  const Bytes p = many;
  const Bytes staged = 2 * (2 * p / 2 / 4);  // two slots, bf16 slices of one of the two modules
  const Plan plan = two_modules<strategy::FullShard, precision::Bf16Mixed>(4, optimizer_on_host);
  check_bytes(plan, Memory::Device,
              {{Role::Compute, p / 2},
               {Role::GatherRing, 2 * p},
               {Role::GradientRing, 2 * p},
               {Role::Scratch, p}});
  check_bytes(
      plan, Memory::Pinned,
      {{Role::Master, p}, {Role::Gradient, p}, {Role::State, 2 * p}, {Role::Staging, staged}});
  const Plan other = two_modules<strategy::FullShard, precision::Bf16Mixed>(4, parameters_on_host);
  CHECK(other.bytes(Role::Staging, Memory::Device) == staged);
  CHECK(other.bytes(Role::Compute, Memory::Pinned) == p / 2);
  const Plan all = two_modules<strategy::FullShard, precision::Bf16Mixed>(4, all_on_host);
  CHECK(all.bytes(Role::Staging) == 0);
  CHECK(all.bytes(Role::Compute, Memory::Pinned) == p / 2);
}

TEST_CASE("offload plan: the gradients of one micro-step stay as they are delivered") {
  const Bytes p = many;
  Options options;
  const Plan one = two_modules<strategy::FullShard, precision::DeepSpeedBf16>(4, optimizer_on_host);
  CHECK(one.bytes(Role::Gradient, Memory::Pinned) == 2 * p / 4);
  for (const Flat& flat : one.flats) CHECK(flat.accumulate == DType::BFloat16);
  options.max_micro_steps = 2;
  const Plan two =
      two_modules<strategy::FullShard, precision::DeepSpeedBf16>(4, optimizer_on_host, options);
  CHECK(two.bytes(Role::Gradient, Memory::Pinned) == 4 * p / 4);
  for (const Flat& flat : two.flats) CHECK(flat.accumulate == DType::Float32);
  const Plan wide = two_modules<strategy::FullShard, precision::Bf16Mixed>(4, optimizer_on_host);
  for (const Flat& flat : wide.flats) CHECK(flat.accumulate == DType::Float32);
  const Plan on_device = two_modules<strategy::FullShard, precision::DeepSpeedBf16>(4, {});
  for (const Flat& flat : on_device.flats) CHECK(flat.accumulate == DType::Float32);
}

TEST_CASE("offload plan: whole parameters rest on the host and are used from the ring") {
  const Bytes p = many;
  for (const int world : {1, 4}) {
    const Plan plan = two_modules<strategy::ShardOptimizer>(world, all_on_host);
    check_bytes(
        plan, Memory::Device,
        {{Role::GatherRing, 4 * p}, {Role::GradientRing, 4 * p}, {Role::Scratch, 4 * p / world}});
    check_bytes(
        plan, Memory::Pinned,  // the master is a part of the whole copy
        {{Role::Compute, 4 * p}, {Role::Gradient, 4 * p / world}, {Role::State, 8 * p / world}});
    CHECK(plan.flats[0].rests_whole);
    CHECK(plan.flats[0].whole == ParametersWhole::PerUse);
  }
  const Plan kept = two_modules<strategy::ShardGradOp>(4, parameters_on_host);
  CHECK(kept.bytes(Role::Whole, Memory::Device) == 4 * p);
  CHECK(kept.bytes(Role::Compute, Memory::Pinned) == p);
}

TEST_CASE("offload plan: sums that a later reduction needs stay on the device") {
  const Bytes p = many;
  Options options{.max_micro_steps = 2};
  const Plan plan = two_modules<strategy::NoShard>(4, optimizer_on_host, options);
  CHECK(plan.moment == ReduceMoment::Boundary);
  CHECK(plan.bytes(Role::Gradient, Memory::Device) == 4 * p);
  CHECK(plan.bytes(Role::ReducedGradient, Memory::Pinned) == 4 * p);
  options.reduce_moment = ReduceMoment::Micro;
  const Plan micro = two_modules<strategy::NoShard>(4, optimizer_on_host, options);
  CHECK(micro.bytes(Role::Gradient, Memory::Device) == 0);
  CHECK(micro.bytes(Role::Gradient, Memory::Pinned) == 4 * p);
  CHECK(micro.bytes(Role::Staging, Memory::Pinned) == 2 * 4 * p / 2);  // arrivals of a module
  const Plan single = two_modules<strategy::NoShard>(4, optimizer_on_host);
  CHECK(single.moment == ReduceMoment::Micro);
}

TEST_CASE("offload plan: small parameters that stay whole stay on the device") {
  Model model = equal_modules(2, {640});
  model.module("small").add("w", {64});
  PlanRequest request = request_for<strategy::NoShard>(2);
  request.offload = all_on_host;
  const Plan plan = make_plan(model, request, {.persistence_threshold = 64});
  CHECK(plan.flats.at(2).persistent);
  CHECK(plan.flats[2].parameters_rest == Tier::Device);
  CHECK(plan.block(Role::Whole, 2)->memory == Memory::Device);
  CHECK(plan.block(Role::Master, 2)->memory == Memory::Pinned);
  CHECK(plan.block(Role::Whole, 0) == nullptr);
}

TEST_CASE("offload plan: roles are where the policy says, and nothing is lost, for random models") {
  for_random_cases(51, [](const PlanCase& made) {
    for (const OffloadTraits& offload : offloads) {
      const Plan plan = planned(made, offload, made.options);
      const Memory optimizer = memory_of(offload.optimizer);
      CHECK(plan.bytes(Role::State, optimizer) ==
            made.request.optimizer_states * slices(plan, &Flat::state));
      CHECK(plan.bytes(Role::State) == plan.bytes(Role::State, optimizer));
      CHECK(plan.bytes(Role::Master) == plan.bytes(Role::Master, optimizer));
      Bytes masters = 0, at_rest = 0;
      for (const Flat& flat : plan.flats) {
        const bool shared = flat.requires_grad && flat.master_is_compute;
        CHECK(shared == (flat.requires_grad && flat.master == flat.compute &&
                         flat.parameters_rest == offload.optimizer));
        const Elements count = flat.rests_whole ? flat.partition.padded() : flat.partition.slice();
        if (flat.requires_grad && !(shared && flat.rests_whole))
          masters += flat.partition.slice() * size_of(flat.master);
        if (flat.parameters_rest == Tier::Host && (flat.rests_whole || !shared))
          at_rest += count * size_of(flat.compute);
        if (flat.parameters_rest == Tier::Host) CHECK(flat.whole != ParametersWhole::Always);
      }
      CHECK(plan.bytes(Role::Master) == masters);
      CHECK(plan.bytes(Role::Compute, Memory::Pinned) == at_rest);
      const Bytes read = slices(plan, &Flat::accumulate);  // gradients that the step reads
      if (offload.optimizer == Tier::Host)
        CHECK(plan.bytes(Role::Gradient, Memory::Pinned) +
                  plan.bytes(Role::ReducedGradient, Memory::Pinned) ==
              read);
      else
        CHECK(plan.bytes(Role::Gradient, Memory::Pinned) == 0);
    }
  });
}

TEST_CASE("offload plan: blocks are apart and inside their arenas; a budget is kept") {
  Random random = generator(52);
  for_random_cases(53, [&](const PlanCase& made) {
    for (const OffloadTraits& offload : offloads) {
      Options options = made.options;
      const Plan free = planned(made, offload, options);
      CHECK(free.pageable_bytes == 0);
      options.pinned_budget = between(random, 0, free.pinned_bytes + 1);
      const Plan plan = planned(made, offload, options);
      CHECK(plan.pinned_bytes <= options.pinned_budget);
      CHECK(plan.arena_bytes == free.arena_bytes);
      std::array<Bytes, memory_count> ends{};
      Bytes all = 0, all_free = 0;
      for (const Block& block : plan.blocks) {
        Bytes& end = ends[static_cast<std::size_t>(block.memory)];
        CHECK(block.offset >= end);
        CHECK(block.offset % 128 == 0);
        end = block.offset + block.bytes;
        CHECK(end <= plan.bytes(block.memory));
        CHECK(plan.block(block.role, block.owner, block.index) == &block);
        all += block.bytes;
      }
      for (const Block& block : free.blocks) all_free += block.bytes;
      CHECK(all == all_free);
      CHECK((plan == free) == (plan.pageable_bytes == 0));
    }
  });
}

TEST_CASE("offload plan: what crosses in every step is pinned before what stays") {
  const Bytes p = many;
  Options options;
  options.pinned_budget = 3 * p;  // gradients, staging and control fit, states do not
  const Plan plan =
      two_modules<strategy::FullShard, precision::Bf16Mixed>(4, optimizer_on_host, options);
  CHECK(plan.bytes(Role::Gradient, Memory::Pinned) == p);
  CHECK(plan.bytes(Role::Staging, Memory::Pinned) == p / 2);
  CHECK(plan.bytes(Role::Control, Memory::Pageable) == 0);
  CHECK(plan.pageable_bytes > 0);
}

TEST_CASE("offload plan: it is printed tier by tier") {
  const Plan plan = two_modules<strategy::FullShard>(4, optimizer_on_host);
  const std::string text = to_string(plan);
  CHECK(says(text, {"parameters rest on the device, optimizer and gradients on the host",
                    "bytes per rank, device memory", "bytes per rank, pinned host memory",
                    std::to_string(plan.pinned_bytes).c_str()}));
  CHECK(text.find("pageable") == std::string::npos);
  CHECK(to_string(two_modules<strategy::FullShard>(4, {})).find("host memory") ==
        std::string::npos);
}

TEST_CASE("offload plan: fp32 AdamW, everything on NVMe") {
  const Bytes p = many, page = 4096, module = 4 * p / 4 / 2;  // of one slice of one module
  const Plan plan = two_modules<strategy::FullShard>(4, {Tier::Nvme, Tier::Nvme});
  check_bytes(
      plan, Memory::Device,
      {{Role::GatherRing, 4 * p}, {Role::GradientRing, 4 * p}, {Role::Scratch, 2 * 4 * p / 2 / 4}});
  check_bytes(plan, Memory::Nvme,  // parameters have a copy of their own
              {{Role::Master, p}, {Role::Compute, p}, {Role::Gradient, p}, {Role::State, 2 * p}});
  CHECK(plan.bytes(Memory::Nvme) == 5 * p);  // slices are whole pages here
  REQUIRE(plan.optimizer_file.slots.size() == 4);
  CHECK(plan.optimizer_file.slots[1] ==
        NvmeSlot{NvmePart::Gradient, 0, 3 * module, module, 3 * module});
  CHECK(plan.optimizer_file.slots[2] == NvmeSlot{NvmePart::Optimizer, 1, 4 * module, 3 * module});
  CHECK(plan.parameter_file.slots ==
        std::vector{NvmeSlot{NvmePart::Parameters, 0, 0, module},
                    NvmeSlot{NvmePart::Parameters, 1, module, module}});
  CHECK(plan.optimizer_file.buffers == 2);  // there are two units
  CHECK(plan.optimizer_file.buffer_bytes == 4 * module);
  CHECK(plan.parameter_file.buffer_bytes == module);
  const Bytes block = Options().nvme.block_bytes;
  check_bytes(plan, Memory::Pinned, {{Role::Staging, 2 * (4 + 1) * module + 2 * block}});
  Options options;
  options.nvme.buffers = 1;
  options.nvme.block_bytes = page;
  const Plan least = two_modules<strategy::FullShard>(4, {Tier::Nvme, Tier::Nvme}, options);
  check_bytes(least, Memory::Pinned, {{Role::Staging, (4 + 1) * module + 2 * page}});
}

TEST_CASE("offload plan: slots are pages of a file, and hold what would rest elsewhere") {
  for_random_cases(54, [&](const PlanCase& made) {
    for (const OffloadTraits& offload :
         {OffloadTraits{Tier::Nvme, Tier::Nvme}, OffloadTraits{Tier::Device, Tier::Nvme},
          OffloadTraits{Tier::Nvme, Tier::Host}}) {
      const Plan plan = planned(made, offload, made.options);
      std::map<int, Bytes> in_buffers[2];  // by unit
      for (const NvmeFile* file : {&plan.optimizer_file, &plan.parameter_file}) {
        Bytes end = 0;
        for (const NvmeSlot& slot : file->slots) {
          CHECK(slot.offset == end);
          CHECK(slot.bytes % 4096 == 0);
          end += slot.bytes;
          Bytes& used = in_buffers[file == &plan.parameter_file]
                                  [plan.flats[static_cast<std::size_t>(slot.flat)].unit];
          CHECK(slot.buffer_offset == used);
          used += slot.bytes;
          CHECK(used <= file->buffer_bytes);
        }
        CHECK(end == file->bytes);
      }
      for (const Block& block : plan.blocks)
        if (block.memory == Memory::Pinned && block.role == Role::Staging &&
            (block.owner == detail::staging_optimizer_buffer ||
             block.owner == detail::staging_parameter_buffer ||
             block.owner == detail::staging_bounce))
          CHECK(block.offset % 4096 == 0);
      if (offload.optimizer == Tier::Nvme) {
        CHECK(plan.bytes(Role::Master, Memory::Nvme) == slices(plan, &Flat::master));
        CHECK(plan.bytes(Role::State, Memory::Nvme) ==
              plan.request.optimizer_states * slices(plan, &Flat::state));
        CHECK(plan.bytes(Role::Gradient, Memory::Nvme) +
                  plan.bytes(Role::ReducedGradient, Memory::Nvme) ==
              slices(plan, &Flat::accumulate));
      }
      CHECK((plan.bytes(Role::Compute, Memory::Nvme) > 0) == (plan.parameter_file.buffers > 0));
    }
  });
}

TEST_CASE("offload plan: files are printed, and options without meaning refused") {
  const Plan plan = two_modules<strategy::FullShard>(4, {Tier::Nvme, Tier::Nvme});
  CHECK(says(to_string(plan),
             {"parameters rest on the NVMe disk, optimizer and gradients on the NVMe disk",
              "bytes per rank, NVMe", "masters, states, gradients: 4 slots",
              std::to_string(plan.bytes(Memory::Nvme)).c_str()}));
  PlanRequest request = request_for<strategy::FullShard>(2);
  request.offload = {Tier::Nvme, Tier::Host};
  Options options;
  options.nvme.buffers = 0;
  CHECK(says(refusal(equal_modules(1, {8}), request, options), {"nvme.buffers is 0"}));
  options.nvme = {.block_bytes = 5000};
  CHECK(says(refusal(equal_modules(1, {8}), request, options), {"nvme.block_bytes is 5000"}));
}
