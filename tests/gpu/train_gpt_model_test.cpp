// The whole model on a GPU against the host's on the same weights, which is tested against naive
// loops and finite differences by itself.
#include <doctest/doctest.h>

#include "cuda/device_batch.hpp"
#include "cuda/device_model.hpp"
#include "naive_gpt.hpp"
#include "plain_parameters.hpp"
#include "random.hpp"
#include "train_gpt_arrays.hpp"

namespace {

using namespace train_gpt;
using namespace train_gpt_test;
using flatshard::Bf16;
using flatshard::Half;

/// As PlainParameters, in device memory; gradients begin as NaN.
template <class ComputeType>
class DeviceParameters {
 public:
  using Compute = ComputeType;

  explicit DeviceParameters(const ModelShape& shape) {
    std::size_t count = 0;
    for (const ModuleSpec& module : model_modules(shape)) {
      modules_.emplace_back();
      for (const ParameterSpec& parameter : module.parameters) {
        modules_.back().push_back(count);
        count += (static_cast<std::size_t>(parameter.numel()) + 63) / 64 * 64;
      }
    }
    count_ = count;
    gradients_ = std::make_unique<Array<Compute>>(count_);
  }

  /// Takes over the weights of `host`, rounded to Compute.
  template <class Parameters>
  void set(Parameters& host) {
    std::vector<Compute> all(count_);
    std::size_t tensor = 0;
    for (const auto& module : modules_)
      for (const std::size_t begin : module) {
        for (std::size_t i = host.begin(tensor); i < host.begin(tensor + 1); ++i)
          all[begin + i - host.begin(tensor)] =
              flatshard::convert<Compute>(static_cast<float>(host.weights()[i]));
        ++tensor;
      }
    weights_ = std::make_unique<Array<Compute>>(all);
  }
  /// In the order of `host`'s parameters, without what lies between them.
  template <class Parameters>
  std::vector<double> gradients(Parameters& host) {
    const std::vector<double> all = exact(gradients_->values());
    std::vector<double> out;
    std::size_t tensor = 0;
    for (const auto& module : modules_)
      for (const std::size_t begin : module) {
        const std::size_t count = host.begin(tensor + 1) - host.begin(tensor);
        out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                   all.begin() + static_cast<std::ptrdiff_t>(begin + count));
        ++tensor;
      }
    return out;
  }

  template <class Use>
  void forward_root(Use use) {
    use(pointers<RootTensors<const Compute>>(*weights_, 0));
  }
  template <class Use>
  void forward_block(std::int64_t layer, Use use) {
    use(pointers<BlockTensors<const Compute>>(*weights_, layer + 1));
  }
  template <class Use>
  void backward_root(Use use) {
    use(pointers<RootTensors<const Compute>>(*weights_, 0),
        pointers<RootTensors<Compute>>(*gradients_, 0));
  }
  template <class Use>
  void backward_block(std::int64_t layer, Use use) {
    use(pointers<BlockTensors<const Compute>>(*weights_, layer + 1),
        pointers<BlockTensors<Compute>>(*gradients_, layer + 1));
  }
  const float* loss_scale() { return scale_.data(); }

 private:
  template <class Tensors>
  Tensors pointers(Array<Compute>& base, std::int64_t module) {
    Tensors out;
    const auto& begins = modules_[static_cast<std::size_t>(module)];
    for (std::size_t i = 0; i < begins.size(); ++i) out.pointer[i] = base.data() + begins[i];
    return out;
  }

  std::vector<std::vector<std::size_t>> modules_;
  std::size_t count_ = 0;
  std::unique_ptr<Array<Compute>> weights_, gradients_;
  Array<float> scale_{std::vector<float>{8.0f}};
};

struct Outcome {
  double loss;
  std::vector<double> gradients;
};

/// One micro-step on the GPU; run twice, because equal inputs must give equal bits.
template <class Compute>
Outcome on_gpu(const ModelShape& shape, std::int64_t sequences, PlainParameters<double>& host,
               const Batch& batch) {
  flatshard::CudaDevice& device = train_gpt_test::gpu().device;
  DeviceParameters<Compute> parameters{shape};
  parameters.set(host);
  train_gpt::gpu::DeviceModel<Compute> model{shape, sequences, device,
                                             *train_gpt_test::gpu().stream};
  train_gpt::gpu::BatchLoader loader{sequences * shape.context, shape.vocabulary, device,
                                     *train_gpt_test::gpu().stream};
  Outcome outcome{};
  for (int run = 0; run < 2; ++run) {
    Array<double> loss{std::vector<double>{0}};
    model.add_losses_to(loss.data(), 1);
    std::copy(batch.tokens.begin(), batch.tokens.end(), loader.tokens());
    std::copy(batch.targets.begin(), batch.targets.end(), loader.targets());
    forward_and_backward(parameters, model, loader.load());
    const Outcome next{loss.values()[0], parameters.gradients(host)};
    if (run == 1) CHECK(next.gradients == outcome.gradients);
    if (run == 1) CHECK(next.loss == outcome.loss);
    outcome = next;
  }
  return outcome;
}

/// The same by the host's model in double, on weights rounded to Compute.
template <class Compute>
Outcome on_host(const ModelShape& shape, std::int64_t sequences, PlainParameters<double>& host,
                const Batch& batch) {
  for (std::size_t i = 0; i < host.count(); ++i)
    host.weights()[i] = static_cast<double>(flatshard::convert<float>(
        flatshard::convert<Compute>(static_cast<float>(host.weights()[i]))));
  host.scale = 8;
  Model<double> model{shape, sequences};
  const double loss = run_micro_step(host, model, batch.tokens.data(), batch.targets.data());
  return {loss, {host.gradients(), host.gradients() + host.count()}};
}

/// Weights as training has them: residual branches small against the stream.
void fill_gently(PlainParameters<double>& parameters, std::mt19937_64& random) {
  fill_weights(parameters, random, [](double x) { return x; });
  for (std::size_t tensor = 0; tensor < parameters.tensors(); ++tensor)
    if (parameters.name(tensor).find("ln_") == std::string::npos)
      for (std::size_t i = parameters.begin(tensor); i < parameters.begin(tensor + 1); ++i)
        parameters.weights()[i] *= 0.3;
}

template <class Compute>
void compare(const ModelShape& shape, std::int64_t sequences, std::mt19937_64& random,
             double tolerance) {
  PlainParameters<double> host{shape, std::nan("")};
  fill_gently(host, random);
  const Batch batch = random_batch(shape, sequences, random);
  const Outcome expected = on_host<Compute>(shape, sequences, host, batch);
  const Outcome got = on_gpu<Compute>(shape, sequences, host, batch);
  INFO("width ", shape.width, " untied ", shape.untied_head, " of ", sizeof(Compute), " bytes");
  CHECK(got.loss == doctest::Approx(expected.loss).epsilon(tolerance));
  for (std::size_t tensor = 0; tensor < host.tensors(); ++tensor) {
    const auto part = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(host.begin(tensor)),
                                 all.begin() + static_cast<std::ptrdiff_t>(host.begin(tensor + 1)));
    };
    INFO(host.name(tensor));
    CHECK(relative_error(part(got.gradients), part(expected.gradients)) <= tolerance);
  }
}

const ModelShape tied{.layers = 2, .width = 64, .heads = 2, .context = 48, .vocabulary = 96};
const ModelShape untied{
    .layers = 3, .width = 128, .heads = 2, .context = 70, .vocabulary = 264, .untied_head = true};

}  // namespace

// fp32: sums of at most 4C or R V terms err by a few 2^-24 each, and a gradient passes about 10 L
// of them: 1e-5. TF32 would leave 1e-3.
TEST_CASE("fp32 on a GPU: the host's loss and gradients") {
  auto random = flatshard_test::generator(31);
  compare<float>(tied, 3, random, 1e-4);
  compare<float>(untied, 2, random, 1e-4);
  compare<float>({.layers = 1, .width = 36, .heads = 3, .context = 5, .vocabulary = 260}, 2, random,
                 1e-4);
}

// 16 bits: every activation and gradient is rounded, about 10 L times on the way, at random.
TEST_CASE_TEMPLATE("16 bits on a GPU: near the host's loss and gradients", Compute, Bf16, Half) {
  auto random = flatshard_test::generator(32);
  compare<Compute>(tied, 3, random, 16 * unit_roundoff<Compute>);
  compare<Compute>(untied, 2, random, 16 * unit_roundoff<Compute>);
}
