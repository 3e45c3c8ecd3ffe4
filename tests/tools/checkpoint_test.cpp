// The commands on a checkpoint that the library has saved.
#include <flatshard/flatshard.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "commands.hpp"
#include "random.hpp"
#include "value.hpp"

namespace flatshard_tool {
namespace {

namespace fs = std::filesystem;

using Trainer = flatshard::Sharder<flatshard::strategy::FullShard, flatshard::precision::Bf16Mixed>;

/// A folder of its own with two checkpoints of a tiny model: bf16 export with fp32 masters beside
/// it.
class Saved {
 public:
  Saved() {
    flatshard::ThreadWorld world(2);
    world.run([&](flatshard::Communicator& communicator) { save(communicator); });
  }
  ~Saved() { fs::remove_all(folder); }

  std::string step(int number) const { return folder + "/step-" + std::to_string(number); }

  const std::string folder =
      (fs::temp_directory_path() / ("flatshard-tool-" + std::to_string(std::random_device{}())))
          .string();

 private:
  void save(flatshard::Communicator& communicator) const {
    flatshard::Model model;
    flatshard::Module layer = model.module("layer");
    layer.add("weight", {5, 7});
    layer.add("bias", {3});
    Trainer trainer(communicator, model, flatshard::AdamW{});
    trainer.initialize(flatshard::init::normal{0.02, flatshard_test::seed()});
    for (int step = 1; step <= 2; ++step) {
      trainer.forward(layer, [](auto) {});
      trainer.backward(layer, [&](auto, auto gradients) {
        for (const flatshard::Parameter parameter :
             {model.find("layer.weight"), model.find("layer.bias")})
          for (std::int64_t i = 0; i < gradients[parameter].numel(); ++i)
            gradients[parameter].data()[i] =
                flatshard::from_float<flatshard::Bf16>(static_cast<float>(i + step));
      });
      trainer.step().wait();
      flatshard::save_checkpoint(
          trainer,
          {.folder = folder, .model_dtype = flatshard::DType::BFloat16, .user = {{"data", "17"}}});
    }
  }
};

void flip_byte(const std::string& path, std::streamoff from_end, int bits = 1) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const int byte = file.get();
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ bits));
}

TEST_CASE("the newest checkpoint of a folder is shown with its step, optimizer and both files") {
  const Saved saved;
  const Outcome shown = run_inspect({saved.folder, false});
  for (const char* words :
       {"step 2, saved by 2 ranks", "optimizer adamw, 2 updates", "user data = 17",
        "layer.weight.exp_avg", "layer.bias.master", "[5, 7]"})
    CHECK_MESSAGE(shown.text.find(words) != std::string::npos, words, " in ", shown.text);
  const Value json = parse_json(run_inspect({saved.step(1), true}).text, "inspect");
  const Map& checkpoint = *find(*json.map(), "checkpoint")->map();
  CHECK(*find(checkpoint, "step") == Value(1));
  CHECK(*find(checkpoint, "world") == Value(2));
  CHECK(find(*json.map(), "files")->list()->size() == 2);
  CHECK(*find(*json.map(), "tensors") ==
        Value(8));  // 2 of the model; 2 states and a master of each
}

TEST_CASE("a sound checkpoint is valid; a changed byte anywhere is found") {
  const Saved saved;
  Outcome found = run_verify({saved.folder});
  CHECK(found.code == success);
  CHECK(found.text.find("step-1: valid, digests match") != std::string::npos);
  CHECK(found.text.find("step-2: valid, digests match") != std::string::npos);
  SUBCASE("in a tensor of the model") {
    flip_byte(saved.step(1) + "/model.safetensors", 1);
    found = run_verify({saved.folder});
    CHECK(found.text.find("tensor 'layer.") != std::string::npos);
  }
  SUBCASE("in the padding of a header") {
    const auto data_bytes = static_cast<std::streamoff>((5 * 7 + 3) * 3 * 4);
    flip_byte(saved.step(1) + "/optimizer.safetensors", data_bytes + 1, ' ' ^ '\t');  // still JSON
    found = run_verify({saved.folder});
    CHECK(found.text.find("optimizer.safetensors: header: CRC32C is") != std::string::npos);
  }
  SUBCASE("a file is cut") {
    fs::resize_file(saved.step(1) + "/model.safetensors", 4100);
    found = run_verify({saved.step(1)});
  }
  SUBCASE("a file is gone") {
    fs::remove(saved.step(1) + "/optimizer.safetensors");
    found = run_verify({saved.step(1)});
  }
  SUBCASE("in the manifest") {
    flip_byte(saved.step(1) + "/manifest.json", 60);
    found = run_verify({saved.step(1)});
  }
  SUBCASE("the manifest is gone") {
    fs::remove(saved.step(1) + "/manifest.json");
    found = run_verify({saved.folder});
  }
  CHECK(found.code == differs);
  CHECK(found.text.find("invalid: ") != std::string::npos);
  CHECK(found.text.find("step-1: valid") == std::string::npos);
}

TEST_CASE("checkpoints of two steps differ, one is equal to itself; the model alone is converted") {
  const Saved saved;
  CHECK(run_diff({saved.step(1), saved.step(1), false}).code == success);
  const Outcome found = run_diff({saved.step(1), saved.step(2), false});
  CHECK(found.code == differs);
  CHECK(found.text.find("layer.weight.exp_avg: values differ, ") != std::string::npos);
  CHECK(found.text.find("0 of 8 tensors are equal") != std::string::npos);
  const std::string output = saved.folder + "/wide.safetensors";
  const Outcome written = run_rewrite({{saved.step(2)}, output, flatshard::DType::Float32, 0});
  CHECK(written.text.find("optimizer's tensors are left out") != std::string::npos);
  CHECK(run_verify({output}).code == success);
  CHECK(run_inspect({output, false}).text.find("2 tensors, 38 elements, 152 bytes") !=
        std::string::npos);
}

}  // namespace
}  // namespace flatshard_tool
