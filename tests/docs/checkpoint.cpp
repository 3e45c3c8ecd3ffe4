// Saving and loading, as docs/checkpoints.rst shows it: 2 ranks save, 4 ranks of another strategy
// go on.
#include <flatshard/flatshard.hpp>

#include <unistd.h>

#include <filesystem>
#include <string>

#include "expect.hpp"
#include "linear.hpp"

namespace fsh = flatshard;

namespace {

struct Layer {
  fsh::Model model;
  fsh::Module layer = model.module("layer");
  fsh::Parameter weight = layer.add("weight", {outputs, inputs});
};

template <class Trainer>
void step(Trainer& trainer, const Layer& names, const fsh::Communicator& comm, int number) {
  Batch batch = make_batch(number, comm.rank());
  trainer.forward(names.layer, [&](auto weights) { forward(weights[names.weight].data(), batch); });
  trainer.backward(names.layer,
                   [&](auto, auto grads) { backward(grads[names.weight].data(), batch); });
  trainer.step().wait();
}

std::uint64_t save(const std::string& folder) {
  std::uint64_t hash = 0;
  fsh::ThreadWorld{2}.run([&](fsh::Communicator& comm) {
    Layer names;
    fsh::Sharder<fsh::strategy::FullShard> trainer{comm, names.model, fsh::AdamW{}};
    trainer.initialize(fsh::init::normal{0.02, /*seed=*/1});
    step(trainer, names, comm, 0);
    // [save]
    fsh::SaveOptions options;
    options.folder = folder;                  // becomes folder/step-1
    options.retention = {.keep_last = 3};     // older ones go
    options.user = {{"data position", "1"}};  // comes back with the manifest
    const fsh::SaveReport saved = save_checkpoint(trainer, options);  // durable when it returns
    // [save end]
    expect(std::filesystem::exists(saved.path + "/model.safetensors"), "a model file");
    const std::uint64_t found = params_hash(trainer);
    if (comm.rank() == 0) hash = found;
    step(trainer, names, comm, 1);
    // [async]
    fsh::AsyncSaver saver{trainer, options};
    saver.save();                   // copies to host memory, and begins
    step(trainer, names, comm, 2);  // training goes on
    if (const auto report = saver.poll()) expect(!report->path.empty(), "a path");
    saver.wait();  // before the end: the last save counts too
    // [async end]
  });
  return hash;
}

std::uint64_t load(const std::string& folder, const std::string& checkpoint) {
  std::uint64_t hash = 0;
  fsh::ThreadWorld{4}.run([&](fsh::Communicator& comm) {
    Layer names;
    // [load]
    fsh::Sharder<fsh::strategy::HybridShard> trainer{comm, names.model, fsh::AdamW{}};
    const fsh::LoadReport loaded = load_checkpoint(trainer, checkpoint);
    // [load end]
    expect(loaded.manifest.step == 1, "step 1");
    const std::uint64_t found = params_hash(trainer);
    if (comm.rank() == 0) hash = found;
    step(trainer, names, comm, 1);
    // [newest]
    load_checkpoint(trainer, folder);  // the newest whole one
    // [newest end]
    // [foreign]
    const fsh::Model model = fsh::model_from_safetensors(checkpoint + "/model.safetensors");
    load_tensors(trainer,
                 checkpoint + "/model.safetensors");  // parameters and buffers, nothing else
    // [foreign end]
    expect(model.find("layer.weight").index == 0, "a model from a file");
    expect(params_hash(trainer) == found, "step 1 again");
  });
  return hash;
}

}  // namespace

int main() {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("flatshard-docs-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::uint64_t before = save(folder);
  const std::uint64_t after = load(folder, folder + "/step-1");
  std::filesystem::remove_all(folder);
  expect(before == after, "the bits of the parameters");
}
