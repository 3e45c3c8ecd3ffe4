#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/io/read_ahead.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <numeric>

#include "checkpointing.hpp"
#include "random.hpp"

namespace sharder_test {
namespace {

using safetensors::StoredType;

struct Stored {
  std::string name;
  StoredType type;
  Shape shape;
  std::string bytes;
};

template <class Element>
std::string bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

/// A file as somebody else would write it, tensors in the given order.
void write_file(const std::string& path, const std::vector<Stored>& tensors) {
  std::vector<safetensors::TensorSpec> specs;
  for (const Stored& tensor : tensors) specs.push_back({tensor.name, tensor.type, tensor.shape});
  const safetensors::Header header = safetensors::plan_header(specs);
  std::string text = encode(header);
  for (const safetensors::TensorEntry& entry : header.tensors)
    for (const Stored& tensor : tensors)
      if (tensor.name == entry.name) text += tensor.bytes;
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<float> random_floats(std::size_t count, std::uint64_t stream) {
  auto random = flatshard_test::generator(stream);
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>{}(random);
  return values;
}

/// Loads on `world` ranks and hands what is whole then to `look`.
void load_into(const Model& model, PrecisionName precision, int world, const std::string& path,
               const LoadOptions& options, const std::function<void(Trainer&)>& look) {
  ThreadWorld(world, {.patience = std::chrono::seconds(60)}).run([&](Communicator& communicator) {
    HostDevice device;
    Options sharding;
    sharding.device = &device;
    const auto trainer =
        make_trainer(StrategyName::FullShard, precision, communicator, model, AdamW{}, sharding);
    load_tensors(trainer->engine(), path, options);
    look(*trainer);
  });
}

std::vector<double> values_of(Trainer& trainer, const Module& module, Parameter parameter) {
  std::vector<double> values;
  trainer.summon_full(module, [&](const Views& views) {
    const Values view = views.weights(parameter);
    for (Elements i = 0; i < view.count; ++i) values.push_back(view.get(i));
  });
  return values;
}

TEST_CASE("somebody else's names, transposed and fused tensors load into any world") {
  const ScratchFolder folder;
  constexpr std::size_t width = 12;
  const std::vector<float> fused = random_floats(width * 3 * width, 1);  // (C, 3C), as GPT-2 has it
  const std::vector<float> bias = random_floats(3 * width, 2);
  write_file(folder / "model.safetensors",
             {{"attn.weight", StoredType::F32, {12, 36}, bytes_of(fused)},
              {"attn.bias", StoredType::F32, {36}, bytes_of(bias)}});
  Model model;
  Module module = model.module("a");
  const std::array names{"q", "k", "v"};
  std::vector<Parameter> weights, biases;
  for (const char* name : names) {
    weights.push_back(module.add(std::string(name) + ".weight", {12, 12}));
    biases.push_back(module.add(std::string(name) + ".bias", {12}));
  }
  LoadOptions options;
  options.block_bytes = 4096;
  options.source = [](const std::string& name) {
    const Elements part = name[2] == 'q' ? 0 : name[2] == 'k' ? 1 : 2;
    if (name.ends_with("bias")) return TensorSource{"attn.bias", false, part * 12, true};
    return TensorSource{"attn.weight", true, part * 12, true};
  };
  for (const Readers readers : {Readers::EveryRank, Readers::RankZero})
    for (const int world : {1, 3, 4}) {
      options.readers = readers;
      load_into(model, PrecisionName::Bf16Mixed, world, folder.path(), options,
                [&](Trainer& trainer) {
                  for (std::size_t part = 0; part < 3; ++part) {
                    const auto weight = values_of(trainer, module, weights[part]);
                    const auto shift = values_of(trainer, module, biases[part]);
                    for (std::size_t row = 0; row < width; ++row) {
                      CHECK(shift[row] == static_cast<double>(bias[part * width + row]));
                      for (std::size_t column = 0; column < width; ++column)
                        CHECK(weight[row * width + column] ==
                              static_cast<double>(fused[column * 3 * width + part * width + row]));
                    }
                  }
                });
    }
}

TEST_CASE("narrow files are widened on the shard; narrowing needs leave") {
  const ScratchFolder folder;
  const std::vector<float> values = random_floats(1000, 3);
  std::vector<Bf16> narrow;
  for (const float value : values) narrow.push_back(from_double<Bf16>(static_cast<double>(value)));
  write_file(folder / "wide.safetensors", {{"m.w", StoredType::F32, {1000}, bytes_of(values)}});
  write_file(folder / "narrow.safetensors", {{"m.w", StoredType::BF16, {1000}, bytes_of(narrow)}});
  Model model;
  Module module = model.module("m");
  const Parameter weight = module.add("w", {1000});
  const auto loads = [&](PrecisionName precision, const std::string& file, bool down) {
    LoadOptions options;
    options.allow_downcast = down;
    options.block_bytes = 4096;
    return message_of([&] {
      load_into(model, precision, 3, folder / file, options, [&](Trainer& trainer) {
        const bool is_wide = file == "wide.safetensors" && precision != PrecisionName::Bf16;
        const auto loaded = values_of(trainer, module, weight);
        for (std::size_t i = 0; i < loaded.size(); ++i)
          CHECK(loaded[i] == (is_wide ? static_cast<double>(values[i]) : to_double(narrow[i])));
      });
    });
  };
  CHECK(loads(PrecisionName::Fp32, "narrow.safetensors", false) == "no error");
  CHECK(loads(PrecisionName::Fp64, "wide.safetensors", false) == "no error");
  CHECK(loads(PrecisionName::Bf16, "narrow.safetensors", false) == "no error");
  CHECK(contains(loads(PrecisionName::Bf16, "wide.safetensors", false), "allow_downcast"));
  CHECK(contains(loads(PrecisionName::Fp16, "narrow.safetensors", false), "allow_downcast"));
  CHECK(loads(PrecisionName::Bf16, "wide.safetensors", true) == "no error");
}

TEST_CASE("what does not fit is refused before anything changes, by name") {
  const ScratchFolder folder;
  write_file(folder / "model.safetensors", {{"m.w", StoredType::F32, {2, 3}, std::string(24, '\1')},
                                            {"m.ids", StoredType::I64, {2}, std::string(16, '\2')},
                                            {"other", StoredType::F32, {}, std::string(4, '\0')}});
  const auto refusal = [&](const std::function<void(Module&)>& add, LoadOptions options = {}) {
    Model model;
    Module module = model.module("m");
    add(module);
    return message_of(
        [&] { load_into(model, PrecisionName::Fp32, 2, folder.path(), options, [](Trainer&) {}); });
  };
  const auto exact = [](Module& module) {
    module.add("w", {2, 3});
    module.add_buffer("ids", {2}, DType::Int64);
  };
  LoadOptions loose;
  loose.allow_unused = true;
  CHECK(contains(refusal(exact), "nothing takes the stored tensor 'other'"));
  CHECK(refusal(exact, loose) == "no error");
  CHECK(contains(refusal([](Module& m) { m.add("w", {3, 2}); }, loose), "(2, 3), not (3, 2)"));
  CHECK(contains(refusal([](Module& m) { m.add("v", {2, 3}); }, loose), "near it: m.w"));
  CHECK(contains(refusal([](Module& m) { m.add("ids", {2}); }, loose), "'m.ids' is I64"));
  CHECK(contains(refusal([](Module& m) { m.add_buffer("ids", {2}, DType::Int32); }, loose),
                 "buffer 'm.ids' is int32"));
  loose.source = [](const std::string&) { return TensorSource{"m.w", false, 1, true}; };
  CHECK(contains(refusal([](Module& m) { m.add("w", {2, 3}); }, loose), "no rows from 1 on"));
  loose.source = [](const std::string&) { return TensorSource{"other", true}; };
  CHECK(contains(refusal([](Module& m) { m.add("w", {2, 3}); }, loose), "two dimensions"));
}

TEST_CASE("missing parameters keep their values when that is asked for") {
  const ScratchFolder folder;
  write_file(folder / "model.safetensors",
             {{"m.w", StoredType::F32, {2}, bytes_of(std::vector<float>{3, 4})}});
  Model model;
  Module module = model.module("m");
  const Parameter stored = module.add("w", {2}), fresh = module.add("v", {2});
  ThreadWorld(2).run([&](Communicator& communicator) {
    const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp32, communicator,
                                      model, AdamW{}, {});
    trainer->initialize(init::constant{0.5});
    LoadOptions options;
    options.allow_missing = true;
    load_tensors(trainer->engine(), folder.path(), options);
    CHECK(values_of(*trainer, module, stored) == std::vector<double>{3, 4});
    CHECK(values_of(*trainer, module, fresh) == std::vector<double>{0.5, 0.5});
  });
}

TEST_CASE("a model is made from a file: integers are buffers, names give modules") {
  const ScratchFolder folder;
  const std::vector<std::int64_t> ids{5, 6, 7};
  write_file(folder / "model.safetensors",
             {{"encoder.0.weight", StoredType::F32, {2, 2}, bytes_of(random_floats(4, 4))},
              {"encoder.0.bias", StoredType::F32, {2}, bytes_of(random_floats(2, 5))},
              {"ids", StoredType::I64, {3}, bytes_of(ids)}});
  const Model model = model_from_safetensors(folder.path());
  CHECK(model.parameters().size() == 2);
  CHECK(model.find("encoder.0.weight").index >= 0);
  REQUIRE(model.buffers().size() == 1);
  CHECK(model.buffers()[0].dtype == DType::Int64);
  CHECK(model.modules().size() == 2);  // encoder.0 and the root
  for (const Readers readers : {Readers::EveryRank, Readers::RankZero})
    load_into(
        model, PrecisionName::Fp32, 3, folder.path(), {.readers = readers}, [&](Trainer& trainer) {
          const auto* data = reinterpret_cast<const std::int64_t*>(trainer.engine().buffer(0));
          CHECK(std::vector<std::int64_t>(data, data + 3) == ids);
        });
  ModelOptions options;
  options.module_of = [](const std::string&) { return std::string("decoder"); };
  CHECK(contains(message_of([&] { model_from_safetensors(folder.path(), options); }),
                 "cannot be of module 'decoder'"));
}

TEST_CASE("a damaged tensor is found and named on every rank") {
  const ScratchFolder folder;
  Part part;
  part.to = 1;
  part.save = folder / "run";
  train_part(part);
  const std::string path = folder / "run/step-1/optimizer.safetensors";
  std::string bytes = bytes_of_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  Part again;
  again.load = part.save;
  for (const Readers readers : {Readers::EveryRank, Readers::RankZero}) {
    again.load_options = {.readers = readers};
    const std::string message = message_of([&] { train_part(again); });
    CHECK(contains(message, "does not have the bytes that were saved"));
    CHECK(contains(message, ".exp_avg"));
    again.load_options.verify_digests = false;
    CHECK(message_of([&] { train_part(again); }) == "no error");
  }
}

TEST_CASE("loading reads no more than it owns and stages no more than it must") {
  const ScratchFolder folder;
  Part part;
  part.to = 1;
  part.world = 4;
  part.save = folder / "run";
  const Trained saved = train_part(part);
  for (const Readers readers : {Readers::EveryRank, Readers::RankZero}) {
    Training training;
    training.precision = part.precision;
    training.world = 4;
    training.steps = 0;
    training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
      Device& device = trainer.engine().device();
      const Bytes before = device.memory().allocated();
      const Bytes host_before = device.host_memory().high_water();
      LoadOptions options;
      options.readers = readers;
      options.block_bytes = 4096;
      load_checkpoint(trainer.engine(), part.save, options);
      CHECK(device.memory().allocated() == before);
      // Four blocks on the way, each rounded out to whole pages at both ends; none by broadcast.
      const Bytes most = readers == Readers::EveryRank ? 4 * (4096 + 2 * ReadAhead::block) : 0;
      CHECK(device.host_memory().high_water() <= host_before + most);
      CHECK(device.host_memory().allocated() <= host_before);
    };
    CHECK(same_state(train(training), saved));
  }
}

TEST_CASE("no checkpoint, another optimizer, other groups: each is said on all ranks") {
  const ScratchFolder folder;
  Part part;
  part.to = 1;
  part.save = folder / "run";
  train_part(part);
  Part again;
  again.load = folder.path();
  CHECK(contains(message_of([&] { train_part(again); }), "there is no checkpoint in"));
  again.load = part.save;
  again.optimizer = SGD{};
  CHECK(contains(message_of([&] { train_part(again); }), "'adamw', not 'sgd'"));
  again.optimizer = part.optimizer;
  again.options.groups.resize(3);
  CHECK(contains(message_of([&] { train_part(again); }), "2 groups, not 3"));
}

TEST_CASE("hyper-parameters are the checkpoint's unless asked otherwise") {
  const ScratchFolder folder;
  Part part;
  part.to = 1;
  part.save = folder / "run";
  train_part(part);
  for (const bool restored : {true, false}) {
    Training training;
    training.precision = part.precision;
    training.world = 2;
    training.steps = 0;
    training.optimizer = AdamW{.lr = 1};
    training.hooks.before_training = [&](Trainer& trainer, Communicator&) {
      load_checkpoint(trainer.engine(), part.save, {.hyper_parameters = restored});
      const auto& groups = trainer.engine().group_optimizers();
      CHECK(groups[0].hyper_parameters()[0].value == (restored ? 1e-2 : 1));
      CHECK(groups[1].hyper_parameters()[0].value == (restored ? 0.5e-2 : 0.5));
      trainer.engine().set_optimizer(AdamW{.lr = 2});
      CHECK(groups[1].hyper_parameters()[0].value == 1);
    };
    train(training);
  }
}

TEST_CASE("what was tied may be apart, and what was apart cannot be tied") {
  const ScratchFolder folder;
  Model tied, apart;
  const Parameter storage = tied.module("a").add("w", {4});
  tied.module("b").tie("w", storage);
  Module a = apart.module("a"), b = apart.module("b");
  const Parameter first = a.add("w", {4}), second = b.add("w", {4});
  const auto with = [](const Model& model, const std::function<void(Trainer&)>& act) {
    return message_of([&] {
      ThreadWorld(2).run([&](Communicator& communicator) {
        const auto trainer = make_trainer(StrategyName::FullShard, PrecisionName::Fp32,
                                          communicator, model, AdamW{}, {});
        trainer->initialize(init::normal{1, 3});
        act(*trainer);
      });
    });
  };
  with(tied,
       [&](Trainer& trainer) { save_checkpoint(trainer.engine(), {.folder = folder / "tied"}); });
  with(apart, [&](Trainer& trainer) {
    save_checkpoint(trainer.engine(), {.folder = folder / "apart"});
    load_checkpoint(trainer.engine(), folder / "tied");
    CHECK(values_of(trainer, a, first) == values_of(trainer, b, second));
  });
  const std::string message =
      with(tied, [&](Trainer& trainer) { load_checkpoint(trainer.engine(), folder / "apart"); });
  CHECK(contains(message, "stored as two tensors"));
}

}  // namespace
}  // namespace sharder_test
