#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/io/crc32c.hpp>
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/sharder/params_hash.hpp>

#include <doctest/doctest.h>

#include <tuple>

#include "checkpointing.hpp"
#include "random.hpp"

namespace sharder_test {
namespace {

using safetensors::TensorSet;

std::string bytes_of(const TensorSet& set, const std::string& name) {
  const auto& tensor = set.at(name);
  std::string bytes(static_cast<std::size_t>(tensor.entry->end - tensor.entry->begin), '\0');
  set.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Files against the state that the ranks held, collected element by element.
void check_files(const std::string& checkpoint, const Trained& trained) {
  const TestModel test;
  const TensorSet model = TensorSet::open(checkpoint + "/model.safetensors");
  const TensorSet optimizer = TensorSet::open(checkpoint + "/optimizer.safetensors");
  const auto& parameters = test.model.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    CHECK(bytes_of(model, parameters[p].name) == text_of(trained.masters[p]));
    CHECK(model.at(parameters[p].name).entry->shape == parameters[p].shape);
    if (!parameters[p].options.requires_grad) continue;
    CHECK(bytes_of(optimizer, parameters[p].name + ".exp_avg") == text_of(trained.states[0][p]));
    CHECK(bytes_of(optimizer, parameters[p].name + ".exp_avg_sq") == text_of(trained.states[1][p]));
  }
  CHECK(model.tensors().size() == parameters.size() + 1);  // and the buffer
}

TEST_CASE("files hold whole tensors, the same bytes however the model is sharded") {
  std::string model, optimizer;
  for (const StrategyName strategy : all_strategies)
    for (const Writers writers : {Writers::EveryRank, Writers::RankZero}) {
      const ScratchFolder folder;
      Part part;
      part.strategy = strategy;
      part.world = 4;
      part.to = 2;
      part.save = folder / "run";
      part.save_options.writers = writers;
      const Trained trained = train_part(part);
      CAPTURE(name_of(strategy));
      check_files(folder / "run/step-2", trained);
      const std::string model_now = bytes_of_file(folder / "run/step-2/model.safetensors");
      const std::string optimizer_now = bytes_of_file(folder / "run/step-2/optimizer.safetensors");
      if (model.empty()) model = model_now, optimizer = optimizer_now;
      CHECK(model_now == model);
      CHECK(optimizer_now == optimizer);
      CHECK(bytes_of_file(folder / "run/latest") == "step-2\n");
    }
}

TEST_CASE("the manifest says everything else, with digests of every tensor") {
  const ScratchFolder folder;
  Part part;
  part.world = 3;
  part.to = 2;
  part.precision = PrecisionName::Fp16DeepSpeed;
  part.save = folder / "run";
  part.save_options.user = {{"position", "17"}};
  part.options.seed = 5;
  train_part(part);
  const Manifest manifest = read_manifest(folder / "run/step-2");
  CHECK(manifest.step == 2);
  CHECK(manifest.world == 3);
  CHECK(manifest.seed == std::optional<std::uint64_t>{5});
  CHECK(manifest.user == part.save_options.user);
  const std::pair<std::string, std::string> tie{"head.weight", "embedding.weight"};
  CHECK(manifest.ties == std::vector{tie});
  REQUIRE(manifest.optimizer);
  CHECK(manifest.optimizer->name == "adamw");
  CHECK(manifest.optimizer->time == 2);
  CHECK(manifest.optimizer->groups.size() == 2);
  CHECK(manifest.optimizer->groups[0].values[0] == std::pair<std::string, double>{"lr", 1e-2});
  CHECK(manifest.optimizer->groups[1].values[0] == std::pair<std::string, double>{"lr", 0.5e-2});
  REQUIRE(manifest.loss_scaler);
  CHECK(manifest.loss_scaler->state.step == 2);
  for (const FileDigest& file : manifest.files) {
    const TensorSet set = TensorSet::open(folder / ("run/step-2/" + file.name));
    CHECK(file.tensors.size() == set.tensors().size());
    for (const TensorDigest& tensor : file.tensors) {
      const std::string bytes = bytes_of(set, tensor.name);
      CHECK(tensor.crc32c == crc32c(std::as_bytes(std::span(bytes))));
    }
  }
}

TEST_CASE("an export in another dtype keeps the masters beside it and resumes exactly") {
  const ScratchFolder folder;
  Part part;
  part.to = 2;
  part.save = folder / "run";
  part.save_options.model_dtype = DType::BFloat16;
  part.save_options.max_file_bytes = 300;
  const Trained trained = train_part(part);
  const std::string path = folder / "run/step-2";
  CHECK(!bytes_of_file(path + "/model.safetensors.index.json").empty());
  const TensorSet model = TensorSet::open(path);
  CHECK(model.files().size() > 2);
  const TensorSet rest = TensorSet::open(path + "/optimizer.safetensors.index.json");
  CHECK(name_of(model.at("h.0.weight").entry->type) == "BF16");
  const TestModel test;
  const auto weight = static_cast<std::size_t>(test.weights[0].index);
  CHECK(bytes_of(rest, "h.0.weight.master") == text_of(trained.masters[weight]));
  std::string rounded;
  for (std::size_t i = 0; i < trained.masters[weight].size(); i += 4) {
    float value = 0;
    std::memcpy(&value, &trained.masters[weight][i], 4);
    const auto narrow = from_double<Bf16>(static_cast<double>(value));
    rounded.append(reinterpret_cast<const char*>(&narrow.bits), 2);
  }
  CHECK(bytes_of(model, "h.0.weight") == rounded);
  Part again;
  again.load = part.save;
  again.strategy = StrategyName::ShardOptimizer;
  again.from = again.to = 2;
  again.world = 3;
  CHECK(same_state(train_part(again), trained));
}

TEST_CASE("a model alone has no optimizer's file and cannot be gone on from, but loaded") {
  const ScratchFolder folder;
  Part part;
  part.to = 1;
  part.save = folder / "run";
  part.save_options.optimizer_state = false;
  const Trained trained = train_part(part);
  CHECK(bytes_of_file(folder / "run/step-1/optimizer.safetensors").empty());
  Part again;
  again.load = part.save;
  CHECK(contains(message_of([&] { train_part(again); }), "holds a model only"));
  again.load_options.optimizer_state = false;
  CHECK(train_part(again).masters == trained.masters);
}

TEST_CASE("saving between micro-steps and inside user functions is refused") {
  const ScratchFolder folder;
  Training training;
  training.world = 2;
  training.micro_steps = 2;
  training.steps = 1;
  const auto refused = [&](Trainer& trainer) {
    return message_of([&] { save_checkpoint(trainer.engine(), {.folder = folder / "run"}); });
  };
  training.hooks.micro_step = [&](Trainer& trainer, const TestModel& test, std::int64_t step,
                                  Elements micro_batch) {
    run_micro_step(trainer, test, step, micro_batch);
    CHECK(contains(refused(trainer), "between micro-steps"));
  };
  training.hooks.before_step = [&](Trainer& trainer, Communicator&, int) {
    const TestModel test;
    trainer.forward(test.blocks[0], [&](const Views&) {
      CHECK(contains(refused(trainer), "inside a forward or backward function"));
    });
    trainer.discard_step();
  };
  train(training);
}

TEST_CASE("options that cannot be meant are refused") {
  Part part;
  part.save = "unused";
  const auto refusal = [&](const SaveOptions& options) {
    part.save_options = options;
    return message_of([&] { train_part(part); });
  };
  CHECK(contains(refusal({.model_dtype = DType::Int32}), "stored as int32"));
  CHECK(contains(refusal({.max_file_bytes = -1}), "-1"));
  CHECK(contains(refusal({.block_bytes = 10}), "10 bytes"));
}

TEST_CASE("a failure of one rank fails the save on all with one message; training goes on") {
  const ScratchFolder folder;
  for (const auto& [writers, failing, operation] :
       {std::tuple(Writers::EveryRank, 2, 12), std::tuple(Writers::RankZero, 0, 12),
        std::tuple(Writers::RankZero, 0, 45)}) {
    std::vector<std::string> messages(4);
    Training training;
    training.world = 4;
    training.steps = 2;
    training.hooks.after_step = [&, by = writers, who = failing, n = operation](
                                    Trainer& trainer, Communicator& communicator, int step) {
      if (step != 0) return;
      FaultyFileOperations faulty(
          posix_file_operations(),
          {.operation = communicator.rank() == who ? n : 0, .code = 28, .sticky = true});
      SaveOptions options;
      options.folder = folder / "run";
      options.writers = by;
      options.operations = &faulty;
      messages[static_cast<std::size_t>(communicator.rank())] =
          message_of([&] { save_checkpoint(trainer.engine(), options); });
    };
    train(training);
    CHECK(contains(messages[0], "rank " + std::to_string(failing) + ": "));
    CHECK(contains(messages[0], "No space left"));
    for (const std::string& message : messages) CHECK(message == messages[0]);
    CHECK(!find_checkpoint(folder / "run"));
  }
}

TEST_CASE("tensors of several blocks come back, written past the page cache and through it") {
  const ScratchFolder folder;
  for (const bool page_cache : {false, true})
    ThreadWorld(2).run([&](Communicator& communicator) {
      HostDevice device;
      Model model;
      model.module("m").add("w", {701, 1023});
      Options options;
      options.device = &device;
      const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Bf16Mixed,
                                        communicator, model, SGD{.lr = 0.5}, options);
      trainer->initialize(init::normal{1, 1});
      const std::uint64_t saved = params_hash(trainer->engine());
      const std::string path = folder / (page_cache ? "through" : "past");
      save_checkpoint(trainer->engine(), {.folder = path, .page_cache = page_cache});
      trainer->initialize(init::normal{1, 2});
      load_checkpoint(trainer->engine(), path);
      CHECK(params_hash(trainer->engine()) == saved);
    });
}

/// What save_checkpoint and load_checkpoint take beside the Plan.
TEST_CASE("a save takes two blocks to convert in and four to write from, or none") {
  const ScratchFolder folder;
  const bool past_cache = File::create(folder / "x").reopen_past_cache().has_value();
  for (const auto& [converts, page_cache] : {std::pair(false, false), std::pair(false, true),
                                             std::pair(true, false), std::pair(true, true)}) {
    Training training;
    training.world = 2;
    training.steps = 1;
    training.hooks.after_training = [&, converts = converts, page_cache = page_cache](
                                        Trainer& trainer, Communicator&) {
      Device& device = trainer.engine().device();
      const Bytes before = device.memory().allocated();
      const Bytes host_before = device.host_memory().high_water();
      SaveOptions options;
      options.folder = folder / ("run" + std::to_string(converts) + std::to_string(page_cache));
      options.block_bytes = 4096;
      options.page_cache = page_cache;
      if (converts) options.model_dtype = DType::BFloat16;
      save_checkpoint(trainer.engine(), options);
      CHECK(device.memory().allocated() == before);
      const Bytes taken = device.host_memory().high_water() - host_before;
      CHECK(taken == (converts ? 4096 : 0) + (page_cache || !past_cache ? 0 : 4 * 4096));
    };
    train(training);
  }
}

}  // namespace
}  // namespace sharder_test
