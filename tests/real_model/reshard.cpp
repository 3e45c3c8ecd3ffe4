// Loads any safetensors model, shards it over ranks, saves it: reshard MODEL FOLDER RANKS
#include <flatshard/flatshard.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace {

using namespace flatshard;
using Trainer = Sharder<strategy::FullShard, precision::Full<float>, offload::None>;

void reshard(const std::string& path, const std::string& folder, int ranks) {
  const Model model = model_from_safetensors(path);
  ThreadWorld(ranks).run([&](Communicator& communicator) {
    Trainer trainer(communicator, model, SGD{});
    load_tensors(trainer, path);
    const SaveReport report =
        save_checkpoint(trainer, {.folder = folder, .optimizer_state = false});
    if (communicator.rank() == 0) std::printf("%s\n", report.path.c_str());
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: reshard MODEL FOLDER RANKS\n");
    return 2;
  }
  try {
    reshard(argv[1], argv[2], std::atoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reshard: %s\n", error.what());
    return 1;
  }
  return 0;
}
