// Inputs and reference results of collectives: naive, in double or float, from the definition.
#pragma once

#include <flatshard/tensor/convert.hpp>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "random.hpp"
#include "worlds.hpp"

namespace conformance {

/// Bytes between two strips of poison; exactly the middle may be written.
class Guarded {
 public:
  explicit Guarded(Bytes bytes, int alignment_skew = 0)
      : bytes_(bytes),
        start_(strip + alignment_skew),
        memory_(index(start_ + bytes + strip), poison) {}
  std::byte* data() { return memory_.data() + start_; }
  std::vector<std::byte> content() const {
    const auto begin = memory_.begin() + start_;
    return {begin, begin + bytes_};
  }
  void fill(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  bool strips_intact() const {
    for (std::int64_t i = 0; i < std::int64_t(memory_.size()); ++i)
      if ((i < start_ || i >= start_ + bytes_) && memory_[index(i)] != poison) return false;
    return true;
  }

 private:
  static constexpr std::int64_t strip = 64;
  static constexpr std::byte poison{0xA5};
  std::int64_t bytes_;
  std::int64_t start_;
  std::vector<std::byte> memory_;
};

/// Random words that any rank can compute: the same for equal (test, rank).
class Words {
 public:
  Words(std::uint64_t test, Rank rank)
      : state_(flatshard_test::generator(test * 1000 + static_cast<std::uint64_t>(rank))()) {}
  std::uint64_t next() {  // an LCG, upper half mixed in: cheap, and good enough for test data
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ ^ (state_ >> 32);
  }

 private:
  std::uint64_t state_;
};

inline std::vector<std::byte> random_bytes(std::uint64_t test, Rank rank, Bytes count) {
  Words words(test, rank);
  std::vector<std::byte> bytes(index(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(words.next());
  return bytes;
}

/// Random finite elements, some of them -0, as bytes.
template <class Element>
std::vector<std::byte> random_elements(std::uint64_t test, Rank rank, Elements count) {
  Words words(test, rank);
  std::vector<std::byte> bytes(index(count * Elements(sizeof(Element))));
  for (Elements i = 0; i < count; ++i) {
    const double unit = static_cast<double>(words.next() >> 11) * 0x1p-53;
    const double value = i % 7 == 3 ? -0.0 : (unit - 0.5) * (i % 3 == 0 ? 1e-3 : 8.0);
    const Element element = from_double<Element>(value);
    std::memcpy(bytes.data() + index(i) * sizeof(Element), &element, sizeof(Element));
  }
  return bytes;
}

/// T of the definition in DESIGN.md.
template <class Value>
Value tree_sum(std::span<const Value> terms) {
  if (terms.size() == 1) return terms[0];
  std::size_t half = 1;
  while (2 * half < terms.size()) half *= 2;
  return tree_sum(terms.first(half)) + tree_sum(terms.subspan(half));
}

/// result(T over ranks of inputs[rank][i]) for every i, as bytes.
template <class Element, class Result>
std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>>& inputs) {
  using Value = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  const std::size_t count = inputs[0].size() / sizeof(Element);
  std::vector<std::byte> bytes(count * sizeof(Result));
  std::vector<Value> terms(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      Element element;
      std::memcpy(&element, inputs[rank].data() + i * sizeof(Element), sizeof(Element));
      terms[rank] = convert<Value>(element);
    }
    const Result result = convert<Result>(tree_sum(std::span<const Value>(terms)));
    std::memcpy(bytes.data() + i * sizeof(Result), &result, sizeof(Result));
  }
  return bytes;
}

inline std::vector<std::byte> joined(const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline void expect_content(Guarded& buffer, std::span<const std::byte> expected,
                           const std::string& what) {
  const auto content = buffer.content();
  expect(std::equal(content.begin(), content.end(), expected.begin(), expected.end()),
         what + ": the values");
  expect(buffer.strips_intact(), what + ": nothing written outside");
}

}  // namespace conformance
