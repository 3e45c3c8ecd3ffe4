#include <flatshard/flatshard.hpp>

#include <cstdio>

#include "linear.hpp"  // the model: forward and backward of y = W x on plain arrays

namespace fsh = flatshard;

using Trainer = fsh::Sharder<fsh::strategy::FullShard,   // ZeRO-3, FSDP FULL_SHARD
                             fsh::precision::Bf16Mixed,  // fp32 master, bf16 compute, fp32 sums
                             fsh::offload::None>;

int main() {
  fsh::ThreadWorld world{4};  // 4 ranks, each a thread of this process
  world.run([](fsh::Communicator& comm) {
    fsh::Model model;                                      // names and shapes: nothing is allocated
    auto layer = model.module("layer");                    // the parameters that one call uses
    auto weight = layer.add("weight", {outputs, inputs});  // (O, I)

    Trainer trainer{comm, model, fsh::AdamW{.lr = 0.02}, {.max_grad_norm = 1.0}};
    trainer.initialize(fsh::init::normal{0.02, /*seed=*/1});  // same values for every world size

    for (int step = 0; step < 200; ++step) {
      Batch batch = make_batch(step, comm.rank());
      float loss = 0;
      trainer.forward(layer, [&](auto weights) { loss = forward(weights[weight].data(), batch); });
      trainer.backward(layer, [&](auto, auto grads) { backward(grads[weight].data(), batch); });
      fsh::PendingReport report = trainer.step();  // reduce, norm, clip, update
      if (comm.rank() == 0 && step % 50 == 49)
        std::printf("step %3d  loss %.6f  norm %.4f\n", step + 1, loss, report.wait().grad_norm);
    }
  });
}
