// Ranks as processes, as docs/first_steps.rst shows them; run here without a launcher: one rank.
#include <flatshard/flatshard.hpp>

#include "expect.hpp"
#include "linear.hpp"

namespace fsh = flatshard;

int main() {
  if (fsh::cuda_device_count() > 0) return 77;  // the rank would be on a device; linear.hpp is not
  int steps = 0;
  // [processes]
  fsh::ProcessWorld world = fsh::world_from_env();  // what torchrun, mpirun or srun set
  world.run([&](fsh::Communicator& comm) {          // once in this process, for its rank
    fsh::Model model;
    auto layer = model.module("layer");
    auto weight = layer.add("weight", {outputs, inputs});
    fsh::Sharder<> trainer{comm, model, fsh::AdamW{}};
    // [processes end]
    trainer.initialize(fsh::init::normal{0.02, 1});
    Batch batch = make_batch(0, comm.rank());
    trainer.forward(layer, [&](auto weights) { forward(weights[weight].data(), batch); });
    trainer.backward(layer, [&](auto, auto grads) { backward(grads[weight].data(), batch); });
    trainer.step().wait();
    steps += comm.size();
  });
  expect(steps == 1 && world.size() == 1, "one rank did one step");
}
