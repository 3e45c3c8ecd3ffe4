// What docs/adopting.rst shows: streams and memory of the user's own, other libraries' tensors, a
// new Sharder from an old one.
#include <flatshard/comm/threads.hpp>
#include <flatshard/core/host_memory.hpp>
#include <flatshard/core/host_stream.hpp>
#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/exported.hpp>

#include <algorithm>
#include <memory>
#include <vector>

#include "expect.hpp"

namespace fsh = flatshard;

namespace {

using Trainer = fsh::Sharder<fsh::strategy::FullShard, fsh::precision::Bf16Mixed>;
using OtherTrainer = fsh::Sharder<fsh::strategy::HybridShard, fsh::precision::Bf16Mixed>;

/// A module of a weight and a bias; the weight trains or not.
struct Names {
  explicit Names(const fsh::ParameterOptions& of_weight = {})
      : layer(model.module("layer")),
        weight(layer.add("weight", {6, 4}, of_weight)),
        bias(layer.add("bias", {6})) {}
  fsh::Model model;
  fsh::Module layer;
  fsh::Parameter weight, bias;
};

template <class AnyTrainer>
void step(AnyTrainer& trainer, const Names& names) {
  trainer.backward(names.layer, [&](auto, auto grads) {
    std::ranges::fill(grads[names.bias].flat(), fsh::from_float<fsh::Bf16>(1));
  });
  trainer.step().wait();
}

void own_places(fsh::Communicator& comm, const Names& names, const fsh::Optimizer& optimizer,
                fsh::Stream& stream, fsh::MemoryResource& memory) {
  // [places]
  fsh::Options options;
  options.compute_stream = &stream;  // where your kernels run: adopt_cuda_stream(yours) on a GPU
  options.memory = &memory;          // the arena, Plan::arena_bytes, comes from there
  options.norm_hook = [](double* measure, fsh::NormKind, fsh::StreamRef) {
    *measure *= 2;  // on a GPU: enqueue what adds the other pipeline stages' or slices' part
  };
  Trainer trainer{comm, names.model, optimizer, options};
  // [places end]
  expect(memory.allocated() == trainer.plan().arena_bytes, "the arena in that memory");
  expect(&trainer.engine().compute_stream() == &stream, "that stream");
  step(trainer, names);
}

void values(fsh::Communicator& comm, const Names& names, const std::vector<float>& loaded) {
  Trainer trainer{comm, names.model, fsh::AdamW{}};
  const std::vector<float> everywhere(24, 2.0F);
  // [values]
  trainer.assign<float>(names.weight, everywhere);            // every rank has the whole parameter
  trainer.assign_from<float>(0, names.bias, loaded);          // rank 0 has; the others pass nothing
  const fsh::LocalShard local = trainer.local(names.weight);  // what this rank holds of it
  // [values end]
  expect(local.offset + local.count <= 24, "a part of its elements");
  trainer.summon_full(names.layer, [&](auto full) {
    expect(full[names.weight][23] == 2 && full[names.bias][5] == 3, "the values on every rank");
  });
}

void tensors(fsh::Communicator& comm, const Names& names) {
  // [export]
  auto trainer = std::make_shared<Trainer>(comm, names.model, fsh::AdamW{});
  fsh::dlpack::Exported whole = export_weights(trainer, names.layer, names.weight);  // (6, 4) bf16
  fsh::ExportedShard shard = export_local(trainer, names.weight);  // .master .gradient .states[0]
  fsh::dlpack::DLManagedTensorVersioned* given = shard.states[0].release();  // for a PyCapsule
  // [export end]
  expect(whole->dl_tensor.ndim == 2 && given->dl_tensor.ndim == 1, "two dimensions and one");
  given->deleter(given);
  whole.reset();

  std::vector<float> theirs(24, 5.0F);
  const std::vector<std::int64_t> shape{6, 4};
  auto* managed =
      fsh::dlpack::export_memory({theirs.data(), fsh::DType::Float32, shape, {}, true}, nullptr)
          .release();
  // [import]
  const fsh::dlpack::Imported tensor(managed);  // takes it over; checks when a view is asked for
  trainer->assign<float>(names.weight, tensor.view<const float>().flat());
  // [import end]
  trainer->summon_full(names.layer, [&](auto full) {
    expect(full[names.weight][23] == 5, "the values of the tensor");
  });
}

void new_from_old(fsh::Communicator& comm) {
  Names names({.requires_grad = false});
  Trainer trainer{comm, names.model, fsh::AdamW{}};
  trainer.initialize(fsh::init::normal{0.02, 1});
  step(trainer, names);
  // [carry]
  Names unfrozen(
      {.time_group = 1});  // the weight trains from now on: its first update is its first
  OtherTrainer other{comm, unfrozen.model, fsh::AdamW{}};
  carry_over(trainer, other);  // parameters, states, time, loss scale, seed, hyper-parameters
  // [carry end]
  step(other, unfrozen);
  expect(other.engine().training_state().steps == 2, "two steps in all");
  expect(other.engine().training_state().times == std::vector<std::int64_t>{1, 2},
         "one update of the weight, two of the bias");
}

}  // namespace

int main() {
  fsh::ThreadWorld{2}.run([](fsh::Communicator& comm) {
    const Names names;
    const auto stream = fsh::make_host_stream(fsh::StreamForm::Inline);
    fsh::HostMemory memory;
    own_places(comm, names, fsh::AdamW{}, *stream, memory);
    values(comm, names, comm.rank() == 0 ? std::vector<float>(6, 3.0F) : std::vector<float>{});
    tensors(comm, names);
    new_from_old(comm);
  });
}
