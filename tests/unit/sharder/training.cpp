#include "training.hpp"

#include <flatshard/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

namespace sharder_test {

TestModel::TestModel(const ModelChoice& chosen)
    : choice(chosen),
      embedding(model.module("embedding")),
      head(embedding),
      table(embedding.add("weight", {37, 5})) {
  for (int block = 0; block < 3; ++block) {
    const ModuleOptions options{.uses = block == 1 ? 2 : 1,
                                .backward_overwrites = block != 1 && choice.backward_overwrites,
                                .skip_when_unused = block == 2 && choice.skip_when_unused};
    blocks.push_back(model.module("h." + std::to_string(block), options));
    weights.push_back(blocks.back().add("weight", {11 + block, 7}));
    biases.push_back(blocks.back().add("bias", {3}, {.group = 1}));
  }
  scalar = blocks[0].add("scalar", {});
  empty = blocks[1].add("empty", {0, 4});
  frozen = blocks[2].add("frozen", {5}, {.requires_grad = false});
  norm = blocks[2].add("norm", {9}, {.dtype = DType::Float64});
  buffer = blocks[0].add_buffer("mask", {3}, DType::Int64);
  head = model.module("head");
  head.tie("weight", table);
  calls = {embedding, blocks[0], blocks[1], blocks[1], blocks[2], head};
  used.resize(model.modules().size());
  const auto use = [this](const Module& module, std::vector<Parameter> parameters) {
    used[static_cast<std::size_t>(module.index())] = std::move(parameters);
  };
  use(embedding, {table});
  use(blocks[0], {weights[0], biases[0], scalar});
  use(blocks[1], {weights[1], biases[1], empty});
  use(blocks[2], {weights[2], biases[2], frozen, norm});
  use(head, {table});
}

double noise(std::int64_t step, Elements micro_batch, int parameter, Elements element, int call) {
  auto x = static_cast<std::uint32_t>(step * 7919 + micro_batch * 104729 + element * 31 +
                                      parameter * 1299709 + call * 17);
  x ^= x >> 17;
  x *= 0xed5ad4bbU;
  x ^= x >> 11;
  x *= 0xac4c1b51U;
  x ^= x >> 15;
  return static_cast<double>(x) / 4294967296.0 - 0.5;
}

double contribution(double noise, double weight, double activation) {
  return noise + weight / 8 + activation / 64;
}

double activation_of(double earlier, const Values& weights) {
  double sum = earlier;
  for (Elements i = 0; i < weights.count; ++i) sum = sum / 2 + weights.get(i);
  return sum;
}

void add_gradient(const Batch& batch, const Values& weights, const Values& gradients, int parameter,
                  const float* scale, bool overwrite) {
  const double loss_scale = scale == nullptr ? 1 : static_cast<double>(*scale);
  const double activation = (*batch.activations)[static_cast<std::size_t>(batch.call)];
  for (Elements i = 0; i < weights.count; ++i) {
    const double next = contribution(noise(batch.step, batch.micro_batch, parameter, i, batch.call),
                                     weights.get(i), activation);
    const double before = overwrite ? 0 : gradients.get(i);
    gradients.set(i, before + next * loss_scale);
  }
}

void add_gradient(const Batch& batch, const Views& views, Parameter parameter) {
  add_gradient(batch, views.weights(parameter), views.gradients(parameter), parameter.index);
}

namespace {

const Module& module_of(const TestModel& test, const Batch& batch) {
  return test.calls[static_cast<std::size_t>(batch.call)];
}

/// Runs `act` on copies of a CUDA device's values in host memory, in the order of the compute
/// stream; what it did to the last of them is copied back.
template <std::size_t Count, class Act>
void on_copies(Engine& engine, std::array<Values, Count> values, Act&& act) {
  std::array<std::vector<std::byte>, Count> copies;
  std::array<Values, Count> local = values;
  for (std::size_t k = 0; k < Count; ++k) {
    copies[k].resize(static_cast<std::size_t>(values[k].count * size_of(values[k].dtype)));
    local[k].data = copies[k].data();
    engine.device().copy(values[k].data, local[k].data, static_cast<Bytes>(copies[k].size()),
                         engine.compute_stream());
  }
  engine.compute_stream().synchronize();
  act(local);
  engine.device().copy(local[Count - 1].data, values[Count - 1].data,
                       static_cast<Bytes>(copies[Count - 1].size()), engine.compute_stream());
  engine.compute_stream().synchronize();
}

void forward_on_copies(Trainer& trainer, const TestModel& test, const Batch& batch,
                       const Views& views) {
  double& activation = (*batch.activations)[static_cast<std::size_t>(batch.call)];
  activation = 0;
  for (const Parameter parameter : test.parameters_of(module_of(test, batch)))
    on_copies<1>(trainer.engine(), {views.weights(parameter)},
                 [&](auto& values) { activation = activation_of(activation, values[0]); });
}

void backward_on_copies(Trainer& trainer, const TestModel& test, const Batch& batch,
                        const Views& views, bool overwrite) {
  std::byte* scale =
      const_cast<std::byte*>(reinterpret_cast<const std::byte*>(trainer.loss_scale()));
  for (const Parameter parameter : test.parameters_of(module_of(test, batch))) {
    if (parameter == test.frozen) continue;
    on_copies<3>(
        trainer.engine(),
        {Values{scale, DType::Float32, 1}, views.weights(parameter), views.gradients(parameter)},
        [&](auto& values) {
          add_gradient(batch, values[1], values[2], parameter.index,
                       reinterpret_cast<const float*>(values[0].data), overwrite);
        });
  }
}

bool is_on_host(Trainer& trainer) { return trainer.engine().device().kind() == DeviceKind::Host; }

}  // namespace

void run_forward(Trainer& trainer, const TestModel& test, Batch batch) {
  const Module& module = module_of(test, batch);
  trainer.forward(module, [&](const Views& views) {
    if (!is_on_host(trainer)) return forward_on_copies(trainer, test, batch, views);
    HostStream& stream = host_stream(trainer.engine().compute_stream());
    double* activation = &(*batch.activations)[static_cast<std::size_t>(batch.call)];
    stream.enqueue([activation] { *activation = 0; });
    for (const Parameter parameter : test.parameters_of(module))
      stream.enqueue([activation, weights = views.weights(parameter)] {
        *activation = activation_of(*activation, weights);
      });
  });
}

void run_backward(Trainer& trainer, const TestModel& test, Batch batch) {
  const Module& module = module_of(test, batch);
  const ModuleOptions& options =
      test.model.modules()[static_cast<std::size_t>(module.index())].options;
  trainer.backward(module, [&](const Views& views) {
    if (!is_on_host(trainer))
      return backward_on_copies(trainer, test, batch, views, options.backward_overwrites);
    HostStream& stream = host_stream(trainer.engine().compute_stream());
    for (const Parameter parameter : test.parameters_of(module)) {
      if (parameter == test.frozen) continue;
      stream.enqueue([batch, weights = views.weights(parameter),
                      gradients = views.gradients(parameter), index = parameter.index,
                      scale = trainer.loss_scale(), overwrite = options.backward_overwrites] {
        add_gradient(batch, weights, gradients, index, scale, overwrite);
      });
    }
  });
}

void run_calls(Trainer& trainer, const TestModel& test, std::int64_t step, Elements micro_batch,
               std::span<const int> forward, std::span<const int> backward) {
  std::array<double, 8> activations{};
  for (const int call : forward)
    run_forward(trainer, test, {step, micro_batch, &activations, call});
  for (const int call : backward)
    run_backward(trainer, test, {step, micro_batch, &activations, call});
  trainer.engine().compute_stream().synchronize();  // activations are about to go
}

void run_micro_step(Trainer& trainer, const TestModel& test, std::int64_t step,
                    Elements micro_batch) {
  constexpr std::array forward{0, 1, 2, 3, 4, 5};
  constexpr std::array backward{5, 4, 3, 2, 1, 0};
  run_calls(trainer, test, step, micro_batch, forward, backward);
}

namespace {

/// Copies a fragment, or compares where another replica has been.
void put(std::vector<std::byte>& whole, std::vector<bool>& filled, const std::byte* source,
         Elements offset, Elements count, Bytes size, bool& agree) {
  for (Bytes i = 0; i < count * size; ++i) {
    const auto at = static_cast<std::size_t>(offset * size + i);
    if (filled[at] && whole[at] != source[i]) agree = false;
    whole[at] = source[i];
    filled[at] = true;
  }
}

struct Filled {
  std::vector<std::vector<bool>> masters;
  std::vector<std::vector<std::vector<bool>>> states;
};

}  // namespace

namespace {

/// As Engine::local, also of what rests on NVMe: then until the next call.
LocalShard local_of(const Engine& engine, Rank shard_rank, int parameter) {
  const auto at = static_cast<std::size_t>(parameter);
  const int index = engine.plan().flat_of_parameter[at];
  const Flat& flat = engine.plan().flats[static_cast<std::size_t>(index)];
  const OffloadTraits& tiers = engine.plan().request.offload;
  if ((flat.requires_grad ? tiers.optimizer : flat.parameters_rest) != Tier::Nvme)
    return engine.local(parameter);
  const FlatState state = engine.flat_state(index);
  for (const Fragment& part : fragments(flat.layout, flat.partition, shard_rank)) {
    if (part.parameter != engine.plan().slot_of_parameter[at]) continue;
    LocalShard local;
    local.offset = part.parameter_offset;
    local.count = part.count;
    local.master = state.master + part.slice_offset * size_of(flat.master);
    for (std::byte* values : state.states)
      local.states.push_back(values + part.slice_offset * size_of(flat.state));
    return local;
  }
  return {};
}

}  // namespace

void collect(Trainer& trainer, const TestModel& test, Communicator& communicator, Trained& into) {
  static std::mutex mutex;
  static Filled filled;
  Engine& engine = trainer.engine();
  engine.synchronize();
  const auto& parameters = test.model.parameters();
  const auto states = static_cast<std::size_t>(trainer.plan().request.optimizer_states);
  communicator.synchronize();
  if (communicator.rank() == 0) {
    into.masters.assign(parameters.size(), {});
    into.states.assign(states, into.masters);
    filled = {std::vector<std::vector<bool>>(parameters.size()),
              std::vector<std::vector<std::vector<bool>>>(
                  states, std::vector<std::vector<bool>>(parameters.size()))};
  }
  communicator.synchronize();
  {
    const std::lock_guard lock(mutex);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const LocalShard local =
          local_of(engine, communicator.rank() % trainer.plan().shard_group, static_cast<int>(p));
      const Flat& flat =
          trainer.plan().flats[static_cast<std::size_t>(trainer.plan().flat_of_parameter[p])];
      const auto add = [&](std::vector<std::byte>& whole, std::vector<bool>& done,
                           const std::byte* data, DType dtype) {
        const auto bytes = static_cast<std::size_t>(parameters[p].numel() * size_of(dtype));
        whole.resize(bytes);
        done.resize(bytes);
        std::vector<std::byte> copy(static_cast<std::size_t>(local.count * size_of(dtype)));
        engine.read(data, copy.data(), static_cast<Bytes>(copy.size()));
        put(whole, done, copy.data(), local.offset, local.count, size_of(dtype),
            into.replicas_agree);
      };
      add(into.masters[p], filled.masters[p], local.master, flat.master);
      for (std::size_t s = 0; s < local.states.size(); ++s)
        add(into.states[s][p], filled.states[s][p], local.states[s], flat.state);
    }
  }
  communicator.synchronize();
  if (communicator.rank() == 0)
    for (const auto& parameter : filled.masters)
      into.replicas_agree = into.replicas_agree &&
                            std::find(parameter.begin(), parameter.end(), false) == parameter.end();
}

std::optional<ScaleSettings> scale_settings(PrecisionName precision, double initial) {
  if (precision == PrecisionName::Fp16Torch) return LossScaler::torch(initial).settings;
  if (precision == PrecisionName::Fp16DeepSpeed) return LossScaler::deepspeed(initial).settings;
  if (precision == PrecisionName::Fp16Static) return LossScaler::constant(initial).settings;
  return std::nullopt;
}

namespace {

void train_rank(const Training& training, Communicator& given, Trained& trained) {
  const Hooks& hooks = training.hooks;
  const std::unique_ptr<Communicator> decorated = hooks.decorate ? hooks.decorate(given) : nullptr;
  Communicator& communicator = decorated ? *decorated : given;
  const TestModel test(training.model);
  std::unique_ptr<Device> own;
  if (hooks.device)
    own = hooks.device(training.host, given.rank());
  else if (!hooks.take_device)
    own = std::make_unique<HostDevice>(training.host);
  Device* const device = own ? own.get() : given.device();
  std::unique_ptr<HostStream> compute;
  if (training.threaded_compute) compute = make_host_stream(StreamForm::Threaded);
  Options options = training.options;
  options.device = own.get();
  options.compute_stream = compute.get();
  if (!options.loss_scale) options.loss_scale = scale_settings(training.precision);
  options.max_micro_steps = std::max(training.micro_steps, options.max_micro_steps);
  if (options.groups.size() < 2) options.groups = {{}, {.lr_factor = 0.5, .weight_decay = false}};
  const auto trainer = make_trainer(training.strategy, training.precision, communicator, test.model,
                                    training.optimizer, options);
  trainer->initialize(init::normal{training.stddev, 1});
  if (hooks.before_training) hooks.before_training(*trainer, communicator);
  std::optional<PendingReport> pending;
  std::vector<StepReport> reports;
  reports.reserve(static_cast<std::size_t>(training.steps));
  for (int step = 0; step < training.steps; ++step) {
    if (hooks.before_step) hooks.before_step(*trainer, communicator, step);
    const int count = hooks.micro_steps ? hooks.micro_steps(step) : training.micro_steps;
    for (int micro_step = 0; micro_step < count; ++micro_step) {
      trainer->micro_step(micro_step + 1 == count);
      const Elements micro_batch = trainer->micro_batch(micro_step, count);
      if (hooks.micro_step)
        hooks.micro_step(*trainer, test, step, micro_batch);
      else
        run_micro_step(*trainer, test, step, micro_batch);
    }
    const PendingReport next =
        trainer->step(hooks.step_options ? hooks.step_options(step) : StepOptions{});
    if (pending) reports.push_back(pending->wait());
    pending = next;
    if (hooks.after_step) hooks.after_step(*trainer, communicator, step);
  }
  if (pending) reports.push_back(pending->wait());
  if (hooks.after_training) hooks.after_training(*trainer, communicator);
  const Bytes high_water = device->memory().high_water();
  collect(*trainer, test, communicator, trained);
  if (communicator.rank() != 0) return;
  trained.reports = reports;
  trained.high_water = high_water;
  trained.arena_bytes = trainer->plan().arena_bytes;
  trained.peak_gathered = trainer->engine().peak_gathered_elements();
}

}  // namespace

Trained train(const Training& training, std::vector<std::string>* failures) {
  Trained trained;
  const auto run_rank = [&](Communicator& communicator) {
    try {
      train_rank(training, communicator, trained);
    } catch (const std::exception& error) {
      if (failures != nullptr)
        (*failures)[static_cast<std::size_t>(communicator.rank())] = error.what();
      throw;
    }
  };
  if (training.hooks.run)
    training.hooks.run(training.world, run_rank);
  else
    ThreadWorld(training.world, {.patience = std::chrono::seconds(60)}).run(run_rank);
  return trained;
}

std::uint64_t Trained::hash() const {
  std::uint64_t hash = 1469598103934665603U;  // FNV-1a
  const auto add = [&hash](std::byte byte) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211U;
  };
  for (const auto& parameter : masters) std::for_each(parameter.begin(), parameter.end(), add);
  for (const auto& state : states)
    for (const auto& parameter : state) std::for_each(parameter.begin(), parameter.end(), add);
  for (const StepReport& report : reports)
    for (const double value : {report.grad_norm, report.clip_coefficient}) {
      const double number =
          std::isnan(value) ? std::nan("") : value;  // its sign is the processor's
      std::array<std::byte, 8> bytes;
      std::memcpy(bytes.data(), &number, 8);
      std::for_each(bytes.begin(), bytes.end(), add);
    }
  return hash;
}

Training clipped(StrategyName strategy, int world, int micro_steps) {
  Training training;
  training.strategy = strategy;
  training.world = world;
  training.micro_steps = micro_steps;
  training.options.max_grad_norm = 0.5;
  training.options.accumulation = Accumulation::Tree;
  return training;
}

std::string to_string(const Training& training) {
  const Options& options = training.options;
  std::string text =
      std::string(name_of(training.strategy)) + " " + std::string(name_of(training.precision)) +
      " W=" + std::to_string(training.world) + " K=" + std::to_string(training.micro_steps) +
      " group=" + std::to_string(options.shard_group);
  if (options.reduce_moment)
    text += " moment=" + std::to_string(static_cast<int>(*options.reduce_moment));
  text += options.accumulation == Accumulation::Tree ? " tree" : " running";
  text += " forward=" + std::to_string(options.prefetch_forward) +
          " backward=" + std::to_string(static_cast<int>(options.prefetch_backward)) +
          " persist=" + std::to_string(options.persistence_threshold);
  if (options.max_live_elements != unlimited_elements)
    text += " live=" + std::to_string(options.max_live_elements);
  if (options.step_in_backward) text += " in_backward part=" + std::to_string(options.update_part);
  text += training.host.form == StreamForm::Threaded ? " threaded" : " inline";
  if (training.threaded_compute) text += " compute_threaded";
  text += " threads=" + std::to_string(training.host.threads);
  return text;
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace sharder_test
