// The model of the small examples, on plain arrays as yours might be: a linear layer y = W x,
// fitted to the outputs of a layer whose weights are known. It knows nothing of ranks and shards;
// all it takes from the library are the conversions of weights that are not float.
#pragma once

#include <flatshard/tensor/convert.hpp>

#include <array>
#include <random>

inline constexpr int outputs = 8, inputs = 16, samples = 32;

/// What one rank sees in one step.
struct Batch {
  std::array<float, samples * inputs> x;    // (samples, inputs)
  std::array<float, samples * outputs> dy;  // (samples, outputs) d loss / d y, set by forward
};

/// Inputs in [-1, 1) that depend on the step and on which part of the global batch this is.
inline Batch make_batch(int step, int part) {
  Batch batch{};
  std::mt19937 random(static_cast<unsigned>(step * 1000 + part));
  for (float& x : batch.x) x = static_cast<float>(random() % 4096) / 2048 - 1;
  return batch;
}

/// The weight that training should find.
inline float target(int output, int input) {
  return static_cast<float>((output * 7 + input * 5) % 11 - 5) / 8;
}

/// Returns the loss, the mean of (y - target's y)^2 / 2.
template <class Element>
float forward(const Element* weight, Batch& batch) {  // weight: (outputs, inputs)
  constexpr float terms = samples * outputs;
  float loss = 0;
  for (int s = 0; s < samples; ++s)
    for (int o = 0; o < outputs; ++o) {
      float error = 0;
      for (int i = 0; i < inputs; ++i)
        error += (flatshard::to_float(weight[o * inputs + i]) - target(o, i)) *
                 batch.x[static_cast<std::size_t>(s * inputs + i)];
      batch.dy[static_cast<std::size_t>(s * outputs + o)] = error / terms;
      loss += error * error / (2 * terms);
    }
  return loss;
}

/// gradient += loss_scale * dy^T x
template <class Element>
void backward(Element* gradient, const Batch& batch, float loss_scale = 1) {
  for (int o = 0; o < outputs; ++o)
    for (int i = 0; i < inputs; ++i) {
      float sum = 0;
      for (int s = 0; s < samples; ++s)
        sum += batch.dy[static_cast<std::size_t>(s * outputs + o)] *
               batch.x[static_cast<std::size_t>(s * inputs + i)];
      Element& slot = gradient[o * inputs + i];
      slot = flatshard::from_float<Element>(flatshard::to_float(slot) + loss_scale * sum);
    }
}
