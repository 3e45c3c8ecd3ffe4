#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "plain_parameters.hpp"

namespace train_gpt_test {

/// The loss by the definition of the transformer, in naive loops over double: one number at a time,
/// attention over the positions before and at the token only.
class NaiveGpt {
 public:
  NaiveGpt(const train_gpt::ModelShape& shape, PlainParameters<double>& parameters)
      : shape_{shape} {
    for (std::size_t t = 0; t < parameters.tensors(); ++t)
      tensors_[parameters.name(t)].assign(parameters.weights() + parameters.begin(t),
                                          parameters.weights() + parameters.begin(t + 1));
  }

  double loss(const Batch& batch) const {
    double sum = 0;
    const auto t = static_cast<std::size_t>(shape_.context);
    for (std::size_t begin = 0; begin < batch.tokens.size(); begin += t)
      sum += sequence_loss(batch.tokens.data() + begin, batch.targets.data() + begin);
    return sum / static_cast<double>(batch.tokens.size());
  }

 private:
  using Row = std::vector<double>;

  const Row& tensor(const std::string& name) const { return tensors_.at(name); }

  Row norm(const Row& x, const std::string& name) const {
    const auto width = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / width;
    for (const double v : x) variance += (v - mean) * (v - mean) / width;
    Row out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      out[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * tensor(name + ".weight")[i] +
               tensor(name + ".bias")[i];
    return out;
  }

  Row linear(const Row& x, const std::string& name) const {
    Row out = tensor(name + ".bias");
    const Row& weight = tensor(name + ".weight");
    for (std::size_t o = 0; o < out.size(); ++o)
      for (std::size_t i = 0; i < x.size(); ++i) out[o] += weight[o * x.size() + i] * x[i];
    return out;
  }

  std::vector<Row> attention(const std::vector<Row>& qkv) const {
    const auto c = static_cast<std::size_t>(shape_.width);
    const auto d = static_cast<std::size_t>(shape_.head_width());
    std::vector<Row> out(qkv.size(), Row(c, 0.0));
    for (std::size_t query = 0; query < qkv.size(); ++query)
      for (std::size_t head = 0; head < c; head += d) {
        Row weight(query + 1, 0.0);
        double total = 0;
        for (std::size_t key = 0; key <= query; ++key) {
          for (std::size_t i = head; i < head + d; ++i)
            weight[key] += qkv[query][i] * qkv[key][c + i];
          weight[key] = std::exp(weight[key] / std::sqrt(static_cast<double>(d)));
          total += weight[key];
        }
        for (std::size_t key = 0; key <= query; ++key)
          for (std::size_t i = head; i < head + d; ++i)
            out[query][i] += weight[key] / total * qkv[key][2 * c + i];
      }
    return out;
  }

  void add_block(std::vector<Row>& stream, const std::string& block) const {
    std::vector<Row> qkv;
    for (const Row& x : stream)
      qkv.push_back(linear(norm(x, block + ".ln_1"), block + ".attn.c_attn"));
    const std::vector<Row> mixed = attention(qkv);
    for (std::size_t r = 0; r < stream.size(); ++r) {
      add(stream[r], linear(mixed[r], block + ".attn.c_proj"));
      Row wide = linear(norm(stream[r], block + ".ln_2"), block + ".mlp.c_fc");
      for (double& x : wide)
        x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
      add(stream[r], linear(wide, block + ".mlp.c_proj"));
    }
  }

  static void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  double sequence_loss(const std::int32_t* tokens, const std::int32_t* targets) const {
    const auto c = static_cast<std::size_t>(shape_.width);
    const Row &wte = tensor(".wte.weight"), &wpe = tensor(".wpe.weight");
    std::vector<Row> stream(static_cast<std::size_t>(shape_.context), Row(c));
    for (std::size_t r = 0; r < stream.size(); ++r)
      for (std::size_t i = 0; i < c; ++i)
        stream[r][i] = wte[static_cast<std::size_t>(tokens[r]) * c + i] + wpe[r * c + i];
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
      add_block(stream, "h." + std::to_string(layer));
    const Row& head = shape_.untied_head ? tensor(".lm_head.weight") : wte;
    double loss = 0;
    for (std::size_t r = 0; r < stream.size(); ++r) {
      const Row last = norm(stream[r], ".ln_f");
      double total = 0, wanted = 0;
      for (std::size_t v = 0; v < static_cast<std::size_t>(shape_.vocabulary); ++v) {
        double logit = 0;
        for (std::size_t i = 0; i < c; ++i) logit += head[v * c + i] * last[i];
        total += std::exp(logit);
        if (v == static_cast<std::size_t>(targets[r])) wanted = logit;
      }
      loss += std::log(total) - wanted;
    }
    return loss;
  }

  train_gpt::ModelShape shape_;
  std::map<std::string, Row> tensors_;
};

}  // namespace train_gpt_test
