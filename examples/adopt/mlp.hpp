// The model of both trainers, as yours might be: a perceptron of two layers, y = W2 tanh(W1 x + b1)
// + b2, forward and backward by loops over plain arrays. Nothing here knows of ranks.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

inline constexpr int inputs = 8, hidden = 32, outputs = 4, samples = 64;
/// Elements of w1 (hidden, inputs), b1 (hidden), w2 (outputs, hidden), b2 (outputs).
inline constexpr std::array<std::size_t, 4> sizes{hidden * inputs, hidden, outputs* hidden,
                                                  outputs};

/// What a parameter starts from: small numbers that depend on which parameter it is.
inline std::vector<float> initial_values(int parameter) {
  std::mt19937 random(static_cast<unsigned>(parameter + 1));
  std::vector<float> values(sizes[static_cast<std::size_t>(parameter)]);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 4000 - 0.25F;
  return values;
}

/// Some of a step's samples, and what forward leaves to backward.
struct Batch {
  std::vector<float> x, target;  // (count, inputs), (count, outputs)
  std::vector<float> h, dy;      // (count, hidden), (count, outputs)
  int count = 0;
};

/// Part `part` of `parts` equal ones of the step's samples: y = sin of sums of inputs.
inline Batch make_batch(int step, int part = 0, int parts = 1) {
  Batch batch;
  batch.count = samples / parts;
  std::mt19937 random(static_cast<unsigned>(step));
  for (int s = 0; s < samples; ++s) {
    std::array<float, inputs> x{};
    for (float& value : x) value = static_cast<float>(random() % 2001) / 1000 - 1;
    if (s / batch.count != part) continue;
    batch.x.insert(batch.x.end(), x.begin(), x.end());
    for (std::size_t o = 0; o < outputs; ++o)
      batch.target.push_back(std::sin(x[2 * o] + x[2 * o + 1]));
  }
  batch.h.resize(static_cast<std::size_t>(batch.count * hidden));
  batch.dy.resize(static_cast<std::size_t>(batch.count * outputs));
  return batch;
}

/// y[s][r] = f(bias[r] + sum over c of weight[r][c] x[s][c]), handed to take(s * rows + r, y).
template <class Take>
void affine(const float* weight, const float* bias, const std::vector<float>& x, int count,
            int rows, int columns, Take&& take) {
  for (int s = 0; s < count; ++s)
    for (int r = 0; r < rows; ++r) {
      float sum = bias[r];
      for (int c = 0; c < columns; ++c)
        sum += weight[r * columns + c] * x[static_cast<std::size_t>(s * columns + c)];
      take(static_cast<std::size_t>(s * rows + r), sum);
    }
}

/// dweight[r][c] += sum over s of dy[s][r] x[s][c];  dbias[r] += sum over s of dy[s][r]
inline void affine_backward(float* dweight, float* dbias, const std::vector<float>& dy,
                            const std::vector<float>& x, int count, int rows, int columns) {
  for (int s = 0; s < count; ++s)
    for (int r = 0; r < rows; ++r) {
      const float d = dy[static_cast<std::size_t>(s * rows + r)];
      dbias[r] += d;
      for (int c = 0; c < columns; ++c)
        dweight[r * columns + c] += d * x[static_cast<std::size_t>(s * columns + c)];
    }
}

inline void forward1(const float* w1, const float* b1, Batch& batch) {
  affine(w1, b1, batch.x, batch.count, hidden, inputs,
         [&](std::size_t at, float sum) { batch.h[at] = std::tanh(sum); });
}

/// Returns the loss: the sum over samples and outputs of (y - target)^2 / 2.
inline float forward2(const float* w2, const float* b2, Batch& batch) {
  float loss = 0;
  affine(w2, b2, batch.h, batch.count, outputs, hidden, [&](std::size_t at, float sum) {
    const float error = sum - batch.target[at];
    batch.dy[at] = error / static_cast<float>(batch.count);
    loss += error * error / 2;
  });
  return loss;
}

/// Gradients of the mean loss are added; h becomes the gradient of what went into tanh.
inline void backward2(const float* w2, float* dw2, float* db2, Batch& batch) {
  affine_backward(dw2, db2, batch.dy, batch.h, batch.count, outputs, hidden);
  for (int s = 0; s < batch.count; ++s)
    for (int c = 0; c < hidden; ++c) {
      float& h = batch.h[static_cast<std::size_t>(s * hidden + c)];
      float sum = 0;
      for (int r = 0; r < outputs; ++r)
        sum += batch.dy[static_cast<std::size_t>(s * outputs + r)] * w2[r * hidden + c];
      h = sum * (1 - h * h);
    }
}

inline void backward1(float* dw1, float* db1, const Batch& batch) {
  affine_backward(dw1, db1, batch.h, batch.x, batch.count, hidden, inputs);
}
