// What the pages for people who come from FSDP or DeepSpeed show, in use.
#include <flatshard/flatshard.hpp>

#include <cmath>
#include <vector>

#include "expect.hpp"
#include "linear.hpp"

namespace fsh = flatshard;

namespace {

// [fsdp types]
using FullShard = fsh::Sharder<fsh::fsdp::FULL_SHARD, fsh::precision::Bf16Mixed>;
using Hybrid = fsh::Sharder<fsh::fsdp::HYBRID_SHARD, fsh::precision::Full<fsh::Bf16>>;
// [fsdp types end]

// [deepspeed types]
using StageThree = fsh::Sharder<fsh::zero::stage<3>, fsh::precision::DeepSpeedBf16>;
using StageTwoFp16 = fsh::Sharder<fsh::zero::stage<2>,
                                  fsh::precision::Fp16MixedScaling<fsh::LossScaling::DeepSpeed>>;
// [deepspeed types end]

constexpr int micro_steps = 4;

fsh::Options fsdp_options() {
  // [fsdp options]
  fsh::Options options;
  options.wrap = fsh::wrap::by_prefix({"h.0", "h.1"});     // fsdp_auto_wrap_policy
  options.prefetch_forward = 1;                            // fsdp_forward_prefetch: true
  options.prefetch_backward = fsh::BackwardPrefetch::Pre;  // BACKWARD_PRE
  options.max_grad_norm = 1.0;                             // clip_grad_norm_(1.0)
  options.max_micro_steps = micro_steps;                   // gradient accumulation
  options.reduce_moment = fsh::ReduceMoment::Boundary;     // no_sync() but for the last one
  options.shard_group = 2;                                 // HYBRID_SHARD: GPUs of a node
  // [fsdp options end]
  return options;
}

fsh::Options deepspeed_options() {
  // [deepspeed options]
  fsh::Options options;
  options.max_micro_steps = micro_steps;      // gradient_accumulation_steps
  options.max_grad_norm = 1.0;                // gradient_clipping
  options.max_live_elements = 1'000'000'000;  // stage3_max_live_parameters
  options.persistence_threshold = 100'000;    // stage3_param_persistence_threshold
  options.loss_scale = fsh::LossScaler::deepspeed(/*initial=*/65536,  // initial_scale_power: 16
                                                  /*window=*/1000,    // loss_scale_window
                                                  /*hysteresis=*/2, /*minimum=*/1)
                           .settings;
  // [deepspeed options end]
  return options;
}

struct Layer {
  fsh::Model model;
  fsh::Module layer = model.module("layer");
  fsh::Parameter weight = layer.add("weight", {outputs, inputs});
};

template <class Trainer>
void train(Trainer& trainer, const Layer& names) {
  const fsh::Module layer = names.layer;
  const fsh::Parameter weight = names.weight;
  for (int step = 0; step < 3; ++step) {
    // [micro-steps]
    float loss = 0;
    for (int k = 0; k < micro_steps; ++k) {
      trainer.micro_step({.last = k + 1 == micro_steps});
      Batch batch = make_batch(step, static_cast<int>(trainer.micro_batch(k, micro_steps)));
      trainer.forward(layer, [&](auto weights) { loss += forward(weights[weight].data(), batch); });
      trainer.backward(layer, [&](auto, auto grads) {
        backward(grads[weight].data(), batch, *trainer.loss_scale().data());
      });
    }
    fsh::StepReport report = trainer.step().wait();  // reduce, norm, clip, update
    // [micro-steps end]
    expect(std::isfinite(loss) && report.step == step + 1, "a step is done");
  }
}

void as_with_fsdp() {
  fsh::ThreadWorld{4}.run([](fsh::Communicator& comm) {
    Layer names;
    FullShard trainer{comm, names.model, fsh::AdamW{}, fsdp_options()};
    const std::vector<float> checkpoint(static_cast<std::size_t>(outputs * inputs), 0.5F);
    // [sync module states]
    const std::span<const float> values = comm.rank() == 0 ? checkpoint : std::span<const float>{};
    trainer.assign_from(/*root=*/0, names.weight, values);  // the others need no values
    // [sync module states end]
    train(trainer, names);
    float sum = 0;
    // [summon]
    trainer.summon_full(
        names.layer,
        [&](auto parameters) {  // whole, fp32, on every rank
          for (float& value : parameters[names.weight].flat()) sum += value *= 2;
        },
        /*write_back=*/true);
    // [summon end]
    expect(std::isfinite(sum), "parameters are numbers");
    Batch batch = make_batch(7, 0);
    float loss = 0;
    // [evaluate]
    trainer.evaluate(names.layer,
                     [&](auto weights) { loss = forward(weights[names.weight].data(), batch); });
    // [evaluate end]
    expect(std::isfinite(loss), "the loss is a number");
    // [local]
    const fsh::LocalShard shard = trainer.local(names.weight);
    trainer.synchronize();                                                // before the host reads
    const float* masters = reinterpret_cast<const float*>(shard.master);  // shard.count of them
    // [local end]
    expect(shard.count == 0 || std::isfinite(masters[0]), "masters are numbers");
  });
}

void as_with_deepspeed() {
  fsh::ThreadWorld{2}.run([](fsh::Communicator& comm) {
    Layer names;
    StageTwoFp16 trainer{comm, names.model, fsh::AdamW{}, deepspeed_options()};
    trainer.initialize(fsh::init::normal{0.02, /*seed=*/1});
    train(trainer, names);
  });
}

void sums_instead_of_means() {
  fsh::ThreadWorld{2}.run([](fsh::Communicator& comm) {
    Layer names;
    StageThree trainer{
        comm, names.model, fsh::SGD{.lr = 1}, {.on_nonfinite = fsh::OnNonFinite::Skip}};
    trainer.initialize(fsh::init::zeros{});
    const double tokens = 1;
    trainer.backward(names.layer, [&](auto, auto grads) {
      for (fsh::Bf16& gradient : grads[names.weight].flat())
        gradient = fsh::from_float<fsh::Bf16>(1);
    });
    // [divisor]
    trainer.step({.gradient_divisor = tokens});  // instead of world size * micro-steps
    // [divisor end]
    trainer.summon_full(names.layer, [&](auto parameters) {
      for (float value : parameters[names.weight].flat())
        expect(value == -2, "the sum of two ranks");
    });
  });
}

void before_anything_runs() {
  Layer names;
  // [plan]
  const fsh::Plan plan =
      Hybrid::plan_for(names.model, fsh::AdamW{}, /*world=*/8, {.shard_group = 4});
  const std::string table = to_string(plan);              // memory, units, collectives, promises
  const fsh::Bytes state = plan.bytes(fsh::Role::State);  // of one rank
  const std::vector<fsh::Traffic> sent = traffic(plan, /*micro_steps=*/1);
  // [plan end]
  expect(!table.empty() && state > 0 && !sent.empty(), "the Plan says something");
  expect(plan.replicas == 2 && plan.arena_bytes > state, "two replicas");
}

}  // namespace

int main() {
  as_with_fsdp();
  as_with_deepspeed();
  sums_instead_of_means();
  before_anything_runs();
}
