// One rank as a process, started by nccl_test: trains, or lets rank 1 fail. Status 0: all went
// well; 3: the failure of rank 1 was heard.
#include <flatshard/comm/world_from_env.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/ops/kernel_table.hpp>
#include <flatshard/sharder/params_hash.hpp>
#include <flatshard/sharder/sharder.hpp>

#include <cstdio>
#include <string>
#include <vector>

using namespace flatshard;

namespace {

using Trainer = Sharder<strategy::FullShard, precision::Full<float>, offload::None>;

void train(Communicator& comm) {
  Model model;
  Module module = model.module("m");
  const Parameter weight = module.add("weight", {300, 7});
  Trainer trainer(comm, model, AdamW{.lr = 1e-2});
  trainer.initialize(init::normal{0.5, 1});
  Device& device = *comm.device();
  for (int step = 0; step < 5; ++step) {
    trainer.backward(module, [&](auto weights, auto gradients) {
      device.kernels().add(weights[weight].data(), DType::Float32, gradients[weight].data(),
                           DType::Float32, weights[weight].numel(),
                           trainer.engine().compute_stream());
    });
    trainer.step().wait();
  }
  const std::uint64_t mine = params_hash(trainer);
  const auto stream = device.make_stream();
  Buffer memory(device.memory(), comm.size() * 8);
  auto* all = static_cast<std::uint64_t*>(memory.data());
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(comm.size()));
  device.copy(&mine, all + comm.rank(), 8, *stream);
  comm.all_gather("hash", all + comm.rank(), all, 1, DType::Int64, *stream);
  device.copy(all, hashes.data(), comm.size() * 8, *stream);
  stream->synchronize();
  for (const std::uint64_t hash : hashes)
    if (hash != hashes[0]) throw Error("the ranks' parameters differ");
}

void fail(Communicator& comm) {
  comm.synchronize();
  if (comm.rank() == 1) throw Error("out of ideas");
  for (int i = 0; i < 100; ++i) comm.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  const bool fails = argc > 1 && std::string(argv[1]) == "fails";
  try {
    world_from_env({.patience = std::chrono::seconds(30)}).run(fails ? fail : train);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    const std::string text = error.what();
    return text == "rank 1: out of ideas" || text == "out of ideas" ? 3 : 1;
  }
  return 0;
}
